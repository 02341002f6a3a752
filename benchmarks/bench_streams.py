"""Stream tables and remembered queries against their targets.

python benchmarks/bench_streams.py [rows of the remembered query]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import strandline

if TYPE_CHECKING:
    from collections.abc import Callable

USERS = [f"user-{n}" for n in range(200)]


def timed(act: Callable[[], object]) -> float:
    """How long it takes, in seconds."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def new_stream(folder: Path) -> strandline.StreamTable:
    """A table like presence."""
    schema = {"id": "string", "x": "int64", "at": "int64"}
    return strandline.create_table(
        folder, schema, kind="stream", ttl="15m", row_id="id", time_column="at"
    )


def puts(folder: Path, size: int, rows: int) -> float:
    """Rows per second in puts of this size, flushed."""
    now = int(time.time() * 1000)
    batch = [{"id": f"row-{n}", "x": n, "at": now} for n in range(size)]
    with new_stream(folder) as table:

        def run() -> None:
            for n in range(rows // size):
                table.put(USERS[n % len(USERS)], batch)
            table.flush()

        return rows / timed(run)


def eviction(folder: Path, rows: int) -> float:
    """Milliseconds to expire one window of 200 users with this many rows."""
    now = int(time.time() * 1000)
    with new_stream(folder) as table:
        each = rows // len(USERS)
        columns = {"id": [str(n) for n in range(each)], "x": range(each), "at": [now] * each}
        batch = pa.table({name: pa.array(values) for name, values in columns.items()})
        for user in USERS:
            table.put(user, batch)
        table.flush()
        return 1000 * timed(lambda: table.expire(now + 3_600_000))


def remembered(folder: Path, rows: int) -> tuple[float, float]:
    """Seconds to run a query over everything, and to show it after a small append."""
    schema = {"ts": "int64", "kind": "string", "amount": "float64"}
    table = strandline.create_table(folder, schema, time_column="ts")
    start, chance = 1_700_000_000_000, np.random.default_rng(7)
    for first in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - first)
        kinds = np.array([f"kind-{n}" for n in range(20)])[chance.integers(0, 20, count)]
        columns = {
            "ts": start + (first + np.arange(count)) // 10,
            "kind": pa.array(kinds),
            "amount": chance.random(count),
        }
        table.append(pa.table(columns))
    aggregates = {"n": "count(*)", "total": "sum(amount)", "most": "max(amount)"}
    query = {"columns": ["kind"], "aggregates": aggregates}
    whole = timed(lambda: table.remember("q", query))
    table.append([{"ts": start, "kind": "kind-1", "amount": 1.0}])
    return whole, min(timed(lambda: table.show("q")) for _ in range(5))


def main(rows: int = 10_000_000) -> None:
    """Print one line for each target."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in (1, 10, 50, 1000):
            print(
                f"put, {size:5} rows each: {puts(folder / f'p{size}', size, 200_000):12,.0f} rows/s"
            )
        for count in (20_000, 200_000, 1_000_000):
            print(f"evict {count:9,} rows: {eviction(folder / f'e{count}', count):8.1f} ms")
        whole, shown = remembered(folder / "q", rows)
        print(
            f"{rows:,} rows: run and store {whole:.2f} s, show {shown:.4f} s, {whole / shown:.0f} x"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
