"""Columns as files hold them, into columns as the table has them today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.readers import row_ranges
from strandline.readers.arrow_arrays import bool_array, int64_array, integers, true_rows
from strandline.tableformat import types
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.hidden_columns import (
    DELETED,
    DELETED_ID,
    HIDDEN_COLUMNS,
    SEQ_ID,
    TS_ID,
    WINDOW_ID,
)
from strandline.tableformat.segments import DENSE, STORED
from strandline.tableformat.timestamps import derive

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.readers.row_ranges import Int64s, Ranges
    from strandline.readers.sources import Stored
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column
    from strandline.tableformat.segments import SegmentEntry

_OFFSET_COLUMN: Final = "_off"
_SEQ_COLUMN: Final = "_seq"
_TS_COLUMN: Final = "_ts"


class LogicalColumns:
    """What one segment's columns mean in one version of the table."""

    def __init__(self, manifest: Manifest, entry: SegmentEntry) -> None:
        self._manifest, self._entry = manifest, entry
        self._key = frozenset(manifest.config.primary_key)
        self._columns = (*manifest.schema.columns, *HIDDEN_COLUMNS.values(), DELETED)
        self.all_names = {column.id: column.name for column in self._columns}
        """Names by id, in the order of answers."""

    def names_of(self, column_ids: Collection[int]) -> list[str]:
        """Names in the order of answers, which no file changes."""
        return [name for column_id, name in self.all_names.items() if column_id in column_ids]

    def physical_names(self, column_ids: Collection[int], present: Collection[str]) -> set[str]:
        """Columns of the file that the answer needs; a column added later is not there."""
        entry, schema = self._entry, self._manifest.schema
        if entry.tombstones != (DELETED.name in present):
            raise CorruptTable(
                f"{entry.path}: its entry and its columns differ on whether it holds tombstones"
            )
        needed = {schema.by_id[i].physical_name for i in column_ids if i > 0}.intersection(present)
        if SEQ_ID in column_ids and entry.rows_are != DENSE:
            needed.add(_SEQ_COLUMN if entry.rows_are == STORED else _OFFSET_COLUMN)
        if TS_ID in column_ids:
            needed.add(_TS_COLUMN if entry.ts_stored else self._time_column().physical_name)
        if DELETED_ID in column_ids and entry.tombstones:
            needed.add(DELETED.name)
        missing = needed.difference(present)
        if missing:
            raise CorruptTable(f"{entry.path} lacks the column {', '.join(sorted(missing))}")
        return needed

    def table(self, stored: Stored, column_ids: Collection[int], rows: Ranges) -> pa.Table:
        """The named columns for these rows of the file, all of which `stored` holds."""
        count = row_ranges.count(rows)
        columns: dict[str, Any] = {}
        for column in self._manifest.schema.columns:
            if column.id in column_ids:
                columns[column.name] = self._column(stored, column, count)
        for name, hidden in HIDDEN_COLUMNS.items():
            if hidden.id in column_ids:
                columns[name] = int64_array(self._hidden(stored, hidden.id, rows))
        if DELETED_ID in column_ids:
            columns[DELETED.name] = self._deleted(stored, count)
        return pa.table(columns)

    def no_rows(self, column_ids: Collection[int]) -> pa.Table:
        """The named columns without a row."""
        return no_rows(self._manifest, column_ids)

    def _time_column(self) -> Column:
        time_column = self._manifest.config.time_column
        if time_column is None:
            raise CorruptTable(
                f"{self._entry.path} stores no _ts, and the table has no time column"
            )
        return self._manifest.schema.by_id[time_column]

    def _column(self, stored: Stored, column: Column, count: int) -> Any:
        target = types.to_arrow(column.type)
        values = stored.get(column.physical_name)
        if values is None and self._entry.tombstones and column.id not in self._key:
            return pa.nulls(count, target)
        if not column.nullable and count and (values is None or values.null_count):
            # Such as a key: nobody can say which row this one replaces.
            raise CorruptTable(
                f"{self._entry.path}: column {column.name!r} must have a value in every row, and "
                "some have none"
            )
        if values is None:
            return pa.nulls(count, target)
        held = values.type
        if held == target or (pa.types.is_dictionary(held) and held.value_type == target):
            return values
        held = types.from_arrow(values.type)
        if held != column.type and not types.can_widen(held, column.type):
            raise CorruptTable(
                f"{self._entry.path}: column {column.name!r} holds {values.type}, which is not "
                f"{column.type} nor a type that widens to it"
            )
        return values.cast(target)

    def _deleted(self, stored: Stored, count: int) -> Any:
        if not self._entry.tombstones:
            return bool_array(np.zeros(count, np.bool_))
        found = stored[DELETED.name]
        if not pa.types.is_boolean(found.type) or not true_rows(found).all():
            raise CorruptTable(f"{self._entry.path}: a tombstone does not say that it is one")
        return found

    def _hidden(self, stored: Stored, column_id: int, rows: Ranges) -> Int64s:
        entry = self._entry
        if column_id == WINDOW_ID:
            return np.full(row_ranges.count(rows), entry.window.start_ms, dtype=np.int64)
        if column_id == TS_ID:
            if entry.ts_stored:
                return _integers(stored[_TS_COLUMN])
            time_column = self._time_column()
            return derive(stored[time_column.physical_name], time_column.type)
        if entry.rows_are == DENSE:
            return entry.min_seq + row_ranges.numbers(rows)
        if entry.rows_are == STORED:
            seqs = _integers(stored[_SEQ_COLUMN])
        else:
            seqs = entry.seq_base + _integers(stored[_OFFSET_COLUMN])
        if len(seqs) and (seqs.min() < entry.min_seq or seqs.max() > entry.max_seq):
            raise CorruptTable(f"{entry.path}: a row lies outside the segment's sequence numbers")
        return seqs


def no_rows(manifest: Manifest, column_ids: Collection[int]) -> pa.Table:
    """Columns of a table as scans name and type them, hidden ones among them, without a row."""
    columns = (*manifest.schema.columns, *HIDDEN_COLUMNS.values(), DELETED)
    return pa.table(
        {
            column.name: pa.nulls(0, types.to_arrow(column.type))
            for column in columns
            if column.id in column_ids
        }
    )


def numbers_of_files(entries: Sequence[SegmentEntry], stored: Stored) -> Int64s:
    """The sequence numbers of all rows of files that store them alike, one file after the other."""
    counts = np.array([entry.row_count for entry in entries], np.int64)
    starts = np.cumsum(counts) - counts
    lowest = np.array([entry.min_seq for entry in entries], np.int64)
    highest = np.array([entry.max_seq for entry in entries], np.int64)
    rows_are = entries[0].rows_are
    if rows_are == DENSE:
        return np.repeat(lowest - starts, counts) + np.arange(counts.sum())
    if rows_are == STORED:
        seqs = _integers(stored[_SEQ_COLUMN])
    else:
        bases = np.array([entry.seq_base for entry in entries], np.int64)
        seqs = np.repeat(bases, counts) + _integers(stored[_OFFSET_COLUMN])
    low, high = np.minimum.reduceat(seqs, starts), np.maximum.reduceat(seqs, starts)
    if (low < lowest).any() or (high > highest).any():
        raise CorruptTable("a row lies outside its segment's sequence numbers")
    return seqs


def _integers(values: pa.ChunkedArray) -> Int64s:
    if values.null_count or not pa.types.is_integer(values.type):
        raise CorruptTable("a hidden column holds something else than integers")
    return integers(values).astype(np.int64, copy=False)
