"""Terms of losses and the numbers that judge an update, as pure functions.

Functions return one number per row; `masked_mean` takes the mean over valid rows. Inputs of rows
that are not valid must be finite where gradients are taken, since 0 · nan is nan: see
`minibatches.zero_invalid`.
"""

from typing import Any

import tensorflow as tf

# Multiples of the target at which the penalty changes, and by which factor: as in the ancestor of
# this project. It had no bounds, so that its penalty could overflow after a long drift.
KL_TOO_HIGH, KL_TOO_LOW = 1.3, 0.7
PENALTY_STEP = 1.5
PENALTY_RANGE = (1e-3, 1e3)
STD_EPSILON = 1e-8
# Variance of returns against their squared mean, below which it is rounding and counts as 0.
NO_VARIANCE = 1e-20


def masked_mean(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return Σ(valid · x) / max(Σ valid, 1); what stands in other rows changes nothing.

    Args:
        x: Numbers, float32 [...].
        valid: Rows to count, bool [...].

    Returns:
        Mean, float32 [].
    """
    total = tf.reduce_sum(tf.where(valid, x, tf.zeros_like(x)))
    return total / tf.maximum(tf.reduce_sum(tf.cast(valid, x.dtype)), 1)


def surrogate(log_prob: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor) -> tf.Tensor:
    """Return -ratio · advantage with ratio = exp(log_prob - old_log_prob).

    Args:
        log_prob: Log probability of the action now, float32 [...].
        old_log_prob: Log probability when it was taken, float32 [...].
        advantage: Advantage of the action, float32 [...].

    Returns:
        Losses, float32 [...].

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 6.
    """
    return -tf.exp(log_prob - old_log_prob) * advantage


def clipped_surrogate(
    log_prob: tf.Tensor, old_log_prob: tf.Tensor, advantage: tf.Tensor, clip_range: float
) -> tf.Tensor:
    """Return -min(ratio · advantage, clip(ratio, 1 - clip_range, 1 + clip_range) · advantage).

    The gradient is 0 where the ratio already left the range in the direction that helps.

    Args:
        log_prob: Log probability of the action now, float32 [...].
        old_log_prob: Log probability when it was taken, float32 [...].
        advantage: Advantage of the action, float32 [...].
        clip_range: Bound of |ratio - 1|, > 0.

    Returns:
        Losses, float32 [...].

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 7.
    """
    ratio = tf.exp(log_prob - old_log_prob)
    clipped = tf.clip_by_value(ratio, 1 - clip_range, 1 + clip_range)
    return -tf.minimum(ratio * advantage, clipped * advantage)


def clip_fraction(log_prob: tf.Tensor, old_log_prob: tf.Tensor, clip_range: float) -> tf.Tensor:
    """Return 1 where |ratio - 1| > clip_range, else 0, float32 [...]; its mean is the fraction.

    Args:
        log_prob: Log probability of the action now, float32 [...].
        old_log_prob: Log probability when it was taken, float32 [...].
        clip_range: Bound of |ratio - 1|, > 0.
    """
    ratio = tf.exp(log_prob - old_log_prob)
    return tf.cast(tf.abs(ratio - 1) > clip_range, tf.float32)


def value_loss(
    value: tf.Tensor, return_: tf.Tensor, old_value: tf.Tensor, clip_range: float
) -> tf.Tensor:
    """Return ½ (value - return_)², or the larger one of it and that of the clipped value.

    With clip_range > 0 the clipped value is old_value + clip(value - old_value, ±clip_range).

    Args:
        value: Value now, float32 [...].
        return_: Target, float32 [...].
        old_value: Value before the update, float32 [...].
        clip_range: Bound of the change of values that still lowers the loss; 0: none.

    Returns:
        Losses, float32 [...].
    """
    loss = 0.5 * tf.square(value - return_)
    if clip_range <= 0:
        return loss
    clipped = old_value + tf.clip_by_value(value - old_value, -clip_range, clip_range)
    return tf.maximum(loss, 0.5 * tf.square(clipped - return_))


def kl_penalty(mean_kl: tf.Tensor, penalty: tf.Tensor) -> tf.Tensor:
    """Return penalty · mean_kl, float32 [].

    Args:
        mean_kl: Mean of KL(old ‖ new) over the minibatch, nats, float32 [].
        penalty: Weight as adapted by `adapt_penalty`, float32 [].

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", equation 8.
    """
    return penalty * mean_kl


def kl_cutoff(mean_kl: tf.Tensor, kl_target: Any, factor: Any, coef: Any) -> tf.Tensor:
    """Return coef · max(0, mean_kl - factor · kl_target)², float32 [].

    Args:
        mean_kl: Mean of KL(old ‖ new) over the minibatch, nats, float32 [].
        kl_target: Wanted KL of an update, nats.
        factor: Multiple of the target from which on the KL is cut off.
        coef: Weight.
    """
    return coef * tf.square(tf.maximum(mean_kl - factor * kl_target, 0))


def adapt_penalty(penalty: tf.Tensor, kl: tf.Tensor, kl_target: Any) -> tf.Tensor:
    """Return the weight of the KL for the next update.

    1.5 times as large if kl > 1.3 · kl_target, divided by 1.5 if kl < 0.7 · kl_target, else
    unchanged; always in [0.001, 1000].

    Args:
        penalty: Weight in this update, float32 [].
        kl: Mean KL between the policies before and after it, nats, float32 [].
        kl_target: Wanted KL of an update, nats.

    Returns:
        New weight, float32 [].

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms", section 4.
    """
    raised = tf.where(kl > KL_TOO_HIGH * kl_target, penalty * PENALTY_STEP, penalty)
    changed = tf.where(kl < KL_TOO_LOW * kl_target, penalty / PENALTY_STEP, raised)
    return tf.clip_by_value(changed, *PENALTY_RANGE)


def explained_variance(value: tf.Tensor, return_: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return 1 - Var(return_ - value) / Var(return_), or 0 where the returns do not vary.

    Args:
        value: Predictions, float32 [...].
        return_: What they predict, float32 [...].
        valid: Rows to count, bool [...].

    Returns:
        At most 1, which is perfect; 0 is as good as a constant, float32 [].
    """
    _, error, _ = _moments(return_ - value, valid)
    _, variance, mean = _moments(return_, valid)
    varies = variance > NO_VARIANCE * tf.square(mean)
    fraction = error / tf.where(varies, variance, tf.ones_like(variance))
    return tf.cast(tf.where(varies, 1 - fraction, tf.zeros_like(fraction)), tf.float32)


def standardize(x: tf.Tensor, valid: tf.Tensor) -> tf.Tensor:
    """Return (x - mean) / (std + 1e-8) with moments over valid rows, and 0 in other rows.

    Args:
        x: Numbers, float32 [...].
        valid: Rows to count, bool [...].

    Returns:
        Numbers of mean 0 and deviation 1, 0 where all of them are equal, float32 [...].
    """
    centered, variance, _ = _moments(x, valid)
    return tf.cast(centered / (tf.sqrt(variance) + STD_EPSILON), tf.float32)


def _moments(x: tf.Tensor, valid: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return valid rows minus their mean (else 0), their variance and their mean, float64.

    In float64 since the rounding of a float32 mean would pass for variance in constant rows.
    """
    x = tf.where(valid, tf.cast(x, tf.float64), tf.zeros((), tf.float64))
    mean = masked_mean(x, valid)
    centered = tf.where(valid, x - mean, tf.zeros_like(x))
    return centered, masked_mean(tf.square(centered), valid), mean
