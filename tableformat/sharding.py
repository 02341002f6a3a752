"""Which shard a row belongs to: a stable hash of its key, or the low bits of an integer key.

The hash is named in SPEC.md and works on the value's canonical bytes, never on Python's `hash()`:
every writer, in any language and any process, must send a key to the same shard. Columns are
hashed at once; where a hash has to be taken one by one, each distinct value is hashed once.
"""

from __future__ import annotations

from decimal import Context
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.types import ColumnType

HASHES: Final = ("xxh64", "mask")
_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_AS_INT64: Final = _INTEGERS | {"date", "timestamp", "timestamptz"}
_OTHERS: Final = frozenset({"bool", "string", "binary", "decimal"})
_DECIMAL_BYTES: Final = 16

_EXACT: Final = Context(prec=80)

Int32s = np.ndarray[Any, np.dtype[np.int32]]
Uint64s = np.ndarray[Any, np.dtype[np.uint64]]


def unfit(kind: ColumnType, hash_name: str, shards: int) -> str | None:
    """Why a column cannot be the shard key; None if it can."""
    if hash_name == "mask":
        if kind.name not in _INTEGERS:
            return f"shard_hash='mask' takes the low bits of an integer, and the type is {kind}"
        if shards & (shards - 1):
            return f"shard_hash='mask' needs a power of two shards, not {shards}"
    if kind.name in _AS_INT64 | _OTHERS:
        return None
    # 0.0 equals -0.0 and NaN has many bit patterns: equal keys could land in different shards.
    return f"a {kind} has no canonical bytes to hash; take a text, integer, date or time column"


def key_hashes(values: pa.ChunkedArray, kind: ColumnType) -> Uint64s:
    """XXH64 (seed 0) of the canonical bytes of every value; 0 for null."""
    if kind.name in _AS_INT64:
        found = _xxh64_of_int64s(_int64s(values))
    else:
        encoded = values.combine_chunks().dictionary_encode()
        hashes = [xxhash.xxh64_intdigest(data) for data in _canonical(encoded, kind)]
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        found = np.array(hashes or [0], np.uint64)[codes]
    if values.null_count:
        found[values.is_null().to_numpy()] = 0
    return found


def shards_of(
    values: pa.ChunkedArray,
    kind: ColumnType,
    shards: int,
    hash_name: str,
    hashes: Uint64s | None = None,
) -> Int32s:
    """The shard of every row. Rows without a key go to shard 0. `hashes`: if known already."""
    if shards == 1:
        return np.zeros(len(values), np.int32)
    if hash_name == "mask":
        # Low bits of a negative number are those of its two's complement.
        masked: Int32s = (_int64s(values) & np.int64(shards - 1)).astype(np.int32)
        return masked
    found = key_hashes(values, kind) if hashes is None else hashes
    remainders: Int32s = (found % np.uint64(shards)).astype(np.int32)
    return remainders


def _int64s(values: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    array = values.combine_chunks()
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    numbers = array.fill_null(0) if array.null_count else array
    out: np.ndarray[Any, np.dtype[np.int64]] = numbers.to_numpy(zero_copy_only=False).astype(
        np.int64, copy=False
    )
    return out


def _canonical(encoded: pa.DictionaryArray, kind: ColumnType) -> Iterator[bytes]:
    distinct = encoded.dictionary.to_pylist()
    if kind.name == "string":
        return (value.encode() for value in distinct)
    if kind.name == "bool":
        return (bytes([value]) for value in distinct)
    if kind.name == "decimal":
        unscaled = (int(value.scaleb(kind.scale, _EXACT)) for value in distinct)
        return (n.to_bytes(_DECIMAL_BYTES, "little", signed=True) for n in unscaled)
    return iter(distinct)


# --- XXH64 of eight bytes -----------------------------------------------------------------------

_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_SEED_AND_LENGTH: Final = np.uint64(0x27D4EB2F165667C5 + 8)
"""The fifth prime with the length added: where a hash of eight bytes with seed 0 begins."""


def _rotated(x: Uint64s, bits: int) -> Uint64s:
    out: Uint64s = (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))
    return out


def _xxh64_of_int64s(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> Uint64s:
    """XXH64, seed 0, of each number's eight bytes in little-endian order, all at once."""
    lane = _rotated(numbers.view(np.uint64) * _PRIME_2, 31) * _PRIME_1
    acc = _rotated(_SEED_AND_LENGTH ^ lane, 27) * _PRIME_1 + _PRIME_4
    acc ^= acc >> np.uint64(33)
    acc *= _PRIME_2
    acc ^= acc >> np.uint64(29)
    acc *= _PRIME_3
    acc ^= acc >> np.uint64(32)
    return acc
