"""5 million rows in one append: encoding, checksums, stats, and for some of us the disk."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import bench_data
import bench_peers
from bench_report import Verdict, median, say, table, verdicts

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

ROUNDS = 5


def run(root: Path, options: argparse.Namespace) -> bool:
    """Append, check, delete, and again; contestants take turns."""
    count = 1_000_000 if options.quick else 5_000_000
    rows = bench_data.events(count)
    names = [n for n in bench_peers.ALL if not options.only or n in {*options.only, "strandline"}]
    times: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    sizes: dict[str, int] = {}
    for round_number in range(ROUNDS):
        for name in names if round_number % 2 == 0 else reversed(names):
            contestant, folder = bench_peers.ALL[name], root / name.replace(" ", "_")
            contestant.create(folder)
            append = contestant.open(folder)
            os.sync()
            begun, busy = time.perf_counter(), time.process_time()
            append(rows)
            times[name].append(time.perf_counter() - begun)
            cpu[name].append(time.process_time() - busy)
            if round_number == 0:
                wrong = bench_peers.check_rows(contestant, folder, count)
                if any(wrong):
                    say(f"{name}: {wrong[0]} rows lost, {wrong[1]} doubled")
                    return False
                sizes[name] = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
            shutil.rmtree(folder)
    lines = [
        (
            name,
            "yes" if bench_peers.ALL[name].durable else "no",
            f"{median(times[name]):.2f}",
            f"{median(cpu[name]):.2f}",
            f"{count / median(times[name]) / 1e6:.2f}",
            f"{count / min(times[name]) / 1e6:.2f}",
            f"{sizes[name] / 1e6:.0f}",
        )
        for name in names
    ]
    table(
        [f"{count:,} rows", "durable", "median s", "CPU s", "M rows/s", "best M rows/s", "MB"],
        lines,
    )
    if "lance" not in times:
        return True
    against = median(times["lance"]) / median(times["strandline"])
    best = min(times["lance"]) / min(times["strandline"])
    return verdicts(
        [
            Verdict(
                "at least as fast as Lance",
                f"{against:.2f} × (median), {best:.2f} × (best)",
                against >= 1,
            )
        ]
    )
