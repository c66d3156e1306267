"""Many numbers become few: metrics of updates, and episodes of an evaluation."""

import math
from collections.abc import Sequence

import numpy as np


def average(collected: Sequence[dict[str, float]]) -> dict[str, float]:
    """Average the metrics of several updates.

    Args:
        collected: Metrics of each update; NaN stands for nothing measured.

    Returns:
        Means over the updates; over all episodes for `score` and `length`; the sum of `episodes`.
    """
    result = dict.fromkeys(('score', 'length', 'episodes'), 0.0)  # First in every record.
    episodes = np.array([metrics['episodes'] for metrics in collected])
    for name in collected[-1]:
        values = np.array([metrics.get(name, math.nan) for metrics in collected])
        weights = episodes if name in ('score', 'length') else np.ones(len(values))
        measured = ~np.isnan(values) & (weights > 0)
        result[name] = (
            float(np.average(values[measured], weights=weights[measured]))
            if measured.any()
            else math.nan
        )
    return {**result, 'episodes': float(episodes.sum())}


def summarize(
    score: np.ndarray,
    length: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    cut: np.ndarray,
) -> dict[str, float]:
    """Describe the episodes of an evaluation.

    Args:
        score: Undiscounted sum of rewards, float32 [N].
        length: Steps, int32 [N].
        terminated: The world ended, bool [N].
        truncated: The environment cut the episode, bool [N].
        cut: The evaluation's own limit cut the episode, bool [N].
    """
    score = score.astype(np.float64)
    return {
        'score': float(score.mean()),
        'score_std': float(score.std()),
        'score_min': float(score.min()),
        'score_max': float(score.max()),
        'length': float(length.mean()),
        'episodes': len(score),
        'terminated': int(terminated.sum()),
        'truncated': int(truncated.sum()),
        'cut': int(cut.sum()),
    }
