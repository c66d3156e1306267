import numpy as np
import pytest
import tensorflow as tf

from agents.parts import returns
from tests import twins
from tests.modes import in_every_mode


def column(*numbers):
    """One environment: [T, 1]."""
    return tf.constant(numbers)[:, tf.newaxis]


def random_data(seed=0, steps=13, num_envs=4, episodes=0.3):
    """Rows with random ends of episodes; some of them terminal, so without a next value."""
    random = np.random.default_rng(seed)
    reward, value = random.normal(size=(2, steps, num_envs)).astype(np.float32)
    ended = random.uniform(size=(steps, num_envs)) < episodes
    terminated = ended & (random.uniform(size=ended.shape) < 0.5)
    last_value = random.normal(size=ended.shape).astype(np.float32)
    next_value = np.where(ended, last_value, np.concatenate([value[1:], last_value[:1]]))
    return reward, value, np.where(terminated, np.float32(0), next_value), ~ended


def tensors(*arrays):
    return [tf.constant(array) for array in arrays]


@in_every_mode
def test_advantage_by_hand(mode):
    # Discount ½ and λ ½. The first episode terminates at the second row, the memory ends in the
    # second episode.
    #     reward  value  next  δ = r + ½ next - value   A = δ + ¼ A' within the episode
    #       1       2      4     1 + 2 - 2 =  1           1 + ¼ · -1 = 0.75
    #       3       4      0     3 + 0 - 4 = -1          -1, terminated
    #       5       6      8     5 + 4 - 6 =  3           3 + ¼ · 1 = 3.25
    #       7       8      4     7 + 2 - 8 =  1           1, the memory ends
    arguments = (
        column(1.0, 3.0, 5.0, 7.0),
        column(2.0, 4.0, 6.0, 8.0),
        column(4.0, 0.0, 8.0, 4.0),
        column(True, False, True, True),
    )
    advantage = mode(lambda *xs: returns.lambda_advantage(*xs, 0.5, 0.5))(*arguments)
    np.testing.assert_array_equal(advantage, column(0.75, -1.0, 3.25, 1.0))
    assert advantage.dtype == tf.float32


@in_every_mode
def test_return_by_hand(mode):
    # 1 + ½ · 3 = 2.5 | 3, terminated | 5 + ½ · 9 = 9.5 | 7 + ½ · 4 = 9, the memory ends
    arguments = (
        column(1.0, 3.0, 5.0, 7.0),
        column(4.0, 0.0, 8.0, 4.0),
        column(True, False, True, True),
    )
    return_ = mode(lambda *xs: returns.discounted_return(*xs, 0.5))(*arguments)
    np.testing.assert_array_equal(return_, column(2.5, 3.0, 9.5, 9.0))


@in_every_mode
def test_running_return_by_hand(mode):
    # 1 + ½ · 6 = 4 | 3 + ½ · 4 = 5, ended | 5 | 7 + ½ · 5 = 9.5, which goes on
    arguments = column(1.0, 3.0, 5.0, 7.0), column(False, True, False, False), tf.constant([6.0])
    sums, after = mode(lambda *xs: returns.running_return(*xs, 0.5))(*arguments)
    np.testing.assert_array_equal(sums, column(4.0, 5.0, 5.0, 9.5))
    np.testing.assert_array_equal(after, [9.5])
    # An episode that ends at the last row leaves nothing to go on with.
    arguments = column(1.0), column(True), tf.constant([6.0])
    sums, after = mode(lambda *xs: returns.running_return(*xs, 0.5))(*arguments)
    np.testing.assert_array_equal(sums, column(4.0))
    np.testing.assert_array_equal(after, [0.0])


@in_every_mode
@pytest.mark.parametrize('episodes', [0.0, 0.3, 1.0])
def test_all_agree_with_their_twins_on_random_episodes(mode, episodes):
    reward, value, next_value, goes_on = random_data(1, episodes=episodes)
    advantage = mode(lambda *xs: returns.lambda_advantage(*xs, 0.97, 0.9))
    expected = twins.lambda_advantage(reward, value, next_value, goes_on, 0.97, 0.9)
    result = advantage(*tensors(reward, value, next_value, goes_on))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    return_ = mode(lambda *xs: returns.discounted_return(*xs, 0.97))
    expected = twins.discounted_return(reward, next_value, goes_on, 0.97)
    result = return_(*tensors(reward, next_value, goes_on))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    running = mode(lambda *xs: returns.running_return(*xs, 0.97))
    expected = twins.running_return(reward, ~goes_on, value[0], 0.97)
    result = running(*tensors(reward, ~goes_on, value[0]))
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_with_a_lambda_of_one_the_advantage_is_return_minus_value():
    reward, value, next_value, goes_on = tensors(*random_data(2))
    advantage = returns.lambda_advantage(reward, value, next_value, goes_on, 0.97, 1.0)
    return_ = returns.discounted_return(reward, next_value, goes_on, 0.97)
    np.testing.assert_allclose(advantage, return_ - value, rtol=1e-5, atol=1e-5)


def test_with_a_lambda_of_zero_the_advantage_is_the_td_error():
    reward, value, next_value, goes_on = random_data(3)
    advantage = returns.lambda_advantage(
        *tensors(reward, value, next_value, goes_on), discount=0.97, lambda_=0.0
    )
    np.testing.assert_allclose(advantage, reward + 0.97 * next_value - value, atol=1e-6)


def test_perfect_values_of_a_constant_reward_leave_no_advantage():
    # A reward of 1 for ever is worth 1 / (1 - 0.9) = 10, wherever the episode is cut.
    goes_on = tf.constant(np.random.default_rng(0).uniform(size=(20, 3)) < 0.8)
    ones = tf.ones([20, 3])
    np.testing.assert_allclose(
        returns.discounted_return(ones, 10 * ones, goes_on, 0.9), 10 * ones, rtol=1e-6
    )
    advantage = returns.lambda_advantage(ones, 10 * ones, 10 * ones, goes_on, 0.9, 0.95)
    np.testing.assert_allclose(advantage, 0 * ones, atol=1e-5)


@in_every_mode
@pytest.mark.parametrize('junk', [1e30, np.nan, np.inf])
def test_nothing_leaks_over_the_end_of_an_episode(mode, junk):
    reward, value, next_value, goes_on = random_data(4)
    goes_on[5] = False
    after = np.arange(13)[:, None] > 5

    def results(reward, value, next_value, goes_on):
        return (
            returns.lambda_advantage(reward, value, next_value, goes_on, 0.97, 0.9),
            returns.discounted_return(reward, next_value, goes_on, 0.97),
        )

    expected = mode(results)(*tensors(reward, value, next_value, goes_on))
    spoilt = [np.where(after, np.float32(junk), x) for x in (reward, value, next_value)]
    for one, other in zip(mode(results)(*tensors(*spoilt, goes_on)), expected, strict=True):
        np.testing.assert_array_equal(one[:6], other[:6])

    # The sum of past rewards must not go the other way, forward, nor into the next rows.
    running = mode(lambda *xs: returns.running_return(*xs, 0.97))
    ended, before = tf.constant(~goes_on), ~after
    expected, _ = running(tf.constant(reward), ended, tf.zeros([4]))
    spoilt = tf.constant(np.where(before, np.float32(junk), reward))
    sums, accumulator = running(spoilt, ended, tf.zeros([4]))
    np.testing.assert_array_equal(sums[6:], expected[6:])
    _, accumulator = running(tf.constant(np.full((1, 4), junk, np.float32)), ended[5:6], sums[-1])
    np.testing.assert_array_equal(accumulator, np.zeros(4))


@pytest.mark.parametrize('chunk', [1, 4, 13])
def test_chunks_of_rows_have_the_same_running_return(chunk):
    reward, _, _, goes_on = random_data(5)
    whole, last = returns.running_return(reward, ~goes_on, tf.zeros([4]), 0.97)
    accumulator, parts = tf.zeros([4]), []
    for begin in range(0, 13, chunk):
        rows = slice(begin, begin + chunk)
        part, accumulator = returns.running_return(reward[rows], ~goes_on[rows], accumulator, 0.97)
        parts.append(part)
    np.testing.assert_array_equal(tf.concat(parts, 0), whole)
    np.testing.assert_array_equal(accumulator, last)


def test_the_order_of_environments_does_not_matter():
    data = random_data(6)
    order = [2, 0, 3, 1]
    expected = returns.lambda_advantage(*tensors(*data), 0.97, 0.9)
    result = returns.lambda_advantage(*tensors(*(x[:, order] for x in data)), 0.97, 0.9)
    np.testing.assert_array_equal(result, tf.gather(expected, order, axis=1))


def test_what_follows_the_last_row_does_not_matter():
    reward, value, next_value, goes_on = random_data(7)
    results = []
    for last in (False, True):
        goes_on[-1] = last
        arguments = tensors(reward, value, next_value, goes_on)
        results.append(
            (
                returns.lambda_advantage(*arguments, 0.97, 0.9),
                returns.discounted_return(arguments[0], *arguments[2:], 0.97),
            )
        )
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
