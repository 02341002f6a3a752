"""Which shard a row belongs to: a stable hash of its key, or the low bits of an integer key.

The hash is named in SPEC.md and works on the value's canonical bytes, never on Python's `hash()`:
every writer, in any language and any process, must send a key to the same shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.arrow_numbers import int64s, joined
from strandline.tableformat.indexes.hashing import column_hashes

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.xxh64 import Uint64s

HASHES: Final = ("xxh64", "mask")
_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_AS_INT64: Final = _INTEGERS | {"date", "timestamp", "timestamptz"}
_OTHERS: Final = frozenset({"bool", "string", "binary", "decimal"})

Int32s = np.ndarray[Any, np.dtype[np.int32]]


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
    return column_hashes(values, kind)


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
        masked: Int32s = (joined(values, int64s) & np.int64(shards - 1)).astype(np.int32)
        if values.null_count:
            masked[values.is_null().to_numpy()] = 0
        return masked
    found = key_hashes(values, kind) if hashes is None else hashes
    remainders: Int32s = (found % np.uint64(shards)).astype(np.int32)
    return remainders
