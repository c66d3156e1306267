"""Compares observations, rewards and flags with each other and with spaces."""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np


def leaves(value: Any, path: str = '') -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a nest in an order of their own, each with where it is, like "['a'][0]".

    Args:
        value: Array or number, or nest of them.
        path: Where the value itself is.
    """
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f'{path}[{key!r}]')
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, f'{path}[{index}]')
    else:
        yield path, np.asarray(value)


def difference(wanted: Any, got: Any, what: str, cast: bool = False) -> str | None:
    """Describe the first difference between two nests, where NaN equals NaN.

    Args:
        wanted: Nest.
        got: Nest to be equal, to the last bit of every number.
        what: What the nests are, for the description.
        cast: Whether types may differ; `wanted` is then converted to those of `got`.

    Returns:
        Such as 'observation[2] is 0.5 instead of 0.25', or None.
    """
    pairs = list(leaves(wanted, what)), list(leaves(got, what))
    if [path for path, _ in pairs[0]] != [path for path, _ in pairs[1]]:
        return f'{what} is {_short(got)} instead of {_short(wanted)}'
    for (path, a), (_, b) in zip(*pairs, strict=True):
        if a.shape != b.shape:
            return f'{path} has shape {b.shape} instead of {a.shape}'
        if a.dtype != b.dtype:
            if not cast:
                return f'{path} has dtype {b.dtype} instead of {a.dtype}'
            a = a.astype(b.dtype)
        wrong = (a != b) & ~((a != a) & (b != b))
        if wrong.any():
            index = _first(wrong)
            return f'{path}{_place(index)} is {b[index]!s} instead of {a[index]!s}'
    return None


def mismatch(space: gymnasium.Space, value: Any, what: str) -> str | None:
    """Describe the first way in which a value does not fit a space.

    Args:
        space: Space that it should be in.
        value: Value.
        what: What the value is, for the description.

    Returns:
        Such as 'observation[2] is 1.5, above 1.0', or None.
    """
    if isinstance(space, gymnasium.spaces.Box):
        return _box_mismatch(space, np.asarray(value), what)
    parts: dict[Any, gymnasium.Space] | None = None
    if isinstance(space, gymnasium.spaces.Dict):
        parts, keys = dict(space.spaces), set(value) if isinstance(value, Mapping) else None
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = dict(enumerate(space.spaces))
        keys = set(range(len(value))) if isinstance(value, tuple) else None
    if parts is None:
        fits = space.contains(value)
        return None if fits else f'{what} is {_short(value)}, which is not in {space}'
    if keys != set(parts):
        has = _short(value) if keys is None else f'made of {sorted(keys, key=str)}'
        return f'{what} is {has}, the space says {type(space).__name__} of {list(parts)}'
    found = (mismatch(part, value[key], f'{what}[{key!r}]') for key, part in parts.items())
    return next(filter(None, found), None)


def share_memory(a: Any, b: Any) -> bool:
    """Tell whether an array of one nest lies in the same memory as its counterpart."""
    pairs = zip(leaves(a), leaves(b), strict=False)
    return any(np.may_share_memory(x, y) for (_, x), (_, y) in pairs)


def _box_mismatch(space: gymnasium.spaces.Box, array: np.ndarray, what: str) -> str | None:
    if array.shape != space.shape:
        return f'{what} has shape {array.shape}, the space says {space.shape}'
    if array.dtype.kind not in 'biuf' or not np.can_cast(array.dtype, space.dtype):
        return f'{what} has dtype {array.dtype}, the space says {space.dtype}'
    for wrong, words in (
        (~np.isfinite(array), lambda index: 'which no network can use'),
        (array < space.low, lambda index: f'the space says at least {space.low[index]!s}'),
        (array > space.high, lambda index: f'the space says at most {space.high[index]!s}'),
    ):
        if wrong.any():
            index = _first(wrong)
            return f'{what}{_place(index)} is {array[index]!s}, {words(index)}'
    return None


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.argwhere(mask)[0].tolist())


def _place(index: tuple[int, ...]) -> str:
    return f'[{", ".join(map(str, index))}]' if index else ''


def _short(value: Any) -> str:
    text = ' '.join(repr(value).split())
    return text if len(text) <= 60 else f'{text[:57]}...'
