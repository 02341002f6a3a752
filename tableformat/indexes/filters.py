"""Filters that say "certainly not here": one for each group of rows, by either algorithm.

| algorithm | bytes, for G groups |
|---|---|
| sbbf | G + 1 offsets of 4 bytes, counted in blocks, then the blocks of 32 bytes |
| xor8 | G + 1 offsets of 4 bytes, counted in bytes, then G seeds of 1 byte, then the tables |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from strandline.tableformat.indexes import split_block_bloom, xor8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.tableformat.indexes.blob import BlobReader
    from strandline.tableformat.xxh64 import Uint64s

ALGORITHMS: Final = frozenset({"sbbf", "xor8"})
MAX_WANTED: Final = 256
"""With more wanted values than that one of them nearly always seems to be there."""
_MOST: Final = (1 << 32) - 1


class Filters(Protocol):
    """One filter for each group."""

    def may_hold(self, hashes: Uint64s) -> NDArray[np.bool_]:
        """For each group, whether one of the hashes may be in it."""


def encode_blooms(hashes: Uint64s, groups: NDArray[Any], rows: NDArray[np.int64]) -> bytes | None:
    """A split-block filter for each group of `rows` rows; a hash may come more than once."""
    counts = split_block_bloom.distinct_counts(hashes, groups, rows)
    offsets = _offsets(split_block_bloom.blocks_for(counts))
    if offsets[-1] > _MOST:
        return None
    return offsets.astype("<u4").tobytes() + split_block_bloom.fill(hashes, groups, offsets)


def encode_xors(hashes: Uint64s, groups: NDArray[Any], group_count: int) -> bytes | None:
    """An xor8 filter for each group of distinct hashes; None where no seed is found."""
    thirds = xor8.thirds_for(np.bincount(groups, minlength=group_count))
    offsets = _offsets(3 * thirds)
    if offsets[-1] > _MOST:
        return None
    tables = xor8.build(hashes, groups, offsets[:-1], thirds)
    if tables is None:
        return None
    return offsets.astype("<u4").tobytes() + tables.seeds.tobytes() + tables.table.tobytes()


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def decode(blob: BlobReader, algorithm: str, group_count: int) -> Filters:
    """The filters that a blob holds, to its end."""
    offsets = blob.array("<u4", group_count + 1).astype(np.int64)
    sizes = np.diff(offsets)
    if offsets[0] or (sizes < 0).any():
        blob.fail("the offsets of its filters do not ascend from 0")
    if algorithm == "sbbf":
        words = blob.array("<u4", 8 * int(offsets[-1])).reshape(-1, 8)
        blob.finish()
        return _Blooms(offsets[:-1], sizes, words)
    if (sizes % 3).any():
        blob.fail("a table of bytes has no three parts")
    seeds = blob.array("u1", group_count)
    table = blob.array("u1", int(offsets[-1]))
    blob.finish()
    return _Xors(offsets[:-1], sizes // 3, xor8.Tables(table, seeds))


@dataclass(frozen=True, eq=False)
class _Blooms:
    first: NDArray[np.int64]
    blocks: NDArray[np.int64]
    words: NDArray[np.uint32]

    def may_hold(self, hashes: Uint64s) -> NDArray[np.bool_]:
        held = np.zeros(len(self.first), np.bool_)
        some = np.flatnonzero(self.blocks)
        first, blocks = self.first[some], self.blocks[some]
        for one in hashes:
            wanted = np.full(len(some), one)
            held[some] |= split_block_bloom.contains(self.words, wanted, first, blocks)
        return held


@dataclass(frozen=True, eq=False)
class _Xors:
    first: NDArray[np.int64]
    thirds: NDArray[np.int64]
    tables: xor8.Tables

    def may_hold(self, hashes: Uint64s) -> NDArray[np.bool_]:
        held = np.zeros(len(self.first), np.bool_)
        some = np.flatnonzero(self.thirds)
        for one in hashes:
            wanted = np.full(len(some), one)
            held[some] |= xor8.contains(self.tables, wanted, some, self.first, self.thirds)
        return held
