"""One append: rows in, data files written, and a change that a commit can place behind the tail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.catalog.uploads import Upload
from strandline.tableformat import paths
from strandline.tableformat.actions import AddSegments
from strandline.tableformat.errors import InvalidInput, LateRows
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.lateness import JITTER, LATE, marks_of
from strandline.tableformat.segments import DENSE, OFFSET, SegmentEntry
from strandline.tableformat.stores.background import Background
from strandline.tableformat.timestamps import stamp
from strandline.tableformat.windows import length_that_fits
from strandline.writers.layout import ENCODING_THREADS, lay_out, most_windows
from strandline.writers.segment_file import encode_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.actions import BatchKey
    from strandline.tableformat.lateness import Marks
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.storage import PendingWrite, Storage
    from strandline.tableformat.timestamps import Stamped
    from strandline.writers.layout import Piece

MAX_BATCH_ROWS: Final = 2**31 - 1
"""`_off` is a 32-bit integer."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What must hold for an append to be accepted."""

    key: BatchKey | None = None
    fence: str | None = None
    match_seq: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Acknowledged:
    """Rows that a writer has taken before: too late to refuse them, and they have their times."""

    arrived_ms: Array
    """When each row was taken."""
    in_haste: bool = False
    """Leave index work to compaction: more rows are waiting than the table can take."""


class AppendChange:
    """Rows with the files that hold them; made again in place if the head has moved too far.

    What is said of the rows here is true of the newest attempt, so whoever asks after the commit
    learns what has been committed.
    """

    actions: tuple[AddSegments]
    pending: tuple[PendingWrite, ...]
    kept: Array | None
    """Which of the rows are appended; None: all. The others are older than the floor."""
    dropped_late: int
    jitter_rows: int
    late_rows: int
    marks_after: Marks
    """The newest rows by key after this batch, for the writer's next one."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        head: Manifest,
        *,
        rows: pa.Table,
        schema: Schema,
        conditions: Conditions,
        marks: Marks | None = None,
        acknowledged: Acknowledged | None = None,
        alone: bool = False,
    ) -> None:
        """`marks`: what a long-lived writer remembers; without, what the manifest does.

        `alone`: no append of the same writer follows, and nobody asks how late its rows were.
        """
        self._storage, self._runtime = storage, runtime
        self._rows, self._schema, self._conditions = rows, schema, conditions
        self._marks, self._acknowledged, self._alone = marks, acknowledged, alone
        self._place(head)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit: no row is left, and no key to remember."""
        return not self.actions[0].rows and self._conditions.key is None

    @property
    def files(self) -> int:
        """How many data files hold the rows."""
        return len(self.actions[0].segments)

    def rewrite(self, head: Manifest) -> AppendChange:
        """The same rows in new files, stamped and placed for this head."""
        self._place(head)
        return self

    def _place(self, head: Manifest) -> None:
        config, conditions = head.config, self._conditions
        stamped = self._stamp(head)
        may_refuse = self._acknowledged is None and config.on_late == "error"
        rows, ts_ms, self.kept = _above_floor(
            self._rows, stamped.ts_ms, head.floor_ts, may_refuse=may_refuse
        )
        self.dropped_late = self._rows.num_rows - rows.num_rows
        marks = self._marks or marks_of(head.shard_marks, config.shards)
        if self._acknowledged is not None:
            # They were taken when windows were longer, and have to fit into a commit all the same.
            fitting = length_that_fits(ts_ms, config.window_ms, most_windows(config))
            config = replace(config, window_ms=fitting)
        layout = lay_out(rows, ts_ms, self._schema, config, marks, alone=self._alone)
        self.jitter_rows = layout.lateness.count(JITTER)
        self.late_rows = layout.lateness.count(LATE)
        self.marks_after = layout.lateness.marks
        written = self._write(layout.pieces, head, store_ts=stamped.differs)
        self.pending = tuple(upload for _, uploads in written for upload in uploads)
        self.actions = (
            AddSegments(
                segments=tuple(entry for entry, _ in written),
                rows=rows.num_rows,
                last_ts=int(ts_ms[-1]) if rows.num_rows else 0,
                key=conditions.key,
                fence=conditions.fence,
                match_seq=conditions.match_seq,
                clamped_to=head.last_ts if config.order == "clamp" and rows.num_rows else None,
            ),
        )

    def _stamp(self, head: Manifest) -> Stamped:
        config = head.config
        column = self._schema.by_id.get(config.time_column or 0)
        return stamp(
            None if column is None else self._rows.column(column.name),
            None if column is None else column.type,
            rows=self._rows.num_rows,
            mode=config.timestamping,
            uncapped=config.uncapped,
            order=config.order,
            now_ms=self._arrived_ms(),
            tail_ts_ms=head.last_ts if head.next_seq else None,
            field="_ts" if column is None else column.name,
        )

    def _arrived_ms(self) -> int | Array:
        known = self._acknowledged
        return self._runtime.now_ms() if known is None else known.arrived_ms

    def _write(
        self, pieces: Sequence[Piece], head: Manifest, *, store_ts: bool
    ) -> list[tuple[SegmentEntry, list[PendingWrite]]]:
        def write(piece: Piece) -> tuple[SegmentEntry, list[PendingWrite]]:
            return self._write_segment(piece, head, store_ts=store_ts)

        return Background(ENCODING_THREADS, "strandline-encode").map(write, pieces)

    def _write_segment(
        self, piece: Piece, head: Manifest, *, store_ts: bool
    ) -> tuple[SegmentEntry, list[PendingWrite]]:
        file = encode_segment(
            piece.rows,
            self._schema,
            head.config,
            ts_ms=piece.ts_ms,
            offsets=piece.offsets,
            store_ts=store_ts,
            in_haste=self._acknowledged is not None and self._acknowledged.in_haste,
        )
        file_id = self._runtime.random_hex(8)
        path = paths.segment_path(
            piece.window, piece.shard, piece.kind, head.files_version, file_id
        )
        entry = SegmentEntry(
            path=path,
            window=piece.window,
            shard=piece.shard,
            row_count=piece.rows.num_rows,
            size_bytes=len(file.data),
            min_seq=piece.first,
            max_seq=piece.last,
            min_ts=int(piece.ts_ms.min()),
            max_ts=int(piece.ts_ms.max()),
            column_stats=file.column_stats,
            footer_bytes=file.footer_bytes,
            footer_xxh64=file.footer_xxh64,
            schema_id=self._schema.id,
            created_at=0,
            rows_are=DENSE if piece.offsets is None else OFFSET,
            ts_stored=store_ts,
            index=file.index,
            index_debt=file.index_debt,
        )
        objects = [(path, file.data)]
        if file.index is not None:
            objects.append((path_of(path), b"".join(file.index_pieces)))
        return entry, [Upload(self._storage.write_new(name, data)) for name, data in objects]


def _above_floor(
    rows: pa.Table, ts_ms: Array, floor: int, *, may_refuse: bool
) -> tuple[pa.Table, Array, Array | None]:
    """The rows that may be stored, with their times, and which of all rows they are."""
    if not floor or not ts_ms.size or ts_ms.min() >= floor:
        return rows, ts_ms, None
    kept = ts_ms >= floor
    if may_refuse:
        raise LateRows(int(np.count_nonzero(~kept)), floor)
    return rows.filter(pa.array(kept)), ts_ms[kept], kept


def check_size(rows: pa.Table) -> None:
    """Refuse a batch whose rows cannot be counted in 32 bits."""
    if rows.num_rows > MAX_BATCH_ROWS:
        raise InvalidInput(
            f"one append takes at most {MAX_BATCH_ROWS} rows, not {rows.num_rows}. Nothing was "
            "written. Append in several batches."
        )
