"""Policy and value networks: small Keras models that are built at construction.

A policy maps observations [N, ...] to a distribution over actions with N rows, a value network maps
them to float32 [N]. Both run inside the step of every batch of environments, where the number of
operations is time: what is known while tracing (casts, shapes) costs nothing at run time.
"""

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts.distributions import Categorical, DiagNormal, Distribution
from agents.parts.keras_backend import import_keras

keras = import_keras()

ACTIVATIONS = tuple(
    name
    for name, value in sorted(vars(keras.activations).items())
    # Not glu, which halves the number of units.
    if callable(value) and name not in ('get', 'serialize', 'deserialize', 'glu')
)
INITS = ('orthogonal', 'variance_scaling')


def feed_forward(
    observation_space: gymnasium.Space, action_space: gymnasium.Space, hyper: Hyperparameters
) -> tuple['Policy', 'Value']:
    """Build a policy and a value network that share nothing.

    Args:
        observation_space: Space of one environment's observation: Box or Discrete.
        action_space: Space of one environment's action: Box or Discrete.
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
    and a standard deviation that does not depend on the observation. Discrete actions: a
    categorical distribution over n values that start at 0. See `actions.to_environment`.
    """

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        hyper: Hyperparameters,
    ):
        super().__init__(name='policy')
        self._observation_space = observation_space
        self._log_std: _Vector | None = None
        if isinstance(action_space, gymnasium.spaces.Box):
            if not hyper.init_std > 0:
                raise ValueError(f'init_std must be > 0, got init_std={hyper.init_std}.')
            outputs = math.prod(action_space.shape)
            self._log_std = _Vector(outputs, math.log(hyper.init_std), 'log_std')
        elif isinstance(action_space, gymnasium.spaces.Discrete):
            outputs = int(action_space.n)
        else:
            raise _unsupported('action', action_space)
        size = input_size(observation_space)
        gain = hyper.init_output_factor
        self._model = _perceptron('policy', size, hyper.policy_layers, outputs, gain, hyper)

    def __call__(self, obs: tf.Tensor) -> Distribution:
        """Return the distribution over actions.

        Args:
            obs: Observations, [N, ...] as the space says, or normalised to float32.

        Returns:
            Distribution with N rows.
        """
        outputs = self._model(encode(obs, self._observation_space))
        if self._log_std is None:
            return Categorical(outputs)
        return DiagNormal(outputs, self._log_std(outputs))

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables, in a fixed order."""
        extra = [] if self._log_std is None else self._log_std.trainable_variables
        return [*self._model.trainable_variables, *extra]


class Value(tf.Module):
    """Expected discounted return, given an observation."""

    def __init__(self, observation_space: gymnasium.Space, hyper: Hyperparameters):
        super().__init__(name='value')
        self._observation_space = observation_space
        size = input_size(observation_space)
        self._model = _perceptron('value', size, hyper.value_layers, 1, 1.0, hyper)

    def __call__(self, obs: tf.Tensor) -> tf.Tensor:
        """Return values.

        Args:
            obs: Observations, [N, ...] as the space says, or normalised to float32.

        Returns:
            Values, in units of the reward that was learned from, float32 [N].
        """
        return tf.squeeze(self._model(encode(obs, self._observation_space)), -1)

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables, in a fixed order."""
        return list(self._model.trainable_variables)


def input_size(observation_space: gymnasium.Space) -> int:
    """Return how many numbers `encode` makes of one observation.

    Args:
        observation_space: Box or Discrete.

    Raises:
        TypeError: The space is of another kind.
    """
    if isinstance(observation_space, gymnasium.spaces.Box):
        return math.prod(observation_space.shape)
    if isinstance(observation_space, gymnasium.spaces.Discrete):
        return int(observation_space.n)
    raise _unsupported('observation', observation_space)


def encode(obs: tf.Tensor, observation_space: gymnasium.Space) -> tf.Tensor:
    """Turn observations into one vector per row: Box flattened, Discrete one-hot.

    Args:
        obs: Observations, [N, ...] as the space says, or normalised to float32.
        observation_space: Box or Discrete.

    Returns:
        Inputs of a dense layer, float32 [N, input_size].

    Raises:
        TypeError: The space is of another kind.
    """
    size = input_size(observation_space)
    if isinstance(observation_space, gymnasium.spaces.Discrete):
        start = int(observation_space.start)
        return tf.one_hot(obs - start if start else obs, size)
    obs = tf.cast(obs, tf.float32)
    return obs if observation_space.shape == (size,) else tf.reshape(obs, [-1, size])


class _Vector(keras.layers.Layer):  # type: ignore[name-defined]
    """Weights that depend on no input; a layer, so that Keras and checkpoints know them."""

    def __init__(self, size: int, value: float, name: str):
        super().__init__(name=name, dtype='float32')
        initializer = keras.initializers.Constant(value)
        self.vector = self.add_weight(shape=(size,), initializer=initializer, name='vector')
        self.built = True

    def call(self, _: tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor(self.vector)


def _perceptron(
    name: str, inputs: int, layers: tuple[int, ...], outputs: int, gain: float, hyper: Any
) -> Any:
    """Build dense hidden layers and a linear output layer whose initial weights scale with gain."""
    if hyper.activation not in ACTIVATIONS:
        raise ValueError(
            f'Activation must be one of {", ".join(ACTIVATIONS)}, '
            f'got activation={hyper.activation!r}.'
        )
    model = keras.Sequential([keras.Input((inputs,), dtype='float32')], name=name)
    for index, units in enumerate([*layers, outputs]):
        if units < 1:
            raise ValueError(
                f'Layers of the {name} must have >= 1 units, got units={units} at index {index}.'
            )
        hidden = index < len(layers)
        # A seed of its own for every layer: equal seeds would give equal rows in equal shapes.
        seed = _fold(hyper.seed, name, index)
        model.add(
            keras.layers.Dense(
                units,
                hyper.activation if hidden else None,
                kernel_initializer=_initializer(hyper.init, hidden, gain, seed),
                dtype='float32',
                name=f'hidden_{index}' if hidden else 'output',
            )
        )
    return model


def _initializer(init: str, hidden: bool, gain: float, seed: int) -> Callable[..., Any]:
    if init == 'orthogonal':
        # √2 keeps the size of signals through ReLU layers (He et al. 2015); usual for tanh too.
        return keras.initializers.Orthogonal(math.sqrt(2) if hidden else gain, seed)
    if init == 'variance_scaling':
        if hidden:
            return keras.initializers.VarianceScaling(1.0, 'fan_avg', 'uniform', seed)
        return keras.initializers.VarianceScaling(gain, 'fan_in', 'truncated_normal', seed)
    raise ValueError(f'Initialisation must be one of {", ".join(INITS)}, got init={init!r}.')


def _fold(seed: int, name: str, index: int) -> int:
    entropy = [seed, int.from_bytes(name.encode(), 'big'), index]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def _unsupported(what: str, space: gymnasium.Space) -> TypeError:
    return TypeError(
        f'Spaces of {what}s must be Box or Discrete for feed-forward networks, got space={space}. '
        'Flatten or rescale it with a wrapper of Gymnasium, or write a network of your own.'
    )
