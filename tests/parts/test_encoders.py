import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from agents.parts import encoders
from agents.parts.normalize import StreamingNormalize, make_normalizer

IMAGE = Box(0, 255, (2, 3, 4), np.uint8)


@pytest.mark.parametrize(
    ('space', 'image', 'grid'),
    [
        (IMAGE, True, True),
        (Box(0, 255, (84, 84), np.uint8), True, True),
        (Box(0, 255, (2, 2), np.uint8), False, False),  # A small table of numbers.
        (Box(0, 255, (128,), np.uint8), False, False),  # The memory of a console.
        (Box(0, 254, (2, 3, 4), np.uint8), False, True),
        (Box(0, 255, (2, 3, 4), np.float32), False, True),
        (Discrete(3), False, False),
    ],
)
def test_bytes_of_two_and_three_dimensions_are_images(space, image, grid):
    assert (encoders.is_image(space), encoders.is_grid(space)) == (image, grid)


@pytest.mark.parametrize(
    ('space', 'obs', 'vectors'),
    [
        # One number after another, each counted from its start.
        (MultiDiscrete([2, 3], start=[1, -1]), [[1, -1], [2, 1]],
         [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]]),
        (MultiDiscrete([[2], [2]]), [[[1], [0]]], [[0, 1, 1, 0]]),
        (MultiBinary([2, 2]), [[[1, 0], [0, 1]]], [[1, 0, 0, 1]]),
        (Box(0, 255, (1, 1, 2), np.uint8), [[[[0, 51]]]], [[0, 0.2]]),  # 51 / 255
    ],
)  # fmt: skip
def test_observations_become_vectors(space, obs, vectors):
    encoded = encoders.encode(tf.constant(obs, space.dtype), space)
    assert encoded.dtype == tf.float32
    np.testing.assert_allclose(encoded, vectors, rtol=1e-6)
    assert encoders.input_size(space) == len(vectors[0])


def test_parts_are_joined_in_the_order_of_the_space_whatever_that_of_the_values():
    space = Dict([('z', Discrete(2)), ('a', Tuple([Box(-9, 9, (1,)), MultiBinary(2)]))])
    obs = {'a': (tf.constant([[5.0]]), tf.constant([[0, 1]], tf.int8)), 'z': tf.constant([1])}
    np.testing.assert_array_equal(encoders.encode(obs, space), [[0, 1, 5, 0, 1]])
    assert encoders.input_size(space) == 5
    arrays = encoders.encode_arrays(obs, space)
    assert {key: tf.nest.map_structure(lambda x: x.shape[1:], arrays[key]) for key in arrays} == {
        'z': (2,),
        'a': ((1,), (2,)),
    }


@pytest.mark.parametrize(
    ('shape', 'moved'),
    [
        ((9, 9, 3), (0, 1, 2)),
        ((3, 9, 8), (1, 2, 0)),
        ((4, 9, 4), (0, 1, 2)),
        ((9, 8), (0, 1, None)),
    ],
)
def test_channels_are_the_smaller_one_of_first_and_last(shape, moved):
    space = Box(0, 255, shape, np.uint8)
    image = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(np.uint8)
    expected = image[..., None] if moved[-1] is None else image.transpose(0, *np.add(moved, 1))
    encoded = encoders.encode_grid(tf.constant(image), space)
    np.testing.assert_allclose(encoded, expected / 255, rtol=1e-6)
    assert encoders.grid_shape(space) == expected.shape[1:]


@pytest.mark.parametrize(
    'space', [Text(3), Dict(a=Text(2)), gymnasium.spaces.Sequence(Discrete(2)), Dict()], ids=str
)
def test_an_unsupported_space_is_named_together_with_what_is_possible(space):
    with pytest.raises(TypeError, match=r'must be Box or Discrete, .*Tuple of these, got space='):
        encoders.encode(None, space)
    with pytest.raises(TypeError, match='must be Box or Discrete'):
        encoders.input_size(space)


def test_boxes_that_are_no_images_are_standardised_each_by_its_own_statistics():
    space = Dict(
        mask=Box(0, 1, (2,)), image=IMAGE, which=Discrete(2), parts=Tuple([Box(-9, 9, (1,))] * 2)
    )
    random = np.random.default_rng(0)
    raw = random.normal(5, 3, (50, 1)).astype(np.float32)
    obs = {
        'parts': (tf.constant(raw), tf.constant(2 * raw)),
        'which': tf.ones([50], tf.int64),
        'image': tf.ones([50, *IMAGE.shape], tf.uint8),
        'mask': tf.ones([50, 2]),
    }
    normalize = make_normalizer(space, 10.0, 'mask')
    assert len(list(normalize.submodules)) == 2
    assert len(normalize.trainable_variables) == 0 and len(normalize.variables) == 8
    normalize.update(obs, tf.range(50) < 40)
    result = normalize.transform(obs)
    for key in ('which', 'image', 'mask'):
        assert result[key] is obs[key]
    expected = (raw - raw[:40].mean()) / raw[:40].std()
    for part in result['parts']:
        np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)


def test_one_box_is_standardised_as_a_whole_and_other_spaces_not_at_all():
    assert isinstance(make_normalizer(Box(-1, 1, (2,)), 1.0), StreamingNormalize)
    for space in (Discrete(2), IMAGE, Dict(a=Discrete(2), b=IMAGE)):
        assert make_normalizer(space, 1.0) is None


def test_a_mask_must_be_a_part_of_the_observation():
    space = Dict(mask=MultiBinary(2), x=Discrete(3))
    assert encoders.observed(space, 'mask') == Dict(x=Discrete(3))
    for other in (space, Discrete(2)):
        with pytest.raises(ValueError, match=r"key of a Dict .*got action_mask='action_mask'"):
            encoders.observed(other, 'action_mask')
