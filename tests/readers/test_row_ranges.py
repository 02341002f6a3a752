"""Arithmetic on ranges of rows, against sets of row numbers."""

from __future__ import annotations

import numpy as np
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
