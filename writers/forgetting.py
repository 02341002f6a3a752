"""What a rewrite of a keyed table leaves out: rows and tombstones that can never count again.

Rows are compared with all others of their keys: those that are rewritten together, and those in
segments that stay. What follows from the latter must still be true when the commit lands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.readers.arrow_arrays import integers
from strandline.readers.key_lookup import KeyReader, KeySet
from strandline.readers.planner import plan_scan
from strandline.readers.splits import Split
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.keys import Newest, forgettable
from strandline.tableformat.replacing import Assumptions, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Int64s = np.ndarray[Any, np.dtype[np.int64]]
MOST_ROWS_ELSEWHERE: Final = 2**24
"""Where more rows would have to be looked at, only rows that are rewritten together are compared.
Nothing but space is lost by that."""
_LISTED_KEYS: Final = 4_096
"""Up to so many keys, segments are chosen by each of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Forgotten:
    """Which rows of a rewrite stay, and what was taken for granted to find out."""

    rows: pa.Table
    tombstones: pa.Table
    assumes: Assumptions | None


class Elsewhere:
    """The other segments of the version that a rewrite reads."""

    def __init__(
        self, service: ManifestService, manifest: Manifest, inputs: Sequence[SegmentEntry]
    ) -> None:
        self._service, self._manifest, self._inputs = service, manifest, inputs

    def read(self, keys: KeySet) -> list[tuple[SegmentEntry, pa.Table]] | None:
        """Rows of the keys that may outdo one that is rewritten, or be hidden by one.

        They come with the columns of the key, `_ts` and `_seq`. None: there are too many to look.
        """
        bound = keys.bound if keys.count <= _LISTED_KEYS else None
        entries = [entry for entry in self._planned(bound) if self._matters(entry)]
        if sum(entry.row_count for entry in entries) > MOST_ROWS_ELSEWHERE:
            return None
        reader = KeyReader(self._service, self._manifest, lambda _: True)
        found = reader.read(Split(entry) for entry in entries)
        return [(entry, keys.only(rows)) for entry, rows in found]

    def _planned(self, bound: Bound | None) -> Iterator[SegmentEntry]:
        mine = {entry.path for entry in self._inputs}
        plan = plan_scan(self._service, self._manifest, bound, indexes=False)
        return (entry for entry in plan.segments if entry.path not in mine)

    def _matters(self, other: SegmentEntry) -> bool:
        inputs = self._inputs
        if other.max_ts < self._manifest.floor_ts or other.max_seq < self._manifest.trim_seq:
            return False
        newer = any(other.max_ts >= e.min_ts and other.max_seq > e.min_seq for e in inputs)
        stones = [entry.max_ts for entry in inputs if entry.tombstones]
        older = stones and not other.tombstones and other.min_ts <= max(stones)
        return newer or bool(older)


def forget(
    manifest: Manifest, rows: pa.Table, tombstones: pa.Table, elsewhere: Elsewhere | None
) -> Forgotten:
    """Rows and tombstones without those that no version from now on can return.

    Both come with the columns of the key, `_ts` and `_seq`. `elsewhere`: the rest of the table;
    without it, every tombstone that is the newest of its key stays.
    """
    keys = _keys_of(manifest, [rows, tombstones])
    found = None if elsewhere is None else elsewhere.read(keys)
    every = _Compared(manifest, keys, [(rows, False), (tombstones, True)], found or ())
    alone = _Compared(manifest, keys, [(rows, False), (tombstones, True)], ())
    gone = alone.outdone() if found is None else every.forgotten()
    _check(manifest, [rows, tombstones], found or (), gone)
    kept_rows = rows.filter(pa.array(~gone[: rows.num_rows]))
    kept_stones = tombstones.filter(pa.array(~gone[rows.num_rows :]))
    assumes = None if found is None else _assumptions(manifest, alone, every, gone, found)
    return Forgotten(kept_rows, kept_stones, assumes)


def _keys_of(manifest: Manifest, tables: Sequence[pa.Table]) -> KeySet:
    columns = manifest.key_columns
    names = [column.name for column in columns]
    together = pa.concat_tables([table.select(names) for table in tables])
    return KeySet(columns, together.columns)


class _Compared:
    """Rows of a rewrite, followed by those of the same keys in other segments."""

    def __init__(
        self,
        manifest: Manifest,
        keys: KeySet,
        mine: Sequence[tuple[pa.Table, bool]],
        others: Iterable[tuple[SegmentEntry, pa.Table]],
    ) -> None:
        outside = [(rows, entry.tombstones) for entry, rows in others]
        parts = [*mine, *outside]
        self.count = sum(rows.num_rows for rows, _ in mine)
        self.places = np.concatenate([keys.of_given, *(keys.places(rows) for rows, _ in outside)])
        self.ts_ms, self.seqs = (
            np.concatenate([integers(rows.column(name)) for rows, _ in parts])
            for name in ("_ts", "_seq")
        )
        self.deleted = np.concatenate([np.full(rows.num_rows, stone) for rows, stone in parts])
        self._visible = (self.seqs >= manifest.trim_seq) & (self.ts_ms >= manifest.floor_ts)

    def forgotten(self) -> Bools:
        """Which of the rewrite's rows are left out."""
        mine = np.arange(len(self.places)) < self.count
        found = forgettable(
            self.places,
            self.ts_ms,
            self.seqs,
            deleted=self.deleted,
            visible=self._visible,
            mine=mine,
        )
        gone: Bools = found[: self.count]
        return gone

    def outdone(self) -> Bools:
        """Which of them are left out for another row of their key."""
        # A row that every tombstone hides: none of them is forgotten for want of one.
        mine = np.arange(len(self.places)) < self.count
        found = forgettable(
            self.places,
            self.ts_ms,
            self.seqs,
            deleted=np.zeros(len(self.places), np.bool_),
            visible=self._visible,
            mine=mine,
        )
        gone: Bools = found[: self.count]
        return gone


def _assumptions(
    manifest: Manifest,
    alone: _Compared,
    every: _Compared,
    gone: Bools,
    found: Sequence[tuple[SegmentEntry, pa.Table]],
) -> Assumptions | None:
    """What must be true of other segments, as far as rows were forgotten because of them."""
    outdone = every.outdone()
    by_others = bool((outdone & ~alone.outdone()).any())
    stones = gone & ~outdone
    if not by_others and not stones.any():
        return None
    holders = [entry for entry, rows in found if rows.num_rows] if by_others else []
    return Assumptions(
        holders=frozenset(path for entry in holders for path in _listed_in(manifest, entry)),
        known=frozenset(part.path for part in parts_of(manifest)),
        forgotten_ts=int(every.ts_ms[: every.count][stones].max()) if stones.any() else None,
    )


def _listed_in(manifest: Manifest, entry: SegmentEntry) -> list[str]:
    """What the version itself refers to, of all that may lead to a segment."""
    if any(inline.path == entry.path for inline in manifest.segments):
        return [entry.path]
    return [
        part.path
        for part in parts_of(manifest)
        if part.min_seq <= entry.min_seq
        and entry.max_seq <= part.max_seq
        and part.min_ts <= entry.min_ts
        and entry.max_ts <= part.max_ts
        and part.row_count >= entry.row_count
    ]


def _check(
    manifest: Manifest,
    mine: Sequence[pa.Table],
    found: Sequence[tuple[SegmentEntry, pa.Table]],
    gone: Bools,
) -> None:
    """Find the winners once more, by another road, with and without what is to be forgotten."""
    names = [column.name for column in manifest.key_columns]
    least_ts, least_seq = manifest.floor_ts, manifest.trim_seq
    rows, stones = mine
    edge = rows.num_rows
    before = [rows, stones, *(table for _, table in found)]
    after = [
        rows.filter(pa.array(~gone[:edge])),
        stones.filter(pa.array(~gone[edge:])),
        *(table for _, table in found),
    ]
    deleted = np.concatenate(
        [
            integers(stones.column("_seq")),
            *(integers(table.column("_seq")) for entry, table in found if entry.tombstones),
        ]
    )
    winners = []
    for tables in (before, after):
        newest = Newest()
        for table in tables:
            times, seqs = integers(table.column("_ts")), integers(table.column("_seq"))
            seen = (times >= least_ts) & (seqs >= least_seq)
            shown = table.filter(pa.array(seen))
            newest.add([shown.column(name) for name in names], times[seen], seqs[seen])
        winners.append(np.setdiff1d(newest.seqs(), deleted))
    if not np.array_equal(winners[0], winners[1]):
        raise CorruptTable(
            "a rewrite would change which rows of a keyed table count. Nothing was changed. This "
            "is a defect: please report it."
        )
