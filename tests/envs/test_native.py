"""What holds for each environment of this package, beside Gymnasium's of the same name."""

import gymnasium
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from agents.envs import acrobot, cart_pole, mountain_car, pendulum
from agents.envs.registry import NATIVE, native
from tests.modes import in_every_mode

TASKS = sorted(NATIVE)
for_every_task = pytest.mark.parametrize('task', TASKS)


def get_state(env):
    return np.concatenate([np.atleast_1d(x) for x in np.asarray(env.unwrapped.state)])


def to_numbers(state):
    """All numbers of a state but the clock, [B, n]."""
    parts = [x.numpy() for x in state[:-1]]
    return np.concatenate([x.reshape(len(x), -1) for x in parts], 1)


def to_state(task, numbers, steps):
    """A state of this package from all its numbers."""
    x, steps = tf.constant(numbers, tf.float32), tf.constant(steps, tf.int32)
    if task == 'CartPole-v1':
        return cart_pole.State(x, steps)
    if task == 'Acrobot-v1':
        return acrobot.State(x[:, :2], x[:, 2:], steps)
    kind = pendulum.State if task == 'Pendulum-v1' else mountain_car.State
    return kind(x[:, 0], x[:, 1], steps)


def sample_actions(environment, rng, size):
    space = environment.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=size)
    # Beyond the bounds too, which the environment clips.
    return rng.uniform(1.5 * space.low, 1.5 * space.high, [size, 1]).astype(np.float32)


def compare_with_gymnasium(task, env, numbers, action, results):
    """Step Gymnasium's environment from each of the states, and compare everything."""
    state, obs, reward, terminated, _ = results
    for index, row in enumerate(numbers):
        env.reset()
        env.unwrapped.state = row.astype(np.float64)
        if task == 'CartPole-v1':
            env.unwrapped.steps_beyond_terminated = None
        expected = env.step(action[index])
        after = get_state(env)
        np.testing.assert_allclose(obs[index], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(reward[index], expected[1], rtol=1e-5, atol=1e-5)
        if bool(terminated[index]) != expected[2]:
            assert border_distance(task, after) < 1e-6
        if task != 'Acrobot-v1':  # Its angles jump between -π and π; obs has their sines.
            np.testing.assert_allclose(to_numbers(state)[index], after, rtol=1e-5, atol=1e-5)


def border_distance(task, state):
    if task == 'CartPole-v1':
        return min(abs(abs(state[0]) - 2.4), abs(abs(state[2]) - np.deg2rad(12)))
    if task == 'Acrobot-v1':
        return abs(-np.cos(state[0]) - np.cos(state[0] + state[1]) - 1)
    goal = {'MountainCar-v0': 0.5, 'MountainCarContinuous-v0': 0.45}.get(task, np.inf)
    return abs(state[0] - goal)


@for_every_task
def test_every_step_agrees_with_gymnasium_over_long_random_runs(task):
    environment, size, rng = native(task), 16, np.random.default_rng(0)
    step = tf.function(environment.step, jit_compile=True)
    env = gymnasium.make(task, disable_env_checker=True)
    seed = tf.constant(rng.integers(2**31, size=[size, 2]), tf.int32)
    state, _ = environment.reset(seed)
    for _ in range(150):
        numbers, action = to_numbers(state), sample_actions(environment, rng, size)
        results = step(state, tf.constant(action), seed)
        compare_with_gymnasium(task, env, numbers, action, results)
        # Where an episode ends, go on from a state anywhere between its usual bounds.
        ended = (results[3] | results[4]).numpy()
        spread = rng.uniform(-1, 1, numbers.shape) * np.abs(numbers).max(0)
        follow = np.where(ended[:, None], spread, to_numbers(results[0]))
        state = to_state(task, follow, np.zeros(size))


BORDERS = {
    # Position, speed, angle, angular speed: ends of the track and of the angle.
    'CartPole-v1': [[2.39, 3, 0, 0], [-2.39, -3, 0, 0], [0, 0, 0.209, 2], [0, 0, -0.209, -2]],
    # Speeds at their bounds; angles around ±π; the tip near the goal.
    'Acrobot-v1': [[3.1, 0.1, 12.5, 28], [-3.1, 3.1, -12.5, -28], [2.5, 0.3, 2, 1], [2, 0, 0, 0]],
    'Pendulum-v1': [[np.pi - 1e-3, 8], [-np.pi, -8], [50, 7.9], [1.5, 7.99]],
    # At the wall, at the goal, and too fast.
    'MountainCar-v0': [[-1.19, -0.07], [-1.2, -0.01], [0.49, 0.07], [0.599, 0.069]],
    'MountainCarContinuous-v0': [[-1.19, -0.07], [-1.2, -0.01], [0.44, 0.07], [0.599, 0.069]],
}


@for_every_task
def test_every_step_agrees_with_gymnasium_at_the_borders(task):
    environment, rng = native(task), np.random.default_rng(1)
    env = gymnasium.make(task, disable_env_checker=True)
    numbers = np.float32(BORDERS[task])
    for _ in range(3):
        action = sample_actions(environment, rng, len(numbers))
        state = to_state(task, numbers, np.zeros(len(numbers)))
        results = environment.step(
            state, tf.constant(action), tf.zeros([len(numbers), 2], tf.int32)
        )
        compare_with_gymnasium(task, env, numbers, action, results)


@for_every_task
def test_the_time_limit_is_that_of_gymnasium(task):
    environment, limit = native(task), gymnasium.spec(task).max_episode_steps
    numbers = np.zeros([2, 4 if task in ('CartPole-v1', 'Acrobot-v1') else 2])
    state = to_state(task, numbers, [limit - 2, limit - 1])
    action = tf.constant(sample_actions(environment, np.random.default_rng(0), 2))
    state, *_, truncated = environment.step(state, action, tf.zeros([2, 2], tf.int32))
    assert truncated.numpy().tolist() == [False, True]
    assert state.steps.numpy().tolist() == [limit - 1, limit]
    assert environment.reset(tf.zeros([2, 2], tf.int32))[0].steps.numpy().tolist() == [0, 0]


@for_every_task
def test_the_spaces_are_those_of_gymnasium(task):
    environment, env = native(task), gymnasium.make(task)
    assert environment.observation_space == env.observation_space
    assert environment.action_space == env.action_space


@for_every_task
def test_resets_have_the_distribution_of_gymnasium(task):
    size = 2000
    seed = tf.stack([tf.range(size), tf.ones(size, tf.int32)], 1)
    state, obs = native(task).reset(seed)
    env = gymnasium.make(task, disable_env_checker=True)
    expected = [env.reset(seed=0)[0], *(env.reset()[0] for _ in range(size - 1))]
    for ours, theirs in zip(obs.numpy().T, np.array(expected).T, strict=True):
        assert scipy.stats.ks_2samp(ours, theirs).pvalue > 0.001
        np.testing.assert_allclose([ours.min(), ours.max()], [theirs.min(), theirs.max()], atol=0.1)
    assert obs.dtype == tf.float32
    assert not state.steps.numpy().any()


@for_every_task
def test_a_row_depends_on_the_same_row_only(task):
    environment, rng = native(task), np.random.default_rng(2)
    seed = tf.constant(rng.integers(2**31, size=[8, 2]), tf.int32)
    action = tf.constant(sample_actions(environment, rng, 8))
    order = rng.permutation(8)

    def run(seed, action):
        state, obs = environment.reset(seed)
        return [obs, *tf.nest.flatten(environment.step(state, action, seed))]

    straight, mixed = run(seed, action), run(tf.gather(seed, order), tf.gather(action, order))
    for x, y in zip(straight, mixed, strict=True):
        np.testing.assert_array_equal(x.numpy()[order], y.numpy())


@in_every_mode
@for_every_task
def test_all_modes_agree(task, mode):
    environment, rng = native(task), np.random.default_rng(3)
    seed = tf.constant(rng.integers(2**31, size=[4, 2]), tf.int32)
    action = tf.constant(sample_actions(environment, rng, 4))

    def run(seed, action):
        state, _ = environment.reset(seed)
        return environment.step(state, action, seed)

    for x, y in zip(
        tf.nest.flatten(mode(run)(seed, action)), tf.nest.flatten(run(seed, action)), strict=True
    ):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6, atol=1e-6)


def test_gravity_can_be_set():
    gravity = {'g': 1.0}
    env = gymnasium.make('Pendulum-v1', disable_env_checker=True, **gravity)
    numbers, action = np.float32([[1.0, 0.5]]), np.float32([[0.3]])
    state = to_state('Pendulum-v1', numbers, [0])
    results = native('Pendulum-v1', **gravity).step(state, action, tf.zeros([1, 2], tf.int32))
    compare_with_gymnasium('Pendulum-v1', env, numbers, action, results)


def test_an_unknown_task_is_an_error_that_names_those_there_are():
    with pytest.raises(ValueError, match=r'one of Acrobot-v1.*got task=.Nothing-v0'):
        native('Nothing-v0')
