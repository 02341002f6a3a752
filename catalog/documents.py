"""Pages beside the manifest: read whole, through the manifest service, and decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from strandline.catalog.manifest_service import Part
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable
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

    from strandline.catalog.manifest_service import ManifestService

WINDOWS = "windows"
POSITIONS = "positions"


def _read_pages(
    service: ManifestService,
    refs: Sequence[PageRef | DocumentRef],
    decode: Callable[[Any, bytes], Any],
) -> list[Any]:
    """Decoded pages in the order of `refs`."""
    parts = [Part(ref.path, 0, ref.object_bytes, ref.xxh64) for ref in refs]
    return service.get_or_load(parts, lambda i, data: decode(refs[i], data))


def segment_pages(service: ManifestService, refs: Sequence[PageRef]) -> list[SegmentPage]:
    """Pages of segments."""
    return _read_pages(service, refs, SegmentPage)


# --- windows -----------------------------------------------------------------------------------


def encode_windows(entries: Sequence[WindowEntry]) -> bytes:
    """The bytes of a window page."""
    listed = [orjson.Fragment(entry.to_json()) for entry in entries]
    return codec.encode_document(
        orjson.dumps({"format": FORMAT_NAME, "kind": WINDOWS, "windows": listed})
    )


def window_pages(
    service: ManifestService, refs: Sequence[PageRef]
) -> list[tuple[WindowEntry, ...]]:
    """Pages of folded windows."""
    return _read_pages(service, refs, _decode_windows)


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


def position_pages(
    service: ManifestService, refs: Sequence[DocumentRef]
) -> list[dict[str, Position]]:
    """Pages of folded writer positions."""
    return _read_pages(service, refs, _decode_positions)


def _decode_positions(ref: DocumentRef, data: bytes) -> dict[str, Position]:
    listed = _document(ref, data, POSITIONS).object("positions")
    if len(listed) != ref.entries:
        raise CorruptTable(f"page {ref.path} lists {len(listed)} positions, not {ref.entries}")
    return {key: position_from_json(value) for key, value in listed.items()}


def cold_positions(
    service: ManifestService, manifest: Manifest, writer_ids: Iterable[str]
) -> dict[str, Position]:
    """What pages say of writers that the manifest itself does not list; later pages win."""
    unknown = [key for key in writer_ids if key not in manifest.positions]
    refs = [
        ref
        for ref in manifest.position_pages
        if any(ref.min_id <= key <= ref.max_id for key in unknown)
    ]
    found: dict[str, Position] = {}
    for page in position_pages(service, refs):
        found.update({key: page[key] for key in unknown if key in page})
    return found


def _document(ref: PageRef | DocumentRef, data: bytes, kind: str) -> Fields:
    fields = Fields(codec.decode_document(data, f"page {ref.path}"), f"page {ref.path}")
    if fields.optional("format") != FORMAT_NAME or fields.optional("kind") != kind:
        raise CorruptTable(f"page {ref.path} is not a page of {kind}")
    return fields
