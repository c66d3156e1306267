"""Train for a long time and watch what grows: python3 -m benchmarks.soak [--seconds=3600].

Prints memory of this process and of its workers, open files, shared memory and speed at intervals,
then how much each has grown per million steps. The exit code is 1 if it is more than allowed.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import tasks
from benchmarks.startup import resident

MOST_GROWTH = 1.0  # MB per million steps, in any process.
_WARM_UP = 0.2  # Part of the time that counts for nothing: caches and arenas fill.
_SAMPLES = 60


class Sample(NamedTuple):
    """What was seen at one time.

    Attributes:
        steps: Steps so far.
        seconds: Time so far.
        parent: Resident memory of this process, MB.
        workers: The same of all workers.
        files: Open file descriptors of this process.
        shared: Shared memory blocks that it maps.
    """

    steps: int
    seconds: float
    parent: float
    workers: float
    files: int
    shared: int


def soak(
    seconds: float, num_envs: int = 1000, num_workers: int = 2, most_speed: float = 0.0
) -> Iterator[Sample]:
    """Train PPO on CartPole-v1.

    Args:
        seconds: How long.
        num_envs: Number of environments.
        num_workers: Number of worker processes.
        most_speed: Steps per second at most, so that a long soak leaves the machine to others; 0
            for no limit.

    Yields:
        Samples, about sixty of them.
    """
    from agents import algorithms, tools

    batch = tools.make_batch_env(tasks.maker(tasks.CART_POLE), num_envs, num_workers)
    env = tools.InGraphBatchEnv(batch)
    hyper = algorithms.Hyperparameters(epochs=1, minibatch=4 * num_envs)
    ppo = algorithms.PPO(env.observation_space, env.action_space, num_envs, hyper)
    simulation = tools.simulate(env, ppo, horizon=16)
    try:
        simulation()
        begin = last = time.monotonic()
        yield _sample(simulation, batch, 0.0)
        while (now := time.monotonic()) - begin < seconds:
            simulation()
            if now - last >= seconds / _SAMPLES:
                last = now
                yield _sample(simulation, batch, now - begin)
            if most_speed:
                due = int(simulation.steps) / most_speed
                time.sleep(max(0.0, begin + due - time.monotonic()))
    finally:
        env.close()


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """Return what has grown after warming up.

    Args:
        samples: From a whole run.

    Returns:
        `parent` and `workers`, MB per million steps, the slope of a line through the samples;
        `files` and `shared`, differences; `slowdown`, speed of the first third over the last one.
    """
    end = samples[-1].seconds
    kept = [sample for sample in samples if sample.seconds >= _WARM_UP * end]
    steps = np.array([sample.steps for sample in kept]) / 1e6
    third = max(1, len(kept) // 3)
    return {
        **{
            name: float(np.polyfit(steps, [getattr(sample, name) for sample in kept], 1)[0])
            for name in ('parent', 'workers')
        },
        **{name: getattr(kept[-1], name) - getattr(kept[0], name) for name in ('files', 'shared')},
        'slowdown': _speed(kept[: third + 1]) / _speed(kept[-third - 1 :]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Soak as a command line says.

    Args:
        argv: Flags; by default those of the process.

    Returns:
        Exit code.
    """
    parser = argparse.ArgumentParser(prog='python3 -m benchmarks.soak', description=__doc__)
    parser.add_argument('--seconds', type=float, default=3600.0, help='How long, default 3600.')
    parser.add_argument('--num_envs', type=int, default=1000, help='Environments, default 1000.')
    parser.add_argument('--num_workers', type=int, default=2, help='Workers, default 2.')
    parser.add_argument(
        '--most_speed', type=float, default=0.0, help='Steps per second at most; 0: no limit.'
    )
    args = parser.parse_args(argv)
    samples = []
    for sample in soak(args.seconds, args.num_envs, args.num_workers, args.most_speed):
        samples.append(sample)
        print(
            f'{sample.seconds:7.0f} s {sample.steps:12,} steps {sample.parent:8.1f} MB '
            f'{sample.workers:8.1f} MB in workers {sample.files:4} files {sample.shared:3} shared',
            flush=True,
        )
    grown = growth(samples)
    print(', '.join(f'{name} {value:.3g}' for name, value in grown.items()))
    return int(
        max(grown['parent'], grown['workers']) > MOST_GROWTH
        or grown['files'] > 0
        or grown['shared'] > 0
    )


def _sample(simulation: Any, batch: Any, seconds: float) -> Sample:
    pids = [str(part.worker.pid) for part in batch._batches]
    maps = pathlib.Path('/proc/self/maps').read_text()
    return Sample(
        int(simulation.steps),
        seconds,
        resident('self') / 1e6,
        sum(map(resident, pids)) / 1e6,
        len(os.listdir('/proc/self/fd')),
        maps.count('memfd:agents'),
    )


def _speed(samples: Sequence[Sample]) -> float:
    first, last = samples[0], samples[-1]
    return (last.steps - first.steps) / (last.seconds - first.seconds)


if __name__ == '__main__':
    sys.exit(main())
