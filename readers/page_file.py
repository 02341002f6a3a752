"""Single pages of a Parquet file as a small Parquet file of their own. Pure: bytes in, bytes out.

pyarrow reads whole column chunks and nothing less. So the pages that hold wanted rows are put
one behind the other, with their dictionary page in front, under a footer that knows of no others;
for pyarrow that is a file like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from strandline.readers import row_ranges
from strandline.tableformat import thrift
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.indexes.runs import sorted_once
from strandline.tableformat.page_table import page_checksum
from strandline.tableformat.parquet_footer import MAGIC
from strandline.tableformat.thrift import CompactReader, binary, list_of, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from strandline.readers.row_ranges import Int64s, Ranges
    from strandline.tableformat.page_table import PageColumn, PageTable

    Bytes = bytes | memoryview
    ReadBytes = Callable[[int, int], Bytes]
    """The bytes of the segment from a place on."""

SMALL_DICTIONARY_BYTES: Final = 64 * 1024
_TEXT_META: Final = b"\x15\x0c"
"""How the ColumnMetaData of a column of byte arrays begins."""
_COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2 = 3, 5, 8
"""Fields of a page header."""


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

    def read(self, read: ReadBytes) -> list[list[_Chunk]]:
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
                _check(data, page_sizes[leaf][pages], checksums[leaf][pages])
                runs.append(data)
            found.append(
                self._by_group(leaf, runs, read) if self.has_dictionary else [_Chunk(runs)]
            )
        return found

    def _by_group(self, leaf: int, runs: list[Bytes], read: ReadBytes) -> list[_Chunk]:
        places, lengths, checksums = (facts[leaf] for facts in self.dictionaries)
        groups = self.page_groups[self.run_edges]
        edges = [*np.searchsorted(groups, self.groups).tolist(), len(runs)]
        chunks = []
        for group, (begin, end) in enumerate(pairwise(edges)):
            dictionary = None
            if lengths[group]:
                dictionary = read(places[group], lengths[group])
                _check(dictionary, [lengths[group]], [checksums[group]])
            chunks.append(_Chunk(runs[begin:end], dictionary))
        return chunks


def _check(data: Bytes, sizes: list[int], checksums: list[int]) -> None:
    """Compare pages that lie one behind the other with their checksums."""
    at = 0
    for size, checksum in zip(sizes, checksums, strict=True):
        if page_checksum(data[at : at + size]) != checksum:
            raise CorruptTable("a page does not have the checksum that its page table gives")
        at += size


# --- the small file ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A leaf column in one row group of the small file."""

    runs: list[Bytes]
    """Its data pages."""
    dictionary: Bytes | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group of the small file."""

    rows: int
    chunks: Sequence[_Chunk]


def assemble(parts: Sequence[tuple[PageSet, ReadBytes]]) -> bytes:
    """The Parquet file of the chosen pages of one segment, or of several of one shape."""
    first = parts[0][0]
    groups = [group for chosen, read in parts for group in _groups(chosen, read)]
    if not first.has_dictionary:
        # Every row group costs the decoder more than a page does.
        groups = [_united(groups)]
    content: list[Bytes] = [MAGIC]
    for group in groups:
        for chunk in group.chunks:
            if chunk.dictionary is not None:
                content.append(chunk.dictionary)
            content += chunk.runs
    footer = _footer(first, groups)
    return b"".join([*content, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _groups(chosen: PageSet, read: ReadBytes) -> list[_Group]:
    leaves = [leaf for block in chosen.blocks for leaf in block.read(read)]
    rows = chosen.group_rows.tolist() if chosen.has_dictionary else [row_ranges.count(chosen.rows)]
    return [_Group(*found) for found in zip(rows, zip(*leaves, strict=True), strict=True)]


def _united(groups: Sequence[_Group]) -> _Group:
    by_leaf = zip(*(group.chunks for group in groups), strict=True)
    return _Group(
        sum(group.rows for group in groups),
        [_Chunk([run for chunk in chunks for run in chunk.runs]) for chunks in by_leaf],
    )


def value_count(pages: Bytes) -> int:
    """How many values data pages hold that lie one behind the other."""
    count, reader = 0, CompactReader(pages)
    while reader.at < len(pages):
        header = reader.structure()
        inner = header.get(_DATA_PAGE, header.get(_DATA_PAGE_V2))
        size, values = header.get(_COMPRESSED_SIZE), inner.get(1) if isinstance(inner, dict) else 0
        if type(size) is not int or type(values) is not int or min(size, values) < 0:
            raise CorruptTable("a data page has no header of a data page")
        count += values
        reader.at += size
    return count


# --- its footer --------------------------------------------------------------------------------

_NUMBER_BYTES: Final = 5
"""Every number of a chunk takes so many bytes; Thrift allows for leading zeros."""
_NUMBER_LIMIT: Final = 1 << (7 * _NUMBER_BYTES - 1)
_FIELD_HEADS: Final = np.array([0x16, 0x16, 0x16, 0x26, 0x26], np.uint8)
"""Fields 5, 6, 7, 9 and 11 of a ColumnMetaData: number of values, uncompressed and compressed
size, place of the data pages and of the dictionary page."""
_WITH_DICTIONARY: Final = len(_FIELD_HEADS) * (1 + _NUMBER_BYTES)
_WITHOUT: Final = _WITH_DICTIONARY - (1 + _NUMBER_BYTES)


def _footer(chosen: PageSet, groups: Sequence[_Group]) -> bytes:
    """A FileMetaData: version, schema, rows, row groups, and who wrote the pages."""
    columns = chosen.columns
    root = b"\x48" + binary(b"schema") + b"\x15" + number(len(columns)) + b"\x00"
    elements = 1 + sum(column.element_count for column in columns)
    head = list_of(thrift.STRUCT, [b""] * elements)
    return b"".join(
        [
            b"\x15\x04\x19",
            head,
            root,
            *(column.elements for column in columns),
            b"\x16",
            number(sum(group.rows for group in groups)),
            b"\x19",
            list_of(thrift.STRUCT, _group_footers(chosen, groups)),
            b"\x28",
            binary(chosen.table.created_by),
            b"\x00",
        ]
    )


def _group_footers(chosen: PageSet, groups: Sequence[_Group]) -> list[bytes]:
    """RowGroup structures: chunks, bytes, rows."""
    metas = [chosen.table.metas[leaf] for block in chosen.blocks for leaf in block.leaves]
    nested = [column.is_nested for column in chosen.columns for _ in column.leaves]
    dictionaries = np.array(
        [[len(c.dictionary or b"") for c in g.chunks] for g in groups], np.int64
    )
    sizes = dictionaries + [[sum(map(len, c.runs)) for c in g.chunks] for g in groups]
    # Where values may repeat, only the pages know how often.
    counts = np.array(
        [
            [
                sum(map(value_count, chunk.runs)) if is_nested else group.rows
                for chunk, is_nested in zip(group.chunks, nested, strict=True)
            ]
            for group in groups
        ],
        np.int64,
    )
    ends = len(MAGIC) + np.cumsum(sizes).reshape(sizes.shape)
    begins = ends - sizes
    if ends[-1, -1] >= _NUMBER_LIMIT or counts.max() >= _NUMBER_LIMIT:
        raise CorruptTable("pages of one split take more bytes than a file may have")
    numbers = np.stack([counts, sizes, sizes, begins + dictionaries, begins], axis=2)
    tails = _numbers(numbers).reshape(len(groups), len(metas), -1)
    footers = []
    for group, end, tail_of in zip(groups, ends[:, -1].tolist(), tails, strict=True):
        chunks = [
            # A ColumnChunk: field 2 (0: unused), then field 3, its ColumnMetaData.
            b"\x26\x00\x1c"
            + meta
            + tail[: _WITHOUT if chunk.dictionary is None else _WITH_DICTIONARY]
            + b"\0\0"
            for meta, tail, chunk in zip(metas, map(bytes, tail_of), group.chunks, strict=True)
        ]
        footers.append(
            b"\x19"
            + list_of(thrift.STRUCT, chunks)
            + b"\x16"
            + number(end)
            + b"\x16"
            + number(group.rows)
            + b"\x00"
        )
    return footers


def _numbers(values: Int64s) -> NDArray[np.uint8]:
    """The fields of chunks, each as its head and a varint of fixed length."""
    shifts = np.arange(0, 7 * _NUMBER_BYTES, 7)
    groups = (values[..., None] << 1) >> shifts & 0x7F
    groups[..., :-1] |= 0x80
    heads = np.broadcast_to(_FIELD_HEADS, values.shape)[..., None]
    return np.concatenate([heads, groups.astype(np.uint8)], axis=-1)
