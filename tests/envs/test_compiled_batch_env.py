import dataclasses

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import tools
from agents.algorithms import PPO, Hyperparameters
from agents.envs import cart_pole, pendulum, random
from agents.envs.compiled_batch_env import CompiledBatchEnv
from agents.envs.environment import Environment

HYPER = Hyperparameters(policy_layers=(8,), value_layers=(8,), epochs=2, minibatch=16)


def make_counter(limit=3):
    """Observations count up from a random start; episodes last `limit` steps."""

    def reset(seed):
        start = tf.round(random.uniform(seed, [1], 0.0, 1000.0))
        return {'at': start, 'steps': tf.zeros_like(seed[:, 0])}, start

    def step(state, action, seed):
        at, steps = state['at'] + 1, state['steps'] + 1
        never = tf.zeros_like(steps, tf.bool)
        reward = tf.cast(action, tf.float32)
        return {'at': at, 'steps': steps}, at, reward, steps >= limit, never

    box = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    return Environment(reset, step, box, gymnasium.spaces.Discrete(2), 'counter')


def make_training(num_envs=4, environment=None):
    env = CompiledBatchEnv(environment or cart_pole.make(max_episode_steps=20), num_envs)
    ppo = PPO(env.observation_space, env.action_space, num_envs, HYPER)
    return tools.simulate(env, ppo, horizon=16, seed=3), ppo


def all_values(*modules):
    return [v.numpy() for m in modules for v in m.variables] + [
        w.numpy() for m in modules for w in getattr(m, 'weights', ())
    ]


def assert_equal(left, right):
    assert len(left) == len(right)
    for x, y in zip(left, right, strict=True):
        np.testing.assert_array_equal(x, y)


def test_an_episode_that_ends_is_reset_in_the_same_step_and_its_last_observation_is_true():
    env = CompiledBatchEnv(make_counter(limit=3), 2)
    first = env.reset(0).numpy()
    for count in (1, 2):
        transition = env.step(tf.constant([0, 1], tf.int64))
        np.testing.assert_array_equal(env.obs.numpy(), first + count)
        assert transition.reward.numpy().tolist() == [0, 1]
        assert transition.first.numpy().all() == (count == 1)
    transition = env.step(tf.constant([1, 1], tf.int64))
    np.testing.assert_array_equal(transition.obs.numpy(), first + 2)
    np.testing.assert_array_equal(transition.next_obs.numpy(), first + 3)
    assert transition.terminated.numpy().all()
    assert transition.valid.numpy().all()
    assert env.first.numpy().all()
    # The new start is another random number.
    assert (env.obs.numpy() != first + 3).all()
    assert (env.obs.numpy() != first).all()
    assert not env.step(tf.constant([1, 1], tf.int64)).terminated.numpy().any()


def test_rows_that_go_on_are_not_touched_by_the_reset_of_others():
    env = CompiledBatchEnv(cart_pole.make(), 2)
    env.reset(0)
    env.inner.state.physics.assign([[2.39, 5, 0, 0], [0, 0, 0, 0]])
    env.step(tf.constant([1, 1], tf.int64))
    assert env.terminated.numpy().tolist() == [True, False]
    assert np.abs(env.obs.numpy()[0]).max() <= 0.05
    # 10 N on 1.1 kg for 0.02 s, the pole swings the other way: speed 0.195 m/s.
    np.testing.assert_allclose(env.obs.numpy()[1], [0, 0.1951, 0, -0.2927], atol=1e-4)
    assert env.inner.state.steps.numpy().tolist() == [0, 1]


def test_a_seed_for_each_environment_gives_the_same_episodes_wherever_it_stands():
    env = CompiledBatchEnv(pendulum.make(), 3)
    straight = env.reset([5, 6, 7]).numpy()
    mixed = env.reset([7, 5, 6]).numpy()
    np.testing.assert_array_equal(straight, mixed[[1, 2, 0]])


def test_equal_seeds_begin_equal_episodes_and_none_goes_on_with_others():
    env = CompiledBatchEnv(pendulum.make(), 3)
    first = env.reset(1).numpy()
    assert (env.reset(2).numpy() != first).all()
    assert (env.reset().numpy() != first).all()
    np.testing.assert_array_equal(env.reset(1).numpy(), first)


@pytest.mark.parametrize('most', [256, 3])  # With 3, four take two calls.
def test_many_iterations_at_once_equal_the_same_number_of_single_ones(most, monkeypatch):
    monkeypatch.setattr('agents.tools.simulation.MOST_ITERATIONS', most)
    (one, one_ppo), (many, many_ppo) = make_training(), make_training()
    singles = [one() for _ in range(4)]
    together = many.run(4)
    assert_equal(all_values(one, one_ppo.policy), all_values(many, many_ppo.policy))
    for x, y in zip(singles, together, strict=True):
        x.pop('steps_per_second'), y.pop('steps_per_second')
        np.testing.assert_equal(x, y)
    assert int(many.iteration) == 4
    assert int(many.steps) == 4 * 16 * 4


def test_a_resumed_run_is_bit_equal_to_one_that_was_never_stopped(tmp_path):
    whole, whole_ppo = make_training()
    whole.run(6)
    begun, begun_ppo = make_training()
    begun.run(3)
    path = tf.train.Checkpoint(simulation=begun, algorithm=begun_ppo).write(str(tmp_path / 'x'))
    resumed, resumed_ppo = make_training()
    tf.train.Checkpoint(simulation=resumed, algorithm=resumed_ppo).read(path).assert_consumed()
    resumed.run(3)
    assert_equal(all_values(whole, whole_ppo.policy), all_values(resumed, resumed_ppo.policy))


def test_the_program_is_traced_once_for_any_number_of_iterations():
    simulation, _ = make_training()
    for iterations in (1, 3, 2):
        assert len(simulation.run(iterations)) == iterations
    assert simulation.traces == 1


def test_a_failing_update_stops_the_program_and_keeps_the_weights_before_it():
    environment = make_counter()

    def step(state, action, seed):
        state, obs, reward, terminated, truncated = environment.step(state, action, seed)
        return state, obs, reward * float('nan'), terminated, truncated

    broken = dataclasses.replace(environment, step=step)
    simulation, ppo = make_training(environment=broken)
    before = [w.numpy() for w in ppo.policy.weights]
    with pytest.raises(FloatingPointError, match='must be finite'):
        simulation.run(5)
    assert_equal(before, [w.numpy() for w in ppo.policy.weights])


def test_an_evaluation_plays_one_episode_in_each_environment():
    env = CompiledBatchEnv(make_counter(limit=3), 5)
    ppo = PPO(env.observation_space, env.action_space, 5, HYPER)
    episodes = tools.evaluate(env, ppo)(range(5))
    assert episodes.length.tolist() == [3] * 5
    assert episodes.terminated.all()
    assert not episodes.cut.any()


def test_an_algorithm_that_cannot_be_compiled_trains_all_the_same():
    env = CompiledBatchEnv(make_counter(), 4)
    hyper = dataclasses.replace(HYPER, compile='off')
    ppo = PPO(env.observation_space, env.action_space, 4, hyper)
    simulation = tools.simulate(env, ppo, horizon=16)
    assert not simulation.compiled
    assert [metrics['episodes'] for metrics in simulation.run(3)] == [20, 20, 24]


def change(**functions):
    return dataclasses.replace(make_counter(), **functions)


def with_step(transform):
    """The counter, but with other results of `step`."""
    step = make_counter().step
    return change(step=lambda *args: transform(*step(*args)))


@pytest.mark.parametrize(
    ('environment', 'message'),
    [
        (
            change(observation_space=gymnasium.spaces.Box(-1, 1, (2,))),
            r'counter: observation of reset must be float32 \[4, 2\] .* got float32 \[4, 1\]',
        ),
        (
            change(observation_space=gymnasium.spaces.Box(-1, 1, (1,), np.float64)),
            r'observation of reset must be float64 \[4, 1\] .* got float32',
        ),
        (
            with_step(lambda s, o, r, e, u: (s, o, tf.cast(r, tf.float64), e, u)),
            r'reward of step must be float32 \[4\] .* got float64 \[4\]',
        ),
        (
            with_step(lambda s, o, r, e, u: (s, o, r, tf.cast(e, tf.float32), u)),
            r'terminated of step must be bool \[4\] .* got float32 \[4\]',
        ),
        (
            with_step(lambda s, o, r, e, u: ({'at': s['at']}, o, r, e, u)),
            r'state of step must have the structure of the state of reset',
        ),
        (
            with_step(lambda s, o, r, e, u: (s | {'at': s['at'][:, 0]}, o, r, e, u)),
            r'state of step \(part 0\) must be float32 \[4, 1\] .* got float32 \[4\]',
        ),
        (with_step(lambda s, o, r, e, u: (s, o, r, e)), r'step must return state, obs, reward'),
    ],
)
def test_functions_that_break_the_contract_are_named(environment, message):
    with pytest.raises(ValueError, match=message):
        CompiledBatchEnv(environment, 4)


def test_a_space_of_another_kind_is_an_error():
    with pytest.raises(TypeError, match='Action space must be a Box or Discrete'):
        CompiledBatchEnv(change(action_space=gymnasium.spaces.Text(3)), 4)


def with_python(state, obs, reward, ended, truncated):
    return (
        state,
        obs,
        tf.reshape(tf.py_function(tf.identity, [reward], tf.float32), [4]),
        *(
            ended,
            truncated,
        ),
    )


def with_range(state, obs, reward, ended, truncated):
    # As long as a value says, which is only known when the program runs.
    return state, obs, reward + tf.reduce_sum(tf.range(reward[0])), ended, truncated


@pytest.mark.parametrize(
    ('change_results', 'problem'),
    [
        (with_python, 'XLA has no operation EagerPyFunc'),
        (with_range, 'node `range` with op Range must be a compile-time constant'),
    ],
)
def test_a_step_that_cannot_be_compiled_is_an_error_and_runs_uncompiled(change_results, problem):
    environment = with_step(change_results)
    place = rf'made in ".*{__name__.rpartition(".")[2]}.py", line \d+, in {change_results.__name__}'
    with pytest.raises(ValueError, match=rf'counter: step must .* {problem}, {place}.*jit_compile'):
        CompiledBatchEnv(environment, 4)
    env = CompiledBatchEnv(environment, 4, jit_compile=False)
    simulation = tools.simulate(env, PPO(env.observation_space, env.action_space, 4, HYPER), 16)
    assert not simulation.compiled
    assert simulation()['episodes'] == 20  # 4 · ⌊16 / 3⌋


def test_environments_that_are_not_compiled_act_the_same():
    results = []
    for jit_compile in (True, False):
        env = CompiledBatchEnv(make_counter(), 4, jit_compile)
        ppo = PPO(env.observation_space, env.action_space, 4, HYPER)
        simulation = tools.simulate(env, ppo, horizon=16, seed=3)
        simulation()
        results.append([x.numpy() for x in tf.nest.flatten(env.state())])
    assert_equal(*results)


def test_more_environments_than_memory_holds_are_an_error(monkeypatch):
    monkeypatch.setattr('agents.tools.memory.available', lambda: 2**30)
    # State and observation are 12 bytes each environment, and are there three times.
    with pytest.raises(MemoryError, match=r'100,000,000 environments .* at least 3.4 GiB, and 1.0'):
        CompiledBatchEnv(make_counter(), 10**8)


def test_a_rollout_that_memory_cannot_hold_is_an_error(monkeypatch):
    simulation, _ = make_training()
    monkeypatch.setattr('agents.tools.memory.available', lambda: 1000)
    with pytest.raises(MemoryError, match='16 steps of 4 environments must fit into memory'):
        simulation()


def test_a_program_goes_on_after_an_update_that_was_rolled_back():
    environment = make_counter()

    def step(state, action, seed):
        state, obs, reward, terminated, truncated = environment.step(state, action, seed)
        return state, obs, reward * float('nan'), terminated, truncated

    broken = dataclasses.replace(environment, step=step)
    env = CompiledBatchEnv(broken, 4)
    ppo = PPO(env.observation_space, env.action_space, 4, HYPER)
    simulation = tools.simulate(env, ppo, horizon=16, max_rolled_back=4)
    before = [w.numpy() for w in ppo.policy.weights]
    assert len(simulation.run(3)) == 3
    made = int(simulation.iteration)
    assert made == 3 and 2 <= simulation.rolled_back <= 3  # The first may not learn at all.
    with pytest.raises(FloatingPointError, match=r'rolled back in a row: 4\. Last metrics'):
        simulation.run(5)
    assert_equal(before, [w.numpy() for w in ppo.policy.weights])
