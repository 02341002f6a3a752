"""The way in: one lock under which a record gets its number, its place in the log and in memory.

Because all three happen together, the log, the memtables and every later commit have one order.
Memory is bounded here: when it is full, appends wait until a flush has given some back.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.arrow_messages import pack_message
from strandline.tableformat.errors import LogFailed, StrandlineError, WriterBusy, WriterClosed
from strandline.writers.memtable import ROW_OVERHEAD_BYTES, Memtable
from strandline.writers.wal_frames import ARROW_BATCH, JSON_ROWS, LogHeader, frame, own_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.tableformat.schema import Schema
    from strandline.writers.log import Log
    from strandline.writers.options import WriterOptions

JSON_GROWTH: Final = 2
"""A row in memory takes about so many times the bytes of its JSON, beside its overhead."""


class Buffers:
    """One memtable that fills, some that wait to be committed, and the log of all their rows."""

    def __init__(
        self,
        log: Log | None,
        header: LogHeader,
        options: WriterOptions,
        monotonic: Callable[[], float],
    ) -> None:
        self._log, self._header, self._options = log, header, options
        self._monotonic = monotonic
        # Appends take the bare lock: a signal cannot break in between its being taken and the block
        # that gives it back. A condition's own methods leave such a gap, and a deadlock behind it.
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self._memtables: deque[Memtable] = deque([Memtable(header.schema, header.first_record)])
        """Oldest first. All but the last are sealed; the flusher removes what it has committed."""
        self._passive_bytes = 0
        self._wanted: Memtable | None = None
        """The memtable somebody waits for; it is sealed without waiting for more rows."""
        self.closing = False
        self.failed: StrandlineError | None = None
        self.blocked = 0
        """How often an append had to wait for memory."""
        self.flush_rows = options.flush_rows
        """May be raised while the table cannot keep up: fewer, larger commits."""
        # What fills the memory alone is full, however large commits have become: nobody else
        # could make room for those who wait.
        self._most_bytes = min(options.most_bytes, options.memory_bytes)
        self._most_records = options.most_records
        if log is not None:
            log.begin(header)

    # --- taking rows ---

    def add_row(
        self,
        values: tuple[Any, ...],
        payload: bytes,
        schema: Schema,
        arrived_ms: int,
        timeout_s: float | None,
    ) -> tuple[Memtable, int] | None:
        """Take one plain row; gives its memtable and its place in there.

        None: the columns have changed since the row was looked at, and nothing was taken.
        """
        with self.lock:
            memtable = self._memtables[-1]
            if (
                self.failed is not None
                or self.closing
                or memtable.bytes + self._passive_bytes > self._options.memory_bytes
            ):
                self._wait_for_room(timeout_s)
                memtable = self._memtables[-1]
            if schema.id != memtable.schema.id:
                return None
            index = memtable.records
            if self._log is not None:
                record = memtable.first_record + index
                self._log.write(frame(record, arrived_ms, JSON_ROWS, payload), record)
            weight = JSON_GROWTH * len(payload) + ROW_OVERHEAD_BYTES
            memtable.add_row(values, arrived_ms, weight)
            self._after_adding(memtable, index)
            return memtable, index

    def add_table(
        self, rows: pa.Table, schema: Schema, arrived_ms: int, timeout_s: float | None
    ) -> tuple[Memtable, int]:
        """Take a batch as one record."""
        rows, message = own_rows(rows)
        payload = b"" if self._log is None else pack_message(message)
        with self.lock:
            self._wait_for_room(timeout_s)
            if schema.id != self.active.schema.id:
                self._change_schema(schema)
            memtable = self.active
            index = memtable.records
            if self._log is not None:
                record = memtable.first_record + index
                self._log.write(frame(record, arrived_ms, ARROW_BATCH, payload), record)
            memtable.add_table(rows, arrived_ms)
            self._after_adding(memtable, index)
            return memtable, index

    def _after_adding(self, memtable: Memtable, index: int) -> None:
        if index == 0:
            memtable.first_row_at = self._monotonic()
            self.changed.notify_all()
        if self._is_full(memtable):
            self.seal()

    def _is_full(self, memtable: Memtable) -> bool:
        return (
            memtable.rows >= self.flush_rows
            or memtable.bytes >= self._most_bytes
            or (self._most_records is not None and memtable.records >= self._most_records)
        )

    def _wait_for_room(self, timeout_s: float | None) -> None:
        """Return when rows may be taken. A batch larger than all memory enters when it is empty."""

        def may_enter() -> bool:
            held = self.active.bytes + self._passive_bytes
            return self.failed is not None or self.closing or held <= self._options.memory_bytes

        if not may_enter():
            self.blocked += 1
            self.seal()
            if not self.changed.wait_for(may_enter, timeout_s):
                raise WriterBusy(
                    f"{self.active.bytes + self._passive_bytes} bytes of rows wait for their "
                    f"commit and no memory became free within {timeout_s:g} s. These rows were not "
                    "taken; send them again later, or look at writer.stats()."
                )
        if self.failed is not None:
            raise WriterClosed(
                f"this writer has stopped: {self.failed} Nothing was taken. What it had "
                "acknowledged is in its log; open a new writer to go on."
            ) from self.failed
        if self.closing:
            raise WriterClosed("this writer is closed; nothing was taken. Open a new one.")

    # --- moving on ---

    def seal(self) -> bool:
        """Make the filling memtable a commit to be; False if there is nothing, or no place."""
        if not self.active.records or len(self._memtables) > self._options.passive_memtables:
            return False
        self._seal(self.active.schema)
        return True

    def _seal(self, schema: Schema) -> None:
        if self._log is not None:
            try:
                self._log.begin(self._header_for(schema))
            except LogFailed:
                # Rows need no new file to be committed, and their log is pruned by record
                # numbers; the next record tries a new file again.
                if schema.id != self.active.schema.id:
                    raise
        self.active.seal()
        self._memtables.append(Memtable(schema, self.active.last_record + 1))
        self._weigh()
        self.changed.notify_all()

    def _weigh(self) -> None:
        self._passive_bytes = sum(memtable.bytes for memtable in self.passive)

    def _change_schema(self, schema: Schema) -> None:
        """Rows of two schemas never share a file; this may exceed the number of memtables."""
        if self.active.records:
            self._seal(schema)
            return
        if self._log is not None:
            self._log.begin(self._header_for(schema))
        self._memtables[-1] = Memtable(schema, self.active.last_record + 1)

    def _header_for(self, schema: Schema) -> LogHeader:
        return replace(self._header, first_record=self.active.last_record + 1, schema=schema)

    def ask_for(self, memtable: Memtable) -> None:
        """Commit this memtable without waiting for more rows."""
        with self.changed:
            if memtable is self.active:  # a sealed one is on its way
                self._wanted = memtable
                self.changed.notify_all()

    # --- the flusher's side ---

    def next_to_commit(self) -> Memtable | None:
        """The oldest sealed memtable; waits for one. None when the writer is closed and empty."""
        with self.changed:
            while True:
                if self.failed is not None:
                    return None
                if len(self._memtables) > 1:
                    return self._memtables[0]
                wait_s = self._seconds_until_due()
                if wait_s is not None and wait_s <= 0 and self.seal():
                    continue
                if self.closing and not self.active.records:
                    return None
                if self._log is not None and self.active.records and self._options.log.gathers:
                    self._write_gathered()
                    wait_s = GATHER_S if wait_s is None else min(wait_s, GATHER_S)
                self.changed.wait(None if wait_s is None else max(wait_s, 0.001))

    def _write_gathered(self) -> None:
        assert self._log is not None
        try:
            self._log.flush()
        except LogFailed:
            return  # the next append that promises the log says so

    def _seconds_until_due(self) -> float | None:
        """When the filling memtable is to be sealed although it is not full; None: never."""
        memtable = self.active
        if not memtable.records:
            return None
        if self.closing or self._wanted is memtable or self._is_full(memtable):
            return 0.0
        age_s = self._monotonic() - memtable.first_row_at
        return self._options.flush_age_ms / 1000 - age_s

    def committed(self, memtable: Memtable, batch_factor: int) -> None:
        """The oldest sealed memtable is in the table; the next ones may be so much larger."""
        with self.changed:
            self.flush_rows = self._options.flush_rows * batch_factor
            assert self._memtables[0] is memtable
            self._memtables.popleft()
            self._weigh()
            memtable.settle()
            if self._is_full(self.active):
                self.seal()
            self.changed.notify_all()

    def stop(self, error: StrandlineError) -> None:
        """Nothing more can be committed by this writer; its log keeps what it holds."""
        with self.changed:
            self.failed = error
            for memtable in self._memtables:
                memtable.give_up(error)
            self.changed.notify_all()

    def disown(self, error: StrandlineError) -> None:
        """In a forked child: refuse rows. A thread that held the lock does not exist here."""
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.failed = error
        for memtable in self._memtables:
            memtable.disown(error)
        self._memtables = deque([Memtable(self.active.schema, self.active.last_record + 1)])
        self._weigh()
        if self._log is not None:
            self._log.disown()

    # --- looking ---

    @property
    def active(self) -> Memtable:
        """The one that fills."""
        return self._memtables[-1]

    @property
    def passive(self) -> list[Memtable]:
        """Sealed and not yet committed, oldest first."""
        return list(self._memtables)[:-1]

    @property
    def held_bytes(self) -> int:
        return self.active.bytes + self._passive_bytes

    @property
    def depth(self) -> float:
        """Share of the memory budget in use."""
        return self.held_bytes / self._options.memory_bytes

    def depth_without(self, memtable: Memtable) -> float:
        """The same, once the memory of this one is given back."""
        return (self.held_bytes - memtable.bytes) / self._options.memory_bytes

    def uncommitted(self) -> list[Memtable]:
        """Every memtable whose rows are not known to be in the table, oldest first."""
        return [m for m in self._memtables if m.records]

    @property
    def last_record(self) -> int:
        return self.active.last_record


GATHER_S: Final = 0.1
"""Records that an append left in memory are written this soon."""
