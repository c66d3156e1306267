"""How long one update of PPO takes, without rollouts."""

import os
import time
from typing import Any

from benchmarks import peers
from benchmarks.contest import Contender, Line, Options, contest

# Environments, steps of each, minibatch, epochs; and what is wanted against PyTorch and JAX.
SIZES = (
    (8, 256, 64, 10, 10.0, 1.0),
    (64, 128, 512, 4, None, None),
    (64, 128, 64, 10, None, None),
)


def updating(options: Options) -> list[Line]:
    """One update of PPO on rows of CartPole's shape, separate 64-64 tanh networks.

    Advantages, epochs, minibatches and statistics; mean of several updates after the first one.
    Here one XLA program; there CleanRL's design in PyTorch with 1 or 2 threads, the faster counts,
    and PureJaxRL's design in JAX (`benchmarks/pure_jax.py`), which is one program, too.
    """
    lines = []
    for num_envs, horizon, minibatch, epochs, *wanted in SIZES[:1] if options.quick else SIZES:
        kwargs = {
            'num_envs': num_envs,
            'horizon': horizon,
            'minibatch': minibatch,
            'epochs': epochs,
            'repeats': 3 if options.quick else 10,
        }
        torch = [
            Contender(
                f'PyTorch, {threads} thread{"s" * (threads > 1)}',
                update_torch,
                {**kwargs, 'threads': threads},
                needs='torch',
            )
            for threads in (1, 2)
        ]
        sides = [
            [Contender('agents', update_ours, kwargs)],
            torch,
            [Contender('JAX', update_jax, kwargs, needs='gymnax')],
        ]
        ours, *others = contest(sides, options.repeats, lower_is_better=True)
        what = f'update on {num_envs * horizon} rows, minibatch {minibatch}, {epochs} epochs'
        lines += [
            Line(what, 'ms', ours, peer, ratio, lower_is_better=True)
            for peer, ratio in zip(others, wanted, strict=True)
        ]
    return lines


def update_ours(num_envs: int, horizon: int, minibatch: int, epochs: int, repeats: int) -> float:
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '-1')
    import tensorflow as tf

    from agents import algorithms
    from agents.algorithms.ppo import Record
    from benchmarks import tasks

    hyper = algorithms.Hyperparameters(
        policy_layers=(64, 64), value_layers=(64, 64), epochs=epochs, minibatch=minibatch
    )
    space = tasks.make(tasks.CART_POLE)
    ppo = algorithms.PPO(space.observation_space, space.action_space, num_envs, hyper)
    size = [horizon, num_envs]
    no = tf.zeros(size, tf.bool)
    records = Record(
        obs=tf.random.normal([*size, 4]),
        sample=tf.zeros(size, tf.int32),
        reward=tf.ones(size),
        terminated=tf.random.uniform(size) < 0.02,
        truncated=no,
        bootstrap=tf.zeros(size),
        valid=~no,
    )

    def update(index: int) -> Any:
        seed = tf.constant([0, index])
        return ppo.update(records, records.obs[0], (), seed)['minibatches'].numpy()

    for index in range(2):  # The first one only begins the statistics.
        update(index)
    return _milliseconds(update, repeats)


def update_torch(
    num_envs: int, horizon: int, minibatch: int, epochs: int, repeats: int, threads: int
) -> float:
    peers.without_tensorflow()
    import torch

    from benchmarks import cleanrl

    torch.set_num_threads(threads)
    return 1e3 * cleanrl.time_update(num_envs, horizon, minibatch, epochs, repeats)


def update_jax(num_envs: int, horizon: int, minibatch: int, epochs: int, repeats: int) -> float:
    from benchmarks import pure_jax

    rows = num_envs * horizon
    ppo = pure_jax.PPO(num_envs, horizon, rows // minibatch, epochs, repeats)
    return 1e3 * pure_jax.measure_parts(ppo)[1]


def _milliseconds(update: Any, repeats: int) -> float:
    begin = time.perf_counter()
    for index in range(repeats):
        update(index + 2)
    return 1e3 * (time.perf_counter() - begin) / repeats
