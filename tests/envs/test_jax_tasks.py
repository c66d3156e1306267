"""Tasks of libraries that are written in JAX, beside the libraries themselves."""

import importlib.util
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.algorithms import PPO, Hyperparameters
from agents.envs.compiled_batch_env import CompiledBatchEnv
from agents.envs.registry import JAX_TASKS, TaskError, check_jax, in_jax

jax = pytest.importorskip('jax')

HYPER = Hyperparameters(policy_layers=(8,), value_layers=(8,), epochs=2, minibatch=16)


def need(library):
    try:
        check_jax(library)
    except ImportError as error:
        pytest.skip(str(error))


def state_of(batch, example):
    """What the variables hold, as the library has it."""
    leaves = [variable.numpy() for variable in tf.nest.flatten(batch.inner.state)]
    return jax.tree.unflatten(jax.tree.structure(example), leaves)


def sample(space, count, rng):
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=count)
    return rng.uniform(space.low, space.high, (count, *space.shape)).astype(np.float32)


def train(batch):
    ppo = PPO(batch.observation_space, batch.action_space, batch.num_envs, HYPER)
    simulation = tools.simulate(batch, ppo, horizon=8)
    metrics = simulation.run(3)
    assert simulation.compiled
    assert all(np.isfinite(m['policy_loss']) for m in metrics[1:])
    return metrics


# gymnax.


@pytest.mark.parametrize('name', ['CartPole-v1', 'Pendulum-v1', 'Breakout-MinAtar'])
def test_every_step_is_that_of_gymnax_whose_own_step_resets(name):
    need('gymnax')
    import gymnax

    batch = CompiledBatchEnv(in_jax(f'gymnax/{name}', max_steps_in_episode=9), 4)
    env, params = gymnax.make(name)
    params = params.replace(max_steps_in_episode=9)
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    _, example = env.reset(keys[0], params)
    step = jax.vmap(env.step, (0, 0, 0, None))
    batch_step = tf.function(batch.step, autograph=False, jit_compile=True)
    rng, flags = np.random.default_rng(0), []
    batch.reset(0)
    for _ in range(40):
        action, state = sample(batch.action_space, 4, rng), state_of(batch, example)
        # None of these tasks has a step with random numbers, so any keys do.
        _, _, reward, terminated, truncated, info = step(keys, state, action, params)
        transition = batch_step(tf.constant(action))
        np.testing.assert_allclose(transition.next_obs, info['final_observation'], atol=1e-5)
        np.testing.assert_allclose(transition.reward, reward, atol=1e-5)
        np.testing.assert_array_equal(transition.terminated, terminated)
        np.testing.assert_array_equal(transition.truncated, truncated)
        np.testing.assert_array_equal(batch.first, terminated | truncated)
        flags.append((terminated, truncated))
    terminated, truncated = (x.sum() for x in np.moveaxis(flags, 1, 0))
    # 40 steps are at least four episodes of at most 9 steps in each of four environments.
    assert terminated + truncated >= 16
    assert (terminated > 0) == (name != 'Pendulum-v1')
    assert truncated > 0


def test_a_pole_that_falls_ends_the_world_and_is_reset_to_the_start_of_gymnax():
    need('gymnax')
    batch = CompiledBatchEnv(in_jax('CartPole-v1'), 4)
    batch.reset(3)
    for step in range(1, 13):
        transition = batch.step(tf.zeros([4], tf.int64))  # Always to the left.
        fell = np.abs(transition.next_obs.numpy()[:, 2]) > np.deg2rad(12)
        np.testing.assert_array_equal(transition.terminated, fell)
        np.testing.assert_array_equal(transition.reward, np.ones(4))
        if fell.any():
            assert step > 7
            assert (np.abs(batch.obs.numpy()[fell]) <= 0.05).all()
            return
    pytest.fail('No pole has fallen.')


@pytest.mark.parametrize('name', JAX_TASKS)
def test_tasks_of_gymnasium_have_spaces_of_gymnasium(name):
    need('gymnax')
    environment, env = in_jax(name), gymnasium.make(name)
    assert environment.observation_space.shape == env.observation_space.shape
    assert environment.action_space == env.action_space
    if name == 'CartPole-v1':
        # The largest float, which stands for no bound in gymnax, must not be taken for one.
        assert environment.observation_space == env.observation_space


def test_a_gymnax_that_cannot_tell_a_time_limit_is_an_error(monkeypatch):
    need('gymnax')
    import gymnax

    monkeypatch.delattr(gymnax.environments.environment.Environment, 'is_truncated')
    with pytest.raises(TaskError, match="of version 1 or later: pip install -U 'gymnax>=1'"):
        in_jax('CartPole-v1')


def test_ppo_learns_from_gymnax_in_one_program():
    need('gymnax')
    batch = CompiledBatchEnv(in_jax('CartPole-v1', max_steps_in_episode=8), 4)
    assert [m['episodes'] for m in train(batch)] == [4, 4, 4]


@pytest.mark.parametrize(
    ('task', 'library', 'message'),
    [
        ('gymnax/CartPole-v7', 'gymnax', "gymnax has no task 'CartPole-v7'. There is CartPole-v1"),
        ('brax/aunt', 'brax', "Brax has no task 'aunt'"),
        ('mjx/ant', 'mjx', 'no task mjx/ant. There is mjx/half_cheetah'),
        ('Ant-v5', '', 'written library/name with one of brax, gymnax.*, got task=.Ant-v5'),
        ('other/x', '', 'written library/name with one of brax, gymnax.*, got task=.other/x'),
    ],
)
def test_a_task_that_a_library_does_not_have_is_an_error(task, library, message):
    need(library)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        with pytest.raises(TaskError, match=message):
            in_jax(task)


def test_a_library_that_is_missing_is_an_error_that_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, 'brax', None)
    with pytest.raises(ModuleNotFoundError, match=r"need brax: pip install 'batch-agents\[jax\]'"):
        in_jax('brax/ant')
    monkeypatch.setitem(sys.modules, 'mujoco_playground', None)
    with pytest.raises(ModuleNotFoundError, match='pip install playground'):
        in_jax('playground/CartpoleBalance')


# Physics.


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:Brax System')
def test_every_step_is_that_of_brax():
    need('brax')
    from brax import envs

    batch = CompiledBatchEnv(in_jax('brax/ant', max_episode_steps=5), 2)
    env = envs.get_environment('ant', backend='spring')
    example = (jax.eval_shape(env.reset, jax.random.PRNGKey(0)), 0)
    step, rng = jax.jit(jax.vmap(env.step)), np.random.default_rng(0)
    batch.reset(0)
    for count in range(1, 11):
        action = sample(batch.action_space, 2, rng)
        state, steps = state_of(batch, example)
        assert steps.tolist() == [(count - 1) % 5] * 2
        expected = step(state, action)
        transition = batch.step(tf.constant(action))
        np.testing.assert_allclose(transition.next_obs, expected.obs, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(transition.reward, expected.reward, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(transition.terminated, expected.done > 0)
        assert transition.truncated.numpy().tolist() == [count % 5 == 0] * 2
    assert [m['length'] for m in train(batch)] == [5, 5, 5]


@pytest.mark.slow
def test_the_cheetah_of_mjx_moves_as_gymnasiums(tmp_path, monkeypatch):
    need('mjx')
    pytest.importorskip('mujoco')
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log.
    environment = in_jax('mjx/half_cheetah', max_episode_steps=30)
    batch, rng = CompiledBatchEnv(environment, 2), np.random.default_rng(0)
    env = gymnasium.make('HalfCheetah-v5').unwrapped
    assert environment.observation_space.shape == env.observation_space.shape
    assert environment.action_space == env.action_space
    env.reset()
    batch.reset(0)
    step = tf.function(batch.step, autograph=False, jit_compile=True)
    for count in range(1, 31):
        names = ('acceleration', 'position', 'speed', 'steps')  # As JAX sorts them.
        state = dict(zip(names, batch.inner.state, strict=True))
        before = {name: state[name].numpy()[0] for name in names}
        action = sample(batch.action_space, 2, rng)
        transition = step(tf.constant(action))
        env.set_state(before['position'].astype(float), before['speed'].astype(float))
        env.data.qacc_warmstart[:] = before['acceleration']
        obs, reward, *_ = env.step(action[0])
        np.testing.assert_allclose(transition.next_obs[0], obs, atol=0.02)
        assert transition.reward.numpy()[0] == pytest.approx(reward, abs=0.02)
        assert not transition.terminated.numpy().any()
        assert (transition.truncated.numpy() == (count == 30)).all()
    assert all(np.isfinite(m['value_loss']) for m in train(batch)[1:])


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec('mujoco_playground') is None, reason='Playground is not installed.'
)
def test_a_task_of_playground_trains():
    batch = CompiledBatchEnv(in_jax('playground/CartpoleBalance', max_episode_steps=8), 4)
    # Its reward is in [0, 1] a step, and nearly 1 where the pole begins upright.
    assert all(4 < m['score'] <= 8 for m in train(batch))
