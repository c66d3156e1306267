"""What a policy outputs: a distribution over actions for every row of a batch.

Distributions are small records of tensors. The last dimension of their parameters is the event;
all others are rows, written `[...]`. Every method works in eager mode, in graphs and under XLA, and
samples are the same in all three, since random numbers always come from Philox.
"""

import dataclasses
import math
from typing import Any, Protocol, Self

import tensorflow as tf

from agents.parts import philox

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


def _log_softmax(logits: tf.Tensor) -> tf.Tensor:
    return tf.maximum(tf.nn.log_softmax(logits), LOWEST_LOG_PROB)


def _shape(x: tf.Tensor) -> Any:
    """Return the static shape where it is known: it costs no operation at run time."""
    return x.shape if x.shape.is_fully_defined() else tf.shape(x)
