"""The hidden part of networks: from observations to features, by name or of a user's own.

A trunk maps observations [N, ...] to features [N, F]. On it stand the linear layers of policy and
value, see `networks`.
"""

import contextlib
import importlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import encoders
from agents.parts.keras_backend import import_keras
from agents.tools import spaces
from agents.tools.transition import Nest

keras = import_keras()

NETWORKS = ('feed_forward', 'nature', 'impala')
ACTIVATIONS = tuple(
    name
    for name, value in sorted(vars(keras.activations).items())
    # Not glu, which halves the number of units.
    if callable(value) and name not in ('get', 'serialize', 'deserialize', 'glu')
)
INITS = ('orthogonal', 'variance_scaling')


class Trunk(tf.Module):
    """Features of observations, by the network that the hyperparameters name.

    | network         | images, and all that has rank 3          | features                      |
    |-----------------|------------------------------------------|-------------------------------|
    | feed_forward    | flattened                                | `policy_layers` dense layers  |
    | nature          | convolutions 32 · 8×8 by 4, 64 · 4×4 by  | 512, dense and ReLU, of       |
    |                 | 2, 64 · 3×3, ReLU                        | everything joined             |
    | impala          | 16, 32, 32 channels, each a convolution, | 256, dense and ReLU, of       |
    |                 | pooling by 2 and two residual blocks     | everything joined             |
    | module:function | what the function's Keras model does     | what the model returns        |

    Source: nature: Mnih et al. 2015, "Human-level control through deep reinforcement learning";
    impala: Espeholt et al. 2018, "IMPALA", figure 3, the deep architecture.
    """

    def __init__(self, name: str, observation_space: gymnasium.Space, hyper: Hyperparameters):
        """Build the layers.

        Args:
            name: Whose layers they are, which decides on their initial weights.
            observation_space: Space of one observation, without a mask of actions.
            hyper: Network, layers, activation, initialisation and seed.

        Raises:
            TypeError: The space is made of something else than networks take.
            ValueError: There is no such network, or an image is too small for it.
        """
        super().__init__(name=f'{name}_trunk')
        self._space = observation_space
        size = encoders.input_size(observation_space)  # Raises for what is not supported.
        self._paths: list[str] = []  # Of images, each with a stack of convolutions.
        self._convolutions: list[Any] = []
        if hyper.network == 'feed_forward':
            self._encode: Callable = self._vector
            self._model = perceptron(name, size, hyper.policy_layers, hyper)
            if not hyper.policy_layers:
                self._model.add(keras.layers.Identity())  # A model must have a layer.
        elif hyper.network in NETWORKS:
            self._encode = self._convolve
            self._model = self._build_convolutions(name, hyper)
        else:
            self._encode = self._arrays
            self._model = _call_users(hyper, name, observation_space)
        shape = self._model.output_shape if hyper.network in NETWORKS else self._probe()
        self.size: int = shape[-1]

    def __call__(self, obs: Nest) -> tf.Tensor:
        """Return features.

        Args:
            obs: Observations without a mask of actions, nest [N, ...].

        Returns:
            Features, float32 [N, F].
        """
        return self._model(self._encode(obs))

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables, in a fixed order."""
        models = [*self._convolutions, self._model]
        return [weight for model in models for weight in model.trainable_variables]

    def _vector(self, obs: Nest) -> tf.Tensor:
        return encoders.encode(obs, self._space)

    def _arrays(self, obs: Nest) -> Nest:
        return encoders.encode_arrays(obs, self._space)

    def _convolve(self, obs: Nest) -> tf.Tensor:
        """Join features of images and vectors of all else."""
        models = dict(zip(self._paths, self._convolutions, strict=True))
        values = dict(spaces.parts(obs))
        vectors = [
            models[path](encoders.encode_grid(values[path], space))
            if path in models
            else encoders.encode(values[path], space)
            for path, space in spaces.parts(spaces.structure(self._space))
        ]
        return vectors[0] if len(vectors) == 1 else tf.concat(vectors, -1)

    def _build_convolutions(self, name: str, hyper: Hyperparameters) -> Any:
        """Build one stack of convolutions for each image, and the dense layer on all."""
        build = _nature if hyper.network == 'nature' else _impala
        size = 0
        for path, space in spaces.parts(spaces.structure(self._space)):
            if not encoders.is_grid(space):
                size += encoders.input_size(space)
                continue
            shape = encoders.grid_shape(space)
            model = build(f'{name}{path}', shape, hyper)
            self._paths.append(path)
            self._convolutions.append(model)
            size += model.output_shape[-1]
        if not self._convolutions:
            raise ValueError(
                f'Observations must have an image for network={hyper.network}, got '
                f'space={self._space}. Use network=feed_forward.'
            )
        units = 512 if hyper.network == 'nature' else 256
        return perceptron(f'{name} features', size, (units,), hyper, 'relu')

    def _probe(self) -> tuple[int, ...]:
        """Let a user's model see one observation, which builds it, and return the result's shape.

        Raises:
            TypeError: The model returns something else than features.
        """
        obs = spaces.map_parts(tf.constant, spaces.zeros(self._space, (1,)))
        features = self._model(self._arrays(obs))
        shape = getattr(features, 'shape', None)
        if shape is None or len(shape) != 2 or features.dtype != tf.float32:
            raise TypeError(
                'The network must return features, float32 [N, F], got '
                f'{getattr(features, "dtype", type(features))} {shape}. End it with a Flatten or '
                'Dense layer.'
            )
        return shape


def perceptron(
    name: str, inputs: int, layers: tuple[int, ...], hyper: Hyperparameters, activation: str = ''
) -> Any:
    """Build dense hidden layers.

    Args:
        name: Whose they are, which decides on their initial weights.
        inputs: Numbers that go in.
        layers: Units of each layer.
        hyper: Activation, initialisation and seed.
        activation: Another activation than that of the hyperparameters.

    Raises:
        ValueError: The activation, the initialisation or a size is not possible.
    """
    if hyper.activation not in ACTIVATIONS:
        raise ValueError(
            f'Activation must be one of {", ".join(ACTIVATIONS)}, '
            f'got activation={hyper.activation!r}.'
        )
    model = keras.Sequential([keras.Input((inputs,), dtype='float32')], name=_plain(name))
    for index, units in enumerate(layers):
        if units < 1:
            raise ValueError(
                f'Layers of the {name} must have >= 1 units, got units={units} at index {index}.'
            )
        model.add(
            keras.layers.Dense(
                units,
                activation or hyper.activation,
                kernel_initializer=_initializer(name, index, hyper),
                dtype='float32',
                name=f'hidden_{index}',
            )
        )
    return model


def linear(name: str, index: int, units: int, gain: float, hyper: Hyperparameters) -> Any:
    """Build an output layer whose initial weights scale with the gain.

    Args:
        name: Whose it is, which decides on its initial weights.
        index: Number of the layer, which does as well.
        units: Numbers that come out, >= 1.
        gain: Scale.
        hyper: Initialisation and seed.
    """
    if units < 1:
        raise ValueError(
            f'Layers of the {name} must have >= 1 units, got units={units} at index {index}.'
        )
    return keras.layers.Dense(
        units,
        kernel_initializer=_initializer(name, index, hyper, gain),
        dtype='float32',
        name='output',
    )


def _nature(name: str, shape: tuple[int, int, int], hyper: Hyperparameters) -> Any:
    """Build the convolutions of Mnih et al. 2015."""
    if min(shape[:2]) < 36:  # Of 36 pixels the three layers leave 8, 3 and 1.
        raise ValueError(
            f'Images must have at least 36 x 36 pixels for network=nature, got {shape[0]} x '
            f'{shape[1]}. Use network=impala.'
        )
    image = keras.Input(shape, dtype='float32')
    x = image
    for index, (channels, side, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
        layer = _convolution(f'{name} {index}', channels, side, hyper, stride, 'valid')
        x = keras.activations.relu(layer(x))
    return keras.Model(image, keras.layers.Flatten(data_format='channels_last')(x))


def _impala(name: str, shape: tuple[int, int, int], hyper: Hyperparameters) -> Any:
    """Build the residual convolutions of Espeholt et al. 2018."""
    image = keras.Input(shape, dtype='float32')
    x = image
    for index, channels in enumerate((16, 32, 32)):
        x = _convolution(f'{name} {index}', channels, 3, hyper)(x)
        pool = keras.layers.MaxPooling2D(3, 2, 'same', data_format='channels_last')
        x = pool(x)
        for block in range(2):
            y = x
            for number in range(2):
                layer = _convolution(f'{name} {index} {block} {number}', channels, 3, hyper)
                y = layer(keras.activations.relu(y))
            x = keras.layers.add([x, y])
    x = keras.activations.relu(x)
    return keras.Model(image, keras.layers.Flatten(data_format='channels_last')(x))


def _convolution(
    name: str,
    channels: int,
    side: int,
    hyper: Hyperparameters,
    stride: int = 1,
    padding: str = 'same',
) -> Any:
    return keras.layers.Conv2D(
        channels,
        side,
        stride,
        padding,
        data_format='channels_last',
        kernel_initializer=_initializer(name, 0, hyper),
        dtype='float32',
    )


def _call_users(hyper: Hyperparameters, name: str, space: gymnasium.Space) -> Any:
    """Call a user's function `module:function`.

    Raises:
        ValueError: The name is none of a network, and none of a function.
    """
    module, _, function = hyper.network.partition(':')
    if not module or not function:
        raise ValueError(
            f'Network must be one of {", ".join(NETWORKS)}, or module:function of your own, got '
            f'network={hyper.network!r}.'
        )
    make = getattr(importlib.import_module(module), function)
    with _seeded(fold(hyper.seed, name, 0)):
        return make(space, hyper)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Let Keras's layers without a seed of their own, which ask Python for one, get the same."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def _initializer(
    name: str, index: int, hyper: Hyperparameters, gain: float | None = None
) -> Callable[..., Any]:
    """Return how weights begin: hidden ones, or with a gain those of an output."""
    # A seed of its own for every layer: equal seeds would give equal rows in equal shapes.
    seed = fold(hyper.seed, name, index)
    if hyper.init == 'orthogonal':
        # √2 keeps the size of signals through ReLU layers (He et al. 2015); usual for tanh too.
        return keras.initializers.Orthogonal(math.sqrt(2) if gain is None else gain, seed)
    if hyper.init == 'variance_scaling':
        if gain is None:
            return keras.initializers.VarianceScaling(1.0, 'fan_avg', 'uniform', seed)
        return keras.initializers.VarianceScaling(gain, 'fan_in', 'truncated_normal', seed)
    raise ValueError(f'Initialisation must be one of {", ".join(INITS)}, got init={hyper.init!r}.')


def _plain(name: str) -> str:
    """Make a name that Keras accepts."""
    return ''.join(character if character.isalnum() else '_' for character in name)


def fold(seed: int, name: str, index: int) -> int:
    """Make a seed of a seed, a name and a number."""
    entropy = [seed, int.from_bytes(name.encode(), 'big'), index]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)
