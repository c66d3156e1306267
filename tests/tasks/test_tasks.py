"""The small tasks, and the wrapper for those with masks."""

import gymnasium
import numpy as np
import pytest

import agents.tasks  # noqa: F401  It registers them.
from agents import tools
from agents.tools import wrappers

NAMES = ('Cards-v0', 'Lock-v0', 'Recall-v0', 'Target-v0')


@pytest.mark.parametrize('name', NAMES)
def test_every_task_is_fit_for_training(name):
    def make():
        env = gymnasium.make(name)
        return wrappers.OnlyAllowed(env, 'action_mask') if name == 'Cards-v0' else env

    report = tools.check_env(make, seconds=2.0)
    assert report.ok, report


@pytest.mark.parametrize('name', NAMES)
def test_a_copy_goes_on_from_a_state(name):
    first, second = (gymnasium.make(name).unwrapped for _ in range(2))
    first.reset(seed=1)
    second.reset(seed=2)
    first.action_space.seed(0)
    action = 0 if name != 'Cards-v0' else int(np.flatnonzero(first._hand)[0])
    first.step(first.action_space.sample() if name != 'Cards-v0' else action)
    second.set_state(first.get_state())
    second.np_random.bit_generator.state = first.np_random.bit_generator.state
    action = first.action_space.sample()
    if name == 'Cards-v0':
        action = int(np.flatnonzero(first._hand)[0])
    one, other = first.step(action), second.step(action)
    for a, b in zip(one[:4], other[:4], strict=True):
        np.testing.assert_equal(a, b)


def test_recall_asks_for_the_cue_after_the_delay():
    env = gymnasium.make('Recall-v0', cues=3, delay=2)
    obs, _ = env.reset(seed=0)
    cue = int(obs.argmax())
    np.testing.assert_array_equal(obs, np.eye(4)[cue])
    seen = [env.step(0) for _ in range(3)]
    assert [x[1:3] for x in seen] == [(0.0, False)] * 3
    assert all(x[0][-1] == 0 for x in seen[:2])
    np.testing.assert_array_equal(seen[2][0], [0, 0, 0, 1])
    obs, reward, terminated, truncated, _ = env.step(cue)
    assert (reward, terminated, truncated) == (1.0, True, False)


@pytest.mark.parametrize(('kwargs', 'got'), [({'cues': 1}, 'cues=1'), ({'delay': -1}, 'delay=-1')])
def test_recall_needs_a_question_that_can_be_asked(kwargs, got):
    with pytest.raises(ValueError, match=got):
        gymnasium.make('Recall-v0', **kwargs)


def test_the_best_velocity_reaches_the_target():
    env = gymnasium.make('Target-v0')
    obs, _ = env.reset(seed=0)
    done = False
    while not done:
        velocity = np.clip(10 * (obs['target'] - obs['position']), -1, 1)
        obs, reward, terminated, done, _ = env.step(velocity.astype(np.float32))
        assert not terminated
    assert -1e-6 < reward <= 0


def test_the_note_tells_the_digits():
    env = gymnasium.make('Lock-v0')
    note, _ = env.reset(seed=0)
    score = 0
    for _ in range(20):
        note, reward, _, truncated, _ = env.step((note - 1) % 5)
        score += reward
    assert score == 20 and truncated


def test_a_card_can_be_played_once_and_wins_if_it_is_higher():
    env = gymnasium.make('Cards-v0').unwrapped
    obs, _ = env.reset(seed=0)
    for count in range(6, 0, -1):
        assert obs['hand'].sum() == count
        card, table = int(np.flatnonzero(obs['hand'])[-1]), obs['table']
        obs, reward, terminated, _, _ = env.step(card)
        assert reward == float(card > table)
        with pytest.raises(ValueError, match=f'got {card}'):
            env.step(card)
    assert terminated and obs['action_mask'].all()


class TwoMasks(gymnasium.Env):
    """Tells which actions it was given."""

    observation_space = gymnasium.spaces.Dict(mask=gymnasium.spaces.MultiBinary(5))
    action_space = gymnasium.spaces.MultiDiscrete([3, 2], start=[10, 0])

    def reset(self, *, seed=None, options=None):
        return {'mask': np.array([0, 1, 0, 0, 0])}, {}

    def step(self, action):
        self.seen = action
        return {'mask': np.array([1, 0, 1, 1, 0])}, 0.0, False, False, {}


def test_forbidden_actions_become_the_next_ones_that_are_allowed():
    env = wrappers.OnlyAllowed(TwoMasks(), 'mask')
    env.reset()
    env.step(np.array([12, 1]))  # Only 11; nothing is allowed of the second, so anything.
    np.testing.assert_array_equal(env.unwrapped.seen, [11, 1])
    env.step(np.array([11, 1]))  # 12 comes next; and 0, after the highest.
    np.testing.assert_array_equal(env.unwrapped.seen, [12, 0])
    env.step(np.array([10, 0]))
    np.testing.assert_array_equal(env.unwrapped.seen, [10, 0])


def test_a_mask_must_be_there_and_fit():
    with pytest.raises(ValueError, match="got action_mask='masc'"):
        wrappers.OnlyAllowed(TwoMasks(), 'masc')
    with pytest.raises(TypeError, match='must be Discrete or MultiDiscrete'):
        wrappers.OnlyAllowed(gymnasium.make('Target-v0'), 'position')
    with pytest.raises(ValueError, match=r'must have shape \(13,\)'):
        wrappers.OnlyAllowed(gymnasium.make('Cards-v0'), 'table')
