"""Environments of a worker process that is started anew whenever it fails."""

import logging
import reprlib
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.tools import interrupts, spaces
from agents.tools.wrappers.remote_batch import RemoteBatch
from agents.tools.wrappers.worker_process import WorkerError, shut_down

# Seconds to wait before the first, second, ... restart in a row; the next failure is the last.
PAUSES = (0.0, 1.0, 2.0, 4.0)
# Steps without failure after which the next one counts as the first in a row.
GOOD_STEPS = 100
_CLOSE_SECONDS = 2.0  # Time to close environments that have raised something.

_logger = logging.getLogger(__name__)


class RestartingBatch(RemoteBatch):
    """Starts its worker anew when it dies, hangs, or raises something in a step or reset.

    The step that was not finished is not valid: the episode before it is cut there, and the
    observation to act on next is the first one of a new episode. Environments whose reset had seeds
    go on with fresh ones, which depend on those and on the number of failures since.

    Attributes:
        failures: How often the worker failed and was started anew.
    """

    def __init__(
        self,
        constructors: Sequence[Callable[[], Any]],
        timeout: float,
        cores: Sequence[int] | None = None,
        also_non_finite: bool = False,
    ) -> None:
        """Start the worker; see `RemoteBatch`.

        Args:
            constructors: Functions that make one environment each.
            timeout: Longest time to wait for the worker in seconds.
            cores: Cores that the worker may use, None for all.
            also_non_finite: Whether values that are not finite are a failure like others, rather
                than something to raise.
        """
        super().__init__(constructors, timeout, cores)
        self.failures = 0
        self._raised: tuple[type[Exception], ...] = (interrupts.Interrupted,)
        if not also_non_finite:
            self._raised += (FloatingPointError,)
        self._known: spaces.Spaces | None = None
        self._error: Exception | None = None  # What kept a command from being sent.
        self._seeds: list[int | None] = [None] * self.num_envs
        self._restarts = [0] * self.num_envs  # Of each environment, since its reset had a seed.
        self._kind = ''
        self._in_a_row = 0
        self._good_steps = 0

    def reset_async(self, seeds: Sequence[int | None]) -> None:
        """Let the worker reset all environments."""
        self._error = None
        # Environments that cannot be made at first are a mistake, and no failure.
        self._known = self._known or self._connect()
        if any(seed is not None for seed in seeds):
            self._seeds, self._restarts = list(seeds), [0] * self.num_envs
        self._attempt(super().reset_async, seeds)

    def reset_wait(self) -> None:
        """Wait for the resets; observations are in `arrays`."""
        self._attempt(super().reset_wait)
        if self._error is not None:
            self._recover('reset')

    def step_async(self, action: Any) -> None:
        """Let the worker step all environments with actions [B, ...]."""
        self._attempt(super().step_async, action)

    def step_wait(self) -> bool:
        """Wait for the step; results are in `arrays`, rows that are not valid after a failure.

        Returns:
            Whether any episode ended.
        """
        ended = self._attempt(super().step_wait)
        if self._error is not None:
            self._recover('step')
            self.arrays.valid.fill(False)
            return False
        self._good_steps += 1
        return ended

    def call_async(
        self, kind: str, name: str, args: tuple = (), kwargs: dict | None = None
    ) -> None:
        """Let the worker do something with its environments; see `LocalBatch`."""
        self._kind = kind
        if kind == 'set_state':
            self._known = self._known or self._connect()
            self._seeds = [state['seed'] for state in args[0]]
            self._restarts = [state['restarts'] for state in args[0]]
        super().call_async(kind, name, args, kwargs)

    def call_wait(self) -> tuple:
        """Wait for the calls and return their results; the worker does not know the first seeds."""
        results = super().call_wait()
        if self._kind != 'get_state':
            return results
        return tuple(
            {**state, 'seed': seed, 'restarts': restarts}
            for state, seed, restarts in zip(results, self._seeds, self._restarts, strict=True)
        )

    def _attempt(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call something, unless what came before has failed; keep its error."""
        if self._error is None:
            try:
                return function(*args)
            except self._raised:
                raise
            except Exception as error:  # Whatever environments raise.
                self._error = error
        return None

    def _recover(self, doing: str) -> None:
        """Start the worker anew until its environments are reset, or give up."""
        while self._error is not None:
            error, self._error = self._error, None
            self._count(error)
            self._report(error, doing)
            interrupts.sleep(PAUSES[self._in_a_row - 1])
            doing = 'restart'
            self._attempt(self._restart)

    def _restart(self) -> None:
        shut_down(self._workers, _CLOSE_SECONDS)
        self._start()
        if self._connect() != self._known:
            raise ValueError(
                f'Environments must keep their spaces when they are made again, got {self._spaces} '
                f'in {self.worker.envs}, which had {self._known}.'
            )
        self._restarts = [number + 1 for number in self._restarts]
        super().reset_async(list(map(_fresh_seed, self._seeds, self._restarts)))
        super().reset_wait()

    def _count(self, error: Exception) -> None:
        """Count a failure; raise if there were too many in a row."""
        self.failures += 1
        self._in_a_row = 1 if self._good_steps >= GOOD_STEPS else self._in_a_row + 1
        self._good_steps = 0
        if self._in_a_row > len(PAUSES):
            raise WorkerError(
                f'A worker process must work for {GOOD_STEPS} steps between failures, but that of '
                f'{self.worker.envs} failed {self._in_a_row} times with fewer. The last failure '
                f'was {type(error).__name__}: {error}'
            ) from error

    def _report(self, error: Exception, doing: str) -> None:
        """Log a failure in one line.

        Args:
            error: What happened.
            doing: What failed: 'step', 'reset' or 'restart'.
        """
        text = f'{type(error).__name__}: {error}'
        for note in getattr(error, '__notes__', ()):
            if note.startswith('Raised '):  # By which environment.
                text += f' {note}'
        details = [f'alive for {time.monotonic() - self.worker.started:.1f} s']
        if usage := self.worker.memory_usage:
            details.append(f'{usage / 1e6:.0f} MB of memory')
        if doing == 'step':
            action = spaces.map_parts(np.ndarray.tolist, self.arrays.action)
            details.append(f'last action {reprlib.repr(action)}')
        _logger.warning(
            'Restarting %s after a failed %s: %s (%s)',
            self.worker.envs,
            doing,
            textwrap.shorten(text, 400),
            ', '.join(details),
        )


def _fresh_seed(seed: int | None, restarts: int) -> int | None:
    """Fold the number of failures into a seed."""
    if seed is None:
        return None
    sequence = np.random.SeedSequence(seed, spawn_key=(restarts,))
    return int(sequence.generate_state(1)[0])
