"""Arithmetic on ranges of rows, against sets of row numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.readers import row_ranges


@st.composite
def some_ranges(draw: st.DrawFn) -> row_ranges.Ranges:
    """Ranges that ascend and do not touch."""
    edges = draw(st.lists(st.integers(0, 60), unique=True, max_size=12).map(sorted))
    return np.array(edges[: len(edges) // 2 * 2], np.int64).reshape(-1, 2)


def _rows(ranges: row_ranges.Ranges) -> set[int]:
    return {row for begin, end in ranges.tolist() for row in range(begin, end)}


@given(some_ranges(), st.lists(st.integers(0, 70), max_size=8).map(sorted))
def test_rows_before_limits_are_counted(ranges: row_ranges.Ranges, limits: list[int]) -> None:
    """[E10] Counting row by row gives the same number before every limit."""
    found = row_ranges.counts_before(ranges, np.array(limits, np.int64))

    assert found.tolist() == [sum(row < limit for row in _rows(ranges)) for limit in limits]


@given(some_ranges(), st.integers(0, 60), st.integers(0, 60))
def test_a_part_holds_the_rows_between_its_ends(
    ranges: row_ranges.Ranges, start: int, end: int
) -> None:
    """[E10] `within` keeps exactly the rows from the start to before the end."""
    part = row_ranges.within(ranges, start, end)

    assert _rows(part) == {row for row in _rows(ranges) if start <= row < end}
    assert row_ranges.count(part) == len(_rows(part))


@given(some_ranges(), st.data())
def test_a_mask_over_ranges_gives_the_rows_it_is_true_for(
    ranges: row_ranges.Ranges, data: st.DataObject
) -> None:
    """[E10] `of_mask` tells the same rows as looking at one after the other."""
    rows = sorted(_rows(ranges))
    truths = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))

    found = row_ranges.of_mask(ranges, np.array(truths, np.bool_))

    assert _rows(found) == {row for row, true in zip(rows, truths, strict=True) if true}
    assert row_ranges.count(found) == sum(truths)
    assert (found[:, 0] < found[:, 1]).all()
    assert (found[1:, 0] >= found[:-1, 1]).all()


@given(some_ranges(), st.integers(1, 9))
def test_blocks_around_ranges_are_those_with_a_row(ranges: row_ranges.Ranges, size: int) -> None:
    """[E10] A block is read if it holds a wanted row, and else it is not."""
    edges = np.append(np.arange(0, 60, size, dtype=np.int64), 60)

    found = row_ranges.blocks_around(ranges, edges)

    touched = {row // size for row in _rows(ranges)}
    assert _rows(found) == {row for row in range(60) if row // size in touched}


@given(some_ranges(), st.integers(1, 4), st.integers(1, 4))
def test_rows_are_cut_out_by_slices_and_by_copies(
    ranges: row_ranges.Ranges, few: int, long: int
) -> None:
    """[E10] Both ways give the wanted rows in order."""
    read = np.array([[0, 20], [25, 60]], np.int64)
    wanted = np.concatenate([row_ranges.within(ranges, *part) for part in read.tolist()])
    table = pa.table({"row": sorted(_rows(read))})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ranges, "_FEW_SLICES", few)
        patch.setattr(row_ranges, "_LONG_SLICE", long)
        found = row_ranges.cut(table, read, wanted)

    assert found.column("row").to_pylist() == sorted(_rows(wanted))
