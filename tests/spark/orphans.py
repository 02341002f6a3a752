"""Files of tasks that do not count: written, listed nowhere, and removed by vacuum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import strandline
from tests.spark.source_tables import numbers_of

if TYPE_CHECKING:
    from pathlib import Path


def check_orphans(place: Path, table: strandline.Table) -> None:
    """Attempts that do not count left files, which vacuum finds and the table never lists."""
    rows = numbers_of(table)
    listed = set(table.files().column("path").to_pylist())
    orphans = {str(path.relative_to(place)) for path in place.rglob("w*/*/*.parquet")} - listed
    assert orphans
    removed = strandline.open_table(table.url).vacuum(dry_run=False, grace=0).removed
    assert orphans <= {str(path) for path in removed}
    assert not [name for name in orphans if (place / name).exists()]
    assert numbers_of(table) == rows
