import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from agents.tools import spaces

BOX = Box(-1, 1, (2,), np.float32)
IMAGE = Box(0, 255, (2, 3), np.uint8)
DISCRETE = Discrete(3, start=2)
NUMBERS = MultiDiscrete([2, 3], start=[1, -1])


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
    space = Text(3)
    with pytest.raises(TypeError, match=r'Action space must be a Box .* got Text.*index 4'):
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


# Dicts and tuples of arrays.

NESTED = Dict([('z', Tuple([BOX, DISCRETE])), ('a', MultiBinary(2)), ('m', NUMBERS)])


def nested(*rows):
    """A batch of rows (Box, Discrete, MultiBinary, MultiDiscrete)."""
    box, discrete, bits, numbers = (
        np.array(x, dtype)
        for x, dtype in zip(
            zip(*rows, strict=True), (np.float32, np.int64, np.int8, np.int64), strict=True
        )
    )
    return {'z': (box, discrete), 'a': bits, 'm': numbers}


ROWS = [([0, 0.5], 2, [0, 1], [1, -1]), ([1, 0], 4, [1, 1], [2, 1])]


def test_a_batch_of_dicts_is_a_dict_of_batches():
    batch = spaces.zeros(NESTED, (2,))
    shapes = {path: (array.shape, array.dtype.name) for path, array in spaces.parts(batch)}
    assert shapes == {
        "['z'][0]": ((2, 2), 'float32'),
        "['z'][1]": ((2,), 'int64'),
        "['a']": ((2, 2), 'int8'),
        "['m']": ((2, 2), 'int64'),
    }
    assert isinstance(batch['z'], tuple)


def test_rows_of_nested_batches_are_in_the_space_and_share_no_memory():
    batch = nested(*ROWS)
    rows = spaces.rows(NESTED, batch)
    assert all(NESTED.contains(row) for row in rows)
    assert rows[1]['z'][1] == 4 and type(rows[1]['z'][1]) is int
    batch['m'][:] = 0
    assert rows[1]['m'].tolist() == [2, 1]


def test_nested_batches_are_joined_cut_and_overwritten_part_by_part():
    batch = nested(*ROWS)
    joined = spaces.concatenate([batch, spaces.part(batch, 1, 2)])
    assert joined['z'][1].tolist() == [2, 4, 4]
    spaces.replace_rows(joined, np.array([True, False, False]), spaces.copy(joined))
    target = spaces.zeros(NESTED, (3,))
    spaces.replace_rows(target, np.array([False, True, False]), joined)
    assert target['z'][1].tolist() == [0, 4, 0] and target['a'].tolist() == [[0, 0], [1, 1], [0, 0]]
    spaces.assign(target, joined)
    spaces.put(target, 2, spaces.row(target, 0))
    assert target['m'].tolist() == [[1, -1], [2, 1], [1, -1]]
    assert batch['z'][1].tolist() == [2, 4]  # Joining has copied.


def test_observations_are_checked_part_by_part_whatever_their_order():
    value = {'a': [0, 1], 'm': [1, 1], 'z': [np.zeros(2, np.float32), 3]}
    row = spaces.check_row(NESTED, value, 0)
    assert list(row) == ['z', 'a', 'm'] and isinstance(row['z'], tuple)
    cases = [
        ({**value, 'a': [0]}, ValueError, r"Observation\['a'\] must have shape \(2,\), .*index 6"),
        ({**value, 'm': [1, 0.5]}, TypeError, r"Observation\['m'\] must have dtype int64"),
        ({'z': 0, 'm': 0}, ValueError, r"must have the keys \['z', 'a', 'm'\], got \['z', 'm'\]"),
        ({**value, 'z': [1]}, ValueError, r"Observation\['z'\] must be a tuple of 2 parts, got 1"),
        (np.zeros(2), ValueError, 'must have the keys .*, got ndarray'),
    ]
    for wrong, kind, message in cases:
        with pytest.raises(kind, match=message):
            spaces.check_row(NESTED, wrong, 6)


def test_actions_are_checked_part_by_part():
    batch = nested(*ROWS)
    checked = spaces.check_actions(NESTED, {**batch, 'a': [[0, 1], [1, 0]]}, 2)
    assert checked['a'].dtype == np.int8 and checked['m'] is batch['m']
    cases = [
        ('a', [[0, 1], [1, 2]], ValueError, r"Action\['a'\] must be 0 or 1, .*index 1"),
        ('m', [[1, -1], [3, 0]], ValueError, r"Action\['m'\] must be in Multi.*\[3 0\] at index 1"),
        ('z', [np.zeros((2, 2)), [2, 5]], ValueError, r"Action\['z'\]\[1\] must be in \[2, 5\)"),
        ('z', 3, ValueError, r"Action\['z'\] must be a tuple of 2 parts, .*got int"),
        ('a', [[0.0, 1], [1, 0]], TypeError, r"Action\['a'\] must have dtype int8"),
    ]
    for key, value, kind, message in cases:
        with pytest.raises(kind, match=message):
            spaces.check_actions(NESTED, {**batch, key: value}, 2)
    with pytest.raises(ValueError, match=r"must have the keys .* got \['z'\]"):
        spaces.check_actions(NESTED, {'z': batch['z']}, 2)


def test_a_part_that_is_not_finite_is_named():
    batch = nested(*ROWS)
    batch['z'][0][1, 0] = np.nan
    assert spaces.first_non_finite(batch) == 1
    message = r"Observation\['z'\]\[0\] must be finite, .*=nan in element \(0,\) at index 4.* was 8"
    with pytest.raises(FloatingPointError, match=message):
        spaces.check_finite('observation', batch, [7, 8], 3)
    spaces.check_finite('observation', batch, [7, 8], 3, np.array([True, False]))


def test_spaces_without_a_batch_are_named_by_their_place():
    for space, message in (
        (Dict(x=Tuple([BOX, Text(1)])), r"space\['x'\]\[1\] must be a Box .* got Text"),
        (Dict(), 'must not be empty'),
    ):
        with pytest.raises(TypeError, match=message):
            spaces.check_supported(space, 'Action space', 0)
