"""From observations to what networks take: numbers in float32, for every kind of space.

| space         | vector                        | array                                            |
|---------------|-------------------------------|--------------------------------------------------|
| Box           | flattened                     | as it is                                         |
| Discrete      | one-hot, n numbers            | the same                                         |
| MultiDiscrete | one-hot, Σ n numbers          | the same                                         |
| MultiBinary   | flattened                     | as it is                                         |
| Dict, Tuple   | their parts', joined          | dicts and tuples of these                        |

Bytes that are an image become numbers in [0, 1], see `is_image`.
"""

import math
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.tools import spaces
from agents.tools.transition import Nest

_SMALLEST = 8  # Sides of an image without channels; smaller tables of bytes are numbers.


def is_image(space: gymnasium.Space) -> bool:
    """Whether values are pixels: uint8 from 0 to 255, of rank 3, or of rank 2 from 8 × 8 on.

    They are scaled to [0, 1] and not normalised by running statistics.
    """
    return (
        isinstance(space, gymnasium.spaces.Box)
        and space.dtype == np.uint8
        and (len(space.shape) == 3 or (len(space.shape) == 2 and min(space.shape) >= _SMALLEST))
        and bool(np.all(space.low == 0) and np.all(space.high == 255))
    )


def is_grid(space: gymnasium.Space) -> bool:
    """Whether convolutions suit values: images, and all that has rank 3."""
    box = isinstance(space, gymnasium.spaces.Box)
    return is_image(space) or (box and len(space.shape or ()) == 3)


def observed(observation_space: gymnasium.Space, action_mask: str = '') -> gymnasium.Space:
    """Return the part of a space that networks see: all but a mask of actions.

    Args:
        observation_space: Space of one environment's observations.
        action_mask: Key of the mask in a Dict, '' for none.

    Raises:
        ValueError: There is no such key.
    """
    if not action_mask:
        return observation_space
    dictionary = isinstance(observation_space, gymnasium.spaces.Dict)
    parts = dict(observation_space.spaces) if dictionary else {}  # type: ignore[attr-defined]
    if action_mask not in parts:
        raise ValueError(
            'The action_mask must be a key of a Dict space of observations, got '
            f'action_mask={action_mask!r} for {observation_space}. A mask in infos is not seen.'
        )
    del parts[action_mask]
    return gymnasium.spaces.Dict([*parts.items()])


def without_mask(obs: Nest, action_mask: str = '') -> Nest:
    """Return observations without the mask of actions among them."""
    if not action_mask:
        return obs
    return {key: part for key, part in obs.items() if key != action_mask}


def input_size(observation_space: gymnasium.Space) -> int:
    """Return how many numbers `encode` makes of one observation.

    Args:
        observation_space: Any space that is supported.

    Raises:
        TypeError: The space is made of something else.
    """
    structure = spaces.structure(observation_space)
    leaves = [leaf for _, leaf in spaces.parts(structure)]
    if not leaves:
        raise unsupported(observation_space)
    return sum(map(_leaf_size, leaves))


def encode(obs: Nest, observation_space: gymnasium.Space) -> tf.Tensor:
    """Turn observations into one vector per row.

    Args:
        obs: Observations, nest [N, ...] as the space says, or normalised to float32.
        observation_space: Any space that is supported.

    Returns:
        Inputs of a dense layer, float32 [N, input_size].

    Raises:
        TypeError: The space is made of something else.
    """
    input_size(observation_space)  # Raises for what is not supported.
    structure = spaces.structure(observation_space)
    vectors = [part for _, part in spaces.parts(spaces.map_parts(_to_vector, structure, obs))]
    return vectors[0] if len(vectors) == 1 else tf.concat(vectors, -1)


def encode_arrays(obs: Nest, observation_space: gymnasium.Space) -> Nest:
    """Turn observations into arrays that keep their structure and shape.

    Args:
        obs: Observations, nest [N, ...] as the space says, or normalised to float32.
        observation_space: Any space that is supported.

    Returns:
        Nest of float32 [N, ...].

    Raises:
        TypeError: The space is made of something else.
    """

    def convert(space: gymnasium.Space, part: tf.Tensor) -> tf.Tensor:
        if isinstance(space, (gymnasium.spaces.Box, gymnasium.spaces.MultiBinary)):
            return _to_numbers(space, part)
        return _to_vector(space, part)

    return spaces.map_parts(convert, spaces.structure(observation_space), obs)


def encode_grid(obs: tf.Tensor, space: gymnasium.Space) -> tf.Tensor:
    """Turn images into what convolutions take, float32 [N, height, width, channels].

    Channels are the smaller one of the first and the last dimension, the last if they are equal;
    rank 2 has one channel.

    Args:
        obs: Images, [N, ...] as the space says, or normalised to float32.
        space: Space of which `is_grid` holds.
    """
    shape = space.shape or ()
    if len(shape) == 2:
        obs = obs[..., tf.newaxis]
    elif shape[0] < shape[-1]:
        obs = tf.transpose(obs, [0, 2, 3, 1])
    return _to_numbers(space, obs)


def grid_shape(space: gymnasium.Space) -> tuple[int, int, int]:
    """Return height, width and channels of what `encode_grid` makes of one observation."""
    shape = space.shape or ()
    if len(shape) == 2:
        return (*shape, 1)
    first, middle, last = shape
    return (middle, last, first) if first < last else (first, middle, last)


def unsupported(space: gymnasium.Space) -> TypeError:
    """Return the error for a space of observations that no network here takes."""
    return TypeError(
        'Spaces of observations must be Box or Discrete, MultiDiscrete, MultiBinary, or a Dict or '
        f'Tuple of these, got space={space}. Flatten or pad it with a wrapper of Gymnasium.'
    )


def _leaf_size(space: Any) -> int:
    if isinstance(space, (gymnasium.spaces.Box, gymnasium.spaces.MultiBinary)):
        return math.prod(space.shape)
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    raise unsupported(space)


def _to_numbers(space: gymnasium.Space, obs: tf.Tensor) -> tf.Tensor:
    obs = tf.cast(obs, tf.float32)
    return obs * (1 / 255) if is_image(space) else obs


def _to_vector(space: Any, obs: tf.Tensor) -> tf.Tensor:
    size = _leaf_size(space)
    if isinstance(space, gymnasium.spaces.Discrete):
        start = int(space.start)
        return tf.one_hot(obs - start if start else obs, size)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return _one_hot_each(space, obs)
    obs = _to_numbers(space, obs)
    return obs if space.shape == (size,) else tf.reshape(obs, [-1, size])


def _one_hot_each(space: gymnasium.spaces.MultiDiscrete, obs: tf.Tensor) -> tf.Tensor:
    """Set one number of a vector for each element: all of them are compared at once."""
    sizes = space.nvec.flatten()
    # Number i of the vector belongs to element owner[i], and stands for its value[i].
    owner = np.repeat(np.arange(len(sizes)), sizes)
    value = np.concatenate([np.arange(size) for size in sizes]) + space.start.flatten()[owner]
    flat = tf.reshape(obs, [-1, len(sizes)])
    each = tf.gather(flat, owner, axis=1)
    return tf.cast(tf.equal(each, tf.constant(value, each.dtype)), tf.float32)
