"""Reading one segment, or some zones of it: verified bytes in, matching rows of the table out.

The columns of the filter are read first, and all others only where a row matched. Where the rest
is small it is fetched together with them: a second request costs more than some bytes too many.
Every road checks what it reads: chunks by the footer's hash and the pages' CRC, single pages by
the page table's checksums besides.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from strandline.readers import flat_pages, footers, row_ranges
from strandline.readers.arrow_arrays import among, bool_array, integers, true_rows
from strandline.readers.logical_columns import LogicalColumns
from strandline.readers.sources import ChunkSource, PageSource
from strandline.readers.sparse_file import SparseFile
from strandline.tableformat import types
from strandline.tableformat.binding import BoundConstant, columns_of
from strandline.tableformat.errors import CorruptTable, InvalidInput, MissingFile, ObjectMissing
from strandline.tableformat.hidden_columns import SEQ_ID, WINDOW_ID
from strandline.tableformat.segments import DENSE, STORED
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from strandline.catalog.manifest_service import ManifestService
    from strandline.readers.row_ranges import Ranges
    from strandline.readers.sources import PagePiece, Source, Stored
    from strandline.readers.splits import Split
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import Storage
    from strandline.tableformat.types import ColumnType

WHOLE_FILE_BYTES: Final = 2 * 2**20
"""Up to this size one request for everything beats two for less."""
ONE_STEP_BYTES: Final = 2**20
"""Columns that may not be needed are fetched at once up to here."""
ONE_STEP_ROWS: Final = 2**14
"""So few rows are decoded with all their columns: starting a decoder twice takes longer."""
UNIT_MEMORY_BYTES: Final = 64 * 2**20
"""How much of a segment is in memory at once: row groups up to here, and at least one."""
_UNPACKED: Final = 4
"""Fetched bytes, and what becomes of them, as a multiple of the fetched ones."""
_REFERENCE_BYTES: Final = 16
_MEANING: Final = tuple(map(attrgetter, ("schema_id", "rows_are", "ts_stored", "tombstones")))
"""What entries say about the columns of their files."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Rows of a split that are read together."""

    rows: Ranges
    memory_bytes: int
    """What they may take in memory, by a careful guess."""


def read_split(
    storage: Storage,
    manifest: Manifest,
    split: Split,
    wanted: Collection[int],
) -> Iterator[pa.Table]:
    """The wanted columns of the rows that match, in the order of the file, a unit at a time."""
    reader = SplitReader(storage, manifest, split, wanted)
    for unit in reader.open():
        yield reader.read(unit)


class SplitReader:
    """One split of one scan. `open` once, then `read` the units from any threads."""

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        split: Split,
        wanted: Collection[int],
        *,
        service: ManifestService | None = None,
        keep_codes: bool = False,
        most_rows: int | None = None,
        unit_memory_bytes: int = UNIT_MEMORY_BYTES,
    ) -> None:
        """Take `most_rows` where the first matching rows of the file will do.

        `service`: looks for the footer on this machine before the store is asked.
        `keep_codes`: texts that the file holds as codes into few stay so.
        """
        self._service, self._keep_codes = service, keep_codes
        self.storage = self._storage = storage
        self.entry = self._entry = split.entry
        self._manifest, self._split = manifest, split
        self._bound = bound = split.bound
        if split.only_seqs is not None and bound is None:
            self._bound = bound = BoundConstant(value=True)
        self._most_rows, self._unit_memory = most_rows, unit_memory_bytes
        self._logical = LogicalColumns(manifest, split.entry)
        looked_at = frozenset() if bound is None else columns_of(bound)
        if split.only_seqs is not None:
            looked_at |= {SEQ_ID}
        # A filter that looks at no column still needs one, to know how many rows there are.
        self._filter_ids: frozenset[int] = looked_at or frozenset({WINDOW_ID})
        self._wanted = frozenset(wanted)
        self._all_ids = self._wanted | self._filter_ids
        self._zone_rows = split.zone_rows or manifest.config.zone_rows
        self._source: Source | None = None
        self._opened: list[Unit] = []
        self._small_file: SparseFile | None = None
        self.pages_failed = False
        """Whether the page table did not fit the file, so that whole chunks were read instead."""

    # --- what to read ---

    def open(self) -> list[Unit]:
        """Find out where the rows are; this may read the file's footer."""
        with self._errors():
            if not len(self._rows):
                return []
            pages = self._split.pages
            source = self._chunk_source() if pages is None else PageSource(pages)
            self._source = source
            self._opened = self._units(source, self._rows)
            return self._opened

    @cached_property
    def _rows(self) -> Ranges:
        count, zones = self._entry.row_count, self._split.zones
        rows = row_ranges.all_rows(count)
        if zones is not None:
            rows = row_ranges.of_zones(zones, self._zone_rows, count)
        if self._bound is None and self._most_rows is not None:
            rows = row_ranges.first(rows, self._most_rows)
        return rows

    def _chunk_source(self) -> ChunkSource:
        storage, manifest, entry = self._storage, self._manifest, self._entry
        source = footers.cached_source(storage, manifest, entry)
        if source is None:
            file = SparseFile(entry.size_bytes)
            start, size = footers.footer_range(entry)
            if entry.size_bytes <= WHOLE_FILE_BYTES:
                self._fetch(file, [(0, entry.size_bytes)])
                self._small_file = file
            elif (copy := footers.local_copy(self._service, entry)) is not None:
                return footers.checked_source(storage, manifest, entry, copy)
            else:
                self._fetch(file, [(start, size)])
            tail = file.bytes_at(start, size)
            source = footers.checked_source(storage, manifest, entry, tail)
            if self._small_file is None:
                footers.keep_copy(self._service, entry, tail)
        return source

    def _units(self, source: Source, rows: Ranges) -> list[Unit]:
        # Who wants the first matches gets on by single row groups.
        all_at_once = self._bound is None or self._most_rows is None
        guess = self._share(rows)
        if all_at_once and guess <= self._unit_memory:
            return [Unit(rows, guess)]
        names = self._names(source, self._all_ids)
        units: list[Unit] = []
        pending: list[Ranges] = []
        pending_memory = 0
        for begin, end in pairwise(source.group_starts.tolist()):
            part = row_ranges.within(rows, begin, end)
            if not len(part):
                continue
            planned = _total(source.plan(names, part).byte_ranges)
            memory = self._memory(row_ranges.count(part), planned)
            too_much = pending_memory + memory > self._unit_memory
            if pending and (too_much or not all_at_once):
                units.append(Unit(np.concatenate(pending), pending_memory))
                pending, pending_memory = [], 0
            pending.append(part)
            pending_memory += memory
        return [*units, Unit(np.concatenate(pending), pending_memory)]

    def memory_estimate(self) -> int:
        """What the first unit may take in memory, before anything is known of the file."""
        return min(self.memory_share, self._unit_memory)

    @property
    def memory_share(self) -> int:
        """What all its rows may take in memory, before anything is known of the file."""
        return self._share(self._rows)

    def least_from(self, unit: int) -> int | None:
        """A number that no row of this and later ones of the opened units is below.

        None: there are no such units. It looks at more than matching rows, and may read a footer.
        """
        return self._least_numbers[unit] if unit < len(self._opened) else None

    @cached_property
    def _least_numbers(self) -> list[int]:
        entry = self._entry
        firsts = np.array([unit.rows[0, 0] for unit in self._opened], np.int64)
        if entry.rows_are == DENSE:
            return [entry.min_seq + first for first in firsts.tolist()]
        with self._errors():
            source = self._source
            chunks = source if isinstance(source, ChunkSource) else self._chunk_source()
        base, name = (0, "_seq") if entry.rows_are == STORED else (entry.seq_base, "_off")
        found = [entry.min_seq if n is None else base + n for n in chunks.least_of(name)]
        onwards = np.minimum.accumulate(np.array(found, np.int64)[::-1])[::-1]
        groups = np.searchsorted(chunks.group_starts, firsts, side="right") - 1
        return [int(least) for least in np.maximum(onwards[groups], entry.min_seq)]

    def _share(self, rows: Ranges) -> int:
        """What rows may take in memory, were all columns of the file needed."""
        count = row_ranges.count(rows)
        return self._memory(count, self._entry.size_bytes * count // self._entry.row_count)

    def _memory(self, rows: int, planned_bytes: int) -> int:
        by_id = self._manifest.schema.by_id
        ids = self._all_ids
        width = sum(_width(by_id[i].type) if i > 0 else _REFERENCE_BYTES for i in ids)
        return _UNPACKED * planned_bytes + width * rows

    def _names(self, source: Source, column_ids: Collection[int]) -> set[str]:
        return self._logical.physical_names(column_ids, source.names)

    # --- reading with others ---

    @property
    def is_small(self) -> bool:
        """Whether it is few rows of single pages, which are best read together with others."""
        few = 0 < self._split.rows_planned <= ONE_STEP_ROWS
        return few and self._split.pages is not None and self._bound is not None

    def small_piece(self) -> PagePiece | None:
        """All that a small split needs; None: more bytes than its rows let one expect."""
        assert self._split.pages is not None
        source = PageSource(self._split.pages)
        piece = source.plan(self._names(source, self._all_ids), self._rows)
        return piece if _total(piece.byte_ranges) <= ONE_STEP_BYTES else None

    def logical(self, stored: Stored) -> pa.Table:
        """All columns that the filter and the answer need, from what `small_piece` asked for."""
        return self._logical.table(stored, self._all_ids, self._rows)

    def flat_pages(self) -> flat_pages.Wanted | None:
        """The same as pages that many splits can share the reading of; None: they cannot."""
        table = self._split.pages
        assert table is not None
        names = sorted(self._logical.physical_names(self._all_ids, table.by_name.keys()))
        if not names:
            return None
        columns = tuple([table.by_name[name] for name in names])
        wanted = flat_pages.Wanted(self._entry.path, table, columns, self._rows)
        return wanted if wanted.is_flat else None

    def logical_of(self, stored: Stored, rows: Sequence[tuple[SplitReader, Ranges]]) -> pa.Table:
        """As `logical`, of rows of some readers whose files store them alike."""
        counts = [row_ranges.count(found) for _, found in rows]
        own = self._all_ids & {SEQ_ID, WINDOW_ID}
        table = self._logical.table(stored, self._all_ids - own, row_ranges.all_rows(sum(counts)))
        if not own:
            return table
        hidden, at = [], 0
        for (reader, found), count in zip(rows, counts, strict=True):
            part = {name: column.slice(at, count) for name, column in stored.items()}
            hidden.append(LogicalColumns(self._manifest, reader.entry).table(part, own, found))
            at += count
        for name, column in _by_name(pa.concat_tables(hidden)).items():
            table = table.append_column(name, column)
        return table.select(self._logical.names_of(self._all_ids))

    def stores_like(self, other: SplitReader) -> bool:
        """Whether the same columns mean the same in both files."""
        return all(of(self._entry) == of(other._entry) for of in _MEANING)

    def asks_like(self, other: SplitReader) -> bool:
        """Whether rows of both can be filtered in one go."""
        return (
            self._wanted == other._wanted
            and self._split.only_seqs is other._split.only_seqs
            and (self._bound is other._bound or self._bound == other._bound)
        )

    def matching(self, table: pa.Table) -> tuple[pa.Table, NDArray[np.bool_]]:
        """The wanted columns of the rows of `logical` that match, and which these are."""
        assert self._bound is not None
        mask = self._matches(self._bound, table)
        wanted = table.select(self._logical.names_of(self._wanted))
        return self._texts(wanted.filter(bool_array(mask))), mask

    # --- reading ---

    def read(self, unit: Unit) -> pa.Table:
        """The wanted columns of the unit's matching rows."""
        with self._errors():
            source = self._source
            assert source is not None, "open() comes first"
            if isinstance(source, PageSource):
                try:
                    return self._texts(self._read(source, unit.rows))
                except (CorruptTable, pa.ArrowException, OSError):
                    # Whoever is wrong, the file or its page table: the file's own footer knows.
                    self.pages_failed = True
                    source = self._source = self._chunk_source()
            return self._texts(self._read(source, unit.rows))

    def _texts(self, table: pa.Table) -> pa.Table:
        return table if self._keep_codes else _decoded(table)

    def _read(self, source: Source, rows: Ranges) -> pa.Table:
        file = self._small_file or SparseFile(self._entry.size_bytes)
        if self._bound is not None:
            return self._read_matching(self._bound, source, file, rows)
        piece = source.plan(self._names(source, self._wanted), rows)
        self._fetch(file, piece.byte_ranges)
        return self._logical.table(piece.decode(file), self._wanted, rows)

    def _read_matching(
        self, bound: Bound, source: Source, file: SparseFile, rows: Ranges
    ) -> pa.Table:
        if row_ranges.count(rows) <= ONE_STEP_ROWS:
            piece = source.plan(self._names(source, self._all_ids), rows)
            if _total(piece.byte_ranges) <= ONE_STEP_BYTES:
                self._fetch(file, piece.byte_ranges)
                table = self._logical.table(piece.decode(file), self._all_ids, rows)
                return self.matching(table)[0]
        names = self._names(source, self._filter_ids)
        first = source.plan(names, rows)
        # What the filter's columns tell as well needs no second look.
        known = frozenset(i for i in self._wanted if self._names(source, {i}) <= names)
        rest_ids = self._wanted - known
        rest = source.plan(self._names(source, rest_ids), rows)
        at_once = _total(rest.byte_ranges) <= ONE_STEP_BYTES
        self._fetch(file, first.byte_ranges + (rest.byte_ranges if at_once else []))
        table = self._logical.table(first.decode(file), known | self._filter_ids, rows)
        mask = self._matches(bound, table)
        if not mask.any():
            return self._logical.no_rows(self._wanted)
        hits = row_ranges.of_mask(rows, mask)
        found = row_ranges.cut(table.select(self._logical.names_of(known)), rows, hits)
        if not rest_ids:
            return found
        others = self._rows_at(source, file, rest_ids, hits)
        columns = {**_by_name(found), **_by_name(others)}
        return pa.table({name: columns[name] for name in self._logical.names_of(self._wanted)})

    def _rows_at(
        self, source: Source, file: SparseFile, column_ids: frozenset[int], hits: Ranges
    ) -> pa.Table:
        """Columns for these rows of the file alone."""
        piece = source.plan(self._names(source, column_ids), source.around(hits, self._zone_rows))
        self._fetch(file, piece.byte_ranges)
        table = self._logical.table(piece.decode(file), column_ids, piece.rows)
        return row_ranges.cut(table, piece.rows, hits)

    def _matches(self, bound: Bound, table: pa.Table) -> NDArray[np.bool_]:
        # Row filters need pyarrow's kernels, which planning does without: see the import test.
        from strandline.readers.evaluate import evaluate  # noqa: PLC0415

        mask = true_rows(evaluate(bound, table, self._logical.all_names))
        if self._split.only_seqs is not None:
            mask &= among(integers(table.column("_seq")), self._split.only_seqs)
        return mask

    def _fetch(self, file: SparseFile, ranges: Sequence[tuple[int, int]]) -> None:
        missing = [found for found in ranges if not file.holds(*found)]
        blobs = self._storage.read_ranges([(self._entry.path, *found) for found in missing])
        for (start, _), data in zip(missing, blobs, strict=True):
            file.fill(start, data)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Damage in words, whatever library stumbled over it."""
        url, path = self._storage.url, self._entry.path
        try:
            yield
        except ObjectMissing:
            raise MissingFile(
                f"{url}: {path} is listed by version {self._manifest.version} and is not in the "
                "store. Rows would be missing, so nothing is returned; restore the file, or read "
                "a version that does not list it."
            ) from None
        except (CorruptTable, pa.ArrowException, OSError, InvalidInput) as error:
            if isinstance(error, CorruptTable) and path in str(error):
                raise
            raise CorruptTable(f"{url}: {path} is damaged: {error}") from None


@cache
def _width(kind: ColumnType) -> int:
    """Bytes that a value takes in memory, besides the bytes of texts and lists."""
    fixed = kind.domain in (Domain.INT, Domain.FLOAT)
    return -(-types.to_arrow(kind).bit_width // 8) if fixed else _REFERENCE_BYTES


def _decoded(table: pa.Table) -> pa.Table:
    """Columns that were kept as codes into few texts, as texts."""
    for at, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):
            texts = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
            name, kind = table.column_names[at], column.type.value_type
            table = table.set_column(at, name, pa.chunked_array(texts, kind))
    return table


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _total(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(length for _, length in ranges)
