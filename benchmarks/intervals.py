"""How certain a mean over few runs is."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from agents.scripts import scores as runs_scores


def interquartile_mean(scores: Sequence[float] | np.ndarray, axis: int = -1) -> np.ndarray:
    """Return the mean without the highest and the lowest quarter.

    Args:
        scores: Scores, float [..., N].
        axis: Which one holds the runs.
    """
    return stats.trim_mean(scores, 0.25, axis=axis)


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the interquartile mean, as `plot` does.

    Args:
        scores: Score of each run.

    Returns:
        Lower and upper end, both NaN for fewer than three runs.
    """
    summary = runs_scores.summarize(np.asarray(scores, np.float64)[:, None])
    return float(summary.low[0]), float(summary.high[0])
