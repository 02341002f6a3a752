"""Index files from a store: catalogs and blobs, verified, opened, and kept in bounded caches.

Opened ones are kept in memory, their bytes in the local cache of the machine where there is one.

An index is never needed. One that is missing or damaged is left out and counted; the rows of its
segment are then looked at one by one, and the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.manifest_service import Part
from strandline.catalog.page_cache import ObjectKey, PageCache
from strandline.tableformat import codec, page_table
from strandline.tableformat.errors import CorruptTable, ObjectMissing
from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.indexes.catalog import Blob, IndexCatalog, decode_catalog
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.postings import POSTINGS
from strandline.tableformat.indexes.reference import SEGMENT, path_of
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.types import ColumnType

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.tableformat.indexes.postings_blocks import PartialPostings
    from strandline.tableformat.indexes.reference import IndexRef
    from strandline.tableformat.indexes.strategy import Place
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.segments import SegmentEntry

CACHE: Final = PageCache(128 * 2**20)
"""Catalogs and opened indexes of all tables of the process."""
FIRST_READ_BYTES: Final = 128 * 2**10
"""Of the end of an index file: the catalog, and with it most often everything small."""
MOST_PARTS: Final = 4
"""So often are postings read in part; a whole read costs about as much as that."""
_NUMBERS: Final = ColumnType("int64")

Range = tuple[str, int, int]


@dataclass(slots=True, eq=False)
class SegmentIndexes:
    """The indexes of one segment, as far as they were asked for and could be read."""

    entry: SegmentEntry
    layout: ZoneLayout
    opened: dict[Place, Any]

    @property
    def pages(self) -> page_table.PageTable | None:
        """Where the Parquet pages of the segment lie."""
        found: page_table.PageTable | None = self.opened.get((SEGMENT, PAGES))
        return found


class IndexReader:
    """Reads the indexes of many segments in few requests."""

    def __init__(self, service: ManifestService, schema: Schema) -> None:
        self._service, self._storage, self._schema = service, service.storage, schema
        self._fresh: list[tuple[Part, bytes]] = []
        """What came from the store and was found right, to be kept on this machine."""
        self.failures: list[str] = []
        """What could not be used, and why."""
        self.bytes_read = 0

    def load(
        self, wanted: Sequence[tuple[SegmentEntry, Collection[Place]]]
    ) -> list[SegmentIndexes | None]:
        """The named indexes of each segment; None for a segment whose catalog cannot be used."""
        catalogs, ends = self._catalogs([entry for entry, _ in wanted])
        loaded: list[SegmentIndexes | None] = []
        missing: list[tuple[SegmentIndexes, Blob]] = []
        for (entry, places), catalog, end in zip(wanted, catalogs, ends, strict=True):
            if catalog is None:
                loaded.append(None)
                continue
            layout = ZoneLayout(catalog.row_count, catalog.zone_rows)
            indexes = SegmentIndexes(entry, layout, {})
            loaded.append(indexes)
            for place in places:
                blob = catalog.find(*place)
                if blob is None:
                    self._fail(entry, f"the catalog does not list {place[1]} of column {place[0]}")
                elif not (
                    self._from_memory(indexes, blob, end)
                    or self._in_part(indexes, blob, catalog, end)
                ):
                    missing.append((indexes, blob))
        self._open_all(missing)
        self._service.keep_copies(self._fresh)
        self._fresh.clear()
        return loaded

    # --- catalogs ---

    def _catalogs(
        self, entries: Sequence[SegmentEntry]
    ) -> tuple[list[IndexCatalog | None], list[bytes]]:
        """Catalogs, and what else was read with them: the end of the blobs' part of each file."""
        found: dict[int, tuple[IndexCatalog | None, bytes]] = {}
        unread: list[tuple[int, SegmentEntry, IndexRef]] = []
        for number, entry in enumerate(entries):
            ref = entry.index
            assert ref is not None
            known = CACHE.get(self._key(entry, ref.xxh64))
            if known is not None:
                found[number] = (known, b"")
            else:
                unread.append((number, entry, ref))
        copies = self._service.local_copies([_catalog_part(e, ref) for _, e, ref in unread])
        ranges = [
            _end_range(entry, ref)
            for (_, entry, ref), copy in zip(unread, copies, strict=True)
            if copy is None
        ]
        read = iter(self._read(ranges))
        for (number, entry, ref), copy in zip(unread, copies, strict=True):
            data = next(read) if copy is None else copy
            found[number] = self._catalog(entry, ref, data)
            if copy is None and isinstance(data, bytes) and found[number][0] is not None:
                self._fresh.append((_catalog_part(entry, ref), data[-ref.catalog_bytes :]))
        ordered = [found[number] for number in range(len(entries))]
        return [catalog for catalog, _ in ordered], [end for _, end in ordered]

    def _catalog(
        self, entry: SegmentEntry, ref: IndexRef, data: bytes | Unread
    ) -> tuple[IndexCatalog | None, bytes]:
        try:
            held = _as_read(data)
            catalog = decode_catalog(held[-ref.catalog_bytes :], ref, path_of(entry.path))
        except (CorruptTable, ObjectMissing) as error:
            self._fail(entry, str(error))
            return None, b""
        if catalog.row_count != entry.row_count:
            said = f"it speaks of {catalog.row_count} rows, the manifest of {entry.row_count}"
            self._fail(entry, said)
            return None, b""
        CACHE.put(self._key(entry, ref.xxh64), catalog, 4 * ref.catalog_bytes)
        return catalog, held[: -ref.catalog_bytes]

    # --- blobs ---

    def _from_memory(self, indexes: SegmentIndexes, blob: Blob, end: bytes) -> bool:
        """Take an index from the cache, or from the bytes that came with the catalog."""
        known = CACHE.get(self._blob_key(indexes.entry, blob))
        if known is not None:
            indexes.opened[(blob.column, blob.kind)] = known
            return True
        data = _within(indexes.entry, blob, end)
        if data is None:
            return False
        self._open_fresh(indexes, blob, data)
        return True

    def _in_part(
        self, indexes: SegmentIndexes, blob: Blob, catalog: IndexCatalog, end: bytes
    ) -> bool:
        """Take large postings so that a lookup reads some blocks of them.

        Only where a read costs little and nothing is kept on this machine; and a few times only:
        who comes again and again is better off with all of it in memory.
        """
        if blob.kind != POSTINGS or not self._storage.is_local or self._service.cache is not None:
            return False
        entry, blocks = indexes.entry, catalog.find(blob.column, postings_blocks.KIND)
        if blocks is None:
            return False
        key = self._blob_key(entry, blocks)
        kept: _InPart | None = CACHE.get(key)
        if kept is None:
            try:
                kept = _InPart(self._blocks(indexes, blob, blocks, end))
            except (CorruptTable, ObjectMissing) as error:
                self._fail(entry, f"{blocks.kind} of column {blob.column}: {error}")
                return False
            CACHE.put(key, kept, 2 * blocks.size)
        kept.times += 1
        if kept.times > MOST_PARTS:
            return False
        read = partial(self._read_blocks, entry, blob.offset)
        indexes.opened[(blob.column, blob.kind)] = replace(kept.index, read=read)
        return True

    def _blocks(
        self, indexes: SegmentIndexes, blob: Blob, blocks: Blob, end: bytes
    ) -> PartialPostings:
        data = self._part_of(indexes.entry, blocks, end)
        column = self._schema.by_id.get(blob.column)
        if codec.checksum(data) != blocks.xxh64 or column is None:
            raise CorruptTable("it does not have the checksum that the catalog gives")
        return postings_blocks.open(
            data, size_bytes=blob.size, zone_count=indexes.layout.count, kind=column.type
        )

    def _part_of(self, entry: SegmentEntry, blob: Blob, end: bytes) -> bytes:
        """A blob that most often came with the catalog."""
        data = _within(entry, blob, end)
        if data is None:
            (read,) = self._read([(path_of(entry.path), blob.offset, blob.size)])
            data = _as_read(read)
        return data

    def _read_blocks(
        self, entry: SegmentEntry, offset: int, ranges: Sequence[tuple[int, int]]
    ) -> list[bytes]:
        path = path_of(entry.path)
        try:
            return [
                _as_read(data)
                for data in self._read([(path, offset + start, size) for start, size in ranges])
            ]
        except ObjectMissing as error:
            raise CorruptTable(str(error)) from None

    def _open_all(self, missing: Sequence[tuple[SegmentIndexes, Blob]]) -> None:
        """Open blobs of the local cache, and of the store what is not there."""
        copies = self._service.local_copies([_blob_part(i.entry, blob) for i, blob in missing])
        unread = []
        for (indexes, blob), copy in zip(missing, copies, strict=True):
            if copy is None:
                unread.append((indexes, blob))
            else:
                self._open(indexes, blob, copy)
        ranges = [(path_of(i.entry.path), blob.offset, blob.size) for i, blob in unread]
        for (indexes, blob), data in zip(unread, self._read(ranges), strict=True):
            self._open_fresh(indexes, blob, data)

    def _open_fresh(self, indexes: SegmentIndexes, blob: Blob, data: bytes | Unread) -> None:
        self._open(indexes, blob, data)
        if isinstance(data, bytes) and (blob.column, blob.kind) in indexes.opened:
            self._fresh.append((_blob_part(indexes.entry, blob), data))

    def _open(self, indexes: SegmentIndexes, blob: Blob, data: bytes | Unread) -> None:
        entry = indexes.entry
        try:
            opened = self._opened(indexes, blob, _as_read(data))
        except (CorruptTable, ObjectMissing) as error:
            self._fail(entry, f"{blob.kind} of column {blob.column}: {error}")
            return
        indexes.opened[(blob.column, blob.kind)] = opened
        CACHE.put(self._blob_key(entry, blob), opened, 2 * blob.size)

    def _opened(self, indexes: SegmentIndexes, blob: Blob, data: bytes) -> Any:
        if codec.checksum(data) != blob.xxh64:
            raise CorruptTable("it does not have the checksum that the catalog gives")
        if blob.kind == PAGES:
            entry = indexes.entry
            return page_table.open(data, row_count=entry.row_count, size_bytes=entry.size_bytes)
        column = self._schema.by_id.get(blob.column)
        if column is None and blob.column != TS_ID:
            raise CorruptTable("the table has no such column")
        kind = _NUMBERS if column is None else column.type
        return KINDS[blob.kind].open(data, blob.params, indexes.layout, kind)

    # --- storage ---

    def _read(self, ranges: Sequence[Range]) -> list[bytes | Unread]:
        """Each range, or what is wrong with it: one lost file must not hide the others."""
        if not ranges:
            return []
        try:
            blobs: list[bytes | Unread] = list(self._storage.read_ranges(ranges))
        except (CorruptTable, ObjectMissing) as error:
            if len(ranges) == 1:
                return [Unread(error)]
            return [self._read([one])[0] for one in ranges]
        self.bytes_read += sum(length for _, _, length in ranges)
        return blobs

    def _fail(self, entry: SegmentEntry, why: str) -> None:
        self.failures.append(f"{path_of(entry.path)}: {why}")

    def _key(self, entry: SegmentEntry, identity: str) -> ObjectKey:
        return ObjectKey(self._storage.url, path_of(entry.path), identity)

    def _blob_key(self, entry: SegmentEntry, blob: Blob) -> ObjectKey:
        return self._key(entry, f"{blob.xxh64} {blob.kind} of {blob.column}")


@dataclass(slots=True, eq=False)
class _InPart:
    """Postings of which only the blocks are known, and how often these were asked."""

    index: PartialPostings
    times: int = 0


@dataclass(frozen=True, slots=True)
class Unread:
    """In place of bytes that could not be read."""

    error: CorruptTable | ObjectMissing


def _as_read(data: bytes | Unread) -> bytes:
    if isinstance(data, Unread):
        raise data.error
    return data


def _within(entry: SegmentEntry, blob: Blob, end: bytes) -> bytes | None:
    """A blob out of the end of the blobs' part of the file; None: it begins before that."""
    ref = entry.index
    assert ref is not None
    start = blob.offset - (ref.size_bytes - ref.catalog_bytes - len(end))
    return None if start < 0 else end[start : start + blob.size]


def _catalog_part(entry: SegmentEntry, ref: IndexRef) -> Part:
    start = ref.size_bytes - ref.catalog_bytes
    return Part(path_of(entry.path), start, ref.catalog_bytes, ref.xxh64)


def _blob_part(entry: SegmentEntry, blob: Blob) -> Part:
    return Part(path_of(entry.path), blob.offset, blob.size, blob.xxh64)


def _end_range(entry: SegmentEntry, ref: IndexRef) -> Range:
    length = min(ref.size_bytes, max(ref.catalog_bytes, FIRST_READ_BYTES))
    return path_of(entry.path), ref.size_bytes - length, length
