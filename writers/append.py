"""One append: rows in, data files written, and a change that a commit can place behind the tail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat import paths
from strandline.tableformat.actions import AddSegments, MustRewrite
from strandline.tableformat.errors import InvalidInput, OutcomeUnclear, StoreBusy
from strandline.tableformat.segments import DENSE, OFFSET, SegmentEntry
from strandline.tableformat.timestamps import stamp
from strandline.tableformat.windows import split_by_window
from strandline.writers.segment_file import encode_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.actions import BatchKey
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.storage import PendingWrite, Storage
    from strandline.tableformat.timestamps import Stamped
    from strandline.tableformat.windows import Window

MAX_BATCH_ROWS: Final = 2**31 - 1
"""`_off` is a 32-bit integer."""
MAX_SEGMENT_ROWS: Final = 1_048_576
MAX_SEGMENT_ARROW_BYTES: Final = 256 * 2**20
ENCODING_THREADS: Final = 2
"""pyarrow encodes without the interpreter's lock; more threads than this gained nothing."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What must hold for an append to be accepted."""

    key: BatchKey | None = None
    fence: str | None = None
    match_seq: int | None = None


@dataclass(frozen=True, slots=True)
class _Upload:
    """A data file on its way. If the store loses track of it, the file is written anew.

    Its name is never used again, so a late arrival is an orphan and nothing else.
    """

    write: PendingWrite

    def wait(self) -> None:
        try:
            self.write.wait()
        except (OutcomeUnclear, StoreBusy) as error:
            raise MustRewrite(f"a data file was not stored: {error}") from None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one segment: where they stand in the batch, and in which window they fall."""

    window: Window
    rows: pa.Table
    first: int
    last: int
    offsets: Array | None
    ts_ms: Array


class AppendChange:
    """Rows with the files that hold them; made again if the head has moved too far."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        head: Manifest,
        *,
        rows: pa.Table,
        schema: Schema,
        conditions: Conditions,
    ) -> None:
        self._storage, self._runtime = storage, runtime
        self._rows, self._schema, self._conditions = rows, schema, conditions
        stamped = self._stamp(head)
        pieces = _pieces(rows, stamped, head.config.window_ms)
        written = self._write(pieces, stamped, head)
        clamps = head.config.order == "clamp"
        self.pending: tuple[PendingWrite, ...] = tuple(upload for _, upload in written)
        self.actions = (
            AddSegments(
                segments=tuple(entry for entry, _ in written),
                rows=rows.num_rows,
                last_ts=int(stamped.ts_ms[-1]),
                key=conditions.key,
                fence=conditions.fence,
                match_seq=conditions.match_seq,
                clamped_to=head.last_ts if clamps else None,
            ),
        )

    def rewrite(self, head: Manifest) -> AppendChange:
        """The same rows in new files, stamped and placed for this head."""
        return AppendChange(
            self._storage,
            self._runtime,
            head,
            rows=self._rows,
            schema=self._schema,
            conditions=self._conditions,
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
            now_ms=self._runtime.now_ms(),
            tail_ts_ms=head.last_ts if head.next_seq else None,
            field="_ts" if column is None else column.name,
        )

    def _write(
        self, pieces: Sequence[_Piece], stamped: Stamped, head: Manifest
    ) -> list[tuple[SegmentEntry, PendingWrite]]:
        def write(piece: _Piece) -> tuple[SegmentEntry, PendingWrite]:
            return self._write_segment(piece, head, store_ts=stamped.differs)

        if len(pieces) == 1:
            return [write(pieces[0])]
        with ThreadPoolExecutor(ENCODING_THREADS) as pool:
            return list(pool.map(write, pieces))

    def _write_segment(
        self, piece: _Piece, head: Manifest, *, store_ts: bool
    ) -> tuple[SegmentEntry, PendingWrite]:
        file = encode_segment(
            piece.rows,
            self._schema,
            head.config,
            offsets=piece.offsets,
            timestamps=piece.ts_ms if store_ts else None,
        )
        file_id = self._runtime.random_hex(8)
        path = paths.segment_path(piece.window, 0, "batch", head.version, file_id)
        entry = SegmentEntry(
            path=path,
            window=piece.window,
            shard=0,
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
        )
        return entry, _Upload(self._storage.write_new(path, file.data))


def check_size(rows: pa.Table) -> None:
    """Refuse a batch whose rows cannot be counted in 32 bits."""
    if rows.num_rows > MAX_BATCH_ROWS:
        raise InvalidInput(
            f"one append takes at most {MAX_BATCH_ROWS} rows, not {rows.num_rows}. Nothing was "
            "written. Append in several batches."
        )


def _pieces(rows: pa.Table, stamped: Stamped, window_ms: int) -> list[_Piece]:
    """Split a batch by window, then into files of a good size."""
    pieces = []
    for window, where in split_by_window(stamped.ts_ms, window_ms):
        if isinstance(where, slice):
            chosen = rows.slice(where.start, where.stop - where.start)
        else:
            chosen = rows.take(pa.array(where))
        for start, stop in _cuts(chosen):
            part = chosen.slice(start, stop - start)
            if isinstance(where, slice):
                first, last = where.start + start, where.start + stop - 1
                offsets = None
                ts_ms = stamped.ts_ms[first : last + 1]
            else:
                offsets = where[start:stop]
                first, last = int(offsets[0]), int(offsets[-1])
                ts_ms = stamped.ts_ms[offsets]
            pieces.append(_Piece(window, part, first, last, offsets, ts_ms))
    return pieces


def _cuts(rows: pa.Table) -> list[tuple[int, int]]:
    """Where to cut rows into files: equal parts, so that all threads finish together."""
    parts = max(
        -(-rows.num_rows // MAX_SEGMENT_ROWS), -(-rows.nbytes // MAX_SEGMENT_ARROW_BYTES), 1
    )
    if parts > 1:
        parts += parts % ENCODING_THREADS
    parts = min(parts, rows.num_rows)
    edges = [rows.num_rows * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
