"""The spaces of a run's environments as plain YAML, so that its policy needs no environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from agents.scripts import runs
from agents.scripts.mistakes import UserError

_NAMES = ('observation_space', 'action_space')


def save(run: runs.Run, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Write the spaces of one environment to spaces.yaml."""
    data = dict(zip(_NAMES, map(to_plain, (observation_space, action_space)), strict=True))
    runs.write_atomically(run.folder / 'spaces.yaml', runs.to_yaml(data))


def load(run: runs.Run) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Read spaces.yaml.

    Returns:
        Observation space and action space of one environment.

    Raises:
        UserError: The file is missing or damaged.
    """
    path = run.folder / 'spaces.yaml'
    data = runs.read_yaml(path)
    try:
        observation_space, action_space = (from_plain(data[name]) for name in _NAMES)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ) as e:
        raise UserError(
            f'The file must describe two spaces, got {path}: {e!r}. It is written again when '
            f'training goes on: {run.resume_command}'
        ) from None
    return observation_space, action_space


def to_plain(space: gymnasium.Space) -> dict[str, Any]:
    """Describe a space by numbers, texts, lists and mappings.

    Raises:
        TypeError: The space is of a kind that cannot be described.
    """
    kind = type(space).__name__
    match space:
        case spaces.Box():
            bounds = {'low': _short(space.low), 'high': _short(space.high)}
            return {'kind': kind, **bounds, 'shape': list(space.shape), 'dtype': str(space.dtype)}
        case spaces.Discrete():
            numbers = {'n': int(space.n), 'start': int(space.start)}
            return {'kind': kind, **numbers, 'dtype': str(space.dtype)}
        case spaces.MultiDiscrete():
            numbers = {'nvec': space.nvec.tolist(), 'start': space.start.tolist()}
            return {'kind': kind, **numbers, 'dtype': str(space.dtype)}
        case spaces.MultiBinary():
            shape = list(space.shape)
            return {'kind': kind, 'n': shape[0] if isinstance(space.n, int) else shape}
        case spaces.Dict():
            # Pairs, since YAML sorts mappings, and flattened values are in the space's own order.
            return {'kind': kind, 'spaces': [[key, to_plain(x)] for key, x in space.items()]}
        case spaces.Tuple():
            return {'kind': kind, 'spaces': [to_plain(x) for x in space]}
    raise TypeError(f'The space must be Box, Discrete or made of such, got space={space}.')


def from_plain(data: dict[str, Any]) -> gymnasium.Space:
    """Make a space of what `to_plain` returned.

    Raises:
        KeyError, TypeError, ValueError: The description is not complete or not of a space.
    """
    arguments = dict(data)
    kind = arguments.pop('kind')
    if 'dtype' in arguments:
        arguments['dtype'] = np.dtype(arguments['dtype']).type
    match kind:
        case 'Box':
            shape, dtype = tuple(arguments['shape']), arguments['dtype']
            low, high = (np.full(shape, arguments[name], dtype) for name in ('low', 'high'))
            return spaces.Box(low, high, shape, dtype)
        case 'Discrete':
            return spaces.Discrete(**arguments)
        case 'MultiDiscrete':
            return spaces.MultiDiscrete(**arguments)
        case 'MultiBinary':
            return spaces.MultiBinary(**arguments)
        case 'Dict':
            return spaces.Dict([(key, from_plain(x)) for key, x in arguments['spaces']])
        case 'Tuple':
            return spaces.Tuple([from_plain(x) for x in arguments['spaces']])
    raise ValueError(f'unknown kind {kind!r}')


def _short(bound: np.ndarray) -> Any:
    """One number for all elements if they are equal: images have many."""
    first = bound.flat[0] if bound.size else bound.dtype.type(0)
    return first.item() if np.all(bound == first) else bound.tolist()
