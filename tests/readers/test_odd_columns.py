"""Columns and values that the makers of indexes do not think of first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strandline.api import create_in
from strandline.tableformat.storage import open_storage
from tests.tables import memory_url

KINDS = ["postings", "zone_map", "zone_membership"]
ROWS = 3_000


def seqs(column: pa.Array, filter: str) -> list[int]:  # noqa: A002 - as scans call it
    """Which rows of a table with one indexed column match."""
    table = create_in(
        open_storage(memory_url()),
        {"x": column.type},
        time_column=None,
        row_group_rows=1_024,
        zone_rows=128,
        indexes={"x": KINDS},
    )
    table.append(pa.table({"x": column}))
    (entry,) = table.scan().plan().segments
    assert entry.index is not None, "there is no index to ask"
    found: list[int] = table.scan(["_seq"], filter).to_arrow().column("_seq").to_pylist()
    return found


def test_a_bool_column_has_the_indexes_it_is_given() -> None:
    """[E6, E8] Parquet has no bloom filters for booleans; ours do not depend on them."""
    flags = np.arange(ROWS) % 1_000 == 0

    assert seqs(pa.array(flags), "x = TRUE") == [0, 1_000, 2_000]


def test_every_nan_is_a_nan() -> None:
    """[E11] Also a signalling one, about which arithmetic would warn."""
    values = np.arange(ROWS, dtype=np.float64)
    values.view(np.uint64)[[7, 2_500]] = [0x7FF0000000000001, 0xFFF8000000000005]

    assert seqs(pa.array(values), "x = NaN") == [7, 2_500]
    assert seqs(pa.array(values), "x > 2998") == [7, 2_500, 2_999]
