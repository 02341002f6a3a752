"""Small splits of several segments, read together.

A lookup finds a few rows in each of many segments. What one split costs besides its bytes, a
request and the start of a decoder, many of them can share.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from strandline.readers import row_ranges, split_reader
from strandline.readers.flat_pages import FlatPages
from strandline.readers.sources import decode_together
from strandline.readers.sparse_file import SparseFile
from strandline.tableformat.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from strandline.readers.sources import PagePiece
    from strandline.readers.split_reader import SplitReader
    from strandline.tableformat.storage import Storage

MOST_SPLITS: Final = 32


def bundles(readers: Sequence[SplitReader]) -> Iterator[range]:
    """Runs of readers that are read together; about equally long, for threads to share."""
    begin = 0
    for is_small, run in groupby(readers, key=lambda reader: reader.is_small):
        end = begin + len(list(run))
        parts = -(-(end - begin) // MOST_SPLITS) if is_small else end - begin
        size = -(-(end - begin) // parts)
        yield from (range(at, min(at + size, end)) for at in range(begin, end, size))
        begin = end


def read_bundle(readers: Sequence[SplitReader]) -> list[pa.Table]:
    """The matching rows of each of some small splits of one table."""
    try:
        return _together(readers)
    except (StrandlineError, pa.ArrowException, OSError):
        # One of them is damaged or gone. Alone each finds another road, or says what is wrong.
        return [_alone(reader) for reader in readers]


def _together(readers: Sequence[SplitReader]) -> list[pa.Table]:
    at_once = _at_once(readers)
    if at_once is not None:
        return at_once
    pieces = [reader.small_piece() for reader in readers]
    fitting = [
        (reader, piece) for reader, piece in zip(readers, pieces, strict=True) if piece is not None
    ]
    stored = decode_together(_fetched(readers[0].storage, fitting))
    tables = [reader.logical(one) for (reader, _), one in zip(fitting, stored, strict=True)]
    found = iter(_matching([reader for reader, _ in fitting], tables))
    return [
        _alone(reader) if piece is None else next(found)
        for reader, piece in zip(readers, pieces, strict=True)
    ]


def _at_once(readers: Sequence[SplitReader]) -> list[pa.Table] | None:
    """The matching rows where all files store them alike, in flat pages; None: they do not."""
    first = readers[0]
    if not all(first.stores_like(reader) and reader.asks_like(first) for reader in readers):
        return None
    wanted = [reader.flat_pages() for reader in readers]
    flat = [one for one in wanted if one is not None]
    if len(flat) < len(readers) or any(one.shape != flat[0].shape for one in flat):
        return None
    pages = FlatPages(flat)
    if (pages.byte_counts > split_reader.ONE_STEP_BYTES).any():
        return None
    stored = pages.decode(first.storage.read_ranges(pages.requests()))
    columns = dict(zip(stored.column_names, stored.columns, strict=True))
    found, mask = first.matching(
        first.logical_of(columns, [*zip(readers, (one.rows for one in flat), strict=True)])
    )
    return [*_shared_out(found, mask, [row_ranges.count(one.rows) for one in flat])]


def _shared_out(
    found: pa.Table, mask: NDArray[np.bool_], counts: Sequence[int]
) -> Iterator[pa.Table]:
    """The matching rows of each reader, which had so many rows to look at."""
    hits = np.append(0, np.cumsum(mask)[np.cumsum(counts) - 1]).tolist()
    return (found.slice(at, until - at) for at, until in pairwise(hits))


def _matching(readers: Sequence[SplitReader], tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The matching rows of each reader; neighbours that ask alike are asked in one go."""
    begin = 0
    while begin < len(readers):
        first, schema = readers[begin], tables[begin].schema
        end = begin + 1
        while (
            end < len(readers)
            and tables[end].schema.equals(schema)
            and readers[end].asks_like(first)
        ):
            end += 1
        found, mask = first.matching(pa.concat_tables(tables[begin:end]))
        yield from _shared_out(found, mask, [table.num_rows for table in tables[begin:end]])
        begin = end


def _fetched(
    storage: Storage, fitting: Sequence[tuple[SplitReader, PagePiece]]
) -> list[tuple[PagePiece, SparseFile]]:
    """The pieces with the bytes that they look at; one call, so that requests run side by side."""
    files = [SparseFile(reader.entry.size_bytes) for reader, _ in fitting]
    wanted = [
        (file, reader.entry.path, start, length)
        for (reader, piece), file in zip(fitting, files, strict=True)
        for start, length in piece.byte_ranges
    ]
    blobs = storage.read_ranges([(path, start, length) for _, path, start, length in wanted])
    for (file, _, start, _), data in zip(wanted, blobs, strict=True):
        file.fill(start, data)
    return [(piece, file) for (_, piece), file in zip(fitting, files, strict=True)]


def _alone(reader: SplitReader) -> pa.Table:
    return pa.concat_tables([reader.read(unit) for unit in reader.open()])
