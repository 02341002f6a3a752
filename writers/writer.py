"""The writer that producers hold: append from any thread, and never think about files.

Rows are validated, logged, kept in memory and committed in the background. An append returns as
soon as the promise of `ack` holds, and a full memory makes it wait.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from strandline.readers.request import Request
from strandline.readers.scan import Scan
from strandline.tableformat.errors import InvalidInput, LateRows, WriterBusy
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.append import check_size
from strandline.writers.buffers import Buffers
from strandline.writers.committing import Committer, check_fits_a_commit, times_of
from strandline.writers.flusher import Flusher
from strandline.writers.ingest import to_arrow
from strandline.writers.log_places import open_log, open_place
from strandline.writers.memtable import Memtable, Placement
from strandline.writers.metrics import Metrics
from strandline.writers.options import check_seconds
from strandline.writers.processes import look_after
from strandline.writers.receipts import Receipt
from strandline.writers.recovery import Recovered, recover
from strandline.writers.row_check import RowCheck
from strandline.writers.stats import CloseReport, WriterStats
from strandline.writers.wal_frames import LogHeader, json_payload

if TYPE_CHECKING:
    from types import TracebackType

    from strandline.tableformat.errors import StrandlineError
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema
    from strandline.writers.committing import Place
    from strandline.writers.log import Log
    from strandline.writers.options import WriterOptions

LOG: Final = logging.getLogger("strandline.writer")
MOST_RECORD_BYTES: Final = 2**30
_LAST_WAIT_S: Final = 0.5


class Writer:
    """Durable, ordered, bounded ingestion into one table. Safe to use from many threads."""

    def __init__(self, place: Place, writer_id: str, options: WriterOptions) -> None:
        """Recover what an earlier writer left in the log, claim the id, and start."""
        self._place, self._options = place, options
        self.writer_id = writer_id
        probe_once_per_process(place.chain.storage)
        place.see(place.chain.refresh(place.head))
        runtime = place.chain.runtime
        self._now_ms = runtime.now_ms
        self.recovered, log = self._open_log()
        self._log = log
        try:
            committer = Committer(
                place, writer_id, runtime.random_hex(16), options.fence, options.compact_at
            )
            committer.claim()
            header = LogHeader(
                table_uuid=place.head.manifest.table_uuid,
                writer_id=writer_id,
                incarnation=committer.incarnation,
                first_record=1,
                schema=place.head.manifest.schema,
                user=place.chain.user,
            )
            self._buffers = Buffers(log, header, options, runtime.monotonic)
        except BaseException:
            if log is not None:
                log.close()
            raise
        self._committer = committer
        self._use_schema(header.schema)
        self._syncs = log is not None and log.must_sync and options.ack == "wal"
        self._waits = options.ack == "committed" or self._syncs
        self._rows = 0
        self._closed: CloseReport | None = None
        self._flusher = Flusher(self._buffers, committer, log)
        if options.metrics is not None:
            about = {"table": place.chain.storage.url, "writer_id": writer_id}
            metrics = Metrics(options.metrics, about)
            self._flusher.tell = lambda seconds: metrics.flushed(self.stats(), seconds)
        self._flusher.thread.start()
        look_after(self)

    def __repr__(self) -> str:
        chain = self._place.chain
        whose = "" if chain.user is None else f"user {chain.user!r} of "
        return f"<strandline.Writer {self.writer_id!r} of {whose}{chain.storage.url}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns that rows are checked against."""
        return self._check.schema.arrow

    @property
    def close_timeout_s(self) -> float | None:
        """How long `close` waits unless it is told otherwise."""
        return self._options.close_timeout_s

    def _open_log(self) -> tuple[Recovered, Log | None]:
        options = self._options
        if not options.log.enabled:
            return Recovered(), None
        place = self._place
        table_uuid, user = place.head.manifest.table_uuid, place.chain.user
        folder = open_place(options.log, table_uuid, self.writer_id, user)
        try:
            recovered = recover(self._place, self.writer_id, folder, fence=options.fence)
        except BaseException:
            folder.release()
            raise
        if recovered.records:
            LOG.info("%d records were replayed from %s", recovered.records, folder.where)
        return recovered, open_log(folder, options.log)

    def _use_schema(self, schema: Schema) -> None:
        # One assignment: a row is never looked at under one schema and stored under another.
        self._check = RowCheck(schema, self._place.head.manifest.config)

    # --- taking rows ---

    def append(self, data: Any, *, timeout: float | None = None) -> Receipt:
        """Take rows: a dict is one row; lists of dicts, Arrow and data frames are batches.

        Returns when the promise of `ack` holds. Waits while memory is full, at most `timeout`
        seconds (the writer's own setting by default), then raises `WriterBusy`.
        """
        memtable, index = self._take(data, timeout)
        if self._waits and memtable.first_record:
            self._keep_promise(memtable, index)
        return Receipt(memtable, index, self._buffers.ask_for)

    def _take(self, data: Any, timeout: float | None) -> tuple[Memtable, int]:
        """Take rows without waiting for what `ack` promises."""
        if timeout is not None:
            check_seconds("timeout", timeout)
        limit_s = self._options.timeout_s if timeout is None else timeout
        taken = self._take_row(data, limit_s)
        if taken is None:
            taken = self._append_batch([data] if isinstance(data, dict) else data, limit_s)
        return taken

    def _take_row(self, data: Any, limit_s: float | None) -> tuple[Memtable, int] | None:
        """Take one plain row after a quick look; None: the data needs a careful one."""
        check = self._check
        manifest = self._place.head.manifest
        if manifest.floor_ts > 0 and manifest.config.on_late == "error":
            return None
        values = check.values(data)
        if values is None:
            return None
        try:
            payload = json_payload((values,))
        except TypeError:
            return None  # such as text that is not Unicode: the careful look names it
        return self._buffers.add_row(values, payload, check.schema, self._now_ms(), limit_s)

    def _append_batch(self, data: Any, limit_s: float | None) -> tuple[Memtable, int]:
        rows, schema = self._validated(data)
        if not rows.num_rows:
            return self._nothing(schema), 0
        arrived_ms = self._now_ms()
        config = self._place.head.manifest.config
        if rows.nbytes > MOST_RECORD_BYTES:
            raise InvalidInput(
                f"one append to a writer takes at most {MOST_RECORD_BYTES} bytes, not "
                f"{rows.nbytes}. Nothing was taken. Send it in parts, or use table.append."
            )
        ts_ms = times_of(rows, schema, config, arrived_ms)
        check_fits_a_commit(rows, schema, config, ts_ms)
        self._check_floor(ts_ms)
        return self._buffers.add_table(rows, schema, arrived_ms, limit_s)

    def _nothing(self, schema: Schema) -> Memtable:
        """What a receipt for no rows points to: no record, no commit."""
        manifest = self._place.head.manifest
        empty = Memtable(schema, 0)
        empty.add_table(schema.arrow.empty_table(), 0)
        empty.place(0, Placement(manifest.version, manifest.next_seq, np.zeros(2, np.int64)))
        empty.settle()
        return empty

    def _validated(self, data: Any) -> tuple[pa.Table, Schema]:
        schema = self._check.schema
        try:
            rows = to_arrow(data, schema)
        except InvalidInput:
            # The column may have been added by somebody else since this writer looked.
            self._place.see(self._place.chain.refresh(self._place.head))
            newer = self._place.head.manifest.schema
            used_up = hasattr(data, "__next__") or isinstance(data, pa.RecordBatchReader)
            if newer.id == schema.id or used_up:
                raise
            rows = to_arrow(data, newer)
            self._use_schema(newer)
            schema = newer
        check_size(rows)
        return rows, schema

    def _check_floor(self, ts_ms: np.ndarray[Any, Any]) -> None:
        manifest = self._place.head.manifest
        if manifest.config.on_late == "error" and manifest.floor_ts > 0:
            below = int((ts_ms < manifest.floor_ts).sum())
            if below:
                raise LateRows(below, manifest.floor_ts)

    def _keep_promise(self, memtable: Memtable, index: int) -> None:
        if self._log is not None and self._syncs:
            self._log.sync_until(memtable.first_record + index)
        if self._options.ack == "committed":
            Receipt(memtable, index, self._buffers.ask_for).wait()

    # --- reading ---

    def scan(
        self,
        columns: list[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        **bounds: Any,
    ) -> Scan:
        """Committed rows and, behind them, this writer's own that are not committed yet.

        The `_seq` of the latter is where they would land if they were committed now.
        """
        request = Request(columns=columns, filter=filter, **bounds)
        self._place.see(self._place.chain.refresh(self._place.head))
        with self._buffers.changed:
            manifest = self._place.head.manifest
            known = manifest.positions.get(self.writer_id)
            ours = known is not None and known.incarnation == self._committer.incarnation
            reached = known.number if ours and known is not None else 0
            waiting = [
                (m, m.table().slice(done), m.arrived_ms()[done:])
                for m in self._buffers.uncommitted()
                if m.last_record > reached and m.error is None
                # Of a memtable that takes several commits, some rows may be in the table.
                for done in (sum(m.counts[: max(0, reached + 1 - m.first_record)]),)
            ]
        unflushed = []
        next_seq, tail_ts = manifest.next_seq, manifest.last_ts
        for memtable, rows, arrived in waiting:
            ts_ms = times_of(rows, memtable.schema, manifest.config, arrived, tail_ts)
            unflushed.append(_with_hidden(memtable.schema, rows, ts_ms, manifest, next_seq))
            next_seq, tail_ts = next_seq + rows.num_rows, int(ts_ms[-1])
        return Scan(
            self._place.chain.service,
            manifest,
            request,
            floor_ts=manifest.floor_ts,
            trim_seq=manifest.trim_seq,
            unflushed=unflushed,
        )

    # --- waiting and leaving ---

    def flush(self, timeout: float | None = None) -> None:
        """Return once every row taken so far is committed; `WriterBusy` after `timeout` seconds."""
        check_seconds("timeout", timeout)
        now = self._place.chain.runtime.monotonic
        until = None if timeout is None else now() + timeout
        with self._buffers.changed:
            waiting = self._buffers.uncommitted()
        for memtable in waiting:
            left_s = None if until is None else max(0.0, until - now())
            Receipt(memtable, memtable.records - 1, self._buffers.ask_for).wait(left_s)

    @property
    def sync_state(self) -> str:
        """How the table stands to what this writer has taken."""
        if self._buffers.failed is not None:
            return "stale"
        if self._flusher.last_error is not None:
            return "error"
        if self._flusher.busy:
            return "syncing"
        return "pending_write" if self._buffers.held_bytes else "in_sync"

    def stats(self) -> WriterStats:
        """Counters and state."""
        buffers, flusher, committer = self._buffers, self._flusher, self._committer
        with buffers.changed:
            waiting = buffers.uncommitted()
            rows_pending = sum(m.rows_left for m in waiting)
            held, records = buffers.held_bytes, buffers.last_record
            memtables, log = len(buffers.passive), self._log
            logged = {"wal_bytes": 0, "wal_syncs": 0, "wal_files": 0}
            if log is not None:
                logged = log.stats()
        error = flusher.last_error or buffers.failed
        return WriterStats(
            sync_state=self.sync_state,
            rows=flusher.rows + rows_pending,
            records=records,
            rows_committed=flusher.rows - committer.dropped_rows,
            commits=flusher.commits,
            rows_pending=rows_pending,
            bytes_pending=held,
            queue_depth=buffers.depth,
            memtables=memtables,
            blocked=buffers.blocked,
            retries=flusher.retries,
            last_error=None if error is None else str(error),
            late_rows=committer.late_rows,
            jitter_rows=committer.jitter_rows,
            dropped_late_rows=committer.dropped_rows,
            level=flusher.tuning.level,
            scale_ups=flusher.tuning.scale_ups,
            scale_downs=flusher.tuning.scale_downs,
            degraded_flushes=flusher.degraded,
            flush_rows=buffers.flush_rows,
            recovered_records=self.recovered.records,
            **logged,
        )

    def close(self, timeout: float | None = None) -> CloseReport:
        """Commit what was taken, waiting at most `timeout` seconds, and say what is left.

        What is left stays in the log, and the next writer of this id commits it.
        """
        check_seconds("timeout", timeout)
        if self._closed is None:
            with self._buffers.changed:
                self._buffers.closing = True
                self._buffers.changed.notify_all()
            self._flusher.thread.join(self._options.close_timeout_s if timeout is None else timeout)
            self._flusher.abandoned.set()
            # A flusher that only waited to try again lets go of the log at once.
            self._flusher.thread.join(_LAST_WAIT_S)
            self._closed = self._report()
            if not self._closed.committed:
                LOG.warning("writer %r was closed: %s", self.writer_id, self._closed)
        return self._closed

    def disown(self, error: StrandlineError) -> None:
        """In a forked child: the rows, the log and the commits are the parent's."""
        self._buffers.disown(error)
        self._closed = CloseReport(
            committed=True, records_left=0, rows_left=0, log=None, indexes_left=0
        )

    def _report(self) -> CloseReport:
        with self._buffers.changed:
            waiting = self._buffers.uncommitted()
        return CloseReport(
            committed=not waiting,
            records_left=sum(m.records - m.records_placed for m in waiting),
            rows_left=sum(m.rows_left for m in waiting),
            log=None if self._log is None else self._log.where,
            indexes_left=self._flusher.degraded,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = self.close()
        if not report.committed and report.log is None and error is None:
            raise WriterBusy(f"the writer was closed, and {report}")


def default_writer_id() -> str:
    """The name of this machine: one writer on each, unless they are told apart."""
    return socket.gethostname() or "default"


def _with_hidden(
    schema: Schema,
    rows: pa.Table,
    ts_ms: np.ndarray[Any, Any],
    manifest: Manifest,
    next_seq: int,
) -> pa.Table:
    """Rows under the table's present columns, with the hidden ones as a scan has them."""
    window_ms = manifest.config.window_ms
    hidden = {
        "_seq": np.arange(next_seq, next_seq + rows.num_rows),
        "_ts": ts_ms,
        "_window": ts_ms - ts_ms % window_ms,
    }
    columns: list[Any] = []
    for column, field in zip(manifest.schema.columns, manifest.schema.arrow, strict=True):
        old = schema.by_id.get(column.id)
        columns.append(
            pa.nulls(rows.num_rows, field.type)
            if old is None
            else rows.column(old.name).cast(field.type)
        )
    names = [*manifest.schema.arrow.names, *hidden]
    return pa.table(columns + [pa.array(v, pa.int64()) for v in hidden.values()], names=names)
