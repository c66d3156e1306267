"""Running mean and variance of a stream, and standardising by them."""

import itertools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.parts.encoders import is_image
from agents.tools import spaces

EPSILON = 1e-8  # Added to the variance, so that constant dimensions become 0 instead of 0 / 0.


class StreamingNormalize(tf.Module):
    """Standardise a stream of arrays by the mean and variance of all rows seen so far.

    Statistics change only in `update`. They are float64: sums of float32 would lose rows after 2²⁴
    of them, and digits where the mean is large against the deviation.
    """

    def __init__(
        self,
        shape: Sequence[int],
        center: bool = True,
        scale: bool = True,
        clip: float = 10.0,
    ):
        """Start without data.

        Args:
            shape: Shape of one row.
            center: Subtract the mean.
            scale: Divide by the standard deviation.
            clip: Bound of the result's magnitude, 0 for none.

        Raises:
            ValueError: The clip is negative or not a number.
        """
        super().__init__(name='streaming_normalize')
        if not clip >= 0:
            raise ValueError(f'Clip must be >= 0, got clip={clip}. Use 0 for no bound.')
        self._shape = tuple(shape)
        self._center, self._scale, self._clip = center, scale, clip
        self._frozen: tuple[Any, ...] = ()
        self.count = self._variable('count', tf.zeros((), tf.float64))
        self.mean = self._variable('mean', tf.zeros(self._shape, tf.float64))
        self.m2 = self._variable('m2', tf.zeros(self._shape, tf.float64))
        # 1 / √(variance + ε), kept so that a step of the environments need not compute it.
        self.factor = self._variable('factor', tf.ones(self._shape, tf.float64))

    @property
    def variance(self) -> tf.Tensor:
        """Mean squared distance from the mean, 1 before the first row, float64 [*shape]."""
        variance = self.m2 / tf.maximum(self.count, 1)
        return tf.where(self.count > 0, variance, tf.ones_like(variance))

    def transform(self, x: tf.Tensor) -> tf.Tensor:
        """Return clip((x - mean) / √(variance + 1e-8), -clip, clip); before any data clip(x).

        Args:
            x: Values of any numeric dtype, [..., *shape].

        Returns:
            Standardised values, float32 [..., *shape].
        """
        if self._frozen:
            return self._transform_frozen(x)
        # In float64, since a mean like 1e6 has steps of 0.06 in float32.
        x = tf.cast(x, tf.float64)
        if self._center:
            x = x - self.mean
        if self._scale:
            x = x * self.factor
        if self._clip:
            x = tf.clip_by_value(x, -self._clip, self._clip)
        return tf.cast(x, tf.float32)

    def freeze(self) -> None:
        """Turn the statistics into constants, used without float64, which not every runtime has."""
        mean = self.mean.numpy()
        high = mean.astype(np.float32)
        self._frozen = (high, (mean - high).astype(np.float32), np.float32(self.factor.numpy()))

    def _transform_frozen(self, x: tf.Tensor) -> tf.Tensor:
        """Subtract the mean in two parts: near it, where digits matter, both are exact."""
        high, low, factor = self._frozen
        x = tf.cast(x, tf.float32)
        if self._center:
            x = (x - high) - low
        if self._scale:
            x = x * factor
        return tf.clip_by_value(x, -self._clip, self._clip) if self._clip else x

    def update(self, x: tf.Tensor, valid: tf.Tensor) -> None:
        """Take in a batch of rows at once.

        With batch b of n rows:
            δ = mean_b - mean, mean' = mean + δ n / (count + n),
            m2' = m2 + m2_b + δ² count n / (count + n).

        Args:
            x: Rows of any numeric dtype, [..., *shape].
            valid: Rows to take in; others change nothing, whatever they hold, bool [...].

        Source:
            Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm for computing
            sample variances".
        """
        x = tf.reshape(tf.cast(x, tf.float64), [-1, *self._shape])
        valid = tf.reshape(valid, [-1] + [1] * len(self._shape))
        zero = tf.zeros((), tf.float64)
        # Before any arithmetic, since 0 · nan is nan.
        x = tf.where(valid, x, zero)
        added = tf.reduce_sum(tf.cast(valid, tf.float64))
        total = self.count + added
        mean = tf.reduce_sum(x, 0) / tf.maximum(added, 1)
        m2 = tf.reduce_sum(tf.where(valid, tf.square(x - mean), zero), 0)
        share = added / tf.maximum(total, 1)
        delta = mean - self.mean
        self.m2.assign_add(m2 + tf.square(delta) * self.count * share)
        self.mean.assign_add(delta * share)
        self.count.assign(total)
        factor = tf.math.rsqrt(self.variance + EPSILON)
        # A batch of nothing must not even change its rounding, nor end the time before any data.
        self.factor.assign(tf.where(added > 0, factor, self.factor))

    def _variable(self, name: str, value: tf.Tensor) -> tf.Variable:
        return tf.Variable(value, trainable=False, name=name)


class NestNormalize(tf.Module):
    """Standardise some parts of a nest, each by statistics of its own; others pass through."""

    def __init__(self, statistics: Any):
        """Take over the statistics.

        Args:
            statistics: Nest of a `StreamingNormalize` for each part, or of None.
        """
        super().__init__(name='nest_normalize')
        # A list, in which checkpoints and `submodules` find them.
        self._parts = [part for _, part in spaces.parts(statistics)]
        numbers = itertools.count()
        self._numbers = spaces.map_parts(lambda _: next(numbers), statistics)

    def transform(self, x: Any) -> Any:
        """Return the nest with what is standardised as float32; see `StreamingNormalize`."""

        def transform(number: int, leaf: tf.Tensor) -> tf.Tensor:
            part = self._parts[number]
            return leaf if part is None else part.transform(leaf)

        return spaces.map_parts(transform, self._numbers, x)

    def update(self, x: Any, valid: tf.Tensor) -> None:
        """Take in a batch of rows at once; see `StreamingNormalize`."""

        def update(number: int, leaf: tf.Tensor) -> None:
            if self._parts[number] is not None:
                self._parts[number].update(leaf, valid)

        spaces.map_parts(update, self._numbers, x)


def make_normalizer(
    observation_space: gymnasium.Space, clip: float, action_mask: str = ''
) -> StreamingNormalize | NestNormalize | None:
    """Make what standardises observations: each Box in them that is no image.

    Args:
        observation_space: Space of one environment's observations.
        clip: Bound of the result's magnitude, 0 for none.
        action_mask: Key of a part that is left alone, '' for none.

    Returns:
        Statistics, None if there is nothing to standardise.
    """

    def make(space: gymnasium.Space) -> StreamingNormalize | None:
        if not isinstance(space, gymnasium.spaces.Box) or is_image(space):
            return None
        return StreamingNormalize(space.shape, clip=clip)

    statistics = spaces.map_parts(make, spaces.structure(observation_space))
    if action_mask:
        statistics[action_mask] = None
    if not isinstance(statistics, dict | tuple):
        return statistics
    if all(part is None for _, part in spaces.parts(statistics)):
        return None
    return NestNormalize(statistics)
