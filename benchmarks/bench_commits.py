"""1,000 appends of 1,000 rows: what a durable commit costs, and whether that grows.

Contestants take turns in small blocks, so that a machine that slows down slows all of them. What
a contestant leaves unsynced is synced outside the clock, so that nobody pays for another's bytes.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import bench_data
import bench_peers
from bench_report import Verdict, median, ms, say, table, verdicts

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    import pyarrow as pa

ROWS = 1_000
BLOCK = 10
EDGE = 100
ICEBERG_COMMITS = 200
"""Its commit grows with every commit; a thousand take ten minutes (`--full` does them all)."""


def run(root: Path, options: argparse.Namespace) -> bool:
    """Append, check every row, and print the table."""
    commits = 200 if options.quick else 1_000
    limits = {
        c.name: min(commits, ICEBERG_COMMITS)
        if c.name == "pyiceberg" and not options.full
        else commits
        for c in bench_peers.ALL.values()
        if not options.only or c.name in {*options.only, "strandline", bench_peers.RAW.name}
    }
    rows = bench_data.events(commits * ROWS)
    times, cpu = _measure(root, rows, limits)
    for name, limit in limits.items():
        lost, doubled = bench_peers.check_rows(
            bench_peers.ALL[name], root / _folder(name), limit * ROWS
        )
        if lost or doubled:
            say(f"{name}: {lost} rows lost, {doubled} doubled; its times mean nothing")
            return False
    raw, ours = times[bench_peers.RAW.name], times["strandline"]
    edge = min(EDGE, commits // 2)
    lines = []
    for name, taken in times.items():
        contestant = bench_peers.ALL[name]
        same = raw[: len(taken)]
        first, last = median(taken[:edge]), median(taken[-edge:])
        lines.append(
            (
                name,
                "yes" if contestant.durable else "no",
                len(taken),
                ms(median(taken)),
                ms(median(cpu[name])),
                ms(first),
                ms(last),
                f"{median(taken) / median(same):.2f}",
                f"{first / median(raw[:edge]):.2f}",
                f"{last / median(same[-edge:]):.2f}",
            )
        )
    table(
        ["1,000 rows per commit", "durable", "commits", "median ms", "CPU ms", f"first {edge}",
         f"last {edge}", "× raw", f"× raw, first {edge}", f"× raw, last {edge}"],
        lines,
    )  # fmt: skip
    ratio = median(ours) / median(raw)
    growth = _growth(ours, raw, edge)
    # Not a target. Where the load changes during a run, the clock measures that; CPU does not.
    by_cpu = _growth(cpu["strandline"], cpu[bench_peers.RAW.name], edge)
    say(f"growth of the ratio, last {edge} against first {edge}, by CPU time: {by_cpu:.2f} ×")
    found = [
        Verdict("commit ≤ 2 × raw", f"{ratio:.2f} ×", ratio <= 2),
        Verdict(f"ratio of last {edge} ≤ 1.1 × first {edge}'s", f"{growth:.2f} ×", growth <= 1.1),
    ]
    if "lance" in times:
        lance = median(times["lance"]) / median(ours)
        found.append(Verdict("ahead of Lance", f"{lance:.2f} × faster", lance > 1))
    if "deltalake" in times:
        delta = median(times["deltalake"]) / median(ours)
        found.append(Verdict("≥ 10 × Delta", f"{delta:.1f} × faster", delta >= 10))
    return verdicts(found)


def _growth(ours: list[float], raw: list[float], edge: int) -> float:
    """By how much our multiple of raw grew from the first commits to the last."""
    last = median(ours[-edge:]) / median(raw[-edge:])
    return last / (median(ours[:edge]) / median(raw[:edge]))


def _folder(name: str) -> str:
    return name.replace(" ", "_")


def _measure(
    root: Path, rows: pa.Table, limits: dict[str, int]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds by the clock and seconds of all cores, per commit."""
    appends = {}
    for name in limits:
        contestant = bench_peers.ALL[name]
        contestant.create(root / _folder(name))
        appends[name] = contestant.open(root / _folder(name))
    times: dict[str, list[float]] = {name: [] for name in limits}
    cpu: dict[str, list[float]] = {name: [] for name in limits}
    os.sync()
    for start in range(0, max(limits.values()), BLOCK):
        turn = list(limits)
        if start // BLOCK % 2:
            turn.reverse()
        for name in turn:
            for index in range(start, min(start + BLOCK, limits[name])):
                batch = rows.slice(index * ROWS, ROWS)
                begun, busy = time.perf_counter(), time.process_time()
                appends[name](batch)
                times[name].append(time.perf_counter() - begun)
                cpu[name].append(time.process_time() - busy)
            if not bench_peers.ALL[name].durable:
                os.sync()
    return times, cpu
