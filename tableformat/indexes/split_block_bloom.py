"""Algorithm `sbbf`: a bloom filter in blocks of 32 bytes, one bit in each of a block's 8 words.

A lookup touches one block. The upper half of a hash chooses the block, the lower half, multiplied
with eight odd numbers, the bits.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from strandline.tableformat.xxh64 import Uint64s

BITS_PER_VALUE: Final = 12
BLOCK_BYTES: Final = 32
_BLOCK_BITS: Final = 256
_PART: Final = 16_384
_SALTS: Final = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip


def blocks_for(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Blocks of filters that hold so many distinct values; none for none."""
    return np.ceil(counts * (BITS_PER_VALUE / _BLOCK_BITS)).astype(np.int64)


def distinct_counts(
    hashes: Uint64s, groups: NDArray[Any], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """About how many distinct hashes each group of so many rows has.

    Each hash ticks off one of eight slots per row, and the slots left over tell how many
    different ones there were. Counting exactly would take longer than filling the filters, and
    the count decides about their size alone.
    """
    slots = 8 * rows
    ticked = np.zeros(int(slots.sum()), np.bool_)
    first = np.cumsum(slots) - slots
    for part in _parts(len(hashes)):
        ticked[_block(hashes[part], first[groups[part]], slots[groups[part]])] = True
    # Counting the ticks of a slice is many times faster than summing them up by reduceat.
    edges = np.append(first, len(ticked)).tolist()
    seen = np.array([np.count_nonzero(ticked[a:b]) for a, b in pairwise(edges)])
    return -np.log1p(-seen / slots) * slots.astype(np.float64)


def fill(hashes: Uint64s, groups: NDArray[Any], offsets: NDArray[np.int64]) -> bytes:
    """The blocks of all filters: filter i gets the blocks from `offsets[i]` to `offsets[i + 1]`."""
    bits = np.zeros(int(offsets[-1]) * _BLOCK_BITS, np.bool_)
    blocks = np.diff(offsets)
    for part in _parts(len(hashes)):
        some, group = hashes[part], groups[part]
        base = _block(some, offsets[group], blocks[group]) * _BLOCK_BITS
        for word, bit in enumerate(_bits(some)):
            bits[base + (32 * word + bit)] = True
    return np.packbits(bits, bitorder="little").tobytes()


def _parts(count: int) -> Iterator[slice]:
    """Runs of rows short enough that what is computed of them stays in the processor's cache."""
    return (slice(i, i + _PART) for i in range(0, count, _PART))


def contains(
    words: NDArray[np.uint32],
    hashes: Uint64s,
    first_block: NDArray[np.int64],
    blocks: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether each hash may be in its filter; `words` has a row of eight for each block."""
    found = words[_block(hashes, first_block, blocks)]
    mask = np.uint32(1) << np.stack(_bits(hashes), axis=-1).astype(np.uint32)
    out: NDArray[np.bool_] = ((found & mask) == mask).all(axis=-1)
    return out


def _block(
    hashes: Uint64s, first_block: NDArray[np.int64], blocks: NDArray[np.int64]
) -> NDArray[np.int64]:
    upper = hashes >> np.uint64(32)
    return first_block + (upper * blocks.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def _bits(hashes: Uint64s) -> list[NDArray[np.int64]]:
    """Which bit of each word."""
    lower = hashes.astype(np.uint32)
    return [(lower * salt >> np.uint32(27)).astype(np.int64) for salt in _SALTS]
