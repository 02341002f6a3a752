"""Whether the index file of a segment is there and is what its entry says it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat import codec, page_table
from strandline.tableformat.errors import CorruptTable, ObjectMissing
from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.postings import POSTINGS
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.types import ColumnType

if TYPE_CHECKING:
    from strandline.tableformat.indexes.catalog import Blob
    from strandline.tableformat.indexes.reference import IndexRef
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage


def check_index(
    storage: Storage, schema: Schema, entry: SegmentEntry, ref: IndexRef, *, deep: bool
) -> None:
    """Refuse an index file that is missing, or differs from its reference.

    `deep` opens every blob. Scans do without a damaged index, so this is the place to learn of it.
    """
    path = path_of(entry.path)
    try:
        size = storage.size(path)
        if size != ref.size_bytes:
            raise CorruptTable(f"it has {size} bytes, and the manifest says {ref.size_bytes}")
        length = size if deep else ref.catalog_bytes
        (data,) = storage.read_ranges([(path, size - length, length)])
    except ObjectMissing:
        raise CorruptTable("the index file is missing; scans do without it") from None
    catalog = decode_catalog(data[-ref.catalog_bytes :], ref, path)
    layout = ZoneLayout(catalog.row_count, catalog.zone_rows)
    if catalog.row_count != entry.row_count:
        raise CorruptTable(f"it speaks of {catalog.row_count} rows, not {entry.row_count}")
    if deep:
        for blob in catalog.blobs:
            _check_blob(blob, data[blob.offset : blob.offset + blob.size], layout, schema, entry)
            blocks = catalog.find(blob.column, postings_blocks.KIND)
            if blob.kind == POSTINGS and blocks is not None:
                said = data[blocks.offset : blocks.offset + blocks.size]
                if postings_blocks.build(data[blob.offset : blob.offset + blob.size]) != said:
                    raise CorruptTable(
                        f"{blocks.kind} of column {blob.column} is not of the postings beside it"
                    )


def _check_blob(
    blob: Blob, data: bytes, layout: ZoneLayout, schema: Schema, entry: SegmentEntry
) -> None:
    where = f"{blob.kind} of column {blob.column}"
    if codec.checksum(data) != blob.xxh64:
        raise CorruptTable(f"{where} does not have its checksum")
    if blob.kind == PAGES:
        page_table.open(data, row_count=entry.row_count, size_bytes=entry.size_bytes)
        return
    column = schema.by_id.get(blob.column)
    kind = ColumnType("int64") if blob.column == TS_ID else None if column is None else column.type
    if kind is not None and blob.kind in KINDS:
        KINDS[blob.kind].open(data, blob.params, layout, kind)
