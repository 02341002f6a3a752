"""Rows that were acknowledged and are not committed yet, in the order of the log.

A memtable takes rows until it is sealed; it is then one commit. It remembers how many rows each
record brought, so that every receipt can be told its own sequence numbers afterwards.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.pyvalues import column_from_python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.tableformat.errors import StrandlineError
    from strandline.tableformat.schema import Schema

CHUNK_ROWS: Final = 1_024
"""Single rows are turned into Arrow this many at a time: as Python objects they take far more."""
ROW_OVERHEAD_BYTES: Final = 200
"""What a row of Python objects takes beyond its values, roughly."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that are Arrow by now, and how many there are up to their end."""

    table: pa.Table
    counts: list[int]
    """How many rows each record brought."""
    arrived_ms: list[int]
    records_end: int = 0
    rows_end: int = 0


_Loose = list[tuple[tuple[Any, ...], int]]
"""Single rows, each a record, with the time it arrived."""


class Memtable:
    """The rows of a run of records. Its writer's lock guards it until it is sealed.

    A signal may break an append off anywhere (a user who stops a loop goes on with the writer
    later), so rows enter by one step, and become Arrow by one.
    """

    def __init__(self, schema: Schema, first_record: int) -> None:
        self.schema = schema
        self.first_record = first_record
        self.first_row_at = 0.0
        """When the first row came, by the monotonic clock."""
        self.bytes = 0
        self.settled = threading.Event()
        """Set once the rows are committed, or never will be by this writer."""
        self.error: StrandlineError | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._held: tuple[list[_Part], _Loose] = ([_Part(schema.arrow.empty_table(), [], [])], [])
        self._placed: list[tuple[int, Placement]] = []

    @property
    def records(self) -> int:
        parts, loose = self._held
        return parts[-1].records_end + len(loose)

    @property
    def rows(self) -> int:
        parts, loose = self._held
        return parts[-1].rows_end + len(loose)

    @property
    def last_record(self) -> int:
        return self.first_record + self.records - 1

    def add_row(self, values: tuple[Any, ...], arrived_ms: int, weight: int) -> None:
        """Take one row that the quick look has passed, as one record."""
        loose = self._held[1]
        loose.append((values, arrived_ms))
        self.bytes += weight
        if len(loose) >= CHUNK_ROWS:
            self.seal()

    def add_table(self, rows: pa.Table, arrived_ms: int) -> None:
        """Take the rows of one record."""
        self.seal()
        parts, _ = self._held
        parts.append(_behind(parts[-1], rows, [rows.num_rows], [arrived_ms]))
        self.bytes += rows.nbytes

    def seal(self) -> None:
        """Make Arrow of all rows; if no more are taken, threads may look without the lock."""
        parts, loose = self._held
        if not loose:
            return
        by_column = zip(*(values for values, _ in loose), strict=True)
        columns = [
            column_from_python(list(values), column.type, column.name)
            for column, values in zip(self.schema.columns, by_column, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=self.schema.arrow)
        part = _behind(parts[-1], table, [1] * len(loose), [arrived for _, arrived in loose])
        self._held = ([*parts, part], [])

    def table(self) -> pa.Table:
        """All rows, in the order of their records."""
        self.seal()
        first, *parts = self._held[0]
        return pa.concat_tables([part.table for part in parts]) if parts else first.table

    @property
    def counts(self) -> list[int]:
        """How many rows each record brought."""
        parts, loose = self._held
        return [count for part in parts for count in part.counts] + [1] * len(loose)

    def arrived_ms(self) -> Array:
        """When each row arrived."""
        self.seal()
        arrived = [at for part in self._held[0] for at in part.arrived_ms]
        return np.repeat(np.array(arrived, np.int64), np.array(self.counts, np.int64))

    # --- what became of it ---

    def place(self, first_index: int, placement: Placement) -> None:
        """Note where the records from `first_index` on are."""
        self._placed.append((first_index, placement))

    @property
    def records_placed(self) -> int:
        """How many of the records are committed; a memtable may need more than one commit."""
        return sum(len(placement.edges) - 1 for _, placement in self._placed)

    @property
    def rows_left(self) -> int:
        """Rows that are not committed yet."""
        return self.rows - sum(self.counts[: self.records_placed]) if self._placed else self.rows

    def settle(self) -> None:
        """Give the memory of committed rows back."""
        self._drop_rows()

    def give_up(self, error: StrandlineError) -> None:
        """Say that this writer will not commit the rows; its log still has them."""
        self.error = error
        self._drop_rows()

    def disown(self, error: StrandlineError) -> None:
        """Give up in a forked child: those who are to be told live in the parent."""
        self.settled, self._callbacks = threading.Event(), []
        self.give_up(error)

    def _drop_rows(self) -> None:
        counts, empty = self.counts, self.schema.arrow.empty_table()
        self._held = ([_Part(empty, counts, [], len(counts), sum(counts))], [])
        self.settled.set()
        self._call_back()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Have this called once, from whichever thread settles the rows; it must be quick."""
        self._callbacks.append(callback)
        if self.settled.is_set():
            self._call_back()

    def _call_back(self) -> None:
        # Two threads may be in here; a list hands each callback to one of them.
        while self._callbacks:
            with suppress(IndexError):
                self._callbacks.pop()()

    def placed(self, index: int) -> tuple[int, int, int, int]:
        """Version, first sequence number and rows of a record, and how many rows it was given."""
        first_index, placement = next(p for p in reversed(self._placed) if p[0] <= index)
        first, after = placement.edges[index - first_index : index - first_index + 2].tolist()
        (part,) = self._held[0]
        return placement.version, placement.first_seq + first, after - first, part.counts[index]


def _behind(last: _Part, table: pa.Table, counts: list[int], arrived_ms: list[int]) -> _Part:
    return _Part(
        table,
        counts,
        arrived_ms,
        last.records_end + len(counts),
        last.rows_end + table.num_rows,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where a run of records is: one run of sequence numbers."""

    version: int
    first_seq: int
    edges: Array
    """Where each record's rows begin and end, counted from `first_seq`."""


def edges_of(counts: Sequence[int], kept: Array | None) -> Array:
    """Where each record's rows begin and end in its commit; `kept` says which were not dropped."""
    edges = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    return edges if kept is None else np.append(0, np.cumsum(kept))[edges]
