"""Where a process was when it hung or crashed."""

import faulthandler
import os
import pathlib
import re

# What Python writes of each thread, the innermost call first.
_INNERMOST = re.compile(r'most recent call first\):\n  File "(.+)", line (\d+) in (.+)')


def keep(path: str) -> None:
    """Write what this process prints to a file, and where it is if it crashes.

    Args:
        path: File that is there.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    faulthandler.enable(2, all_threads=False)


def keep_after(seconds: float) -> None:
    """Write where this process is after a time, unless this is called again before."""
    faulthandler.dump_traceback_later(seconds, file=2)


def read(path: str) -> str:
    """Return where the process was, like ', in step of env.py:12', or nothing."""
    text = pathlib.Path(path).read_text(errors='replace')
    found = _INNERMOST.findall(text)
    if not found:
        return ''
    file, line, function = found[-1]  # The main thread is the last.
    return f', in {function} ({pathlib.Path(file).name}:{line})'
