import math

import numpy as np
import pytest

from agents.scripts import summaries


def test_scores_are_averaged_over_episodes_and_losses_over_updates():
    collected = [
        {'score': 10.0, 'length': 5.0, 'episodes': 1.0, 'loss': 1.0},
        {'score': math.nan, 'length': math.nan, 'episodes': 0.0, 'loss': 2.0},
        {'score': 2.0, 'length': 1.0, 'episodes': 3.0, 'loss': 6.0},
    ]
    # (1 · 10 + 3 · 2) / 4 = 4; (1 · 5 + 3 · 1) / 4 = 2; (1 + 2 + 6) / 3 = 3.
    expected = {'score': 4.0, 'length': 2.0, 'episodes': 4.0, 'loss': 3.0}
    assert summaries.average(collected) == expected
    assert list(summaries.average(collected))[:3] == ['score', 'length', 'episodes']


def test_what_was_never_measured_stays_nan():
    collected = [{'score': math.nan, 'length': math.nan, 'episodes': 0.0, 'kl': math.nan}] * 2
    result = summaries.average(collected)
    assert all(math.isnan(result[name]) for name in ('score', 'length', 'kl'))
    assert result['episodes'] == 0


def test_an_evaluation_is_summarized_by_hand_computed_numbers():
    values = summaries.summarize(
        score=np.array([1, 3, 5], np.float32),
        length=np.array([2, 2, 5], np.int32),
        terminated=np.array([True, False, False]),
        truncated=np.array([False, True, False]),
        cut=np.array([False, False, True]),
    )
    # Mean (1 + 3 + 5) / 3 = 3, variance (4 + 0 + 4) / 3, mean length 9 / 3.
    assert values.pop('score_std') == pytest.approx(math.sqrt(8 / 3))
    assert values == {
        'score': 3.0,
        'score_min': 1.0,
        'score_max': 5.0,
        'length': 3.0,
        'episodes': 3,
        'terminated': 1,
        'truncated': 1,
        'cut': 1,
    }
