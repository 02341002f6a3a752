"""What a segment entry says of its index file: enough to choose without looking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

SEGMENT: Final = 0
"""In place of a column id: the blob speaks of the segment as a whole."""
SUFFIX: Final = ".icx"
_DATA_SUFFIX: Final = ".parquet"

KindsByColumn = dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class IndexRef:
    """The index file of a segment. It lies beside the segment, under the same name."""

    size_bytes: int
    catalog_bytes: int
    """Length of the catalog, with which the file ends."""
    xxh64: str
    """Of the catalog; the catalog in turn has a checksum for each blob."""
    kinds: KindsByColumn
    """Column id → the kinds it has, so that nobody opens a file that cannot help."""

    def to_json(self) -> dict[str, Any]:
        return {
            "size_bytes": str(self.size_bytes),
            "catalog_bytes": self.catalog_bytes,
            "xxh64": self.xxh64,
            "kinds": kinds_to_json(self.kinds),
        }


def path_of(segment_path: str) -> str:
    """Where the index file of a segment lies."""
    return segment_path.removesuffix(_DATA_SUFFIX) + SUFFIX


def kinds_to_json(kinds: KindsByColumn) -> dict[str, list[str]]:
    """Kinds by column as they stand in an entry or a configuration."""
    return {str(column): list(names) for column, names in sorted(kinds.items())}


def kinds_from_json(value: Mapping[str, Any], where: str) -> KindsByColumn:
    """Decode and check kinds by column. Kinds of the future are kept: they are only names."""
    out: KindsByColumn = {}
    for key, names in value.items():
        column = _column_id(key, where)
        if type(names) is not list or any(type(name) is not str for name in names):
            raise CorruptTable(f"{where}: the kinds of column {column} are not a list of names")
        out[column] = tuple(names)
    return out


def _column_id(text: str, where: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and str(int(digits[:12])) == digits):
        raise CorruptTable(f"{where}: {text[:40]!r} is not a column id")
    return int(text)


def index_from_json(value: Any, where: str) -> IndexRef:
    """Decode and check a reference to an index file."""
    fields = Fields(value, f"{where}.index")
    ref = IndexRef(
        size_bytes=fields.int64("size_bytes", least=1),
        catalog_bytes=fields.int32("catalog_bytes", least=1),
        xxh64=fields.checksum("xxh64"),
        kinds=kinds_from_json(fields.object("kinds"), fields.where),
    )
    if ref.catalog_bytes > ref.size_bytes:
        raise CorruptTable(f"{fields.where}: the catalog is larger than its file")
    return ref
