"""What an algorithm sees of an environment whose process was killed."""

import os
import signal

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import algorithms, tools
from agents.tools.wrappers import WorkerError, restarting_batch
from tests.tools.fake_batch import Recorder

CUT = 3  # Steps until the process is killed, and until the twin truncates.


class Line(gymnasium.Env):
    """Shows [step, 1]; the reward is the number of the step."""

    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length, fuse='', truncate=False):
        self.length, self.fuse, self.truncate = length, str(fuse), truncate

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.observe(), {}

    def step(self, action):
        if self.time == CUT and os.path.exists(self.fuse):
            os.unlink(self.fuse)
            os.kill(os.getpid(), signal.SIGKILL)
        self.time += 1
        ended = self.time == self.length
        return self.observe(), self.time, ended and not self.truncate, ended and self.truncate, {}

    def observe(self):
        return np.array([self.time, 1], np.float32)


class Collecting(algorithms.PPO):
    """Remembers what its updates were given."""

    def update(self, records, last_obs, carry, seed):
        given = (records, last_obs)

        def keep(*leaves):
            self.given = tf.nest.pack_sequence_as(given, [np.array(leaf) for leaf in leaves])

        tf.numpy_function(keep, tf.nest.flatten(given), [])
        return super().update(records, last_obs, carry, seed)


def make_algorithm(kind, env):
    hyper = algorithms.Hyperparameters(
        policy_layers=(4,),
        value_layers=(4,),
        minibatch=1000,
        epochs=2,
        compile='off',
        normalize_obs=False,
        normalize_rewards=False,
        normalize_advantages='off',
    )
    return kind(env.observation_space, env.action_space, 1, hyper)


def collect(make, workers, horizon):
    """Return records of a rollout, the observation after it, the algorithm, and the simulation."""
    batch = tools.make_batch_env(make, 1, workers, on_worker_failure='restart')
    env = tools.InGraphBatchEnv(batch)
    algorithm = make_algorithm(Collecting, env)
    simulation = tools.simulate(env, algorithm, horizon)
    metrics = simulation()
    env.close()
    return *algorithm.given, algorithm, simulation, metrics


@pytest.fixture
def killed(tmp_path):
    """A rollout of 8 rows, in the fourth of which the process is killed."""
    fuse = tmp_path / 'fuse'
    fuse.touch()
    return collect(lambda: Line(100, fuse), workers=1, horizon=8)


def test_the_row_of_a_failure_is_not_valid_and_a_new_episode_follows(tmp_path):
    fuse = tmp_path / 'fuse'
    fuse.touch()
    recorder = Recorder()
    env = tools.InGraphBatchEnv(
        tools.make_batch_env(lambda: Line(100, fuse), 1, 1, on_worker_failure='restart')
    )
    tools.simulate(env, recorder, horizon=6)()
    env.close()
    rows = recorder.given['records']['transition']
    assert rows.valid[:, 0].tolist() == [True, True, True, False, True, True]
    assert rows.first[:, 0].tolist() == [True, False, False, False, True, False]
    assert rows.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1]  # 3 is the last real one.
    assert rows.next_obs[:, 0, 0].tolist() == [1, 2, 3, 0, 1, 2]
    assert rows.reward[:, 0].tolist() == [1, 2, 3, 0, 1, 2]
    assert recorder.given['records']['carry'][:, 0].tolist() == [1, 2, 3, 4, 1, 2]


def test_an_episode_that_a_failure_cuts_has_the_advantages_of_a_truncated_one(killed):
    records, last_obs, algorithm, _, _ = killed
    other, other_last, _, _, _ = collect(lambda: Line(CUT, truncate=True), 0, 8)
    assert other.truncated[:CUT, 0].tolist() == [False, False, True]
    value = algorithm.value(tf.constant(records.obs[CUT])).numpy()

    def advantages(records, last_obs):
        records = tf.nest.map_structure(tf.constant, records)
        everything = tf.concat([records.obs, last_obs[None]], 0)
        result = algorithm._advantages(records, everything, records.reward)
        return result['advantage'].numpy()

    found = advantages(records, last_obs)
    # The other algorithm has learned meanwhile, so its bootstrap is computed again.
    bootstrap = np.where(other.truncated, value, 0).astype(np.float32)
    expected = advantages(other._replace(bootstrap=bootstrap), other_last)
    np.testing.assert_allclose(found[:CUT], expected[:CUT], rtol=0, atol=1e-6)
    junk = records.reward.copy()
    junk[CUT] = 1e6
    again = advantages(records._replace(reward=junk), last_obs)
    np.testing.assert_array_equal(again, found)


def truncate(records, value):
    """Leave out the invalid row, and put the value of its observation before it as bootstrap."""
    at = (np.arange(8) == CUT - 1)[:, None]
    bootstrap = np.where(at, value(tf.constant(records.obs[CUT])), 0).astype(np.float32)
    records = records._replace(truncated=at, bootstrap=bootstrap)
    return tf.nest.map_structure(lambda x: x[records.valid[:, 0]], records)


@pytest.mark.parametrize('name', ['PPO', 'ActorCritic'])
def test_an_update_is_the_one_of_a_truncated_episode(killed, name):
    records, last_obs, _, _, _ = killed
    results = []
    for truncated in (False, True):
        algorithm = make_algorithm(getattr(algorithms, name), Line)
        for _ in range(3):
            given = truncate(records, algorithm.value) if truncated else records
            if name == 'ActorCritic':
                ended = given.terminated | given.truncated
                given = algorithms.actor_critic.Record(
                    given.obs, given.sample, given.reward, ended, given.bootstrap, given.valid
                )
            given = tf.nest.map_structure(tf.constant, given)
            metrics = algorithm.update(given, tf.constant(last_obs), (), tf.zeros([2], tf.int32))
        # Adam makes much the same steps of other gradients: the losses tell more.
        losses = [metrics[key].numpy() for key in ('policy_loss', 'value_loss')]
        results.append([*losses, *(x.numpy() for x in algorithm.variables)])
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_neither_the_step_nor_the_score_of_the_cut_episode_is_counted(tmp_path):
    fuse = tmp_path / 'fuse'
    fuse.touch()
    *_, simulation, metrics = collect(lambda: Line(4, fuse), workers=1, horizon=10)
    # Rows: 1 2 3 x 1 2 3 4 1 2. One episode has ended, with 1 + 2 + 3 + 4.
    assert simulation.steps.numpy() == 9
    assert (metrics['episodes'], metrics['score'], metrics['length']) == (1, 10, 4)
    assert (simulation.score.numpy(), simulation.length.numpy()) == ([3], [2])


def test_an_evaluation_plays_a_cut_episode_anew(tmp_path):
    fuse = tmp_path / 'fuse'
    fuse.touch()
    batch = tools.make_batch_env(lambda: Line(4, fuse), 1, 1, on_worker_failure='restart')
    env = tools.InGraphBatchEnv(batch)
    episodes = tools.evaluate(env, Recorder())([0])
    assert env.worker_failures == 1
    env.close()
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([10], [4])
    assert episodes.terminated.all() and not episodes.cut.any()


def test_the_cause_comes_out_of_the_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(restarting_batch, 'PAUSES', (0.0,))

    class Broken(Line):
        def step(self, action):
            raise OverflowError('always')

    batch = tools.make_batch_env(lambda: Broken(4), 1, 1, on_worker_failure='restart')
    env = tools.InGraphBatchEnv(batch)
    with pytest.raises(WorkerError, match='failed 2 times') as info:
        tools.simulate(env, Recorder(), horizon=4)()
    env.close()
    assert isinstance(info.value.__cause__, OverflowError)
