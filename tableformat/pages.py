"""Segment pages: one Parquet row per segment, with typed stats in columns of their own.

A page is read whole and checked against its reference, then only the columns that a filter needs
are decoded, as numpy arrays. Full entries are made for the survivors alone, so the cost of
planning grows with what is read, not with what exists.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.tableformat import codec, paths, segments, stats
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields
from strandline.tableformat.pruning import Bounds, certain
from strandline.tableformat.types import ColumnType, Domain

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.segments import PageRef, SegmentEntry

MAX_PAGE_ENTRIES: Final = 32_768
_KEPT_ENTRIES: Final = 1_024
MAX_UNFOLDED_BYTES: Final = 256 * 2**20
"""A page may not unfold to more than this: a small file must not exhaust memory."""
FIXED: Final = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_count", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("min_seq", pa.int64(), nullable=False),
        pa.field("max_seq", pa.int64(), nullable=False),
        pa.field("min_ts", pa.int64(), nullable=False),
        pa.field("max_ts", pa.int64(), nullable=False),
        pa.field("footer_bytes", pa.int32(), nullable=False),
        pa.field("footer_xxh64", pa.string(), nullable=False),
        pa.field("schema_version", pa.int32(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
        pa.field("seq_base", pa.int64()),
        pa.field("ts_stored", pa.bool_(), nullable=False),
    ]
)
"""`seq_base` is null in a segment whose rows are dense, and -1 in one that stores `_seq`."""
NUMBERS_STORED: Final = -1
_SEQ_BASES: Final = {segments.DENSE: None, segments.STORED: NUMBERS_STORED}
INDEX: Final = pa.field("index", pa.string())
"""Only in pages that list an entry with indexes, or with debts of them: both, as a JSON object."""
EXTRA: Final = pa.field("extra", pa.string())
"""Only in pages that list an entry with fields we do not know: these, as a JSON object."""
_JSON_FIELDS: Final = (INDEX, EXTRA)

_PLAIN_ENCODINGS: Final = frozenset(
    {
        "PLAIN",
        "RLE",
        "BIT_PACKED",
        "DELTA_BINARY_PACKED",
        "DELTA_LENGTH_BYTE_ARRAY",
        "BYTE_STREAM_SPLIT",
    }
)
"""Encodings that hold each value in full; a dictionary or a shared prefix is a bomb's fuse."""
_BOUND_TYPES: Final[dict[Domain, pa.DataType]] = {
    Domain.INT: pa.int64(),
    Domain.FLOAT: pa.float64(),
    Domain.TEXT: pa.string(),
    Domain.BYTES: pa.binary(),
}


def bound_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a column's bounds: its stats domain, so that widening changes nothing."""
    if kind.name == "decimal":
        return pa.decimal128(38, 0)
    assert kind.domain is not None
    return _BOUND_TYPES[kind.domain]


def stats_fields(column: Column) -> list[pa.Field]:
    """The page's columns for the stats of one table column."""
    bound = bound_type(column.type)
    return [
        pa.field(f"c{column.id}_min", bound),
        pa.field(f"c{column.id}_max", bound),
        pa.field(f"c{column.id}_null_count", pa.int64()),
        pa.field(f"c{column.id}_has_nan", pa.bool_()),
        pa.field(f"c{column.id}_exact", pa.bool_()),
    ]


def encode_page(entries: Sequence[SegmentEntry], schema: Schema) -> bytes:
    """The bytes of a page that lists these segments, in this order."""
    arrays: list[pa.Array] = [
        pa.array([e.path for e in entries], pa.string()),
        *(
            pa.array([getattr(e, name) for e in entries], FIXED.field(name).type)
            for name in ("row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts")
        ),
        pa.array([e.footer_bytes for e in entries], pa.int32()),
        pa.array([e.footer_xxh64 for e in entries], pa.string()),
        pa.array([e.schema_id for e in entries], pa.int32()),
        pa.array([e.created_at for e in entries], pa.int64()),
        pa.array(
            [_SEQ_BASES.get(e.rows_are, e.seq_base) for e in entries],
            pa.int64(),
        ),
        pa.array([e.ts_stored for e in entries], pa.bool_()),
    ]
    fields = list(FIXED)
    for field, values in (
        (INDEX, [segments.index_fields(e) for e in entries]),
        (EXTRA, [segments.extra_fields(e) for e in entries]),
    ):
        if any(values):
            fields.append(field)
            arrays.append(
                pa.array([codec.to_text(v, field.name).decode() if v else None for v in values])
            )
    for column in schema.columns:
        known = [e.stats_of(column) for e in entries] if column.type.domain is not None else []
        if any(s is not None for s in known):
            fields += stats_fields(column)
            arrays += _stats_arrays(column, known)
    return table_bytes(pa.table(arrays, schema=pa.schema(fields)))


def _stats_arrays(column: Column, known: Sequence[stats.ColumnStats | None]) -> list[pa.Array]:
    bound = bound_type(column.type)

    def array(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([None if s is None else getattr(s, name) for s in known], kind)

    return [
        array("min", bound),
        array("max", bound),
        array("null_count", pa.int64()),
        array("has_nan", pa.bool_()),
        array("exact", pa.bool_()),
    ]


def table_bytes(table: pa.Table) -> bytes:
    """A page's Parquet file: one row group, no dictionaries, no statistics of its own."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        row_group_size=max(1, table.num_rows),
        store_schema=False,
    )
    return bytes(sink.getvalue())


def merge_pages(parts: Sequence[SegmentPage], schema: Schema) -> bytes:
    """The bytes of one page that lists what these pages list, column by column.

    Stats of columns that the table no longer has are left behind.
    """
    fields = [*FIXED, *_JSON_FIELDS]
    for column in schema.columns:
        if column.type.domain is not None:
            fields += stats_fields(column)
    held = [field for field in fields if any(part.has(field.name) for part in parts)]
    arrays = [pa.concat_arrays([part.array(field) for part in parts]) for field in held]
    return table_bytes(pa.table(arrays, schema=pa.schema(held)))


def _indices(rows: np.ndarray[Any, Any]) -> pa.Array:
    # pa.array would import pandas, to find out that these are plain integers.
    buffer = pa.py_buffer(np.ascontiguousarray(rows, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, buffer])


def _taken(array: pa.Array, rows: np.ndarray[Any, Any]) -> pa.Array:
    """Some rows of a column, ascending. Rows in a run, as a range of time has them, are a slice."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return array.slice(int(rows[0]), len(rows))
    return array.take(_indices(rows))  # loads pyarrow.compute, which takes 20 ms


def page_without(page: SegmentPage, gone: Sequence[int]) -> bytes | None:
    """The bytes of a page that lists all segments of another but these rows; None: no other."""
    kept = np.delete(np.arange(page.count), np.asarray(gone, np.int64))
    return None if not len(kept) else page.taken(kept)


class SegmentPage:
    """A page's bytes, verified against their reference and decoded column by column."""

    def __init__(self, ref: PageRef, data: bytes) -> None:
        # The reference's checksum has been compared by whoever read the bytes.
        self._ref = ref
        try:
            self._file = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise CorruptTable(f"page {ref.path} is not a Parquet file: {error}") from None
        footer = self._file.metadata
        if footer.num_rows != ref.entries:
            raise CorruptTable(
                f"page {ref.path} lists {footer.num_rows} segments; its reference says "
                f"{ref.entries}"
            )
        self._check_size(footer)
        self._schema = self._file.schema_arrow
        self._names = set(self._schema.names)
        if not len(self._names) == len(self._schema) == footer.num_columns:
            raise CorruptTable(f"page {ref.path} has a nested column, or two of one name")
        missing = set(FIXED.names) - self._names
        if missing:
            raise CorruptTable(f"page {ref.path} lacks the columns {', '.join(sorted(missing))}")
        self._json_fields = [field for field in _JSON_FIELDS if field.name in self._names]
        self._check_types([*FIXED, *self._json_fields])
        self._columns: dict[str, pa.Array] = {}
        self._certain: dict[str, Bounds] = {}
        self._kept: tuple[list[int], list[SegmentEntry]] = ([], [])
        """The last small answer, rows and entries: making these is most of a warm plan's time."""

    def _check_size(self, footer: pq.FileMetaData) -> None:
        ref = self._ref
        unfolded = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        if ref.entries > MAX_PAGE_ENTRIES or unfolded > MAX_UNFOLDED_BYTES:
            raise CorruptTable(
                f"page {ref.path} lists {ref.entries} segments in {unfolded} bytes; at most "
                f"{MAX_PAGE_ENTRIES} in {MAX_UNFOLDED_BYTES} are allowed"
            )

    def _check_encodings(self, names: Sequence[str]) -> None:
        """Refuse what unfolds to more than its bytes: repeated text needs hardly any."""
        footer = self._file.metadata
        leaves = [self._schema.get_field_index(name) for name in names]
        for group in range(footer.num_row_groups):
            chunks = footer.row_group(group)
            for leaf in leaves:
                if not _PLAIN_ENCODINGS.issuperset(chunks.column(leaf).encodings):
                    raise CorruptTable(f"page {self._ref.path} repeats values by reference")

    def _check_types(self, fields: Sequence[pa.Field]) -> None:
        for field in fields:
            if field.name not in self._names or self._schema.field(field.name).type != field.type:
                raise CorruptTable(
                    f"page {self._ref.path}: column {field.name} is not of type {field.type}"
                )

    @property
    def count(self) -> int:
        return self._ref.entries

    def _read(self, names: Sequence[str]) -> list[pa.Array]:
        wanted = [name for name in names if name not in self._columns]
        if wanted:
            self._check_encodings(wanted)
            try:
                table = self._file.read(columns=wanted, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise CorruptTable(f"page {self._ref.path} is damaged: {error}") from None
            for name in wanted:
                self._columns[name] = table.column(name).combine_chunks()
        return [self._columns[name] for name in names]

    def integers(self, name: str) -> np.ndarray[Any, Any]:
        """One of the fixed integer columns."""
        (array,) = self._read([name])
        if array.null_count:
            raise CorruptTable(f"page {self._ref.path}: column {name} holds a null")
        return _bounds_array(array)

    def certain_bounds(self, low: str, high: str) -> Bounds:
        """Bounds of a hidden column, from two of the fixed integer columns."""
        found = self._certain.get(low)
        if found is None:
            found = self._certain[low] = certain(self.integers(low), self.integers(high))
        return found

    def column_bounds(self, column: Column) -> Bounds | None:
        """Stats of a table column; None where the page has none."""
        if column.type.domain is None:
            return None
        fields = stats_fields(column)
        if fields[0].name not in self._names:
            return None
        self._check_types(fields)
        low, high, nulls, nan, exact = self._read([f.name for f in fields])
        known = ~(_nulls(low) | _nulls(high))
        return Bounds(
            mins=self._bounds(low),
            maxs=self._bounds(high),
            known=known,
            null_count=_filled(nulls, -1),
            value_count=self.integers("row_count"),
            has_nan=_filled(nan, fill=True),
            exact=_filled(exact, fill=False),
        )

    def _bounds(self, array: pa.Array) -> np.ndarray[Any, Any]:
        try:
            return _bounds_array(array)
        except UnicodeDecodeError:
            raise CorruptTable(f"page {self._ref.path} holds text that is not UTF-8") from None

    def _values(self, array: pa.Array) -> list[Any]:
        try:
            return list(array.to_pylist())
        except UnicodeDecodeError:
            raise CorruptTable(f"page {self._ref.path} holds text that is not UTF-8") from None

    def is_said(self, field: pa.Field) -> np.ndarray[Any, Any]:
        """In which rows a column that may be missing or null has a value."""
        if not self.has(field.name):
            return np.zeros(self.count, np.bool_)
        return ~_nulls(self.array(field))

    def sequence_bases(self) -> np.ndarray[Any, Any]:
        """`seq_base`, with 0 where it is null."""
        return _filled(self.array(FIXED.field("seq_base")), 0)

    def texts(self, name: str, rows: np.ndarray[Any, Any]) -> list[str]:
        """Some values of one of the fixed columns of text."""
        (array,) = self._read([name])
        if array.null_count:
            raise CorruptTable(f"page {self._ref.path}: column {name} holds a null")
        return self._values(_taken(array, rows))

    def entries(self, rows: np.ndarray[Any, Any]) -> list[SegmentEntry]:
        """Full entries of the chosen rows; their stats stay in the page."""
        wanted = rows.tolist()
        if len(wanted) > _KEPT_ENTRIES:
            return self._make_entries(rows)
        known, entries = self._kept
        if wanted != known:
            entries = self._make_entries(rows)
            self._kept = wanted, entries
        return list(entries)

    def _make_entries(self, rows: np.ndarray[Any, Any]) -> list[SegmentEntry]:
        names = [*FIXED.names, *(field.name for field in self._json_fields)]
        arrays = self._read(names)
        for field, array in zip(FIXED, arrays, strict=False):
            if array.null_count and not field.nullable:
                raise CorruptTable(f"page {self._ref.path}: column {field.name} holds a null")
        taken = [self._values(_taken(array, rows)) for array in arrays]
        return [self._entry(dict(zip(names, row, strict=True))) for row in zip(*taken, strict=True)]

    def has(self, name: str) -> bool:
        return name in self._names

    def rows_of(self, wanted: Container[str]) -> dict[str, int]:
        """Where the page lists these segments, by path."""
        (listed,) = self._read(["path"])
        return {path: row for row, path in enumerate(self._values(listed)) if path in wanted}

    def taken(self, rows: np.ndarray[Any, Any]) -> bytes:
        """A page with these rows alone, with all columns as they stand."""
        indices = _indices(rows)
        arrays = [array.take(indices) for array in self._read(self._schema.names)]
        return table_bytes(pa.table(arrays, schema=self._schema.remove_metadata()))

    def array(self, field: pa.Field) -> pa.Array:
        """One column of the page as it stands; nulls where the page does not have it."""
        if not self.has(field.name):
            return pa.nulls(self.count, field.type)
        self._check_types([field])
        return self._read([field.name])[0]

    def _entry(self, row: dict[str, Any]) -> SegmentEntry:
        name = paths.parse_segment_path(row["path"])
        base = row["seq_base"]
        rows_are = (
            segments.DENSE
            if base is None
            else segments.STORED
            if base == NUMBERS_STORED
            else segments.OFFSET
        )
        index = self._json(INDEX.name, row)
        where = f"page {self._ref.path}: {row['path']}"
        entry = segments.SegmentEntry(
            path=row["path"],
            window=name.window,
            shard=name.shard,
            row_count=row["row_count"],
            size_bytes=row["size_bytes"],
            min_seq=row["min_seq"],
            max_seq=row["max_seq"],
            min_ts=row["min_ts"],
            max_ts=row["max_ts"],
            column_stats={},
            footer_bytes=row["footer_bytes"],
            footer_xxh64=row["footer_xxh64"],
            schema_id=row["schema_version"],
            created_at=row["created_at"],
            rows_are=rows_are,
            seq_base=base if rows_are == segments.OFFSET else 0,
            ts_stored=row["ts_stored"],
            **segments.extra_fields_from_json(self._json(EXTRA.name, row), where),
            **segments.index_fields_from_json(index, where),
        )
        segments.check_entry(entry, f"page {self._ref.path}:")
        return entry

    def _json(self, name: str, row: dict[str, Any]) -> dict[str, Any]:
        text = row.get(name)
        if text is None:
            return {}
        try:
            return Fields(orjson.loads(text), f"page {self._ref.path}: {name}").value
        except orjson.JSONDecodeError as error:
            raise CorruptTable(f"page {self._ref.path}: {name} is not JSON: {error}") from None


def _plain(value: object) -> Any:
    return int(value) if isinstance(value, Decimal) else value


def _nulls(array: pa.Array) -> np.ndarray[Any, Any]:
    if not array.null_count:
        return np.zeros(len(array), dtype=bool)
    return _bounds_array(array.is_null())


def _filled(array: pa.Array, fill: int | bool) -> np.ndarray[Any, Any]:  # noqa: FBT001
    """A column without nulls as numpy; nulls become `fill`."""
    values = _bounds_array(array)
    if array.null_count:
        values = values.copy()
        values[_nulls(array)] = fill
    return values


def _bounds_array(array: pa.Array) -> np.ndarray[Any, Any]:
    """Values as numpy, with anything where they are null.

    Read from the buffers: the general conversion would import pandas, which costs more than most
    plans.
    """
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
        buffer = array.buffers()[1]
        return np.frombuffer(buffer, dtype=dtype, count=len(array) + array.offset)[array.offset :]
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(array.buffers()[1], dtype=np.uint8)
        flags = np.unpackbits(bits, count=len(array) + array.offset, bitorder="little")
        return flags[array.offset :].astype(bool)
    return np.array([_plain(value) for value in array.to_pylist()] or [], dtype=object)
