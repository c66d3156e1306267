"""Refuse what memory cannot hold, before the system ends the process without a word."""

import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

_CGROUP = pathlib.Path('/sys/fs/cgroup')


def check(tensors: Iterable[Any], times: int, what: str, advice: str) -> None:
    """Check that tensors fit.

    Args:
        tensors: Things with `shape` and `dtype`.
        times: How many copies of them there are.
        what: What needs them, for the message, such as '64 environments'.
        advice: What to do instead.

    Raises:
        MemoryError: They do not.
    """
    needed = times * sum(
        int(np.prod([int(n) for n in x.shape], dtype=object)) * np.dtype(_numpy(x.dtype)).itemsize
        for x in tensors
    )
    free = available()
    if free is not None and needed > free:
        raise MemoryError(
            f'{what} must fit into memory, but need at least {needed / 2**30:,.1f} GiB, and '
            f'{free / 2**30:,.1f} GiB are free. {advice}'
        )


def available() -> int | None:
    """Return how many bytes this process can still have, None where the system does not tell."""
    sizes = []
    meminfo = pathlib.Path('/proc/meminfo')
    if meminfo.exists() and (found := re.search(r'MemAvailable:\s+(\d+) kB', meminfo.read_text())):
        sizes.append(int(found[1]) * 1024)
    elif 'SC_PHYS_PAGES' in getattr(os, 'sysconf_names', {}):
        sizes.append(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))
    limit, used = _CGROUP / 'memory.max', _CGROUP / 'memory.current'
    if limit.exists() and used.exists() and (text := limit.read_text().strip()) != 'max':
        sizes.append(int(text) - int(used.read_text()))
    return min(sizes, default=None)


def _numpy(dtype: Any) -> Any:
    return getattr(dtype, 'as_numpy_dtype', dtype)
