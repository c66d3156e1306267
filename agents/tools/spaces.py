"""What the NumPy side knows about kinds of spaces: arrays for batches, and checks of values.

A batch of values of a `Box` or `Discrete` space is one array [B, ...]. Everything that depends on
the kind of a space is in this file, so that a further kind is added here only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

Space = gymnasium.Space
Spaces = tuple[Space, Space]  # Observation space, action space.

_INTEGERS = 'iub'  # Kinds of NumPy dtypes that hold whole numbers: signed, unsigned, bool.


def check_supported(space: Space, what: str, index: int) -> None:
    """Check that a space is of a kind that batches can hold.

    Args:
        space: Space of one environment.
        what: Its role, for the message, such as 'Observation space'.
        index: Number of the environment, for the message.

    Raises:
        TypeError: The space is neither Box nor Discrete.
    """
    if not isinstance(space, (gymnasium.spaces.Box, gymnasium.spaces.Discrete)):
        raise TypeError(
            f'{what} must be a Box or Discrete space, got {space} at index {index}. Wrap the '
            'environment, for example with gymnasium.wrappers.FlattenObservation.'
        )


def check_equal(spaces: Sequence[Spaces], first_index: int = 0) -> None:
    """Check that environments of one batch have the same spaces, of supported kinds.

    Args:
        spaces: Observation and action space of each environment.
        first_index: Number of the first of them, for the message.

    Raises:
        TypeError: A space is neither Box nor Discrete.
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
) -> Any:
    """Make arrays that hold a batch of values of a space.

    Args:
        space: Space of one value.
        batch_shape: Dimensions in front, `()` for a single value.
        allocate: Function of shape and dtype that makes one array.

    Returns:
        Zeros, dtype of the space [*batch_shape, ...].
    """
    # A dtype that came through pickle equals NumPy's own object without being it, as loops may ask.
    dtype = np.dtype(np.dtype(space.dtype).str)
    return allocate(batch_shape + _shape(space), dtype)


def rows(space: Space, batch: Any) -> list[Any]:
    """Split a batch of actions into what each environment's `step` takes.

    Args:
        space: Action space of one environment.
        batch: Actions, dtype of the space [B, ...].

    Returns:
        B values that share no memory with the batch, so that an environment may keep its action:
        `int` for Discrete and arrays for Box.
    """
    if isinstance(space, gymnasium.spaces.Discrete):
        return batch.tolist()
    return list(batch.copy())


def check_row(space: Space, value: Any, index: int) -> Any:
    """Check one observation, which NumPy would otherwise broadcast or truncate without a word.

    Args:
        space: Observation space of one environment.
        value: Observation, array or number.
        index: Number of the environment, for the message.

    Returns:
        The observation, as something to assign to a row of a batch.

    Raises:
        ValueError: The observation has another shape than the space.
        TypeError: The observation would lose its fraction in the dtype of the space.
    """
    array = np.asarray(value)
    shape, dtype = _shape(space), np.dtype(space.dtype)
    if array.shape != shape:
        raise ValueError(
            f'Observation must have shape {shape}, got shape={array.shape} at index {index}. '
            f'The observation space is {space}.'
        )
    lossy = dtype.kind in _INTEGERS and array.dtype.kind not in _INTEGERS
    if lossy or array.dtype.kind not in _INTEGERS + 'f':
        raise TypeError(
            f'Observation must have dtype {dtype}, got dtype={array.dtype} at index {index}. '
            f'The observation space is {space}.'
        )
    return array


def concatenate(batches: Sequence[Any]) -> Any:
    """Join batches along their first dimension into fresh arrays, also when there is only one."""
    return np.concatenate(batches)


def replace_rows(batch: Any, mask: np.ndarray, other: Any) -> None:
    """Overwrite the rows of a batch at which the mask holds with those of another batch."""
    for index in mask.nonzero()[0].tolist():  # Few rows: faster than indexing with the mask.
        batch[index] = other[index]


def copy(batch: Any) -> Any:
    """Copy the arrays of a batch."""
    return batch.copy()


def part(batch: Any, start: int, stop: int) -> Any:
    """Return rows from `start` to `stop` of a batch, sharing its memory."""
    return batch[start:stop]


def assign(batch: Any, other: Any) -> None:
    """Overwrite a batch with the values of another."""
    batch[...] = other


def check_actions(space: Space, action: Any, num_envs: int) -> Any:
    """Check a batch of actions before any environment sees one of them.

    Bounds of a Box are left to the environment, as in Gymnasium.

    Args:
        space: Action space of one environment.
        action: Actions, array or list [B, ...].
        num_envs: Number of environments B.

    Returns:
        Actions, dtype of the space [B, ...]; may be the same array.

    Raises:
        ValueError: Wrong shape, not finite, or outside of a Discrete space.
        TypeError: A dtype that the space cannot hold.
    """
    array = np.asarray(action)
    shape, dtype = (num_envs, *_shape(space)), np.dtype(space.dtype)
    if array.shape != shape:
        raise ValueError(
            f'Action must have shape {shape}, one row per environment, got shape={array.shape}.'
        )
    if array.dtype != dtype:
        array = _cast_actions(space, array, dtype)
    if isinstance(space, gymnasium.spaces.Discrete):
        _check_range(space, array)
    elif dtype.kind == 'f':
        index = first_non_finite(array)
        if index is not None:
            raise ValueError(
                f'Action must be finite, got action={non_finite(array[index])} at index {index}.'
            )
    return array


def first_non_finite(batch: Any) -> int | None:
    """Return the number of the first row with an infinity or NaN, or None; integers have none."""
    if batch.dtype.kind != 'f':
        return None
    finite = np.isfinite(batch)
    if np.count_nonzero(finite) == finite.size:  # Twice as fast as all().
        return None
    return int(np.argmin(finite.reshape(len(batch), -1).all(axis=1)))


def check_finite(
    what: str, values: Any, actions: Any, first_index: int, rows: np.ndarray | None = None
) -> None:
    """Check what environments returned.

    Args:
        what: What the values are, 'observation' or 'reward'.
        values: Values [B, ...].
        actions: Last action of each environment, for the message.
        first_index: Number of the first environment, for the message.
        rows: Rows to check, bool [B], None for all.

    Raises:
        FloatingPointError: A value is not finite.
    """
    index = first_non_finite(values if rows is None else values[rows])
    if index is None:
        return
    if rows is not None:
        index = int(rows.nonzero()[0][index])
    raise FloatingPointError(
        f'{what.capitalize()} must be finite, got {what}={non_finite(values[index])} at index '
        f'{first_index + index}. Check the environment, and its actions: the last one was '
        f'{actions[index]}.'
    )


def non_finite(row: Any) -> str:
    """Describe the first infinity or NaN in a row, with its position if that says more."""
    position = tuple(np.argwhere(~np.isfinite(row))[0].tolist())
    return f'{row[position]}' + (f' in element {position}' if position else '')


def _shape(space: Space) -> tuple[int, ...]:
    assert space.shape is not None  # Box and Discrete always have one.
    return space.shape


def _cast_actions(space: Space, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kinds = {'f': 'fiu', 'b': 'b'}.get(dtype.kind, 'iu')
    if array.dtype.kind not in kinds:
        raise TypeError(
            f'Action must have dtype {dtype}, got dtype={array.dtype}. The action space is {space}.'
        )
    if dtype.kind in 'iu' and not isinstance(space, gymnasium.spaces.Discrete):
        info = np.iinfo(dtype)
        _check_bounds(array, int(info.min), int(info.max), f'fit dtype {dtype}')
    elif dtype.kind in 'iu':
        _check_range(space, array)  # Before the cast, which would wrap around.
    return array.astype(dtype)


def _check_range(space: Any, array: np.ndarray) -> None:
    start, stop = int(space.start), int(space.start + space.n)
    _check_bounds(array, start, stop - 1, f'be in [{start}, {stop})')


def _check_bounds(array: np.ndarray, low: int, high: int, rule: str) -> None:
    if np.count_nonzero((array >= low) & (array <= high)) == array.size:
        return
    flat = array.reshape(len(array), -1)
    index = int(np.argmax([any(not low <= x <= high for x in row) for row in flat.tolist()]))
    raise ValueError(f'Action must {rule}, got action={array[index]} at index {index}.')
