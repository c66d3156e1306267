"""Memory that two processes share, which no crash can leave behind.

It has no name: a descriptor of it is inherited by the worker, and it is gone with the last process
that maps it.
"""

import contextlib
import math
import mmap
import os
import struct
import tempfile
from typing import Any

import numpy as np

from agents.tools import local_batch, spaces

# Bytes, one cache line: arrays that one side writes share none with those of the other.
_ALIGNMENT = 64
_USAGE = struct.Struct('=Q')  # What stands before the arrays: see `note_usage`.


def create() -> int:
    """Make an empty block of memory and return its descriptor."""
    if hasattr(os, 'memfd_create'):
        return os.memfd_create('agents')
    with tempfile.TemporaryFile() as file:  # Has no name either, once it is open.
        return os.dup(file.fileno())


def size(observation_space: spaces.Space, action_space: spaces.Space, num_envs: int) -> int:
    """Return how many bytes the arrays of a batch take."""
    layout = _Layout()
    local_batch.make_arrays(observation_space, action_space, num_envs, layout)
    return layout.offset


def map_arrays(
    descriptor: int, observation_space: spaces.Space, action_space: spaces.Space, num_envs: int
) -> local_batch.Arrays:
    """Map a block that is large enough as the arrays of a batch; unmapped with the last array.

    Both sides call this with equal spaces and therefore find each array at the same place.
    """
    length = size(observation_space, action_space, num_envs)
    layout = _Layout(mmap.mmap(descriptor, length))
    return local_batch.make_arrays(observation_space, action_space, num_envs, layout)


def note_usage(descriptor: int) -> None:
    """Write down how much memory this process takes, for when it cannot be asked any more."""
    with contextlib.suppress(OSError), open('/proc/self/statm') as file:
        pages = int(file.read().split()[1])
        os.pwrite(descriptor, _USAGE.pack(pages * mmap.PAGESIZE), 0)


def read_usage(descriptor: int) -> int:
    """Return how many bytes the process took when it last noted them, 0 if it never did."""
    return _USAGE.unpack(os.pread(descriptor, _USAGE.size, 0).ljust(_USAGE.size, b'\0'))[0]


class _Layout:
    """Allocates arrays one behind the other in a buffer, or only counts their bytes."""

    def __init__(self, buffer: mmap.mmap | None = None) -> None:
        self.offset = _ALIGNMENT
        self._buffer = buffer

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        start = self.offset
        length = np.dtype(dtype).itemsize * math.prod(shape)
        self.offset = -(-(start + length) // _ALIGNMENT) * _ALIGNMENT
        if self._buffer is None:
            return np.empty((0,), dtype)
        return np.ndarray(shape, dtype, self._buffer, start)
