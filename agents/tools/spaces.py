"""What the NumPy side knows about kinds of spaces: arrays for batches, and checks of values.

A batch of values of a `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary` space is one array
[B, ...]; of a `Dict` it is a dict of batches, and of a `Tuple` a tuple of them. Everything that
depends on the kind of a space is in this file, so that a further kind is added here only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

Space = gymnasium.Space
Spaces = tuple[Space, Space]  # Observation space, action space.
Nest = Any  # An array, or dicts and tuples of arrays.

_INTEGERS = 'iub'  # Kinds of NumPy dtypes that hold whole numbers: signed, unsigned, bool.
_LEAVES = (
    gymnasium.spaces.Box,
    gymnasium.spaces.Discrete,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)


def structure(space: Space) -> Any:
    """Return the spaces that a space is made of, as a nest like that of its values.

    Args:
        space: Any space; one that is neither a Dict nor a Tuple is made of itself.

    Returns:
        Nest of spaces: dicts for Dict, tuples for Tuple.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: structure(part) for key, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(structure(part) for part in space.spaces)
    return space


def map_parts(function: Callable[..., Any], nest: Nest, *others: Nest) -> Any:
    """Apply a function to every part of nests of equal structure.

    Args:
        function: Function of as many parts as there are nests.
        nest: Dicts and tuples of parts, or one part.
        others: More of the same structure.

    Returns:
        Nest of results.
    """
    if isinstance(nest, dict):
        return {
            key: map_parts(function, part, *(other[key] for other in others))
            for key, part in nest.items()
        }
    if isinstance(nest, tuple):
        return tuple(map_parts(function, *parts) for parts in zip(nest, *others, strict=True))
    return function(nest, *others)


def parts(nest: Nest, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield every part of a nest with its place in it, like "['arm'][0]", or '' for all of it."""
    if isinstance(nest, dict):
        for key, part in nest.items():
            yield from parts(part, f'{path}[{key!r}]')
    elif isinstance(nest, tuple):
        for index, part in enumerate(nest):
            yield from parts(part, f'{path}[{index}]')
    else:
        yield path, nest


def check_supported(space: Space, what: str, index: int) -> None:
    """Check that a space is of a kind that batches can hold.

    Args:
        space: Space of one environment.
        what: Its role, for the message, such as 'Observation space'.
        index: Number of the environment, for the message.

    Raises:
        TypeError: The space is not made of Box, Discrete, MultiDiscrete and MultiBinary.
    """
    leaves = list(parts(structure(space)))
    if not leaves:
        raise TypeError(f'{what} must not be empty, got {space} at index {index}.')
    for path, leaf in leaves:
        if not isinstance(leaf, _LEAVES):
            raise TypeError(
                f'{what}{path} must be a Box or Discrete space, MultiDiscrete, MultiBinary, or a '
                f'Dict or Tuple of these, got {leaf} at index {index}. Wrap the environment, for '
                'example with gymnasium.wrappers.FlattenObservation.'
            )


def check_equal(spaces: Sequence[Spaces], first_index: int = 0) -> None:
    """Check that environments of one batch have the same spaces, of supported kinds.

    Args:
        spaces: Observation and action space of each environment.
        first_index: Number of the first of them, for the message.

    Raises:
        TypeError: A space is of a kind that batches cannot hold.
        ValueError: A space differs from that of the first environment.
    """
    for what, kind in (('Observation space', 0), ('Action space', 1)):
        for offset, pair in enumerate(spaces):
            check_supported(pair[kind], what, first_index + offset)
            if pair[kind] != spaces[0][kind]:
                raise ValueError(
                    f'{what} must be the same for all environments of a batch, got {pair[kind]} at '
                    f'index {first_index + offset} and {spaces[0][kind]} at index {first_index}.'
                )


def zeros(
    space: Space, batch_shape: tuple[int, ...] = (), allocate: Callable[..., Any] = np.zeros
) -> Nest:
    """Make arrays that hold a batch of values of a space.

    Args:
        space: Space of one value.
        batch_shape: Dimensions in front, `()` for a single value.
        allocate: Function of shape and dtype that makes one array.

    Returns:
        Zeros, nest with dtypes of the space [*batch_shape, ...].
    """

    def make(leaf: Space) -> Any:
        # A dtype that came through pickle equals NumPy's own object without being it, as loops may
        # ask.
        return allocate(batch_shape + _shape(leaf), np.dtype(_dtype(leaf).str))

    return map_parts(make, structure(space))


def rows(space: Space, batch: Nest) -> list[Any]:
    """Split a batch of actions into what each environment's `step` takes.

    Args:
        space: Action space of one environment.
        batch: Actions, nest with dtypes of the space [B, ...].

    Returns:
        B values that share no memory with the batch, so that an environment may keep its action:
        `int` for Discrete, arrays for Box, MultiDiscrete and MultiBinary, and dicts and tuples of
        these.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        columns = [rows(part, batch[key]) for key, part in space.spaces.items()]
        return [dict(zip(space.spaces, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(space, gymnasium.spaces.Tuple):
        return list(zip(*map(rows, space.spaces, batch), strict=True))
    if isinstance(space, gymnasium.spaces.Discrete):
        return batch.tolist()
    return list(batch.copy())


def check_row(space: Space, value: Any, index: int, path: str = '') -> Nest:
    """Check one observation, which NumPy would otherwise broadcast or truncate without a word.

    Args:
        space: Observation space of one environment.
        value: Observation, array or number, or what a Dict or Tuple says.
        index: Number of the environment, for the message.
        path: Which part of an observation it is, for the message.

    Returns:
        The observation, as something to put into a row of a batch.

    Raises:
        ValueError: The observation has another shape or other parts than the space.
        TypeError: The observation would lose its fraction in the dtype of the space.
    """
    if isinstance(space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        end = f' at index {index}. The observation space is {space}.'
        return _check_parts(
            space,
            value,
            (f'Observation{path}', '', end),
            lambda part, item, place: check_row(part, item, index, path + place),
        )
    array = np.asarray(value)
    shape, dtype = _shape(space), _dtype(space)
    if array.shape != shape:
        raise ValueError(
            f'Observation{path} must have shape {shape}, got shape={array.shape} at index {index}. '
            f'The observation space is {space}.'
        )
    lossy = dtype.kind in _INTEGERS and array.dtype.kind not in _INTEGERS
    if lossy or array.dtype.kind not in _INTEGERS + 'f':
        raise TypeError(
            f'Observation{path} must have dtype {dtype}, got dtype={array.dtype} at index {index}. '
            f'The observation space is {space}.'
        )
    return array


def _check_parts(
    space: Any,
    value: Any,
    words: tuple[str, str, str],
    check: Callable[[Space, Any, str], Nest],
) -> Nest:
    """Check the parts of what a Dict or Tuple holds; what it has besides them is an error as well.

    Args:
        space: The Dict or Tuple.
        value: What must be like it.
        words: For the message: what it is, what holds for each part, and how the message ends.
        check: Checks a part, given its space, its value and its place, such as "['arm']".
    """
    what, each, end = words
    if isinstance(space, gymnasium.spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            keys = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(
                f'{what} must have the keys {list(space.spaces)}{each}, got {keys}{end}'
            )
        return {key: check(part, value[key], f'[{key!r}]') for key, part in space.spaces.items()}
    if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
        got = len(value) if isinstance(value, tuple | list) else type(value).__name__
        raise ValueError(
            f'{what} must be a tuple of {len(space.spaces)} parts{each}, got {got}{end}'
        )
    return tuple(
        check(part, item, f'[{number}]')
        for number, (part, item) in enumerate(zip(space.spaces, value, strict=True))
    )


def concatenate(batches: Sequence[Nest]) -> Nest:
    """Join batches along their first dimension into fresh arrays, also when there is only one."""
    if isinstance(batches[0], np.ndarray):
        return np.concatenate(batches)
    return map_parts(lambda *arrays: np.concatenate(arrays), *batches)


def replace_rows(batch: Nest, mask: np.ndarray, other: Nest) -> None:
    """Overwrite the rows of a batch at which the mask holds with those of another batch."""

    def replace(array: np.ndarray, source: np.ndarray) -> None:
        for index in indices:  # Few rows: faster than indexing with the mask.
            array[index] = source[index]

    indices = mask.nonzero()[0].tolist()
    map_parts(replace, batch, other)


def put(batch: Nest, index: int, row: Nest) -> None:
    """Overwrite one row of a batch."""
    map_parts(lambda array, value: array.__setitem__(index, value), batch, row)


def row(batch: Nest, index: int) -> Nest:
    """Return one row of a batch, sharing its memory."""
    return map_parts(lambda array: array[index], batch)


def copy(batch: Nest) -> Nest:
    """Copy the arrays of a batch."""
    return map_parts(np.copy, batch)


def part(batch: Nest, start: int, stop: int) -> Nest:
    """Return rows from `start` to `stop` of a batch, sharing its memory."""
    return map_parts(lambda array: array[start:stop], batch)


def assign(batch: Nest, other: Nest) -> None:
    """Overwrite a batch with the values of another."""
    map_parts(lambda array, values: array.__setitem__(..., values), batch, other)


def check_actions(space: Space, action: Any, num_envs: int, path: str = '') -> Nest:
    """Check a batch of actions before any environment sees one of them.

    Bounds of a Box are left to the environment, as in Gymnasium.

    Args:
        space: Action space of one environment.
        action: Actions, array or list [B, ...], or dicts and tuples of these as the space says.
        num_envs: Number of environments B.
        path: Which part of the actions it is, for the message.

    Returns:
        Actions, nest with dtypes of the space [B, ...]; may be the same arrays.

    Raises:
        ValueError: Wrong shape or parts, not finite, or outside of a space of whole numbers.
        TypeError: A dtype that the space cannot hold.
    """
    if isinstance(space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple)):
        return _check_parts(
            space,
            action,
            (f'Action{path}', ', each with one row per environment', '.'),
            lambda part, item, place: check_actions(part, item, num_envs, path + place),
        )
    return _check_array(space, action, num_envs, f'Action{path}')


def first_non_finite(batch: Nest) -> int | None:
    """Return the number of the first row with an infinity or NaN, or None; integers have none."""
    if not isinstance(batch, np.ndarray):
        found = [first_non_finite(array) for _, array in parts(batch)]
        return min((index for index in found if index is not None), default=None)
    if batch.dtype.kind != 'f':
        return None
    finite = np.isfinite(batch)
    if np.count_nonzero(finite) == finite.size:  # Twice as fast as all().
        return None
    return int(np.argmin(finite.reshape(len(batch), -1).all(axis=1)))


def check_finite(
    what: str, values: Nest, actions: Any, first_index: int, rows: np.ndarray | None = None
) -> None:
    """Check what environments returned.

    Args:
        what: What the values are, 'observation' or 'reward'.
        values: Values, nest [B, ...].
        actions: Last action of each environment, for the message; a list, or nest [B, ...].
        first_index: Number of the first environment, for the message.
        rows: Rows to check, bool [B], None for all.

    Raises:
        FloatingPointError: A value is not finite.
    """
    checked = values if rows is None else map_parts(lambda array: array[rows], values)
    index = first_non_finite(checked)
    if index is None:
        return
    if rows is not None:
        index = int(rows.nonzero()[0][index])
    path, array = next(
        pair for pair in parts(row(values, index)) if not np.all(np.isfinite(pair[1]))
    )
    raise FloatingPointError(
        f'{what.capitalize()}{path} must be finite, got {what}{path}={non_finite(array)} at index '
        f'{first_index + index}. Check the environment, and its actions: the last one was '
        f'{row(actions, index)}.'
    )


def non_finite(row: Any) -> str:
    """Describe the first infinity or NaN in a row, with its position if that says more."""
    position = tuple(np.argwhere(~np.isfinite(row))[0].tolist())
    return f'{row[position]}' + (f' in element {position}' if position else '')


def _shape(space: Space) -> tuple[int, ...]:
    assert space.shape is not None  # Whatever is neither a Dict nor a Tuple has one.
    return space.shape


def _dtype(space: Space) -> np.dtype:
    return np.dtype(space.dtype)


def _check_array(space: Space, action: Any, num_envs: int, what: str) -> np.ndarray:
    array = np.asarray(action)
    shape, dtype = (num_envs, *_shape(space)), _dtype(space)
    if array.shape != shape:
        raise ValueError(
            f'{what} must have shape {shape}, one row per environment, got shape={array.shape}.'
        )
    whole = not isinstance(space, gymnasium.spaces.Box)
    if array.dtype != dtype:
        array = _cast_actions(space, array, dtype, what)
    if whole:
        _check_range(space, array, what)
    elif dtype.kind == 'f':
        index = first_non_finite(array)
        if index is not None:
            raise ValueError(
                f'{what} must be finite, got action={non_finite(array[index])} at index {index}.'
            )
    return array


def _cast_actions(space: Space, array: np.ndarray, dtype: np.dtype, what: str) -> np.ndarray:
    kinds = {'f': 'fiu', 'b': 'b'}.get(dtype.kind, 'iu')
    if array.dtype.kind not in kinds:
        raise TypeError(
            f'{what} must have dtype {dtype}, got dtype={array.dtype}. The action space is {space}.'
        )
    if dtype.kind in 'iu' and isinstance(space, gymnasium.spaces.Box):
        info = np.iinfo(dtype)
        _check_bounds(array, int(info.min), int(info.max), f'{what} must fit dtype {dtype}')
    elif dtype.kind in 'iu':
        _check_range(space, array, what)  # Before the cast, which would wrap around.
    return array.astype(dtype)


def _check_range(space: Any, array: np.ndarray, what: str) -> None:
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
        _check_bounds(array, low, high, f'{what} must be in {space}')
        return
    if isinstance(space, gymnasium.spaces.MultiBinary):
        _check_bounds(array, 0, 1, f'{what} must be 0 or 1')
        return
    start, stop = int(space.start), int(space.start + space.n)
    _check_bounds(array, start, stop - 1, f'{what} must be in [{start}, {stop})')


def _check_bounds(array: np.ndarray, low: Any, high: Any, rule: str) -> None:
    inside = (array >= low) & (array <= high)
    if np.count_nonzero(inside) == array.size:
        return
    index = int(np.argmin(inside.reshape(len(array), -1).all(axis=1)))
    raise ValueError(f'{rule}, got action={array[index]} at index {index}.')
