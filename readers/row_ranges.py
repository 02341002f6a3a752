"""Rows of a file as ranges: which ones are wanted, where they are among those that were read.

Ranges are an int64 array of two columns, first row and the row behind the last, ascending and
apart. All of it is arithmetic on such arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.readers.arrow_arrays import int64_array
from strandline.tableformat.errors import InvalidInput

_FEW_SLICES: Final = 4
_LONG_SLICE: Final = 512
"""Shorter runs, on average, are copied: a slice of a table is a Python object for each column."""

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Ranges = NDArray[np.int64]


def all_rows(row_count: int) -> Ranges:
    """Every row of a file."""
    return np.array([[0, row_count]], np.int64)


def of_zones(zones: NDArray[np.bool_], zone_rows: int, row_count: int) -> Ranges:
    """The rows of the chosen zones; neighbours become one range."""
    if len(zones) != -(-row_count // zone_rows):
        raise InvalidInput(
            f"{len(zones)} zones of {zone_rows} rows are not those of a file of {row_count} rows"
        )
    framed = np.zeros(len(zones) + 2, np.bool_)
    framed[1:-1] = zones
    edges = np.flatnonzero(framed[1:] != framed[:-1])
    return np.minimum(edges.reshape(-1, 2).astype(np.int64) * zone_rows, row_count)


def count(ranges: Ranges) -> int:
    """How many rows the ranges hold."""
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def counts_before(ranges: Ranges, limits: Int64s) -> Int64s:
    """How many rows of the ranges lie before each of some ascending rows."""
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.concatenate([[0], np.cumsum(sizes)])
    begun = np.searchsorted(ranges[:, 0], limits, side="right")
    # The last range that has begun may go on behind the limit.
    ends = np.concatenate([[0], ranges[:, 1]])
    found: Int64s = before[begun] - np.maximum(ends[begun] - limits, 0)
    return found


def numbers(ranges: Ranges) -> Int64s:
    """The number of every row, one after the other."""
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    found: Int64s = np.repeat(ranges[:, 0] - before, sizes)
    found += np.arange(len(found))
    return found


def of_mask(ranges: Ranges, mask: NDArray[np.bool_]) -> Ranges:
    """The rows of the ranges for which the mask, a truth for each of them, is true."""
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    begins, ends = mask.copy(), mask.copy()
    begins[1:] &= ~mask[:-1]
    ends[:-1] &= ~mask[1:]
    # What goes on behind the end of a range goes on in another place of the file.
    begins[before] = mask[before]
    ends[before - 1] = mask[before - 1]
    first = np.flatnonzero(begins)
    length = np.flatnonzero(ends) + 1 - first
    at = np.searchsorted(before, first, side="right") - 1
    start = first - before[at] + ranges[at, 0]
    return np.stack([start, start + length], axis=1)


def blocks_around(ranges: Ranges, edges: Int64s) -> Ranges:
    """The blocks between ascending edges that hold a row of the ranges."""
    blocks = np.flatnonzero(touched(ranges, edges[:-1], edges[1:]))
    return joined(edges[blocks], edges[blocks + 1])


def within(ranges: Ranges, start: int, end: int) -> Ranges:
    """The part of the ranges from row `start` to before row `end`."""
    cut: Ranges = np.clip(ranges, start, end)
    kept: Ranges = cut[cut[:, 0] < cut[:, 1]]
    return kept


def first(ranges: Ranges, most: int) -> Ranges:
    """The first rows of the ranges."""
    sizes = ranges[:, 1] - ranges[:, 0]
    before = np.cumsum(sizes) - sizes
    kept = np.minimum(sizes, most - before)
    cut: Ranges = np.stack([ranges[:, 0], ranges[:, 0] + kept], axis=1)[kept > 0]
    return cut


def touched(ranges: Ranges, starts: Int64s, ends: Int64s) -> NDArray[np.bool_]:
    """Which of some ascending blocks of rows hold a row of the ranges."""
    # The first range that ends behind the block's start must begin before the block's end.
    first = np.searchsorted(ranges[:, 1], starts, side="right")
    begins = np.append(ranges[:, 0], np.iinfo(np.int64).max)
    hit: NDArray[np.bool_] = begins[first] < ends
    return hit


def joined(starts: Int64s, ends: Int64s) -> Ranges:
    """Ascending blocks as ranges, where one that begins at the end of another continues it."""
    new = np.append(True, starts[1:] != ends[:-1])[: len(starts)]
    last = np.append(new[1:], True)[: len(starts)]
    return np.stack([starts[new], ends[last]], axis=1)


def places(read: Ranges, rows: Int64s) -> Int64s:
    """Where ascending rows are among the rows of the ranges, which hold all of them."""
    sizes = read[:, 1] - read[:, 0]
    before = np.cumsum(sizes) - sizes
    at = np.searchsorted(read[:, 0], rows, side="right") - 1
    found: Int64s = rows - read[at, 0] + before[at]
    return found


def cut(table: Any, read: Ranges, wanted: Ranges) -> Any:
    """The wanted rows of an Arrow table that holds the rows of `read`, which include them.

    Long runs of rows are cut out and not copied.
    """
    if np.array_equal(read, wanted):
        return table
    offsets = places(read, wanted[:, 0])
    sizes = wanted[:, 1] - wanted[:, 0]
    if len(wanted) > _FEW_SLICES and count(wanted) < len(wanted) * _LONG_SLICE:
        return table.take(int64_array(numbers(np.stack([offsets, offsets + sizes], axis=1))))
    parts = [
        table.slice(offset, size)
        for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
    ]
    return type(table).from_batches(
        [batch for part in parts for batch in part.to_batches()], schema=table.schema
    )
