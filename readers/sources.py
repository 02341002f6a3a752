"""Two ways to the rows of a segment: whole column chunks by its footer, or single pages.

A source plans which bytes some rows of some columns need, and the plan decodes them once they are
there. It does no I/O, so that the caller decides how many requests that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.readers import joined_file, page_file, row_ranges
from strandline.tableformat.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.readers.row_ranges import Int64s, Ranges
    from strandline.readers.sparse_file import SparseFile
    from strandline.tableformat.page_table import PageTable

Stored: TypeAlias = dict[str, Any]
"""Columns of a file by their physical names, as Arrow chunked arrays; texts may be
dictionary-encoded."""


class Piece(Protocol):
    """Some rows of some columns of one segment."""

    @property
    def rows(self) -> Ranges:
        """Rows of the file."""

    @property
    def byte_ranges(self) -> list[tuple[int, int]]:
        """The (start, length) parts of the file that `decode` will look at."""

    def decode(self, file: SparseFile) -> Stored:
        """Exactly these rows of these columns."""


class Source(Protocol):
    """How to read some rows of some columns of one segment."""

    names: frozenset[str]
    """Columns that the file has."""
    group_starts: Int64s
    """First row of each row group, and the row count behind the last."""

    def plan(self, names: Collection[str], rows: Ranges) -> Piece:
        """What reading these columns of these rows takes."""

    def around(self, rows: Ranges, zone_rows: int) -> Ranges:
        """The least that can be read if these rows are wanted."""


class ChunkSource:
    """Whole column chunks, as the verified footer describes them."""

    def __init__(self, footer: pq.FileMetaData) -> None:
        self.footer = footer
        self._groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
        sizes = [group.num_rows for group in self._groups]
        self.group_starts: Int64s = np.cumsum([0, *sizes], dtype=np.int64)
        self._leaves: dict[str, list[int]] = {}
        for leaf in range(footer.num_columns):
            top = footer.schema.column(leaf).path.split(".")[0]
            self._leaves.setdefault(top, []).append(leaf)
        self.names = frozenset(self._leaves)
        self._chunks: dict[int, list[_Chunk]] = {}

    def _leaf_chunks(self, leaf: int) -> list[_Chunk]:
        """The leaf in every row group; looked up once, pyarrow takes its time."""
        found = self._chunks.get(leaf)
        if found is None:
            found = [_chunk(group.column(leaf)) for group in self._groups]
            self._chunks[leaf] = found
        return found

    def least_of(self, name: str) -> list[int | None]:
        """The least number of a column in each row group; None: its statistics do not say."""
        (leaf,) = self._leaves[name]
        found = [group.column(leaf).statistics for group in self._groups]
        return [stats.min if stats is not None and stats.has_min_max else None for stats in found]

    def plan(self, names: Collection[str], rows: Ranges) -> _Chunks:
        starts = self.group_starts
        groups = np.flatnonzero(row_ranges.touched(rows, starts[:-1], starts[1:]))
        listed = groups.tolist()
        chunks = {
            name: [self._leaf_chunks(leaf)[group] for leaf in leaves for group in listed]
            for name in names
            for leaves in (self._leaves[name],)
        }
        return _Chunks(
            footer=self.footer,
            names=sorted(names),
            few_texts=[name for name, found in chunks.items() if all(c.few_texts for c in found)],
            groups=listed,
            read=row_ranges.joined(starts[groups], starts[groups + 1]),
            rows=rows,
            chunks=[chunk for found in chunks.values() for chunk in found],
        )

    def around(self, rows: Ranges, zone_rows: int) -> Ranges:
        del zone_rows
        return row_ranges.blocks_around(rows, self.group_starts)


@dataclass(frozen=True, slots=True)
class _Chunk:
    start: int
    size: int
    few_texts: bool
    data_start: int
    nested_values: int | None
    """How many values it holds, where that is not the number of rows."""

    def check(self, file: SparseFile) -> None:
        """Refuse pages that share their values out among rows in another way than they did.

        A page's CRC leaves out its header. In a flat column a wrong count there shows as a wrong
        number of rows; in a nested one only the sum over all pages tells.
        """
        if self.nested_values is not None:
            pages = file.bytes_at(self.data_start, self.start + self.size - self.data_start)
            if joined_file.value_count(pages) != self.nested_values:
                raise CorruptTable("the pages of a nested column do not hold its values")


def _chunk(facts: pq.ColumnChunkMetaData) -> _Chunk:
    start, dictionary = facts.data_page_offset, facts.dictionary_page_offset
    is_nested = "." in facts.path_in_schema
    few = dictionary is not None and 0 < start - dictionary <= page_file.SMALL_DICTIONARY_BYTES
    return _Chunk(
        start=start if dictionary is None else min(start, dictionary),
        size=facts.total_compressed_size,
        few_texts=few and facts.physical_type == "BYTE_ARRAY" and not is_nested,
        data_start=start,
        nested_values=facts.num_values if is_nested else None,
    )


@dataclass(frozen=True, eq=False)
class _Chunks:
    """Whole chunks of some columns in some row groups."""

    footer: pq.FileMetaData
    names: list[str]
    few_texts: list[str]
    """Columns that are few distinct texts: far quicker to decode as such."""
    groups: list[int]
    read: Ranges
    rows: Ranges
    chunks: list[_Chunk]

    @property
    def byte_ranges(self) -> list[tuple[int, int]]:
        return sorted((chunk.start, chunk.size) for chunk in self.chunks)

    def decode(self, file: SparseFile) -> Stored:
        for chunk in self.chunks:
            chunk.check(file)
        if not self.names:
            return {}
        parquet = pq.ParquetFile(
            pa.PythonFile(file.reopened(), mode="r"),
            metadata=self.footer,
            read_dictionary=self.few_texts,
            pre_buffer=False,  # all bytes are here; what lies between them is not
            page_checksum_verification=True,
        )
        # A thread per file is enough; scans read several files at once.
        table = parquet.read_row_groups(self.groups, columns=self.names, use_threads=False)
        return _rows_of(table, self.names, self.read, self.rows)


class PageSource:
    """Only the pages that hold wanted rows, by the segment's page table."""

    def __init__(self, table: PageTable) -> None:
        self._table = table
        self.names = frozenset(table.by_name)
        self.group_starts = table.group_starts

    def plan(self, names: Collection[str], rows: Ranges) -> PagePiece:
        columns = [self._table.by_name[name] for name in sorted(names)]
        sets = page_file.choose_pages(self._table, columns, rows)
        return PagePiece(sets, rows, [found for chosen in sets for found in chosen.byte_ranges()])

    def around(self, rows: Ranges, zone_rows: int) -> Ranges:
        count = int(self.group_starts[-1])
        edges = np.append(np.arange(0, count, zone_rows, dtype=np.int64), count)
        return row_ranges.blocks_around(rows, edges)


@dataclass(frozen=True, eq=False)
class PagePiece:
    """Single pages of some columns."""

    sets: list[page_file.PageSet]
    rows: Ranges
    byte_ranges: list[tuple[int, int]]

    def decode(self, file: SparseFile) -> Stored:
        (stored,) = decode_together([(self, file)])
        return stored


def decode_together(pieces: Sequence[tuple[PagePiece, SparseFile]]) -> list[Stored]:
    """The rows of each piece. Pages of one shape are decoded in one go, whatever file they are of.

    Starting pyarrow's decoder takes longer than a few pages do.
    """
    stored: list[Stored] = [{} for _ in pieces]
    by_shape: dict[object, list[tuple[int, page_file.PageSet]]] = {}
    for number, (piece, _) in enumerate(pieces):
        for chosen in piece.sets:
            by_shape.setdefault(chosen.shape, []).append((number, chosen))
    for alike in by_shape.values():
        table = _decoded_pages([(chosen, pieces[number][1]) for number, chosen in alike])
        at = 0
        for number, chosen in alike:
            count = row_ranges.count(chosen.rows)
            part = table.slice(at, count)
            stored[number] |= _rows_of(part, chosen.names, chosen.rows, pieces[number][0].rows)
            at += count
    return stored


def _decoded_pages(parts: Sequence[tuple[page_file.PageSet, SparseFile]]) -> pa.Table:
    few = set.intersection(*(set(chosen.few_texts()) for chosen, _ in parts))
    parquet = pq.ParquetFile(
        pa.BufferReader(page_file.assemble([(chosen, file.bytes_at) for chosen, file in parts])),
        read_dictionary=sorted(few),
        pre_buffer=False,
        page_checksum_verification=True,
    )
    return parquet.read(use_threads=False)


def _rows_of(table: pa.Table, names: list[str], read: Ranges, wanted: Ranges) -> Stored:
    """The wanted rows of a table that was read, once it is what it was said to be."""
    check_read(table, names, row_ranges.count(read))
    table = row_ranges.cut(table, read, wanted)
    return dict(zip(table.column_names, table.columns, strict=True))


def check_read(table: pa.Table, names: list[str], count: int) -> None:
    """Refuse a file that does not hold these columns and so many rows."""
    if table.num_rows != count or sorted(table.column_names) != sorted(names):
        raise CorruptTable(
            f"{table.num_rows} rows of {table.column_names} were read where {count} of {names} "
            "were to be"
        )
