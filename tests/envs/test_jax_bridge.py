"""Environments in JAX behind the door of all environments in the graph."""

import importlib.metadata
import re
import sys

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents import envs, tools
from agents.algorithms import PPO, Hyperparameters
from agents.envs.checking import ContractError
from agents.envs.compiled_batch_env import CompiledBatchEnv
from tests.modes import in_every_mode

jax = pytest.importorskip('jax')
jnp = jax.numpy

HYPER = Hyperparameters(policy_layers=(8,), value_layers=(8,), epochs=2, minibatch=16)
BOX = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)


def walk_reset(seed):
    """A random walk with all kinds of state: floats, integers, booleans and keys of JAX."""
    place = jax.random.uniform(seed, (2,))
    return {'place': place, 'clock': (jnp.int32(0), jnp.bool_(False)), 'key': seed}, place


def walk_step(state, action, seed):
    del seed
    key, now = jax.random.split(state['key'])
    place = state['place'] + jax.random.normal(now, (2,)) * action
    steps = state['clock'][0] + 1
    late = steps >= 3
    state = {'place': place, 'clock': (steps, late), 'key': key}
    return state, place, place.sum(), place[0] > 2, late


def make_walk(reset=walk_reset, step=walk_step, **changes):
    arguments = {
        'observation_space': BOX,
        'action_space': gymnasium.spaces.Discrete(3),
        'name': 'walk',
        **changes,
    }
    return envs.from_jax(jax.vmap(reset), jax.vmap(step), **arguments)


def with_state(transform):
    """Change the state that `step` returns."""

    def step(state, action, seed):
        state, *rest = walk_step(state, action, seed)
        return (transform(state), *rest)

    return {'step': step}


def with_start(transform):
    """Change the state that `reset` returns, and the one that `step` returns alike."""

    def reset(seed):
        state, obs = walk_reset(seed)
        return transform(state), obs

    return {'reset': reset}


# What it computes.


@in_every_mode
def test_the_functions_compute_what_they_do_in_jax(mode):
    environment = make_walk()
    seeds = np.random.default_rng(0).integers(2**32, size=(4, 2), dtype=np.uint32)
    action = np.array([0, 1, 2, 1])
    state, obs = jax.vmap(walk_reset)(seeds)
    expected = jax.vmap(walk_step)(state, action, seeds)
    int_seeds = tf.constant(seeds.view(np.int32))

    def both(seed, action):
        state, obs = environment.reset(seed)
        return obs, environment.step(state, action, seed)

    tensors = mode(both)(int_seeds, tf.constant(action))
    for x, y in zip(tf.nest.flatten(tensors), jax.tree.leaves((obs, expected)), strict=True):
        assert x.dtype.as_numpy_dtype == y.dtype
        np.testing.assert_allclose(x.numpy(), y, rtol=1e-6)


def test_a_row_of_the_seeds_is_a_key_of_jax():
    key = jax.random.PRNGKey(3)  # [0, 3] in JAX.
    _, obs = make_walk().reset(tf.constant([[0, 3], [0, 4]]))
    np.testing.assert_allclose(obs[0], jax.random.uniform(key, (2,)), rtol=1e-6)


def test_what_discrete_spaces_have_in_64_bits_is_given_to_jax_in_32():
    seen = []

    def step(state, action, seed):
        seen.append(action.dtype)
        state, _, *rest = walk_step(state, action, seed)
        return (state, action, *rest)

    def reset(seed):
        return walk_reset(seed)[0], jnp.int32(2)

    environment = make_walk(reset, step, observation_space=gymnasium.spaces.Discrete(3))
    env = CompiledBatchEnv(environment, 3)
    assert env.reset(0).numpy().tolist() == [2, 2, 2]
    assert env.step(tf.constant([2, 0, 1], tf.int64)).next_obs.numpy().tolist() == [2, 0, 1]
    assert set(seen) == {np.dtype('int32')}
    assert env.obs.dtype == tf.int64


def test_jax_traces_the_functions_once_for_each_number_of_environments():
    traces = []

    def step(state, action, seed):
        traces.append(1)
        return walk_step(state, action, seed)

    environment = make_walk(step=step)
    before = len(traces)
    env = CompiledBatchEnv(environment, 5)
    ppo = PPO(env.observation_space, env.action_space, 5, HYPER)
    simulation = tools.simulate(env, ppo, horizon=8)
    simulation.run(2)
    env.step(tf.zeros([5], tf.int64))
    assert len(traces) == before + 1


def test_equal_seeds_give_equal_episodes_and_others_do_not():
    env = CompiledBatchEnv(make_walk(), 3)

    def play(seed):
        obs = [env.reset(seed).numpy()]
        return np.stack(obs + [env.step(tf.ones([3], tf.int64)).next_obs.numpy() for _ in range(7)])

    first = play(1)
    np.testing.assert_array_equal(play(1), first)
    assert (play(2) != first).all()


def test_rows_that_ended_begin_anew_and_their_last_observation_is_true():
    env = CompiledBatchEnv(make_walk(), 3)
    env.reset(0)
    for step in range(1, 7):
        obs = env.obs.numpy()
        transition = env.step(tf.zeros([3], tf.int64))  # Nobody moves.
        np.testing.assert_array_equal(transition.next_obs, obs)
        ended = step % 3 == 0
        assert (transition.truncated.numpy() == ended).all()
        assert ((env.obs.numpy() != obs).any(1) == ended).all()


def test_ppo_trains_in_one_program_and_a_resumed_run_is_bit_equal(tmp_path):
    def build():
        env = CompiledBatchEnv(make_walk(), 4)
        ppo = PPO(env.observation_space, env.action_space, 4, HYPER)
        return tools.simulate(env, ppo, horizon=8, seed=3), ppo

    (whole, ppo), (begun, other), (resumed, third) = build(), build(), build()
    metrics = whole.run(4)
    assert whole.compiled
    assert all(np.isfinite(m['policy_loss']) for m in metrics[1:])
    begun.run(2)
    path = tf.train.Checkpoint(simulation=begun, algorithm=other).write(str(tmp_path / 'x'))
    tf.train.Checkpoint(simulation=resumed, algorithm=third).read(path).assert_consumed()
    resumed.run(2)
    pairs = [(whole.variables, resumed.variables), (ppo.policy.weights, third.policy.weights)]
    for left, right in pairs:
        for x, y in zip(left, right, strict=True):
            np.testing.assert_array_equal(x.numpy(), y.numpy())


# What is wrong with it.


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            with_state(lambda s: s | {'place': s['place'].astype('float16')}),
            r"walk: state\['place'\] of step must be float32 \[2, 2\] as in reset, got float16",
        ),
        (
            with_state(lambda s: s | {'clock': (s['clock'][0][None], s['clock'][1])}),
            r"walk: state\['clock'\]\[0\] of step must be int32 \[2\] .* got int32 \[2, 1\]",
        ),
        (
            with_state(lambda s: {'place': s['place'], 'clock': s['clock']}),
            r"state\['key'\] of step must be uint32 \[2, 2\] as in reset, got nothing",
        ),
        (
            with_state(lambda s: s | {'more': s['key']}),
            r"state\['more'\] of step must be nothing as in reset, got uint32 \[2, 2\]",
        ),
        (
            with_state(lambda s: s | {'clock': list(s['clock'])}),
            r'state of step must be of the same types as the state of reset',
        ),
        (
            with_start(lambda s: s | {'key': jax.random.wrap_key_data(s['key'])}),
            r"walk: state\['key'\] of reset must be .* got key<fry>\. Keep jax.random.key_data",
        ),
        (
            {'step': lambda *args: walk_step(*args)[:4]},
            'walk: step must return state, obs, reward, terminated, truncated, got',
        ),
        (
            {'reset': lambda seed: jnp.zeros(3)},
            'walk: reset must return state, obs, got',
        ),
    ],
)
def test_a_state_that_does_not_keep_its_form_is_named(changes, message):
    with pytest.raises(ContractError, match=message):
        make_walk(**changes)


@pytest.mark.parametrize(
    ('value', 'message'),
    [
        (7, r"state\['fixed'\] of reset must have one row .* got int32 \[\] for 2"),
        (np.zeros(3), r"state\['fixed'\] of reset must have one .* float32 \[3\] for"),
        ('x', r"state\['fixed'\] of reset must be an array, got 'x'"),
    ],
)
def test_a_part_of_the_state_without_a_row_for_each_environment_is_named(value, message):
    def reset(seed):
        return {'fixed': value, 'steps': seed[:, 0]}, jnp.zeros([len(seed), 2])

    def step(state, action, seed):
        no = jnp.zeros(len(seed), bool)
        return state, jnp.zeros([len(seed), 2]), jnp.zeros(len(seed)), no, no

    with pytest.raises(ContractError, match=message):
        envs.from_jax(reset, step, BOX, gymnasium.spaces.Discrete(2))


def test_a_part_that_has_by_chance_as_many_rows_as_the_first_check_is_found_by_the_next():
    def reset(seed):
        return jnp.zeros(2), jnp.zeros([len(seed), 2])

    def step(state, action, seed):
        no = jnp.zeros(len(seed), bool)
        return state, jnp.zeros([len(seed), 2]), jnp.zeros(len(seed)), no, no

    environment = envs.from_jax(reset, step, BOX, gymnasium.spaces.Discrete(2))
    with pytest.raises(ContractError, match=r'state of reset must have one row .* for 5 environ'):
        CompiledBatchEnv(environment, 5)


def with_results(transform):
    def step(state, action, seed):
        return transform(*walk_step(state, action, seed))

    return {'step': step}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            with_results(lambda s, o, r, e, u: (s, o[:1], r, e, u)),
            r'observation of step must be float32 \[4, 2\] .* got float32 \[4, 1\]',
        ),
        (
            with_results(lambda s, o, r, e, u: (s, o, jnp.int32(1), e, u)),
            r'reward of step must be float32 \[4\] .* got int32 \[4\]',
        ),
        (
            with_results(lambda s, o, r, e, u: (s, o, r, e.astype(float), u)),
            r'terminated of step must be bool \[4\] .* got float32 \[4\]',
        ),
        (
            {'observation_space': gymnasium.spaces.Box(-1, 1, (3,))},
            r'observation of reset must be float32 \[4, 3\] .* got float32 \[4, 2\]',
        ),
    ],
)
def test_results_that_are_not_those_of_the_spaces_are_named(changes, message):
    with pytest.raises(ContractError, match=f'walk: {message}'):
        CompiledBatchEnv(make_walk(**changes), 4)


def with_side_effect(name):
    def step(state, action, seed):
        matrix = jnp.eye(2) + state['place'][0] ** 2
        if name == 'print':
            jax.debug.print('{}', matrix)
        else:
            matrix = jnp.linalg.cholesky(matrix)
        return walk_step(state | {'place': matrix[0]}, action, seed)

    return step


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        (
            'cholesky',
            r'got a call of lapack_spotrf_ffi\. .*solver=CG and jacobian=sparse\. .*engin',
        ),
        ('print', r'got a call of xla_ffi_python_cpu_callback\. Leave out jax.debug.print'),
    ],
)
def test_a_program_that_only_jax_can_run_is_found_when_it_is_made(name, message):
    with pytest.raises(ContractError, match=f'walk: step must be a program .* run, {message}'):
        make_walk(step=with_side_effect(name))


def test_tensorflow_runs_the_operations_that_jax_has_without_a_library():
    def step(state, action, seed):
        place = state['place']
        place = jnp.sort(place) + jax.lax.top_k(place, 2)[0] + jnp.fft.fft(place).real
        place += jnp.arccos(jnp.sin(place)) + jax.nn.gelu(place, approximate=False)
        index = jax.random.permutation(seed, 2)
        state = state | {'place': place[index] + jax.random.gamma(seed, place**2 + 1)}
        return walk_step(state, action, seed)

    env = CompiledBatchEnv(make_walk(step=step), 2)
    env.reset(0)
    assert np.isfinite(env.step(tf.zeros([2], tf.int64)).next_obs).all()


def test_a_program_for_a_gpu_as_well_runs_on_the_cpu(monkeypatch):
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [kind])
    env = CompiledBatchEnv(make_walk(), 2)
    env.reset(0)
    transition = env.step(tf.zeros([2], tf.int64))
    np.testing.assert_array_equal(transition.next_obs, transition.obs)


def test_jax_leaves_accelerators_to_tensorflow():
    make_walk()
    assert jax.config.jax_platforms == 'cpu'


def forget(monkeypatch):
    for module in ('agents.envs.jax_bridge', 'agents.envs.jax_setup'):
        monkeypatch.delitem(sys.modules, module)


def test_without_jax_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, 'jax', None)
    forget(monkeypatch)
    with pytest.raises(ImportError, match=re.escape("pip install 'batch-agents[jax]'")):
        importlib.import_module('agents.envs.jax_bridge')


def test_a_version_of_jax_that_tensorflow_cannot_read_is_an_error(monkeypatch):
    versions = {'jax': '0.10.1'}
    monkeypatch.setattr(importlib.metadata, 'version', versions.get)
    forget(monkeypatch)
    with pytest.raises(ImportError, match=r"below 0.10.1, got jax=0.10.1: .* 'jax<0.10.1'"):
        importlib.import_module('agents.envs.jax_bridge')
