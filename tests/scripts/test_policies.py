import dataclasses
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents
from agents import algorithms, tools
from agents.parts.distributions import Categorical
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


def test_dicts_and_tuples_are_taken_and_returned_as_the_spaces_say():
    spaces = gymnasium.spaces
    space = spaces.Dict([('z', spaces.Tuple([BOX, spaces.Discrete(3, start=4)])), ('a', BOX)])
    actions = spaces.Tuple([spaces.MultiDiscrete([2, 3], start=[5, 1]), space])
    hyper = algorithms.Hyperparameters(policy_layers=(4,), init_output_factor=1.0)
    policy = policies.Policy(algorithms.PPO(space, actions, 1, hyper), space, actions)
    space.seed(0)
    rows = [space.sample() for _ in range(3)]
    batch = tf.nest.map_structure(lambda *parts: np.stack(parts), *map(dict, rows))
    together = tf.nest.flatten(policy(batch))
    for index, row in enumerate(rows):
        action = policy(row)
        assert actions.contains(action)
        for part, every in zip(tf.nest.flatten(action), together, strict=True):
            np.testing.assert_allclose(part, every[index], atol=1e-6)


class Taping(gymnasium.Wrapper):
    """Keeps what every environment showed and was told, one list for each."""

    tapes = []

    def reset(self, **kwargs):
        self._obs, info = self.env.reset(**kwargs)
        self._tape = []
        self.tapes.append(self._tape)
        return self._obs, info

    def step(self, action):
        self._tape.append((np.array(self._obs), np.array(action)))
        result = self.env.step(action)
        self._obs = result[0]
        return result


@pytest.mark.parametrize('task', ['Pendulum-v1', 'CartPole-v1'])
def test_actions_are_bit_equal_to_those_of_an_evaluation(tmp_path, task):
    flags = ['--config=debug', f'--env={task}', '--timestamp=a', '--steps=256', '--compile=off']
    assert train.main([*flags, f'--logdir={tmp_path}', '--init_output_factor=1']) == 0
    run = runs.open_folder(str(tmp_path / 'a-debug'))
    config = dataclasses.replace(runs.load_config(run), wrappers=(f'{__name__}:Taping',))
    restored = policies.restore(run, config, *saved_spaces.load(run))
    Taping.tapes.clear()
    env = environments.make_batch(config, 3)
    length = tools.evaluate(env, restored.algorithm)([5, 6, 7]).length
    env.close()
    # The first episode of each; others begin where one has ended before the others.
    first = [tape for tape in Taping.tapes if tape][:3]
    steps = min(length)
    assert steps > 5 and [len(tape) >= steps for tape in first] == [True] * 3
    policy = agents.load(run.folder)
    for rows in list(zip(*first, strict=False))[:steps]:
        obs, wanted = (np.stack(x) for x in zip(*rows, strict=True))
        actions = policy(obs)
        assert actions.dtype == policy.action_space.dtype
        np.testing.assert_array_equal(actions, wanted)  # Of as many rows: the same sums.


def test_samples_follow_their_seed_and_the_distribution(folder):
    same = [agents.load(folder, stochastic=True, seed=s)(np.zeros((4000, 3))) for s in (1, 1, 2)]
    np.testing.assert_array_equal(same[0], same[1])
    assert (same[0] != same[2]).any()
    policy = agents.load(folder, stochastic=True)
    first, second = policy(np.zeros((4000, 3))), policy(np.zeros((4000, 3)))
    assert (first != second).any()
    # The middle of half the samples on each side is the action without noise.
    np.testing.assert_allclose(np.median(first), agents.load(folder)(np.zeros(3))[0], atol=0.2)


def test_an_observation_may_be_a_list(folder):
    policy = agents.load(folder)
    obs = observations(2)
    np.testing.assert_array_equal(policy(obs.tolist()), policy(obs))
    np.testing.assert_array_equal(policy(obs[0].tolist()), policy(obs[0]))


@pytest.mark.parametrize(
    ('obs', 'error', 'message'),
    [
        (np.zeros(4), ValueError, r'must have shape \(3,\), .* got shape=\(4,\)'),
        (np.zeros((2, 2, 3)), ValueError, r'got shape=\(2, 2, 3\)'),
        (np.zeros((2, 4)), ValueError, r'got shape=\(2, 4\)'),
        (0.0, ValueError, r'got shape=\(\)'),
        (np.zeros(3, complex), TypeError, 'must have dtype float32, got dtype=complex128'),
        (['a', 'b', 'c'], TypeError, 'must have dtype float32, got dtype=<U1'),
    ],
)
def test_observations_that_do_not_fit_are_named(folder, obs, error, message):
    with pytest.raises(error, match=message):
        agents.load(folder)(obs)


@pytest.mark.parametrize(
    'space', [gymnasium.spaces.Discrete(5), gymnasium.spaces.Box(0, 9, (2,), np.uint8)]
)
def test_fractions_are_no_observations_of_whole_numbers(space):
    policy = policies.Policy(Counting(), space, gymnasium.spaces.Discrete(9))
    with pytest.raises(TypeError, match=f'must have dtype {space.dtype}, got dtype=float64'):
        policy(np.zeros(space.shape))


class Tossing(tf.Module):
    """Takes 0, 1, 2 with probabilities of 0.2, 0.3, 0.5."""

    def initial(self, num_envs):
        return ()

    def perform(self, obs, first, carry, seed, training):
        logits = tf.math.log([0.2, 0.3, 0.5]) + tf.zeros([tf.shape(obs)[0], 1])
        policy = Categorical(logits)
        return tf.cast(policy.sample(seed) if training else policy.mode(), tf.int64), (), ()


def test_samples_of_discrete_actions_are_as_frequent_as_their_probabilities():
    space = gymnasium.spaces.Discrete(3)
    policy = policies.Policy(Tossing(), BOX, space, stochastic=True, seed=3)
    batch = policy(np.zeros((20000, 2)))
    alone = [int(policy(np.zeros(2))) for _ in range(2000)]
    # Standard deviations: √(0.25 / 20000) = 0.0035 and √(0.25 / 2000) = 0.011.
    np.testing.assert_allclose(np.bincount(batch) / 20000, [0.2, 0.3, 0.5], atol=0.015)
    np.testing.assert_allclose(np.bincount(alone) / 2000, [0.2, 0.3, 0.5], atol=0.045)
    best = policies.Policy(Tossing(), BOX, space)
    assert best(np.zeros((100, 2))).tolist() == [2] * 100


def test_samples_spread_as_the_distribution_does(folder):
    policy = agents.load(folder, stochastic=True)
    std = float(np.exp(policy.algorithm.policy(tf.zeros([1, 3])).params()['log_std'][0, 0]))
    centre = agents.load(folder)(np.zeros(3))[0] / 2
    # Pendulum scales by 2, and clips there: quantiles inside of that are those of the samples.
    low, high = np.quantile(policy(np.zeros((20000, 3))) / 2, [0.3, 0.7])
    # ±0.524 deviations around the centre.
    np.testing.assert_allclose([low, high], [centre - 0.524 * std, centre + 0.524 * std], atol=0.03)


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
    for first in (None, True):
        with pytest.raises(ValueError, match='as many rows as before, 2, got 3'):
            policy(np.zeros((3, 2)), first)
    with pytest.raises(ValueError, match=r'First must be .* each of 2 rows, got shape=\(3,\)'):
        policy(np.zeros((2, 2)), first=[True] * 3)
    # What was refused has changed nothing.
    assert policy(np.zeros((2, 2))).tolist() == [3, 2]


def test_a_policy_without_memory_takes_any_number_of_rows():
    policy = policies.Policy(Tossing(), BOX, gymnasium.spaces.Discrete(3))
    for count in (3, 1, 0, 5):
        assert policy(np.zeros((count, 2))).tolist() == [2] * count
    assert policy(np.zeros(2)).shape == ()


def test_a_policy_needs_neither_its_task_nor_what_trains(folder, tmp_path):
    copy = tmp_path / 'run'
    subprocess.run(['cp', '-r', str(folder), str(copy)], check=True)
    config = (copy / 'config.yaml').read_text()
    (copy / 'config.yaml').write_text(config.replace('env: Pendulum-v1', 'env: gone:Gone-v0'))
    code = f"""
import sys, agents, numpy
print(agents.load({str(copy)!r})(numpy.zeros(3)).shape)
loaded = [x for x in sys.modules if x.startswith('agents.')]
unwanted = ('scripts.trainer', 'scripts.environments', 'tools.simulation', 'tools.wrappers', 'envs')
assert not [x for x in loaded if x.removeprefix('agents.').startswith(unwanted)], loaded
"""
    result = subprocess.run(
        [sys.executable, '-c', code], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == '(1,)\n'
