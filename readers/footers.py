"""Footers of data segments: checked against the manifest, parsed once, and kept for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.catalog.manifest_service import Part
from strandline.catalog.page_cache import PAGES, ObjectKey
from strandline.readers.sources import ChunkSource
from strandline.tableformat import codec
from strandline.tableformat.config import USER_SCOPE
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.parquet_footer import MAGIC, TAIL_BYTES

if TYPE_CHECKING:
    from strandline.catalog.manifest_service import ManifestService
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

_PARSED_WEIGHT: Final = 10
"""A parsed footer takes about so many times its bytes."""


def footer_range(entry: SegmentEntry) -> tuple[int, int]:
    """Where the footer is, its length and magic behind it included."""
    size = entry.footer_bytes + TAIL_BYTES
    return entry.size_bytes - size, size


def cached_source(storage: Storage, manifest: Manifest, entry: SegmentEntry) -> ChunkSource | None:
    """The file's chunks, if this process has seen its footer and keeps it."""
    found: ChunkSource | None = PAGES.get(_key(storage, entry)) if _is_kept(manifest) else None
    return found


def _is_kept(manifest: Manifest) -> bool:
    """Users are many: reading all of them once must not push out what all tables share."""
    return manifest.config.scope != USER_SCOPE


def local_copy(service: ManifestService | None, entry: SegmentEntry) -> bytes | None:
    """The bytes at `footer_range`, if the local cache has the footer."""
    (found,) = [None] if service is None else service.local_copies([_part(entry)])
    return None if found is None else found + _ending(entry)


def keep_copy(service: ManifestService | None, entry: SegmentEntry, tail: memoryview) -> None:
    """Copy a footer that was checked to the local cache."""
    if service is not None:
        service.keep_copies([(_part(entry), bytes(tail[:-TAIL_BYTES]))])


def _part(entry: SegmentEntry) -> Part:
    start, size = footer_range(entry)
    return Part(entry.path, start, size - TAIL_BYTES, entry.footer_xxh64)


def _ending(entry: SegmentEntry) -> bytes:
    return entry.footer_bytes.to_bytes(4, "little") + MAGIC


def check_footer(storage: Storage, entry: SegmentEntry, tail: bytes | memoryview) -> None:
    """Refuse bytes at `footer_range` that are not what the manifest says."""
    ending = tail[-TAIL_BYTES:]
    if codec.checksum(tail[:-TAIL_BYTES]) != entry.footer_xxh64 or ending != _ending(entry):
        raise CorruptTable(
            f"{storage.url}: the footer of {entry.path} does not have the checksum that the "
            "manifest gives. The file was damaged or overwritten."
        )


def checked_footer(
    storage: Storage, entry: SegmentEntry, tail: bytes | memoryview
) -> pq.FileMetaData:
    """The file's footer by the bytes at `footer_range`, once they are what the manifest says."""
    check_footer(storage, entry, tail)
    footer = pq.read_metadata(pa.BufferReader(tail))
    if footer.num_rows != entry.row_count:
        raise CorruptTable(
            f"{storage.url}: {entry.path} holds {footer.num_rows} rows; the manifest says "
            f"{entry.row_count}"
        )
    return footer


def checked_source(
    storage: Storage, manifest: Manifest, entry: SegmentEntry, tail: bytes | memoryview
) -> ChunkSource:
    """The file's chunks by its checked footer, which is kept for the next time."""
    footer = checked_footer(storage, entry, tail)
    source = ChunkSource(footer)
    if source.group_starts[-1] != entry.row_count:
        raise CorruptTable(f"{storage.url}: the row groups of {entry.path} do not add up")
    if _is_kept(manifest):
        PAGES.put(_key(storage, entry), source, _PARSED_WEIGHT * entry.footer_bytes)
    return source


def _key(storage: Storage, entry: SegmentEntry) -> ObjectKey:
    return ObjectKey(storage.url, entry.path, entry.footer_xxh64)
