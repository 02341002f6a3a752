"""Stream tables and remembered queries against their targets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from bench_report import Verdict, median, table, verdicts

import strandline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

LEAST, FASTER = 100_000, 50
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
    with new_stream(folder) as stream:

        def run() -> None:
            for n in range(rows // size):
                stream.put(USERS[n % len(USERS)], batch)
            stream.flush()

        return rows / timed(run)


def eviction(folder: Path, rows: int) -> tuple[float, float]:
    """Milliseconds to expire one window of 200 users with this many rows.

    And those of the system alone, to unlink as many files of these sizes: what it takes to give
    their blocks back grows with their bytes, whoever asks for it.
    """
    now = int(time.time() * 1000)
    with new_stream(folder) as stream:
        each = rows // len(USERS)
        columns = {"id": [str(n) for n in range(each)], "x": range(each), "at": [now] * each}
        batch = pa.table({name: pa.array(values) for name, values in columns.items()})
        for user in USERS:
            stream.put(user, batch)
        stream.flush()
        sizes = [file.stat().st_size for file in folder.glob("w*/shard-*/*")]
        bare = folder / "bare"
        bare.mkdir()
        copies = [bare / str(n) for n in range(len(sizes))]
        for copy, size in zip(copies, sizes, strict=True):
            copy.write_bytes(bytes(size))
        evicted = timed(lambda: stream.expire(now + 3_600_000))
        return 1000 * evicted, 1000 * timed(lambda: [copy.unlink() for copy in copies])


def remembered(folder: Path, rows: int) -> tuple[float, float]:
    """Seconds to run a query over everything, and to show it after a small append."""
    schema = {"ts": "int64", "kind": "string", "amount": "float64"}
    made = strandline.create_table(folder, schema, time_column="ts")
    start, chance = 1_700_000_000_000, np.random.default_rng(7)
    for first in range(0, rows, 1_000_000):
        count = min(1_000_000, rows - first)
        kinds = np.array([f"kind-{n}" for n in range(20)])[chance.integers(0, 20, count)]
        columns = {
            "ts": start + (first + np.arange(count)) // 10,
            "kind": pa.array(kinds),
            "amount": chance.random(count),
        }
        made.append(pa.table(columns))
    aggregates = {"n": "count(*)", "total": "sum(amount)", "most": "max(amount)"}
    query = {"columns": ["kind"], "aggregates": aggregates}
    again = timed(lambda: made.remember("q", query))
    made.append([{"ts": start, "kind": "kind-1", "amount": 1.0}])
    return again, median([timed(lambda: made.show("q")) for _ in range(5)])


def run(root: Path, options: argparse.Namespace) -> bool:
    """Puts of several sizes, evictions of several sizes, and one query shown and run again."""
    sizes = (1, 10, 50, 1000)
    put = {size: puts(root / f"p{size}", size, 200_000) for size in sizes}
    counts = (20_000, 200_000, 1_000_000)
    ended = {
        count: [eviction(root / f"e{count}-{turn}", count) for turn in range(3)] for count in counts
    }
    evicted, unlinked = (
        {count: median([pair[i] for pair in pairs]) for count, pairs in ended.items()}
        for i in range(2)
    )
    rows = 1_000_000 if options.quick else 10_000_000
    again, shown = remembered(root / "q", rows)
    table(
        ["what", "measured"],
        [
            *((f"put of {size} rows each", f"{put[size]:,.0f} rows/s") for size in sizes),
            *((f"evict {count:,} rows", f"{evicted[count]:.1f} ms") for count in counts),
            *((f"unlink {count:,} alone", f"{unlinked[count]:.1f} ms") for count in counts),
            (f"the query over {rows:,} rows again", f"{again * 1000:,.0f} ms"),
            ("show", f"{shown * 1000:.1f} ms"),
        ],
    )
    growth, alone = (found[counts[-1]] / found[counts[0]] for found in (evicted, unlinked))
    return verdicts(
        [
            Verdict("put >= 100,000 rows/s", f"{put[10]:,.0f} rows/s by tens", put[10] >= LEAST),
            Verdict(
                "50 times the rows: evicted in the same time",
                f"{growth:.2f} x (unlink alone: {alone:.2f} x)",
                growth < 2,
            ),
            Verdict("show >= 50 x the query", f"{again / shown:,.0f} x", again / shown >= FASTER),
        ]
    )
