"""What a policy outputs: a distribution over actions for every row of a batch.

Distributions are small records of tensors. The last dimension of their parameters is the event;
all others are rows, written `[...]`. Every method works in eager mode, in graphs and under XLA, and
samples are the same in all three, since random numbers always come from Philox.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable
from typing import Any, Protocol, Self

import tensorflow as tf

from agents.parts import philox
from agents.tools.spaces import map_parts

# Log probabilities end here instead of at -inf, so that 0 · log 0 is 0 and gradients are finite.
LOWEST_LOG_PROB = -1e30


class Distribution(Protocol):
    """What algorithms ask of a distribution; a user's own needs no base class."""

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw one value per row; seed: int32 or int64 [2]."""

    def mode(self) -> tf.Tensor:
        """Return the most likely value of each row."""

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return the log probability (density) of x, float32 [...]."""

    def entropy(self) -> tf.Tensor:
        """Return the entropy, nats, float32 [...]."""

    def kl(self, other: Self) -> tf.Tensor:
        """Return KL(self ‖ other), nats, float32 [...]."""

    def params(self) -> dict[str, tf.Tensor]:
        """Return tensors with all rows, from which the class builds an equal distribution."""


@dataclasses.dataclass(frozen=True, eq=False)
class Categorical:
    """Distribution over the integers 0 … n - 1: p = softmax(logits).

    Logits of -inf mean a probability of 0.

    Attributes:
        logits: Log probabilities up to a constant per row, float32 [..., n].
    """

    logits: Any

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw argmaxᵢ(logitsᵢ + gᵢ), gᵢ = -log(-log uᵢ), which has the probabilities pᵢ.

        Args:
            seed: Seed of this draw, int32 or int64 [2].

        Returns:
            Samples, int32 [...].

        Source:
            Maddison et al. 2014, "A* Sampling", section 2 (the Gumbel-max trick).
        """
        # Neither 0 nor 1, so that every g is finite.
        uniform = philox.uniform(_shape(self.logits), seed)
        return tf.argmax(self.logits - tf.math.log(-tf.math.log(uniform)), -1, tf.int32)

    def mode(self) -> tf.Tensor:
        """Return the most likely value, the first one of equals, int32 [...]."""
        return tf.argmax(self.logits, -1, tf.int32)

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return log p(x).

        Args:
            x: Values in [0, n), int32 or int64 [...].

        Returns:
            Log probabilities, nats, float32 [...].
        """
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=x, logits=self.logits)

    def entropy(self) -> tf.Tensor:
        """Return H = -Σᵢ pᵢ log pᵢ, nats in [0, log n], float32 [...]."""
        log_probs = _log_softmax(self.logits)
        return -tf.reduce_sum(tf.exp(log_probs) * log_probs, -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return KL(p ‖ q) = Σᵢ (pᵢ (log pᵢ - log qᵢ) + qᵢ - pᵢ).

        The last two terms sum to 0. With them each part of the sum and of its gradient is exactly
        0 for equal logits, although probabilities in float32 do not sum to exactly 1.

        Args:
            other: Distribution q.

        Returns:
            Divergences, nats, >= 0 but for rounding, float32 [...].
        """
        log_p, log_q = _log_softmax(self.logits), _log_softmax(other.logits)
        p, q = tf.exp(log_p), tf.exp(log_q)
        return tf.reduce_sum(p * (log_p - log_q) + (q - p), -1)

    def params(self) -> dict[str, tf.Tensor]:
        """Return the arguments of an equal distribution, each with all rows."""
        return {'logits': self.logits}


@dataclasses.dataclass(frozen=True, eq=False)
class DiagNormal:
    """Independent normal distributions of A numbers: x = mean + exp(log_std) · ε, ε ~ N(0, 1).

    Attributes:
        mean: Centre, float32 [..., A].
        log_std: Logarithm of the standard deviation, float32 [..., A] or shared by rows, [A].
    """

    mean: Any
    log_std: Any

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw mean + exp(log_std) · ε.

        Args:
            seed: Seed of this draw, int32 or int64 [2].

        Returns:
            Samples, float32 [..., A].
        """
        noise = philox.normal(_shape(self.mean), seed)
        return self.mean + tf.exp(self.log_std) * noise

    def mode(self) -> tf.Tensor:
        """Return the mean, float32 [..., A]."""
        return self.mean

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return log p(x) = -½ Σᵢ ((xᵢ - meanᵢ) / stdᵢ)² - Σᵢ log stdᵢ - ½ A log 2π.

        Args:
            x: Values, float32 [..., A].

        Returns:
            Log densities of the whole vectors, float32 [...].
        """
        z = (x - self.mean) * tf.exp(-self.log_std)
        constant = 0.5 * math.log(2 * math.pi) * self.mean.shape[-1]
        return -0.5 * tf.reduce_sum(z * z, -1) - (tf.reduce_sum(self.log_std, -1) + constant)

    def entropy(self) -> tf.Tensor:
        """Return H = Σᵢ (log stdᵢ + ½ log 2πe), nats, float32 [...]."""
        log_std = self.params()['log_std']
        return tf.reduce_sum(log_std + 0.5 * math.log(2 * math.pi * math.e), -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return KL(p ‖ q) = ½ Σᵢ (e^(2dᵢ) - 1 - 2dᵢ + ((mean_pᵢ - mean_qᵢ) / std_qᵢ)²).

        With dᵢ = log std_pᵢ - log std_qᵢ. Written with expm1, so it is exactly 0 for equal
        parameters and keeps its digits near them.

        Args:
            other: Distribution q.

        Returns:
            Divergences of the whole vectors, nats, >= 0 but for rounding, float32 [...].
        """
        twice = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * tf.exp(-other.log_std)
        return 0.5 * tf.reduce_sum(tf.math.expm1(twice) - twice + z * z, -1)

    def params(self) -> dict[str, tf.Tensor]:
        """Return the arguments of an equal distribution, each with all rows."""
        log_std = tf.convert_to_tensor(self.log_std)
        if not (self.mean.shape.is_fully_defined() and log_std.shape == self.mean.shape):
            log_std = tf.broadcast_to(log_std, _shape(self.mean))
        return {'mean': self.mean, 'log_std': log_std}


@dataclasses.dataclass(frozen=True, eq=False)
class MultiCategorical:
    """Independent categorical distributions over K numbers, the kth of them in 0 … sizes[k] - 1.

    Attributes:
        logits: Log probabilities up to a constant for each number, one number after another,
            float32 [..., Σ sizes].
        sizes: How many values each number has.
    """

    logits: Any
    sizes: tuple[int, ...]

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw all K numbers; seed: int32 or int64 [2].

        Returns:
            Samples, int32 [..., K].
        """
        return self._each().sample(seed)

    def mode(self) -> tf.Tensor:
        """Return the most likely value of each number, int32 [..., K]."""
        return self._each().mode()

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return log p(x) = Σₖ log pₖ(xₖ); x: int32 or int64 [..., K], result: float32 [...]."""
        return tf.reduce_sum(self._each().log_prob(x), -1)

    def entropy(self) -> tf.Tensor:
        """Return Σₖ Hₖ, nats, float32 [...]."""
        return tf.reduce_sum(self._each().entropy(), -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return Σₖ KL(pₖ ‖ qₖ), nats, float32 [...]."""
        return tf.reduce_sum(self._each().kl(other._each()), -1)

    def params(self) -> dict[str, tf.Tensor]:
        """Return the tensors of an equal distribution, each with all rows."""
        return {'logits': self.logits}

    def _each(self) -> Categorical:
        """Put each number into a row of its own, padded to one size by values of probability 0."""
        most = max(self.sizes)
        if min(self.sizes) == most:
            shape = [-1 if n is None else n for n in self.logits.shape[:-1]]
            return Categorical(tf.reshape(self.logits, [*shape, len(self.sizes), most]))
        rows = [[0, 0]] * (self.logits.shape.rank - 1)
        padded = [
            tf.pad(part, [*rows, [0, most - size]], constant_values=-math.inf)
            for part, size in zip(tf.split(self.logits, self.sizes, -1), self.sizes, strict=True)
        ]
        return Categorical(tf.stack(padded, -2))


@dataclasses.dataclass(frozen=True, eq=False)
class Bernoulli:
    """Independent bits, each of them 1 with probability sigmoid(logit).

    Attributes:
        logits: Log odds of each bit, float32 [..., A].
    """

    logits: Any

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw bits, int32 [..., A]; seed: int32 or int64 [2]."""
        uniform = philox.uniform(_shape(self.logits), seed)
        return tf.cast(uniform < tf.sigmoid(self.logits), tf.int32)

    def mode(self) -> tf.Tensor:
        """Return the more likely value of each bit, 0 of equals, int32 [..., A]."""
        return tf.cast(self.logits > 0, tf.int32)

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return Σᵢ log pᵢ(xᵢ), with log p(1) = -softplus(-logit), log p(0) = -softplus(logit).

        Args:
            x: Bits, int32 [..., A].

        Returns:
            Log probabilities of all bits together, nats, float32 [...].
        """
        bits = tf.cast(x, tf.float32)
        return -tf.reduce_sum(tf.nn.softplus(self.logits) - bits * self.logits, -1)

    def entropy(self) -> tf.Tensor:
        """Return Σᵢ (softplus(logitᵢ) - pᵢ logitᵢ), nats, float32 [...]."""
        p = tf.sigmoid(self.logits)
        return tf.reduce_sum(tf.nn.softplus(self.logits) - p * self.logits, -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return Σᵢ (p (log p - log q) + (1 - p) (log(1 - p) - log(1 - q))), exactly 0 if equal.

        Args:
            other: Distribution q.

        Returns:
            Divergences, nats, >= 0 but for rounding, float32 [...].
        """
        return tf.reduce_sum(self._pairs().kl(other._pairs()), -1)

    def params(self) -> dict[str, tf.Tensor]:
        """Return the arguments of an equal distribution, each with all rows."""
        return {'logits': self.logits}

    def _pairs(self) -> Categorical:
        return Categorical(tf.stack([tf.zeros_like(self.logits), self.logits], -1))


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """Independent distributions of the parts of an action.

    Samples and parameters are nests like the parts; everything else is a sum over them.

    Attributes:
        parts: Distributions with the same rows, dicts and tuples of them.
    """

    parts: Any

    def sample(self, seed: tf.Tensor) -> Any:
        """Draw one value of each part, nest [...]; seed: int32 or int64 [2]."""
        leaves = tf.nest.flatten(self.parts)
        seeds = tf.unstack(philox.split(seed, len(leaves)))
        samples = [part.sample(own) for part, own in zip(leaves, seeds, strict=True)]
        return tf.nest.pack_sequence_as(self.parts, samples)

    def mode(self) -> Any:
        """Return the most likely value of each part, nest [...]."""
        return tf.nest.map_structure(lambda part: part.mode(), self.parts)

    def log_prob(self, x: Any) -> tf.Tensor:
        """Return Σ log p of all parts; x: nest like a sample, result: float32 [...]."""
        return self._sum(lambda part, value: part.log_prob(value), x)

    def entropy(self) -> tf.Tensor:
        """Return Σ H of all parts, nats, float32 [...]."""
        return self._sum(lambda part: part.entropy())

    def kl(self, other: Self) -> tf.Tensor:
        """Return Σ KL of all parts, nats, float32 [...]."""
        return self._sum(lambda part, another: part.kl(another), other.parts)

    def params(self) -> Any:
        """Return the tensors of an equal distribution, nest of the parts' own."""
        return tf.nest.map_structure(lambda part: part.params(), self.parts)

    def _sum(self, function: Callable[..., tf.Tensor], *nests: Any) -> tf.Tensor:
        results = tf.nest.map_structure(function, self.parts, *nests)
        return functools.reduce(operator.add, tf.nest.flatten(results))


def rebuild(like: Any, params: Any) -> Any:
    """Make a distribution of the kind of another one.

    Args:
        like: Distribution; of a dataclass it keeps what is not in the parameters, such as sizes.
        params: What `params()` of one of this kind returned, or rows of it.
    """
    if isinstance(like, Joint):
        return Joint(map_parts(rebuild, like.parts, params))
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        return dataclasses.replace(like, **params)
    return type(like)(**params)


def _log_softmax(logits: tf.Tensor) -> tf.Tensor:
    return tf.maximum(tf.nn.log_softmax(logits), LOWEST_LOG_PROB)


def _shape(x: tf.Tensor) -> Any:
    """Return the static shape where it is known: it costs no operation at run time."""
    return x.shape if x.shape.is_fully_defined() else tf.shape(x)
