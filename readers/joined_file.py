"""Parts of Parquet files as one small Parquet file. Pure: bytes in, bytes out.

Starting pyarrow's decoder takes longer than decoding a thousand rows does. So pages, or all pages
of whole files, are put one behind the other under a footer of our own; for pyarrow that is a file
like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from strandline.tableformat import thrift
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.parquet_footer import MAGIC
from strandline.tableformat.thrift import CompactReader, binary, list_of, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from strandline.readers.row_ranges import Int64s

    Bytes = bytes | memoryview

_COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2 = 3, 5, 8
"""Fields of a page header."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A leaf column in one row group."""

    runs: list[Bytes]
    """Its data pages."""
    dictionary: Bytes | None = None
    values: int | None = None
    """How many it holds; None: as many as the group has rows."""


@dataclass(frozen=True, slots=True)
class Group:
    """A row group."""

    rows: int
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the footer says of the columns."""

    created_by: bytes
    columns: Sequence[tuple[bytes, int]]
    """The schema elements of each, and how many these are."""
    metas: Sequence[bytes]
    """How the ColumnMetaData of each leaf begins."""


def encode(layout: Layout, groups: Sequence[Group]) -> bytes:
    """The file."""
    content: list[Bytes] = [MAGIC]
    for group in groups:
        for chunk in group.chunks:
            if chunk.dictionary is not None:
                content.append(chunk.dictionary)
            content += chunk.runs
    footer = _footer(layout, groups)
    return b"".join([*content, footer, len(footer).to_bytes(4, "little"), MAGIC])


def united(groups: Sequence[Group]) -> Group:
    """All of it as one row group; only without dictionaries."""
    by_leaf = zip(*(group.chunks for group in groups), strict=True)
    return Group(sum(group.rows for group in groups), [_end_to_end(chunks) for chunks in by_leaf])


def _end_to_end(chunks: Sequence[Chunk]) -> Chunk:
    counts = [chunk.values for chunk in chunks if chunk.values is not None]
    runs = [run for chunk in chunks for run in chunk.runs]
    return Chunk(runs, None, sum(counts) if counts else None)


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


# --- the footer --------------------------------------------------------------------------------

_NUMBER_BYTES: Final = 5
"""Every number of a chunk takes so many bytes; Thrift allows for leading zeros."""
_NUMBER_LIMIT: Final = 1 << (7 * _NUMBER_BYTES - 1)
_FIELD_HEADS: Final = np.array([0x16, 0x16, 0x16, 0x26, 0x26], np.uint8)
"""Fields 5, 6, 7, 9 and 11 of a ColumnMetaData: number of values, uncompressed and compressed
size, place of the data pages and of the dictionary page."""
_WITH_DICTIONARY: Final = len(_FIELD_HEADS) * (1 + _NUMBER_BYTES)
_WITHOUT: Final = _WITH_DICTIONARY - (1 + _NUMBER_BYTES)


def _footer(layout: Layout, groups: Sequence[Group]) -> bytes:
    """A FileMetaData: version, schema, rows, row groups, and who wrote the pages."""
    root = b"\x48" + binary(b"schema") + b"\x15" + number(len(layout.columns)) + b"\x00"
    elements = 1 + sum(count for _, count in layout.columns)
    head = list_of(thrift.STRUCT, [b""] * elements)
    return b"".join(
        [
            b"\x15\x04\x19",
            head,
            root,
            *(found for found, _ in layout.columns),
            b"\x16",
            number(sum(group.rows for group in groups)),
            b"\x19",
            list_of(thrift.STRUCT, _group_footers(layout.metas, groups)),
            b"\x28",
            binary(layout.created_by),
            b"\x00",
        ]
    )


def _group_footers(metas: Sequence[bytes], groups: Sequence[Group]) -> list[bytes]:
    """RowGroup structures: chunks, bytes, rows."""
    dictionaries = np.array(
        [[len(c.dictionary or b"") for c in g.chunks] for g in groups], np.int64
    )
    sizes = dictionaries + [[sum(map(len, c.runs)) for c in g.chunks] for g in groups]
    counts = np.array(
        [[group.rows if c.values is None else c.values for c in group.chunks] for group in groups],
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
