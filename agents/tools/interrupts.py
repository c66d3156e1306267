"""Lets code that waits in another thread see Ctrl-C and SIGTERM at once.

Python runs signal handlers in the main thread, between two bytecodes. While the main thread is
inside a TensorFlow operation that waits for an environment, that would be never. The C part of
Python's signal handling does write each signal's number to a file descriptor, though, and whoever
waits for an environment waits for that one as well.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator

_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_LOOK_SECONDS = 0.1  # Between two looks at whether the time of grace is over.
_watched: int | None = None
_writer = -1
_grace = 0.0  # Seconds from the first signal to when it is raised.
_deadline = 0.0  # When that is, after a signal.
_received = b''  # Signals since the watch began that were read, to be handed on.


class Interrupted(Exception):
    """A signal asked to stop while an environment was being waited for."""


def fileno() -> int | None:
    """Return the descriptor that becomes readable at a signal, or None when nobody watches.

    Whoever waits for an environment waits for it as well, and calls `check` when it is readable.
    """
    return _watched


@contextlib.contextmanager
def watch(grace: float = 0.0) -> Iterator[None]:
    """Make `fileno()` report SIGINT and SIGTERM; no effect outside the main thread.

    The handlers themselves run as usual, once the main thread is back in Python.

    Args:
        grace: How long what waits may go on after a signal, seconds.
    """
    global _watched, _writer, _received, _grace, _deadline
    if threading.current_thread() is not threading.main_thread() or _watched is not None:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _watched, _writer, _received = reader, writer, b''
    _grace, _deadline = grace, 0.0
    try:
        yield
    finally:
        _watched, _deadline = None, 0.0
        signal.set_wakeup_fd(former, warn_on_full_buffer=False)
        _read(reader)
        if former >= 0 and _received:  # Who watched before, such as a notebook's event loop.
            with contextlib.suppress(BlockingIOError):
                os.write(former, _received)
        os.close(reader)
        os.close(writer)


def noticed() -> bool:
    """Return whether a signal has asked to stop, and its time of grace may run."""
    return _deadline > 0


def check() -> None:
    """Raise if a signal has asked to stop since the watch began, and its time of grace is over.

    Raises:
        Interrupted: SIGINT or SIGTERM arrived.
    """
    global _deadline
    if _watched is not None:
        _read(_watched)
        if not _SIGNALS.isdisjoint(_received):
            now = time.monotonic()
            _deadline = _deadline or now + _grace
            if now < _deadline:
                return
            os.write(_writer, b'\0')  # No signal has this number: stays readable for all who wait.
            raise Interrupted('A signal asked to stop.')


def sleep(seconds: float) -> None:
    """Wait, unless a signal asks to stop.

    Raises:
        Interrupted: SIGINT or SIGTERM arrived.
    """
    poll = select.poll()
    if _watched is not None:
        poll.register(_watched, select.POLLIN)
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        poll.poll(1000 * min(remaining, _LOOK_SECONDS if noticed() else remaining))
        check()


def _read(reader: int) -> None:
    """Note the numbers of the signals that arrived."""
    global _received
    with contextlib.suppress(BlockingIOError):
        _received += os.read(reader, 4096).replace(b'\0', b'')
