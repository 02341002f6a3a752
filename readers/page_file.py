"""Single pages of a Parquet file as a small Parquet file of their own. Pure: bytes in, bytes out.

pyarrow reads whole column chunks and nothing less. So the pages that hold wanted rows are put
one behind the other, with their dictionary page in front, under a footer that knows of no others;
for pyarrow that is a file like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from strandline.readers import row_ranges
from strandline.readers.joined_file import Chunk, Group, Layout, encode, united, value_count
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.indexes.runs import sorted_once
from strandline.tableformat.page_table import page_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.readers.row_ranges import Int64s, Ranges
    from strandline.tableformat.page_table import PageColumn, PageTable

    Bytes = bytes | memoryview
    ReadBytes = Callable[[int, int], Bytes]
    """The bytes of the segment from a place on."""

SMALL_DICTIONARY_BYTES: Final = 64 * 1024
_TEXT_META: Final = b"\x15\x0c"
"""How the ColumnMetaData of a column of byte arrays begins."""


# --- which pages -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PageSet:
    """Pages of some columns that all hold the same rows."""

    table: PageTable
    columns: tuple[PageColumn, ...]
    groups: Int64s
    """Row groups with a wanted row, ascending."""
    rows: Ranges
    """The rows of all these pages."""
    blocks: tuple[_Block, ...]
    """The pages of the columns' leaves, in order."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def has_dictionary(self) -> bool:
        """Whether each row group needs dictionary pages of its own."""
        return any(block.has_dictionary for block in self.blocks)

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be equal for pages of several files to be put into one."""
        metas = [self.table.metas[leaf] for column in self.columns for leaf in column.leaves]
        elements = [(column.name, column.elements) for column in self.columns]
        return self.table.created_by, self.has_dictionary, tuple(elements), tuple(metas)

    @cached_property
    def group_rows(self) -> Int64s:
        """How many rows the pages hold in each row group."""
        before = row_ranges.counts_before(self.rows, self.table.group_starts)
        counts: Int64s = np.diff(before)[self.groups]
        return counts

    def byte_ranges(self) -> list[tuple[int, int]]:
        """What must be read for these pages: (start, length) in the segment."""
        return [found for block in self.blocks for found in block.byte_ranges()]

    def few_texts(self) -> list[str]:
        """Columns that are few distinct texts: far quicker to decode as such."""
        found = []
        for column in self.columns:
            leaf = column.leaves[0]
            if not column.is_nested and self.table.metas[leaf].startswith(_TEXT_META):
                sizes = self.table.dictionary_bytes[leaf, self.groups]
                if sizes.all() and (sizes <= SMALL_DICTIONARY_BYTES).all():
                    found.append(column.name)
        return found


def choose_pages(table: PageTable, columns: Sequence[PageColumn], wanted: Ranges) -> list[PageSet]:
    """The pages that hold wanted rows, together where they hold the same rows.

    The leaves of a nested column may be cut into pages at different rows. They are decoded
    together, so that such a column is read by whole row groups. Columns with dictionaries are
    apart: each dictionary needs a row group of its own, and the other columns none.
    """
    with_dictionary = table.with_dictionary
    by_layout: dict[tuple[int | None, bool], list[PageColumn]] = {}
    for column in columns:
        coded = any(with_dictionary[leaf] for leaf in column.leaves)
        by_layout.setdefault((column.layout, coded), []).append(column)
    return [
        _whole_groups(table, alike, wanted)
        if layout is None
        else _pages_of_layout(table, alike, layout, wanted)
        for (layout, _), alike in by_layout.items()
    ]


def _pages_of_layout(
    table: PageTable, columns: list[PageColumn], layout: int, wanted: Ranges
) -> PageSet:
    split = table.layouts[layout]
    pages = np.flatnonzero(row_ranges.touched(wanted, split.starts, split.ends))
    rows = row_ranges.joined(split.starts[pages], split.ends[pages])
    groups = sorted_once(split.groups[pages])  # numpy's `unique` loads its masked arrays
    leaves = [leaf for column in columns for leaf in column.leaves]
    block = _Block(table, leaves, pages, split.groups[pages], groups)
    return PageSet(table, tuple(columns), groups, rows, (block,))


def _whole_groups(table: PageTable, columns: list[PageColumn], wanted: Ranges) -> PageSet:
    starts = table.group_starts
    groups = np.flatnonzero(row_ranges.touched(wanted, starts[:-1], starts[1:]))
    rows = row_ranges.joined(starts[groups], starts[groups + 1])
    blocks = []
    for leaf in (leaf for column in columns for leaf in column.leaves):
        split = table.layouts[int(table.leaf_layout[leaf])]
        pages = np.flatnonzero(np.isin(split.groups, groups))
        blocks.append(_Block(table, [leaf], pages, split.groups[pages], groups))
    return PageSet(table, tuple(columns), groups, rows, tuple(blocks))


@dataclass(frozen=True, eq=False)
class _Block:
    """The same pages of some leaves; arrays have a row for each leaf."""

    table: PageTable
    leaves: list[int]
    pages: Int64s
    """Numbered within the layout that the leaves share."""
    page_groups: Int64s
    """The row group of each page."""
    groups: Int64s

    @cached_property
    def _at(self) -> Int64s:
        at: Int64s = self.table.leaf_pages[self.leaves][:, None] + self.pages
        return at

    @cached_property
    def page_sizes(self) -> Int64s:
        return self.table.page_bytes[self._at].astype(np.int64)

    @cached_property
    def page_checksums(self) -> list[list[int]]:
        found: list[list[int]] = self.table.page_checksums[self._at].tolist()
        return found

    @cached_property
    def run_edges(self) -> Int64s:
        """The first page of each run of neighbours in one row group."""
        neighbour = np.diff(self.pages) == 1
        return np.flatnonzero(np.append(True, ~neighbour | (np.diff(self.page_groups) != 0)))

    @cached_property
    def runs(self) -> tuple[Int64s, Int64s]:
        """Where each run begins, and its bytes."""
        starts: Int64s = self.table.page_offsets[self._at[:, self.run_edges]]
        return starts, np.add.reduceat(self.page_sizes, self.run_edges, axis=1)

    @cached_property
    def has_dictionary(self) -> bool:
        return any(self.table.with_dictionary[leaf] for leaf in self.leaves)

    @cached_property
    def dictionaries(self) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
        """By leaf and row group: where it begins, its bytes or 0, and its checksum."""
        at = np.array(self.leaves)[:, None], self.groups
        return (
            self.table.chunk_starts[at].tolist(),
            self.table.dictionary_bytes[at].tolist(),
            self.table.dictionary_checksums[at].tolist(),
        )

    def byte_ranges(self) -> list[tuple[int, int]]:
        starts, sizes = self.runs
        found = list(zip(starts.ravel().tolist(), sizes.ravel().tolist(), strict=True))
        if self.has_dictionary:
            for places, lengths, _ in zip(*self.dictionaries, strict=True):
                found += [(at, size) for at, size in zip(places, lengths, strict=True) if size]
        return found

    def read(self, read: ReadBytes) -> list[list[Chunk]]:
        """For each leaf its chunks, checked: one for each row group, or one if that will do."""
        starts, sizes = (found.tolist() for found in self.runs)
        page_sizes, checksums = self.page_sizes.tolist(), self.page_checksums
        edges = [*self.run_edges.tolist(), len(self.pages)]
        found = []
        for leaf in range(len(self.leaves)):
            runs = []
            for run, (start, size) in enumerate(zip(starts[leaf], sizes[leaf], strict=True)):
                data = read(start, size)
                pages = slice(edges[run], edges[run + 1])
                check_pages(data, page_sizes[leaf][pages], checksums[leaf][pages])
                runs.append(data)
            found.append(self._by_group(leaf, runs, read) if self.has_dictionary else [Chunk(runs)])
        return found

    def _by_group(self, leaf: int, runs: list[Bytes], read: ReadBytes) -> list[Chunk]:
        places, lengths, checksums = (facts[leaf] for facts in self.dictionaries)
        groups = self.page_groups[self.run_edges]
        edges = [*np.searchsorted(groups, self.groups).tolist(), len(runs)]
        chunks = []
        for group, (begin, end) in enumerate(pairwise(edges)):
            dictionary = None
            if lengths[group]:
                dictionary = read(places[group], lengths[group])
                check_pages(dictionary, [lengths[group]], [checksums[group]])
            chunks.append(Chunk(runs[begin:end], dictionary))
        return chunks


def check_pages(data: Bytes, sizes: list[int], checksums: list[int]) -> None:
    """Compare pages that lie one behind the other with their checksums."""
    at, view = 0, memoryview(data)
    for size, checksum in zip(sizes, checksums, strict=True):
        if page_checksum(view[at : at + size]) != checksum:
            raise CorruptTable("a page does not have the checksum that its page table gives")
        at += size


# --- the small file ----------------------------------------------------------------------------


def assemble(parts: Sequence[tuple[PageSet, ReadBytes]]) -> bytes:
    """The Parquet file of the chosen pages of one segment, or of several of one shape."""
    first = parts[0][0]
    groups = [group for chosen, read in parts for group in _groups(chosen, read)]
    if not first.has_dictionary:
        # Every row group costs the decoder more than a page does.
        groups = [united(groups)]
    return encode(_layout(first), groups)


def _layout(chosen: PageSet) -> Layout:
    leaves = (leaf for block in chosen.blocks for leaf in block.leaves)
    return Layout(
        chosen.table.created_by,
        [(column.elements, column.element_count) for column in chosen.columns],
        [chosen.table.metas[leaf] for leaf in leaves],
    )


def _groups(chosen: PageSet, read: ReadBytes) -> list[Group]:
    leaves = [leaf for block in chosen.blocks for leaf in block.read(read)]
    nested = [column.is_nested for column in chosen.columns for _ in column.leaves]
    leaves = [
        [_counted(chunk) for chunk in chunks] if is_nested else chunks
        for chunks, is_nested in zip(leaves, nested, strict=True)
    ]
    rows = chosen.group_rows.tolist() if chosen.has_dictionary else [row_ranges.count(chosen.rows)]
    return [Group(*found) for found in zip(rows, zip(*leaves, strict=True), strict=True)]


def _counted(chunk: Chunk) -> Chunk:
    """Where values may repeat, only the pages know how often."""
    return replace(chunk, values=sum(map(value_count, chunk.runs)))
