"""Memory between a trunk and the output layers: a recurrent cell, and sequences to train it on.

Its state belongs to the observation that is to be acted on; where an episode begins it is cleared
before that observation is taken in.

step                   t             t + 1
state before           s(t)          s(t + 1)
first                  clears s(t)   clears s(t + 1)
features               f(t)          f(t + 1)
output                 h(t)          h(t + 1)         goes to policy and value
"""

from typing import Any

import tensorflow as tf

from agents.algorithms.hyperparameters import Hyperparameters
from agents.parts import trunks
from agents.parts.keras_backend import import_keras
from agents.tools.transition import Nest

keras = import_keras()

CELLS = ('none', 'gru', 'lstm')


class Memory(tf.Module):
    """A GRU (Cho et al. 2014, arXiv 1406.1078) or an LSTM (Hochreiter and Schmidhuber 1997)."""

    def __init__(self, inputs: int, hyper: Hyperparameters):
        """Build the cell.

        Args:
            inputs: Numbers that go in, F.
            hyper: Kind of cell, its units U, and the seed.

        Raises:
            ValueError: There is no such cell.
        """
        super().__init__(name='memory')
        if hyper.recurrent not in CELLS[1:]:
            raise ValueError(
                f'The cell must be one of {", ".join(CELLS)}, got recurrent={hyper.recurrent!r}.'
            )
        kind = keras.layers.GRUCell if hyper.recurrent == 'gru' else keras.layers.LSTMCell
        seeds = [trunks.fold(hyper.seed, 'memory', index) for index in range(2)]
        self._cell = kind(
            hyper.recurrent_units,
            kernel_initializer=keras.initializers.GlorotUniform(seeds[0]),
            recurrent_initializer=keras.initializers.Orthogonal(seed=seeds[1]),
            seed=0,  # Of a dropout that is not used; without it Keras asks Python for one.
            dtype='float32',
        )
        self._cell.build((None, inputs))
        self._states = 1 if hyper.recurrent == 'gru' else 2
        self.size = hyper.recurrent_units

    @property
    def weights(self) -> list[Any]:
        """Trainable Keras variables, in a fixed order."""
        return list(self._cell.trainable_variables)

    def initial(self, size: int) -> tuple[tf.Tensor, ...]:
        """Return the state where nothing has been seen, tuple of float32 [N, U]."""
        return (tf.zeros([size, self.size]),) * self._states

    def step(self, features: tf.Tensor, first: tf.Tensor, state: Nest) -> tuple[tf.Tensor, Nest]:
        """Take in one observation of each row.

        Args:
            features: What is seen, float32 [N, F].
            first: Where an episode begins, bool [N].
            state: State before, tuple of float32 [N, U].

        Returns:
            Output, float32 [N, U], and the state after.
        """
        cleared = [tf.where(first[:, tf.newaxis], 0.0, x) for x in state]
        output, after = self._cell(features, cleared)
        return output, tuple(after)

    def unroll(self, features: tf.Tensor, first: tf.Tensor, state: Nest) -> tuple[tf.Tensor, Nest]:
        """Take in sequences.

        Args:
            features: What is seen, float32 [T, N, F].
            first: Where episodes begin, bool [T, N].
            state: State before the first step, tuple of float32 [N, U].

        Returns:
            Outputs, float32 [T, N, U], and the states before each step, tuple of float32 [T, N, U].
        """

        def step(carry: Nest, row: Nest) -> Nest:
            return self.step(row[0], row[1], carry[1])

        outputs, after = tf.scan(step, (features, first), (tf.zeros_like(state[0]), state))
        before = tf.nest.map_structure(lambda x, y: tf.concat([x[None], y[:-1]], 0), state, after)
        return outputs, before


def to_sequences(nest: Nest, length: int) -> Nest:
    """Cut a rollout into sequences.

    Args:
        nest: Tensors [T, B, ...], T a multiple of the length.
        length: Steps of a sequence, L.

    Returns:
        Tensors [S · L, ...]: the L steps of each of the S = T / L · B sequences follow each other.
    """

    def cut(x: tf.Tensor) -> tf.Tensor:
        time, num_envs, *rest = x.shape
        x = tf.reshape(x, [time // length, length, num_envs, *rest])
        x = tf.transpose(x, [0, 2, 1, *range(3, len(x.shape))])
        return tf.reshape(x, [time * num_envs, *rest])

    return tf.nest.map_structure(cut, nest)


def split(nest: Nest, length: int) -> Nest:
    """Give sequences that follow each other an axis: [S · L, ...] to [S, L, ...]."""
    return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, length, *x.shape[1:]]), nest)


def join(nest: Nest) -> Nest:
    """Let sequences follow each other: [S, L, ...] to [S · L, ...]."""
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, [x.shape[0] * x.shape[1], *x.shape[2:]]), nest
    )
