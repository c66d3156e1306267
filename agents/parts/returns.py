"""Returns and advantages of stored sequences, as pure functions over [T, B].

All of them are one linear recurrence along time. Where an episode ends it is cut by selection, not
by multiplication with 0: what stands beyond a cut may be anything, also nan.

    row        t-1          t           t+1
    value      V(o_t-1)     V(o_t)      V(o_t+1)
    reward     r_t-1        r_t         r_t+1        for acting on o_t-1, o_t, o_t+1
    next_value V(o_t)       V(o_t+1)    …            of the same episode, 0 where the world ended
"""

from typing import Any

import tensorflow as tf


def lambda_advantage(
    reward: tf.Tensor,
    value: tf.Tensor,
    next_value: tf.Tensor,
    continues: tf.Tensor,
    discount: Any,
    lambda_: Any,
) -> tf.Tensor:
    """Compute generalized advantage estimates.

    δ_t = reward_t + discount · next_value_t - value_t
    A_t = δ_t + discount · λ · (A_t+1 if continues_t else 0), and A_T = 0 beyond the last row.

    Args:
        reward: Reward for acting at step t, float32 [T, B].
        value: Value of the observation acted on, V(o_t), float32 [T, B].
        next_value: Value of the next observation of the same episode, V(o_t+1), also where the
            episode was cut or the memory ends; 0 where the world ended, float32 [T, B].
        continues: Row t + 1 is the next one of the same episode, bool [T, B].
        discount: Discount per step, in [0, 1].
        lambda_: Decay of the sum of TD errors, in [0, 1].

    Returns:
        Advantages, float32 [T, B].

    Source:
        Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage
        Estimation", equation 16.
    """
    delta = reward + discount * next_value - value
    return _accumulate(delta, continues, discount * lambda_, tf.zeros_like(delta[0]), reverse=True)


def discounted_return(
    reward: tf.Tensor, next_value: tf.Tensor, continues: tf.Tensor, discount: Any
) -> tf.Tensor:
    """Compute discounted sums of future rewards, bootstrapped where the rows of an episode end.

    R_t = reward_t + discount · (R_t+1 if continues_t and t < T - 1 else next_value_t)

    Args:
        reward: Reward for acting at step t, float32 [T, B].
        next_value: Value of the next observation of the same episode, 0 where the world ended,
            float32 [T, B].
        continues: Row t + 1 is the next one of the same episode, bool [T, B].
        discount: Discount per step, in [0, 1].

    Returns:
        Returns, float32 [T, B].
    """
    last = tf.zeros_like(continues[:1])
    continues = tf.concat([continues[:-1], last], 0)
    beyond = tf.where(continues, tf.zeros_like(next_value), discount * next_value)
    return _accumulate(reward + beyond, continues, discount, tf.zeros_like(reward[0]), reverse=True)


def running_return(
    reward: tf.Tensor, ended: tf.Tensor, accumulator: tf.Tensor, discount: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute discounted sums of past rewards of an episode; their deviation scales rewards.

    G_t = reward_t + discount · (0 if ended_t-1 else G_t-1), with G_-1 = accumulator.

    Args:
        reward: Reward for acting at step t, float32 [T, B].
        ended: The episode ended at this row, terminated or truncated. Invalid rows count as
            ended, then nothing of them goes on, bool [T, B].
        accumulator: Sum at the end of the rows before, float32 [B].
        discount: Discount per step, in [0, 1].

    Returns:
        Sums, float32 [T, B], and the accumulator for the next rows: 0 where an episode ended at
        the last row, float32 [B].
    """
    nowhere = tf.zeros_like(ended[:1])
    goes_on = tf.logical_not(tf.concat([nowhere, ended[:-1]], 0))
    sums = _accumulate(reward, goes_on, discount, accumulator, reverse=False)
    return sums, tf.where(ended[-1], tf.zeros_like(sums[-1]), sums[-1])


def _accumulate(
    x: tf.Tensor, keep: tf.Tensor, decay: Any, initial: tf.Tensor, reverse: bool
) -> tf.Tensor:
    """Compute y_t = x_t + decay · (y of the row before if keep_t else 0) along the first axis."""
    zero = tf.zeros_like(initial)

    def step(before: tf.Tensor, row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        x_t, keep_t = row
        return x_t + decay * tf.where(keep_t, before, zero)

    return tf.scan(step, (x, keep), initial, reverse=reverse)
