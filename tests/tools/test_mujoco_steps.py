import gymnasium
import numpy as np
import pytest

from agents.tools import mujoco_steps, mujoco_tasks
from agents.tools.batch_env import BatchEnv
from agents.tools.local_batch import LocalBatch
from agents.tools.make_batch import make_batch_env

pytest.importorskip('mujoco')

NAMES = (
    *('HalfCheetah', 'Hopper', 'Walker2d', 'Ant', 'Humanoid', 'Swimmer', 'Reacher'),
    'InvertedPendulum',
)
HOPPER = 'Hopper-v5'


def make(name, num_envs=3, wrap=lambda env: env, fast=True, **kwargs):
    envs = [wrap(gymnasium.make(name, **kwargs)) for _ in range(num_envs)]
    batch = LocalBatch(envs)
    batch.constructors = [lambda: wrap(gymnasium.make(name, **kwargs))] * num_envs if fast else ()
    reset(batch)
    return batch


def reset(batch, seeds=None):
    batch.reset_async(list(range(batch.num_envs)) if seeds is None else seeds)
    batch.reset_wait()


def random_actions(batch, steps, seed=0):
    shape = steps, batch.num_envs, *batch.action_space.shape
    # Also beyond the bounds, where nothing but the simulation clips them.
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(np.float32)


def step(batch, action):
    """Return all bits of a step, and of the simulations after it."""
    batch.step_async(action)
    ended = batch.step_wait()
    _, obs, last_obs, *rest = batch.arrays
    last_obs = last_obs[batch.arrays.terminated | batch.arrays.truncated]  # Else, out of date.
    arrays = [array.tobytes() for array in (obs, last_obs, *rest)]
    simulations = [
        [getattr(env.unwrapped.data, name).tobytes() for name in ('qpos', 'qacc', 'cfrc_ext')]
        for env in batch._envs
    ]
    elapsed = [env.get_wrapper_attr('_elapsed_steps') for env in batch._envs]
    return ended, arrays, simulations, elapsed


def compare(fast, plain, steps, seed=0):
    """Step both with the same actions; return how many steps of them ended an episode."""
    ends = 0
    for number, action in enumerate(random_actions(fast, steps, seed)):
        got, expected = step(fast, action), step(plain, action)
        assert got == expected, number
        ends += got[0]
    assert fast._together is not None and plain._together is None
    return ends


@pytest.mark.parametrize('name', NAMES)
def test_not_one_bit_differs(name):
    fast, plain = (make(f'{name}-v5', fast=fast) for fast in (True, False))
    assert compare(fast, plain, 1050) > 0
    for batch in (fast, plain):
        reset(batch, [7, 8, 9])
    assert fast._together is None
    compare(fast, plain, 20, seed=1)


def test_a_worker_process_gives_the_same_bits():
    worker = make_batch_env(lambda: gymnasium.make(HOPPER), 4, num_workers=2)
    plain = BatchEnv([gymnasium.make(HOPPER) for _ in range(4)])
    try:
        shape = 60, 4, *plain.action_space.shape
        actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        np.testing.assert_array_equal(worker.reset(seed=3), plain.reset(seed=3))
        for action in actions:
            for got, expected in zip(worker.step(action), plain.step(action), strict=True):
                np.testing.assert_array_equal(got, expected)
    finally:
        worker.close()
        plain.close()


@pytest.mark.parametrize('num_envs', [1, 2, 17])
@pytest.mark.parametrize('name', ['Ant', 'Humanoid'])
def test_not_one_bit_depends_on_the_number_of_environments(name, num_envs):
    fast, plain = (make(f'{name}-v5', num_envs, fast=fast) for fast in (True, False))
    compare(fast, plain, 60)


@pytest.mark.parametrize(
    'name, kwargs',
    [
        ('HalfCheetah', {'frame_skip': 2, 'max_episode_steps': 30, 'ctrl_cost_weight': 1}),
        ('HalfCheetah', {'exclude_current_positions_from_observation': False}),
        ('Hopper', {'terminate_when_unhealthy': False, 'healthy_reward': 3}),
        ('Walker2d', {'healthy_angle_range': (-0.1, 0.1), 'disable_env_checker': True}),
        ('Ant', {'include_cfrc_ext_in_observation': False, 'main_body': 'torso'}),
        ('Ant', {'contact_force_range': (-0.1, 0.2), 'healthy_z_range': (0.5, 0.7)}),
        ('Humanoid', {'include_cinert_in_observation': False, 'contact_cost_range': (0.1, 0.2)}),
        ('Reacher', {'reward_dist_weight': 2, 'render_mode': 'rgb_array'}),
    ],
)
def test_not_one_bit_differs_with_other_settings(name, kwargs):
    fast, plain = (make(f'{name}-v5', fast=fast, **kwargs) for fast in (True, False))
    compare(fast, plain, 100)


def test_a_state_goes_on_with_the_same_bits():
    first, second, plain = (make(HOPPER, fast=fast) for fast in (True, True, False))
    compare(first, plain, 70)
    first.call_async('get_state', '')
    states = first.call_wait()
    assert first._together is not None
    second.call_async('set_state', '', (states,))
    second.call_wait()
    compare(second, plain, 70, seed=1)


def test_a_simulation_that_explodes_is_the_same_error():
    messages = []
    for batch in (make('HalfCheetah-v5', fast=fast) for fast in (True, False)):
        for action in random_actions(batch, 5):
            step(batch, action)
        batch._envs[1].unwrapped.data.qvel[:] = np.nan
        batch.step_async(random_actions(batch, 1)[0])
        try:
            batch.step_wait()
            messages.append(batch.arrays.obs.tobytes())
        except FloatingPointError as error:
            messages.append(str(error))
    assert messages[0] == messages[1]


def test_an_error_names_its_environment_and_a_reset_is_needed():
    batch = make(HOPPER)
    for action in random_actions(batch, 5):
        step(batch, action)

    def fail(*_):
        raise OSError('broken')

    batch._together._simulations[1] = fail
    batch.step_async(random_actions(batch, 1)[0])
    with pytest.raises(OSError) as info:
        batch.step_wait()
    assert 'environment 1 in step' in info.value.__notes__[0]
    with pytest.raises(RuntimeError, match='reset'):
        batch.step_wait()


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


def patched(env):
    env.unwrapped.step = env.unwrapped.step
    return env


def subclass(env):
    kind = type(env.unwrapped)
    env.unwrapped.__class__ = type('Own', (kind,), {})
    return env


@pytest.mark.parametrize('wrap', [Doubled, patched, subclass, gymnasium.wrappers.ClipAction])
def test_what_is_not_known_is_stepped_as_ever(wrap):
    batch = make(HOPPER, wrap=wrap)
    for action in random_actions(batch, 5):
        step(batch, action)
    assert batch._together is None


def test_environments_with_different_settings_are_stepped_as_ever():
    weights = iter((1.0, 2.0))
    batch = LocalBatch([gymnasium.make(HOPPER, healthy_reward=next(weights)) for _ in range(2)])
    batch.constructors = [lambda: gymnasium.make(HOPPER)] * 2
    reset(batch)
    for action in random_actions(batch, 5):
        step(batch, action)
    assert batch._together is None


@pytest.mark.parametrize('kind, args', [('set', (2.0,)), ('get', ())])
def test_environments_that_may_have_been_changed_are_stepped_as_ever(kind, args):
    fast, plain = make(HOPPER), make(HOPPER, fast=False)
    compare(fast, plain, 5)
    for batch in (fast, plain):
        batch.call_async(kind, '_healthy_reward', args)
        batch.call_wait()
    assert fast._together is None
    for action in random_actions(fast, 5):
        assert step(fast, action) == step(plain, action)
    for batch in (fast, plain):
        reset(batch)
    compare(fast, plain, 5)


def test_a_task_that_is_not_what_is_known_is_stepped_as_ever(monkeypatch):
    monkeypatch.setattr(mujoco_steps, '_proved', {})
    known = mujoco_tasks.TASKS['gymnasium.envs.mujoco.hopper_v5.HopperEnv']
    monkeypatch.setattr(known, '_cost', lambda self, action: 0.001 * np.sum(action, axis=1))
    batch, (first, *others) = make(HOPPER), random_actions(make(HOPPER), 5)
    step(batch, first)
    with pytest.warns(UserWarning, match='HopperEnv'):
        step(batch, others[0])
    for action in others:
        step(batch, action)
    assert batch._together is None
