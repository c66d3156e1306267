"""The fastest arrangement of environments: one worker process for each core."""

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from agents.tools.batch_env import BatchEnv, close_all
from agents.tools.wrappers.external_process import ExternalProcess, check_constructors


def make_batch_env(
    make: Callable[[], gymnasium.Env] | Sequence[Callable[[], gymnasium.Env]],
    num_envs: int,
    num_workers: int | None = None,
    timeout: float = 60.0,
    on_worker_failure: str = 'raise',
) -> BatchEnv:
    """Make environments and share them out over worker processes, evenly and in order.

    With `on_worker_failure='restart'` a process that dies, hangs, or raises something in a step or
    reset is started anew: its environments are made again and begin new episodes with fresh seeds,
    while those of other processes go on. Their rows of that step are not valid. A process that
    fails again soon waits longer and longer, and ends with a `WorkerError` after the fifth failure
    with fewer than 100 steps between. What was set with `set_attr` is lost. Observations and
    rewards that are not finite are raised all the same, except for 'restart_all'.

    Args:
        make: Function that makes an environment, or one for each of them.
        num_envs: Number of environments, at least 1.
        num_workers: Number of worker processes; 0 for this process, None for one on each usable
            core. There are never more than environments.
        timeout: Longest time to wait for a worker in seconds.
        on_worker_failure: 'raise', 'restart' or 'restart_all'; environments of this process always
            raise.

    Returns:
        Batch of the environments.

    Raises:
        TypeError: Something cannot be called to make an environment.
        ValueError: The numbers do not fit.
        Exception: What making an environment raised.
    """
    makes: Sequence[Any] = [make] * num_envs if callable(make) else make
    if isinstance(makes, str) or not isinstance(makes, Sequence):
        makes = [makes]  # Not a function either: the check says so.
    check_constructors(makes)
    if num_envs < 1 or len(makes) != num_envs:
        raise ValueError(
            f'Environments must be at least one, with a function for each, got num_envs={num_envs} '
            f'and {len(makes)} functions.'
        )
    if num_workers is None:
        num_workers = len(usable_cores())
    if num_workers < 0:
        raise ValueError(f'Workers must not be negative, got num_workers={num_workers}.')
    workers = min(num_workers, num_envs)
    bounds = [num_envs * worker // max(workers, 1) for worker in range(workers + 1)]
    envs: list[Any] = []
    try:
        for index, function in enumerate(makes if not workers else ()):
            envs.append(_make(function, index))
        for worker, (start, stop) in enumerate(itertools.pairwise(bounds)):
            cores = _share_of_cores(worker, workers)
            envs.append(ExternalProcess(makes[start:stop], timeout, on_worker_failure, cores))
        batch_env = BatchEnv(envs)
        for batch in batch_env._batches if not workers else ():
            batch.constructors = makes  # type: ignore[attr-defined]
        return batch_env
    except BaseException:
        _discard(envs)
        raise


def _make(function: Callable[[], gymnasium.Env], index: int) -> gymnasium.Env:
    try:
        return function()
    except Exception as error:
        error.add_note(f'Raised when environment {index} was made.')
        raise


def _discard(envs: Sequence[Any]) -> None:
    """Close what was made before something failed; that failure is what matters."""
    batches = [batch for env in envs if isinstance(env, BatchEnv) for batch in env._batches]
    close_all(batches, timeout=1.0)
    for env in envs:
        if isinstance(env, gymnasium.Env):
            with contextlib.suppress(Exception):
                env.close()


def _share_of_cores(worker: int, workers: int) -> list[int] | None:
    """Share the usable cores out over the workers, if there are enough.

    Linux wakes a process on the core of the one that wakes it, here this one, and on machines with
    few cores leaves it there: all workers would take turns on one core, next to idle ones.
    """
    cores = usable_cores()
    if workers > len(cores):
        return None
    start, stop = (len(cores) * x // workers for x in (worker, worker + 1))
    return cores[start:stop]


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this process may use, at least one."""
    if hasattr(os, 'sched_getaffinity'):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
