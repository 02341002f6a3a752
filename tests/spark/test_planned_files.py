"""What the driver hands to Java for each file of a plan; needs no Spark."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

import strandline
from strandline.spark import sources
from strandline.spark.request import ReadRequest
from strandline.tableformat import rolling

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_numbers_travel_in_javas_byte_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X2] What Java is told of a file, of segments in pages and of inline ones."""
    for name, value in {"ROLL_AT": 4, "ROLL_STEP": 2, "LEAST_PAGE": 2}.items():
        monkeypatch.setattr(rolling, name, value)
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
        numbers = np.frombuffer(packed, ">i8", 6 * count, 4).reshape(6, count)
        names = packed[4 + 48 * count :].decode().split("\n")
        found |= dict(zip(names, map(tuple, numbers.T.tolist()), strict=True))
        assert count == {"whole": 4, "cut": 2}[part]

    for entry in (split.entry for split in table.scan(**wanted).plan().splits):
        expected = (entry.size_bytes, entry.created_at, entry.min_seq, entry.window.start_ms)
        *numbers_of_file, footer_hash = found.pop(entry.path)
        assert tuple(numbers_of_file) == (*expected, entry.footer_bytes)
        assert f"{footer_hash % 2**64:016x}" == entry.footer_xxh64
    assert not found
