"""Pages of flat columns of many segments, chosen, checked and decoded as if they were of one.

A lookup finds a page or two in each of many segments. Looked at one by one these cost more than
their decoding does, so all that can be said of all pages at once is said once: by numpy, and in one
file of one row group. Columns that are nested or have dictionaries take the longer way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.readers import row_ranges
from strandline.readers.joined_file import Chunk, Group, Layout, encode
from strandline.readers.page_file import check_pages
from strandline.readers.sources import check_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.readers.row_ranges import Int64s, Ranges
    from strandline.tableformat.page_table import Layout as PageLayout
    from strandline.tableformat.page_table import PageColumn, PageTable


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of some columns of one segment."""

    path: str
    table: PageTable
    columns: tuple[PageColumn, ...]
    rows: Ranges

    @property
    def is_flat(self) -> bool:
        """Whether its pages can be put one behind the other: not nested, no dictionaries."""
        coded, layout = self.table.with_dictionary, self.columns[0].layout
        return layout is not None and all(
            not column.is_nested and column.layout == layout and not coded[column.leaves[0]]
            for column in self.columns
        )

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be equal for pages of several segments to be decoded as one."""
        metas = self.table.metas
        return (
            self.table.created_by,
            *[(column.elements, metas[column.leaves[0]]) for column in self.columns],
        )


class FlatPages:
    """The pages that hold wanted rows of some segments of one shape. Arrays: leaf by page."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        facts = [_pages_of(one) for one in wanted]
        self.page_counts = [len(found.pages) for found in facts]
        """Pages of each segment, the same for all its columns."""
        self._offsets = np.concatenate([found.offsets for found in facts], axis=1)
        self._sizes = np.concatenate([found.sizes for found in facts], axis=1)
        self._checksums = np.concatenate([found.checksums for found in facts], axis=1)
        self._facts = facts
        new = np.concatenate([found.begins_run for found in facts])
        self._edges = np.flatnonzero(new)

    @property
    def byte_counts(self) -> Int64s:
        """What must be read of each segment."""
        ends = np.cumsum(self.page_counts)
        sums = np.append(0, np.cumsum(self._sizes.sum(axis=0)))
        found: Int64s = np.diff(sums[ends], prepend=0)
        return found

    def requests(self) -> list[tuple[str, int, int]]:
        """What must be read: runs of pages, one column after the other."""
        of_page = np.repeat(np.arange(len(self._wanted)), self.page_counts)
        paths = [self._wanted[number].path for number in of_page[self._edges].tolist()]
        starts = self._offsets[:, self._edges].tolist()
        sizes = np.add.reduceat(self._sizes, self._edges, axis=1).tolist()
        return [
            found
            for starts_of, sizes_of in zip(starts, sizes, strict=True)
            for found in zip(paths, starts_of, sizes_of, strict=True)
        ]

    def decode(self, blobs: Sequence[bytes]) -> pa.Table:
        """The wanted rows of all segments, one after the other, from what was asked for."""
        runs = len(self._edges)
        bounds = [*self._edges.tolist(), self._sizes.shape[1]]
        for leaf in range(len(self._sizes)):
            sizes, checksums = self._sizes[leaf].tolist(), self._checksums[leaf].tolist()
            for data, (first, end) in zip(
                blobs[leaf * runs : (leaf + 1) * runs], pairwise(bounds), strict=True
            ):
                check_pages(data, sizes[first:end], checksums[first:end])
        first_one = self._wanted[0]
        layout = Layout(
            first_one.table.created_by,
            [(column.elements, column.element_count) for column in first_one.columns],
            [first_one.table.metas[column.leaves[0]] for column in first_one.columns],
        )
        count = sum(found.row_count for found in self._facts)
        leaves = range(len(self._sizes))
        chunks = [Chunk(list(blobs[leaf * runs : (leaf + 1) * runs])) for leaf in leaves]
        parquet = pq.ParquetFile(
            pa.BufferReader(encode(layout, [Group(count, chunks)])),
            pre_buffer=False,
            page_checksum_verification=True,
        )
        table = parquet.read(use_threads=False)
        check_read(table, [column.name for column in first_one.columns], count)
        return self._cut(table)

    def _cut(self, table: pa.Table) -> pa.Table:
        """Only the wanted rows of the pages."""
        wanted = [row_ranges.count(one.rows) for one in self._wanted]
        # The pages hold all wanted rows: if they hold no more of them, they hold no others.
        if all(n == found.row_count for n, found in zip(wanted, self._facts, strict=True)):
            return table
        parts, at = [], 0
        for one, found in zip(self._wanted, self._facts, strict=True):
            part = table.slice(at, found.row_count)
            parts.append(row_ranges.cut(part, found.rows, one.rows))
            at += found.row_count
        return pa.concat_tables(parts)


@dataclass(frozen=True, slots=True)
class _Pages:
    pages: Int64s
    offsets: Int64s
    sizes: Int64s
    checksums: Int64s
    starts: Int64s
    """First row of each page."""
    ends: Int64s
    row_count: int
    begins_run: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Where a page does not follow the one before it in the file."""

    @property
    def rows(self) -> Ranges:
        """The rows of these pages."""
        return row_ranges.joined(self.starts, self.ends)


def _pages_of(one: Wanted) -> _Pages:
    table, layout = one.table, one.columns[0].layout
    assert layout is not None
    split = table.layouts[layout]
    pages = _touched(one.rows, split)
    leaves = [column.leaves[0] for column in one.columns]
    at = table.leaf_pages[leaves][:, None] + pages
    groups, starts, ends = split.groups[pages], split.starts[pages], split.ends[pages]
    begins = np.ones(len(pages), np.bool_)
    begins[1:] = (pages[1:] != pages[:-1] + 1) | (groups[1:] != groups[:-1])
    return _Pages(
        pages,
        table.page_offsets[at],
        table.page_bytes[at].astype(np.int64),
        table.page_checksums[at].astype(np.int64),
        starts,
        ends,
        int((ends - starts).sum()),
        begins,
    )


def _touched(rows: Ranges, split: PageLayout) -> Int64s:
    """The pages that hold a row of the ranges."""
    first = np.searchsorted(split.starts, rows[:, 0], side="right") - 1
    last = np.searchsorted(split.starts, rows[:, 1] - 1, side="right") - 1
    if (first == last).all() and (first[1:] > first[:-1]).all():
        return first
    return np.flatnonzero(row_ranges.touched(rows, split.starts, split.ends))
