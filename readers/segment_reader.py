"""Reading one data segment as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.readers.split_reader import read_split
from strandline.readers.splits import Split

if TYPE_CHECKING:
    from collections.abc import Collection

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage


def read_segment(
    storage: Storage, manifest: Manifest, entry: SegmentEntry, column_ids: Collection[int]
) -> pa.Table:
    """The named columns of a segment, under their current names and types, hidden ones too."""
    return pa.concat_tables(read_split(storage, manifest, Split(entry), column_ids))
