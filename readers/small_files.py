"""Whole small files, many of them together: what compaction reads.

A file of a thousand rows is decoded in less time than it takes to plan its reading, to start a
decoder and to find out what its columns mean. So files that store their rows alike are fetched with
one call, decoded together, and become columns of the table together. Every check is made all the
same; where one fails, the files are read again singly, which says which of them is damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.readers import footers, row_ranges, whole_files
from strandline.readers.arrow_arrays import int64_array
from strandline.readers.logical_columns import LogicalColumns, numbers_of_files
from strandline.readers.read_ahead import ReadAhead
from strandline.readers.split_reader import SplitReader
from strandline.readers.splits import Split
from strandline.tableformat.errors import CorruptTable, StrandlineError
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS, SEQ_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

SMALL_FILE_BYTES: Final = 2 * 2**20
MOST_FILES: Final = 64
_MOST_BYTES: Final = 8 * 2**20
"""Of files that are read together: enough to be fast, and soon done where a rate is to be kept."""


def in_groups(
    entries: Sequence[SegmentEntry], most_files: int = MOST_FILES
) -> Iterator[list[SegmentEntry]]:
    """Neighbours that `read_together` reads well together; a large file is on its own."""
    group: list[SegmentEntry] = []
    size = 0
    for entry in entries:
        full = len(group) >= most_files or size + entry.size_bytes > _MOST_BYTES
        if group and (full or _layout(entry) != _layout(group[0])):
            yield group
            group, size = [], 0
        group.append(entry)
        size += entry.size_bytes
    if group:
        yield group


def read_together(
    storage: Storage,
    manifest: Manifest,
    entries: Sequence[SegmentEntry],
    column_ids: Collection[int],
) -> pa.Table:
    """All rows of some segments, in their order; of hidden columns not the window's start."""
    if all(_is_small(entry) for entry in entries):
        try:
            return _at_once(storage, manifest, entries, column_ids)
        except (StrandlineError, pa.ArrowException, OSError):
            pass  # which file it is, and what is wrong with it, the other road tells
    readers = [SplitReader(storage, manifest, Split(entry), column_ids) for entry in entries]
    if storage.is_local and all(_is_small(entry) for entry in entries):
        # Nothing to wait for: handing small files to threads takes longer than reading them.
        return pa.concat_tables([r.read(unit) for r in readers for unit in r.open()])
    return pa.concat_tables([rows for _, rows in ReadAhead(readers, is_local=storage.is_local)])


def _is_small(entry: SegmentEntry) -> bool:
    return entry.size_bytes <= SMALL_FILE_BYTES


def _layout(entry: SegmentEntry) -> tuple[Any, ...]:
    """What must be equal for files to be decoded alike."""
    return _is_small(entry), entry.schema_id, entry.rows_are, entry.ts_stored, entry.tombstones


def _at_once(
    storage: Storage,
    manifest: Manifest,
    entries: Sequence[SegmentEntry],
    column_ids: Collection[int],
) -> pa.Table:
    # Entries of one layout: for columns it is the same which of them is asked.
    logical = LogicalColumns(manifest, entries[0])
    blobs = storage.read_ranges([(entry.path, 0, entry.size_bytes) for entry in entries])
    files = [_checked(storage, e, data) for e, data in zip(entries, blobs, strict=True)]
    # Files with other columns than the first one's cannot be joined, and are read singly.
    joined = pa.concat_tables(
        [*whole_files.decode(files, lambda names: logical.physical_names(column_ids, names))]
    )
    stored = dict(zip(joined.column_names, joined.columns, strict=True))
    rows = row_ranges.all_rows(joined.num_rows)
    table = logical.table(stored, frozenset(column_ids) - {SEQ_ID}, rows)
    if SEQ_ID not in column_ids:
        return table
    seqs = int64_array(numbers_of_files(entries, stored))
    table = table.append_column(HIDDEN_COLUMNS["_seq"].name, seqs)
    return table.select(logical.names_of(column_ids))


def _checked(storage: Storage, entry: SegmentEntry, data: bytes) -> whole_files.WholeFile:
    """The file, once its footer is what the manifest says; the bytes compared are those parsed."""
    start, _ = footers.footer_range(entry)
    footers.check_footer(storage, entry, memoryview(data)[start:])
    file = whole_files.WholeFile(data, entry.footer_bytes)
    if file.row_count != entry.row_count:
        raise CorruptTable(f"{entry.path}: other rows were read than there are")
    return file
