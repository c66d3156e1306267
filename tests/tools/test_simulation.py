import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import algorithms, tools
from tests.tools.fake_batch import FakeBatch, Recorder


def make(lengths=(2, 3), horizon=6, seed=0, **kwargs):
    batch = FakeBatch(lengths, **kwargs)
    env = tools.InGraphBatchEnv(batch)
    recorder = Recorder()
    return batch, recorder, tools.simulate(env, recorder, horizon, seed)


def test_the_order_of_events_is_act_step_keep_and_then_update():
    tape = []
    env = tools.InGraphBatchEnv(FakeBatch([2], tape=tape))
    tools.simulate(env, Recorder(tape), horizon=3)()
    step = ['perform', 'step', 'experience']
    assert tape == ['reset', *step, *step, *step, 'update']


def test_every_row_follows_the_boundary_table_when_the_world_ends():
    _, recorder, simulation = make(lengths=[2, 3])
    simulation()
    rows = recorder.given['records']['transition']
    # Environment 0 lasts 2 steps, environment 1 lasts 3; the second number is the episode's step.
    assert rows.obs[:, 0, 1].tolist() == [0, 1, 0, 1, 0, 1]
    assert rows.obs[:, 1, 1].tolist() == [0, 1, 2, 0, 1, 2]
    # The last observation of an episode is its own, not the first one of the next.
    assert rows.next_obs[:, 0, 1].tolist() == [1, 2, 1, 2, 1, 2]
    assert rows.next_obs[:, 1, 1].tolist() == [1, 2, 3, 1, 2, 3]
    assert rows.terminated[:, 0].tolist() == [False, True] * 3
    assert rows.first[:, 0].tolist() == [True, False] * 3
    assert rows.first[:, 1].tolist() == [True, False, False] * 2
    assert not rows.truncated.any()
    assert rows.valid.all()


def test_a_cut_episode_is_truncated_and_not_terminated():
    _, recorder, simulation = make(lengths=[2], ends='truncated')
    simulation()
    rows = recorder.given['records']['transition']
    assert rows.truncated[:, 0].tolist() == [False, True] * 3
    assert not rows.terminated.any()


def test_episodes_go_on_from_one_rollout_to_the_next():
    _, recorder, simulation = make(lengths=[4], horizon=3)
    simulation()
    assert recorder.given['last_obs'].tolist() == [[0, 3]]
    simulation()
    rows = recorder.given['records']['transition']
    assert rows.obs[:, 0, 1].tolist() == [3, 0, 1]
    assert rows.first[:, 0].tolist() == [False, True, False]


def test_the_carry_passes_through_and_its_start_is_given_to_the_update():
    _, recorder, simulation = make(lengths=[4], horizon=3)
    simulation()
    assert recorder.given['records']['carry'][:, 0].tolist() == [1, 2, 3]
    assert recorder.given['carry'].tolist() == [0]
    simulation()
    # The episode ends after 4 steps, so its carry begins again at the second row.
    assert recorder.given['records']['carry'][:, 0].tolist() == [4, 1, 2]
    assert recorder.given['carry'].tolist() == [3]


def test_scores_and_lengths_count_whole_episodes_however_rollouts_cut_them():
    totals = []
    for horizon in (1, 3, 6, 12):
        _, _, simulation = make(lengths=[2, 3], horizon=horizon)
        results = [simulation() for _ in range(12 // horizon)]
        ended = [x for x in results if x['episodes']]
        episodes = sum(x['episodes'] for x in results)
        score = sum(x['score'] * x['episodes'] for x in ended)
        length = sum(x['length'] * x['episodes'] for x in ended)
        totals.append((episodes, score, length))
    # In 12 steps environment 0 ends 6 episodes of 2 steps with reward 1, environment 1 ends 4
    # episodes of 3 steps with reward 10: scores 6 · 2 · 1 + 4 · 3 · 10 = 132, lengths 12 + 12.
    assert totals == [pytest.approx((10, 132, 24))] * 4


def test_the_score_is_not_a_number_when_no_episode_ended():
    _, _, simulation = make(lengths=[100], horizon=2)
    metrics = simulation()
    assert metrics['episodes'] == 0
    assert np.isnan(metrics['score'])


def test_invalid_rows_count_for_nothing():
    # The row between the two episodes is not valid, as of engines that reset in the next step.
    _, recorder, simulation = make(lengths=[2], horizon=5, invalid=[(2, 0)])
    metrics = simulation()
    valid = recorder.given['records']['transition'].valid[:, 0].tolist()
    assert valid == [True, True, False, True, True]
    assert (metrics['episodes'], metrics['score'], metrics['length']) == (2, 2, 2)
    assert simulation.steps.numpy() == 4


@pytest.mark.parametrize('horizon', [1, 2, 4, 8])
def test_an_episode_that_an_invalid_row_cuts_is_not_counted(horizon):
    # Steps of environment 0: 1 x 1 2 3 x 1 2, where 3 ends an episode; of 1: 1 2 3 1 2 3 1 2.
    invalid = [(1, 0), (5, 0)]
    _, _, simulation = make(lengths=[3, 3], horizon=horizon, invalid=invalid)
    results = [simulation() for _ in range(8 // horizon)]
    ended = [x for x in results if x['episodes']]
    assert sum(x['episodes'] for x in results) == 3
    # One score of 3 · 1 and two of 3 · 10.
    assert sum(x['score'] * x['episodes'] for x in ended) == pytest.approx(63)
    assert sum(x['length'] * x['episodes'] for x in ended) == pytest.approx(9)
    assert simulation.score.numpy().tolist() == [2, 20]
    assert simulation.length.numpy().tolist() == [2, 2]
    assert simulation.steps.numpy() == 14


def test_the_row_after_an_invalid_one_is_a_first_one():
    _, recorder, simulation = make(lengths=[4], horizon=3, invalid=[(1, 0), (2, 0)])
    simulation()
    assert recorder.given['records']['transition'].first[:, 0].tolist() == [True, False, True]
    # The carry is cleared there, and the last row of a rollout is remembered by the next one.
    assert recorder.given['records']['carry'][:, 0].tolist() == [1, 2, 1]
    simulation()
    assert recorder.given['records']['transition'].first[:, 0].tolist() == [True, False, False]


def test_variables_hold_the_last_step_of_a_rollout():
    batch = FakeBatch([3, 100])
    env = tools.InGraphBatchEnv(batch)
    tools.simulate(env, Recorder(), horizon=3)()
    assert env.obs.numpy().tolist() == [[0, 0], [1, 3]]
    assert env.first.numpy().tolist() == [True, False]
    assert env.reward.numpy().tolist() == [1, 10]
    assert env.terminated.numpy().tolist() == [True, False]
    assert env.truncated.numpy().tolist() == [False, False]
    assert env.action.numpy().tolist() == batch.actions[-1].tolist()


def test_every_step_gets_its_own_seed_and_the_run_seed_decides_them():
    def seeds(seed):
        _, recorder, simulation = make(horizon=4, seed=seed)
        result = []
        for _ in range(2):
            simulation()
            given = recorder.given
            result += [*given['records']['seed'][:, 0].tolist(), given['seed'].tolist()]
        return result

    assert len({tuple(x) for x in seeds(0)}) == 10
    assert seeds(0) == seeds(0)
    assert not {tuple(x) for x in seeds(0)} & {tuple(x) for x in seeds(1)}


def test_metrics_of_the_algorithm_and_the_clock_are_there():
    _, _, simulation = make(horizon=6)
    metrics = simulation()
    assert metrics['answer'] == 42
    assert metrics['simulate_seconds'] > 0
    assert metrics['update_seconds'] >= 0
    seconds = metrics['simulate_seconds'] + metrics['update_seconds']
    # 6 rows of 2 environments.
    assert metrics['steps_per_second'] == pytest.approx(12 / seconds, rel=1e-3)
    rate = metrics['simulate_steps_per_second']
    assert rate == pytest.approx(12 / metrics['simulate_seconds'], rel=1e-3)


def test_it_is_traced_once():
    _, _, simulation = make()
    for _ in range(4):
        simulation()
    assert simulation.traces == 1


def test_an_undone_update_is_an_error_that_names_tensor_and_place():
    env = tools.InGraphBatchEnv(FakeBatch([2, 2]))
    simulation = tools.simulate(env, Recorder(failure=[2, 5, 3, 1]), horizon=4)
    match = 'The lung must be finite.*update 1, minibatch 5, step 3 of the rollout, environment 1'
    with pytest.raises(FloatingPointError, match=match):
        simulation()


def test_an_undone_update_without_a_row_names_the_minibatch():
    env = tools.InGraphBatchEnv(FakeBatch([2, 2]))
    simulation = tools.simulate(env, Recorder(failure=[1, 7, -1, -1]), horizon=4)
    with pytest.raises(FloatingPointError, match=r'The heart .* minibatch 7\. The weights'):
        simulation()


def test_a_horizon_below_one_is_an_error():
    with pytest.raises(ValueError, match='at least 1, got horizon=0'):
        make(horizon=0)


class Trouble(Exception):
    pass


class Failing(gymnasium.Env):
    """Raises once, at the step with this number."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, trouble_at):
        self.trouble_at = trouble_at
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == self.trouble_at:
            raise Trouble('out of paper')
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize('workers', [0, 1])
def test_an_exception_of_an_environment_comes_out_as_its_own_type(workers):
    makes = [lambda: Failing(0), lambda: Failing(4)]
    env = tools.InGraphBatchEnv(tools.make_batch_env(makes, 2, workers))
    simulation = tools.simulate(env, Recorder(), horizon=3)
    assert simulation()['answer'] == 42
    with pytest.raises(Trouble, match='out of paper') as caught:
        simulation()
    assert 'environment 1' in ''.join(caught.value.__notes__)
    # New episodes begin by themselves afterwards.
    assert simulation()['answer'] == 42
    assert simulation.traces == 1
    env.close()


def test_the_stored_sequence_is_the_one_of_stepping_by_hand():
    # Views of memory that the next step overwrites would show up here.
    def make():
        return gymnasium.make('Acrobot-v1', max_episode_steps=5)

    env = tools.InGraphBatchEnv(tools.make_batch_env(make, 3, 2))
    recorder = Recorder()
    simulation = tools.simulate(env, recorder, horizon=12)
    simulation.reset(seed=7)
    simulation()
    rows = recorder.given['records']['transition']
    env.close()
    with tools.make_batch_env(make, 3, 0) as batch:
        obs = batch.reset(7)
        for t in range(12):
            assert np.array_equal(rows.obs[t], obs)
            result = batch.step(rows.action[t])
            assert np.array_equal(rows.next_obs[t], result.next_obs)
            assert np.array_equal(rows.truncated[t], result.truncated)
            assert np.array_equal(rows.reward[t], result.reward)
            obs = result.obs
    assert rows.truncated[4].all() and rows.truncated[9].all()
    assert not np.array_equal(rows.obs[:, 0], rows.obs[:, 1])


def test_step_and_reset_are_operations_that_keep_their_results_in_variables():
    env = tools.InGraphBatchEnv(FakeBatch([2, 3]))

    @tf.function
    def run():
        env.reset(5)
        first = env.step(tf.constant([0, 1], tf.int64))
        return first, env.step(tf.constant([2, 0], tf.int64))

    first, second = run()
    assert first.first.numpy().tolist() == [True, True]
    assert second.first.numpy().tolist() == [False, False]
    assert second.next_obs.numpy().tolist() == [[0, 2], [1, 2]]
    assert env.obs.numpy().tolist() == [[0, 0], [1, 2]]
    assert env.first.numpy().tolist() == [True, False]
    assert env.action.numpy().tolist() == [2, 0]
    env.reset()
    assert env.first.numpy().tolist() == [True, True]
    assert env.terminated.numpy().tolist() == [False, False]


def test_reset_takes_one_seed_a_list_of_them_or_none():
    batch = FakeBatch([2, 3])
    env = tools.InGraphBatchEnv(batch)
    env.reset(3)
    assert batch.seed == 3
    env.reset([4, 5])
    assert batch.seed == [4, 5]
    env.reset()
    assert batch.seed is None


_COUNT_COMPILATIONS = """
import glob, sys
import gymnasium
from agents import algorithms, tools
make = lambda: gymnasium.make('Pendulum-v1')
env = tools.InGraphBatchEnv(tools.make_batch_env(make, 2, 0))
hyper = algorithms.Hyperparameters(minibatch=8, epochs=2, decay_updates=9, policy_layers=(4,))
ppo = algorithms.PPO(env.observation_space, env.action_space, 2, hyper)
simulation = tools.simulate(env, ppo, horizon=9)
counts = []
for _ in range(5):
    simulation()
    counts.append(len(glob.glob(sys.argv[1] + '/*before_optimizations.txt')))
print(counts, simulation.traces)
assert counts[0] > 0 and len(set(counts)) == 1, counts
assert simulation.traces == 1
"""


def test_xla_compiles_nothing_after_the_first_call(tmp_path):
    flags = f'--xla_dump_to={tmp_path} --xla_dump_hlo_as_text'
    environment = {**os.environ, 'XLA_FLAGS': flags, 'TF_CPP_MIN_LOG_LEVEL': '2'}
    command = [sys.executable, '-c', _COUNT_COMPILATIONS, str(tmp_path)]
    subprocess.run(command, check=True, env=environment, timeout=120)


def test_a_user_of_ppo_needs_no_more_than_spaces_and_a_number():
    env = tools.InGraphBatchEnv(FakeBatch([2, 3]))
    ppo = algorithms.PPO(env.observation_space, env.action_space, env.num_envs)
    assert np.isfinite(tools.simulate(env, ppo, horizon=4)()['explained_variance'])


_HANG = """
import time
import gymnasium, numpy as np
from agents import tools
from tests.tools.fake_batch import Recorder

class Hanging(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(3)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            print('hangs', flush=True)
            time.sleep(1000)
        return np.zeros(2, np.float32), 0.0, False, False, {}

env = tools.InGraphBatchEnv(tools.make_batch_env(Hanging, 2, 1))
simulation = tools.simulate(env, Recorder(), horizon=8)
try:
    simulation()
except KeyboardInterrupt:
    print('stopped', flush=True)
env.close()
print('closed', flush=True)
"""


def test_control_c_ends_the_operation_also_while_an_environment_hangs():
    process = subprocess.Popen([sys.executable, '-c', _HANG], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == 'hangs\n'
        process.send_signal(signal.SIGINT)
        # Far less than the hour that the environment, or the minute that the time-out would take.
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert output == 'stopped\nclosed\n'
    assert process.returncode == 0
