"""The page table of a segment: where each Parquet page is, which rows it holds, and its checksum.

With it a reader fetches single pages, without the file's footer, and still believes no byte
unchecked. It is the `pages` blob of an index file, to the byte as SPEC.md says: a header of
counts, then flat little-endian arrays, then the parts of the footer that decoding needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from strandline.tableformat import parquet_footer, thrift
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.parquet_footer import Locations

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from strandline.tableformat.parquet_footer import Chunk, Footer

    U32s = NDArray[np.uint32]
    Int64s = NDArray[np.int64]

KIND: Final = "pages"
VERSION: Final = 1
_COUNTS: Final = 8
_MAX_COUNT: Final = 2**28
"""No array may claim more elements; the blob's length bounds them anyway."""
_U32: Final = np.dtype("<u4")
_U64: Final = np.dtype("<u8")


def page_checksum(page: bytes | memoryview) -> int:
    """The lower 32 bits of a page's XXH64, header included."""
    return int(xxhash.xxh64_intdigest(page)) & 0xFFFFFFFF


# --- building ----------------------------------------------------------------------------------


def build(data: pa.Buffer | bytes | memoryview) -> bytes | None:
    """The page table of an encoded file; None where the file keeps no page index.

    None too if its pages do not lie one behind the other, as every writer we know puts them: a
    table that says less than the truth would be worse than none.
    """
    # Of pyarrow's buffers a view has signed bytes, in which long numbers come out wrong.
    view = memoryview(data).cast("B")
    footer = parquet_footer.footer_of(view)
    # Leaf by leaf: a scan wants the pages of few columns, and finds them side by side.
    chunks = [group[leaf] for leaf in range(footer.leaf_count) for group in footer.groups]
    indexes = [chunk.offset_index for chunk in chunks if chunk.offset_index is not None]
    if not chunks or len(indexes) < len(chunks) or not _same_everywhere(footer):
        return None
    locations = parquet_footer.page_locations(view, indexes)
    begins, dictionary_bytes = _chunk_starts(chunks)
    if not _contiguous(chunks, locations):
        return None
    return _encode(footer, _Pages(view, begins, dictionary_bytes, _by_rows(locations)))


def _same_everywhere(footer: Footer) -> bool:
    """Whether a column has one path, type and codec in all row groups."""
    return all(
        (chunk.path, chunk.physical_type, chunk.codec)
        == (first.path, first.physical_type, first.codec)
        for group in footer.groups[1:]
        for chunk, first in zip(group, footer.groups[0], strict=True)
    )


def _chunk_starts(chunks: Sequence[Chunk]) -> tuple[Int64s, Int64s]:
    """Where each chunk begins, and the bytes of its dictionary page."""
    data = np.array([chunk.data_offset for chunk in chunks], np.int64)
    begins = np.array(
        [
            chunk.data_offset if chunk.dictionary_offset is None else chunk.dictionary_offset
            for chunk in chunks
        ],
        np.int64,
    )
    return begins, data - begins


def _contiguous(chunks: Sequence[Chunk], locations: Locations) -> bool:
    """Whether dictionary and pages of every chunk fill its bytes without a gap, rows ascending."""
    counts = locations.counts
    if not counts.all():
        return False
    lasts = np.cumsum(counts) - 1
    firsts = lasts - counts + 1
    begins, dictionary_bytes = _chunk_starts(chunks)
    ends = locations.offsets + locations.sizes
    inner = np.ones(len(ends), np.bool_)
    inner[lasts] = False
    sizes = np.array([chunk.size_bytes for chunk in chunks], np.int64)
    return bool(
        (dictionary_bytes >= 0).all()
        and (locations.offsets[firsts] == begins + dictionary_bytes).all()
        and (ends[lasts] == begins + sizes).all()
        and (ends[:-1] == locations.offsets[1:])[inner[:-1]].all()
        and (locations.first_rows[firsts] == 0).all()
        and (np.diff(locations.first_rows) >= 0)[inner[:-1]].all()
    )


def _by_rows(locations: Locations) -> Locations:
    """Pages that begin at the same row as one: a writer may leave an empty page before another."""
    chunks = np.repeat(np.arange(len(locations.counts)), locations.counts)
    rows = locations.first_rows
    new = np.append(True, (rows[1:] != rows[:-1]) | (chunks[1:] != chunks[:-1]))
    if new.all():
        return locations
    starts = np.flatnonzero(new)
    return Locations(
        counts=np.bincount(chunks[starts], minlength=len(locations.counts)),
        offsets=locations.offsets[starts],
        sizes=np.add.reduceat(locations.sizes, starts),
        first_rows=rows[starts],
    )


@dataclass(frozen=True, slots=True)
class _Pages:
    """What `build` has found, chunk after chunk."""

    file: memoryview
    chunk_starts: Int64s
    dictionary_bytes: Int64s
    locations: Locations


def _encode(footer: Footer, pages: _Pages) -> bytes:
    groups, leaves = len(footer.groups), footer.leaf_count
    counts = pages.locations.counts.reshape(leaves, groups)
    layouts: dict[tuple[bytes, bytes], int] = {}
    leaf_layout = []
    first_rows: list[U32s] = []
    ends = np.cumsum(counts.sum(axis=1))
    for leaf, rows in enumerate(np.split(pages.locations.first_rows.astype(_U32), ends[:-1])):
        key = counts[leaf].astype(_U32).tobytes(), rows.tobytes()
        leaf_layout.append(layouts.setdefault(key, len(layouts)))
        if leaf_layout[-1] == len(first_rows):
            first_rows.append(rows)
    names = "\n".join(column.name for column in footer.columns).encode()
    metas = [meta_prefix(chunk) for chunk in footer.groups[0]]
    counts_of = (
        len(footer.columns),
        leaves,
        groups,
        len(layouts),
        sum(map(len, first_rows)),
        int(ends[-1]),
        len(names),
        len(footer.created_by),
    )
    offsets, sizes = pages.locations.offsets, pages.locations.sizes
    dictionaries = [
        _checksum_of(pages.file, start, size) if size else 0
        for start, size in zip(
            pages.chunk_starts.tolist(), pages.dictionary_bytes.tolist(), strict=True
        )
    ]
    hashes = [
        _checksum_of(pages.file, start, size)
        for start, size in zip(offsets.tolist(), sizes.tolist(), strict=True)
    ]
    arrays: list[Any] = [
        np.array(counts_of, _U32),
        pages.chunk_starts.astype(_U64),
        pages.dictionary_bytes.astype(_U32),
        np.array(dictionaries, _U32),
        np.array(footer.group_rows, _U32),
        np.frombuffer(b"".join(key[0] for key in layouts), _U32),
        np.concatenate(first_rows),
        np.array(leaf_layout, _U32),
        sizes.astype(_U32),
        np.array(hashes, _U32),
        np.array([column.leaves for column in footer.columns], _U32),
        np.array([column.element_count for column in footer.columns], _U32),
        np.array([len(column.elements) for column in footer.columns], _U32),
        np.array([len(meta) for meta in metas], _U32),
    ]
    texts = [names, footer.created_by, *(column.elements for column in footer.columns), *metas]
    content = b"".join([*(array.tobytes() for array in arrays), *texts])
    head = np.array([VERSION, page_checksum(content)], _U32)
    return head.tobytes() + content


def _checksum_of(file: memoryview, start: int, size: int) -> int:
    return page_checksum(file[start : start + size])


def meta_prefix(chunk: Chunk) -> bytes:
    """Fields 1 to 4 of a ColumnMetaData: type, encodings, path, codec."""
    return b"".join(
        [
            b"\x15",
            thrift.number(chunk.physical_type),
            b"\x19",
            thrift.list_of(thrift.I32, [thrift.number(encoding) for encoding in chunk.encodings]),
            b"\x19",
            thrift.list_of(thrift.BINARY, [thrift.binary(part) for part in chunk.path]),
            b"\x15",
            thrift.number(chunk.codec),
        ]
    )


# --- opening -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageColumn:
    """A column of the file."""

    name: str
    leaves: range
    """Its leaf columns, in the order of the file's."""
    element_count: int
    elements: bytes
    """Its SchemaElement structures."""
    layout: int | None
    """The rows of its pages; None where its leaves have different ones."""

    @property
    def is_nested(self) -> bool:
        return self.element_count > 1


@dataclass(frozen=True, eq=False)
class Layout:
    """How the pages of a leaf column split the file's rows; many leaves share one."""

    starts: Int64s
    """First row of each page, counted from the start of the file."""
    ends: Int64s
    groups: Int64s
    """The row group of each page."""


@dataclass(frozen=True, eq=False)
class PageTable:
    """An opened page table; arrays look into the blob's own bytes."""

    row_count: int
    group_count: int
    created_by: bytes
    columns: tuple[PageColumn, ...]
    chunk_starts: NDArray[np.uint64]
    """By leaf and row group."""
    dictionary_bytes: U32s
    """By leaf and row group; 0: no dictionary."""
    dictionary_checksums: U32s
    group_rows: U32s
    layout_pages: U32s
    """By layout and row group: the number of data pages."""
    first_rows: U32s
    leaf_layout: U32s
    page_bytes: U32s
    page_checksums: U32s
    metas: tuple[bytes, ...]
    """By leaf: fields 1 to 4 of its ColumnMetaData."""

    @cached_property
    def by_name(self) -> dict[str, PageColumn]:
        return {column.name: column for column in self.columns}

    @cached_property
    def with_dictionary(self) -> list[bool]:
        """By leaf: whether it has a dictionary in any row group."""
        return [bool(sizes.any()) for sizes in self.dictionary_bytes]

    @cached_property
    def group_starts(self) -> Int64s:
        """First row of each row group, and the row count behind the last."""
        return np.concatenate([[0], np.cumsum(self.group_rows, dtype=np.int64)])

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The distinct page layouts."""
        counts = self.layout_pages.astype(np.int64)
        ends = np.cumsum(counts.sum(axis=1))
        return tuple(
            self._layout(counts[k], rows)
            for k, rows in enumerate(np.split(self.first_rows, ends))
            if k < len(counts)
        )

    def _layout(self, counts: Int64s, first_rows: U32s) -> Layout:
        groups = np.repeat(np.arange(self.group_count), counts)
        starts = self.group_starts[groups] + first_rows
        return Layout(starts, np.append(starts[1:], self.row_count), groups)

    @cached_property
    def leaf_pages(self) -> Int64s:
        """The first page of each leaf among all pages, and their number behind the last."""
        per_layout = self.layout_pages.sum(axis=1, dtype=np.int64)
        return np.concatenate([[0], np.cumsum(per_layout[self.leaf_layout])])

    @cached_property
    def page_offsets(self) -> Int64s:
        """Where each page begins in the file."""
        counts = self.layout_pages[self.leaf_layout].astype(np.int64).ravel()
        firsts = np.cumsum(counts) - counts
        before = np.cumsum(self.page_bytes, dtype=np.int64) - self.page_bytes
        data = (self.chunk_starts + self.dictionary_bytes).astype(np.int64).ravel()
        offsets: Int64s = before + np.repeat(data - before[firsts], counts)
        return offsets


def open(  # noqa: A001 - what every index kind calls it
    data: bytes, *, row_count: int, size_bytes: int
) -> PageTable:
    """Decode the page table of a file with so many rows and bytes, or `CorruptTable`."""
    blob = _Blob(data)
    columns, leaves, groups, layouts, layout_pages, pages, names, made_by = blob.header()
    if not (columns <= leaves and min(columns, groups, layouts) > 0 and layouts <= leaves):
        raise _malformed("its counts cannot be")
    chunk_starts = blob.array(_U64, leaves * groups).reshape(leaves, groups)
    dictionary_bytes = blob.array(_U32, leaves * groups).reshape(leaves, groups)
    dictionary_checksums = blob.array(_U32, leaves * groups).reshape(leaves, groups)
    group_rows = blob.array(_U32, groups)
    pages_of_layouts = blob.array(_U32, layouts * groups).reshape(layouts, groups)
    first_rows = blob.array(_U32, layout_pages)
    leaf_layout = blob.array(_U32, leaves)
    page_bytes, page_checksums = blob.array(_U32, pages), blob.array(_U32, pages)
    column_leaves, element_counts = blob.array(_U32, columns), blob.array(_U32, columns)
    element_bytes, meta_bytes = blob.array(_U32, columns), blob.array(_U32, leaves)
    texts = blob.texts([names, made_by, *element_bytes.tolist(), *meta_bytes.tolist()])
    if int(column_leaves.sum(dtype=np.int64)) != leaves or (leaf_layout >= layouts).any():
        raise _malformed("its columns do not add up")
    table = PageTable(
        row_count=row_count,
        group_count=groups,
        created_by=texts[1],
        columns=_columns(texts, column_leaves, element_counts, leaf_layout),
        chunk_starts=chunk_starts,
        dictionary_bytes=dictionary_bytes,
        dictionary_checksums=dictionary_checksums,
        group_rows=group_rows,
        layout_pages=pages_of_layouts,
        first_rows=first_rows,
        leaf_layout=leaf_layout,
        page_bytes=page_bytes,
        page_checksums=page_checksums,
        metas=tuple(texts[2 + columns :]),
    )
    _check(table, size_bytes)
    return table


class _Blob:
    """Arrays and texts one behind the other, none beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def header(self) -> list[int]:
        """The counts, once version and checksum are right."""
        version, checksum = self.array(_U32, 2).tolist()
        if version != VERSION:
            raise CorruptTable(f"page tables of version {version} are not known here")
        if page_checksum(memoryview(self._data)[self._at :]) != checksum:
            raise _malformed("it does not have its own checksum")
        found: list[int] = self.array(_U32, _COUNTS).tolist()
        if max(found) > _MAX_COUNT:
            raise _malformed("its counts cannot be")
        return found

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        size = dtype.itemsize * count
        if size > len(self._data) - self._at:
            raise _malformed("it ends early")
        found = np.frombuffer(self._data, dtype, count, self._at)
        self._at += size
        return found

    def texts(self, sizes: Sequence[int]) -> list[bytes]:
        if sum(sizes) != len(self._data) - self._at:
            raise _malformed("its texts do not fill it")
        found = []
        for size in sizes:
            found.append(self._data[self._at : self._at + size])
            self._at += size
        return found


def _columns(
    texts: list[bytes], leaves: U32s, element_counts: U32s, leaf_layout: U32s
) -> tuple[PageColumn, ...]:
    try:
        names = texts[0].decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise _malformed("its column names are not names") from None
    if len(names) != len(leaves) or len(set(names)) != len(names):
        raise _malformed("its column names do not add up")
    columns, first = [], 0
    layouts = leaf_layout.tolist()
    for name, size, elements, text in zip(
        names, leaves.tolist(), element_counts.tolist(), texts[2:], strict=False
    ):
        if not size or elements < size:
            raise _malformed("a column has no leaves")
        mine = set(layouts[first : first + size])
        layout = mine.pop() if len(mine) == 1 else None
        columns.append(PageColumn(name, range(first, first + size), elements, text, layout))
        first += size
    return tuple(columns)


def _check(table: PageTable, size_bytes: int) -> None:
    """What must hold before any number is used as a place or a row."""
    per_layout = table.layout_pages.sum(axis=1, dtype=np.int64)
    pages = int(per_layout[table.leaf_layout].sum())
    if pages != len(table.page_bytes) or int(per_layout.sum()) != len(table.first_rows):
        raise _malformed("its pages do not add up")
    if int(table.group_rows.sum(dtype=np.int64)) != table.row_count:
        raise _malformed("its row groups do not hold the segment's rows")
    if not (table.layout_pages.all() and table.page_bytes.all()):
        raise _malformed("a page or a row group is empty")
    if (table.chunk_starts > size_bytes).any():
        raise _malformed("a column lies outside the file")
    counts = table.layout_pages.astype(np.int64).ravel()
    lasts = np.cumsum(counts) - 1
    firsts = lasts - counts + 1
    rows = table.first_rows.astype(np.int64)
    ascends = np.diff(rows) > 0
    ascends[lasts[:-1]] = True
    most = np.tile(table.group_rows.astype(np.int64), len(table.layout_pages))
    if rows[firsts].any() or not ascends.all() or (rows[lasts] >= most).any():
        raise _malformed("the rows of its pages do not ascend within their row group")
    if int((table.page_offsets + table.page_bytes).max()) > size_bytes:
        raise _malformed("a page lies outside the file")


def _malformed(why: str) -> CorruptTable:
    return CorruptTable(f"a page table is malformed: {why}")
