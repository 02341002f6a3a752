"""Where a Parquet file keeps its pages: what its footer and its offset indexes say.

pyarrow shows neither page locations nor the bytes of a schema, so the few structures that are
needed are read here (parquet.thrift: FileMetaData, RowGroup, ColumnChunk, OffsetIndex).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat import thrift
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.thrift import CompactReader, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""Behind the footer: its length in four bytes, then the magic."""
_SCHEMA: Final = 2
_META_FIELDS: Final[Wanted] = dict.fromkeys((1, 2, 3, 4, 7, 9, 11))
_FOOTER_FIELDS: Final[Wanted] = {3: None, 4: {1: {3: _META_FIELDS, 4: None}, 3: None}, 6: None}
_LOCATION_TOKENS: Final = np.array([0x16, 0x15, 0x16, 0x00], np.uint8)
"""Heads of a page location's three fields and its end, as every writer we know puts them."""
_LOCATION_SIZE: Final = 7
"""Heads, values and end of a location, each a varint of its own."""


@dataclass(frozen=True, slots=True)
class FooterColumn:
    """A column of the table: one schema element, or several where it is nested."""

    name: str
    elements: bytes
    """Its SchemaElement structures as they stand in the footer, parents first."""
    element_count: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One leaf column in one row group."""

    path: tuple[bytes, ...]
    physical_type: int
    codec: int
    encodings: tuple[int, ...]
    dictionary_offset: int | None
    data_offset: int
    size_bytes: int
    offset_index: int | None
    """Where the locations of its pages are."""


@dataclass(frozen=True)
class Footer:
    """A parsed footer."""

    row_count: int
    created_by: bytes
    columns: tuple[FooterColumn, ...]
    group_rows: tuple[int, ...]
    groups: tuple[tuple[Chunk, ...], ...]
    """The chunks of each row group."""

    @cached_property
    def leaf_count(self) -> int:
        return sum(column.leaves for column in self.columns)


def footer_of(data: bytes | memoryview) -> Footer:
    """The footer of a whole file."""
    size = int.from_bytes(data[-TAIL_BYTES:-4], "little")
    return parse_footer(data[len(data) - TAIL_BYTES - size : len(data) - TAIL_BYTES])


def parse_footer(data: bytes | memoryview) -> Footer:
    """A footer from its bytes, without length and magic."""
    reader = CompactReader(bytes(data))
    fields: dict[int, Any] = {}
    columns: tuple[FooterColumn, ...] = ()
    number, kind = reader.field(0)
    while kind:
        if number == _SCHEMA:
            columns = _columns(reader)
        elif number in _FOOTER_FIELDS:
            fields[number] = reader.value(kind, _FOOTER_FIELDS[number])
        else:
            reader.skip(kind)
        number, kind = reader.field(number)
    try:
        groups = fields[4]
        footer = Footer(
            row_count=fields[3],
            created_by=fields.get(6, b""),
            columns=columns,
            group_rows=tuple(group[3] for group in groups),
            groups=tuple(tuple(map(_chunk, group[1])) for group in groups),
        )
    except (KeyError, TypeError, IndexError):
        raise CorruptTable("a Parquet footer lacks a field that it must have") from None
    if any(len(chunks) != footer.leaf_count for chunks in footer.groups):
        raise CorruptTable("a row group does not have the columns that the schema names")
    return footer


def schema_bytes(data: bytes) -> bytes:
    """A footer up to the end of its schema: files with the same columns begin theirs alike."""
    reader, number = CompactReader(data), 0
    while number != _SCHEMA:
        number, kind = reader.field(number)
        reader.skip(kind)
    return data[: reader.at]


def _columns(reader: CompactReader) -> tuple[FooterColumn, ...]:
    size, _ = reader.list_header()
    spans: list[tuple[int, int, dict[int, Any]]] = []
    for _ in range(size):
        begin = reader.at
        element = reader.structure()
        spans.append((begin, reader.at, element))
    columns: list[FooterColumn] = []
    at = 1  # behind the root
    while at < len(spans):
        end, leaves = _subtree(spans, at)
        columns.append(
            FooterColumn(
                name=spans[at][2][4].decode(),
                elements=bytes(reader.data[spans[at][0] : spans[end - 1][1]]),
                element_count=end - at,
                leaves=leaves,
            )
        )
        at = end
    return tuple(columns)


def _subtree(spans: Sequence[tuple[int, int, dict[int, Any]]], at: int) -> tuple[int, int]:
    """Where the elements below one element end, and how many of them are leaves."""
    pending, leaves = 1, 0
    while pending:
        if at >= len(spans):
            raise CorruptTable("a Parquet schema ends early")
        children = spans[at][2].get(5, 0)
        leaves += not children
        pending += children - 1
        at += 1
    return at, leaves


def _chunk(fields: dict[int, Any]) -> Chunk:
    meta = fields[3]
    return Chunk(
        path=tuple(meta[3]),
        physical_type=meta[1],
        codec=meta[4],
        encodings=tuple(meta[2]),
        dictionary_offset=meta.get(11),
        data_offset=meta[9],
        size_bytes=meta[7],
        offset_index=fields.get(4),
    )


# --- page locations ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Locations:
    """The data pages of all chunks, chunk after chunk in the order they were asked for."""

    counts: NDArray[np.int64]
    """Pages of each chunk."""
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    """Header included."""
    first_rows: NDArray[np.int64]
    """Counted from the start of the row group."""


def page_locations(data: bytes | memoryview, starts: Sequence[int]) -> Locations:
    """Read the offset indexes that begin at `starts`, all in a few passes over their bytes.

    A location is a fixed row of varints (field heads are varints of one byte too), so that the
    ends of all varints tell where everything is.
    """
    low, footer = min(starts), int.from_bytes(data[-TAIL_BYTES:-4], "little")
    raw = np.frombuffer(data, np.uint8, len(data) - TAIL_BYTES - footer - low, low).copy()
    bodies, counts = [], []
    for start in starts:
        reader = CompactReader(data, start)
        if reader.take(1)[0] != (1 << 4 | thrift.LIST):
            raise CorruptTable("an offset index does not begin with its page locations")
        count, kind = reader.list_header()
        if kind != thrift.STRUCT:
            raise CorruptTable("an offset index does not list page locations")
        bodies.append(reader.at - low)
        counts.append(count)
        raw[reader.at - low - 1] = 0  # so that no varint runs from the head into the body
    ends = np.flatnonzero(raw < 0x80)  # noqa: PLR2004 - the top bit says that more follows
    sizes = np.array(counts, np.int64)
    first_tokens = np.searchsorted(ends, np.array(bodies, np.int64))
    tokens = _spread(first_tokens, sizes)
    if len(tokens) and tokens[-1] + _LOCATION_SIZE > len(ends):
        raise CorruptTable("an offset index ends early")
    # The end of what stands before each location, then of its seven varints.
    marks = ends[(tokens - 1)[:, None] + np.arange(_LOCATION_SIZE + 1)]
    if (raw[marks[:, 1::2]] != _LOCATION_TOKENS).any() or (np.diff(marks)[:, ::2] != 1).any():
        raise CorruptTable("an offset index holds page locations of an unknown form")
    numbers = _varints(raw, marks[:, 1:7:2] + 1, marks[:, 2::2]) >> 1  # zigzag, never negative
    return Locations(sizes, numbers[:, 0], numbers[:, 1], numbers[:, 2])


def _spread(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first varint of each location: `count` steps from every start, one after the other."""
    before = np.cumsum(counts) - counts
    spread: NDArray[np.int64] = np.repeat(starts - before * _LOCATION_SIZE, counts)
    spread += np.arange(len(spread)) * _LOCATION_SIZE
    return spread


def _varints(
    raw: NDArray[np.uint8], first: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    lengths = last - first
    values: NDArray[np.int64] = (raw[first] & 0x7F).astype(np.int64)
    for place in range(1, int(lengths.max(initial=0)) + 1):
        byte = (raw[np.minimum(first + place, last)] & 0x7F).astype(np.int64) << (7 * place)
        values |= np.where(lengths >= place, byte, 0)
    return values
