"""Rows as the bytes of a data segment, with the stats its manifest entry carries.

Encodings are chosen from a look at the data: dictionaries only where values repeat, delta coding
for integers elsewhere. That writes faster and smaller than dictionaries everywhere. Strings stay
plain: delta-coded lengths came out no smaller after zstd, and took a tenth longer. Stats come from
the Parquet footer, where the encoder has left them for free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.readers.arrow_arrays import int64_array, number_array
from strandline.tableformat import codec, stats
from strandline.tableformat.indexes import policy
from strandline.tableformat.types import Domain
from strandline.writers.index_file import index_columns, index_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from strandline.tableformat.config import Config
    from strandline.tableformat.indexes.catalog import Part
    from strandline.tableformat.indexes.reference import IndexRef, KindsByColumn
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.types import ColumnType

OFFSET_COLUMN: Final = "_off"
SEQ_COLUMN: Final = "_seq"
TIME_COLUMN: Final = "_ts"
DELETED_COLUMN: Final = "_deleted"
MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""Behind the footer: its length in four bytes, then the magic."""
_SAMPLE_ROWS: Final = 4_096
_FIRST_LOOK_ROWS: Final = 128
"""No value twice in so many: the whole sample would say the same, and costs ten times as much."""
_DISTINCT_SHARE: Final = 0.25
"""A column whose sample repeats values at least four times over gets a dictionary."""
_FLOAT_SHARE: Final = 0.85
"""Floats that repeat as rarely as this in a sample do so three times and more in a row group.
Prices then take a fifth less space by a dictionary, and half the time to read: zstd is slow over
plain ones, which hardly shrink."""
_MANY_ROWS: Final = 32_768
"""About a row group, over which a dictionary of floats pays."""
_FEW_DISTINCT: Final = 64
"""So few values in a sample gain by a dictionary, however they lie."""
_CLUSTERED: Final = 1.5
"""Times that the value changes in a sample, for each of its values, if equal ones are together."""
_WRITE_BATCH_ROWS: Final = 16_384
"""Rows the encoder takes at a time; its own 1,024 cost 4% more."""
_ROWS_PER_VALUE: Final = 8
"""Text of which each value fills so many rows of a row group, wherever they are, gets one too."""
_SMALL_FILE_ROWS: Final = 4_096
"""Below this, setting up costs more than it saves: zstd for every page, dictionaries, indexes."""
_BLOOM_FALSE_POSITIVES: Final = 0.05
_TEXTS: Final = frozenset({"string", "binary"})
_BY_VALUE: Final = frozenset({"enum_bitmap", "membership"})
"""Kinds that need each value once."""
_ROUNDS: Final = 8
"""Of an estimate that comes closer in each."""
_DELTA_INTEGERS: Final = frozenset({"int32", "int64", "timestamp", "timestamptz", "date", "uint32"})


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """An encoded data file and what its entry says of it."""

    data: pa.Buffer
    footer_bytes: int
    footer_xxh64: str
    column_stats: dict[str, Any]
    index_pieces: Sequence[bytes] = ()
    """The index file, in pieces; none where the segment has no indexes."""
    index: IndexRef | None = None
    index_debt: KindsByColumn = field(default_factory=dict)
    finish: Callable[[], SegmentFile] | None = None
    """With `index_in`, where there is something to index: the file with its indexes."""


def encode_segment(
    rows: pa.Table,
    schema: Schema,
    config: Config,
    *,
    ts_ms: np.ndarray[Any, Any],
    offsets: np.ndarray[Any, Any] | None = None,
    seqs: np.ndarray[Any, Any] | None = None,
    store_ts: bool = False,
    in_haste: bool = False,
    at_leisure: bool = False,
    index_in: Callable[[Callable[[], list[Part]]], Future[list[Part]]] | None = None,
    tombstones: bool = False,
) -> SegmentFile:
    """Encode rows that have exactly the schema's columns.

    `ts_ms`: each row's `_ts`; stored with `store_ts`, where it does not follow from the time
    column. `offsets`: each row's index in its batch, for a file that does not hold a run of it.
    `seqs`: each row's sequence number, for a file that holds rows of several batches.
    `in_haste`: encode like a small file, with nothing that only serves later reads.
    `at_leisure`: nobody waits, so filters may take longer to build and come out smaller.
    `index_in`: where indexes are built meanwhile, such as in a thread; `finish` waits for them.
    `tombstones`: the rows are keys that are deleted, and say so in a column of their own.
    """
    table = _physical_table(rows, schema, offsets, seqs, ts_ms if store_ts else None)
    if tombstones:
        deleted = pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)
        table = table.append_column(deleted, pa.repeat(pa.scalar(value=True), table.num_rows))
    nan_columns = _columns_with_nan(table, schema)
    small = in_haste or table.num_rows < _SMALL_FILE_ROWS
    distinct = _distinct_in_samples(table, schema, config, small=small)
    dictionaries, encodings = _encodings(table, schema, distinct)
    planned = _index_plan(table, schema, config, distinct)
    indexed = bool(planned) and not in_haste
    if indexed:
        table = _with_shared_dictionaries(table, schema, planned, dictionaries)
    build = partial(
        index_columns,
        table,
        ts_ms,
        schema=schema,
        config=config,
        plan=planned,
        smallest_filters=at_leisure,
    )
    begun = index_in(build) if indexed and index_in is not None else None
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(
        sink,
        table.schema,
        **_compression(small=small),
        use_dictionary=dictionaries or False,
        column_encoding=encodings or None,
        # Readers take Parquet's own stats for a float column with NaN as if it had none.
        write_statistics=_columns_with_statistics(table, schema, nan_columns),
        write_batch_size=_WRITE_BATCH_ROWS,
        # Pages of 2,048 rows cost a fifth more time than pyarrow's 20,000, so they are a choice.
        max_rows_per_page=config.zone_rows if config.zone_pages and not in_haste else None,
        write_page_checksum=True,
        # A small file has one page per column, and nothing to find in it by an index.
        write_page_index=indexed or not small,
        bloom_filter_options=_bloom_filters(table, schema, config, planned, distinct)
        if indexed
        else None,
        store_schema=False,
    )
    with writer:
        writer.write_table(table, row_group_size=config.row_group_rows)
    data = sink.getvalue()
    footer_bytes = int.from_bytes(memoryview(data)[-TAIL_BYTES:-4], "little")
    footer = memoryview(data)[-TAIL_BYTES - footer_bytes : -TAIL_BYTES]
    wanted = [schema.by_id[i] for i in config.stats_columns if i in schema.by_id]
    file = SegmentFile(
        data=data,
        footer_bytes=footer_bytes,
        footer_xxh64=codec.checksum(footer),
        column_stats=_column_stats(writer.writer.metadata, table, wanted, nan_columns),
        index_debt=planned if in_haste else {},
    )
    if not indexed:
        return file

    def finish() -> SegmentFile:
        parts = build() if begun is None else begun.result()
        index = index_file(parts, data, table.num_rows, config=config, plan=planned)
        return file if index is None else replace(file, index_pieces=index[0], index=index[1])

    return finish() if begun is None else replace(file, finish=finish)


def _index_plan(
    table: pa.Table, schema: Schema, config: Config, distinct: Mapping[str, int]
) -> KindsByColumn:
    """What to index; nothing in a file smaller than a row group, which is read in one go."""
    if table.num_rows < config.row_group_rows:
        return {}
    by_id = {c.id: distinct[c.physical_name] for c in schema.columns if c.physical_name in distinct}
    return policy.plan(schema, config, by_id)


def _with_shared_dictionaries(
    table: pa.Table, schema: Schema, planned: KindsByColumn, dictionaries: Sequence[str]
) -> pa.Table:
    """Text with few values, looked up once: Parquet and the indexes take the same dictionary."""
    for number, column in enumerate(schema.columns):
        if (
            column.type.name in _TEXTS
            and column.physical_name in dictionaries
            and _BY_VALUE.intersection(planned.get(column.id, ()))
        ):
            values = table.column(number).dictionary_encode()
            named = table.schema.field(number).with_type(values.type)
            table = table.set_column(number, named, values)
    return table


def _bloom_filters(
    table: pa.Table,
    schema: Schema,
    config: Config,
    planned: KindsByColumn,
    distinct: Mapping[str, int],
) -> dict[str, Any] | None:
    """Parquet's own filters, by which other engines find single values.

    Not for floats: engines hash the bits, and those of 0.0 and -0.0 differ. Not for two values,
    for which Parquet has none.
    """
    rows = min(table.num_rows, config.row_group_rows)
    return {
        schema.by_id[i].physical_name: {
            # A sample does not show all values.
            "ndv": min(rows, 2 * distinct.get(schema.by_id[i].physical_name, rows)),
            "fpp": _BLOOM_FALSE_POSITIVES,
        }
        for i, kinds in planned.items()
        if i > 0
        and policy.POINT_KINDS.intersection(kinds)
        and schema.by_id[i].type.domain is not Domain.FLOAT
        and schema.by_id[i].type.name != "bool"
    } or None


def _physical_table(
    rows: pa.Table,
    schema: Schema,
    offsets: np.ndarray[Any, Any] | None,
    seqs: np.ndarray[Any, Any] | None,
    timestamps: np.ndarray[Any, Any] | None,
) -> pa.Table:
    columns, physical = list(rows.columns), schema.physical_arrow
    if offsets is not None:
        columns.append(pa.chunked_array([number_array(offsets, pa.int32())]))
        physical = physical.append(pa.field(OFFSET_COLUMN, pa.int32(), nullable=False))
    if seqs is not None:
        columns.append(pa.chunked_array([int64_array(seqs)]))
        physical = physical.append(pa.field(SEQ_COLUMN, pa.int64(), nullable=False))
    if timestamps is not None:
        columns.append(pa.chunked_array([int64_array(timestamps)]))
        physical = physical.append(pa.field(TIME_COLUMN, pa.int64(), nullable=False))
    return pa.Table.from_arrays(columns, schema=physical)


def _compression(*, small: bool) -> dict[str, Any]:
    """Small files are compacted soon, so speed matters more than a third of their size."""
    if small:
        return {"compression": "snappy"}
    return {"compression": "zstd", "compression_level": 1}


def _columns_with_nan(table: pa.Table, schema: Schema) -> frozenset[str]:
    return frozenset(
        column.physical_name
        for column in schema.columns
        if column.type.domain is Domain.FLOAT
        and pc.any(pc.is_nan(table.column(column.physical_name))).as_py()
    )


def _columns_with_statistics(
    table: pa.Table, schema: Schema, without: frozenset[str]
) -> bool | list[str]:
    if not without and not any(_nests_floats(column.type) for column in schema.columns):
        return True
    # A list names leaves; nested columns then go without. Looking for NaN inside them would cost
    # more than their statistics are worth, and Spark prunes by the fields of a struct too.
    return [name for name in table.column_names if name not in without] or False


def _nests_floats(kind: ColumnType) -> bool:
    return any(
        child.type.domain is Domain.FLOAT or _nests_floats(child.type) for child in kind.children
    )


def _distinct_in_samples(
    table: pa.Table, schema: Schema, config: Config, *, small: bool
) -> dict[str, int]:
    """How many values a sample of each column holds, where they come again and again."""
    # Whoever reads single pages would have to decode the whole dictionary for each.
    many_rows = table.num_rows >= _MANY_ROWS and not config.zone_pages
    found = {}
    for column in schema.columns:
        name, kind = column.physical_name, column.type.name
        # In a small file only strings gain by a dictionary more than the look at them costs.
        if column.type.is_nested or kind == "bool" or (small and kind not in _TEXTS):
            continue
        is_float = column.type.domain is Domain.FLOAT
        share = _FLOAT_SHARE if is_float and many_rows else _DISTINCT_SHARE
        distinct = _repeated(table.column(name), share)
        if distinct is None and many_rows and kind in _TEXTS:
            distinct = _scattered(table.column(name).slice(0, config.row_group_rows))
        if distinct is not None:
            found[name] = distinct
    return found


def _encodings(
    table: pa.Table, schema: Schema, dictionaries: Mapping[str, int]
) -> tuple[list[str], dict[str, str]]:
    """Columns with dictionaries, and the encoding of those without."""
    encodings = {
        column.physical_name: "DELTA_BINARY_PACKED"
        for column in schema.columns
        if column.type.name in _DELTA_INTEGERS and column.physical_name not in dictionaries
    }
    for name in (OFFSET_COLUMN, SEQ_COLUMN, TIME_COLUMN):
        if name in table.column_names:
            encodings[name] = "DELTA_BINARY_PACKED"
    return list(dictionaries), encodings


def _repeated(values: pa.ChunkedArray, share: float) -> int | None:
    """The different values in a sample from the middle, if they are at most a share of it."""
    size = _FIRST_LOOK_ROWS if len(values) < _SMALL_FILE_ROWS else _SAMPLE_ROWS
    sample = values.slice(max(0, (len(values) - size) // 2), size)
    first_look = len(sample) > _FIRST_LOOK_ROWS and share == _DISTINCT_SHARE
    if first_look and _distinct(sample[:_FIRST_LOOK_ROWS]) == _FIRST_LOOK_ROWS:
        return None
    distinct = _distinct(sample)
    if distinct > max(1, share * len(sample)):
        return None
    unclear = distinct <= _FEW_DISTINCT or distinct > _DISTINCT_SHARE * len(sample)
    return None if not unclear and _is_clustered(sample, distinct) else distinct


def _scattered(values: pa.ChunkedArray) -> int | None:
    """About how many different values a row group holds, if each fills many of its rows.

    The sample comes from all over it: in neighbours, texts of a short time look like few.
    """
    rows = np.arange(0, len(values), max(1, len(values) // _SAMPLE_ROWS))
    sample = values.take(int64_array(rows))
    distinct, estimate = _distinct(sample), 0.0
    # So many draws from d values are expected to show d * (1 - exp(-draws / d)) of them.
    for _ in range(_ROUNDS):
        share = -math.expm1(-len(rows) / estimate) if estimate else 1.0
        estimate = distinct / share
        if estimate * _ROWS_PER_VALUE > len(values):
            return None
    return round(estimate)


def _is_clustered(sample: pa.ChunkedArray, distinct: int) -> bool:
    """Whether equal values are neighbours, as in the column that rows are sorted by.

    Then each value is in few places, and the compressor sees the repetition without help: the
    sample tells nothing of how many there are in all.
    """
    changes = pc.sum(pc.not_equal(sample[1:], sample[:-1])).as_py() or 0
    return bool(changes <= _CLUSTERED * distinct)


def _distinct(values: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(values, mode="all").as_py())


# --- stats -------------------------------------------------------------------------------------


def _column_stats(
    footer: pq.FileMetaData,
    table: pa.Table,
    columns: Sequence[Column],
    nan_columns: frozenset[str],
) -> dict[str, Any]:
    first = footer.row_group(0)
    leaves = {first.column(j).path_in_schema: j for j in range(footer.num_columns)}
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    out: dict[str, Any] = {}
    for column in columns:
        name = column.physical_name
        found: stats.ColumnStats | None
        if name in nan_columns:
            found = _stats_with_nan(table.column(name))
        else:
            found = _footer_stats(column, [group.column(leaves[name]) for group in groups])
        if found is not None:
            out[str(column.id)] = found.to_json(column.type)
    return out


def _footer_stats(column: Column, chunks: Sequence[Any]) -> stats.ColumnStats | None:
    parts: list[stats.ColumnStats | None] = []
    for chunk in chunks:
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        low = high = None
        exact = True
        if found.has_min_max:
            low = _domain_value(column, found.min_raw)
            high = _domain_value(column, found.max_raw)
            low, high, exact = stats.bounded(low, high)
        parts.append(stats.ColumnStats(low, high, found.null_count, exact=exact))
    return stats.merged(parts, [chunk.num_values for chunk in chunks])


def _domain_value(column: Column, raw: Any) -> Any:
    """A raw Parquet statistic in the column's stats domain."""
    kind = column.type.name
    if kind == "string":
        return raw.decode()
    if kind == "decimal":
        return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
    if kind == "uint32":
        # Parquet keeps unsigned integers in signed ones of the same width.
        return raw & 0xFFFFFFFF
    return int(raw) if kind == "bool" else raw


def _stats_with_nan(values: pa.ChunkedArray) -> stats.ColumnStats:
    numbers = np.concatenate(
        [chunk.drop_null().to_numpy(zero_copy_only=False) for chunk in values.chunks]
    )
    real = numbers[~np.isnan(numbers)]
    low, high = (float(real.min()), float(real.max())) if len(real) else (None, None)
    if low == 0.0:
        low = -0.0  # The two zeros are equal; a bound takes the one that is below and above both.
    if high == 0.0:
        high = 0.0
    return stats.ColumnStats(low, high, values.null_count, has_nan=True)
