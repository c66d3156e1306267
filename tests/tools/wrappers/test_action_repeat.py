import gymnasium
import pytest

from agents.tools.wrappers import ActionRepeat
from tests.tools import fakes


def test_rewards_of_repeated_steps_are_added():
    env = ActionRepeat(fakes.Counting(length=10), amount=3)
    env.reset()
    obs, reward, terminated, truncated, _ = env.step(0)
    assert obs.tolist() == [1, 3]  # [episode, step]
    assert reward == 11 + 12 + 13
    assert not terminated and not truncated


@pytest.mark.parametrize('truncate', [False, True])
def test_repeating_stops_where_the_episode_ends(truncate):
    env = ActionRepeat(fakes.Counting(length=2, truncate=truncate), amount=5)
    env.reset()
    obs, reward, terminated, truncated, _ = env.step(0)
    assert obs.tolist() == [1, 2]
    assert reward == 11 + 12
    assert (terminated, truncated) == (not truncate, truncate)


def test_every_repeated_step_has_the_same_action():
    inner = fakes.Constant()
    env = ActionRepeat(inner, amount=4)
    env.reset()
    env.step(1)
    env.step(0)
    assert inner.actions == [1] * 4 + [0] * 4


def test_repeating_once_changes_nothing():
    plain, repeated = fakes.Walk(), ActionRepeat(fakes.Walk(), amount=1)
    assert plain.reset(seed=1)[0].tolist() == repeated.reset(seed=1)[0].tolist()
    for _ in range(5):
        obs, *rest = plain.step(1)
        other_obs, *other_rest = repeated.step(1)
        assert obs.tolist() == other_obs.tolist() and rest == other_rest


@pytest.mark.parametrize('amount', [0, -2])
def test_an_amount_below_one_is_an_error(amount):
    with pytest.raises(ValueError, match=f'at least 1, got amount={amount}'):
        ActionRepeat(fakes.Counting(), amount)


def test_an_amount_that_is_not_an_integer_is_an_error():
    with pytest.raises(TypeError, match=r'must be an integer, got amount=1.5'):
        ActionRepeat(fakes.Counting(), 1.5)


def test_the_wrapper_is_part_of_the_specification():
    env = ActionRepeat(gymnasium.make('CartPole-v1'), amount=2)
    assert gymnasium.make(env.spec).unwrapped.spec is not None
