"""Which windows, pages and segments a filter may match, decided from metadata alone.

Opening one file too many costs time; skipping one that matches loses rows. So every doubtful
part is kept. All of it is vectorised: the cost follows the number of pages looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID, WINDOW_ID
from strandline.tableformat.pruning import Bounds, may_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.binding import Bound
    from strandline.tableformat.pages import SegmentPage
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.segments import PageRef, SegmentEntry, Summary, WindowEntry
    from strandline.tableformat.windows import Window

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class StepCount:
    """What one step of planning was given and what it left."""

    considered: int = 0
    kept: int = 0

    def add(self, considered: int, kept: int) -> None:
        self.considered += considered
        self.kept += kept


@dataclass(slots=True)
class PlanReport:
    """How a plan came about, step by step."""

    window_pages: StepCount = field(default_factory=StepCount)
    windows: StepCount = field(default_factory=StepCount)
    pages: StepCount = field(default_factory=StepCount)
    segments: StepCount = field(default_factory=StepCount)
    bytes_total: int = 0
    """Bytes of all data files of the version."""
    bytes_planned: int = 0
    rows_planned: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The segments a scan reads, in the order of their sequence numbers."""

    segments: tuple[SegmentEntry, ...]
    report: PlanReport


class SummaryStats:
    """Stats of entries or page references, for pruning."""

    def __init__(
        self, parts: Sequence[Summary], schema: Schema, windows: Sequence[Window] | None
    ) -> None:
        self._parts, self._schema, self._windows = parts, schema, windows

    @property
    def count(self) -> int:
        return len(self._parts)

    def _array(self, name: str) -> Array:
        return np.array([getattr(part, name) for part in self._parts], dtype=np.int64)

    def bounds(self, column_id: int) -> Bounds | None:
        """One column over all parts."""
        if column_id == SEQ_ID:
            return _certain(self._array("min_seq"), self._array("max_seq"))
        if column_id == TS_ID:
            return _certain(self._array("min_ts"), self._array("max_ts"))
        if column_id == WINDOW_ID:
            if self._windows is None:
                return None
            starts = np.array([w.start_ms for w in self._windows], dtype=np.int64)
            return _certain(starts, starts)
        column = self._schema.by_id.get(column_id)
        if column is None or column.type.domain is None:
            return None
        found = [part.stats_of(column) for part in self._parts]
        known = np.array([s is not None and s.min is not None for s in found], dtype=bool)
        filler = next((s.min for s in found if s is not None and s.min is not None), 0)
        lows = [filler if s is None or s.min is None else s.min for s in found]
        highs = [filler if s is None or s.max is None else s.max for s in found]
        return Bounds(
            mins=_typed(lows),
            maxs=_typed(highs),
            known=known,
            null_count=np.array(
                [-1 if s is None or s.null_count is None else s.null_count for s in found],
                dtype=np.int64,
            ),
            value_count=self._array("row_count"),
            has_nan=np.array([s is None or s.has_nan for s in found], dtype=bool),
            exact=np.array([s is not None and s.exact for s in found], dtype=bool),
        )


class PageStats:
    """Stats of the segments in one page, for pruning."""

    def __init__(self, page: SegmentPage, schema: Schema, window: Window) -> None:
        self._page, self._schema, self._window = page, schema, window

    @property
    def count(self) -> int:
        return self._page.count

    def bounds(self, column_id: int) -> Bounds | None:
        """One column over all segments of the page."""
        if column_id == SEQ_ID:
            return _certain(self._page.integers("min_seq"), self._page.integers("max_seq"))
        if column_id == TS_ID:
            return _certain(self._page.integers("min_ts"), self._page.integers("max_ts"))
        if column_id == WINDOW_ID:
            starts = np.full(self.count, self._window.start_ms, dtype=np.int64)
            return _certain(starts, starts)
        column = self._schema.by_id.get(column_id)
        return None if column is None else self._page.column_bounds(column)


def _certain(lows: Array, highs: Array) -> Bounds:
    """Bounds of a hidden column: always known, never null."""
    count = len(lows)
    return Bounds(
        mins=lows,
        maxs=highs,
        known=np.ones(count, dtype=bool),
        null_count=np.zeros(count, dtype=np.int64),
        value_count=np.ones(count, dtype=np.int64),
        has_nan=np.zeros(count, dtype=bool),
        exact=np.ones(count, dtype=bool),
    )


def _typed(values: list[Any]) -> Array:
    if values and isinstance(values[0], float):
        return np.array(values, dtype=np.float64)
    if values and isinstance(values[0], int):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def keep_window_pages(
    refs: Sequence[PageRef], bound: Bound | None, schema: Schema, report: PlanReport
) -> list[PageRef]:
    """Window pages that may list a matching segment."""
    kept = _kept(refs, bound, SummaryStats(refs, schema, None))
    report.window_pages.add(len(refs), len(kept))
    return kept


def keep_pages(
    windows: Sequence[WindowEntry], bound: Bound | None, schema: Schema, report: PlanReport
) -> list[tuple[Window, PageRef]]:
    """Segment pages that may list a matching segment, with their windows."""
    listed = [(entry.window, page) for entry in windows for page in entry.pages]
    stats = SummaryStats([page for _, page in listed], schema, [window for window, _ in listed])
    kept = _kept(listed, bound, stats)
    report.windows.add(len({w for w, _ in listed}), len({w for w, _ in kept}))
    report.pages.add(len(listed), len(kept))
    return kept


def keep_segments(
    entries: Sequence[SegmentEntry], bound: Bound | None, schema: Schema, report: PlanReport
) -> list[SegmentEntry]:
    """Inline segments that may hold a matching row."""
    stats = SummaryStats(entries, schema, [entry.window for entry in entries])
    kept = _kept(entries, bound, stats)
    report.segments.add(len(entries), len(kept))
    return kept


def keep_in_page(
    page: SegmentPage, window: Window, bound: Bound | None, schema: Schema, report: PlanReport
) -> list[SegmentEntry]:
    """Segments of a page that may hold a matching row."""
    if bound is None:
        rows = np.arange(page.count)
    else:
        rows = np.flatnonzero(may_match(bound, PageStats(page, schema, window)))
    report.segments.add(page.count, len(rows))
    return page.entries(rows)


def _kept(items: Sequence[Any], bound: Bound | None, stats: SummaryStats) -> list[Any]:
    if bound is None or not items:
        return list(items)
    mask = may_match(bound, stats)
    return [item for item, keep in zip(items, mask.tolist(), strict=True) if keep]
