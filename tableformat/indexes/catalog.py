"""An index file: blobs back to back, then the catalog that lists them.

The catalog is a document like the others: JSON in an LZ4 frame. It stands at the end, so that a
writer can stream the blobs, and large blobs stand first: one read of the file's end gives the
catalog and everything small, the places of Parquet pages among it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson

from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.indexes.reference import IndexRef, KindsByColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FORMAT: Final = "strandline"
_KIND: Final = "index"
MAX_BLOBS: Final = 100_000
_UNLISTED: Final = frozenset({postings_blocks.KIND})
"""Blobs that serve another one: whoever looks for indexes need not know of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A blob that was built, and of what."""

    column: int
    kind: str
    data: bytes
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """Where an index lies in its file."""

    column: int
    kind: str
    offset: int
    size: int
    xxh64: str
    params: Mapping[str, Any]


@dataclass(frozen=True)
class IndexCatalog:
    """What an index file holds."""

    row_count: int
    zone_rows: int
    blobs: tuple[Blob, ...]

    @cached_property
    def _by_place(self) -> dict[tuple[int, str], Blob]:
        return {(blob.column, blob.kind): blob for blob in self.blobs}

    def find(self, column: int, kind: str) -> Blob | None:
        """The blob of a kind for a column."""
        return self._by_place.get((column, kind))


def encode_index(
    parts: Sequence[Part], row_count: int, zone_rows: int
) -> tuple[list[bytes], IndexRef]:
    """The pieces of an index file, in order, and the reference that its segment's entry carries."""
    pieces: list[bytes] = []
    blobs: list[dict[str, Any]] = []
    kinds: KindsByColumn = {}
    offset = 0
    for part in sorted(parts, key=lambda part: -len(part.data)):
        pieces.append(part.data)
        blobs.append(
            {
                "column": part.column,
                "kind": part.kind,
                "offset": str(offset),
                "bytes": str(len(part.data)),
                "xxh64": codec.checksum(part.data),
                "params": dict(part.params),
            }
        )
        offset += len(part.data)
        if part.kind not in _UNLISTED:
            kinds[part.column] = (*kinds.get(part.column, ()), part.kind)
    document = {
        "format": _FORMAT,
        "kind": _KIND,
        "row_count": str(row_count),
        "zone_rows": zone_rows,
        "blobs": blobs,
    }
    catalog = codec.encode_document(orjson.dumps(document))
    ref = IndexRef(offset + len(catalog), len(catalog), codec.checksum(catalog), kinds)
    return [*pieces, catalog], ref


def decode_catalog(data: bytes, ref: IndexRef, where: str) -> IndexCatalog:
    """Check the bytes of a catalog against its reference, and decode them."""
    if codec.checksum(data) != ref.xxh64:
        raise CorruptTable(f"{where}: the catalog does not have the checksum of its reference")
    fields = Fields(codec.decode_document(data, where), where)
    if fields.optional("format") != _FORMAT or fields.optional("kind") != _KIND:
        raise CorruptTable(f"{where} is not an index catalog")
    listed = fields.list("blobs")
    if len(listed) > MAX_BLOBS:
        raise CorruptTable(f"{where} lists {len(listed)} blobs; at most {MAX_BLOBS} are allowed")
    return IndexCatalog(
        row_count=fields.int64("row_count", least=1),
        zone_rows=fields.int32("zone_rows", least=1),
        blobs=tuple(_blob(value, ref.size_bytes - ref.catalog_bytes, where) for value in listed),
    )


def _blob(value: Any, end: int, where: str) -> Blob:
    fields = Fields(value, f"{where} blob")
    column = fields.optional("column")
    if type(column) is not int:
        raise CorruptTable(f"{where}: a blob's column is not a column id")
    blob = Blob(
        column=column,
        kind=fields.text("kind"),
        offset=fields.int64("offset"),
        size=fields.int64("bytes"),
        xxh64=fields.checksum("xxh64"),
        params=fields.object("params"),
    )
    if blob.offset + blob.size > end:
        raise CorruptTable(f"{where}: blob {blob.kind} of column {column} lies outside the file")
    return blob
