"""Ctrl-C and SIGTERM as an exception that lets a script save, clean up and say how to go on."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_received: int | None = None
_deferring = False


class Stop(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived.

    Attributes:
        signum: Number of the signal; a process that it ends exits with 128 + signum.
    """

    def __init__(self, signum: int):
        super().__init__(f'Stopped by {signal.Signals(signum).name}.')
        self.signum = signum


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Raise `Stop` at the first SIGINT or SIGTERM; no effect outside the main thread.

    Later ones change nothing: some programs send each twice, and what the first one started must
    not be torn apart.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received = None
    former = {signum: signal.signal(signum, _handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in former.items():
            signal.signal(signum, handler)
        _received = None


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Let a signal wait until the end of what must happen as a whole, such as saving.

    A TensorFlow operation is such a whole as well: what is raised while TensorFlow makes up an
    exception becomes a RuntimeError about pybind11. Operations look for signals by themselves.

    Raises:
        Stop: A signal arrived meanwhile.
    """
    global _deferring
    outermost, before, _deferring = not _deferring, _received, True
    try:
        yield
    except KeyboardInterrupt:
        # An operation that a signal ended does not know which one.
        if _received is not None:
            raise Stop(_received) from None
        raise
    finally:
        if outermost:
            _deferring = False
    if outermost and before is None:
        check()


def check() -> None:
    """Raise if a signal has arrived, also where its exception got lost, as in a destructor.

    Raises:
        Stop: SIGINT or SIGTERM arrived.
    """
    if _received is not None:
        raise Stop(_received)


def _handle(signum: int, frame: Any) -> None:
    global _received
    if _received is None:
        _received = signum
        if not _deferring:
            raise Stop(signum)
