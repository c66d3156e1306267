import math

import numpy as np
import pytest
import tensorflow as tf

from agents.algorithms import losses
from agents.parts import minibatches
from tests.modes import in_every_mode

RANDOM = np.random.default_rng(0)


def value_and_gradient(function, x):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    return y, tape.gradient(y, x)


# Means over valid rows.


@in_every_mode
@pytest.mark.parametrize('junk', [0.0, 1e30, np.nan, np.inf])
def test_a_masked_mean_sees_valid_rows_only(mode, junk):
    # (1 + 3) / 2; the gradient is ½ in valid rows and 0 in others.
    x, valid = [1.0, junk, 3.0, junk], tf.constant([True, False, True, False])
    mean, gradient = mode(lambda: value_and_gradient(lambda x: losses.masked_mean(x, valid), x))()
    assert mean == 2
    np.testing.assert_array_equal(gradient, [0.5, 0, 0.5, 0])


@in_every_mode
def test_the_mean_of_no_rows_is_zero(mode):
    x, valid = tf.constant([[np.nan, 1.0]]), tf.constant([[False, False]])
    assert mode(losses.masked_mean)(x, valid) == 0


@in_every_mode
def test_standardised_numbers_by_hand(mode):
    # Mean 2 and deviation 1 of the valid rows 1 and 3, whatever the others hold.
    for junk in (0.0, 1e30, np.nan, np.inf):
        x, valid = tf.constant([1.0, junk, 3.0, junk]), tf.constant([True, False, True, False])
        result = mode(losses.standardize)(x, valid)
        np.testing.assert_allclose(result, [-1, 0, 1, 0], rtol=1e-6)
        assert result.dtype == tf.float32


@in_every_mode
def test_standardised_numbers_have_mean_zero_and_deviation_one(mode):
    x = RANDOM.normal(5, 1e-3, (20, 3)).astype(np.float32)
    valid = RANDOM.uniform(size=(20, 3)) < 0.7
    result = mode(losses.standardize)(tf.constant(x), tf.constant(valid)).numpy()
    expected = (np.float64(x) - x[valid].mean(dtype=float)) / x[valid].std(dtype=float)
    np.testing.assert_allclose(result[valid], expected[valid], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(result[~valid], np.zeros(np.sum(~valid)))


@in_every_mode
@pytest.mark.parametrize('rows', [0, 1, 10])
def test_equal_numbers_become_zero(mode, rows):
    # 0.1 has no exact float: a mean in float32 would differ from it, and the deviation be no 0.
    x, valid = tf.fill([10], 0.1), tf.range(10) < rows
    np.testing.assert_allclose(mode(losses.standardize)(x, valid), np.zeros(10), atol=1e-6)


# Policy.


@in_every_mode
def test_surrogate_by_hand(mode):
    # Ratios 0.6 / 0.5 = 1.2 and 0.2 / 0.4 = 0.5: -1.2 · 2 and -0.5 · -3. The derivative of the
    # ratio by the log probability is the ratio itself, so the gradient equals the loss.
    old, advantage = tf.constant([math.log(0.5), math.log(0.4)]), tf.constant([2.0, -3.0])
    loss, gradient = mode(
        lambda: value_and_gradient(
            lambda x: losses.surrogate(x, old, advantage), [math.log(0.6), math.log(0.2)]
        )
    )()
    np.testing.assert_allclose(loss, [-2.4, 1.5], rtol=1e-6)
    np.testing.assert_allclose(gradient, [-2.4, 1.5], rtol=1e-6)


@in_every_mode
@pytest.mark.parametrize(
    ('ratio', 'advantage', 'loss', 'gradient'),
    [
        (1.1, 2.0, -2.2, -2.2),  # Inside the range nothing is clipped.
        (0.9, -2.0, 1.8, 1.8),
        (1.5, 2.0, -2.4, 0.0),  # More likely and good: -min(3, 1.2 · 2), no more to gain.
        (1.5, -2.0, 3.0, 3.0),  # More likely but bad: -min(-3, -2.4), must turn back.
        (0.5, 2.0, -1.0, -1.0),  # Less likely but good: -min(1, 1.6), must turn back.
        (0.5, -2.0, 1.6, 0.0),  # Less likely and bad: -min(-1, -1.6), no more to gain.
        (1.0, 2.0, -2.0, -2.0),  # Where every update begins.
    ],
)
def test_clipped_surrogate_by_hand(mode, ratio, advantage, loss, gradient):
    old, advantage = tf.constant([-0.7]), tf.constant([advantage])
    result = mode(
        lambda: value_and_gradient(
            lambda x: losses.clipped_surrogate(x, old, advantage, 0.2), [-0.7 + math.log(ratio)]
        )
    )()
    np.testing.assert_allclose(result, [[loss], [gradient]], rtol=1e-5)


def test_surrogates_agree_inside_the_range_and_are_minus_advantage_at_a_ratio_of_one():
    old, advantage = RANDOM.normal(size=(2, 50)).astype(np.float32)
    new = old + RANDOM.uniform(-0.18, 0.18, 50).astype(np.float32)  # Ratios in 0.835 … 1.197.
    np.testing.assert_array_equal(
        losses.clipped_surrogate(new, old, advantage, 0.2), losses.surrogate(new, old, advantage)
    )
    for loss in (
        losses.surrogate(old, old, advantage),
        losses.clipped_surrogate(old, old, advantage, 0.2),
    ):
        np.testing.assert_array_equal(loss, -advantage)


def test_the_clipped_surrogate_is_never_more_hopeful_than_the_plain_one():
    old, new, advantage = RANDOM.normal(size=(3, 200)).astype(np.float32)
    plain = losses.surrogate(new, old, advantage)
    assert np.all(losses.clipped_surrogate(new, old, advantage, 0.2) >= plain)


@in_every_mode
def test_ratios_outside_the_range_are_counted(mode):
    ratios = np.float32([0.5, 0.79, 0.81, 1.0, 1.19, 1.21])
    outside = mode(lambda x: losses.clip_fraction(x, tf.zeros([6]), 0.2))(np.log(ratios))
    np.testing.assert_array_equal(outside, [1, 1, 0, 0, 0, 1])


# Values.


@in_every_mode
@pytest.mark.parametrize(
    ('value', 'return_', 'old_value', 'clip_range', 'loss', 'gradient'),
    [
        (3.0, 1.0, 9.0, 0.0, 2.0, 2.0),  # ½ · 2²; without a range the old value plays no part.
        (2.2, 1.0, 2.0, 0.5, 0.72, 1.2),  # Inside the range: ½ · 1.2².
        (3.0, 1.0, 2.0, 0.5, 2.0, 2.0),  # Clipped to 2.5: max(½ · 2², ½ · 1.5²).
        (0.9, 1.0, 2.0, 0.5, 0.125, 0.0),  # Clipped to 1.5: max(½ · 0.1², ½ · 0.5²), no gradient.
    ],
)
def test_value_loss_by_hand(mode, value, return_, old_value, clip_range, loss, gradient):
    return_, old_value = tf.constant([return_]), tf.constant([old_value])
    result = mode(
        lambda: value_and_gradient(
            lambda x: losses.value_loss(x, return_, old_value, clip_range), [value]
        )
    )()
    np.testing.assert_allclose(result, [[loss], [gradient]], rtol=1e-5, atol=1e-7)


@in_every_mode
def test_explained_variance_by_hand(mode):
    # Returns 1, 2, 3, 4 have variance 1.25; errors 0, 0, 0, 1 have ¼ - ¹⁄₁₆ = 0.1875:
    # 1 - 0.1875 / 1.25 = 0.85. The last row is not valid.
    return_ = tf.constant([1.0, 2.0, 3.0, 4.0, np.nan])
    value = tf.constant([1.0, 2.0, 3.0, 3.0, np.inf])
    valid = tf.constant([True] * 4 + [False])
    np.testing.assert_allclose(
        mode(losses.explained_variance)(value, return_, valid), 0.85, rtol=1e-6
    )


def test_explained_variance_of_special_predictions():
    return_ = RANDOM.normal(3, 2, 100).astype(np.float32)
    valid = tf.ones([100], tf.bool)
    for value, expected in [(return_, 1), (return_ + 7, 1), (0 * return_, 0), (-return_, -3)]:
        result = losses.explained_variance(value, return_, valid)
        np.testing.assert_allclose(result, expected, atol=1e-5)


@in_every_mode
@pytest.mark.parametrize('rows', [0, 1, 10])
def test_explained_variance_is_zero_where_returns_do_not_vary(mode, rows):
    value = tf.constant(RANDOM.normal(size=10), tf.float32)
    result = mode(losses.explained_variance)(value, tf.fill([10], 0.1), tf.range(10) < rows)
    assert result == 0


# KL divergence.


@in_every_mode
def test_kl_terms_by_hand(mode):
    # 0.05 is 0.03 above twice the target: 1000 · 0.03² = 0.9, with a gradient of 2000 · 0.03.
    cutoff = mode(
        lambda: value_and_gradient(lambda kl: losses.kl_cutoff(kl, 0.01, 2.0, 1000.0), 0.05)
    )
    np.testing.assert_allclose(cutoff(), [0.9, 60], rtol=1e-5)
    below = mode(
        lambda: value_and_gradient(lambda kl: losses.kl_cutoff(kl, 0.01, 2.0, 1000.0), 0.02)
    )
    np.testing.assert_array_equal(below(), [0, 0])
    penalty = mode(lambda: value_and_gradient(lambda kl: losses.kl_penalty(kl, 3.0), 0.02))
    np.testing.assert_allclose(penalty(), [0.06, 3], rtol=1e-6)


@in_every_mode
@pytest.mark.parametrize(
    ('penalty', 'kl', 'adapted'),
    [
        (2.0, 0.0131, 3.0),  # Above 1.3 · 0.01: times 1.5.
        (2.0, 0.0129, 2.0),
        (2.0, 0.0071, 2.0),
        (3.0, 0.0069, 2.0),  # Below 0.7 · 0.01: divided by 1.5.
        (900.0, 1.0, 1000.0),  # 1350 is more than 1000.
        (0.00125, 0.0, 0.001),  # 0.00083 is less than 0.001.
    ],
)
def test_penalty_is_adapted_by_hand(mode, penalty, kl, adapted):
    result = mode(lambda *xs: losses.adapt_penalty(*xs, 0.01))(
        tf.constant(penalty), tf.constant(kl)
    )
    np.testing.assert_allclose(result, adapted, rtol=1e-6)


# All of them.


@in_every_mode
@pytest.mark.parametrize('junk', [1e30, np.nan, np.inf])
def test_junk_in_invalid_rows_reaches_neither_losses_nor_gradients(mode, junk):
    valid = RANDOM.uniform(size=20) < 0.6
    obs = RANDOM.normal(size=(20, 3)).astype(np.float32)
    old, advantage, return_ = RANDOM.normal(size=(3, 20)).astype(np.float32)
    weight = tf.Variable([[0.1], [-0.2], [0.3]])

    def loss_and_gradient(rows, valid):
        obs, old, advantage, return_ = minibatches.zero_invalid(rows, valid)
        advantage = losses.standardize(advantage, valid)
        with tf.GradientTape() as tape:
            output = tf.tanh(obs @ weight)[:, 0]
            terms = [
                losses.clipped_surrogate(output, old, advantage, 0.2),
                losses.surrogate(output, old, advantage),
                losses.value_loss(output, return_, old, 0.1),
            ]
            loss = tf.add_n([losses.masked_mean(term, valid) for term in terms])
        return loss, tape.gradient(loss, weight)

    rows = [obs, old, advantage, return_]
    spoilt = [np.where(valid.reshape([-1] + [1] * (x.ndim - 1)), x, np.float32(junk)) for x in rows]
    run = mode(loss_and_gradient)
    loss, gradient = run([tf.constant(x) for x in spoilt], tf.constant(valid))
    without = [tf.constant(x[valid]) for x in rows]
    expected_loss, expected_gradient = run(without, tf.ones([int(valid.sum())], tf.bool))
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)
