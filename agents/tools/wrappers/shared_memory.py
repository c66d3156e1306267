"""Memory that two processes share, which no crash can leave behind.

It has no name: a descriptor of it is inherited by the worker, and it is gone with the last process
that maps it.
"""

import math
import mmap
import os
import tempfile
from typing import Any

import numpy as np

from agents.tools import local_batch, spaces

# Bytes, one cache line: arrays that one side writes share none with those of the other.
_ALIGNMENT = 64


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
    return max(layout.offset, 1)  # Nothing cannot be mapped.


def map_arrays(
    descriptor: int, observation_space: spaces.Space, action_space: spaces.Space, num_envs: int
) -> local_batch.Arrays:
    """Map a block that is large enough as the arrays of a batch; unmapped with the last array.

    Both sides call this with equal spaces and therefore find each array at the same place.
    """
    length = size(observation_space, action_space, num_envs)
    layout = _Layout(mmap.mmap(descriptor, length))
    return local_batch.make_arrays(observation_space, action_space, num_envs, layout)


class _Layout:
    """Allocates arrays one behind the other in a buffer, or only counts their bytes."""

    def __init__(self, buffer: mmap.mmap | None = None) -> None:
        self.offset = 0
        self._buffer = buffer

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        start = self.offset
        length = np.dtype(dtype).itemsize * math.prod(shape)
        self.offset = -(-(start + length) // _ALIGNMENT) * _ALIGNMENT
        if self._buffer is None:
            return np.empty((0,), dtype)
        return np.ndarray(shape, dtype, self._buffer, start)
