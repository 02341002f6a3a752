"""Between numpy and Arrow by their buffers alone.

pyarrow's own conversions load pandas, at the first call in a process, which takes longer than
most lookups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DECIMAL_BYTES: Final = 16


def int64_array(values: NDArray[np.int64]) -> pa.Array:
    """Integers without nulls."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def bool_array(mask: NDArray[np.bool_]) -> pa.Array:
    """Booleans without nulls."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def number_array(
    values: Sequence[int] | Sequence[float] | NDArray[Any], kind: pa.DataType
) -> pa.Array:
    """Numbers of an integer or floating-point type, without nulls."""
    numbers = np.asarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def decimal_array(unscaled: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Decimals by their digits without the point."""
    data = b"".join(value.to_bytes(_DECIMAL_BYTES, "little", signed=True) for value in unscaled)
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(data)])


def binary_array(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Bytes, or texts in UTF-8."""
    ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def integers(values: pa.ChunkedArray) -> NDArray[Any]:
    """The numbers of an integer column without nulls."""
    width = values.type.bit_width // 8
    dtype = np.dtype(f"{'u' if pa.types.is_unsigned_integer(values.type) else 'i'}{width}")
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * width)
        for chunk in values.chunks
        if len(chunk)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def among(numbers: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the numbers are in a sorted list."""
    if not len(ascending):
        return np.zeros(len(numbers), np.bool_)
    places = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == numbers
    return found


def true_rows(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Where a boolean column is TRUE, and not FALSE or null."""
    found = np.empty(len(values), np.bool_)
    at = 0
    for chunk in values.chunks:
        valid, bits = chunk.buffers()
        mask = _bits(bits, chunk)
        found[at : at + len(chunk)] = mask if valid is None else mask & _bits(valid, chunk)
        at += len(chunk)
    return found


def _bits(buffer: pa.Buffer, chunk: pa.Array) -> NDArray[np.bool_]:
    raw = np.frombuffer(buffer, np.uint8)
    first = chunk.offset // 8
    raw = raw[first : (chunk.offset + len(chunk) + 7) // 8]
    bits = np.unpackbits(raw, bitorder="little")
    begin = chunk.offset - 8 * first
    return bits[begin : begin + len(chunk)].view(np.bool_)
