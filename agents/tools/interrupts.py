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
from collections.abc import Iterator

_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_watched: int | None = None


class Interrupted(Exception):
    """A signal asked to stop while an environment was being waited for."""


def fileno() -> int | None:
    """Return the descriptor that becomes readable at a signal, or None when nobody watches."""
    return _watched


@contextlib.contextmanager
def watch() -> Iterator[None]:
    """Make `fileno()` report SIGINT and SIGTERM; no effect outside the main thread.

    The handlers themselves run as usual, once the main thread is back in Python.
    """
    global _watched
    if threading.current_thread() is not threading.main_thread() or _watched is not None:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _watched = reader
    try:
        yield
    finally:
        _watched = None
        signal.set_wakeup_fd(former, warn_on_full_buffer=False)
        _forward(reader, former)
        os.close(reader)
        os.close(writer)


def check() -> None:
    """Raise if a signal has asked to stop since the watch began.

    Raises:
        Interrupted: SIGINT or SIGTERM arrived.
    """
    if _watched is not None and select.select([_watched], [], [], 0)[0]:
        raise Interrupted('A signal asked to stop.')


def _forward(reader: int, former: int) -> None:
    """Hand the signals that arrived to who watched before, such as a notebook's event loop."""
    with contextlib.suppress(BlockingIOError):
        numbers = os.read(reader, 4096)
        if former >= 0 and numbers:
            os.write(former, numbers)
