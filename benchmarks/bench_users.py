"""Appends per second of eight processes on eight users of one table, and of one on one."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from bench_report import Verdict, median, table, verdicts

import strandline

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

ROWS = 1_000
GROWTH = 1.6


def produce(url: str, user: str, appends: int, start: Any, ended: Any) -> None:
    """Append as one user, once everybody is ready: modules are loaded, and the chain is there."""
    handle = strandline.open_table(url).user(user)
    batch = pa.table({"n": pa.array(range(ROWS), pa.int64())})
    handle.append(batch)
    start.wait()
    for _ in range(appends):
        handle.append(batch)
    ended.put(time.monotonic())


def measure(folder: Path, processes: int, appends: int) -> float:
    """Appends per second of this many processes, each with a user of its own."""
    url = str(folder)
    strandline.create_table(url, {"n": "int64"}, scope="user")
    spawn = multiprocessing.get_context("spawn")
    start, ended = spawn.Barrier(processes + 1), spawn.Queue()
    running = [
        spawn.Process(target=produce, args=(url, f"user-{i}", appends, start, ended))
        for i in range(processes)
    ]
    for process in running:
        process.start()
    start.wait()
    began = time.monotonic()
    last = max(ended.get(timeout=600) for _ in running)
    for process in running:
        process.join()
    return processes * appends / (last - began)


def run(root: Path, options: argparse.Namespace) -> bool:
    """Measure both in turns, and compare the middle ones."""
    appends, rounds = (20, 1) if options.quick else (200, 3)
    found = [
        tuple(measure(root / f"{n}-{turn}", n, appends) for n in (1, 8)) for turn in range(rounds)
    ]
    one, eight = (median([pair[i] for pair in found]) for i in range(2))
    table(
        ["processes, each with a user of its own", "appends of 1,000 rows per second"],
        [("1", f"{one:.0f}"), ("8", f"{eight:.0f}")],
    )
    ratio = median([pair[1] / pair[0] for pair in found])
    return verdicts([Verdict("8 processes >= 1.6 x one", f"{ratio:.2f} x", ratio >= GROWTH)])
