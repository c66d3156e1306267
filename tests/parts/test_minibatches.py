import numpy as np
import pytest
import tensorflow as tf

from agents.parts import minibatches
from tests.modes import MODES, in_every_mode

SEED = tf.constant([1, 2])


def records(num_rows):
    """A nest whose every tensor tells the number of its row."""
    rows = np.arange(num_rows)
    return {
        'obs': (tf.constant(rows[:, None] + [0.0, 0.5], tf.float32), tf.constant(rows, tf.uint8)),
        'flag': tf.constant(rows % 2 == 0),
        'action': tf.constant(rows, tf.int32),
    }


def epoch(nest, valid, size, seed):
    """All minibatches of one epoch, taken in a loop inside the graph, and which rows are valid."""
    shuffled, valid = minibatches.shuffle_and_pad(nest, valid, size, seed)
    count = minibatches.num_minibatches(len(nest['action']), size)

    def body(index, actions, flags):
        part, part_valid = minibatches.take((shuffled, valid), index, size)
        # Rows of all tensors stay together.
        together = part['obs'][0][:, 1] == tf.cast(part['action'], tf.float32) + 0.5
        together &= tf.cast(part['obs'][1], tf.int32) == part['action']
        together &= part['flag'] == (part['action'] % 2 == 0)
        number = tf.where(together, part['action'], -1)
        here = [index[None]]
        actions = tf.tensor_scatter_nd_update(actions, here, number[None])
        return index + 1, actions, tf.tensor_scatter_nd_update(flags, here, part_valid[None])

    empty = tf.zeros([count, size], tf.int32), tf.zeros([count, size], tf.bool)
    _, actions, flags = tf.while_loop(
        lambda index, *_: index < count, body, (tf.constant(0), *empty)
    )
    return actions, flags


@pytest.mark.parametrize(
    ('num_rows', 'size', 'count'), [(10, 5, 2), (11, 5, 3), (3, 5, 1), (5, 5, 1), (1, 1, 1)]
)
def test_minibatches_are_counted_upwards(num_rows, size, count):
    assert minibatches.num_minibatches(num_rows, size) == count


def test_an_empty_minibatch_is_refused():
    with pytest.raises(ValueError, match='must be >= 1, got size=0'):
        minibatches.shuffle_and_pad(tf.zeros([3]), tf.ones([3], tf.bool), 0, SEED)


@in_every_mode
@pytest.mark.parametrize('n', [1, 2, 256, 257, 1000, 1024, 1025])
def test_a_permutation_holds_each_number_once(mode, n):
    order = mode(lambda seed: minibatches.permutation(n, seed))(SEED)
    assert order.dtype == tf.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_permutations_depend_on_the_seed_and_not_on_the_mode():
    def permutation(seed):
        return minibatches.permutation(100_000, seed)

    orders = [mode(permutation)(SEED).numpy() for mode in MODES.values()]
    np.testing.assert_array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(orders[0], orders[2])
    # Two random orders agree in one place on average.
    assert np.sum(permutation([1, 3]).numpy() == orders[0]) < 10


def test_every_order_is_equally_likely():
    seeds = tf.stack([tf.zeros(6000, tf.int32), tf.range(6000)], 1)
    permutation = tf.function(lambda seed: minibatches.permutation(3, seed))
    orders = tf.function(lambda: tf.map_fn(permutation, seeds, tf.int32))()
    _, counts = np.unique(orders, axis=0, return_counts=True)
    # Six orders, each 1000 times; four deviations are 4 · √(6000 · 1/6 · 5/6) = 115.
    assert len(counts) == 6 and np.all(np.abs(counts - 1000) < 115)


@in_every_mode
@pytest.mark.parametrize(('num_rows', 'size'), [(12, 4), (13, 4), (3, 5), (7, 7), (5, 1)])
def test_an_epoch_holds_each_row_once_and_padding_is_not_valid(mode, num_rows, size):
    valid = tf.ones([num_rows], tf.bool)
    actions, flags = mode(lambda *xs: epoch(*xs[:2], size, xs[2]))(records(num_rows), valid, SEED)
    assert actions.shape == (-(-num_rows // size), size)
    actions, flags = actions.numpy(), flags.numpy()
    np.testing.assert_array_equal(np.sort(actions[flags]), np.arange(num_rows))
    # Padding holds copies of rows: it may be computed with, as long as it is masked.
    assert np.all((actions >= 0) & (actions < num_rows))


@in_every_mode
def test_rows_keep_whether_they_are_valid(mode):
    valid = np.arange(13) % 3 != 0
    arguments = records(13), tf.constant(valid), SEED
    actions, flags = mode(lambda *xs: epoch(*xs[:2], 4, xs[2]))(*arguments)
    np.testing.assert_array_equal(np.sort(actions.numpy()[flags.numpy()]), np.arange(13)[valid])


def test_other_seeds_give_other_minibatches_of_the_same_rows():
    valid = tf.ones([12], tf.bool)
    one, _ = epoch(records(12), valid, 4, tf.constant([1, 2]))
    again, _ = epoch(records(12), valid, 4, tf.constant([1, 2]))
    other, _ = epoch(records(12), valid, 4, tf.constant([1, 3]))
    np.testing.assert_array_equal(one, again)
    assert np.any(one != other)
    np.testing.assert_array_equal(np.sort(np.ravel(one)), np.sort(np.ravel(other)))


def test_padding_is_spread_over_minibatches():
    # 65 rows in minibatches of 64 leave 63 places: in the last one alone it would hold one row.
    valid = tf.ones([65], tf.bool)
    for seed in range(5):
        _, flags = epoch(records(65), valid, 64, tf.constant([0, seed]))
        # Each holds 32.5 on average, with a deviation of ½ √(32.5 · 63 / 128 · 4) ≈ 4.
        assert np.all(tf.reduce_sum(tf.cast(flags, tf.int32), 1).numpy() > 12)


def test_one_minibatch_is_sliced_out_of_each_tensor():
    nest = {'a': tf.range(6), 'b': (tf.reshape(tf.range(12), [6, 2]),)}
    part = minibatches.take(nest, tf.constant(1), 3)
    np.testing.assert_array_equal(part['a'], [3, 4, 5])
    np.testing.assert_array_equal(part['b'][0], [[6, 7], [8, 9], [10, 11]])


@in_every_mode
def test_invalid_rows_become_zeros_of_each_dtype(mode):
    valid = tf.constant([[True, False], [False, True]])
    nest = {
        'float': tf.constant([[[1.0, 2.0], [np.nan, 1.0]], [[np.inf, 1.0], [3.0, 4.0]]]),
        'int': (tf.constant([[1, 2], [3, 4]], tf.uint8),),
        'bool': tf.constant([[True, True], [True, False]]),
    }
    result = mode(minibatches.zero_invalid)(nest, valid)
    np.testing.assert_array_equal(result['float'], [[[1, 2], [0, 0]], [[0, 0], [3, 4]]])
    np.testing.assert_array_equal(result['int'][0], [[1, 0], [0, 4]])
    np.testing.assert_array_equal(result['bool'], [[True, False], [False, False]])
    assert result['int'][0].dtype == tf.uint8 and result['bool'].dtype == tf.bool


@pytest.mark.parametrize('n', [300, 2048])  # The second is a power of two, the first is not.
def test_large_orders_look_random(n):
    draw = tf.function(lambda seed: minibatches.permutation(n, seed), jit_compile=True)
    orders = np.stack([draw(tf.constant([3, number])).numpy() for number in range(1000)])
    # A row comes to each quarter of the places in a quarter of the orders, 250 times, and so do
    # two rows together to each of 16 pairs of quarters, 62.5 times; each within five deviations.
    quarter = orders * 4 // n
    for row in (0, 1, n // 2, n - 1):
        assert np.all(np.abs(np.bincount(quarter[:, row]) - 250) < 5 * np.sqrt(250 * 0.75))
    for rows in ((0, 1), (0, n // 2), (n - 2, n - 1)):
        pairs = np.bincount(quarter[:, rows[0]] * 4 + quarter[:, rows[1]], minlength=16)
        assert np.all(np.abs(pairs - 62.5) < 5 * np.sqrt(62.5))
    # One number on average follows its predecessor, and one stays in its place; both variances
    # are 1, so that the means of 1000 orders deviate by 0.03.
    assert abs(np.mean(np.sum(np.diff(orders) == 1, 1)) - 1) < 0.15
    assert abs(np.mean(np.sum(orders == np.arange(n), 1)) - 1) < 0.15
