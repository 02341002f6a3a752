"""What pages list, with all stats, and whether the references to them are true of it.

Planning skips whole pages by their references: a bound that is too narrow loses rows without an
error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.segments import summarize
from strandline.tableformat.stats import ColumnStats, from_json
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.tableformat.pages import SegmentPage
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.segments import PageRef, SegmentEntry, Summary

_EQUAL = ("row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts")


def entries_with_stats(page: SegmentPage, schema: Schema) -> list[SegmentEntry]:
    """All that a page lists. Scans leave stats in the page; here they are to be compared."""
    entries = page.entries(np.arange(page.count))
    told: list[dict[str, Any]] = [{} for _ in entries]
    for column in schema.columns:
        for stats, found in zip(told, _stats_in(page, column), strict=True):
            if found is not None:
                stats[str(column.id)] = found.to_json(column.type)
    return [replace(entry, column_stats=stats) for entry, stats in zip(entries, told, strict=True)]


def _stats_in(page: SegmentPage, column: Column) -> list[ColumnStats | None]:
    bounds = page.column_bounds(column)
    if bounds is None or bounds.exact is None:
        return [None] * page.count
    told: list[ColumnStats | None] = []
    for low, high, known, nulls, nan, exact in zip(
        *(bounds.mins.tolist(), bounds.maxs.tolist(), bounds.known.tolist()),
        *(bounds.null_count.tolist(), bounds.has_nan.tolist(), bounds.exact.tolist()),
        strict=True,
    ):
        count = None if nulls < 0 else nulls
        # NaN differs from itself, and is no bound.
        if known and low == low and high == high:  # noqa: PLR0124
            told.append(ColumnStats(low, high, count, has_nan=nan, exact=exact))
        else:
            told.append(None if count is None else ColumnStats(None, None, count, has_nan=nan))
    return told


def contradictions(ref: PageRef, parts: Sequence[Summary], schema: Schema) -> Iterator[str]:
    """What a reference says and its page does not bear out."""
    summed = summarize(parts, schema)
    said = tuple(getattr(ref, name) for name in _EQUAL)
    real = tuple(summed[name] for name in _EQUAL)
    if said != real:
        yield f"its reference says {said}, what it lists sums up to {real}"
    for column in schema.columns:
        if column.type.domain is None:
            continue  # nested: nothing is skipped by it
        told = ref.stats_of(column)
        if told is None:
            continue  # anything may match
        known = _stats(column, summed["column_stats"])
        where = f"the stats of column {column.name!r} in its reference"
        if told.null_count not in (None, known.null_count):
            yield f"{where} count {told.null_count} nulls; what it lists has {known.null_count}"
        loses_nan = column.type.domain is Domain.FLOAT and known.has_nan and not told.has_nan
        if _is_narrower(told, known, summed["row_count"]):
            yield (
                f"{where} go from {told.min!r} to {told.max!r}; what it lists goes from "
                f"{known.min!r} to {known.max!r}"
            )
        if loses_nan or (told.min is not None and told.exact and not known.exact):
            yield f"{where} promise more of its values than what it lists does"


def _stats(column: Column, column_stats: dict[str, Any]) -> ColumnStats:
    value = column_stats.get(str(column.id))
    if value is None:
        return ColumnStats(None, None, None, has_nan=True, exact=False)
    return from_json(column.type, value, "column_stats")


def _is_narrower(told: ColumnStats, known: ColumnStats, rows: int) -> bool:
    """Whether bounds exclude a value that may be there; wider ones only cost a look."""
    if told.min is None or told.max is None:
        return False
    if known.min is None or known.max is None:
        return known.null_count != rows  # no bounds: nothing but nulls, or anything at all
    # Both sides come from one column, so they are of one kind.
    return told.min > known.min or told.max < known.max  # type: ignore[operator]
