"""Which windows, pages and segments a filter may match, decided from metadata alone.

Opening one file too many costs time; skipping one that matches loses rows. So every doubtful
part is kept. All of it is vectorised: the cost follows the number of pages looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from strandline.tableformat.binding import all_true, conjuncts
from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID, WINDOW_ID
from strandline.tableformat.page_files import page_files, say_more
from strandline.tableformat.pruning import Bounds, StatsSource, certain, may_match, must_match

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.page_files import PageFiles
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
class IndexUse:
    """What the indexes of one kind came to."""

    segments: int = 0
    zones_removed: int = 0


@dataclass(slots=True)
class PlanReport:
    """How a plan came about, step by step."""

    window_pages: StepCount = field(default_factory=StepCount)
    windows: StepCount = field(default_factory=StepCount)
    pages: StepCount = field(default_factory=StepCount)
    segments: StepCount = field(default_factory=StepCount)
    shards: StepCount = field(default_factory=StepCount)
    """Segments that were left by their stats, and those of them in shards that hold the key."""
    zones: StepCount = field(default_factory=StepCount)
    """Of the segments whose indexes were asked."""
    indexes_used: dict[str, IndexUse] = field(default_factory=dict)
    """By kind."""
    indexes_unused: dict[str, int] = field(default_factory=dict)
    """By kind: of columns in the filter, there and not asked."""
    index_failures: list[str] = field(default_factory=list)
    """Indexes that are listed and could not be used; the rows they speak of are read."""
    index_bytes: int = 0
    """Read from index files."""
    bytes_total: int = 0
    """Bytes of all data files of the version."""
    bytes_planned: int = 0
    rows_planned: int = 0

    def note_used(self, zones_removed: Mapping[tuple[int, str], int]) -> None:
        """Count what the indexes of one segment ruled out, by column and kind."""
        for (_, kind), zones in zones_removed.items():
            use = self.indexes_used.setdefault(kind, IndexUse())
            use.segments += 1
            use.zones_removed += zones

    def note_unused(self, kinds: Iterable[str]) -> None:
        """Count indexes of a segment that could have been asked and were not."""
        for kind in kinds:
            self.indexes_unused[kind] = self.indexes_unused.get(kind, 0) + 1


class Candidate(NamedTuple):
    """A segment that may hold matching rows, and what its rows have to be asked."""

    entry: SegmentEntry
    bound: Bound | None
    """What is left of the filter: stats prove the rest of it for every row. None: nothing."""


class SummaryStats:
    """Stats of entries or page references, for pruning."""

    def __init__(
        self, parts: Sequence[Summary], schema: Schema, windows: Sequence[Window] | None
    ) -> None:
        self._parts, self._schema, self._windows = parts, schema, windows
        self._known: dict[int, Bounds | None] = {}

    @property
    def count(self) -> int:
        return len(self._parts)

    def bounds(self, column_id: int) -> Bounds | None:
        """One column over all parts."""
        if column_id not in self._known:
            self._known[column_id] = self._bounds(column_id)
        return self._known[column_id]

    def _array(self, name: str) -> Array:
        return np.array([getattr(part, name) for part in self._parts], dtype=np.int64)

    def _bounds(self, column_id: int) -> Bounds | None:
        if column_id == SEQ_ID:
            return certain(self._array("min_seq"), self._array("max_seq"))
        if column_id == TS_ID:
            return certain(self._array("min_ts"), self._array("max_ts"))
        if column_id == WINDOW_ID:
            if self._windows is None:
                return None
            starts = np.array([w.start_ms for w in self._windows], dtype=np.int64)
            return certain(starts, starts)
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
            return self._page.certain_bounds("min_seq", "max_seq")
        if column_id == TS_ID:
            return self._page.certain_bounds("min_ts", "max_ts")
        if column_id == WINDOW_ID:
            starts = np.full(self.count, self._window.start_ms, dtype=np.int64)
            return certain(starts, starts)
        column = self._schema.by_id.get(column_id)
        return None if column is None else self._page.column_bounds(column)


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


class VersionParts:
    """What a version lists itself, with stats that all plans of the version share."""

    def __init__(self, manifest: Manifest) -> None:
        schema = manifest.schema
        self.window_pages = SummaryStats(manifest.window_pages, schema, None)
        self.pages = ListedPages(manifest.windows, schema)
        self.segments = SummaryStats(
            manifest.segments, schema, [entry.window for entry in manifest.segments]
        )
        listed = (*manifest.segments, *self.pages.refs, *manifest.window_pages)
        self.size_bytes = sum(part.size_bytes for part in listed)


class ListedPages:
    """Segment pages of some windows."""

    def __init__(self, windows: Sequence[WindowEntry], schema: Schema) -> None:
        self.listed = [(entry.window, page) for entry in windows for page in entry.pages]
        self.refs = [page for _, page in self.listed]
        self.windows = len({window for window, _ in self.listed})
        self.stats = SummaryStats(self.refs, schema, [window for window, _ in self.listed])


def parts_of(manifest: Manifest) -> VersionParts:
    """The parts of a version, put together once."""
    found = manifest.derived.get("parts")
    if found is None:
        found = manifest.derived["parts"] = VersionParts(manifest)
    parts: VersionParts = found
    return parts


def keep_window_pages(manifest: Manifest, bound: Bound | None, report: PlanReport) -> list[PageRef]:
    """Window pages that may list a matching segment."""
    kept = _kept(manifest.window_pages, bound, parts_of(manifest).window_pages)
    report.window_pages.add(len(manifest.window_pages), len(kept))
    return kept


def keep_pages(
    pages: ListedPages, bound: Bound | None, report: PlanReport
) -> list[tuple[Window, PageRef]]:
    """Segment pages that may list a matching segment, with their windows."""
    kept = _kept(pages.listed, bound, pages.stats)
    report.windows.add(pages.windows, len({window for window, _ in kept}))
    report.pages.add(len(pages.listed), len(kept))
    return kept


def keep_segments(manifest: Manifest, bound: Bound | None, report: PlanReport) -> list[Candidate]:
    """Inline segments that may hold a matching row."""
    return _kept_entries(manifest.segments, parts_of(manifest).segments, bound, report)


def keep_among(
    entries: Sequence[SegmentEntry], bound: Bound | None, schema: Schema, report: PlanReport
) -> list[Candidate]:
    """Those of some segments that may hold a matching row."""
    stats = SummaryStats(entries, schema, [entry.window for entry in entries])
    return _kept_entries(entries, stats, bound, report)


def _kept_entries(
    entries: Sequence[SegmentEntry], stats: SummaryStats, bound: Bound | None, report: PlanReport
) -> list[Candidate]:
    rows = _rows(bound, stats)
    report.segments.add(stats.count, len(rows))
    kept = [entries[row] for row in rows.tolist()]
    return _candidates(kept, _left_to_ask(bound, stats, rows))


def keep_in_page(
    page: SegmentPage, window: Window, bound: Bound | None, schema: Schema, report: PlanReport
) -> list[Candidate]:
    """Segments of a page that may hold a matching row."""
    stats = PageStats(page, schema, window)
    rows = _rows(bound, stats)
    report.segments.add(page.count, len(rows))
    return _candidates(page.entries(rows), _left_to_ask(bound, stats, rows))


def files_in_page(
    page: SegmentPage, window: Window, bound: Bound | None, schema: Schema, report: PlanReport
) -> tuple[PageFiles | None, list[Candidate]]:
    """As `keep_in_page`, but as columns where neither an index nor a field of its own matters."""
    stats = PageStats(page, schema, window)
    rows = _rows(bound, stats)
    report.segments.add(page.count, len(rows))
    if not len(rows):
        return None, []
    indexed, extra = (flags[rows] for flags in say_more(page))
    alone = extra
    if bound is not None and indexed.any():
        is_open = _open_parts(conjuncts(bound), stats, rows)
        alone = extra | (indexed & is_open.any(axis=0))
    files = page_files(page, rows[~alone])
    if files is None:
        alone = np.ones(len(rows), np.bool_)
    rows = rows[alone]
    return files, _candidates(page.entries(rows), _left_to_ask(bound, stats, rows))


def _rows(bound: Bound | None, stats: StatsSource) -> Array:
    if bound is None:
        return np.arange(stats.count)
    return np.flatnonzero(may_match(bound, stats))


def _candidates(entries: Sequence[SegmentEntry], bounds: Sequence[Bound | None]) -> list[Candidate]:
    return [*map(Candidate, entries, bounds)]


def _left_to_ask(bound: Bound | None, stats: StatsSource, rows: Array) -> list[Bound | None]:
    """For each chosen segment the parts of the filter that its stats leave open.

    A range of time that a segment lies inside of needs no look at its times.
    """
    if bound is None or not len(rows):
        return [None] * len(rows)
    parts = conjuncts(bound)
    is_open = _open_parts(parts, stats, rows)
    if not is_open.any():
        return [None] * len(rows)
    # Segments have few different combinations of open parts, however many segments there are.
    made: dict[bytes, Bound | None] = {}
    left: list[Bound | None] = []
    for column in np.packbits(is_open, axis=0).T:
        key = column.tobytes()
        if key not in made:
            chosen = np.unpackbits(column, count=len(parts))
            made[key] = all_true([p for p, use in zip(parts, chosen, strict=True) if use])
        left.append(made[key])
    return left


def _open_parts(parts: Sequence[Bound], stats: StatsSource, rows: Array) -> Array:
    """For each part of a filter, in which of the chosen segments stats leave it open."""
    chosen = _ChosenStats(stats, rows)
    return ~np.array([must_match(part, chosen) for part in parts], np.bool_)


class _ChosenStats:
    """Stats of some segments of another source: few are chosen, of pages that list thousands."""

    def __init__(self, stats: StatsSource, rows: Array) -> None:
        self._stats, self.count = stats, len(rows)
        is_run = self.count and rows[-1] - rows[0] + 1 == self.count
        self._where: Any = slice(int(rows[0]), int(rows[-1]) + 1) if is_run else rows
        self._known: dict[int, Bounds | None] = {}

    def bounds(self, column_id: int) -> Bounds | None:
        """One column over the chosen segments."""
        if column_id not in self._known:
            found = self._stats.bounds(column_id)
            self._known[column_id] = None if found is None else found.at(self._where)
        return self._known[column_id]


def _kept(items: Sequence[Any], bound: Bound | None, stats: SummaryStats) -> list[Any]:
    if bound is None or not items:
        return list(items)
    return [items[row] for row in np.flatnonzero(may_match(bound, stats)).tolist()]
