"""How fast environments are that live in the graph, and PPO that is compiled with them."""

import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.contest import Contender, Line, Options, contest
from benchmarks.solving import reached
from benchmarks.startup import run_until

TASK = 'CartPole-v1'
MANY_ENVS = 4096
# Environments, steps of each before an update, minibatches in an epoch, epochs.
SIZES = ((64, 128, 16, 4), (8, 256, 32, 10))
# Whether a printed line is that of an evaluation with a mean score of at least 475.
solved = reached(475.0)


def compiled_stepping(options: Options) -> list[Line]:
    """4096 × CartPole-v1 as one program, random actions drawn inside of it, resets included.

    Here `CompiledBatchEnv` in a compiled `tf.while_loop`, with this package's own CartPole and with
    gymnax's through the bridge; there gymnax in pure JAX, vmapped, in a jitted `lax.scan`: with
    JAX's default random numbers, which gymnax has through the bridge as well, and with its fastest
    (unsafe_rbg). The quickest of three calls of 500 or 2000 steps.
    """
    steps = 500 if options.quick else 2000
    sides = [
        [Contender(name, function, {**kwargs, 'steps': steps}, needs=needs)]
        for name, function, kwargs, needs in (
            ('agents, tensorflow', step_compiled, {'engine': 'tensorflow'}, ''),
            ('agents, jax', step_compiled, {'engine': 'jax'}, 'gymnax'),
            ('gymnax in pure JAX', step_gymnax, {'prng': 'threefry2x32'}, 'gymnax'),
            ('gymnax in pure JAX, unsafe_rbg', step_gymnax, {'prng': 'unsafe_rbg'}, 'gymnax'),
        )
    ]
    native, bridge, default, fastest = contest(sides, options.repeats)
    what = f'step {MANY_ENVS} × {TASK}'
    return [
        Line(f'{what}, tensorflow', 'steps/s', native, fastest, ratio_wanted=1.0),
        Line(f'{what}, jax', 'steps/s', bridge, default, ratio_wanted=0.85),
    ]


def compiled_training(options: Options) -> list[Line]:
    """PPO on CartPole-v1, the whole run one program of XLA.

    64 environments × 128 steps, 16 minibatches of 512, 4 epochs; and 8 × 256, 32 minibatches of 64,
    10 epochs. Here `simulate` with engine=tensorflow; there PureJaxRL's design in plain JAX on
    gymnax (`benchmarks/pure_jax.py`). Same on both sides: separate 64-64 tanh networks, clipped
    objective and values (0.2), Adam (ε 1e-5) with learning rate 2.5e-4 falling linearly to 0,
    discount 0.99, λ 0.95, entropy bonus 0.01, value loss × 0.5, gradient norm at most 0.5,
    advantages normalised over the minibatch, observations and rewards not at all. Steps per second
    of a million steps, after compilation. First call is the time of the first iteration here,
    tracing and compilation included.
    """
    steps = 200_000 if options.quick else 1_000_000
    names = ('num_envs', 'horizon', 'minibatches', 'epochs')
    lines = []
    for sizes in SIZES:
        kwargs = {**dict(zip(names, sizes, strict=True)), 'steps': steps}
        peer = Contender("PureJaxRL's design", train_pure_jax, kwargs, needs='gymnax')
        figures = contest([[Contender('agents', train_compiled, kwargs)], [peer]], options.repeats)
        lines.append(Line(f'train {_describe(**kwargs)}', 'steps/s', *figures, ratio_wanted=1.0))
    kwargs = dict(zip(names, SIZES[0], strict=True))
    (first,) = contest([[Contender('first call', first_call, kwargs)]], options.repeats, True)
    what = f'first call of {_describe(**kwargs)}'
    return [*lines, Line(what, 's', first, below=15.0, lower_is_better=True)]


def compiled_solve(options: Options) -> list[Line]:
    """From `train --config=cartpole --engine=tensorflow` to a mean evaluation score of 475.

    Seconds from the command until the line of the first evaluation with at least this mean is
    printed: imports, compilation and evaluations included. Of that, training is what rollouts and
    updates took until then, after compilation: steps / (steps per second) of the run's metrics.
    """
    sides = [
        [Contender('the whole command', solve, {'training': False})],
        [Contender('training', solve, {'training': True})],
    ]
    whole, training = contest(sides, options.repeats, lower_is_better=True)
    what = 'train --config=cartpole --engine=tensorflow to 475'
    return [
        Line(what, 's', whole, below=20.0, lower_is_better=True),
        Line(f'{what}, training', 's', training, below=3.0, lower_is_better=True),
    ]


def step_compiled(engine: str, steps: int) -> float:
    import tensorflow as tf

    from agents.envs import CompiledBatchEnv, registry

    make = {'tensorflow': registry.native, 'jax': registry.in_jax}[engine]
    env = CompiledBatchEnv(make(TASK), MANY_ENVS)
    env.reset(0)

    @tf.function(jit_compile=True, autograph=False)
    def run(seed: tf.Tensor) -> tf.Tensor:
        def body(t: Any, state: Any, total: tf.Tensor) -> Any:
            action = tf.random.stateless_uniform(
                [MANY_ENVS], tf.stack([t, seed]), 0, 2, tf.int32, alg='philox'
            )
            state, transition = env.advance(state, tf.cast(action, tf.int64))
            return t + 1, state, total + tf.reduce_sum(transition.reward)

        loop = (tf.constant(0), env.state(), tf.constant(0.0))
        _, state, total = tf.while_loop(lambda t, *_: t < steps, body, loop)
        env.assign(state)
        return total

    return steps * MANY_ENVS / best(lambda index: run(tf.constant(index)).numpy())


def step_gymnax(prng: str, steps: int) -> float:
    import gymnax
    import jax

    jax.config.update('jax_default_prng_impl', prng)
    env, params = gymnax.make(TASK)
    advance = jax.vmap(env.step, (0, 0, 0, None))
    keys = jax.random.split(jax.random.key(0), MANY_ENVS)
    _, start = jax.vmap(env.reset, (0, None))(keys, params)

    @jax.jit
    def run(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            act, move = jax.random.split(key)
            action = (jax.random.bits(act, (MANY_ENVS,)) & 1).astype('int32')
            keys = jax.random.split(move, MANY_ENVS)
            _, state, reward, *_ = advance(keys, state, action, params)
            return state, reward.sum()

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1].sum()

    return steps * MANY_ENVS / best(lambda index: run(start, jax.random.key(index)).item())


def best(run: Callable[[int], object]) -> float:
    """Seconds of the quickest of three calls after one for warming up.

    Args:
        run: Called with the number of the call.
    """
    times = []
    for index in range(4):
        begin = time.perf_counter()
        run(index)
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def train_compiled(num_envs: int, horizon: int, minibatches: int, epochs: int, steps: int) -> float:
    updates = max(1, steps // (num_envs * horizon))
    simulation = make_simulation(num_envs, horizon, minibatches, epochs, updates + 1)
    simulation.run(1)  # Compiles.
    begin = time.perf_counter()
    simulation.run(updates)
    return updates * num_envs * horizon / (time.perf_counter() - begin)


def train_pure_jax(num_envs: int, horizon: int, minibatches: int, epochs: int, steps: int) -> float:
    from benchmarks import pure_jax  # Not above: JAX may be missing.

    return pure_jax.measure(num_envs, horizon, minibatches, epochs, steps)


def first_call(num_envs: int, horizon: int, minibatches: int, epochs: int) -> float:
    simulation = make_simulation(num_envs, horizon, minibatches, epochs)
    begin = time.perf_counter()
    simulation()
    return time.perf_counter() - begin


def make_simulation(
    num_envs: int, horizon: int, minibatches: int, epochs: int, updates: int = 100
) -> Any:
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')  # The peer trains on the CPU as well.
    from agents import algorithms, tools
    from agents.envs import CompiledBatchEnv, registry

    hyper = algorithms.Hyperparameters(
        policy_layers=(64, 64),
        value_layers=(64, 64),
        activation='tanh',
        entropy_coef=0.01,
        learning_rate=2.5e-4,
        decay_updates=updates,
        adam_epsilon=1e-5,
        value_clip_range=0.2,
        gradient_clip=0.5,
        normalize_advantages='minibatch',
        normalize_obs=False,
        normalize_rewards=False,
        epochs=epochs,
        minibatch=num_envs * horizon // minibatches,
    )
    env = CompiledBatchEnv(registry.native(TASK), num_envs)
    ppo = algorithms.PPO(env.observation_space, env.action_space, num_envs, hyper)
    return tools.simulate(env, ppo, horizon)


def solve(training: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        flags = ('--config=cartpole', '--engine=tensorflow', f'--logdir={folder}')
        command = [sys.executable, '-m', 'agents.scripts.train', *flags, '--stop_at_score=475']
        seconds = run_until(command, solved)
        (metrics,) = pathlib.Path(folder).rglob('metrics.jsonl')
        return training_seconds(metrics.read_text().splitlines()) if training else seconds


def training_seconds(lines: Sequence[str]) -> float:
    """Seconds of rollouts and updates before the first evaluation with a mean of at least 475."""
    last, seconds = 0, 0.0
    for record in map(json.loads, lines):
        if record['phase'] == 'train':
            seconds += (record['step'] - last) / record['steps_per_second']
            last = record['step']
        elif record['score'] >= 475:
            return seconds
    raise RuntimeError('The run ended before an evaluation with a mean score of at least 475.')


def _describe(num_envs: int, horizon: int, minibatches: int, epochs: int, **_: int) -> str:
    return f'{num_envs} × {horizon}, {minibatches} minibatches, {epochs} epochs'
