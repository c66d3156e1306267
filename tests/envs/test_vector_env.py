import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Text, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from agents import algorithms, tools
from agents.algorithms import actor_critic
from agents.envs.vector_env import VectorBatchEnv
from tests.tools import fakes
from tests.tools.fake_batch import Recorder

MODES = list(AutoresetMode)
in_every_mode = pytest.mark.parametrize('mode', MODES, ids=lambda mode: mode.value)
NEXT_STEP, SAME_STEP, DISABLED = (AutoresetMode(x) for x in ('NextStep', 'SameStep', 'Disabled'))


class Walk(fakes.Walk):
    """A walk whose observations are fresh, as Gymnasium's same-step mode needs them."""

    def observe(self):
        value = super().observe()
        return value if isinstance(value, int) else value.copy()


def sync(*envs, mode=NEXT_STEP, **kwargs):
    return SyncVectorEnv([lambda env=env: env for env in envs], autoreset_mode=mode, **kwargs)


class Engine(VectorEnv):
    """Two environments that return what `results` says, in buffers that the next step writes to."""

    def __init__(self, mode=NEXT_STEP, space=None):
        self.num_envs = 2
        self.single_observation_space = space or Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.metadata = {'autoreset_mode': mode}
        self.obs = np.zeros((2, 1), np.float32)
        self.reward, self.terminated, self.truncated = np.zeros(2), np.zeros(2, bool), [0, 0]
        self.infos = {}
        self.closed_times = 0
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return self.obs, {}

    def step(self, actions):
        return self.obs, self.reward, self.terminated, self.truncated, self.infos

    def close_extras(self, **kwargs):
        self.closed_times += 1


class ArrayEngine(Engine):
    def reset(self, *, seed: np.ndarray | None = None, options=None):
        return super().reset(seed=seed)


def act(obs):
    """Act on the observation alone, so that equal observations have equal futures."""
    size = np.abs(obs.astype(np.float64)).reshape(len(obs), -1).sum(-1)
    return (10 * size).astype(np.int64) % 2


def tape(batch, steps, seed):
    """Return each environment's real transitions in order, and all rows."""
    rows, obs = [], batch.reset(seed)
    for _ in range(steps):
        action = act(obs)
        result = batch.step(action)
        rows.append((obs, action, *result[1:]))
        obs = result.obs
    episodes = []
    for i in range(batch.num_envs):
        real = [[x[i] for x in row[:-1]] for row in rows if row[-1][i]]
        episodes.append([np.stack(field) for field in zip(*real, strict=True)])
    return episodes, rows


def assert_equal_beginnings(tapes, others, at_least):
    for one, other in zip(tapes, others, strict=True):
        size = min(len(one[0]), len(other[0]))
        assert size >= at_least
        for x, y in zip(one, other, strict=True):
            np.testing.assert_array_equal(x[:size], y[:size])
            assert x.dtype == y.dtype


# Every mode tells the same story.


@pytest.mark.parametrize('kind', fakes.Walk.SPACES)
@in_every_mode
def test_real_transitions_are_those_of_a_batch_env_with_the_same_seeds(mode, kind):
    with tools.BatchEnv([Walk(kind) for _ in range(3)]) as batch:
        expected, _ = tape(batch, 60, seed=7)
    with VectorBatchEnv(sync(*(Walk(kind) for _ in range(3)), mode=mode)) as batch:
        found, rows = tape(batch, 60, seed=7)
    # Episodes last 5 steps in the mean, so that at most a fifth or so of the rows is not real.
    assert_equal_beginnings(found, expected, at_least=40)
    ended = sum((x[3] | x[4]).sum() for x in expected)
    assert ended > 20
    invalid = sum((~row[-1]).sum() for row in rows)
    assert invalid > 20 if mode is NEXT_STEP else invalid == 0


@in_every_mode
def test_environments_of_other_processes_tell_the_same_story(mode):
    with tools.BatchEnv([Walk() for _ in range(2)]) as batch:
        expected, _ = tape(batch, 30, seed=1)
    vector_env = AsyncVectorEnv([Walk] * 2, autoreset_mode=mode, copy=False, context='spawn')
    with VectorBatchEnv(vector_env) as batch:
        found, _ = tape(batch, 30, seed=1)
    assert_equal_beginnings(found, expected, at_least=20)


@pytest.mark.parametrize('mode', [NEXT_STEP, DISABLED], ids=lambda mode: mode.value)
def test_buffers_that_environments_use_again_do_no_harm(mode):
    batch = VectorBatchEnv(sync(fakes.Counting(2), fakes.Counting(3), mode=mode, copy=False))
    _, rows = tape(batch, 6, seed=0)
    # [episode, step] of environment 0, whose episodes last two steps, and one row more to reset.
    ends = [[1, 2], [2, 2]] if mode is NEXT_STEP else [[1, 2], [2, 2], [3, 2]]
    assert [row[-2][0].tolist() for row in rows if row[3][0]] == ends


@in_every_mode
def test_results_are_never_written_again(mode):
    batch = VectorBatchEnv(sync(Walk(), Walk(), mode=mode, copy=False))
    kept, copies = [batch.reset(0)], [batch.reset(0).copy()]
    for _ in range(20):
        result = batch.step(np.zeros(2, int))
        kept += result
        copies += [x.copy() for x in result]
    for x, y in zip(kept[1:], copies[1:], strict=True):
        np.testing.assert_array_equal(x, y)
    assert [x.dtype for x in kept[-5:]] == [np.float32, bool, bool, np.float32, bool]


def test_the_row_of_a_reset_is_not_valid_and_says_nothing():
    batch = VectorBatchEnv(sync(fakes.Counting(2), fakes.Counting(3, truncate=True)))
    assert batch.reset().tolist() == [[1, 0], [1, 0]]
    results = [batch.step(np.zeros(2, int)) for _ in range(5)]
    # Environment 0 ends at step 2, resets in row 3 and ends again in row 5; the other at step 3.
    assert [x.obs[0].tolist() for x in results] == [[1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert [x.next_obs[0].tolist() for x in results] == [[1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert [x.reward[0] for x in results] == [11, 12, 0, 21, 22]
    assert [x.valid[0] for x in results] == [True, True, False, True, True]
    assert [x.terminated[0] for x in results] == [False, True, False, False, True]
    assert [x.valid[1] for x in results] == [True, True, True, False, True]
    assert [x.truncated[1] for x in results] == [False, False, True, False, False]
    # A reset of all of them in between makes the next row a real one.
    batch.reset()
    assert batch.step(np.zeros(2, int)).valid.all()


def test_what_an_engine_leaves_in_the_row_of_a_reset_is_taken_out():
    engine = Engine()
    batch = VectorBatchEnv(engine)
    batch.reset()
    engine.terminated[0] = True
    batch.step([0, 0])
    engine.reward[:], engine.truncated = (np.nan, 3), [1, 0]
    result = batch.step([0, 0])
    assert result.valid.tolist() == [False, True]
    assert result.reward.tolist() == [0, 3]
    assert not result.terminated.any() and not result.truncated.any()


def test_last_observations_may_come_as_one_plain_array():
    engine = Engine(SAME_STEP)
    batch = VectorBatchEnv(engine)
    batch.reset()
    engine.terminated[1] = True
    engine.obs[:], engine.infos = [[1], [2]], {'final_obs': np.array([[8], [9]], np.float32)}
    result = batch.step([0, 0])
    assert result.obs.tolist() == [[1], [2]]
    assert result.next_obs.tolist() == [[1], [9]]


def test_a_vectorised_task_of_gymnasium_can_be_used():
    vector_env = gymnasium.make_vec('CartPole-v1', 4, vectorization_mode='vector_entry_point')
    with VectorBatchEnv(vector_env) as batch:
        assert (batch.num_envs, batch.action_space) == (4, Discrete(2))
        assert batch.observation_space.shape == (4,)
        obs = batch.reset(3)
        np.testing.assert_array_equal(batch.reset(3), obs)
        assert not np.array_equal(batch.reset(4), obs)
        ends = 0
        for _ in range(40):
            result = batch.step(np.ones(4, int))
            np.testing.assert_array_equal(result.reward, result.valid)
            ends += result.terminated.sum()
        # Pushed to one side only, a pole falls within 12 steps.
        assert ends >= 12


# Seeds.


def test_an_environment_gets_its_seed_where_they_can_be_given():
    batch = VectorBatchEnv(sync(Walk(), Walk()))
    alone = [Walk().reset(seed=seed)[0] for seed in (4, 5)]
    np.testing.assert_array_equal(batch.reset([4, 5]), alone)
    engine = ArrayEngine()
    VectorBatchEnv(engine).reset([5, 2**31 + 6])
    assert isinstance(engine.seeds[0], np.ndarray)
    assert engine.seeds[0].tolist() == [5, 6]


def test_seeds_are_folded_into_one_where_only_one_can_be_given():
    engine = Engine()
    batch = VectorBatchEnv(engine)
    for seeds in ([1, 2], [1, 2], [2, 1], [1, 3], None):
        batch.reset(seeds)
    first, again, swapped, other, none = engine.seeds
    assert type(first) is int
    assert first == again
    assert len({first, swapped, other}) == 3
    assert none is None
    with pytest.raises(ValueError, match='one for each of 2 environments, got 3'):
        batch.reset([1, 2, 3])


# What goes wrong.


def test_a_value_that_is_not_finite_names_environment_and_action():
    def fail(match, mode=NEXT_STEP, **kwargs):
        engine = Engine(mode)
        batch = VectorBatchEnv(engine)
        batch.reset()
        vars(engine).update(kwargs)
        with pytest.raises(FloatingPointError, match=match):
            batch.step([0, 1])
        with pytest.raises(RuntimeError, match='again after an error'):
            batch.step([0, 1])

    bad = np.array([[0], [np.nan]], np.float32)
    fail(r'observation=nan in element \(0,\) at index 1.* last one was 1', obs=bad)
    fail('reward=inf at index 1.* last one was 1', reward=np.array([0, np.inf]))
    ended = np.array([False, True])
    fail('observation=nan.*index 1', SAME_STEP, terminated=ended, infos={'final_obs': bad})
    engine = Engine()
    engine.obs = bad
    with pytest.raises(FloatingPointError, match='index 1.*last one was None'):
        VectorBatchEnv(engine).reset()


def test_arrays_of_another_size_are_errors():
    engine = Engine()
    batch = VectorBatchEnv(engine)
    engine.obs = np.zeros((1, 1), np.float32)
    with pytest.raises(ValueError, match='one for each of 2 environments, got 1'):
        batch.reset()
    engine.obs = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=r'shape \(1,\), got shape=\(3,\)'):
        batch.reset()
    engine.obs = np.zeros((2, 1), np.float32)
    batch.reset()
    engine.reward = np.zeros((2, 1))
    with pytest.raises(ValueError, match=r'rewards must have shape \(2,\).*shape=\(2, 1\)'):
        batch.step([0, 0])


def test_a_missing_last_observation_is_an_error():
    engine = Engine(SAME_STEP)
    batch = VectorBatchEnv(engine)
    batch.reset()
    engine.terminated[0] = True
    engine.infos = {'lives': 1}
    with pytest.raises(ValueError, match=r"infos\['final_obs'\].*got infos=\['lives'\]"):
        batch.step([0, 0])


def test_what_cannot_be_a_batch_is_an_error():
    with pytest.raises(TypeError, match=r'gymnasium.vector.VectorEnv, got <.*Counting'):
        VectorBatchEnv(fakes.Counting())
    with pytest.raises(TypeError, match=r"Observation space\['x'\] must be a Box or Discrete"):
        VectorBatchEnv(Engine(space=Dict(x=Text(2))))
    with pytest.raises(ValueError, match=r"metadata\['autoreset_mode'\].*'autoreset_mode': None"):
        VectorBatchEnv(Engine(mode=None))


def test_actions_are_checked_before_the_environments_see_them():
    batch = VectorBatchEnv(sync(Walk(), Walk()))
    with pytest.raises(RuntimeError, match='reset before it is stepped'):
        batch.step([0, 0])
    batch.reset()
    with pytest.raises(ValueError, match=r'in \[0, 3\), got action=3 at index 1'):
        batch.step([0, 3])


def test_the_mode_is_that_of_the_instance_if_its_class_shares_metadata():
    shared = {}
    for mode in (SAME_STEP, NEXT_STEP):
        engine = Engine()
        engine.autoreset_mode, engine.metadata = mode, shared
        shared['autoreset_mode'] = NEXT_STEP
        batch = VectorBatchEnv(engine)
        batch.reset()
        engine.terminated[0], engine.infos = True, {'final_obs': np.ones((2, 1), np.float32)}
        assert batch.step([0, 0]).next_obs[0] == (1 if mode is SAME_STEP else 0)


def test_attributes_can_be_called_read_and_set():
    with VectorBatchEnv(sync(fakes.Trouble(), fakes.Trouble())) as batch:
        batch.reset()
        assert batch.call('double', 3, plus=1) == (7, 7)
        batch.set_attr('length', [4])
        assert batch.get_attr('length') == ([4], [4])
        assert batch.render() == ('frame 1 0', 'frame 1 0')


def test_the_vector_environment_is_closed_once():
    engine = Engine()
    with VectorBatchEnv(engine) as batch:
        batch.reset()
    batch.close()
    assert engine.closed_times == 1
    with pytest.raises(RuntimeError, match='closed'):
        batch.step([0, 0])


def test_it_is_imported_without_tensorflow():
    code = (
        'import sys; from agents.envs import vector_env, envpool_batch; '
        "assert 'tensorflow' not in sys.modules and 'envpool' not in sys.modules"
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)


def test_rows_that_are_not_valid_are_so_within_a_larger_batch():
    with tools.BatchEnv([fakes.Counting(2), VectorBatchEnv(sync(fakes.Counting(2)))]) as batch:
        batch.reset()
        valid = [batch.step([0, 0]).valid.tolist() for _ in range(4)]
    assert valid == [[True, True], [True, True], [True, False], [True, True]]


# In the graph.


class Junk:
    """Puts junk into what `batch` says of rows that are not valid."""

    def __init__(self, batch, junk):
        self._batch, self._junk = batch, junk
        self.num_envs = batch.num_envs
        self.observation_space, self.action_space = batch.observation_space, batch.action_space
        self.reset = batch.reset

    def step(self, action):
        result = self._batch.step(action)
        flag = self._junk == 7
        return result._replace(
            reward=np.where(result.valid, result.reward, self._junk).astype(np.float32),
            terminated=result.terminated | (~result.valid & flag),
            truncated=result.truncated | (~result.valid & (not flag)),
            next_obs=np.where(result.valid[:, None], result.next_obs, self._junk).astype(
                np.float32
            ),
        )


class Collecting(algorithms.PPO):
    """Remembers what its updates were given."""

    def update(self, records, last_obs, carry, seed):
        given = (records, last_obs, seed)

        def keep(*leaves):
            # Copied, since TensorFlow lends its memory for the time of the call only.
            self.given = tf.nest.pack_sequence_as(given, [np.array(leaf) for leaf in leaves])

        tf.numpy_function(keep, tf.nest.flatten(given), [])
        return super().update(records, last_obs, carry, seed)


def make(algorithm, batch, **kwargs):
    env = tools.InGraphBatchEnv(batch)
    hyper = algorithms.Hyperparameters(
        policy_layers=(4,), value_layers=(4,), minibatch=1000, epochs=2, compile='off', **kwargs
    )
    return env, algorithm(env.observation_space, env.action_space, env.num_envs, hyper)


def counting(mode):
    envs = fakes.Counting(2), fakes.Counting(3, truncate=True)
    for env in envs:
        env.action_space = Discrete(3)
    return VectorBatchEnv(sync(*envs, mode=mode))


def test_the_carry_begins_anew_after_a_row_that_is_not_valid():
    recorder = Recorder()
    tools.simulate(tools.InGraphBatchEnv(counting(NEXT_STEP)), recorder, horizon=7)()
    rows = recorder.given['records']['transition']
    assert rows.valid[:, 0].tolist() == [True, True, False, True, True, False, True]
    assert rows.first[:, 0].tolist() == [True, False, True, True, False, True, True]
    assert recorder.given['records']['carry'][:, 0].tolist() == [1, 2, 1, 1, 2, 1, 1]


@in_every_mode
def test_scores_and_lengths_of_real_steps_are_counted(mode):
    simulation = tools.simulate(tools.InGraphBatchEnv(counting(mode)), Recorder(), horizon=12)
    metrics = simulation()
    # Next step: 12 rows are 4 episodes of 2 + 1 rows, and 3 of 3 + 1. Otherwise 6 and 4. The reward
    # is 10 · episode + step: scores are 20 · episode + 3 and 30 · episode + 6.
    counts = (4, 3) if mode is NEXT_STEP else (6, 4)
    scores = [20 * n + 3 for n in range(1, counts[0] + 1)]
    scores += [30 * n + 6 for n in range(1, counts[1] + 1)]
    assert metrics['episodes'] == sum(counts)
    assert metrics['score'] == pytest.approx(np.mean(scores))
    assert metrics['length'] == pytest.approx((2 * counts[0] + 3 * counts[1]) / sum(counts))


@in_every_mode
def test_an_evaluation_plays_one_episode_of_real_steps(mode):
    def play(batch):
        return tools.evaluate(tools.InGraphBatchEnv(batch), Recorder())([3, 4, 5])

    expected = play(tools.BatchEnv([Walk() for _ in range(3)]))
    found = play(VectorBatchEnv(sync(*(Walk() for _ in range(3)), mode=mode)))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(set(found.length.tolist())) > 1


@pytest.mark.parametrize('junk', [7.0, np.nan])
def test_junk_in_rows_that_are_not_valid_does_not_reach_an_update(junk):
    results = []
    for value in (0.0, junk):
        batch = VectorBatchEnv(sync(Walk(), Walk()))
        env, ppo = make(algorithms.PPO, batch if value == 0 else Junk(batch, value))
        simulation = tools.simulate(env, ppo, horizon=24)
        for _ in range(3):
            metrics = simulation()
        assert metrics['minibatches'] == 2
        state = [x.numpy() for x in ppo.variables]
        results.append([*state, metrics['score'], metrics['policy_loss']])
    for x, y in zip(*results, strict=True):
        np.testing.assert_array_equal(x, y)
    assert np.isfinite(results[0][0]).all()


@pytest.mark.parametrize('name', ['PPO', 'ActorCritic'])
def test_an_update_is_the_same_with_and_without_the_rows_that_are_not_valid(name):
    # One environment, so that its real rows alone are a tape of same-step mode.
    env, collector = make(Collecting, VectorBatchEnv(sync(Walk())))
    simulation = tools.simulate(env, collector, horizon=40)
    tapes = [(simulation(), collector.given)[1] for _ in range(2)]
    results = []
    for real_only in (False, True):
        _, algorithm = make(getattr(algorithms, name), VectorBatchEnv(sync(Walk())))
        for records, last_obs, seed in tapes:
            if name == 'ActorCritic':
                ended = records.terminated | records.truncated
                records = actor_critic.Record(
                    *(records.obs, records.sample, records.reward, ended),
                    *(records.bootstrap, records.valid),
                )
            rows = records.valid[:, 0] | (not real_only)
            assert rows.all() == (not real_only)
            records = tf.nest.map_structure(lambda x, rows=rows: tf.constant(x[rows]), records)
            algorithm.update(records, tf.constant(last_obs), (), tf.constant(seed))
        results.append([x.numpy() for x in algorithm.variables])
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)


# Atari.


def test_atari_tells_the_same_story_in_both_of_its_modes():
    vector_env = pytest.importorskip('ale_py.vector_env')
    tapes = []
    for mode in (NEXT_STEP, SAME_STEP):
        # The metadata of the first one say the mode of the second: both are made before.
        made = [
            vector_env.AtariVectorEnv(
                'pong', 2, autoreset_mode=x, max_num_frames_per_episode=40, noop_max=3
            )
            for x in (mode, SAME_STEP if mode is NEXT_STEP else NEXT_STEP)
        ]
        with VectorBatchEnv(made[0]) as batch, VectorBatchEnv(made[1]):
            tapes.append(tape(batch, 30, seed=3)[0])
    assert sum((x[3] | x[4]).sum() for x in tapes[0]) >= 4
    assert_equal_beginnings(*tapes, at_least=25)


class Parts(gymnasium.Env):
    """Shows its steps in parts, and ends after three; actions have parts as well."""

    observation_space = Dict(steps=Discrete(9), pair=Tuple([Box(-9, 9, (1,)), Discrete(9)]))
    action_space = Tuple([MultiDiscrete([2, 3], start=[0, 5]), Dict(x=Box(-1, 1, (1,)))])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(0.0), {}

    def step(self, action):
        self.steps += 1
        obs = self.observe(action[1]['x'][0])
        return obs, float(action[0][1]), self.steps == 3, False, {}

    def observe(self, x):
        return {'pair': (np.array([x], np.float32), self.steps), 'steps': self.steps}


@pytest.mark.parametrize('mode', AutoresetMode)
def test_dicts_and_tuples_go_through_every_mode(mode):
    with VectorBatchEnv(SyncVectorEnv([Parts, Parts], autoreset_mode=mode)) as batch:
        batch.reset(0)
        for step in (1, 2, 3):
            x = np.array([[0.5], [-0.5]], np.float32)
            result = batch.step((np.array([[1, 5], [0, 7]]), {'x': x}))
            assert result.next_obs['steps'].tolist() == [step, step]
            assert result.next_obs['pair'][0].tolist() == [[0.5], [-0.5]]
            assert result.reward.tolist() == [5, 7]
        assert result.terminated.all()
        if mode is AutoresetMode.NEXT_STEP:
            result = batch.step((np.array([[1, 5], [0, 7]]), {'x': x}))
            assert not result.valid.any()
        assert result.obs['steps'].tolist() == result.obs['pair'][1].tolist() == [0, 0]
