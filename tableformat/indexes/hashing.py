"""Canonical hashes of values: the same for equal values, in every process, language and age.

Shards and the hashed index kinds use them. The bytes do not depend on the width of the column's
type, so a hash stays right when the column is widened.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import xxhash

from strandline.tableformat import xxh64
from strandline.tableformat.arrow_numbers import (
    decimal_words,
    float64s,
    int64s,
    joined,
    offset_buffer,
    validity,
)
from strandline.tableformat.types import Domain
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.values import Value
    from strandline.tableformat.xxh64 import Uint64s

NAN_BITS: Final = 0x7FF8000000000000
"""The one form of NaN that is hashed and stored."""
_INFINITY_BITS: Final = 0x7FF0000000000000
_DECIMAL_BYTES: Final = 16
_HASH_OF_BOOL: Final = np.array([xxhash.xxh64_intdigest(bytes([b])) for b in (0, 1)], np.uint64)


def column_hashes(values: pa.ChunkedArray, kind: ColumnType) -> Uint64s:
    """XXH64 (seed 0) of the canonical bytes of every value; 0 for null."""
    found = joined(values, lambda array: _array_hashes(array, kind))
    if values.null_count:
        found = np.where(joined(values, validity), found, np.uint64(0))
    return found


def literal_hashes(values: Iterable[Value], kind: ColumnType) -> Uint64s:
    """The hashes of values given in the column's domain; what no such column holds has none."""
    found = [canonical_bytes(value, kind) for value in values]
    return np.array([xxhash.xxh64_intdigest(b) for b in found if b is not None], np.uint64)


def canonical_bytes(value: Value, kind: ColumnType) -> bytes | None:
    """What is hashed for a value of the column's domain; None where it cannot occur."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return None
    if isinstance(value, bytes):
        return value
    if kind.domain is Domain.FLOAT:
        return struct.pack("<q", int(canonical_floats(np.array([value], np.float64))[0]))
    if not isinstance(value, int):  # a domain value of another column
        return None
    if kind.name == "bool":
        return bytes([value]) if value in (0, 1) else None
    size = _DECIMAL_BYTES if kind.name == "decimal" else 8
    return value.to_bytes(size, "little", signed=True) if _fits(value, size) else None


def canonical_floats(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bits of each number, with one zero and one NaN: equal numbers have equal bits."""
    bits = values.view(np.int64)
    without_sign = bits & INT64_MAX
    # By the bits alone: to calculate with a signalling NaN is an error to numpy.
    bits = np.where(without_sign == 0, np.int64(0), bits)
    return np.where(without_sign > _INFINITY_BITS, np.int64(NAN_BITS), bits)


def _fits(value: int, size: int) -> bool:
    return -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1)


def _array_hashes(array: pa.Array, kind: ColumnType) -> Uint64s:
    if kind.name in ("string", "binary"):
        data = array.buffers()[2]
        held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return xxh64.of_slices(held, _offsets(array))
    if kind.name == "bool":
        return _HASH_OF_BOOL[int64s(array)]
    if kind.name == "decimal":
        return xxh64.of_words(decimal_words(array))
    if kind.domain is Domain.FLOAT:
        return xxh64.of_int64s(canonical_floats(float64s(array)))
    return xxh64.of_int64s(int64s(array))


def _offsets(array: pa.Array) -> NDArray[np.int32]:
    return offset_buffer(array) if len(array) else np.zeros(1, np.int32)
