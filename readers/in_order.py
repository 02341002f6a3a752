"""Rows of segments into the order of their sequence numbers.

Segments come sorted by their first number. Most follow one another, and their rows pass through
as they come. Where segments overlap, or hold their rows in another order, rows are held back only
until no later segment can have a smaller number.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.readers.arrow_arrays import bool_array, int64_array, integers
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.tableformat.segments import SegmentEntry


def needs_numbers(segments: Sequence[SegmentEntry]) -> list[bool]:
    """Which segments must be read with `_seq`: their rows may have to be sorted."""
    reaches = [-1, *accumulate((entry.max_seq for entry in segments), max)]
    starts = [*(entry.min_seq for entry in segments[1:]), None]
    return [
        entry.rows_are != DENSE
        or entry.min_seq <= reach
        or (following is not None and entry.max_seq >= following)
        for entry, reach, following in zip(segments, reaches, starts, strict=False)
    ]


def in_order(
    segments: Sequence[SegmentEntry],
    numbered: Sequence[bool],
    found: Iterable[tuple[int, pa.Table]],
) -> Iterator[pa.Table]:
    """Sort what (number of the segment, rows) brings, segment after segment."""
    held: list[pa.Table] = []
    last = 0
    for index, rows in found:
        if held and index != last:
            ready, held = _below(held, segments[index].min_seq)
            if ready is not None:
                yield ready
        last = index
        if numbered[index]:
            held.append(rows)
        else:
            yield rows
    if held:
        yield sorted_rows(held)


def _below(held: list[pa.Table], limit: int) -> tuple[pa.Table | None, list[pa.Table]]:
    """Held rows with numbers below the limit, sorted, and the others."""
    rows = pa.concat_tables(held)
    small = integers(rows.column("_seq")) < limit
    if small.all():
        return sorted_rows([rows]), []
    if not small.any():
        return None, [rows]
    return sorted_rows([rows.filter(bool_array(small))]), [rows.filter(bool_array(~small))]


def sorted_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of some tables by their numbers."""
    rows = pa.concat_tables(tables)
    numbers = integers(rows.column("_seq"))
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    return rows.take(int64_array(np.argsort(numbers, kind="stable")))
