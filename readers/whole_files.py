"""Whole Parquet files with the same columns, decoded in one go. Pure: bytes in, columns out.

Their pages become one file: those without dictionaries one row group, since a page costs the
decoder less than a row group does; each dictionary needs a row group of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.readers.joined_file import (
    Chunk,
    Group,
    Layout,
    encode,
    united,
    value_count,
)
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.page_table import meta_prefix
from strandline.tableformat.parquet_footer import (
    TAIL_BYTES,
    Footer,
    FooterColumn,
    parse_footer,
    schema_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class WholeFile:
    """The bytes of a file whose footer was checked."""

    __slots__ = ("codecs", "data", "footer", "row_count", "rows_and_chunks")

    def __init__(self, data: bytes, footer_bytes: int) -> None:
        self.data = memoryview(data)
        self.footer = data[-TAIL_BYTES - footer_bytes :]
        found = pq.read_metadata(pa.BufferReader(self.footer))
        self.row_count: int = found.num_rows
        groups = map(found.row_group, range(found.num_row_groups))
        leaves = range(found.num_columns)
        self.rows_and_chunks = [(g.num_rows, [g.column(leaf) for leaf in leaves]) for g in groups]
        """Of each row group: how many rows it has, and where its leaves are."""
        self.codecs = {
            (leaf, chunk.compression)
            for _, chunks in self.rows_and_chunks
            for leaf, chunk in enumerate(chunks)
        }
        """How each leaf is compressed; in small files and larger ones it differs."""
        if sum(rows for rows, _ in self.rows_and_chunks) != self.row_count or not self.row_count:
            raise CorruptTable("the row groups of a file do not add up to its rows")


@dataclass(frozen=True)
class _Shape:
    """What files must have in common to be put together."""

    schema: bytes
    codecs: set[tuple[int, str]]
    footer: Footer

    def fits(self, file: WholeFile) -> bool:
        return file.footer.startswith(self.schema) and file.codecs == self.codecs

    @cached_property
    def leaves(self) -> dict[str, range]:
        """Numbers of the leaves of each column."""
        found, at = {}, 0
        for column in self.footer.columns:
            found[column.name] = range(at, at + column.leaves)
            at += column.leaves
        return found


def _shape(file: WholeFile) -> _Shape:
    bare = file.footer[:-TAIL_BYTES]
    return _Shape(schema_bytes(bare), file.codecs, parse_footer(bare))


def decode(
    files: Sequence[WholeFile], names: Callable[[Sequence[str]], set[str]]
) -> Iterator[pa.Table]:
    """The rows of all files in their order; `names` chooses of the columns that are there."""
    begin = 0
    while begin < len(files):
        shape, end = _shape(files[begin]), begin + 1
        while end < len(files) and shape.fits(files[end]):
            end += 1
        wanted = names([column.name for column in shape.footer.columns])
        yield _decoded(files[begin:end], shape, wanted)
        begin = end


def _decoded(files: Sequence[WholeFile], shape: _Shape, names: set[str]) -> pa.Table:
    columns = [column for column in shape.footer.columns if column.name in names]
    coded = [column for column in columns if _has_dictionary(files, shape.leaves[column.name])]
    plain = [column for column in columns if column not in coded]
    stored: dict[str, Any] = {}
    for alike, unite in ((plain, True), (coded, False)):
        if alike:
            stored |= _columns_of(files, shape, alike, unite=unite)
    rows = sum(file.row_count for file in files)
    if stored.keys() != names or any(len(values) != rows for values in stored.values()):
        raise CorruptTable("other rows or columns were read than there are")
    return pa.table({name: stored[name] for name in sorted(names)})


def _has_dictionary(files: Sequence[WholeFile], leaves: range) -> bool:
    return any(
        chunks[leaf].has_dictionary_page
        for file in files
        for _, chunks in file.rows_and_chunks
        for leaf in leaves
    )


def _columns_of(
    files: Sequence[WholeFile], shape: _Shape, columns: Sequence[FooterColumn], *, unite: bool
) -> dict[str, Any]:
    leaves = [
        (leaf, column.element_count > 1) for column in columns for leaf in shape.leaves[column.name]
    ]
    groups = [
        Group(rows, [_chunk(file.data, chunks[leaf], nested=nested) for leaf, nested in leaves])
        for file in files
        for rows, chunks in file.rows_and_chunks
    ]
    layout = Layout(
        shape.footer.created_by,
        [(column.elements, column.element_count) for column in columns],
        [meta_prefix(shape.footer.groups[0][leaf]) for leaf, _ in leaves],
    )
    file = pq.ParquetFile(
        pa.BufferReader(encode(layout, [united(groups)] if unite else groups)),
        pre_buffer=False,
        page_checksum_verification=True,
    )
    table = file.read(use_threads=False)
    return dict(zip(table.column_names, table.columns, strict=True))


def _chunk(data: memoryview, facts: pq.ColumnChunkMetaData, *, nested: bool) -> Chunk:
    start, dictionary = facts.data_page_offset, facts.dictionary_page_offset
    begin = start if dictionary is None else dictionary
    pages = data[start : begin + facts.total_compressed_size]
    if nested and value_count(pages) != facts.num_values:
        # A page's CRC leaves out its header, and rows do not tell how many values there are.
        raise CorruptTable("the pages of a nested column do not hold its values")
    return Chunk(
        [pages],
        None if dictionary is None else data[dictionary:start],
        facts.num_values if nested else None,
    )
