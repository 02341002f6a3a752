"""The numbers inside Arrow arrays, as numpy sees them: views of the buffers, not copies.

What stands under a null is whatever the array holds there; callers look at the nulls themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_DTYPES: Final[dict[Any, Any]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.uint8(): np.uint8,
    pa.uint16(): np.uint16,
    pa.uint32(): np.uint32,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.date32(): np.int32,
}
OFFSET_TYPES: Final[dict[Any, Any]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}


def joined(values: pa.ChunkedArray, numbers: Callable[[pa.Array], NDArray[Any]]) -> NDArray[Any]:
    """`numbers` of all chunks, one behind the other."""
    parts = [numbers(chunk) for chunk in values.chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else numbers(pa.array([], values.type))


def int64s(array: pa.Array) -> NDArray[np.int64]:
    """Integers, truth values (0, 1), dates (days) and timestamps (their own unit) as int64."""
    if pa.types.is_boolean(array.type):
        return _bits(array).astype(np.int64)
    dtype = np.int64 if pa.types.is_timestamp(array.type) else _DTYPES[array.type]
    return _fixed(array, dtype).astype(np.int64, copy=False)


def integers(array: pa.Array) -> NDArray[Any]:
    """Integers in their own width."""
    return _fixed(array, _DTYPES[array.type])


def float64s(array: pa.Array) -> NDArray[np.float64]:
    """float32 and float64 as float64."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return _fixed(array, _DTYPES[array.type]).astype(np.float64, copy=False)


def decimal_words(array: pa.Array) -> NDArray[np.uint64]:
    """A decimal128 array's unscaled numbers: a row of low and high word each, two's complement."""
    return _fixed(array, "<u8", per_value=2).reshape(-1, 2)


def validity(array: pa.Array) -> NDArray[np.bool_]:
    """Where the array is not null."""
    return bools(array.is_valid())


def bools(array: pa.Array) -> NDArray[np.bool_]:
    """Truth values; pyarrow's own conversion loads pandas."""
    return _bits(array).view(np.bool_)


def offset_buffer(array: pa.Array) -> NDArray[Any]:
    """The offsets of a (large) string or binary array: one more than it has values."""
    dtype = np.dtype(OFFSET_TYPES[array.type])
    start = array.offset * dtype.itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array) + 1, start)


def _fixed(array: pa.Array, dtype: Any, per_value: int = 1) -> NDArray[Any]:
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array) * per_value, dtype)
    size = np.dtype(dtype).itemsize * per_value
    return np.frombuffer(data, dtype, len(array) * per_value, array.offset * size)


def _bits(array: pa.Array) -> NDArray[np.uint8]:
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(np.frombuffer(data, np.uint8), count=end, bitorder="little")[
        array.offset :
    ]
