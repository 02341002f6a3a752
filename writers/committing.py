"""Committing a run of log records: exactly once, whoever tries, however often.

Used by the flusher of an open writer and by recovery, which replays what a crash left in a log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from strandline.catalog.commit import MetadataChange, commit
from strandline.catalog.tidy import tidy
from strandline.tableformat import rolling
from strandline.tableformat.actions import ClaimWriter, WalKey
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.lateness import marks_of, raised
from strandline.tableformat.timestamps import stamp
from strandline.tableformat.windows import split_by_window
from strandline.writers.append import Acknowledged, AppendChange, Conditions
from strandline.writers.layout import MAX_FILES_PER_COMMIT, lay_out, most_windows
from strandline.writers.memtable import Placement, edges_of

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.tableformat.config import Config
    from strandline.tableformat.lateness import Marks
    from strandline.tableformat.schema import Schema
    from strandline.writers.memtable import Memtable

log: Final = logging.getLogger(__name__)
Array = np.ndarray[Any, Any]


class Place(Protocol):
    """A table's handle, as far as a writer needs it."""

    @property
    def chain(self) -> Chain: ...

    @property
    def head(self) -> Snapshot:
        """The newest version that was seen."""

    def see(self, snapshot: Snapshot) -> None:
        """Remember a newer version."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Records that one commit takes."""

    first_index: int
    """In their memtable."""
    first_record: int
    counts: list[int]
    rows: pa.Table
    arrived_ms: Array


def runs_of(memtable: Memtable, config: Config) -> list[Run]:
    """What is left of a memtable, cut where one commit would touch too many windows."""
    start = memtable.records_placed
    rows, arrived, counts = memtable.table(), memtable.arrived_ms(), memtable.counts
    edges = edges_of(counts, None)
    windows = times_of(rows, memtable.schema, config, arrived) // config.window_ms
    runs = []
    while start < len(counts):
        stop = _reach(windows, edges, start, most_windows(config))
        low, high = int(edges[start]), int(edges[stop])
        runs.append(
            Run(
                start,
                memtable.first_record + start,
                counts[start:stop],
                rows.slice(low, high - low),
                arrived[low:high],
            )
        )
        start = stop
    return runs


def times_of(
    rows: pa.Table,
    schema: Schema,
    config: Config,
    now_ms: int | Array,
    tail_ts_ms: int | None = None,
) -> Array:
    """Each row's `_ts`, clamped only if a tail is given; refuses times that no table takes."""
    column = schema.by_id.get(config.time_column or 0)
    stamped = stamp(
        None if column is None else rows.column(column.name),
        None if column is None else column.type,
        rows=rows.num_rows,
        mode=config.timestamping,
        uncapped=config.uncapped,
        order="event_time" if tail_ts_ms is None else config.order,
        now_ms=now_ms,
        tail_ts_ms=tail_ts_ms,
        field="_ts" if column is None else column.name,
    )
    return stamped.ts_ms


def _reach(windows: Array, edges: Array, start: int, most: int) -> int:
    """How far a run from record `start` on may go; at least one record."""
    last = len(edges) - 1
    if len(np.unique(windows[edges[start] :])) <= most:
        return last
    seen: set[int] = set()
    for stop in range(start, last):
        seen.update(windows[edges[stop] : edges[stop + 1]].tolist())
        if len(seen) > most:
            return max(stop, start + 1)
    raise AssertionError("fewer windows than were counted")


def check_fits_a_commit(rows: pa.Table, schema: Schema, config: Config, ts_ms: Array) -> None:
    """Refuse a record that no single commit could take: later would be too late."""
    windows = len(split_by_window(ts_ms, config.window_ms))
    if windows > most_windows(config):
        # So many windows times shards could be too many files; laying them out counts them. Each
        # may become two when rows turn out to be late.
        files = len(
            lay_out(rows, ts_ms, schema, config, marks_of({}, config.shards), alone=True).pieces
        )
        if config.jitter_ms is not None and 2 * files > MAX_FILES_PER_COMMIT:
            raise InvalidInput(
                f"the rows fall into {files} files (windows times shards), twice that if they are "
                f"late, and one commit takes {MAX_FILES_PER_COMMIT}. Nothing was taken. Append "
                "fewer windows at a time."
            )


class Committer:
    """Commits runs under one writer id and incarnation, each behind the one before."""

    def __init__(
        self,
        place: Place,
        writer_id: str,
        incarnation: str,
        fence: str | None,
        compact_at: int | None = None,
    ) -> None:
        """`compact_at`: segments in the manifest from which on they are compacted; None: never."""
        self.place, self.writer_id, self.incarnation = place, writer_id, incarnation
        self._fence, self._compact_at = fence, compact_at
        self._marks: Marks | None = None
        self._marks_before: dict[int, Marks] = {}
        """By first record: a run that is prepared again is not late against itself."""
        self._roll_due = False
        self.late_rows = self.jitter_rows = self.dropped_rows = 0

    def claim(self, committed: int = 0) -> None:
        """Make this incarnation the only one that can commit under the writer id.

        `committed`: its newest record that is in the table, though not under this id.
        """
        claim = ClaimWriter(self.writer_id, self.incarnation, committed, self._fence)
        change = MetadataChange((claim,))
        self.place.see(
            commit(self.place.chain, self.place.head, change, operation="claim").snapshot
        )

    def prepare(self, run: Run, schema: Schema, *, in_haste: bool = False) -> AppendChange:
        """Encode the rows and start their upload. Runs are prepared in the order of the log."""
        chain = self.place.chain
        marks = self._marks_before.get(run.first_record)
        if marks is None:
            marks = self._marks_before[run.first_record] = self._present_marks()
        last = run.first_record + len(run.counts) - 1
        change = AppendChange(
            chain.storage,
            chain.runtime,
            self.place.head.manifest,
            rows=run.rows,
            schema=schema,
            conditions=Conditions(
                key=WalKey(self.writer_id, self.incarnation, run.first_record, last),
                fence=self._fence,
            ),
            marks=marks,
            acknowledged=Acknowledged(run.arrived_ms, in_haste),
        )
        self._marks = change.marks_after
        return change

    def _present_marks(self) -> Marks:
        manifest = self.place.head.manifest
        of_table = marks_of(manifest.shard_marks, manifest.config.shards)
        if self._marks is None:
            return of_table
        # Without keys the table is the only one, and its newest row may be somebody else's.
        return raised(self._marks, of_table) if manifest.config.shard_by is None else self._marks

    def commit(self, run: Run, change: AppendChange) -> Placement:
        """Place a run behind the tail; gives where it is, also if it was there already.

        Call `tidy_up` afterwards, when nobody waits for the rows any more.
        """
        done = commit(self.place.chain, self.place.head, change, operation="append")
        self.place.see(done.snapshot)
        made = done.snapshot.manifest
        self._marks_before.pop(run.first_record, None)
        self.late_rows += change.late_rows
        self.jitter_rows += change.jitter_rows
        self.dropped_rows += change.dropped_late
        edges = edges_of(run.counts, change.kept)
        if done.earlier is not None:
            return Placement(done.earlier.version, done.earlier.first_seq, edges)
        listed = len(made.segments)
        self._roll_due |= rolling.should_roll(listed - change.files, listed)
        return Placement(made.version, made.next_seq - int(edges[-1]), edges)

    def tidy_up(self, *, in_haste: bool = False) -> None:
        """Do what commits have left to be done: roll segments into pages, or compact them.

        `in_haste`: rows wait for their commit, so compaction does.
        """
        listed = len(self.place.head.manifest.segments)
        if self._compact_at is not None and listed >= self._compact_at and not in_haste:
            self._compact(self._compact_at)
        elif self._roll_due:
            self.place.see(tidy(self.place.chain, self.place.head))
        self._roll_due = False

    def _compact(self, least: int) -> None:
        """Put the newest segments together. The rows are safe: nothing here may fail the flush."""
        from strandline.writers.compacting import compact_newest  # noqa: PLC0415 - when asked for

        try:
            compact_newest(self.place, least)
        except Exception as error:  # noqa: BLE001 - see above
            log.warning("the newest segments stay as they are: %s", error)
