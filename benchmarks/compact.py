"""Compaction of many small segments, beside Delta's optimize; and what writers notice of it.

    python benchmarks/compact.py --segments 1000 --rows 1000

Both sides are checked: every row is there afterwards, once.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline

START_MS = 1_700_000_000_000


def rows(first: int, count: int) -> pa.Table:
    """Events of a minute, with a key of few values and one of many."""
    numbers = np.arange(first, first + count)
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "ts": pa.array((START_MS + numbers) * 1000, pa.timestamp("us", "UTC")),
            "id": numbers,
            "user": pa.array([f"user-{n}" for n in chance.integers(0, 500, count)]),
            "amount": chance.random(count),
        }
    )


def ours(root: Path, segments: int, size: int) -> strandline.Table:
    """A table of so many appends."""
    table = strandline.create_table(str(root), rows(0, 1).schema, time_column="ts")
    for number in range(segments):
        table.append(rows(number * size, size))
    return table


def compact_ours(root: Path, segments: int, size: int) -> float:
    """Rows per second of a compaction."""
    table = ours(root, segments, size)
    start = time.perf_counter()
    report = table.compact()
    seconds = time.perf_counter() - start
    assert report.rows == segments * size
    assert table.scan(["id"]).to_arrow().column("id").to_pylist() == list(range(segments * size))
    return report.rows / seconds


def compact_delta(root: Path, segments: int, size: int) -> float:
    """Rows per second of Delta's optimize."""
    import deltalake

    for number in range(segments):
        deltalake.write_deltalake(str(root), rows(number * size, size), mode="append")
    table = deltalake.DeltaTable(str(root))
    start = time.perf_counter()
    table.optimize.compact()
    seconds = time.perf_counter() - start
    found = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["id"])
    assert found.num_rows == segments * size
    return segments * size / seconds


def commit_rate(root: Path, segments: int, size: int, *, compacting: bool) -> float:
    """Appends per second, with or without a compaction beside them."""
    table = ours(root, segments, size)
    stop = threading.Event()

    def compact() -> None:
        other = strandline.open_table(str(root))
        while not stop.is_set():
            other.compact(min_segments=16, bytes_per_s=20_000_000)
            stop.wait(0.05)

    worker = threading.Thread(target=compact) if compacting else None
    if worker is not None:
        worker.start()
    times = []
    for number in range(200):
        start = time.perf_counter()
        table.append(rows(10**8 + number * 10, 10))
        times.append(time.perf_counter() - start)
    stop.set()
    if worker is not None:
        worker.join()
    return 1 / statistics.mean(times)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rate = compact_ours(root / "ours", given.segments, given.rows)
        print(f"strandline compact: {rate:,.0f} rows/s")
        if importlib.util.find_spec("deltalake"):
            rate = compact_delta(root / "delta", given.segments, given.rows)
            print(f"delta optimize:     {rate:,.0f} rows/s")
        alone = commit_rate(root / "alone", given.segments // 4, given.rows, compacting=False)
        beside = commit_rate(root / "beside", given.segments // 4, given.rows, compacting=True)
        print(f"appends: {alone:,.0f}/s alone, {beside:,.0f}/s beside a compaction")


if __name__ == "__main__":
    main()
