"""Whether what metadata and indexes say of a segment is true of its rows.

Pruning believes both: a bound that is too narrow, or an index that rules out a zone with a wanted
row, loses rows without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow.compute as pc

from strandline.tableformat.binding import bind
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.expressions import col
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.planning import SummaryStats
from strandline.tableformat.pruning import may_match

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.reference import IndexRef
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

_SAMPLE: Final = 32
"""Values of each column that are looked for as a scan would."""


def check_stats(schema: Schema, entry: SegmentEntry, rows: pa.Table) -> None:
    """Refuse stats that would let a scan skip a row of the segment."""
    for column in schema.columns:
        stats = entry.stats_of(column)
        if stats is None:
            continue
        values = rows.column(column.name)
        if stats.null_count is not None and stats.null_count != values.null_count:
            raise CorruptTable(
                f"column {column.name!r} holds {values.null_count} nulls; its stats say "
                f"{stats.null_count}"
            )
        source = SummaryStats([entry], schema, [entry.window])
        for _, leaf in _leaves(column, values, schema, _extremes(values)):
            if not may_match(leaf, source)[0]:
                raise CorruptTable(f"the stats of column {column.name!r} rule out a row it holds")


def check_index_rows(
    storage: Storage, schema: Schema, entry: SegmentEntry, ref: IndexRef, rows: pa.Table
) -> None:
    """Refuse an index that rules out a zone in which a sampled value stands."""
    data = storage.read(path_of(entry.path))
    catalog = decode_catalog(data[-ref.catalog_bytes :], ref, entry.path)
    layout = ZoneLayout(catalog.row_count, catalog.zone_rows)
    by_id = {**schema.by_id, **{column.id: column for column in HIDDEN_COLUMNS.values()}}
    for blob in catalog.blobs:
        column = by_id.get(blob.column)
        if column is None or blob.kind not in KINDS or column.type.domain is None:
            continue
        blob_data = data[blob.offset : blob.offset + blob.size]
        index = KINDS[blob.kind].open(blob_data, blob.params, layout, column.type)
        values = rows.column(column.name)
        sample = np.unique(np.linspace(0, len(values) - 1, _SAMPLE).astype(np.int64))
        for row, leaf in _leaves(column, values, schema, sample):
            zones = index.may_match(leaf)
            if zones is not None and not zones[layout.zone_of_row[row]]:
                raise CorruptTable(
                    f"{blob.kind} of column {column.name!r} rules out a row that it holds"
                )


def _extremes(values: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """Where the least and the greatest value stand, and some others."""
    some = np.linspace(0, len(values) - 1, _SAMPLE).astype(np.int64)
    order = pc.array_sort_indices(values.combine_chunks())
    last = max(0, len(values) - values.null_count - 1)
    return np.unique([*some.tolist(), order[0].as_py(), order[last].as_py()])


def _leaves(
    column: Column, values: pa.ChunkedArray, schema: Schema, at: np.ndarray[Any, Any]
) -> list[tuple[int, Leaf]]:
    """Questions for single values that rows of the segment answer with yes."""
    found: list[tuple[int, Leaf]] = []
    for row in at.tolist():
        try:
            value = values[row].as_py()
            # NaN differs from itself.
            if value is not None and value == value:  # noqa: PLR0124
                found.append((row, cast("Leaf", bind(col(column.name) == value, schema))))
        except (InvalidInput, ValueError, OverflowError):
            # A value that Python or filters cannot name, such as a year beyond 9999.
            continue
    return found
