"""Policy and value networks: small Keras models that are built at construction.

A policy maps observations [N, ...] to a distribution over actions with N rows, a value network maps
them to float32 [N]. Both run inside the step of every batch of environments, where the number of
operations is time: what is known while tracing (casts, shapes) costs nothing at run time.
"""

import math
from typing import Any

import gymnasium
import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import encoders, heads, trunks
from agents.parts.distributions import Distribution
from agents.parts.encoders import encode, input_size
from agents.parts.keras_backend import import_keras
from agents.parts.recurrent import Memory
from agents.parts.trunks import ACTIVATIONS, INITS, NETWORKS, Trunk
from agents.tools.transition import Nest

__all__ = [
    'ACTIVATIONS', 'INITS', 'NETWORKS', 'Policy', 'Trunk', 'Value', 'build', 'encode', 'evaluate',
    'feed_forward', 'input_size',
]  # fmt: skip

keras = import_keras()


def build(
    observation_space: gymnasium.Space, action_space: gymnasium.Space, hyper: Hyperparameters
) -> tuple['Policy', 'Value']:
    """Build the policy and the value network that the hyperparameters name.

    Args:
        observation_space: Space of one environment's observation: Box, Discrete, MultiDiscrete,
            MultiBinary, and Dict and Tuple of these.
        action_space: Space of one environment's action: of the same kinds.
        hyper: Network, layers, activation, initialisation and seed; whether both share layers.

    Returns:
        The policy and the value network; equal arguments give equal weights.

    Raises:
        TypeError: A space is of another kind.
        ValueError: The network, the activation, the initialisation or a size is not possible.
    """
    share = hyper.share_layers or hyper.recurrent != 'none'
    if hyper.network == 'feed_forward' and not share:
        return feed_forward(observation_space, action_space, hyper)
    seen = encoders.observed(observation_space, hyper.action_mask)
    trunk = Trunk('shared' if share else 'policy', seen, hyper)
    memory = None if hyper.recurrent == 'none' else Memory(trunk.size, hyper)
    policy = Policy(observation_space, action_space, hyper, trunk, memory)
    if not share:
        trunk = Trunk('value', seen, hyper)
    return policy, Value(observation_space, hyper, trunk, memory, owns_trunk=not share)


def feed_forward(
    observation_space: gymnasium.Space, action_space: gymnasium.Space, hyper: Hyperparameters
) -> tuple['Policy', 'Value']:
    """Build a policy and a value network of dense layers that share nothing.

    Args:
        observation_space: Space of one environment's observation, see `build`.
        action_space: Space of one environment's action, see `build`.
        hyper: Layers, activation, initialisation and seed.

    Returns:
        The policy and the value network; equal arguments give equal weights.

    Raises:
        TypeError: A space is of another kind.
        ValueError: The activation, the initialisation or a size is not possible.
    """
    return Policy(observation_space, action_space, hyper), Value(observation_space, hyper)


class Policy(tf.Module):
    """Distribution over actions, given an observation.

    Box actions of any shape are flattened to A numbers: a normal distribution with a linear mean
    and a standard deviation that does not depend on the observation, unless the hyperparameters say
    otherwise. For other spaces see `heads.make_head`, and `actions.to_environment`.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        hyper: Hyperparameters,
        trunk: Trunk | None = None,
        memory: Memory | None = None,
    ):
        """Build the layers.

        Args:
            observation_space: Space of one environment's observation.
            action_space: Space of one environment's action.
            hyper: Layers, activation, initialisation and seed.
            trunk: What computes features; None for hidden layers of its own.
            memory: What remembers them, whoever calls must see to it; None for nothing.
        """
        super().__init__(name='policy')
        self._action_mask = hyper.action_mask
        self._observation_space = encoders.observed(observation_space, hyper.action_mask)
        self._head = heads.make_head(action_space, hyper)
        self._mask_sizes: tuple[int, ...] = ()
        if hyper.action_mask:
            mask_space = observation_space[hyper.action_mask]  # type: ignore[index]
            self._mask_sizes = heads.mask_sizes(action_space, mask_space)
        self._log_std: _Vector | None = None
        if self._head.deviations:
            self._log_std = _Vector(self._head.deviations, math.log(hyper.init_std), 'log_std')
        self._trunk, self.memory = trunk, memory
        outputs, gain = self._head.outputs, hyper.init_output_factor
        layers = hyper.policy_layers if trunk is None else ()
        size = _size(self._observation_space, trunk, memory)
        self._model = trunks.perceptron('policy', size, layers, hyper)
        self._model.add(trunks.linear('policy', len(layers), outputs, gain, hyper))

    def __call__(self, obs: Nest, features: tf.Tensor | None = None) -> Distribution:
        """Return the distribution over actions.

        Args:
            obs: Observations, nest [N, ...] as the space says, or normalised to float32.
            features: What the trunk, or the memory after it, makes of them, if that is known.

        Returns:
            Distribution with N rows.
        """
        outputs = self._model(self.features(obs) if features is None else features)
        if self._action_mask:
            mask = obs[self._action_mask]
            outputs = heads.mask_outputs(outputs, mask, self._mask_sizes)
        log_std = None if self._log_std is None else self._log_std(outputs)
        return self._head.make(outputs, log_std)

    def features(self, obs: Nest) -> tf.Tensor:
        """Return what goes into the memory, or else this network's own layers, float32 [N, F]."""
        seen = encoders.without_mask(obs, self._action_mask)
        return _features(seen, self._observation_space, self._trunk)

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables, in a fixed order."""
        extra = [] if self._log_std is None else self._log_std.trainable_variables
        trunk = [] if self._trunk is None else self._trunk.weights
        memory = [] if self.memory is None else self.memory.weights
        return [*trunk, *memory, *self._model.trainable_variables, *extra]


class Value(tf.Module):
    """Expected discounted return, given an observation."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        hyper: Hyperparameters,
        trunk: Trunk | None = None,
        memory: Memory | None = None,
        owns_trunk: bool = True,
    ):
        """Build the layers.

        Args:
            observation_space: Space of one environment's observation.
            hyper: Layers, activation, initialisation and seed.
            trunk: What computes features; None for hidden layers of its own.
            memory: What remembers them, the policy's.
            owns_trunk: Whether the trunk's weights are counted here, and not with the policy's.
        """
        super().__init__(name='value')
        self._action_mask = hyper.action_mask
        self._observation_space = encoders.observed(observation_space, hyper.action_mask)
        self._trunk, self._owns_trunk = trunk, owns_trunk
        layers = hyper.value_layers if trunk is None else ()
        size = _size(self._observation_space, trunk, memory)
        self._model = trunks.perceptron('value', size, layers, hyper)
        self._model.add(trunks.linear('value', len(layers), 1, 1.0, hyper))

    def __call__(self, obs: Nest, features: tf.Tensor | None = None) -> tf.Tensor:
        """Return values.

        Args:
            obs: Observations, nest [N, ...] as the space says, or normalised to float32.
            features: What the trunk makes of them, if that is known already.

        Returns:
            Values, in units of the reward that was learned from, float32 [N].
        """
        return tf.squeeze(self._model(self.features(obs) if features is None else features), -1)

    def features(self, obs: Nest) -> tf.Tensor:
        """Return what goes into the layers that are this network's own, float32 [N, F]."""
        seen = encoders.without_mask(obs, self._action_mask)
        return _features(seen, self._observation_space, self._trunk)

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables that no other network counts, in a fixed order."""
        trunk = [] if self._trunk is None or not self._owns_trunk else self._trunk.weights
        return [*trunk, *self._model.trainable_variables]


def evaluate(
    policy: Policy, value: Value, obs: Nest, features: tf.Tensor | None = None
) -> tuple[Distribution, tf.Tensor]:
    """Return distribution and value; layers that both share run once.

    Args:
        policy: The policy.
        value: The value network.
        obs: Observations, nest [N, ...] as the space says, or normalised to float32.
        features: What their memory makes of them; None if they have none.
    """
    if features is not None:
        return policy(obs, features), value(obs, features)
    shared = getattr(policy, '_trunk', None)
    if shared is None or shared is not getattr(value, '_trunk', None):
        return policy(obs), value(obs)
    features = policy.features(obs)
    return policy(obs, features), value(obs, features)


def compiles_well(*networks: Any) -> bool:
    """Whether XLA is fast at networks: not at convolutions in loops, on CPUs 60 times too slow.

    Args:
        *networks: Policy and value network.
    """
    # Kernels of convolutions have more dimensions than a matrix, and so have those of attention.
    return all(len(weight.shape) <= 2 for network in networks for weight in network.weights)


class _Vector(keras.layers.Layer):  # type: ignore[name-defined]
    """Weights that depend on no input; a layer, so that Keras and checkpoints know them."""

    def __init__(self, size: int, value: float, name: str):
        super().__init__(name=name, dtype='float32')
        initializer = keras.initializers.Constant(value)
        self.vector = self.add_weight(shape=(size,), initializer=initializer, name='vector')
        self.built = True

    def call(self, _: tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor(self.vector)


def _features(obs: Nest, space: gymnasium.Space, trunk: Trunk | None) -> tf.Tensor:
    return encode(obs, space) if trunk is None else trunk(obs)


def _size(space: gymnasium.Space, trunk: Trunk | None, memory: Memory | None) -> int:
    if memory is not None:
        return memory.size
    return input_size(space) if trunk is None else trunk.size
