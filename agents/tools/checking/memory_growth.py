"""Finds out whether the memory of this process grows with what it does."""

import gc
import itertools
import mmap
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_STATM = pathlib.Path('/proc/self/statm')
_SAMPLES = 24
_LEAST_GROWTH = 128 * 1024  # Bytes; what the allocator does on its own stays below.
_MOST_GROWTH = 512 * 1024**2  # Bytes; enough to be sure.


class Growth(NamedTuple):
    """How much memory steps took.

    Attributes:
        steps: Steps that were measured.
        slope: Bytes of growth for each step, 0 if there is none.
        least: Bytes for each step that would have been seen.
    """

    steps: int
    slope: float
    least: float


def measure(work: Callable[[], int], seconds: float) -> Growth | None:
    """Do something again and again and watch the memory of this process.

    Memory that fills up and then stays, as caches do, is no growth: the second half must grow, too.

    Args:
        work: What to do, in well under a second; returns how many steps that was.
        seconds: How long.

    Returns:
        The growth, or None where the system does not tell it.
    """
    if not _STATM.exists():
        return None
    gc.freeze()  # What is there now need not be looked at by each of the collections below.
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 4:  # Until buffers and caches are there.
        work()
    steps, sizes = [0], [_resident()]
    start = time.perf_counter()
    for sample in range(_SAMPLES):
        done = 0
        while not done or time.perf_counter() - start < seconds * 0.75 * (sample + 1) / _SAMPLES:
            done += work()
        steps.append(steps[-1] + done)
        sizes.append(_resident())
        if sizes[-1] - sizes[0] > _MOST_GROWTH and sample > _SAMPLES // 2:
            break
    gc.unfreeze()
    return judge(steps, sizes)


def judge(steps: list[int], sizes: list[int]) -> Growth:
    """Tell steady growth from noise.

    Args:
        steps: Number of steps done before each sample.
        sizes: Memory at each sample in bytes.
    """
    half = len(steps) // 2
    slopes = [_slope(steps[part], sizes[part]) for part in (slice(half + 1), slice(half, None))]
    total = steps[-1] - steps[0]
    # A median of slopes knows nothing of single jumps, whatever their size.
    slope = min(slopes)
    grows = slope * total > _LEAST_GROWTH
    return Growth(total, slope if grows else 0.0, _LEAST_GROWTH / total)


def _slope(steps: list[int], sizes: list[int]) -> float:
    """Theil-Sen estimate: the median slope of all pairs of samples."""
    pairs = itertools.combinations(zip(steps, sizes, strict=True), 2)
    return float(np.median([(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]))


def _resident() -> int:
    gc.collect()  # What waits for the collector is not lost.
    return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE
