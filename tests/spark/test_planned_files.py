"""What the driver hands to Java for each file of a plan; needs no Spark."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

import strandline
from strandline.spark import sources
from strandline.spark.request import ReadRequest
from strandline.tableformat import rolling

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("most_footers", [-1, 1_000], ids=["columns", "records"])
def test_numbers_travel_in_javas_byte_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_footers: int
) -> None:
    """[X2] Sizes, times, first numbers and windows, of segments in pages and of inline ones."""
    for name, value in {"ROLL_AT": 4, "ROLL_STEP": 2, "LEAST_PAGE": 2}.items():
        monkeypatch.setattr(rolling, name, value)
    monkeypatch.setattr(sources, "MAX_FOOTERS", most_footers)
    table = strandline.create_table(tmp_path / "t", {"ts": "int64"}, time_column="ts")
    for batch in range(9):
        table.append([{"ts": batch * 10**9 + i} for i in range(3)])
    known = sources.Sources()
    wanted = {"start_seq": 4, "end_seq": 20}
    state = known.open(table.url, ReadRequest(**wanted))["state"]
    found: dict[str, tuple[int, ...]] = {}

    for part in ("whole", "cut"):
        packed = known.plan(state, part, [])
        (count,) = struct.unpack_from(">i", packed)
        numbers = np.frombuffer(packed, ">i8", 4 * count, 4).reshape(4, count)
        names = packed[4 + 32 * count :].decode().split("\n")
        found |= dict(zip(names, map(tuple, numbers.T.tolist()), strict=True))
        assert count == {"whole": 4, "cut": 2}[part]

    for entry in (split.entry for split in table.scan(**wanted).plan().splits):
        expected = (entry.size_bytes, entry.created_at, entry.min_seq, entry.window.start_ms)
        assert found.pop(entry.path) == expected
    assert not found
