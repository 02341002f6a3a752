"""Reading one data segment: verified bytes in, rows of the table's current schema out.

Three things are checked before a row is believed: the footer against the hash in the manifest,
every page against its CRC, and the row count. The footer we verified is the one pyarrow uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.readers.sparse_file import SparseFile
from strandline.tableformat import codec, types
from strandline.tableformat.errors import CorruptTable, InvalidInput, MissingFile, ObjectMissing
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS, SEQ_ID, TS_ID, WINDOW_ID
from strandline.tableformat.segments import DENSE
from strandline.tableformat.timestamps import derive

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

WHOLE_FILE_BYTES: Final = 2 * 2**20
"""Up to this size one request for everything beats two for less."""
_TAIL_BYTES: Final = 8
_OFFSET_COLUMN: Final = "_off"
_TS_COLUMN: Final = "_ts"


def read_segment(
    storage: Storage, manifest: Manifest, entry: SegmentEntry, column_ids: Collection[int]
) -> pa.Table:
    """The named columns of a segment, under their current names and types, hidden ones too."""
    try:
        return _Segment(storage, manifest, entry).read(column_ids)
    except ObjectMissing:
        raise MissingFile(
            f"{storage.url}: {entry.path} is listed by version {manifest.version} and is not in "
            "the store. Rows would be missing, so nothing is returned; restore the file, or read "
            "a version that does not list it."
        ) from None
    except (pa.ArrowException, OSError, InvalidInput) as error:
        raise CorruptTable(f"{storage.url}: {entry.path} is damaged: {error}") from None


class _Segment:
    def __init__(self, storage: Storage, manifest: Manifest, entry: SegmentEntry) -> None:
        self._storage, self._manifest, self._entry = storage, manifest, entry

    def read(self, column_ids: Collection[int]) -> pa.Table:
        entry = self._entry
        file = SparseFile(entry.size_bytes)
        if entry.size_bytes <= WHOLE_FILE_BYTES:
            self._fetch(file, [(0, entry.size_bytes)])
            footer = self._footer(file)
        else:
            tail = entry.footer_bytes + _TAIL_BYTES
            self._fetch(file, [(entry.size_bytes - tail, tail)])
            footer = self._footer(file)
        names = self._physical_names(
            column_ids,
            {footer.schema.column(i).path.split(".")[0] for i in range(footer.num_columns)},
        )
        if entry.size_bytes > WHOLE_FILE_BYTES:
            self._fetch(file, _chunk_ranges(footer, names))
        parquet = pq.ParquetFile(
            pa.PythonFile(file, mode="r"), metadata=footer, page_checksum_verification=True
        )
        # A thread per file is enough; scans read several files at once.
        stored = parquet.read(columns=sorted(names), use_threads=False)
        return self._logical(stored, column_ids)

    def _fetch(self, file: SparseFile, ranges: Sequence[tuple[int, int]]) -> None:
        requests = [(self._entry.path, start, length) for start, length in ranges]
        blobs = self._storage.read_ranges(requests)
        for (start, _), data in zip(ranges, blobs, strict=True):
            file.fill(start, data)

    def _footer(self, file: SparseFile) -> pq.FileMetaData:
        entry = self._entry
        tail = file.bytes_at(
            entry.size_bytes - entry.footer_bytes - _TAIL_BYTES, entry.footer_bytes + _TAIL_BYTES
        )
        ending = entry.footer_bytes.to_bytes(4, "little") + b"PAR1"
        if (
            codec.checksum(tail[:-_TAIL_BYTES]) != entry.footer_xxh64
            or tail[-_TAIL_BYTES:] != ending
        ):
            raise CorruptTable(
                f"{self._storage.url}: the footer of {entry.path} does not have the checksum that "
                "the manifest gives. The file was damaged or overwritten."
            )
        footer = pq.read_metadata(pa.BufferReader(tail))
        if footer.num_rows != entry.row_count:
            raise CorruptTable(
                f"{self._storage.url}: {entry.path} holds {footer.num_rows} rows; the manifest "
                f"says {entry.row_count}"
            )
        return footer

    def _physical_names(self, column_ids: Collection[int], present: set[str]) -> set[str]:
        """Columns of the file that the answer needs; a column added later is not there."""
        entry, schema = self._entry, self._manifest.schema
        needed = {schema.by_id[i].physical_name for i in column_ids if i > 0} & present
        if SEQ_ID in column_ids and entry.rows_are != DENSE:
            needed.add(_OFFSET_COLUMN)
        if TS_ID in column_ids:
            needed.add(_TS_COLUMN if entry.ts_stored else self._time_column().physical_name)
        missing = needed - present
        if missing:
            raise CorruptTable(f"{entry.path} lacks the column {', '.join(sorted(missing))}")
        return needed

    def _time_column(self) -> Column:
        time_column = self._manifest.config.time_column
        if time_column is None:
            raise CorruptTable(
                f"{self._entry.path} stores no _ts, and the table has no time column"
            )
        return self._manifest.schema.by_id[time_column]

    def _logical(self, stored: pa.Table, column_ids: Collection[int]) -> pa.Table:
        rows = self._entry.row_count
        columns: dict[str, Any] = {}
        for column in self._manifest.schema.columns:
            if column.id in column_ids:
                columns[column.name] = self._column(stored, column, rows)
        for name, hidden in HIDDEN_COLUMNS.items():
            if hidden.id in column_ids:
                columns[name] = pa.array(self._hidden(stored, hidden.id, rows), pa.int64())
        return pa.table(columns)

    def _column(self, stored: pa.Table, column: Column, rows: int) -> Any:
        target = types.to_arrow(column.type)
        if column.physical_name not in stored.column_names:
            return pa.nulls(rows, target)
        values = stored.column(column.physical_name)
        if values.type == target:
            return values
        held = types.from_arrow(values.type)
        if held != column.type and not types.can_widen(held, column.type):
            raise CorruptTable(
                f"{self._entry.path}: column {column.name!r} holds {values.type}, which is not "
                f"{column.type} nor a type that widens to it"
            )
        return values.cast(target)

    def _hidden(self, stored: pa.Table, column_id: int, rows: int) -> np.ndarray[Any, Any]:
        entry = self._entry
        if column_id == WINDOW_ID:
            return np.full(rows, entry.window.start_ms, dtype=np.int64)
        if column_id == TS_ID:
            if entry.ts_stored:
                return _integers(stored.column(_TS_COLUMN))
            time_column = self._time_column()
            return derive(stored.column(time_column.physical_name), time_column.type)
        if entry.rows_are == DENSE:
            return np.arange(entry.min_seq, entry.min_seq + rows, dtype=np.int64)
        seqs = entry.seq_base + _integers(stored.column(_OFFSET_COLUMN)).astype(np.int64)
        if seqs.min() < entry.min_seq or seqs.max() > entry.max_seq:
            raise CorruptTable(f"{entry.path}: a row lies outside the segment's sequence numbers")
        return seqs


def _integers(values: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    if values.null_count:
        raise CorruptTable("a hidden column holds a null")
    return np.asarray(values.to_numpy())


def _chunk_ranges(footer: pq.FileMetaData, names: set[str]) -> list[tuple[int, int]]:
    """The byte ranges of the named columns' chunks, in file order."""
    ranges = []
    for group in range(footer.num_row_groups):
        chunks = footer.row_group(group)
        for leaf in range(footer.num_columns):
            chunk = chunks.column(leaf)
            if chunk.path_in_schema.split(".")[0] in names:
                start = chunk.data_page_offset
                if chunk.dictionary_page_offset is not None:
                    start = min(start, chunk.dictionary_page_offset)
                ranges.append((start, chunk.total_compressed_size))
    return sorted(ranges)
