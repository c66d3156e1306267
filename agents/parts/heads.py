"""From the outputs of a policy network to a distribution, for every kind of action space."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts.actions import unsupported
from agents.parts.bounded import Beta, TanhNormal
from agents.parts.distributions import Bernoulli, Categorical, DiagNormal, Joint, MultiCategorical
from agents.tools import spaces

DISTRIBUTIONS = ('normal', 'tanh_normal', 'beta')


@dataclasses.dataclass(frozen=True)
class Head:
    """What a policy network needs for a space of actions.

    Attributes:
        outputs: How many numbers the network gives.
        deviations: How many deviations there are that do not depend on the observation.
        make: Makes the distribution of outputs [N, outputs] and, where there are deviations, their
            logarithms [deviations].
    """

    outputs: int
    deviations: int
    make: Callable[[tf.Tensor, tf.Tensor | None], Any]


def make_head(action_space: gymnasium.Space, hyper: Hyperparameters) -> Head:
    """Return what a policy network needs for a space of actions.

    | space         | distribution                                                        |
    |---------------|---------------------------------------------------------------------|
    | Box           | as the hyperparameter `distribution` says, of all elements          |
    | Discrete      | Categorical, over n values that start at 0                          |
    | MultiDiscrete | MultiCategorical, of all elements, over values that start at 0      |
    | MultiBinary   | Bernoulli, of all elements                                          |
    | Dict, Tuple   | Joint of these                                                      |

    Args:
        action_space: Space of one environment's action.
        hyper: Kind and initial size of deviations.

    Raises:
        TypeError: The space is made of something else.
        ValueError: A Box lacks the bounds that its distribution needs.
    """
    if hyper.distribution not in DISTRIBUTIONS:
        raise ValueError(
            f'Distribution must be one of {", ".join(DISTRIBUTIONS)}, '
            f'got distribution={hyper.distribution!r}.'
        )
    if isinstance(action_space, gymnasium.spaces.Box):
        return _box_head(action_space, hyper)
    if isinstance(action_space, gymnasium.spaces.Discrete):
        return Head(int(action_space.n), 0, lambda outputs, _: Categorical(outputs))
    if isinstance(action_space, gymnasium.spaces.MultiDiscrete):
        sizes = tuple(action_space.nvec.flatten().tolist())
        return Head(sum(sizes), 0, lambda outputs, _: MultiCategorical(outputs, sizes))
    if isinstance(action_space, gymnasium.spaces.MultiBinary):
        return Head(math.prod(action_space.shape), 0, lambda outputs, _: Bernoulli(outputs))
    if isinstance(action_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        return _joint_head(action_space, hyper)
    raise unsupported(action_space)


def _box_head(space: gymnasium.spaces.Box, hyper: Hyperparameters) -> Head:
    if not hyper.init_std > 0:
        raise ValueError(f'init_std must be > 0, got init_std={hyper.init_std}.')
    size = math.prod(space.shape)
    if hyper.distribution != 'normal' and not space.is_bounded():
        raise ValueError(
            f'Actions must have finite bounds for distribution={hyper.distribution}, got '
            f'space={space}. Use distribution=normal.'
        )
    if hyper.distribution == 'beta':
        return Head(2 * size, 0, _make_beta)
    kind = DiagNormal if hyper.distribution == 'normal' else TanhNormal
    if not hyper.state_dependent_std:
        return Head(size, size, kind)
    shift = math.log(hyper.init_std)

    def make(outputs: tf.Tensor, _: Any) -> Any:
        mean, log_std = tf.split(outputs, 2, -1)
        return kind(mean, log_std + shift if shift else log_std)

    return Head(2 * size, 0, make)


def _make_beta(outputs: tf.Tensor, _: Any) -> Beta:
    """Make both parameters greater than 1, so that the density has one maximum, inside."""
    alpha, beta = tf.split(1.0 + tf.nn.softplus(outputs), 2, -1)
    return Beta(alpha, beta)


def _joint_head(space: gymnasium.Space, hyper: Hyperparameters) -> Head:
    heads = spaces.map_parts(lambda part: make_head(part, hyper), spaces.structure(space))
    leaves = [head for _, head in spaces.parts(heads)]
    if not leaves:
        raise unsupported(space)
    outputs = [head.outputs for head in leaves]
    deviations = [head.deviations for head in leaves]

    def make(numbers: tf.Tensor, log_std: tf.Tensor | None) -> Joint:
        numbers = iter(tf.split(numbers, outputs, -1))
        rest = iter([None] * len(leaves) if log_std is None else tf.split(log_std, deviations))
        return Joint(
            spaces.map_parts(
                lambda head: head.make(next(numbers), next(rest)),
                heads,
            )
        )

    return Head(sum(outputs), sum(deviations), make)


def mask_sizes(action_space: gymnasium.Space, mask_space: gymnasium.Space) -> tuple[int, ...]:
    """Return how many values of each number a mask of actions tells about.

    Args:
        action_space: Discrete, or MultiDiscrete, whose numbers are masked one after another.
        mask_space: Space of the mask.

    Raises:
        TypeError: The space of actions is of another kind.
        ValueError: The mask has another shape.
    """
    if isinstance(action_space, gymnasium.spaces.Discrete):
        sizes = (int(action_space.n),)
    elif isinstance(action_space, gymnasium.spaces.MultiDiscrete):
        sizes = tuple(action_space.nvec.flatten().tolist())
    else:
        raise TypeError(
            'Actions must be Discrete or MultiDiscrete to be masked, got '
            f'space={action_space}. Leave out action_mask.'
        )
    if mask_space.shape != (sum(sizes),):
        raise ValueError(
            f'The action_mask must have shape ({sum(sizes)},), one number for each value of an '
            f'action, got {mask_space}.'
        )
    return sizes


def mask_outputs(outputs: tf.Tensor, mask: tf.Tensor, sizes: tuple[int, ...]) -> tf.Tensor:
    """Give actions that are not allowed a probability of exactly 0.

    Where a mask allows nothing it counts as allowing everything, since something must be done; so
    does the one of a row that is not valid, which holds zeros.

    Args:
        outputs: Logits, one number after another, float32 [N, Σ sizes].
        mask: True or not 0 where an action is allowed, [N, Σ sizes].
        sizes: How many values each number has.

    Returns:
        Logits, -inf where an action is not allowed, float32 [N, Σ sizes].
    """
    allowed = tf.cast(mask, tf.bool)
    some = [
        tf.repeat(tf.reduce_any(part, -1, keepdims=True), size, -1)
        for part, size in zip(tf.split(allowed, sizes, -1), sizes, strict=True)
    ]
    return tf.where(allowed | ~tf.concat(some, -1), outputs, -math.inf)
