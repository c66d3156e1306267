import os
import sys

import gymnasium
import numpy as np
import pytest

from agents import algorithms, tools
from agents.envs import envpool_batch
from agents.envs.envpool_batch import make_envpool
from tests.tools.fake_batch import Recorder


@pytest.fixture
def envpool():
    return pytest.importorskip('envpool')


def play(batch, steps, policy=None, seed=None):
    """Return what was acted on, the actions, and the results, [T, B, ...] each."""
    random = np.random.default_rng(0)
    obs, rows = batch.reset(seed), []
    for _ in range(steps):
        if policy is not None:
            action = policy(obs)
        elif isinstance(batch.action_space, gymnasium.spaces.Discrete):
            action = random.integers(batch.action_space.n, size=batch.num_envs)
        else:
            action = random.uniform(-1, 1, (batch.num_envs, *batch.action_space.shape))
        result = batch.step(action)
        rows.append((obs, action, result))
        obs = result.obs
    obs, action, results = zip(*rows, strict=True)
    fields = [np.stack(field) for field in zip(*results, strict=True)]
    return np.stack(obs), np.stack(action), tools.StepResult(*fields)


def assert_equal(*tapes):
    for one, other in zip(*tapes, strict=True):
        np.testing.assert_array_equal(one, other)


# Without EnvPool.


def test_a_missing_envpool_is_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'envpool', None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'batch-agents\[envpool\]'"):
        make_envpool('CartPole-v1', 2)


def test_rows_are_sorted_by_environment():
    ids = np.array([2, 0, 1], np.int32)
    first, second = envpool_batch._in_order(ids, np.array([20, 0, 10]), np.array([[2], [0], [1]]))
    assert first.tolist() == [0, 10, 20]
    assert second.tolist() == [[0], [1], [2]]


# What it steps.


def set_cart_pole(env, obs):
    env.state, env.steps_beyond_terminated = obs.astype(np.float64), None


def set_pendulum(env, obs):
    env.state = np.array([np.arctan2(obs[1], obs[0]), obs[2]], np.float64)


def set_half_cheetah(env, obs):
    env.set_state(np.array([0, *obs[:8]]), obs[8:])  # How far it has come is not observed.


SET_STATE = {
    'CartPole-v1': set_cart_pole,
    'Pendulum-v1': set_pendulum,
    'HalfCheetah-v5': set_half_cheetah,
}


@pytest.fixture
def mujoco(monkeypatch, tmp_path):
    """Skip without what Gymnasium's tasks need, and keep MuJoCo's log away."""
    monkeypatch.chdir(tmp_path)
    for module in ('mujoco', 'imageio'):
        pytest.importorskip(module)


@pytest.mark.parametrize('task', SET_STATE)
def test_transitions_are_those_of_gymnasium(envpool, task, request):
    if task == 'HalfCheetah-v5':
        request.getfixturevalue('mujoco')
    with make_envpool(task, 3, max_episode_steps=30) as batch:
        obs, action, result = play(batch, 100)
    env = gymnasium.make(task).unwrapped
    env.reset()
    for t, i in zip(*result.valid.nonzero(), strict=True):
        SET_STATE[task](env, obs[t, i])
        next_obs, reward, terminated, _, _ = env.step(action[t, i])
        np.testing.assert_allclose(result.next_obs[t, i], next_obs, rtol=0, atol=1e-4)
        assert result.reward[t, i] == pytest.approx(reward, abs=1e-4)
        assert result.terminated[t, i] == (terminated and not result.truncated[t, i])
    assert 260 < result.valid.sum() < 300


@pytest.mark.parametrize('task', ['CartPole-v1', 'Pendulum-v1', 'HalfCheetah-v5'])
def test_episodes_are_whole_and_only_the_rows_of_resets_are_not_valid(envpool, task):
    with make_envpool(task, 4, max_episode_steps=10) as batch:
        obs, _, result = play(batch, 50)
        assert result.obs.dtype == batch.observation_space.dtype
    assert [x.dtype for x in result[1:4]] == [np.float32, bool, bool]
    np.testing.assert_array_equal(obs[1:], result.obs[:-1])
    np.testing.assert_array_equal(result.next_obs, result.obs)
    ended = result.terminated | result.truncated
    # The row after the end of an episode resets, and no other does.
    np.testing.assert_array_equal(~result.valid[1:], ended[:-1])
    assert result.valid[0].all()
    assert not result.reward[~result.valid].any()
    assert not ended[~result.valid].any()
    lengths = [np.diff(np.flatnonzero(column), prepend=-1) - 1 for column in ended.T]
    for i, rows in enumerate(lengths):
        # All but the first episode have a row of a reset in front.
        steps = rows + np.array([1] + [0] * (len(rows) - 1))
        cut = result.truncated[ended[:, i], i]
        assert (steps[cut] == 10).all()
        assert (steps <= 10).all()
    assert ended.sum() >= 16


def test_a_fixed_policy_scores_what_it_does_in_gymnasium(envpool, mujoco):
    count, steps = 24, 100

    def policy(obs):
        return np.tile([1.0, -1.0, 1.0, -1.0, -1.0, 1.0], (len(obs), 1))

    with make_envpool('HalfCheetah-v5', count, max_episode_steps=steps) as batch:
        _, _, result = play(batch, steps, policy, seed=1)
    assert result.truncated[-1].all() and result.valid.all()
    makes = [lambda: gymnasium.make('HalfCheetah-v5')] * count
    with tools.make_batch_env(makes, count, 0) as batch:
        _, _, expected = play(batch, steps, policy, seed=2)
    scores, others = result.reward.sum(0), expected.reward.sum(0)
    error = np.sqrt((scores.var() + others.var()) / count)
    # Six joints at their limit cost 0.1 · 6 a step, and it gets nowhere: about -60, nearly always.
    assert others.mean() == pytest.approx(-60, abs=10)
    assert 0 < error < 0.5
    assert abs(scores.mean() - others.mean()) < 4 * error


# Seeds and threads.


@pytest.mark.parametrize('task', ['CartPole-v1', 'Hopper-v5'])
def test_equal_seeds_give_equal_tapes_with_any_number_of_threads(envpool, task):
    with make_envpool(task, 3, num_threads=1) as batch:
        first, again, other = (play(batch, 60, seed=seed) for seed in (5, 5, 6))
    with make_envpool(task, 3, num_threads=3, seed=5) as batch:
        threads = play(batch, 60)
    assert_equal((first[0], *first[2]), (again[0], *again[2]))
    assert_equal((first[0], *first[2]), (threads[0], *threads[2]))
    assert not np.array_equal(first[0], other[0])


def test_each_environment_can_be_given_its_own_seed(envpool):
    with make_envpool('CartPole-v1', 3) as batch:
        obs = batch.reset([7, 8, 2**31 + 9])
        swapped = batch.reset([8, 7, 9])
    np.testing.assert_array_equal(obs, swapped[[1, 0, 2]])
    assert len({tuple(row) for row in obs.tolist()}) == 3


def test_a_reset_without_seeds_goes_on(envpool):
    with make_envpool('CartPole-v1', 2, seed=3) as batch:
        first = batch.reset()
        second = batch.reset()
        assert not np.isin(first, second).any()
        # A row that would have been a reset begins an episode after an explicit one.
        while not (result := batch.step([1, 1])).terminated.any():
            pass
        assert not np.isin(result.obs, batch.reset()).any()
        assert batch.step([1, 1]).valid.all()
        np.testing.assert_array_equal(batch.reset(3), first)


def test_threads_end_with_the_environments_that_they_step(envpool):
    def threads():
        return len(os.listdir('/proc/self/task'))

    before = threads()
    batch = make_envpool('CartPole-v1', 4, num_threads=4)
    batch.reset(0)
    first = threads()
    for seed in range(5):
        batch.reset(seed)
    assert threads() == first > before
    batch.close()
    assert threads() == before


# Mistakes.


def test_an_unknown_task_is_an_error_that_names_near_ones(envpool):
    with pytest.raises(ValueError, match="got task='HalfCheeta-v5'. Try HalfCheetah-v5"):
        make_envpool('HalfCheeta-v5', 2)
    with pytest.raises(ValueError, match="task='xyzzy'. Try a name of list_all_envs"):
        make_envpool('xyzzy', 2)


def test_other_mistakes_are_errors_too(envpool):
    with pytest.raises(ValueError, match='num_envs=0'):
        make_envpool('CartPole-v1', 0)
    with pytest.raises(TypeError, match='nonsense'):
        make_envpool('CartPole-v1', 2, nonsense=1)
    batch = make_envpool('CartPole-v1', 2)
    with pytest.raises(RuntimeError, match='reset before it is stepped'):
        batch.step([0, 0])
    batch.reset()
    with pytest.raises(ValueError, match=r'in \[0, 2\), got action=2 at index 1'):
        batch.step([0, 2])


# In the graph.


def test_an_operation_stores_what_is_stepped_by_hand(envpool):
    recorder = Recorder()
    env = tools.InGraphBatchEnv(make_envpool('Acrobot-v1', 3, max_episode_steps=4))
    simulation = tools.simulate(env, recorder, horizon=12)
    simulation.reset(seed=7)
    metrics = simulation()
    rows = recorder.given['records']['transition']
    env.close()
    with make_envpool('Acrobot-v1', 3, max_episode_steps=4) as batch:
        obs = batch.reset(7)
        for t in range(12):
            np.testing.assert_array_equal(rows.obs[t], obs)
            result = batch.step(rows.action[t])
            np.testing.assert_array_equal(rows.next_obs[t], result.next_obs)
            np.testing.assert_array_equal(rows.valid[t], result.valid)
            obs = result.obs
    # Four steps and a reset, twice, and two steps more; each costs 1.
    assert rows.valid[:, 0].tolist() == [True] * 4 + [False] + [True] * 4 + [False] + [True] * 2
    assert (metrics['episodes'], metrics['length'], metrics['score']) == (6, 4, -4)


def test_an_evaluation_plays_the_episodes_of_its_seeds(envpool):
    env = tools.InGraphBatchEnv(make_envpool('CartPole-v1', 4))
    ppo = algorithms.PPO(env.observation_space, env.action_space, 4)
    evaluation = tools.evaluate(env, ppo)
    first, swapped = evaluation([1, 2, 3, 4]), evaluation([4, 3, 2, 1])
    np.testing.assert_array_equal(first.length, swapped.length[::-1])
    np.testing.assert_array_equal(first.score, first.length)
    assert first.terminated.all()
    env.close()


def test_ppo_learns_from_mujoco(envpool):
    env = tools.InGraphBatchEnv(make_envpool('HalfCheetah-v5', 4, max_episode_steps=9))
    hyper = algorithms.Hyperparameters(policy_layers=(8,), value_layers=(8,), compile='off')
    ppo = algorithms.PPO(env.observation_space, env.action_space, 4, hyper)
    simulation = tools.simulate(env, ppo, horizon=20)
    for _ in range(2):
        metrics = simulation()
    # Two of the 20 rows of each environment are resets, and are in no statistics.
    assert ppo.normalize_obs.count.numpy() == 2 * 4 * (20 - 2)
    assert metrics['minibatches'] > 0
    assert metrics['length'] == 9
    env.close()
