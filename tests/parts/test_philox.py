import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from agents.parts import philox
from tests.modes import MODES

DRAWS = {'uniform': philox.uniform, 'normal': philox.normal, 'integers': philox.integers}


@pytest.mark.parametrize('draw', DRAWS.values(), ids=DRAWS)
def test_numbers_are_the_same_in_every_mode_and_other_ones_for_other_seeds(draw):
    def numbers(seed):
        return draw([100, 7], seed)

    results = [mode(numbers)(tf.constant([3, 4])).numpy() for mode in MODES.values()]
    np.testing.assert_array_equal(results[0], results[1])
    # Only the polynomial of erf⁻¹ is rounded otherwise by XLA, most in the tails.
    tolerance = 1e-5 if draw is philox.normal else 0
    np.testing.assert_allclose(results[2], results[0], rtol=tolerance, atol=tolerance)
    for other in ([4, 3], [3, 5], [4, 4]):
        assert np.mean(numbers(other) == results[0]) < 0.01


def test_numbers_follow_their_distributions():
    n = 100_000
    assert scipy.stats.kstest(philox.uniform([n], [1, 2]).numpy(), 'uniform').pvalue > 0.01
    assert scipy.stats.kstest(philox.normal([n], [1, 2]).numpy(), 'norm').pvalue > 0.01
    integers = philox.integers([n], [1, 2]).numpy() / 2.0**32 + 0.5
    assert scipy.stats.kstest(integers, 'uniform').pvalue > 0.01


def test_the_ends_of_the_interval_are_never_drawn(monkeypatch):
    ends = tf.constant([-(2**31), -1, 0, 2**31 - 1])
    monkeypatch.setattr(philox, 'integers', lambda shape, seed: ends)
    # Odd multiples of 2⁻²⁴, symmetric around ½.
    expected = np.array([1, 2**23 - 1, 2**23 + 1, 2**24 - 1]) / 2**24
    np.testing.assert_array_equal(philox.uniform([4], [0, 0]), expected)
    # scipy.stats.norm.ppf(2⁻²⁴) = -5.29, of ½ - 2⁻²⁴: -1.494e-7
    expected = [-5.294704, -1.494e-7, 1.494e-7, 5.294704]
    np.testing.assert_allclose(philox.normal([4], [0, 0]), expected, rtol=1e-4)


def test_streams_of_neighbouring_seeds_are_unrelated():
    seeds = tf.stack([tf.zeros(3000, tf.int32), tf.range(3000)], 1)
    draw = tf.function(lambda seed: philox.normal([8], seed))
    streams = tf.function(lambda: tf.map_fn(draw, seeds, tf.float32))().numpy()
    # The k-th numbers of all streams look like one stream,
    for k in range(8):
        assert scipy.stats.kstest(streams[:, k], 'norm').pvalue > 0.01
    # and a stream does not predict the next one: correlations are within 5 / √3000 = 0.09.
    both = np.corrcoef(streams[:-1].T, streams[1:].T)
    np.fill_diagonal(both, 0)
    assert np.abs(both).max() < 0.09


def test_lower_halves_of_an_int64_seed_are_an_int32_seed():
    expected = philox.uniform([5], tf.constant([3, -4], tf.int32))
    wide = philox.uniform([5], tf.constant([3 + 2**32, -4], tf.int64))
    np.testing.assert_array_equal(expected, wide)
