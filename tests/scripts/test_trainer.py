import math

import numpy as np
import pytest

from agents.scripts import trainer


def test_every_episode_of_every_evaluation_has_a_seed_of_its_own():
    seeds = [
        trainer.eval_seed(seed, number, episode)
        for seed in range(3)
        for number in range(10)
        for episode in range(30)
    ]
    assert len(set(seeds)) == len(seeds)
    assert trainer.eval_seed(1, 2, 3) == trainer.eval_seed(1, 2, 3)


def test_evaluations_share_no_seed_with_training():
    evaluation = {
        trainer.eval_seed(0, number, episode) for number in range(10) for episode in range(30)
    }
    # What `simulate` and a batch of environments expand the run's seed to.
    for entropy in [0, *((0, iteration) for iteration in range(100))]:
        words = np.random.SeedSequence(entropy).generate_state(64).tolist()
        assert not evaluation & set(words)


def test_scores_are_averaged_over_episodes_and_losses_over_updates():
    collected = [
        {'score': 10.0, 'length': 5.0, 'episodes': 1.0, 'loss': 1.0},
        {'score': math.nan, 'length': math.nan, 'episodes': 0.0, 'loss': 2.0},
        {'score': 2.0, 'length': 1.0, 'episodes': 3.0, 'loss': 6.0},
    ]
    # (1 · 10 + 3 · 2) / 4 = 4; (1 · 5 + 3 · 1) / 4 = 2; (1 + 2 + 6) / 3 = 3.
    expected = {'score': 4.0, 'length': 2.0, 'episodes': 4.0, 'loss': 3.0}
    assert trainer.average(collected) == expected
    assert list(trainer.average(collected))[:3] == ['score', 'length', 'episodes']


def test_what_was_never_measured_stays_nan():
    collected = [{'score': math.nan, 'length': math.nan, 'episodes': 0.0, 'kl': math.nan}] * 2
    result = trainer.average(collected)
    assert all(math.isnan(result[name]) for name in ('score', 'length', 'kl'))
    assert result['episodes'] == 0


def test_an_evaluation_is_summarized_by_hand_computed_numbers():
    values = trainer.summarize(
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
