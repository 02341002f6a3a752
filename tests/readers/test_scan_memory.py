"""A stream of batches over a table many times its budget: memory stays where it is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.readers.request import Request
from strandline.readers.scan import Scan
from tests.tables import START_MS

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
BUDGET_BYTES = 16 * MIB
SEGMENTS, ROWS = 8, 250_000
WIDTH = 90
"""Bytes that a row takes in memory, at least."""

_CHILD = """
import concurrent.futures, json, sys
import pyarrow as pa
import strandline
from strandline.readers.read_ahead import ReadAhead
from strandline.readers.request import Request
from strandline.readers.scan import Scan

# The caller takes its time: whatever may be read ahead is there before it gets a batch.
top_up = ReadAhead._top_up

def top_up_and_wait(self):
    top_up(self)
    concurrent.futures.wait([task.future for task in self._tasks if task.future is not None])

ReadAhead._top_up = top_up_and_wait

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

root, options = sys.argv[1], json.loads(sys.argv[2])
table = strandline.open_table(root)
manifest = table.manifest

def scan(**more):
    request = Request(**{**options, **more})
    return Scan(table._chain.service, manifest, request, floor_ts=0, trim_seq=0)

sum(batch.num_rows for batch in scan(limit=1).to_batches())  # what any scan loads
before = peak_bytes()
rows = 0
most_rows = most_arrow = 0
for batch in scan().to_batches():
    rows += batch.num_rows
    most_rows = max(most_rows, batch.num_rows)
    most_arrow = max(most_arrow, pa.total_allocated_bytes())
print(json.dumps([rows, most_rows, most_arrow, peak_bytes() - before]))
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that takes ten times the budget in memory."""
    path = tmp_path_factory.mktemp("memory") / "t"
    table = strandline.create_table(
        path,
        {"at": "int64", "text": "string", "a": "float64", "b": "float64"},
        time_column="at",
        row_group_rows=16_384,
    )
    random = np.random.default_rng(1)
    for segment in range(SEGMENTS):
        numbers = np.arange(segment * ROWS, (segment + 1) * ROWS)
        table.append(
            pa.table(
                {
                    "at": START_MS + numbers,
                    "text": pa.array(np.char.mod("%060d", numbers)),
                    "a": random.random(ROWS),
                    "b": random.random(ROWS),
                }
            )
        )
    assert SEGMENTS * ROWS * WIDTH > 10 * BUDGET_BYTES
    return path


def measured(root: Path, **options: Any) -> tuple[int, int, int, int]:
    """Rows, rows of the largest batch, most Arrow bytes, and growth of the process."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(root), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, most_rows, most_arrow, grown = json.loads(done.stdout)
    return rows, most_rows, most_arrow, grown


def test_memory_stays_within_a_small_multiple_of_the_budget(root: Path) -> None:
    """[E10] All rows pass through; what waits is bounded, and so is a batch."""
    rows, most_rows, most_arrow, grown = measured(root, memory_bytes=BUDGET_BYTES)
    assert rows == SEGMENTS * ROWS
    assert most_rows <= 65_536
    assert most_arrow <= 2 * BUDGET_BYTES
    # The allocator keeps some of what it was given back; that does not grow with the table.
    assert grown <= 6 * BUDGET_BYTES


def test_a_filter_does_not_change_that(root: Path) -> None:
    """[E10] Also where every second row is dropped and the rest is put together."""
    rows, _, most_arrow, grown = measured(root, memory_bytes=BUDGET_BYTES, filter="a < 0.5")
    assert 0.45 < rows / (SEGMENTS * ROWS) < 0.55
    assert most_arrow <= 2 * BUDGET_BYTES
    assert grown <= 6 * BUDGET_BYTES


SHARDED_SEGMENTS, SHARDED_ROWS = 4, 125_000


@pytest.fixture(scope="module")
def sharded_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files after compaction, each with a quarter of the rows of every append."""
    path = tmp_path_factory.mktemp("memory") / "sharded"
    table = strandline.create_table(
        path,
        {"at": "int64", "user": "string", "text": "string", "a": "float64"},
        time_column="at",
        row_group_rows=4_096,
        shard_by="user",
        shards=4,
    )
    random = np.random.default_rng(1)
    for segment in range(SHARDED_SEGMENTS):
        numbers = np.arange(segment * SHARDED_ROWS, (segment + 1) * SHARDED_ROWS)
        table.append(
            pa.table(
                {
                    "at": START_MS + numbers,
                    "user": np.char.mod("u%d", random.integers(0, 500, SHARDED_ROWS)),
                    "text": pa.array(np.char.mod("%060d", numbers)),
                    "a": random.random(SHARDED_ROWS),
                }
            )
        )
    table.compact()
    assert table.files().num_rows == 4
    return path


@pytest.mark.parametrize("options", [{}, {"filter": "a < 0.5"}])
def test_shards_after_compaction_are_not_held_as_a_whole(
    sharded_root: Path, options: dict[str, Any]
) -> None:
    """[E10] All files overlap in `_seq`; they are read side by side, a part at a time."""
    budget = BUDGET_BYTES // 2
    count = SHARDED_SEGMENTS * SHARDED_ROWS
    assert count * WIDTH > 5 * budget

    rows, _, most_arrow, _ = measured(sharded_root, memory_bytes=budget, **options)

    assert rows == count if not options else 0.45 < rows / count < 0.55
    assert most_arrow <= 2 * budget


@pytest.mark.parametrize(
    "options", [{}, {"filter": "a < 0.5"}, {"limit": 2_999}, {"filter": "a < 0.5", "limit": 999}]
)
def test_a_budget_for_less_than_one_row_group_only_makes_a_scan_slower(
    root: Path, options: dict[str, Any]
) -> None:
    """[E10] The next in line is read even while others, read ahead, have taken all of it."""
    table = strandline.open_table(root)
    want = table.scan(**options).to_arrow()
    for budget in (1, 2 * MIB, 4 * MIB, 8 * MIB):
        request = Request(memory_bytes=budget, **options)
        scan = Scan(table._chain.service, table.manifest, request, floor_ts=0, trim_seq=0)  # noqa: SLF001
        assert scan.to_arrow() == want
