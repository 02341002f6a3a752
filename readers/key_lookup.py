"""Many keys at once: which of them a keyed table holds, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.readers.arrow_arrays import bool_array, integers
from strandline.readers.planner import plan_scan
from strandline.readers.read_ahead import ReadAhead
from strandline.readers.split_reader import SplitReader
from strandline.tableformat.binding import BoundCompare, BoundConstant, BoundIn, all_true
from strandline.tableformat.conform import conform_column
from strandline.tableformat.errors import InvalidInput, InvalidRow
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS, SEQ_ID, TS_ID
from strandline.tableformat.pyvalues import column_from_python
from strandline.tableformat.schema import stat_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.readers.splits import Plan, Split
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column
    from strandline.tableformat.segments import SegmentEntry

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
MOST_REMEMBERED_ROWS: Final = 2**21
"""Key columns of a segment with more rows do not stay in memory for the next question."""


class KeySet:
    """Keys to look for, each known by its place among the distinct ones.

    A key of several columns becomes one number, column by column: the place of what came before
    and the place of the value give the place of both. So rows are compared exactly, and none of
    them one by one.
    """

    def __init__(self, columns: Sequence[Column], given: Sequence[pa.ChunkedArray]) -> None:
        self._columns, self._given = columns, given
        self._values: list[pa.Array] = []
        self._pairs: list[Int64s] = []
        """Per column the numbers that occur, ascending: place before × distinct values + code."""
        places = np.zeros(len(given[0]), np.int64)
        for values in given:
            encoded = _combined(values).dictionary_encode()
            codes = encoded.indices.to_numpy().astype(np.int64)
            pairs, places = np.unique(places * len(encoded.dictionary) + codes, return_inverse=True)
            self._values.append(encoded.dictionary)
            self._pairs.append(pairs)
        self.of_given: Int64s = places.reshape(-1)
        """The place of each key that was asked for, in that order."""

    @property
    def count(self) -> int:
        """How many distinct keys there are."""
        return len(self._pairs[-1])

    def distinct(self) -> pa.Table:
        """Each key once, by the names of its columns, in the order in which they were given."""
        _, first = np.unique(self.of_given, return_index=True)
        every = pa.table({c.name: v for c, v in zip(self._columns, self._given, strict=True)})
        return every.take(pa.array(np.sort(first)))

    @cached_property
    def bound(self) -> Bound:
        """A filter that all rows of these keys pass, and for one column no others."""
        if not self.count:
            return BoundConstant(value=False)
        listed = [
            BoundIn(column, _domain_values(values, column), with_nan=False, negated=False)
            for column, values in zip(self._columns, self._values, strict=True)
        ]
        bound = all_true(listed)
        assert bound is not None
        return bound

    def places(self, rows: pa.Table) -> Int64s:
        """For each row the place of its key; -1 for a key that was not asked for."""
        if not self.count:
            return np.full(rows.num_rows, -1, np.int64)
        found = np.zeros(rows.num_rows, np.int64)
        for column, values, pairs in zip(self._columns, self._values, self._pairs, strict=True):
            codes = pc.index_in(rows.column(column.name), value_set=values).fill_null(-1).to_numpy()
            numbers = found * len(values) + codes
            at = np.minimum(np.searchsorted(pairs, numbers), len(pairs) - 1)
            # A place of -1 so far gives a number below zero, which is no pair's.
            found = np.where((codes >= 0) & (pairs[at] == numbers), at, -1)
        return found

    def order(self, rows: pa.Table) -> pa.Array:
        """The rows, one of each key, in the order in which the keys were asked for."""
        row_of = np.full(self.count, -1, np.int64)
        row_of[self.places(rows)] = np.arange(rows.num_rows)
        order = row_of[self.of_given]
        return pa.array(order[order >= 0])

    def only(self, rows: pa.Table) -> pa.Table:
        """The rows of these keys."""
        return rows.filter(pa.array(self.places(rows) >= 0))


def _combined(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _domain_values(values: pa.Array, column: Column) -> tuple[Any, ...]:
    """Values as filters and stats compare them, ascending."""
    return tuple(sorted(stat_values(column.type, values)))


# --- what callers give --------------------------------------------------------------------------


def key_set(given: object, manifest: Manifest) -> KeySet:
    """The keys that a caller names, in the types of the table's primary key."""
    columns = manifest.key_columns
    if not columns:
        raise InvalidInput(
            "this table has no primary key: that is chosen when a table is created. Rows by any "
            "column come from by_key, or from a scan with a filter."
        )
    parts = _by_column(given, columns)
    try:
        exact = [
            column_from_python(part, column.type, column.name)
            if isinstance(part, list)
            else conform_column(part, column.type, column.name)
            for part, column in zip(parts, columns, strict=True)
        ]
    except InvalidRow as error:
        raise InvalidInput(f"keys[{error.row}], {error.field!r}: {error.reason}") from None
    for part, column in zip(exact, columns, strict=True):
        if part.null_count:
            row = pc.index(part.is_null(), value=True).as_py()
            raise InvalidInput(f"keys[{row}], {column.name!r}: a key is never null")
    return KeySet(columns, exact)


def _by_column(given: Any, columns: Sequence[Column]) -> list[pa.ChunkedArray | list[Any]]:
    names = [column.name for column in columns]
    if isinstance(given, (pa.Array, pa.ChunkedArray)) and pa.types.is_struct(given.type):
        given = pa.Table.from_struct_array(given)
    if len(columns) == 1 and isinstance(given, (pa.Array, pa.ChunkedArray, np.ndarray)):
        return [_chunked(given)]
    if isinstance(given, (pa.RecordBatch, pa.Table)):
        missing = [name for name in names if name not in given.schema.names]
        if missing:
            raise InvalidInput(f"keys has no column {missing[0]!r}")
        return [_chunked(given.column(name)) for name in names]
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput(f"keys is a list of keys or Arrow data, not {type(given).__name__}")
    listed = list(given)
    if listed and all(isinstance(key, Mapping) for key in listed):
        return [_named(listed, name) for name in names]
    if len(columns) == 1:
        return [listed]
    for row, key in enumerate(listed):
        if not isinstance(key, (tuple, list)) or len(key) != len(columns):
            raise InvalidInput(f"keys[{row}] must be a tuple of {', '.join(names)}, not {key!r}")
    return [[key[i] for key in listed] for i in range(len(columns))]


def _named(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    for number, row in enumerate(rows):
        if name not in row:
            raise InvalidInput(f"keys[{number}] has no {name!r}")
    return [row[name] for row in rows]


def _chunked(values: Any) -> pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values
    return pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values)])


# --- existence ------------------------------------------------------------------------------------


def find_existing(
    service: ManifestService, manifest: Manifest, keys: KeySet, *, floor_ts: int, trim_seq: int
) -> Bools:
    """For each key that was asked for, whether its newest row is there and not a tombstone.

    Only key columns are read, of segments that may hold a key, and only until all are found.
    """
    found = np.zeros(keys.count, np.bool_)
    look = _KeyColumns(service, manifest, keys, floor_ts, trim_seq)
    deletes = _Deletes(keys, look.tombstones()) if look.may_be_deleted else None
    for rows in look.rows():
        places = keys.places(rows)
        hits = places >= 0
        if deletes is not None:
            hits &= deletes.are_before(places, rows)
        found[places[hits]] = True
        if found.all():
            break
    answers: Bools = found[keys.of_given]
    return answers


class _Deletes:
    """When each key was deleted last."""

    def __init__(self, keys: KeySet, tombstones: Iterable[pa.Table]) -> None:
        # One place more, which is that of -1: rows of keys that nobody asked for.
        self._ts = np.full(keys.count + 1, -1, np.int64)
        self._seqs = self._ts.copy()
        parts = list(tombstones)
        if parts:
            rows = pa.concat_tables(parts)
            times, seqs = (integers(rows.column(name)) for name in ("_ts", "_seq"))
            order = np.lexsort((seqs, times))
            places = keys.places(rows)[order]
            # Of several values for one place numpy keeps the last, which is the newest here.
            self._ts[places], self._seqs[places] = times[order], seqs[order]

    def are_before(self, places: Int64s, rows: pa.Table) -> Bools:
        """Which of the rows are newer than the last delete of their key."""
        times, seqs = (integers(rows.column(name)) for name in ("_ts", "_seq"))
        deleted = self._ts[places]
        newer: Bools = (times > deleted) | ((times == deleted) & (seqs > self._seqs[places]))
        return newer


class KeyReader:
    """Reads the key columns of segments, and keeps them in memory for the next question."""

    def __init__(
        self,
        service: ManifestService,
        manifest: Manifest,
        is_numbered: Callable[[SegmentEntry], bool],
    ) -> None:
        """`is_numbered`: whether the rows of a segment are to come with `_ts` and `_seq`."""
        self._service, self._manifest, self._is_numbered = service, manifest, is_numbered

    def read(self, splits: Iterable[Split]) -> Iterator[tuple[SegmentEntry, pa.Table]]:
        """First what is in memory, then the newest files: what is asked for is often new."""
        unknown = []
        for split in splits:
            rows = self._service.remembered(split.entry.path, self._identity(split.entry))
            if rows is None:
                unknown.append(split)
            else:
                yield split.entry, rows
        unknown.sort(key=lambda split: split.entry.max_seq, reverse=True)
        yield from self._read(unknown)

    def _read(self, splits: list[Split]) -> Iterator[tuple[SegmentEntry, pa.Table]]:
        """Where an index names the zones, rows of these; else all keys, kept for the next time."""
        chosen = [s if s.zones is not None else replace(s, bound=None) for s in splits]
        storage = self._service.storage
        readers = [
            SplitReader(storage, self._manifest, split, self._ids(split.entry)) for split in chosen
        ]
        ahead = ReadAhead(readers, is_local=storage.is_local, may_stop=True)
        for index, units in groupby(ahead, key=itemgetter(0)):
            split, entry = chosen[index], chosen[index].entry
            pieces: Iterable[pa.Table] = (rows for _, rows in units)
            if split.zones is None and entry.row_count <= MOST_REMEMBERED_ROWS:
                rows = pa.concat_tables(pieces)
                self._service.remember(entry.path, self._identity(entry), rows)
                pieces = [rows]
            for rows in pieces:
                yield entry, rows

    def _ids(self, entry: SegmentEntry) -> set[int]:
        hidden = (SEQ_ID, TS_ID) if self._is_numbered(entry) else ()
        return {*self._manifest.config.primary_key, *hidden}

    def _identity(self, entry: SegmentEntry) -> str:
        # Names, because answers go by them: a column may be renamed while this is in memory.
        names = sorted(column.name for column in self._manifest.key_columns)
        return f"{entry.footer_xxh64} {names} {self._is_numbered(entry)}"


class _KeyColumns:
    """The key columns of a version, as far as they must be looked at."""

    def __init__(
        self,
        service: ManifestService,
        manifest: Manifest,
        keys: KeySet,
        floor_ts: int,
        trim_seq: int,
    ) -> None:
        self._service, self._manifest = service, manifest
        self._floor_ts, self._trim_seq = floor_ts, trim_seq
        self._splits = self._plan(keys).splits
        self.may_be_deleted = any(split.entry.tombstones for split in self._splits)
        """Whether a tombstone may be newer than a row: then rows come with `_ts` and `_seq`."""

    def tombstones(self) -> Iterator[pa.Table]:
        """Visible tombstones of the files that may hold one of the keys."""
        return self._found([split for split in self._splits if split.entry.tombstones])

    def rows(self) -> Iterator[pa.Table]:
        """Visible rows of the files that may hold one of the keys."""
        return self._found([split for split in self._splits if not split.entry.tombstones])

    def _found(self, splits: Sequence[Split]) -> Iterator[pa.Table]:
        reader = KeyReader(self._service, self._manifest, self._is_numbered)
        return (self._visible(entry, rows) for entry, rows in reader.read(splits))

    def _plan(self, keys: KeySet) -> Plan:
        visible = [
            BoundCompare(HIDDEN_COLUMNS[name], ">=", least)
            for name, least in (("_seq", self._trim_seq), ("_ts", self._floor_ts))
            if least > 0
        ]
        return plan_scan(self._service, self._manifest, all_true([*visible, keys.bound]))

    def _all_visible(self, entry: SegmentEntry) -> bool:
        return entry.min_seq >= self._trim_seq and entry.min_ts >= self._floor_ts

    def _is_numbered(self, entry: SegmentEntry) -> bool:
        return self.may_be_deleted or not self._all_visible(entry)

    def _visible(self, entry: SegmentEntry, rows: pa.Table) -> pa.Table:
        if self._all_visible(entry):
            return rows
        seqs, times = (integers(rows.column(name)) for name in ("_seq", "_ts"))
        return rows.filter(bool_array((seqs >= self._trim_seq) & (times >= self._floor_ts)))
