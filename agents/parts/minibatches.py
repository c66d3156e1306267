"""Shuffle rows and split them into minibatches of one static size.

XLA needs static shapes, so rows are neither dropped nor left over: the last place that no row fills
is padded by rows that are not valid.
"""

from typing import Any

import tensorflow as tf

from agents.parts import philox

Nest = Any  # A tensor, or a structure of tensors that tf.nest knows.
# Up to so many rows are sorted: that is quick, and every order of a few rows is equally likely.
_SORTED = 256
_ROUNDS = 8  # Half rounds of the scrambling, an even number.


def num_minibatches(num_rows: int, size: int) -> int:
    """Return how many minibatches hold all rows, ⌈num_rows / size⌉.

    Args:
        num_rows: Rows to split.
        size: Rows of a minibatch, >= 1.

    Raises:
        ValueError: The size is below 1.
    """
    if size < 1:
        raise ValueError(f'Size of a minibatch must be >= 1, got size={size}.')
    return -(-num_rows // size)


def permutation(n: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw a random order; unlike TensorFlow's own shuffle this compiles under XLA.

    XLA's sort takes as long as the gradient steps of small networks. So a large order is not
    sorted but computed, each place for itself: numbers of so many bits are scrambled one to one,
    and one that comes out too large is scrambled again until it is not.

    Args:
        n: Number of rows.
        seed: Seed of this draw, int32 or int64 [2].

    Returns:
        The numbers 0 … n - 1, each once, int32 [n].

    Source:
        Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains", section 4; Mitchell et al.
        2021, "Bandwidth-Optimal Random Shuffling for GPUs".
    """
    if n <= _SORTED:
        # Integers as keys: 2³² of them, while among the 2²³ uniform floats many would be ties.
        return tf.argsort(philox.integers([n], seed), stable=True)
    keys = tf.unstack(philox.integers([_ROUNDS], seed))
    bits = (n - 1).bit_length()

    def again(order: tf.Tensor) -> tuple[tf.Tensor]:
        return (tf.where(order < n, order, _scramble(order, bits, keys)),)

    order = _scramble(tf.range(n), bits, keys)
    return tf.while_loop(lambda order: tf.reduce_any(order >= n), again, (order,))[0]


def _scramble(x: tf.Tensor, bits: int, keys: list[tf.Tensor]) -> tf.Tensor:
    """Map the numbers below 2 ** bits one to one: a Feistel network, whose halves take turns."""
    low_bits, high_bits = bits // 2, bits - bits // 2
    x = tf.bitcast(x, tf.uint32)
    high, low = _shift(x, low_bits), x & (2**low_bits - 1)
    for even, odd in zip(keys[::2], keys[1::2], strict=True):
        high ^= _shift(_hash(low ^ tf.bitcast(even, tf.uint32)), 32 - high_bits)
        low ^= _shift(_hash(high ^ tf.bitcast(odd, tf.uint32)), 32 - low_bits)
    return tf.bitcast(high * 2**low_bits + low, tf.int32)


def _hash(x: tf.Tensor) -> tf.Tensor:
    """Mix the bits of each number; the upper ones are the best.

    Source: Appleby 2011, finalizer of MurmurHash3.
    """
    x = (x ^ _shift(x, 16)) * 0x85EBCA6B
    x = (x ^ _shift(x, 13)) * 0xC2B2AE35
    return x ^ _shift(x, 16)


def _shift(x: tf.Tensor, places: int) -> tf.Tensor:
    return tf.bitwise.right_shift(x, tf.constant(places, x.dtype))


def shuffle_and_pad(
    nest: Nest, valid: tf.Tensor, size: int, seed: tf.Tensor
) -> tuple[Nest, tf.Tensor]:
    """Shuffle rows, with padding up to a multiple of the minibatch size.

    Padding is spread over all minibatches like other rows; in the last one alone it would leave a
    gradient of very few rows that counts as much as a full one.

    Args:
        nest: Tensors [N, ...] with a static N.
        valid: Rows that hold real steps, bool [N].
        size: Rows of a minibatch, >= 1.
        seed: Seed of this draw, int32 or int64 [2].

    Returns:
        Tensors [M, ...] with M = size · num_minibatches(N, size), each row of nest exactly once,
        and which of them are valid, bool [M]; padding holds copies and is not.

    Raises:
        ValueError: The size is below 1.
    """
    num_rows = valid.shape[0]
    order = permutation(size * num_minibatches(num_rows, size), seed)
    real = order < num_rows
    order = tf.where(real, order, tf.zeros_like(order))
    shuffled = tf.nest.map_structure(lambda x: tf.gather(x, order), nest)
    return shuffled, tf.logical_and(tf.gather(valid, order), real)


def take(nest: Nest, index: tf.Tensor, size: int) -> Nest:
    """Return one minibatch: rows index · size … (index + 1) · size - 1.

    Args:
        nest: Tensors [M, ...] as from `shuffle_and_pad`.
        index: Number of the minibatch, may be a loop variable, int32 [].
        size: Rows of a minibatch, static.

    Returns:
        Tensors [size, ...].
    """

    def rows(x: tf.Tensor) -> tf.Tensor:
        # Not x[begin:end]: its size would depend on a loop variable, which XLA refuses.
        rest = [-1 if dim is None else dim for dim in x.shape[1:]]
        return tf.slice(x, [index * size] + [0] * len(rest), [size, *rest])

    return tf.nest.map_structure(rows, nest)


def zero_invalid(nest: Nest, valid: tf.Tensor) -> Nest:
    """Replace rows that are not valid by zeros (False), whatever they held.

    Done once before an update, nothing in it needs to fear them: masking a loss afterwards would
    still multiply a gradient of 0 with the nan of such a row.

    Args:
        nest: Tensors [*rows, ...].
        valid: Rows that hold real steps, bool [*rows].

    Returns:
        Tensors of the same shapes.
    """

    def rows(x: tf.Tensor) -> tf.Tensor:
        mask = valid
        while mask.shape.rank < x.shape.rank:
            mask = mask[..., tf.newaxis]
        return tf.where(mask, x, tf.zeros((), x.dtype))

    return tf.nest.map_structure(rows, nest)
