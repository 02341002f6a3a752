"""What it takes to index one column of all segments: time and bytes, ours and Lance's."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Index:
    """One index over all rows."""

    seconds: float
    size_bytes: int


def our_postings(folder: Path) -> Index:
    """Build postings of `user_id` for each segment, as its writer does."""
    import strandline
    from strandline.tableformat.indexes.kinds import KINDS
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout

    table = strandline.open_table(folder)
    column = table.manifest.schema.column("user_id")
    zone_rows = table.config.zone_rows
    seconds, size = 0.0, 0
    scan = table.scan(["user_id"])
    for entry in scan.plan().segments:
        values = scan.of_segments([entry]).to_arrow().column(0)
        begun = time.perf_counter()
        zones = ColumnZones(values, column.type, ZoneLayout(len(values), zone_rows))
        built = KINDS["postings"].build(zones)
        seconds += time.perf_counter() - begun
        size += len(built.data)
    return Index(seconds, size)


def lance_btree(folder: Path, scratch: Path) -> Index:
    """Build Lance's B-tree on a copy."""
    import lance

    shutil.copytree(folder, scratch)
    begun = time.perf_counter()
    lance.dataset(str(scratch)).create_scalar_index("user_id", "BTREE")
    seconds = time.perf_counter() - begun
    files = [f for f in (scratch / "_indices").rglob("*") if f.is_file()]
    size = sum(f.stat().st_size for f in files)
    shutil.rmtree(scratch)
    return Index(seconds, size)
