import numpy as np
import pytest
import tensorflow as tf

from agents.parts.normalize import StreamingNormalize
from tests.modes import MODES, in_every_mode

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal([1, -2, 0], [1, 3, 0.1], (40, 3)).astype(np.float32)


def trained(x, valid=None, mode=MODES['eager'], **kwargs):
    normalize = StreamingNormalize(x.shape[1:], **kwargs)
    valid = np.ones(len(x), bool) if valid is None else valid
    mode(normalize.update)(tf.constant(x), tf.constant(valid))
    return normalize


def state(normalize):
    return {
        name: getattr(normalize, name).numpy() for name in ('count', 'mean', 'm2', 'factor')
    } | {'variance': normalize.variance.numpy()}


def assert_equal_state(one, other, rtol=0.0):
    for name, value in state(one).items():
        np.testing.assert_allclose(value, state(other)[name], rtol=rtol, err_msg=name)


@in_every_mode
def test_statistics_by_hand(mode):
    normalize = trained(np.float32([[1], [3], [8]]), mode=mode)
    assert normalize.count.numpy() == 3
    np.testing.assert_allclose(normalize.mean, [4])  # 12 / 3
    np.testing.assert_allclose(normalize.variance, [26 / 3])  # (9 + 1 + 16) / 3
    # (1 - 4) / √8.6667 = -1.01905, (8 - 4) / √8.6667 = 1.35873
    result = mode(normalize.transform)(tf.constant([[1.0], [8.0]]))
    np.testing.assert_allclose(result, [[-1.01905], [1.35873]], rtol=1e-5)
    assert result.dtype == tf.float32


@in_every_mode
def test_statistics_are_those_of_numpy_over_all_batches(mode):
    normalize = StreamingNormalize([3])
    update = mode(normalize.update)
    for begin, end in [(0, 1), (1, 2), (2, 25), (25, 40)]:
        update(tf.constant(ROWS[begin:end]), tf.ones([end - begin], tf.bool))
    data = np.float64(ROWS)
    assert normalize.count.numpy() == 40
    np.testing.assert_allclose(normalize.mean, data.mean(0), rtol=1e-12)
    np.testing.assert_allclose(normalize.variance, data.var(0), rtol=1e-12)
    expected = (data - data.mean(0)) / np.sqrt(data.var(0) + 1e-8)
    result = mode(normalize.transform)(tf.constant(ROWS))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_neither_chunks_nor_the_order_of_rows_matter():
    whole = trained(ROWS)
    assert_equal_state(trained(RANDOM.permutation(ROWS)), whole, rtol=1e-12)
    halves = trained(ROWS[:13])
    halves.update(ROWS[13:], tf.ones([27], tf.bool))
    assert_equal_state(halves, whole, rtol=1e-12)
    sequences = StreamingNormalize([3])
    sequences.update(ROWS.reshape(8, 5, 3), tf.ones([8, 5], tf.bool))
    assert_equal_state(sequences, whole, rtol=1e-12)


@in_every_mode
def test_invalid_rows_change_nothing_whatever_they_hold(mode):
    valid = RANDOM.uniform(size=40) < 0.5
    results = []
    for junk in (0, 1e30, np.nan, np.inf, -np.inf):
        rows = np.where(valid[:, None], ROWS, np.float32(junk))
        results.append(trained(rows, valid, mode))
        assert_equal_state(results[0], results[-1])
    assert_equal_state(results[0], trained(ROWS[valid]), rtol=1e-12)


@in_every_mode
def test_a_batch_without_valid_rows_changes_nothing(mode):
    nothing = tf.zeros([40], tf.bool)
    normalize, expected = trained(ROWS), trained(ROWS)
    mode(normalize.update)(tf.constant(ROWS), nothing)
    assert_equal_state(normalize, expected)
    empty = trained(ROWS, nothing.numpy(), mode)
    assert_equal_state(empty, StreamingNormalize([3]))


@in_every_mode
def test_before_any_data_the_transform_only_clips(mode):
    normalize = StreamingNormalize([2], clip=5.0)
    np.testing.assert_array_equal(normalize.variance, [1, 1])
    result = mode(normalize.transform)(tf.constant([[0.3, -7.0], [1e30, 5.0]]))
    np.testing.assert_array_equal(result, np.float32([[0.3, -5], [5, 5]]))


@pytest.mark.parametrize(
    ('center', 'scale', 'expected'),
    # Rows 1, 3, 8 have mean 4 and deviation 2.943920; for 8 and for 40:
    [
        (True, True, [1.358732, 10]),
        (True, False, [4, 10]),
        (False, True, [2.717465, 10]),
        (False, False, [8, 10]),
    ],
)
def test_center_and_scale_are_separate_switches(center, scale, expected):
    normalize = trained(np.float32([1, 3, 8]), center=center, scale=scale)
    np.testing.assert_allclose(normalize.transform([8.0, 40.0]), expected, rtol=1e-6)


def test_without_a_clip_nothing_is_bounded():
    normalize = trained(np.float32([1, 3, 8]), clip=0.0, scale=False)
    np.testing.assert_array_equal(normalize.transform([1e6]), [1e6 - 4])


def test_a_constant_dimension_becomes_zero():
    rows = np.full((1000, 1), 0.1, np.float32)
    np.testing.assert_allclose(trained(rows).transform(rows), np.zeros((1000, 1)), atol=1e-6)


@in_every_mode
def test_a_large_offset_costs_no_digits(mode):
    # In float32 the squares near 1e12 have steps of 65536, and a mean has steps of 0.06.
    rows = (1e6 + RANDOM.normal(size=(4000, 1))).astype(np.float32)
    normalize = trained(rows, mode=mode)
    np.testing.assert_allclose(normalize.variance, np.float64(rows).var(0), rtol=1e-9)
    result = np.float64(mode(normalize.transform)(tf.constant(rows)))
    np.testing.assert_allclose([result.mean(), result.std()], [0, 1], atol=1e-6)


def test_rows_still_count_beyond_what_float32_can():
    normalize = StreamingNormalize([])
    normalize.count.assign(2.0**25)
    normalize.mean.assign(1.0)
    normalize.update([4.0, 4.0, 4.0], [True, True, True])
    assert normalize.count.numpy() == 2**25 + 3
    # 1 + 3 · 3 / (2²⁵ + 3)
    np.testing.assert_allclose(normalize.mean.numpy() - 1, 2.682209e-7, rtol=1e-6)


@pytest.mark.parametrize('dtype', [tf.uint8, tf.int64, tf.float64])
def test_other_dtypes_are_taken_in_and_become_float32(dtype):
    rows = tf.constant([[1, 2], [3, 8]], dtype)
    normalize = StreamingNormalize([2])
    normalize.update(rows, [True, True])
    result = normalize.transform(rows)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, [[-1, -1], [1, 1]], rtol=1e-6)


def test_rows_of_any_shape_are_standardised_element_by_element():
    rows = ROWS[:, :2].reshape(10, 4, 2, 1)  # 40 rows of shape [2, 1].
    normalize = StreamingNormalize([2, 1])
    normalize.update(rows, tf.ones([10, 4], tf.bool))
    np.testing.assert_allclose(normalize.mean[:, 0], np.float64(ROWS[:, :2]).mean(0), rtol=1e-12)
    assert normalize.transform(rows).shape == (10, 4, 2, 1)
    assert normalize.transform(rows[0, 0]).shape == (2, 1)


def test_a_checkpoint_holds_all_statistics(tmp_path):
    before, after = trained(ROWS), StreamingNormalize([3])
    path = tf.train.Checkpoint(normalize=before).save(str(tmp_path / 'checkpoint'))
    tf.train.Checkpoint(normalize=after).restore(path).assert_consumed()
    assert_equal_state(before, after)
    np.testing.assert_array_equal(before.transform(ROWS), after.transform(ROWS))
    assert not before.trainable_variables


@pytest.mark.parametrize('clip', [-1.0, np.nan])
def test_an_impossible_clip_is_refused(clip):
    with pytest.raises(ValueError, match=f'Clip must be >= 0, got clip={clip}'):
        StreamingNormalize([1], clip=clip)
