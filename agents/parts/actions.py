"""From what a policy samples to what an environment takes."""

import gymnasium
import numpy as np
import tensorflow as tf


def to_environment(sample: tf.Tensor, action_space: gymnasium.Space) -> tf.Tensor:
    """Turn samples of a policy into actions inside the space of the environment.

    A dimension of a Box that is finite on both sides is rescaled and clipped, so that a policy
    around 0 uses the whole range: [-1, 1] → [low, high]. A dimension with an infinite side is not
    rescaled, and clipped at the finite side if there is one. Integers are rounded.

    Args:
        sample: Box: float32 [N, A] with A the number of elements; Discrete: int32 [N], from 0.
        action_space: Space of one environment's action.

    Returns:
        Actions [N, *shape] of the space's dtype.

    Raises:
        TypeError: The space is neither Box nor Discrete.
    """
    if isinstance(action_space, gymnasium.spaces.Discrete):
        action = tf.cast(sample, tf.as_dtype(action_space.dtype))
        return action + action_space.start if action_space.start else action
    if isinstance(action_space, gymnasium.spaces.Box):
        return _to_box(sample, action_space)
    raise TypeError(
        f'Spaces of actions must be Box or Discrete, got space={action_space}. '
        'Rescale or flatten it with a wrapper of Gymnasium.'
    )


def _to_box(sample: tf.Tensor, space: gymnasium.spaces.Box) -> tf.Tensor:
    # float64 for all other types: a bound rounded to float32 could lie outside the space.
    dtype = np.dtype(np.float32 if space.dtype in (np.float16, np.float32) else np.float64)
    low, high = np.float64(space.low), np.float64(space.high)
    bounded = np.isfinite(low) & np.isfinite(high)
    bottom, top = np.where(bounded, low, -1), np.where(bounded, high, 1)
    # Halved before sum and difference, which could overflow.
    middle = (top / 2 + bottom / 2).astype(dtype)
    radius = (top / 2 - bottom / 2).astype(dtype)
    action = tf.cast(sample, dtype)
    if len(space.shape) != 1:
        action = tf.reshape(action, [-1, *space.shape])
    # Steps that would change nothing are left out of the graph.
    if not (np.all(radius == 1) and np.all(middle == 0)):
        action = action * radius + middle
    if np.any(np.isfinite(low)):
        action = tf.maximum(action, low.astype(dtype))
    if np.any(np.isfinite(high)):
        action = tf.minimum(action, high.astype(dtype))
    if np.issubdtype(space.dtype, np.integer):
        action = tf.round(action)
    return tf.cast(action, tf.as_dtype(space.dtype))
