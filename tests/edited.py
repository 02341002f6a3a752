"""Changes to a stored table that the library itself does not make, to see what it says then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.tableformat import codec, paths
from strandline.tableformat.manifest import CommitRecord

if TYPE_CHECKING:
    from strandline.table import Table


def commit_by_hand(table: Table, **changes: Any) -> None:
    """Write the next version of a local table with some fields of its manifest changed."""
    head = table.refresh().manifest
    stored = Path(table.url, paths.manifest_path(head.version)).read_bytes()
    record = CommitRecord(
        version=head.version + 1,
        commit_id=f"{head.version + 1:032x}",
        committed_at=head.commit.committed_at + 1,
        operation="edited",
    )
    made = replace(
        head,
        version=record.version,
        parent_xxh64=codec.checksum(stored),
        commit=record,
        history=(record, *head.history),
        **changes,
    )
    place = Path(table.url, paths.manifest_path(made.version))
    place.write_bytes(codec.encode_document(made.to_json()))


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Turn one bit of a file over."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def first_data_file(table: Table) -> Path:
    """The file with the first rows."""
    return Path(table.url, table.files().column("path")[0].as_py())
