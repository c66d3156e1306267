import numpy as np
import pytest
from gymnasium import spaces

from agents.scripts import configs, runs, saved_spaces
from agents.scripts.mistakes import UserError

SPACES = [
    spaces.Box(-1, 1, (3,), np.float32),
    spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Box(np.float32([-1, -np.inf]), np.float32([0.1, np.inf])),
    spaces.Box(0, 255, (84, 84, 3), np.uint8),
    spaces.Box(-3, 7, (), np.int64),
    spaces.Discrete(4),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiDiscrete([[3, 4], [1, 2]], start=[[1, 1], [0, 0]]),
    spaces.MultiBinary(5),
    spaces.MultiBinary([2, 3]),
    spaces.Box(
        np.array([[-1e300, 0.1], [-np.inf, 1 / 3]]),
        np.array([[1e300, 0.2], [np.inf, 1]]),
        dtype=np.float64,
    ),
    spaces.Box(0.0, 1.0, (8, 8, 1), np.float32),
    spaces.Box(-np.inf, 0.1, (2,), np.float16),
    spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    spaces.Discrete(3, dtype=np.int32),
    spaces.MultiDiscrete([3, 4], dtype=np.int32),
    spaces.Tuple([spaces.Dict(z=spaces.MultiBinary(2), y=spaces.Dict(x=spaces.Box(-np.inf, 0)))]),
    spaces.Dict(
        {'b': spaces.Discrete(2), 'a': spaces.Tuple([spaces.Box(0, 1), spaces.Discrete(3)])}
    ),
]


@pytest.fixture
def run(tmp_path):
    return runs.create(str(tmp_path), 'debug', configs.debug())


def check_identical(read, space):
    """Compare every number; Gymnasium calls bounds equal that are only close."""
    assert read == space
    assert read.dtype == space.dtype
    for name in ('low', 'high', 'nvec', 'start', 'n'):
        if hasattr(space, name):
            np.testing.assert_array_equal(getattr(read, name), getattr(space, name), strict=True)
    if isinstance(space, spaces.Dict):
        assert list(read.spaces) == list(space.spaces)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        values = (x.values() if isinstance(x, spaces.Dict) else x for x in (read, space))
        for pair in zip(*values, strict=True):
            check_identical(*pair)


@pytest.mark.parametrize('space', SPACES, ids=str)
def test_a_space_is_read_as_it_was_written(run, space):
    saved_spaces.save(run, space, spaces.Discrete(2))
    read, action_space = saved_spaces.load(run)
    check_identical(read, space)
    assert action_space == spaces.Discrete(2)


def test_an_image_takes_a_few_lines(run):
    image = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    saved_spaces.save(run, image, spaces.Discrete(2))
    assert len((run.folder / 'spaces.yaml').read_text()) < 300


def test_a_space_of_another_kind_is_an_error():
    with pytest.raises(TypeError, match='must be Box, Discrete or made of such'):
        saved_spaces.to_plain(spaces.Text(3))


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('observation_space: {kind: Box}\n', 'must describe two spaces'),
        ('observation_space: {kind: Nothing}\naction_space: {kind: Nothing}\n', 'unknown kind'),
        (
            'observation_space: {kind: Dict, spaces: [1]}\naction_space: 1\n',
            'must describe two spaces',
        ),
        (
            'observation_space: {kind: Box, low: 0, high: 300, shape: [1], dtype: uint8}\n',
            'must describe two spaces',
        ),
        ('[1, 2]', 'must hold names and values'),
        ('{', 'must be plain YAML'),
    ],
)
def test_a_damaged_file_is_an_error(run, text, message):
    (run.folder / 'spaces.yaml').write_text(text)
    with pytest.raises(UserError, match=message):
        saved_spaces.load(run)


def test_a_missing_file_is_an_error(run):
    with pytest.raises(UserError, match=r'must be readable.*spaces\.yaml'):
        saved_spaces.load(run)
