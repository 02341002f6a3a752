"""The first rows by a column: the best zones first, and a stop where nothing better can come.

The order is total: equal values follow each other by `_seq`, in the same direction. NaN is the
greatest value, and nulls come last in both directions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.readers.index_reader import IndexReader
from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.rank import RankBound, RankIndex
from strandline.tableformat.indexes.reference import SEGMENT
from strandline.tableformat.indexes.strategy import number_bounds
from strandline.tableformat.schema import stat_values
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.readers.index_reader import SegmentIndexes
    from strandline.readers.splits import Split
    from strandline.tableformat.indexes.strategy import Place
    from strandline.tableformat.planning import PlanReport
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.values import Value

_NAN_LAST = "_strandline_nan"


class BestRows:
    """The best rows that were seen so far, at most `limit` of them."""

    def __init__(self, key: Column, *, limit: int | None, descending: bool) -> None:
        self._key, self._limit, self._descending = key, limit, descending
        self._rows: pa.Table | None = None
        self._worst: tuple[bool, Any] | None = None
        """Of the last row: whether it is null, and its value."""

    def add(self, rows: pa.Table) -> None:
        """Take rows that have the key and `_seq` among their columns."""
        if not rows.num_rows:
            return
        together = rows if self._rows is None else pa.concat_tables([self._rows, rows])
        self._rows = self._sorted(together)
        if self._limit is not None:
            self._rows = self._rows.slice(0, self._limit)
            if self._limit and self._rows.num_rows == self._limit:
                last = self._rows.column(self._key.name).slice(self._limit - 1)
                (value,) = stat_values(self._key.type, last)
                self._worst = (value is None, value)

    def _sorted(self, rows: pa.Table) -> pa.Table:
        order = "descending" if self._descending else "ascending"
        keys = [(self._key.name, order), ("_seq", order)]
        if self._key.type.domain is Domain.FLOAT:
            # pyarrow puts NaN at the end whatever the order.
            is_nan = pc.is_nan(rows.column(self._key.name))
            marked = rows.append_column(_NAN_LAST, is_nan.cast(pa.int8()))
            chosen = pc.sort_indices(marked, sort_keys=[(_NAN_LAST, order), *keys])
        else:
            chosen = pc.sort_indices(rows, sort_keys=keys)
        return rows.take(chosen)

    def may_be_beaten(self, bound: RankBound) -> bool:
        """Whether rows within these bounds could still be among the best; in doubt, yes."""
        if self._worst is None:
            return True
        is_null, worst = self._worst
        if is_null:
            return True
        if bound.is_empty:
            return False
        best = bound.high if self._descending else bound.low
        if best is None:
            return True
        # An equal value may win by its sequence number.
        first, second = _rank(best), _rank(worst)
        return first >= second if self._descending else first <= second

    @property
    def rows(self) -> pa.Table | None:
        """In their order; None if there are none."""
        return self._rows


def _rank(value: Value) -> tuple[bool, Any]:
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


class ZoneOrders:
    """The order of zones by a column, from the indexes of segments; it reports what these said."""

    def __init__(
        self,
        service: ManifestService,
        schema: Schema,
        key: Column,
        report: PlanReport,
        *,
        use_indexes: bool,
    ) -> None:
        self._service, self._schema, self._key = service, schema, key
        self._report, self._use_indexes = report, use_indexes
        self._noted: set[str] = set()
        """Paths of segments that are counted: rows may be asked for several times."""

    def of(self, split: Split) -> tuple[Split, RankIndex] | None:
        """The split with what reading single zones needs, and their order; None: not known."""
        kind = split.order_from(self._key.id) if self._use_indexes else None
        index = split.entry.index
        if kind is None or index is None:
            return None
        places = [(SEGMENT, PAGES)] if PAGES in index.kinds.get(SEGMENT, ()) else []
        if kind == "rank":
            places.append((self._key.id, kind))
        loaded = self._loaded(split, places)
        if loaded is None:
            return None
        by_number = kind == "rows"
        rank = _by_number(split, loaded) if by_number else loaded.opened.get((self._key.id, kind))
        if rank is None:
            return None
        zone_rows = loaded.layout.zone_rows
        return replace(split, pages=loaded.pages, zone_rows=zone_rows), rank

    def _loaded(self, split: Split, places: Sequence[Place]) -> SegmentIndexes | None:
        reader = IndexReader(self._service, self._schema)
        (loaded,) = reader.load([(split.entry, places)])
        known = self._report.index_failures
        known.extend(failure for failure in reader.failures if failure not in known)
        self._report.index_bytes += reader.bytes_read
        return loaded

    def note(self, split: Split, zones_unread: int) -> None:
        """Count the zones of a segment that its order saved."""
        kind = split.order_from(self._key.id)
        if kind is not None and split.entry.path not in self._noted:
            self._noted.add(split.entry.path)
            self._report.note_used({(self._key.id, kind): zones_unread})


def _by_number(split: Split, loaded: SegmentIndexes) -> RankIndex:
    """Zones of a dense segment: their numbers say it all."""
    bounds = number_bounds(loaded.layout, split.entry.min_seq)
    order = np.arange(loaded.layout.count)
    return RankIndex(bounds, order, order[::-1])


def collect(
    best: BestRows,
    splits: Iterable[Split],
    *,
    key: Column,
    descending: bool,
    limit: int | None,
    read: Callable[[Sequence[Split]], Iterable[tuple[int, pa.Table]]],
    orders: ZoneOrders,
) -> None:
    """Read splits into `best`, the most promising first, until no other can change it."""
    if limit is None:
        for _, rows in read(list(splits)):
            best.add(rows)
        return
    bounded = [(split, bound_of_segment(split.entry, key)) for split in splits]
    for split, bound in sorted(bounded, key=lambda pair: _promise(pair[1], descending=descending)):
        if not best.may_be_beaten(bound):
            continue
        zones = orders.of(split)
        if zones is None:
            for _, rows in read([split]):
                best.add(rows)
        else:
            unread = _collect_zones(best, *zones, read, descending=descending, at_least=limit)
            orders.note(split, unread)


def _collect_zones(
    best: BestRows,
    split: Split,
    rank: RankIndex,
    read: Callable[[Sequence[Split]], Iterable[tuple[int, pa.Table]]],
    *,
    descending: bool,
    at_least: int,
) -> int:
    """Read zones as long as they may change the best rows; says how many did not need it."""
    order = rank.order(descending=descending)
    allowed = order if split.zones is None else order[split.zones[order]]
    position, size, unread = 0, max(1, -(-at_least // split.zone_rows)), len(allowed)
    while position < len(allowed):
        candidates = allowed[position : position + size].tolist()
        zones = [zone for zone in candidates if best.may_be_beaten(rank.bound_of(zone))]
        if not zones:
            break  # the next ones are no better
        mask = np.zeros(len(order), np.bool_)
        mask[zones] = True
        for _, rows in read([replace(split, zones=mask)]):
            best.add(rows)
        unread -= len(zones)
        position += size
        size *= 2
    return unread


def bound_of_segment(entry: SegmentEntry, key: Column) -> RankBound:
    """What is known of the key's values in a segment without opening it."""
    if key.id == SEQ_ID:
        return RankBound(entry.min_seq, entry.max_seq, 0, entry.row_count)
    if key.id == TS_ID:
        return RankBound(entry.min_ts, entry.max_ts, 0, entry.row_count)
    stats = entry.stats_of(key)
    if stats is None:
        return RankBound(None, None, 0, entry.row_count)
    high = math.nan if stats.has_nan else stats.max
    nulls = 0 if stats.null_count is None else stats.null_count
    return RankBound(stats.min, high, nulls, entry.row_count)


def _promise(bound: RankBound, *, descending: bool) -> tuple[Any, ...]:
    """Sorts the unknown first, then the best, and what is all null last."""
    if bound.is_empty:
        return (2,)
    best = bound.high if descending else bound.low
    if best is None:
        return (0,)
    return (1, _Reversed(_rank(best)) if descending else _rank(best))


class _Reversed:
    """Orders the other way round, whatever is inside."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment] # a sort key and nothing else
