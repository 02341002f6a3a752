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


class Memtable:
    """The rows of a run of records. Its writer's lock guards it until it is sealed."""

    def __init__(self, schema: Schema, first_record: int) -> None:
        self.schema = schema
        self.first_record = first_record
        self.first_row_at = 0.0
        """When the first row came, by the monotonic clock."""
        self.rows = 0
        self.bytes = 0
        self.settled = threading.Event()
        """Set once the rows are committed, or never will be by this writer."""
        self.error: StrandlineError | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._counts: list[int] = []
        self._arrived: list[int] = []
        self._parts: list[pa.Table] = []
        self._loose: list[tuple[Any, ...]] = []
        self._placed: list[tuple[int, Placement]] = []

    @property
    def records(self) -> int:
        return len(self._counts)

    @property
    def last_record(self) -> int:
        return self.first_record + len(self._counts) - 1

    def add_row(self, values: tuple[Any, ...], arrived_ms: int, weight: int) -> int:
        """Take one row that the quick look has passed; gives the record's place in here."""
        self._loose.append(values)
        self._counts.append(1)
        self._arrived.append(arrived_ms)
        self.rows += 1
        self.bytes += weight
        if len(self._loose) >= CHUNK_ROWS:
            self._pack()
        return len(self._counts) - 1

    def add_table(self, rows: pa.Table, arrived_ms: int) -> int:
        """Take the rows of one record."""
        if self._loose:
            self._pack()
        self._parts.append(rows)
        self._counts.append(rows.num_rows)
        self._arrived.append(arrived_ms)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes
        return len(self._counts) - 1

    def _pack(self) -> None:
        columns = [
            column_from_python(list(values), column.type, column.name)
            for column, values in zip(
                self.schema.columns, zip(*self._loose, strict=True), strict=True
            )
        ]
        self._parts.append(pa.Table.from_arrays(columns, schema=self.schema.arrow))
        self._loose = []

    def seal(self) -> None:
        """Take no more rows; from now on threads may look without the writer's lock."""
        if self._loose:
            self._pack()

    def table(self) -> pa.Table:
        """All rows, in the order of their records."""
        self.seal()
        if not self._parts:
            return self.schema.arrow.empty_table()
        return pa.concat_tables(self._parts)

    @property
    def counts(self) -> list[int]:
        """How many rows each record brought."""
        return self._counts

    def arrived_ms(self) -> Array:
        """When each row arrived."""
        return np.repeat(np.array(self._arrived, np.int64), np.array(self._counts, np.int64))

    # --- what became of it ---

    def place(self, first_index: int, placement: Placement) -> None:
        """Note where the records from `first_index` on are."""
        self._placed.append((first_index, placement))

    @property
    def records_placed(self) -> int:
        """How many of the records are committed; a memtable may need more than one commit."""
        return sum(len(placement.edges) - 1 for _, placement in self._placed)

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
        self._parts, self._loose, self._arrived = [], [], []
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
        return placement.version, placement.first_seq + first, after - first, self._counts[index]


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
