"""The pages of a Parquet file, found by reading their headers one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.tableformat.thrift import CompactReader


@dataclass(frozen=True)
class Page:
    """A page with its header."""

    start: int
    size: int
    values: int | None
    """In a data page; None: a dictionary."""


def pages_of(data: bytes) -> list[list[list[Page]]]:
    """For each row group and each leaf column, its pages."""
    footer = pq.read_metadata(pa.BufferReader(data))
    return [
        [_pages(data, footer.row_group(group).column(leaf)) for leaf in range(footer.num_columns)]
        for group in range(footer.num_row_groups)
    ]


def _pages(data: bytes, chunk: pq.ColumnChunkMetaData) -> list[Page]:
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end = start + chunk.total_compressed_size
    found = []
    while start < end:
        reader = CompactReader(data, start)
        header = reader.structure()
        size = reader.at + header[3] - start
        inner = header.get(5) or header.get(8)
        found.append(Page(start, size, None if inner is None else inner[1]))
        start += size
    return found


def rows_per_page(data: bytes) -> list[list[int]]:
    """For each column chunk, the number of values in each of its data pages."""
    return [
        [page.values for page in pages if page.values is not None]
        for group in pages_of(data)
        for pages in group
    ]
