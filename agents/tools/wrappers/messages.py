"""The language of the two pipes between a process and its worker.

    to the worker                            from the worker
    STEP                                     DONE, or ENDED if any episode ended
    REQUEST length pickled (name, args)      VALUE length pickled result
    CLOSE                                    VALUE length pickled None, then end of file
                                             FAILURE length pickled dict, in place of any of these

A step is one byte each way; its arrays are in shared memory. Before anything is asked, a worker
reports with a VALUE that it is ready: one pair of spaces for each environment.
"""

import os
import pickle
import select
import struct
import time
import traceback
from typing import Any

import cloudpickle

STEP, REQUEST, CLOSE = b's', b'r', b'c'
DONE, ENDED, VALUE, FAILURE = b'd', b'e', b'v', b'f'
_SPIN_SECONDS = 5e-4  # A batch of cheap environments, or a step of a small policy, takes less.
_HEADER = struct.Struct('=cQ')  # Kind of message and length of what follows.


def spin(poll: select.poll) -> list[tuple[int, int]]:
    """Look again and again for a short time before blocking, as the other side often is quick.

    Waking a process that sleeps on an idle core costs tens of microseconds, in virtual machines
    more, as much as many environments take for a step. Between two looks other processes go first.

    Args:
        poll: What to look at.

    Returns:
        What is ready; nothing if the time was up.
    """
    ready = poll.poll(0)
    if not ready:
        end = time.perf_counter() + _SPIN_SECONDS
        while not ready and time.perf_counter() < end:
            os.sched_yield()
            ready = poll.poll(0)
    return ready


def pack(kind: bytes, value: Any) -> bytes:
    """Encode a message; classes and functions of a script's `__main__` travel by value."""
    body = cloudpickle.dumps(value)
    return _HEADER.pack(kind, len(body)) + body


def unpack(buffer: bytearray) -> tuple[bytes, bytes] | None:
    """Take the first message out of received bytes.

    Args:
        buffer: Bytes received so far; those of the message are removed.

    Returns:
        Kind and body of the message, or None while it is incomplete.
    """
    kind = bytes(buffer[:1])
    if kind not in (VALUE, FAILURE, REQUEST):
        del buffer[:1]
        return (kind, b'') if kind else None
    if len(buffer) < _HEADER.size:
        return None
    stop = _HEADER.size + _HEADER.unpack_from(buffer)[1]
    if len(buffer) < stop:
        return None
    body = bytes(buffer[_HEADER.size : stop])
    del buffer[:stop]
    return kind, body


def pack_error(error: BaseException, index: int | None = None) -> bytes:
    """Encode an exception such that decoding it cannot fail.

    Args:
        error: Exception raised in this process.
        index: Number of the environment that was being made, counted within the worker.

    Returns:
        A FAILURE message.
    """
    summary = traceback.TracebackException.from_exception(error)
    notes = list(getattr(error, '__notes__', ()))
    summary.__notes__ = None  # They are sent apart.
    fields = {
        'error': _pickle_error(error),
        'text': ''.join(summary.format_exception_only()).strip(),
        'notes': notes,
        'traceback': ''.join(summary.format()),
        'index': index,
    }
    return pack(FAILURE, fields)


def unpack_error(body: bytes, pid: int) -> tuple[Exception, int | None]:
    """Decode an exception.

    Args:
        body: Body of a FAILURE message.
        pid: Process that sent it.

    Returns:
        Exception of its own type with notes on its origin, or a RuntimeError with its text if its
        type cannot travel; and the number of the environment that was being made, if any.
    """
    fields = pickle.loads(body)
    try:
        error = _unpickle_error(fields['error'])
    except Exception:  # Whatever a foreign class does: the text is there.
        error = RuntimeError(fields['text'])
    for note in fields['notes']:
        if note not in getattr(error, '__notes__', ()):
            error.add_note(note)
    error.add_note(f'Traceback of worker process {pid}:\n{fields["traceback"]}')
    return error, fields['index']


def _pickle_error(error: BaseException) -> bytes | None:
    """Pickle an exception in a form that was seen to come back, or return None."""
    if not isinstance(error, Exception):
        return None  # SystemExit of an environment must not end the process that trains.
    state = (type(error), error.args, error.__dict__)
    for form in (error, state):
        try:
            body = cloudpickle.dumps(form)
            received = _unpickle_error(body)
        except Exception:  # Whatever a foreign class does.
            continue
        if type(received) is type(error) and str(received) == str(error):
            return body
    return None


def _unpickle_error(body: bytes) -> Exception:
    form = pickle.loads(body)
    if isinstance(form, tuple):
        # Pickle calls the class with `args`, which fails where the constructor takes something
        # else.
        kind, args, fields = form
        form = kind.__new__(kind, *args)
        form.__dict__.update(fields)
    if not isinstance(form, Exception):
        raise TypeError(f'Message must be an exception, got {type(form)}.')
    return form
