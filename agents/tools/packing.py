"""Plain data as bytes and back, without pickle: what is read can do nothing but be data.

    length of the text, 8 bytes | text in JSON | bytes of all arrays

In the text, an array is its type, its shape, and where its bytes begin.
"""

import json
import math
import struct
from typing import Any

import numpy as np

_HEADER = struct.Struct('<Q')
_KINDS = 'biufcSU'  # Kinds of arrays that hold no objects.


def pack(value: Any) -> bytes:
    """Encode plain data; equal data gives equal bytes, down to the types of its numbers.

    Args:
        value: None, numbers, text, bytes and arrays, in lists, tuples, and dicts with text as keys.

    Raises:
        TypeError: Something else is in it.
    """
    blocks: list[bytes] = []
    text = json.dumps(_encode(value, blocks)).encode()
    return b''.join([_HEADER.pack(len(text)), text, *blocks])


def unpack(data: bytes) -> Any:
    """Decode what `pack` gave.

    Args:
        data: Bytes, which may come from anywhere.

    Raises:
        ValueError: They are not what `pack` gives.
    """
    try:
        stop = _HEADER.size + _HEADER.unpack_from(data)[0]
        return _decode(json.loads(data[_HEADER.size : stop]), memoryview(data)[stop:])
    except (struct.error, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ValueError(f'Packed data must be whole, got {len(data)} bytes: {error}') from error


def _encode(value: Any, blocks: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encode(item, blocks) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {'dict': [[key, _encode(item, blocks)] for key, item in value.items()]}
    if type(value) is bytes:
        return {'bytes': _place(np.frombuffer(value, np.uint8), blocks)}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _KINDS:
        kind = 'array' if isinstance(value, np.ndarray) else 'scalar'
        return {kind: _place(np.asarray(value), blocks)}
    raise TypeError(
        'Data must be None, numbers, text, bytes or arrays, in lists, tuples and dicts with text '
        f'as keys, got {type(value).__name__}: {value!r:.100}'
    )


def _place(array: np.ndarray, blocks: list[bytes]) -> list:
    start = sum(map(len, blocks))
    blocks.append(array.tobytes())
    return [array.dtype.str, list(array.shape), start]


def _decode(value: Any, data: memoryview) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError('a list without its type')
        return value
    ((kind, content),) = value.items()
    if kind in ('list', 'tuple'):
        items = [_decode(item, data) for item in content]
        return items if kind == 'list' else tuple(items)
    if kind == 'dict':
        return {str(key): _decode(item, data) for key, item in content}
    if kind not in ('bytes', 'array', 'scalar'):
        raise ValueError(f'no kind of data: {kind!r:.20}')
    name, shape, start = content
    array = _find(name, shape, start, data)
    if kind == 'bytes':
        return array.tobytes()
    return array if kind == 'array' else array[()]


def _find(name: str, shape: list[int], start: int, data: memoryview) -> np.ndarray:
    dtype = np.dtype(str(name))
    if dtype.kind not in _KINDS or start < 0 or any(type(x) is not int or x < 0 for x in shape):
        raise ValueError(f'no such array: {name!r:.20}')
    part = data[start : start + dtype.itemsize * math.prod(shape)]
    return np.frombuffer(part, dtype).reshape(shape).copy()
