"""Runs environments in another process."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from agents.tools.batch_env import BatchEnv
from agents.tools.wrappers.remote_batch import RemoteBatch
from agents.tools.wrappers.restarting_batch import RestartingBatch
from agents.tools.wrappers.worker_process import WorkerDied, WorkerError, WorkerTimeout

__all__ = ['ExternalProcess', 'WorkerDied', 'WorkerError', 'WorkerTimeout']

_KINDS: dict[str, Callable[..., RemoteBatch]] = {
    'raise': RemoteBatch,
    'restart': RestartingBatch,
    'restart_all': functools.partial(RestartingBatch, also_non_finite=True),
}


class ExternalProcess(BatchEnv):
    """A batch of environments that another process makes and steps, one after another.

    The environments never see the Global Interpreter Lock of this process, and whatever happens to
    them cannot take it along. Actions and results are in shared memory; a step sends one byte each
    way. The process starts afresh: it has this one's module search path, working directory and
    Gymnasium tasks, but neither its memory nor its threads, and it needs no `if __name__ ==
    '__main__'` in the script.
    """

    def __init__(
        self,
        constructor: Callable[[], gymnasium.Env] | Sequence[Callable[[], gymnasium.Env]],
        timeout: float = 60.0,
        on_failure: str = 'raise',
        cores: Sequence[int] | None = None,
    ) -> None:
        """Start the process, without waiting for its environments.

        Args:
            constructor: Function that makes an environment, or several of them; lambdas, closures
                and classes of a script or notebook are fine.
            timeout: Longest time to wait for any reply, also for the environments to be made, in
                seconds.
            on_failure: 'raise', or 'restart' or 'restart_all' to start a process anew that dies,
                hangs, or raises something in a step or reset; see `make_batch_env`.
            cores: Cores that the process may use, None for all.

        Raises:
            TypeError: A constructor is not a function, or cannot be pickled.
            ValueError: There is no constructor, the timeout is not positive, or there is no such
                way to handle failures.
        """
        constructors: list[Any] = [constructor]
        if isinstance(constructor, Sequence) and not isinstance(constructor, str):
            constructors = list(constructor)
        if not constructors:
            raise ValueError('Constructors must be at least one, got an empty list.')
        if not timeout > 0:
            raise ValueError(f'Timeout must be positive, got timeout={timeout}.')
        check_constructors(constructors)
        if on_failure not in _KINDS:
            raise ValueError(f'Failures must be one of {", ".join(_KINDS)}, got {on_failure!r}.')
        self._batch = _KINDS[on_failure](constructors, timeout, cores)
        self._adopt([self._batch])

    @property
    def pid(self) -> int:
        """Process identifier of the worker."""
        return self._batch.worker.pid


def check_constructors(constructors: Sequence[Callable[[], gymnasium.Env]]) -> None:
    """Check that something can be called to make each environment.

    Args:
        constructors: Functions that make one environment each.

    Raises:
        TypeError: One is not a function, but perhaps an environment already.
    """
    for index, constructor in enumerate(constructors):
        if not callable(constructor):
            raise TypeError(
                f'Constructor must be a function that makes the environment, got {constructor!r} '
                f"at index {index}. Pass, for example, lambda: gymnasium.make('CartPole-v1')."
            )
