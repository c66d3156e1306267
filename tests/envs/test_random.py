import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from agents.envs import random
from tests.modes import in_every_mode

# Known answers of Philox4x32-10, published with Random123: (counter, key, words).
ZEROS = ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))


def philox(counter, key):
    """An independent twin in Python's integers, which do not overflow."""
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b % 2**32, (a >> 32) ^ x[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return x


def test_the_twin_gives_the_published_words():
    counter, key, words = ZEROS
    assert philox(counter, key) == list(words)


@in_every_mode
def test_bits_are_those_of_philox_with_the_seed_as_key(mode):
    seeds = np.array([[0, 0], [1, -2], [2**31 - 1, -(2**31)]], np.int32)
    result = mode(lambda seed: tf.stack(random.bits(seed, 6, 7), 1))(tf.constant(seeds))
    for row, seed in zip(result.numpy(), seeds, strict=True):
        key = [int(x) % 2**32 for x in seed]
        # The counter: number of the block of four words, stream, 0, 0.
        expected = philox([0, 7, 0, 0], key) + philox([1, 7, 0, 0], key)[:2]
        assert row.tolist() == expected


@in_every_mode
def test_uniform_numbers_are_the_same_in_every_mode_and_inside_the_bounds(mode):
    seed = tf.constant([[1, 2], [3, 4]])
    result = mode(lambda seed: random.uniform(seed, [2, 3], -0.5, 0.5))(seed)
    assert result.shape == (2, 2, 3)
    words = [philox([block, 0, 0, 0], [1, 2])[i] for block, i in [(0, 0), (0, 1), (0, 2)]]
    expected = [-0.5 + ((word >> 9) * 2 + 1) / 2**24 for word in words]
    np.testing.assert_allclose(result[0, 0].numpy(), np.float32(expected), rtol=1e-6)


def test_the_lowest_and_the_highest_word_stay_inside_the_bounds():
    for word in (0, 2**32 - 1):
        assert 0 < np.float32((word >> 9) * 2.0**-23 + 2.0**-24) < 1


def test_uniform_numbers_of_many_seeds_are_uniform():
    seed = tf.stack([tf.range(20_000), tf.zeros(20_000, tf.int32)], 1)
    numbers = random.uniform(seed, [2]).numpy()
    for column in numbers.T:
        assert scipy.stats.kstest(column, 'uniform').pvalue > 0.001
    assert abs(np.corrcoef(numbers.T)[0, 1]) < 0.03


def test_a_row_depends_on_its_own_seed_only():
    seed = tf.constant([[1, 2], [3, 4], [5, 6]])
    together = random.uniform(seed, [5]).numpy()
    for index in range(3):
        np.testing.assert_array_equal(
            random.uniform(seed[index : index + 1], [5])[0], together[index]
        )


def test_folded_seeds_differ_between_rows_data_and_each_other():
    seed = tf.constant([[1, 2], [1, 3]])
    found = {
        tuple(row)
        for data in (0, 1, 2)
        for new in random.fold_in(seed, data, 2)
        for row in new.numpy().tolist()
    }
    assert len(found) == 2 * 3 * 2


@pytest.mark.parametrize('amount', [1, 2])
def test_the_first_folded_seed_does_not_depend_on_how_many_there_are(amount):
    seed = tf.constant([[1, 2]])
    first = random.fold_in(seed, 5, amount)[0].numpy().tolist()
    assert first == random.fold_in(seed, 5)[0].numpy().tolist()
