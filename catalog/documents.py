"""Pages beside the manifest: read whole, checked against their reference, cached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from strandline.catalog.page_cache import PAGES
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable, MissingFile, ObjectMissing
from strandline.tableformat.fields import Fields
from strandline.tableformat.manifest import (
    FORMAT_NAME,
    DocumentRef,
    Manifest,
    Position,
    position_from_json,
)
from strandline.tableformat.pages import SegmentPage
from strandline.tableformat.segments import PageRef, WindowEntry, window_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from strandline.tableformat.storage import Storage

WINDOWS = "windows"
POSITIONS = "positions"


def _read_pages(
    storage: Storage,
    refs: Sequence[PageRef | DocumentRef],
    decode: Callable[[Any, bytes], Any],
) -> list[Any]:
    """Decoded pages in the order of `refs`; those not cached are fetched together."""
    keys = [(storage.url, ref.path, ref.xxh64) for ref in refs]
    found = {key: PAGES.get(key) for key in keys}
    missing = [(key, ref) for key, ref in zip(keys, refs, strict=True) if found[key] is None]
    if missing:
        try:
            blobs = storage.read_ranges([(ref.path, 0, ref.object_bytes) for _, ref in missing])
        except ObjectMissing as error:
            raise MissingFile(
                f"{storage.url}: a page that the manifest lists is missing ({error}). Rows cannot "
                "be read without it; restore it from a copy of the table."
            ) from None
        for (key, ref), data in zip(missing, blobs, strict=True):
            if codec.checksum(data) != ref.xxh64:
                raise CorruptTable(
                    f"{storage.url}: page {ref.path} does not have the checksum that the manifest "
                    "gives. It was damaged or overwritten; restore it from a copy of the table."
                )
            page = decode(ref, data)
            PAGES.put(key, page, 4 * ref.object_bytes)
            found[key] = page
    return [found[key] for key in keys]


def segment_pages(storage: Storage, refs: Sequence[PageRef]) -> list[SegmentPage]:
    """Pages of segments."""
    return _read_pages(storage, refs, SegmentPage)


# --- windows -----------------------------------------------------------------------------------


def encode_windows(entries: Sequence[WindowEntry]) -> bytes:
    """The bytes of a window page."""
    listed = [orjson.Fragment(entry.to_json()) for entry in entries]
    return codec.encode_document(
        orjson.dumps({"format": FORMAT_NAME, "kind": WINDOWS, "windows": listed})
    )


def window_pages(storage: Storage, refs: Sequence[PageRef]) -> list[tuple[WindowEntry, ...]]:
    """Pages of folded windows."""
    return _read_pages(storage, refs, _decode_windows)


def _decode_windows(ref: PageRef, data: bytes) -> tuple[WindowEntry, ...]:
    entries = tuple(window_from_json(w) for w in _document(ref, data, WINDOWS).list("windows"))
    if len(entries) != ref.entries:
        raise CorruptTable(f"page {ref.path} lists {len(entries)} windows, not {ref.entries}")
    return entries


# --- writer positions --------------------------------------------------------------------------


def encode_positions(positions: Mapping[str, Position]) -> bytes:
    """The bytes of a page of writer positions, sorted by id."""
    listed = {key: positions[key].to_json() for key in sorted(positions)}
    return codec.encode_document(
        orjson.dumps({"format": FORMAT_NAME, "kind": POSITIONS, "positions": listed})
    )


def position_pages(storage: Storage, refs: Sequence[DocumentRef]) -> list[dict[str, Position]]:
    """Pages of folded writer positions."""
    return _read_pages(storage, refs, _decode_positions)


def _decode_positions(ref: DocumentRef, data: bytes) -> dict[str, Position]:
    listed = _document(ref, data, POSITIONS).object("positions")
    if len(listed) != ref.entries:
        raise CorruptTable(f"page {ref.path} lists {len(listed)} positions, not {ref.entries}")
    return {key: position_from_json(value) for key, value in listed.items()}


def cold_positions(
    storage: Storage, manifest: Manifest, writer_ids: Iterable[str]
) -> dict[str, Position]:
    """What pages say of writers that the manifest itself does not list; later pages win."""
    unknown = [key for key in writer_ids if key not in manifest.positions]
    refs = [
        ref
        for ref in manifest.position_pages
        if any(ref.min_id <= key <= ref.max_id for key in unknown)
    ]
    found: dict[str, Position] = {}
    for page in position_pages(storage, refs):
        found.update({key: page[key] for key in unknown if key in page})
    return found


def _document(ref: PageRef | DocumentRef, data: bytes, kind: str) -> Fields:
    fields = Fields(codec.decode_document(data, f"page {ref.path}"), f"page {ref.path}")
    if fields.optional("format") != FORMAT_NAME or fields.optional("kind") != kind:
        raise CorruptTable(f"page {ref.path} is not a page of {kind}")
    return fields
