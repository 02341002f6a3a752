"""Rows of some segments into new ones: what compaction and deletes by filter write.

Every row keeps its sequence number and its time. What was written is read back from the store and
compared with what was read, before anybody may commit it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.readers.arrow_arrays import int64_array, integers
from strandline.readers.evaluate import evaluate
from strandline.readers.logical_columns import LogicalColumns, no_rows
from strandline.readers.read_ahead import ReadAhead
from strandline.readers.small_files import MOST_FILES, in_groups, read_together
from strandline.readers.split_reader import SplitReader
from strandline.readers.splits import Split
from strandline.tableformat import paths
from strandline.tableformat.content_hash import content_hash
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.hidden_columns import DELETED_ID, SEQ_ID, TS_ID
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.segments import DENSE, STORED, SegmentEntry
from strandline.tableformat.stores.background import Background, run_now
from strandline.tableformat.timestamps import derive
from strandline.writers.forgetting import forget
from strandline.writers.layout import (
    ENCODING_THREADS,
    MAX_SEGMENT_ARROW_BYTES,
    MAX_SEGMENT_ROWS,
)
from strandline.writers.segment_file import encode_segment
from strandline.writers.tombstones import TombstoneRows, encode_tombstones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.replacing import Assumptions
    from strandline.tableformat.storage import PendingWrite, Storage
    from strandline.writers.forgetting import Elsewhere
    from strandline.writers.segment_file import SegmentFile

COMPACT: Final = "compact"
_FILES_AT_A_PACE: Final = 8
"""Read together where a rate is to be kept: others in this process wait for the interpreter."""
_COMPARED_BYTES: Final = 8 * 2**20
"""Of memory, about: parts of a large segment that threads read back side by side."""

Array = np.ndarray[Any, Any]
T = TypeVar("T")


class Pace(Protocol):
    """Who is told of every byte read and written, and may make us wait."""

    def spend(self, count: int) -> None:
        """So many bytes were moved."""


class NoPace:
    """As fast as can be."""

    def spend(self, count: int) -> None:
        """Nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What to do with the rows on their way."""

    drop: Bound | None = None
    """Rows for which this is true are left out."""
    sort_by: tuple[int, ...] = ()
    """Ids of columns to sort by; otherwise rows come in the order of `_seq`."""
    forget: bool = False
    """Of a table with a key: leave out what newer rows have replaced for good."""
    elsewhere: Elsewhere | None = None
    """The segments that stay, to compare with; None: only what is rewritten is compared."""
    pace: Pace = field(default_factory=NoPace)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """New segments in the store, and what they hold of the old ones."""

    entries: tuple[SegmentEntry, ...]
    rows_read: int
    rows_written: int
    bytes_read: int
    bytes_written: int
    content: str
    """The hash of the rows, in the order of `_seq`."""
    assumes: Assumptions | None = None
    """What must still be true of other segments when this is committed."""

    @property
    def rows_dropped(self) -> int:
        return self.rows_read - self.rows_written

    @property
    def files(self) -> list[str]:
        """All objects that were written."""
        indexes = [path_of(entry.path) for entry in self.entries if entry.index is not None]
        return [*(entry.path for entry in self.entries), *indexes]


def rewrite(
    storage: Storage,
    manifest: Manifest,
    inputs: Sequence[SegmentEntry],
    random_hex: Callable[[int], str],
    instructions: Instructions | None = None,
) -> Rewritten:
    """Write the rows of segments of one window and shard into new ones, and check them."""
    todo = instructions or Instructions()
    stored = [entry for entry in inputs if not entry.tombstones]
    rows = _read(storage, manifest, stored, todo.pace, _all_ids(manifest))
    stones = _read_tombstones(storage, manifest, inputs, todo.pace)
    read = rows.num_rows + stones.num_rows
    if todo.drop is not None:
        names = LogicalColumns(manifest, inputs[0]).all_names
        matches = evaluate(todo.drop, rows, names)
        rows = rows.filter(pc.invert(pc.fill_null(matches, False)))  # noqa: FBT003 - the value
    assumes = None
    if todo.forget and manifest.config.primary_key:
        left = forget(manifest, rows, stones, todo.elsewhere)
        rows, stones, assumes = left.rows, left.tombstones, left.assumes
    rows, stones = _by_number(rows), _by_number(stones)
    submit = _submit(todo.pace)
    writer = _Writer(storage, manifest, inputs, random_hex, todo.pace)
    hashing = submit(content_hash, rows)
    begun = writer.write(_sorted(rows, manifest, todo.sort_by)) if rows.num_rows else []
    indexing = [submit(_with_indexes, one) for one in begun]
    deletes = writer.write_tombstones(stones) if stones.num_rows else ()
    written = sum(entry.size_bytes for entry in (*(one.entry for one in begun), *deletes))
    todo.pace.spend(written)
    content = hashing.result()
    _compare(
        storage,
        manifest,
        [one.entry for one in begun],
        todo.pace,
        count=rows.num_rows,
        content=content,
        ids=_all_ids(manifest),
    )
    entries = writer.write_indexes([index.result() for index in indexing])
    _compare(
        storage,
        manifest,
        deletes,
        todo.pace,
        count=stones.num_rows,
        content=content_hash(stones),
        ids=_tombstone_ids(manifest),
    )
    return Rewritten(
        (*entries, *deletes),
        read,
        rows.num_rows + stones.num_rows,
        sum(entry.size_bytes for entry in inputs),
        written,
        content,
        assumes,
    )


def forgets_some(
    storage: Storage, manifest: Manifest, entry: SegmentEntry, elsewhere: Elsewhere
) -> bool:
    """Whether a rewrite of a segment of tombstones would leave some of them out."""
    stones = _read_tombstones(storage, manifest, [entry], NoPace())
    left = forget(manifest, no_rows(manifest, _all_ids(manifest)), stones, elsewhere)
    return bool(left.tombstones.num_rows < stones.num_rows)


def _all_ids(manifest: Manifest) -> set[int]:
    return {column.id for column in manifest.schema.columns} | {SEQ_ID, TS_ID}


def _tombstone_ids(manifest: Manifest) -> set[int]:
    return {*manifest.config.primary_key, SEQ_ID, TS_ID, DELETED_ID}


def _read_tombstones(
    storage: Storage, manifest: Manifest, inputs: Sequence[SegmentEntry], pace: Pace
) -> pa.Table:
    """The keys that the inputs delete, as they stand in their files."""
    stored = [entry for entry in inputs if entry.tombstones]
    return _read(storage, manifest, stored, pace, _tombstone_ids(manifest))


def _read(
    storage: Storage,
    manifest: Manifest,
    inputs: Sequence[SegmentEntry],
    pace: Pace,
    ids: set[int],
) -> pa.Table:
    if not inputs:
        return no_rows(manifest, ids)
    groups = [*in_groups(inputs, MOST_FILES if _in_threads(pace) else _FILES_AT_A_PACE)]

    def read(group: Sequence[SegmentEntry]) -> pa.Table:
        pace.spend(sum(entry.size_bytes for entry in group))
        return read_together(storage, manifest, group, ids)

    rows = pa.concat_tables(_each(pace, read, groups))
    columns = [rows.select([number]) for number in range(rows.num_columns)]
    made = _each(pace, pa.Table.combine_chunks, columns)
    return pa.table(
        {name: one.column(0) for name, one in zip(rows.column_names, made, strict=True)}
    )


def _in_threads(pace: Pace) -> bool:
    """Who keeps to a rate is in no hurry, and leaves the other cores to writers."""
    return isinstance(pace, NoPace)


def _each(pace: Pace, call: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
    return _threads().map(call, items) if _in_threads(pace) else [call(item) for item in items]


def _submit(pace: Pace) -> Callable[..., Future[Any]]:
    return _threads().submit if _in_threads(pace) else run_now


def _threads() -> Background:
    return Background(ENCODING_THREADS, "strandline-rewrite")


def _numbers(rows: pa.Table, name: str) -> Array:
    return integers(rows.column(name))


def _by_number(rows: pa.Table) -> pa.Table:
    seqs = _numbers(rows, "_seq")
    if bool((seqs[1:] > seqs[:-1]).all()):
        return rows
    return rows.take(int64_array(np.argsort(seqs, kind="stable"))).combine_chunks()


def _sorted(rows: pa.Table, manifest: Manifest, sort_by: Sequence[int]) -> pa.Table:
    if not sort_by:
        return rows
    names = [manifest.schema.by_id[column].name for column in sort_by]
    keys = [(name, "ascending") for name in (*names, "_seq")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()


def _compare(
    storage: Storage,
    manifest: Manifest,
    entries: Sequence[SegmentEntry],
    pace: Pace,
    *,
    count: int,
    content: str,
    ids: set[int],
) -> None:
    """Read everything back: a row that is lost here would be lost for ever."""
    readers = [
        SplitReader(storage, manifest, Split(entry), ids, unit_memory_bytes=_COMPARED_BYTES)
        for entry in entries
    ]
    tables = [*_read_back(readers, pace, is_local=storage.is_local)]
    found = _by_number(pa.concat_tables(tables)) if tables else None
    right = found.num_rows == count if found is not None else count == 0
    if not right or (found is not None and content_hash(found) != content):
        raise CorruptTable(
            f"{entries[0].path if entries else 'a rewritten segment'} does not hold the rows that "
            "were written to it. Nothing was changed, and the rows are where they were. The store "
            "or the machine damages data: run `strandline doctor`."
        )


def _read_back(readers: Sequence[SplitReader], pace: Pace, *, is_local: bool) -> Iterator[pa.Table]:
    if _in_threads(pace):
        yield from (rows for _, rows in ReadAhead(readers, is_local=is_local))
        return
    for reader in readers:
        units = reader.open()
        for unit in units:
            pace.spend(reader.entry.size_bytes // len(units))
            yield reader.read(unit)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A segment whose rows are stored."""

    entry: SegmentEntry
    """Without indexes."""
    file: SegmentFile
    upload: PendingWrite


def _with_indexes(begun: _Begun) -> _Begun:
    file = begun.file
    return begun if file.finish is None else replace(begun, file=file.finish())


class _Writer:
    """Encodes rows, and says what the manifest will say of them."""

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        inputs: Sequence[SegmentEntry],
        random_hex: Callable[[int], str],
        pace: Pace,
    ) -> None:
        self._storage, self._manifest, self._random_hex = storage, manifest, random_hex
        self._pace = pace
        self._window, self._shard = inputs[0].window, inputs[0].shard
        self._may_need_ts = any(entry.ts_stored for entry in inputs)

    def write(self, rows: pa.Table) -> list[_Begun]:
        """Store rows as segments; durable when this returns. Indexes are still to be built."""
        parts = [rows.slice(start, stop - start) for start, stop in _cuts(rows)]
        made = _each(self._pace, self._segment, parts)
        for one in made:
            one.upload.wait()
        return made

    def write_indexes(self, made: Sequence[_Begun]) -> tuple[SegmentEntry, ...]:
        """Store the indexes; durable when this returns."""
        uploads = [
            self._storage.write_new(path_of(one.entry.path), b"".join(one.file.index_pieces))
            for one in made
            if one.file.index is not None
        ]
        for upload in uploads:
            upload.wait()
        return tuple(replace(one.entry, index=one.file.index) for one in made)

    def write_tombstones(self, rows: pa.Table) -> tuple[SegmentEntry, ...]:
        """Store keys that are deleted; durable when this returns."""
        made = [self._tombstones(rows.slice(start, stop - start)) for start, stop in _cuts(rows)]
        for _, upload in made:
            upload.wait()
        return tuple(entry for entry, _ in made)

    def _tombstones(self, rows: pa.Table) -> tuple[SegmentEntry, PendingWrite]:
        manifest = self._manifest
        seqs = _numbers(rows, "_seq")
        dense = bool((np.diff(seqs) == 1).all())
        entry, stored = encode_tombstones(
            TombstoneRows(
                window=self._window,
                shard=self._shard,
                kind=COMPACT,
                keys=rows.select([column.name for column in manifest.key_columns]),
                ts_ms=_numbers(rows, "_ts"),
                first=int(seqs.min()),
                last=int(seqs.max()),
                seqs=None if dense else seqs,
            ),
            manifest.schema,
            manifest,
            self._random_hex(8),
        )
        return entry, self._storage.write_new(*stored)

    def _segment(self, rows: pa.Table) -> _Begun:
        manifest = self._manifest
        seqs, ts_ms = _numbers(rows, "_seq"), _numbers(rows, "_ts")
        dense = bool((np.diff(seqs) == 1).all())
        store_ts = self._may_need_ts and self._differs(rows, ts_ms)
        file = encode_segment(
            _in_schema(rows, manifest),
            manifest.schema,
            manifest.config,
            ts_ms=ts_ms,
            seqs=None if dense else seqs,
            store_ts=store_ts,
            at_leisure=True,
            index_in=_submit(self._pace),
        )
        path = paths.segment_path(
            self._window, self._shard, COMPACT, manifest.files_version, self._random_hex(8)
        )
        entry = SegmentEntry(
            path=path,
            window=self._window,
            shard=self._shard,
            row_count=rows.num_rows,
            size_bytes=len(file.data),
            min_seq=int(seqs.min()),
            max_seq=int(seqs.max()),
            min_ts=int(ts_ms.min()),
            max_ts=int(ts_ms.max()),
            column_stats=file.column_stats,
            footer_bytes=file.footer_bytes,
            footer_xxh64=file.footer_xxh64,
            schema_id=manifest.schema.id,
            created_at=0,
            rows_are=DENSE if dense else STORED,
            ts_stored=store_ts,
        )
        return _Begun(entry, file, self._storage.write_new(path, file.data))

    def _differs(self, rows: pa.Table, ts_ms: Array) -> bool:
        """Whether a reader would find other times in the time column than the rows have."""
        column = self._manifest.schema.by_id.get(self._manifest.config.time_column or 0)
        if column is None or rows.column(column.name).null_count:
            return True
        return not np.array_equal(derive(rows.column(column.name), column.type), ts_ms)


def _in_schema(rows: pa.Table, manifest: Manifest) -> pa.Table:
    """The table's columns, in its types; inner fields of an equal type may have other names."""
    fields = list(manifest.schema.arrow)
    arrays = [rows.column(field.name) for field in fields]
    return pa.Table.from_arrays(
        [
            array.cast(field.type) if pa.types.is_nested(field.type) else array
            for array, field in zip(arrays, fields, strict=True)
        ],
        schema=manifest.schema.arrow,
    )


def _cuts(rows: pa.Table) -> list[tuple[int, int]]:
    """Where to cut rows into files of a bounded size."""
    parts = max(
        -(-rows.num_rows // MAX_SEGMENT_ROWS), -(-rows.nbytes // MAX_SEGMENT_ARROW_BYTES), 1
    )
    edges = [rows.num_rows * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
