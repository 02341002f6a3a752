"""What a writer tells about itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStats:
    """A moment in a writer's life; counters count from when it was opened."""

    sync_state: str
    """`in_sync`: everything is committed. `pending_write`: rows wait for their flush. `syncing`:
    a flush runs. `error`: the last try failed and is repeated. `stale`: another writer took over,
    or the writer has stopped; nothing more will be committed by it."""
    rows: int
    """Taken."""
    records: int
    """Appends taken; each is one record of the log."""
    rows_committed: int
    """In the table; those below the retention floor are not."""
    commits: int
    rows_pending: int
    bytes_pending: int
    queue_depth: float
    """Share of the memory budget in use; above 0.5 after a flush tuning goes up, and below 0.25
    without the rows of that flush it goes down."""
    memtables: int
    """Sealed ones that wait for their commit."""
    blocked: int
    """Appends that had to wait for memory."""
    retries: int
    """Flushes that were tried again."""
    last_error: str | None
    late_rows: int
    """Older than their key's newest row by more than the tolerated jitter. In tables with
    `jitter_ms`, those that were late before their flush began are in files of their own."""
    jitter_rows: int
    """Older than their key's newest row, but within the tolerated jitter."""
    dropped_late_rows: int
    """Older than the retention floor; not in the table."""
    level: int
    """Of adaptive tuning; 0 is calm."""
    scale_ups: int
    scale_downs: int
    degraded_flushes: int
    """Flushes that left index work to compaction, because the table could not keep up."""
    flush_rows: int
    """Rows after which a flush begins at the present level."""
    recovered_records: int
    """Found in the log when the writer was opened, and committed then."""
    wal_bytes: int
    wal_syncs: int
    wal_files: int

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What was left when a writer was closed."""

    committed: bool
    """Whether every row that was taken is in the table."""
    records_left: int
    """Acknowledged and not committed."""
    rows_left: int
    log: str | None
    """Where they are kept; None: nowhere, because the writer had no log."""
    indexes_left: int
    """Flushes whose index work was left to compaction."""

    def __str__(self) -> str:
        if self.committed:
            return "everything is committed"
        where = f"kept in {self.log}" if self.log else "LOST: this writer had no log"
        return f"{self.rows_left} rows in {self.records_left} records are not committed: {where}"
