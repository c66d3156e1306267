import numpy as np
import pytest

from agents import tools
from tests.tools.fake_batch import FakeBatch, Recorder


def make(lengths, max_steps=None, **kwargs):
    batch = FakeBatch(lengths, **kwargs)
    return batch, tools.evaluate(tools.InGraphBatchEnv(batch), Recorder(), max_steps)


def test_each_environment_plays_exactly_one_episode():
    batch, evaluation = make([1, 3, 2])
    episodes = evaluation([0, 1, 2])
    # Environment i earns 10 ** i a step.
    assert episodes.score.tolist() == [1, 30, 200]
    assert episodes.length.tolist() == [1, 3, 2]
    assert episodes.terminated.all()
    assert not episodes.truncated.any() and not episodes.cut.any()
    assert batch.steps == 3
    assert batch.seed == [0, 1, 2]


def test_each_call_begins_new_episodes():
    _, evaluation = make([2, 3])
    first, second = evaluation([0, 1]), evaluation([2, 3])
    assert first.score.tolist() == second.score.tolist() == [2, 30]
    assert evaluation.traces == 1


def test_episodes_that_the_environment_cuts_are_truncated():
    _, evaluation = make([2], ends='truncated')
    episodes = evaluation([0])
    assert episodes.truncated.all() and not episodes.terminated.any() and not episodes.cut.any()


def test_episodes_without_end_are_cut_at_the_limit_and_say_so():
    batch, evaluation = make([2, 1000], max_steps=5)
    episodes = evaluation([0, 1])
    assert episodes.cut.tolist() == [False, True]
    assert episodes.length.tolist() == [2, 5]
    assert batch.steps == 5


def test_the_policy_takes_its_best_action():
    batch, evaluation = make([3])
    evaluation([0])
    # The fake algorithm takes action 2 when it is not training.
    assert np.ravel(batch.actions).tolist() == [2, 2, 2]


def test_an_episode_that_an_invalid_row_cuts_is_played_anew():
    # Steps of environment 0: x 1 x 1 2, where 2 ends the episode.
    batch, evaluation = make([2, 1], invalid=[(0, 0), (2, 0)])
    episodes = evaluation([0, 0])
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([2, 10], [2, 1])
    assert batch.steps == 5


def test_invalid_rows_after_the_episode_count_for_nothing():
    _, evaluation = make([2, 4], invalid=[(2, 0)])
    episodes = evaluation([0, 0])
    assert (episodes.score.tolist(), episodes.length.tolist()) == ([2, 40], [2, 4])


def test_the_number_of_seeds_must_fit():
    _, evaluation = make([2, 2])
    with pytest.raises(ValueError, match='got 3 seeds for 2 environments'):
        evaluation([0, 1, 2])
