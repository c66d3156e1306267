"""From what a policy samples to what an environment takes."""

from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.tools import spaces


def to_environment(sample: Any, action_space: gymnasium.Space, distribution: str = 'normal') -> Any:
    """Turn samples of a policy into actions inside the space of the environment.

    A dimension of a Box that is finite on both sides is rescaled and clipped, so that a policy
    around 0 uses the whole range: [-1, 1] → [low, high]. A dimension with an infinite side is not
    rescaled, and clipped at the finite side if there is one. Integers are rounded.

    Args:
        sample: Box: float32 [N, A] with A the number of elements; Discrete: int32 [N], from 0;
            MultiDiscrete: int32 [N, A], each number from 0; MultiBinary: int32 [N, A]; Dict and
            Tuple: dicts and tuples of these.
        action_space: Space of one environment's action.
        distribution: Which one samples of a Box are from: 'normal'; 'tanh_normal', before the tanh;
            or 'beta', whose [0, 1] → [low, high].

    Returns:
        Actions [N, *shape] of the space's dtype, nest as the space says.

    Raises:
        TypeError: The space is made of something else.
    """
    if isinstance(action_space, gymnasium.spaces.Discrete):
        action = tf.cast(sample, tf.as_dtype(action_space.dtype))
        return action + action_space.start if action_space.start else action
    if isinstance(action_space, gymnasium.spaces.Box):
        if distribution == 'tanh_normal':
            sample = tf.tanh(sample)
        elif distribution == 'beta':
            sample = 2.0 * sample - 1.0
        return _to_box(sample, action_space)
    if isinstance(action_space, gymnasium.spaces.MultiDiscrete):
        action = _to_shape(sample, action_space)
        start = action_space.start
        return action + start.astype(action_space.dtype) if np.any(start) else action
    if isinstance(action_space, gymnasium.spaces.MultiBinary):
        return _to_shape(sample, action_space)
    if isinstance(action_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        return spaces.map_parts(
            lambda space, part: to_environment(part, space, distribution),
            spaces.structure(action_space),
            sample,
        )
    raise unsupported(action_space)


def unsupported(space: gymnasium.Space) -> TypeError:
    """Return the error for a space of actions that no policy has."""
    return TypeError(
        'Spaces of actions must be Box or Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple '
        f'of these, got space={space}. Rescale or flatten it with a wrapper of Gymnasium.'
    )


def _to_shape(sample: tf.Tensor, space: gymnasium.Space) -> tf.Tensor:
    """Cast whole numbers and give them the shape of their space, which may have any rank."""
    action = tf.cast(sample, tf.as_dtype(space.dtype))
    assert space.shape is not None  # MultiDiscrete and MultiBinary have one.
    return action if len(space.shape) == 1 else tf.reshape(action, [-1, *space.shape])


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
