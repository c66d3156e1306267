"""Random numbers for every row of a batch from a seed of its own.

So an environment's numbers depend neither on how many others there are nor on its place among
them; TensorFlow's own functions take one seed for a whole tensor. Everything is made of integer
operations, which are equal in eager mode, in graphs and under XLA.

Source:
    Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 3.3 (Philox4x32-10).
"""

import math
from collections.abc import Sequence

import tensorflow as tf

# From the paper: multipliers, and the steps of the key (golden ratio and √3 - 1, times 2³²).
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def bits(seed: tf.Tensor, amount: int, stream: tf.Tensor | int = 0) -> list[tf.Tensor]:
    """Draw from all 2³² integers.

    Args:
        seed: Seed of each row, int32 [B, 2].
        amount: How many integers for each row.
        stream: Number of an independent stream of the same seed, such as the step, int [].

    Returns:
        Integers, a list of `amount` tensors uint32 [B].
    """
    key = tf.bitcast(seed, tf.uint32)
    key = (key[:, 0], key[:, 1])
    stream = tf.fill(tf.shape(seed)[:1], tf.cast(stream, tf.uint32))
    words: list[tf.Tensor] = []
    for block in range(-(-amount // 4)):
        words += _philox(tf.fill(tf.shape(seed)[:1], tf.constant(block, tf.uint32)), stream, key)
    return words[:amount]


def uniform(
    seed: tf.Tensor, shape: Sequence[int], low: float = 0.0, high: float = 1.0
) -> tf.Tensor:
    """Draw from (low, high).

    Args:
        seed: Seed of each row, int32 [B, 2].
        shape: Shape of one row.
        low: Lower bound.
        high: Upper bound.

    Returns:
        Numbers, float32 [B, *shape].
    """
    words = tf.stack(bits(seed, math.prod(shape)), 1)
    # Odd multiples of 2⁻²⁴, which float32 holds exactly.
    unit = (
        tf.cast(
            tf.bitcast(tf.bitwise.right_shift(words, tf.constant(9, tf.uint32)), tf.int32),
            tf.float32,
        )
        * 2.0**-23
        + 2.0**-24
    )
    return tf.reshape(low + (high - low) * unit, [-1, *shape])


def fold_in(seed: tf.Tensor, data: tf.Tensor | int, amount: int = 1) -> list[tf.Tensor]:
    """Make new seeds.

    Args:
        seed: Seed of each row, int32 [B, 2].
        data: What the new seeds are for, such as the number of the step, int [].
        amount: How many seeds for each row, 1 or 2: these cost the same.

    Returns:
        Seeds, a list of `amount` tensors int32 [B, 2].
    """
    words = [tf.bitcast(word, tf.int32) for word in bits(seed, 2 * amount, data)]
    return [tf.stack(words[2 * i : 2 * i + 2], 1) for i in range(amount)]


def _philox(
    counter: tf.Tensor, stream: tf.Tensor, key: tuple[tf.Tensor, tf.Tensor]
) -> list[tf.Tensor]:
    """Encrypt the counters (counter, stream, 0, 0): four words of each, uint32 [B]."""
    zero = tf.zeros_like(counter)
    x0, x1, x2, x3 = counter, stream, zero, zero
    for index in range(_ROUNDS):
        k0, k1 = (
            k + tf.constant(index * w & 0xFFFFFFFF, tf.uint32)
            for k, w in zip(key, _WEYL, strict=True)
        )
        high0, low0 = _multiply(x0, _MULTIPLIERS[0])
        high1, low1 = _multiply(x2, _MULTIPLIERS[1])
        x0, x1, x2, x3 = _xor(high1, x1, k0), low1, _xor(high0, x3, k1), low0
    return [x0, x1, x2, x3]


def _multiply(x: tf.Tensor, factor: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the upper and the lower half of the 64-bit product."""
    product = tf.cast(x, tf.uint64) * tf.constant(factor, tf.uint64)
    return tf.cast(
        tf.bitwise.right_shift(product, tf.constant(32, tf.uint64)), tf.uint32
    ), x * tf.constant(factor, tf.uint32)


def _xor(x: tf.Tensor, y: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(x, y), z)
