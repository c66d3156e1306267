import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from agents.parts.actions import to_environment
from tests.modes import in_every_mode

spaces = gymnasium.spaces
INF = np.inf


def box(low, high, dtype=np.float32):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


@in_every_mode
@pytest.mark.parametrize(
    ('space', 'sample', 'action'),
    [
        # Both sides finite: 0 is the middle, ±1 the bounds, beyond them clipped.
        (box([0, -2], [10, 4]), [[0, 0], [1, -1], [0.5, 0.5], [9, -9]],
         [[5, 1], [10, -2], [7.5, 2.5], [10, -2]]),
        (box([-1, -1], [1, 1]), [[0.25, -3]], [[0.25, -1]]),
        # An infinite side: not rescaled, clipped where there is a bound.
        (box([-INF, 0, -INF], [INF, INF, 2]), [[-50, -1, 1], [50, 9, 3]],
         [[-50, 0, 1], [50, 9, 2]]),
        (box([0, -INF], [10, INF]), [[1, 7]], [[10, 7]]),
        # Integers are rounded: 1 + 1 · sample.
        (box([0, 0], [2, 2], np.int32), [[-0.6, 0.4], [0.6, 9]], [[0, 1], [2, 2]]),
        (box([0], [255], np.uint8), [[-7], [1], [0.5]], [[0], [255], [191]]),  # 191.25
        (box([[0, 1], [2, 3]], [[2, 3], [4, 5]], np.float64), [[0, 0, 1, -1]],
         [[[1, 2], [4, 3]]]),
        (box(0, 4), [[0], [1]], [2, 4]),
        (spaces.Discrete(3), [0, 2], [0, 2]),
        (spaces.Discrete(3, start=-5), [0, 2], [-5, -3]),
    ],
    ids=str,
)  # fmt: skip
def test_samples_become_actions_of_the_space(mode, space, sample, action):
    discrete = isinstance(space, spaces.Discrete)
    sample = tf.constant(sample, tf.int32 if discrete else tf.float32)
    result = mode(lambda x: to_environment(x, space))(sample).numpy()
    np.testing.assert_array_equal(result, action)
    assert result.dtype == space.dtype
    assert all(space.contains(row if discrete else np.asarray(row)) for row in result)


@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.float64])
def test_rounding_never_leaves_the_space(dtype):
    # Bounds like 0.1 have no exact float, and rescaling rounds.
    random = np.random.default_rng(0)
    low = random.normal(size=50).astype(dtype)
    high = (low + random.uniform(0.1, 2, size=50)).astype(dtype)
    space = box(low, high, dtype)
    sample = tf.constant(np.linspace(-1.5, 1.5, 101)[:, None].repeat(50, 1), tf.float32)
    for row in to_environment(sample, space).numpy():
        assert space.contains(row)


def test_the_widest_bounds_do_not_overflow():
    largest = np.finfo(np.float32).max
    action = to_environment(tf.constant([[0.0], [1.0], [-1.0]]), box([-largest], [largest]))
    np.testing.assert_array_equal(action, [[0], [largest], [-largest]])


def test_a_discrete_action_keeps_a_start_beyond_int32():
    action = to_environment(tf.constant([1]), spaces.Discrete(3, start=2**40))
    assert action.dtype == tf.int64
    np.testing.assert_array_equal(action, [2**40 + 1])


def test_a_space_of_plus_minus_one_costs_only_the_clipping():
    @tf.function(input_signature=[tf.TensorSpec([4, 2])])
    def convert(sample):
        return to_environment(sample, box([-1, -1], [1, 1]))

    types = {op.type for op in convert.get_concrete_function().graph.get_operations()}
    assert types <= {'Placeholder', 'Const', 'Maximum', 'Minimum', 'Identity', 'NoOp'}


def test_an_unsupported_space_is_named_together_with_what_is_possible():
    with pytest.raises(TypeError, match=r'must be Box or Discrete, .*got space=Text'):
        to_environment(tf.zeros([1, 2]), spaces.Text(2))
