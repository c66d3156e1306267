import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from agents.tools import spaces

BOX = Box(-1, 1, (2,), np.float32)
IMAGE = Box(0, 255, (2, 3), np.uint8)
DISCRETE = Discrete(3, start=2)


@pytest.mark.parametrize('space', [BOX, IMAGE, DISCRETE, Box(0, 1, (), np.float64)])
def test_zeros_have_the_shape_and_dtype_of_the_space(space):
    array = spaces.zeros(space, (5,))
    assert array.shape == (5, *space.shape)
    assert array.dtype == space.dtype
    assert not array.any()
    assert spaces.zeros(space).shape == space.shape


def test_zeros_have_the_dtype_object_that_numpy_uses():
    space = pickle.loads(pickle.dumps(BOX))
    assert spaces.zeros(space, (5,)).dtype is np.dtype(np.float32)


def test_rows_of_a_discrete_space_are_python_integers():
    values = spaces.rows(DISCRETE, np.array([2, 4]))
    assert values == [2, 4]
    assert all(type(value) is int for value in values)


def test_rows_of_a_box_share_no_memory_with_the_batch():
    batch = np.array([[0.25, 0.5], [0.75, 1.0]], np.float32)
    values = spaces.rows(BOX, batch)
    batch[:] = 0
    np.testing.assert_array_equal(values[1], [0.75, 1.0])
    assert values[1].dtype == np.float32


def test_a_row_of_another_shape_is_an_error_and_not_broadcast():
    message = r'Observation must have shape \(2,\), got shape=\(1,\) at index 3.*Box'
    with pytest.raises(ValueError, match=message):
        spaces.check_row(BOX, np.zeros(1, np.float32), 3)


@pytest.mark.parametrize('space', [IMAGE, DISCRETE])
def test_a_row_that_would_lose_its_fraction_is_an_error(space):
    with pytest.raises(
        TypeError, match=r'must have dtype (uint8|int64), got dtype=float64 at index 1'
    ):
        spaces.check_row(space, np.full(space.shape, 0.5), 1)


def test_a_row_of_text_is_an_error():
    with pytest.raises(TypeError, match='got dtype=<U1 at index 0'):
        spaces.check_row(BOX, np.array(['a', 'b']), 0)


def test_a_row_may_be_a_list_or_hold_integers():
    np.testing.assert_array_equal(spaces.check_row(BOX, [1, 0], 0), [1, 0])
    assert spaces.check_row(DISCRETE, 3, 0) == 3


def test_other_kinds_of_spaces_are_named():
    space = MultiDiscrete([2, 3])
    with pytest.raises(
        TypeError, match=r'Action space must be a Box .* got MultiDiscrete.*index 4'
    ):
        spaces.check_supported(space, 'Action space', 4)


def test_different_spaces_are_named_with_their_numbers():
    other = Box(-1, 1, (3,), np.float32)
    with pytest.raises(ValueError, match=r'Observation space .* \(3,\).* at index 6 .* at index 5'):
        spaces.check_equal([(BOX, DISCRETE), (other, DISCRETE)], first_index=5)
    with pytest.raises(ValueError, match=r'Action space .*Discrete\(4\) at index 1 .* at index 0'):
        spaces.check_equal([(BOX, DISCRETE), (BOX, Discrete(4))])


def test_actions_come_out_in_the_dtype_of_the_space():
    action = spaces.check_actions(BOX, [[0, 1], [1, 0]], 2)
    assert action.dtype == np.float32
    np.testing.assert_array_equal(action, [[0, 1], [1, 0]])
    assert spaces.check_actions(DISCRETE, np.array([2, 4], np.int32), 2).dtype == np.int64


def test_checked_actions_of_the_right_dtype_are_not_copied():
    action = np.zeros((2, 2), np.float32)
    assert spaces.check_actions(BOX, action, 2) is action


@pytest.mark.parametrize(('index', 'value'), [(0, 1), (1, 5), (1, -1), (0, 2**40)])
def test_an_action_outside_of_a_discrete_space_is_named(index, value):
    action = np.array([3, 3])
    action[index] = value
    with pytest.raises(ValueError, match=rf'in \[2, 5\), got action={value} at index {index}'):
        spaces.check_actions(DISCRETE, action, 2)


def test_an_action_is_checked_before_its_cast_can_wrap_around():
    action = np.array([2, 2**64 - 1], np.uint64)
    with pytest.raises(ValueError, match=rf'got action={2**64 - 1} at index 1'):
        spaces.check_actions(DISCRETE, action, 2)
    with pytest.raises(ValueError, match=r'fit dtype uint8, got action=\[256 +0\] at index 1'):
        spaces.check_actions(Box(0, 255, (2,), np.uint8), [[0, 1], [256, 0]], 2)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_named(value):
    action = np.zeros((3, 2), np.float32)
    action[1, 1] = value
    with pytest.raises(
        ValueError, match=rf'must be finite, got action={value} in element \(1,\) at index 1'
    ):
        spaces.check_actions(BOX, action, 3)


@pytest.mark.parametrize('shape', [(2,), (3, 2), (2, 3), (2, 2, 1), ()])
def test_actions_of_another_shape_are_an_error(shape):
    with pytest.raises(ValueError, match=r'Action must have shape \(2, 2\)'):
        spaces.check_actions(BOX, np.zeros(shape, np.float32), 2)


@pytest.mark.parametrize(
    ('space', 'action'),
    [
        (DISCRETE, np.array([2.0, 3.0])),
        (DISCRETE, np.array([True, False])),
        (BOX, np.zeros((2, 2), bool)),
        (BOX, np.zeros((2, 2), complex)),
        (BOX, np.full((2, 2), None)),
        (Box(0, 9, (2,), np.int32), np.zeros((2, 2))),
        (Box(0, 1, (2,), bool), np.zeros((2, 2), int)),
    ],
)
def test_actions_of_a_dtype_that_the_space_cannot_hold_are_an_error(space, action):
    with pytest.raises(
        TypeError, match=rf'Action must have dtype {np.dtype(space.dtype)}, got dtype='
    ):
        spaces.check_actions(space, action, 2)


def test_the_first_row_that_is_not_finite_is_found():
    batch = np.zeros((4, 2, 2))
    assert spaces.first_non_finite(batch) is None
    batch[3, 0, 0] = np.nan
    assert spaces.first_non_finite(batch) == 3
    batch[2, 1, 1] = -np.inf
    assert spaces.first_non_finite(batch) == 2
    assert spaces.first_non_finite(np.zeros(3, np.uint8)) is None


def test_joining_one_batch_copies_it():
    batch = np.zeros((2, 2))
    assert not np.shares_memory(spaces.concatenate([batch]), batch)


def test_rows_are_replaced_only_where_the_mask_holds():
    batch = np.array([1, 2, 3])
    spaces.replace_rows(batch, np.array([False, True, False]), np.array([7, 8, 9]))
    assert batch.tolist() == [1, 8, 3]


def test_spaces_of_gymnasium_tasks_are_supported():
    env = gymnasium.make('CartPole-v1')
    spaces.check_equal([(env.observation_space, env.action_space)] * 2)
