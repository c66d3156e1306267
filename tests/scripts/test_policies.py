import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents import tools
from agents.scripts import environments, policies, runs, saved_spaces, train

BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    logdir = tmp_path_factory.mktemp('logdir')
    flags = ['--config=debug', '--env=Pendulum-v1', '--timestamp=a', '--policy_layers=8']
    assert train.main([*flags, f'--logdir={logdir}']) == 0
    return logdir / 'a-debug'


def observations(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


def test_a_batch_is_its_rows(folder):
    policy = agents.load(folder)
    obs = observations(5)
    actions = policy(obs)
    assert actions.shape == (5, 1) and actions.dtype == np.float32
    for row, action in zip(obs, actions, strict=True):
        assert policy(row).shape == (1,)
        np.testing.assert_allclose(policy(row), action, atol=1e-6)  # Sums in another order.


def test_actions_are_those_of_an_evaluation(folder):
    run = runs.open_folder(str(folder))
    config = runs.load_config(run)
    restored = policies.restore(run, config, *saved_spaces.load(run))
    env = environments.make_batch(config, 2)
    score = tools.evaluate(env, restored.algorithm)([5, 6]).score
    env.close()
    policy = agents.load(folder)
    for seed, wanted in zip((5, 6), score, strict=True):
        env = gymnasium.make('Pendulum-v1')
        (obs, _), total, over = env.reset(seed=seed), 0.0, False
        while not over:
            obs, reward, _, over, _ = env.step(policy(obs))
            total += reward
        np.testing.assert_allclose(total, wanted, rtol=1e-3)


def test_samples_follow_their_seed_and_the_distribution(folder):
    same = [agents.load(folder, stochastic=True, seed=s)(np.zeros((4000, 3))) for s in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()
    policy = agents.load(folder, stochastic=True)
    first, second = policy(np.zeros((4000, 3))), policy(np.zeros((4000, 3)))
    assert (first != second).any()
    # The middle of half the samples on each side is the action without noise.
    np.testing.assert_allclose(np.median(first), agents.load(folder)(np.zeros(3))[0], atol=0.2)


@pytest.mark.parametrize(
    ('obs', 'error', 'message'),
    [
        (np.zeros(4), ValueError, r'must have shape \(3,\), .* got shape=\(4,\)'),
        (np.zeros((2, 2, 3)), ValueError, r'got shape=\(2, 2, 3\)'),
        (np.zeros(3, complex), TypeError, 'must have dtype float32, got dtype=complex128'),
    ],
)
def test_observations_that_do_not_fit_are_named(folder, obs, error, message):
    with pytest.raises(error, match=message):
        agents.load(folder)(obs)


class Counting(tf.Module):
    """Acts by the number of steps of the episode."""

    def initial(self, num_envs):
        return tf.zeros([num_envs], tf.int32)

    def perform(self, obs, first, carry, seed, training):
        carry = tf.where(first, 0, carry) + 1
        return carry, (), carry


def test_memory_is_kept_and_cleared_where_episodes_begin():
    policy = policies.Policy(Counting(), BOX, gymnasium.spaces.Discrete(9))
    assert [int(policy(np.zeros(2))) for _ in range(3)] == [1, 2, 3]
    assert int(policy(np.zeros(2), first=True)) == 1
    policy.reset()
    assert policy(np.zeros((2, 2))).tolist() == [1, 1]
    assert policy(np.zeros((2, 2)), first=[False, True]).tolist() == [2, 1]
    with pytest.raises(ValueError, match='as many rows as before, 2, got 3'):
        policy(np.zeros((3, 2)))


def test_a_policy_needs_neither_its_task_nor_what_trains(folder, tmp_path):
    copy = tmp_path / 'run'
    subprocess.run(['cp', '-r', str(folder), str(copy)], check=True)
    config = (copy / 'config.yaml').read_text()
    (copy / 'config.yaml').write_text(config.replace('env: Pendulum-v1', 'env: gone:Gone-v0'))
    code = f"""
import sys, agents, numpy
print(agents.load({str(copy)!r})(numpy.zeros(3)).shape)
loaded = [x for x in sys.modules if x.startswith('agents.')]
assert not [x for x in loaded if 'simulation' in x or 'trainer' in x or 'worker' in x], loaded
assert 'agents.scripts.environments' not in loaded
"""
    result = subprocess.run(
        [sys.executable, '-c', code], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == '(1,)\n'
