"""The index file of a segment: what the plan names, from its rows and from their encoded pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.readers.arrow_arrays import int64_array
from strandline.tableformat import page_table
from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.indexes.catalog import Part, encode_index
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.membership import Membership
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.postings import POSTINGS
from strandline.tableformat.indexes.reference import SEGMENT
from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
from strandline.tableformat.types import ColumnType

if TYPE_CHECKING:
    import numpy as np

    from strandline.tableformat.config import Config
    from strandline.tableformat.indexes.contract import Built
    from strandline.tableformat.indexes.reference import IndexRef, KindsByColumn
    from strandline.tableformat.schema import Schema


def index_columns(
    table: pa.Table,
    ts_ms: np.ndarray[Any, Any],
    *,
    schema: Schema,
    config: Config,
    plan: KindsByColumn,
    smallest_filters: bool = False,
) -> list[Part]:
    """What the index file says of columns; this may be built while the rows are encoded.

    `table` has the physical names, and dictionaries where the encoder has made them.
    `smallest_filters`: take longer over them.
    """
    layout = ZoneLayout(table.num_rows, config.zone_rows)
    parts: list[Part] = []
    for column_id, planned in plan.items():
        if column_id == SEGMENT:
            continue
        column = _column(column_id, table, ts_ms, layout, schema=schema, config=config)
        for kind in planned:
            built = _build(kind, column, smallest_filters=smallest_filters)
            if built is not None:
                parts.append(Part(column_id, kind, built.data, built.params))
                if kind == POSTINGS and len(built.data) >= postings_blocks.LEAST_BYTES:
                    blocks = postings_blocks.build(built.data)
                    parts.append(Part(column_id, postings_blocks.KIND, blocks, {}))
    return parts


def index_file(
    parts: list[Part], data: pa.Buffer, row_count: int, *, config: Config, plan: KindsByColumn
) -> tuple[list[bytes], IndexRef] | None:
    """The pieces of the index file and its reference; None if no planned kind could be built.

    `parts`: those of the columns; `data`: the Parquet file.
    """
    if PAGES in plan.get(SEGMENT, ()):
        pages = page_table.build(data)
        if pages is not None:
            parts = [Part(SEGMENT, PAGES, pages, {}), *parts]
    return encode_index(parts, row_count, config.zone_rows) if parts else None


def _build(kind: str, column: ColumnZones, *, smallest_filters: bool) -> Built | None:
    maker = KINDS.get(kind)
    if maker is None:
        return None
    if smallest_filters and isinstance(maker, Membership):
        # For some sets no seed is found; the other filter cannot fail.
        small = maker.build(column, "xor8")
        if small is not None:
            return small
    return maker.build(column)


def _column(
    column_id: int,
    table: pa.Table,
    ts_ms: np.ndarray[Any, Any],
    layout: ZoneLayout,
    *,
    schema: Schema,
    config: Config,
) -> ColumnZones:
    if column_id == TS_ID:
        times = pa.chunked_array([int64_array(ts_ms)])
        return ColumnZones(times, ColumnType("int64"), layout, time_unit="ms")
    column = schema.by_id[column_id]
    values = table.column(column.physical_name)
    # A time column of integers counts milliseconds; other types say what they count.
    is_ms = column_id == config.time_column and column.type.name == "int64"
    return ColumnZones(
        values,
        column.type,
        layout,
        time_unit="ms" if is_ms else None,
        encoded=values if pa.types.is_dictionary(values.type) else None,
    )
