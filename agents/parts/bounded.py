"""Distributions over bounded numbers, for actions that must not leave a range.

Their samples are what `actions.to_environment` maps to the range; see there.
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np
import tensorflow as tf

from agents.parts import philox
from agents.parts.distributions import DiagNormal

_NODES = 16  # Of the quadrature; see TanhNormal.entropy.
_ROUNDS = 8  # Proposals for each gamma variable; each is accepted with probability >= 0.95.
_EDGE = 1e-6  # Samples of Beta keep away from 0 and 1, where its density may be 0.


@dataclasses.dataclass(frozen=True, eq=False)
class TanhNormal:
    """Independent y = tanh(u) in (-1, 1) with u from a normal distribution.

    Samples are u, from which y follows exactly; u does not follow from a y that was rounded to 1.
    Densities are those of y.

    Attributes:
        mean: Centre of u, float32 [..., A].
        log_std: Logarithm of the standard deviation of u, float32 [..., A] or shared by rows, [A].

    Source:
        Haarnoja et al. 2018, "Soft Actor-Critic", appendix C.
    """

    mean: Any
    log_std: Any

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw u, float32 [..., A]; seed: int32 or int64 [2]."""
        return self._base().sample(seed)

    def mode(self) -> tf.Tensor:
        """Return the u of the median, which the mean of u is, float32 [..., A].

        The density of y may have two maxima, near -1 and 1, which are no good choice.
        """
        return self.mean

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return log p(y) = log N(u) - Σᵢ log(1 - tanh² uᵢ).

        Args:
            x: Samples u, float32 [..., A].

        Returns:
            Log densities of the whole vectors y, float32 [...].
        """
        return self._base().log_prob(x) - tf.reduce_sum(_log_slope(x), -1)

    def entropy(self) -> tf.Tensor:
        """Return H(y) = H(u) + Σᵢ E[log(1 - tanh² uᵢ)], nats, float32 [...].

        The expectation has no closed form. Gauss-Hermite quadrature with 16 nodes is exact to 1e-3
        up to a deviation of 1, and to 0.1 at a deviation of 5.
        """
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        weights = tf.constant(weights / weights.sum(), tf.float32)
        std = tf.exp(self.log_std)[..., None]
        u = self.mean[..., None] + std * tf.constant(nodes, tf.float32)
        slope = tf.reduce_sum(_log_slope(u) * weights, -1)
        return self._base().entropy() + tf.reduce_sum(slope, -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return KL(p ‖ q), that of the normal distributions: both y are one function of u.

        Args:
            other: Distribution q.

        Returns:
            Divergences of the whole vectors, nats, >= 0 but for rounding, float32 [...].
        """
        return self._base().kl(other._base())

    def params(self) -> dict[str, tf.Tensor]:
        """Return the arguments of an equal distribution, each with all rows."""
        return self._base().params()

    def _base(self) -> DiagNormal:
        return DiagNormal(self.mean, self.log_std)


@dataclasses.dataclass(frozen=True, eq=False)
class Beta:
    """Independent numbers x in (0, 1) with densities like x^(α - 1) (1 - x)^(β - 1), α, β >= 1.

    Attributes:
        alpha: α, float32 [..., A].
        beta: β, float32 [..., A].

    Source:
        Chou et al. 2017, "Improving Stochastic Policy Gradients in Continuous Control with Deep
        Reinforcement Learning using the Beta Distribution".
    """

    alpha: Any
    beta: Any

    def sample(self, seed: tf.Tensor) -> tf.Tensor:
        """Draw a / (a + b) with a, b from gamma distributions of shape α and β.

        Args:
            seed: Seed of this draw, int32 or int64 [2].

        Returns:
            Samples in [1e-6, 1 - 1e-6], float32 [..., A].
        """
        a, b = tf.unstack(gamma(tf.stack([self.alpha, self.beta]), seed))
        return tf.clip_by_value(a / (a + b), _EDGE, 1 - _EDGE)

    def mode(self) -> tf.Tensor:
        """Return (α - 1) / (α + β - 2), ½ where α = β = 1, float32 [..., A]."""
        return (self.alpha - 1 + _EDGE) / (self.alpha + self.beta - 2 + 2 * _EDGE)

    def log_prob(self, x: tf.Tensor) -> tf.Tensor:
        """Return Σᵢ ((αᵢ - 1) log xᵢ + (βᵢ - 1) log(1 - xᵢ) - log B(αᵢ, βᵢ)).

        Args:
            x: Values in (0, 1), moved into the range of samples if they are outside of it,
                float32 [..., A].

        Returns:
            Log densities of the whole vectors, float32 [...].
        """
        x = tf.clip_by_value(x, _EDGE, 1 - _EDGE)
        density = (self.alpha - 1) * tf.math.log(x) + (self.beta - 1) * tf.math.log1p(-x)
        return tf.reduce_sum(density - self._log_norm(), -1)

    def entropy(self) -> tf.Tensor:
        """Return Σ log B(α, β) - (α - 1) ψ(α) - (β - 1) ψ(β) + (α + β - 2) ψ(α + β), float32 [...].

        With the digamma function ψ.
        """
        alpha, beta = self.alpha, self.beta
        total = alpha + beta
        terms = self._log_norm() + (total - 2) * tf.math.digamma(total)
        terms -= (alpha - 1) * tf.math.digamma(alpha) + (beta - 1) * tf.math.digamma(beta)
        return tf.reduce_sum(terms, -1)

    def kl(self, other: Self) -> tf.Tensor:
        """Return Σ log B(q) - log B(p) + a ψ(α_p) + b ψ(β_p) - (a + b) ψ(α_p + β_p).

        With a = α_p - α_q and b = β_p - β_q. Exactly 0 for equal parameters.

        Args:
            other: Distribution q.

        Returns:
            Divergences of the whole vectors, nats, >= 0 but for rounding, float32 [...].
        """
        first, second = self.alpha - other.alpha, self.beta - other.beta
        terms = other._log_norm() - self._log_norm()
        terms += first * tf.math.digamma(self.alpha) + second * tf.math.digamma(self.beta)
        terms -= (first + second) * tf.math.digamma(self.alpha + self.beta)
        return tf.reduce_sum(terms, -1)

    def params(self) -> dict[str, tf.Tensor]:
        """Return the arguments of an equal distribution, each with all rows."""
        return {'alpha': self.alpha, 'beta': self.beta}

    def _log_norm(self) -> tf.Tensor:
        alpha, beta = self.alpha, self.beta
        return tf.math.lgamma(alpha) + tf.math.lgamma(beta) - tf.math.lgamma(alpha + beta)


def gamma(shape: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draw from gamma distributions of scale 1.

    A proposal d (1 + c ε)³, with d = shape - ⅓, c = 1 / √(9 d) and ε normal, is accepted with a
    probability of at least 0.95. Of 8 proposals the first accepted one is taken, so that nothing
    loops under XLA. Once in 10¹⁰ draws none is, and the last one stands.

    Args:
        shape: Shape parameters, >= 1, float32 [...].
        seed: Seed of this draw, int32 or int64 [2].

    Returns:
        Samples, > 0, float32 [...].

    Source:
        Marsaglia and Tsang 2000, "A Simple Method for Generating Gamma Variables".
    """
    normal_seed, uniform_seed = tf.unstack(philox.split(seed, 2))
    size = tf.concat([[_ROUNDS], tf.shape(shape)], 0)
    if shape.shape.is_fully_defined():
        size = [_ROUNDS, *shape.shape]
    normal = philox.normal(size, normal_seed)
    d = shape - 1 / 3
    v = tf.maximum(1 + normal * tf.math.rsqrt(9 * d), 0.0) ** 3
    v = tf.maximum(v, 1e-20)  # Never accepted where the cube was not positive.
    bound = 0.5 * normal**2 + d * (1 - v + tf.math.log(v))
    accepted = tf.math.log(philox.uniform(size, uniform_seed)) < bound
    result = v[-1]
    for number in reversed(range(_ROUNDS - 1)):
        result = tf.where(accepted[number], v[number], result)
    return d * result


def _log_slope(u: tf.Tensor) -> tf.Tensor:
    """Return log(1 - tanh² u) = 2 (log 2 - u - softplus(-2 u)), which never overflows."""
    return 2.0 * (math.log(2.0) - u - tf.nn.softplus(-2.0 * u))
