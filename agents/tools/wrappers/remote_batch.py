"""Environments of a worker process, with the interface of those of this process."""

import contextlib
import os
import pickle
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import gymnasium

from agents.tools import spaces
from agents.tools.local_batch import Arrays
from agents.tools.wrappers import messages, shared_memory
from agents.tools.wrappers.worker_process import WorkerProcess, shut_down


class RemoteBatch:
    """Environments that a worker process makes and steps, one after another.

    Has the methods of `LocalBatch`. The worker prepares its environments while the constructor
    returns, so that many workers start side by side; what needs the environments waits for them.
    """

    failures = 0

    def __init__(
        self,
        constructors: Sequence[Callable[[], Any]],
        timeout: float,
        cores: Sequence[int] | None = None,
    ) -> None:
        """Start the worker.

        Args:
            constructors: Functions that make one environment each.
            timeout: Longest time to wait for the worker in seconds.
            cores: Cores that the worker may use, None for all.

        Raises:
            TypeError: A constructor cannot be pickled.
        """
        self.num_envs = len(constructors)
        self._description = _describe(constructors)
        self._timeout = timeout
        self._cores = cores
        self._first_index = 0
        self._workers: list[WorkerProcess] = []  # Holds one; the finalizer knows only this list.
        finalizer = weakref.finalize(self, shut_down, self._workers)
        finalizer.atexit = False  # At exit all workers end side by side.
        self._start()

    @property
    def worker(self) -> WorkerProcess:
        """The process."""
        return self._workers[0]

    @property
    def first_index(self) -> int:
        """Number of the first environment, for error messages."""
        return self._first_index

    @first_index.setter
    def first_index(self, value: int) -> None:
        self._first_index = self.worker.first_index = value

    @property
    def observation_space(self) -> spaces.Space:
        """Observation space of one environment; waits for the environments."""
        return self._connect()[0]

    @property
    def action_space(self) -> spaces.Space:
        """Action space of one environment; waits for the environments."""
        return self._connect()[1]

    @property
    def arrays(self) -> Arrays:
        """Results of the last step or reset in shared memory; the next one overwrites them."""
        assert self._arrays is not None, 'Batch must be connected.'
        return self._arrays

    def reset_async(self, seeds: Sequence[int | None]) -> None:
        """Let the worker reset all environments."""
        self._connect()
        self._request('reset', list(seeds))

    def reset_wait(self) -> None:
        """Wait for the resets; observations are in `arrays`."""
        self._receive()

    def step_async(self, action: Any) -> None:
        """Let the worker step all environments with actions [B, ...]."""
        spaces.assign(self.arrays.action, action)
        self.worker.send(messages.STEP)

    def step_wait(self) -> bool:
        """Wait for the step; results are in `arrays`.

        Returns:
            Whether any episode ended.
        """
        return self._receive()[0] == messages.ENDED

    def call_async(
        self, kind: str, name: str, args: tuple = (), kwargs: dict | None = None
    ) -> None:
        """Let the worker do something with an attribute of its environments; see `LocalBatch`."""
        self._connect()
        self._request('call', kind, name, args, kwargs)

    def call_wait(self) -> tuple:
        """Wait for the calls and return their results."""
        return pickle.loads(self._receive()[1])

    @staticmethod
    def close_all(batches: 'Sequence[RemoteBatch]', timeout: float) -> list[Exception]:
        """End the workers of several batches and return what closing their environments raised."""
        errors = shut_down([batch.worker for batch in batches], timeout)
        for batch in batches:
            batch._arrays = None
        return errors

    def _start(self) -> None:
        """Start the worker, in the place of the one before."""
        self._spaces: spaces.Spaces | None = None
        self._arrays: Arrays | None = None
        self._failure: Exception | None = None
        self._workers[:] = [WorkerProcess(self._description, self.num_envs, self._timeout)]
        self.worker.first_index = self._first_index
        if self._cores and hasattr(os, 'sched_setaffinity'):
            with contextlib.suppress(OSError):  # Of no importance, or the process is gone.
                os.sched_setaffinity(self.worker.pid, self._cores)

    def _connect(self) -> spaces.Spaces:
        """Wait until the environments exist, once.

        Returns:
            Observation and action space of one environment.

        Raises:
            Exception: What making the environments raised, on each use again.
        """
        if self._spaces is not None:
            return self._spaces
        if self._failure is not None:
            raise self._failure
        kind, body = self.worker.await_ready()
        try:
            if kind == messages.FAILURE:
                self._raise(body)
            pairs: list[spaces.Spaces] = pickle.loads(body)
            spaces.check_equal(pairs, self._first_index)
        except Exception as error:
            self._failure = error
            raise
        self._spaces = observation_space, action_space = pairs[0]
        self._arrays = shared_memory.map_arrays(
            self.worker.memory, observation_space, action_space, self.num_envs
        )
        return self._spaces

    def _request(self, name: str, *args: Any) -> None:
        self.worker.send(messages.pack(messages.REQUEST, (name, self._first_index, args)))

    def _receive(self) -> tuple[bytes, bytes]:
        kind, body = self.worker.receive()
        if kind == messages.FAILURE:
            self._raise(body)
        return kind, body

    def _raise(self, body: bytes) -> None:
        error, index = messages.unpack_error(body, self.worker.pid)
        if index is not None:
            error.add_note(f'Raised when environment {self._first_index + index} was made.')
        raise error


def _describe(constructors: Sequence[Callable[[], Any]]) -> bytes:
    """Pickle what the worker needs to know."""
    try:
        body = cloudpickle.dumps(list(constructors))
    except Exception:
        for index, constructor in enumerate(constructors):
            _check_pickles(constructor, index)
        raise
    return pickle.dumps({'constructors': body, 'specs': _pickle_specs()})


def _check_pickles(constructor: Callable[[], Any], index: int) -> None:
    try:
        cloudpickle.dumps(constructor)
    except Exception as error:
        raise TypeError(
            f'Constructor must be picklable, got {constructor!r} at index {index}. Make what '
            f'cannot be sent to another process inside the function: {error}'
        ) from error


def _pickle_specs() -> dict[str, bytes]:
    """Pickle the tasks of Gymnasium's registry; the worker adds those that it lacks."""
    specs = {}
    for name, spec in list(gymnasium.registry.items()):
        try:
            specs[name] = cloudpickle.dumps(spec)
        except Exception as error:
            # Names the line of the user's that makes the process: past three functions and
            # ExternalProcess.
            message = f'Task {name!r} must be picklable to be known in worker processes: {error}'
            warnings.warn(message, stacklevel=5)
    return specs
