"""Queries in Spark over the same rows: Strandline, plain Parquet, Delta Lake and Iceberg.

    python benchmarks/spark_scan.py --rows 10000000 [--peers delta iceberg] [--folder /tmp/rows]

Each format runs in a process of its own with the Spark that it supports; peers get PySpark 4.0 in
build/spark40 and their jars from Maven. Answers are compared. Small sizes show that it runs, not
how fast. In a folder that is named, tables stay: `--prepare` only builds them, and a later run
measures without building them again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_bytecode import keep_bytecode
from bench_report import Verdict, say, verdicts
from bench_report import table as show
from spark_scan_child import ITS_FILES, START_MS

import strandline

BATCHES = 20
USERS_PER_BATCH = 2_000
PEERS_SPARK = Path(__file__).parents[1] / "build" / "spark40"
PEERS_PYSPARK = "pyspark>=4.0,<4.1"
CHILD = Path(__file__).with_name("spark_scan_child.py")
MOST = 1.1
Found = dict[str, dict[str, list[dict[str, Any]]]]


def user_name(number: int) -> str:
    """Names in no order, so that least and greatest ones say nothing."""
    return hashlib.blake2b(str(number).encode(), digest_size=8).hexdigest()


def fill(folder: Path, rows: int) -> None:
    """Events in the order of time, by users who come and go, as a table and as Parquet files."""
    done = folder / f"filled-{rows}"
    if done.exists():
        return
    if any(folder.iterdir()):
        raise SystemExit(f"{folder} holds something else; nothing was measured")
    table = strandline.create_table(
        folder / "strandline",
        {"tm": "int64", "user": "string", "page": "string", "v": "float64"},
        time_column="tm",
    )
    (folder / "source").mkdir()
    chance = np.random.default_rng(1)
    each = max(1, rows // BATCHES)
    pages = np.array([f"/page/{number}" for number in range(200)])
    for batch in range(BATCHES):
        first = batch * USERS_PER_BATCH // 2  # half of them were there before
        names = np.array([user_name(first + n) for n in range(USERS_PER_BATCH)])
        data = pa.table(
            {
                "tm": START_MS + np.arange(batch * each, (batch + 1) * each),
                "user": names[chance.integers(0, USERS_PER_BATCH, each)],
                "page": pages[chance.integers(0, len(pages), each)],
                "v": chance.random(each).round(3),
            },
            schema=table.schema,
        )
        table.append(data)
        pq.write_table(data, folder / "source" / f"{batch:03}.parquet")
    done.touch()


def child(road: str, folder: Path, rows: int, repeats: int) -> Found:
    """What a process with this format's Spark found; without repeats it only builds its table."""
    environment = dict(os.environ)
    if road != "strandline":
        if not (PEERS_SPARK / "pyspark").is_dir():
            target = ["--target", str(PEERS_SPARK), PEERS_PYSPARK]
            command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", *target]
            subprocess.run(command, check=True)  # noqa: S603 - our own pip
        environment["PYTHONPATH"] = str(PEERS_SPARK)
        environment.pop("SPARK_HOME", None)
    user = user_name(BATCHES // 2 * USERS_PER_BATCH // 2)
    command = [sys.executable, str(CHILD), road, str(folder), str(rows), user, str(repeats)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603 - ours
    answers: Found = json.loads(done.stdout.splitlines()[-1])
    return answers


def main() -> int:
    """Print a table of all queries and roads; the exit code says whether all targets were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--peers", nargs="*", default=["delta", "iceberg"])
    parser.add_argument("--folder", type=Path, help="where tables are kept for a later run")
    parser.add_argument("--prepare", action="store_true", help="build the tables, measure nothing")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    repeats = 0 if options.prepare else options.repeats
    with tempfile.TemporaryDirectory(prefix="strandline-spark-") as name:
        folder = Path(name) if options.folder is None else options.folder
        folder.mkdir(parents=True, exist_ok=True)
        fill(folder, options.rows)
        found: Found = {}
        for road in ("strandline", *options.peers):
            for query, by_road in child(road, folder, options.rows, repeats).items():
                found.setdefault(query, {}).update(by_road)
    if options.prepare:
        return 0
    say(f"{options.rows:,} rows in {BATCHES} files, median of {repeats} runs")
    return 0 if report(found) else 1


def report(found: Found) -> bool:
    """What each query took and read on each road, and the verdicts."""
    lines, met = [], []
    for query, by_road in found.items():
        seconds = {
            road: statistics.median(run["seconds"] for run in runs)
            for road, runs in by_road.items()
        }
        for road, runs in by_road.items():
            last = runs[-1]
            cpu = statistics.median(run["cpu"] for run in runs)
            figures = (f"{seconds[road]:.3f}", f"{cpu:.3f}", last["tasks"], last["files"])
            lines.append((query, road, *figures, f"{last['bytes'] / 1e6:.1f}"))
        whole = query in ("full scan", "aggregate")
        others = [ITS_FILES] if whole else [road for road in seconds if road != "strandline"]
        most = MOST if whole else 1.0
        for other in others:
            ratio = seconds["strandline"] / seconds[other]
            asked = f"{query}: at most {most} × {other}"
            met.append(Verdict(asked, f"{ratio:.2f} ×", met=ratio <= most))
    show(("query", "road", "seconds", "CPU s of tasks", "tasks", "files", "MB read"), lines)
    same = all(
        _same(runs[0]["answer"], by_road["strandline"][0]["answer"])
        for by_road in found.values()
        for runs in by_road.values()
    )
    met.append(Verdict("every road gives the same rows", str(same).lower(), met=same))
    return verdicts(met)


def _same(one: list[str], other: list[str]) -> bool:
    """Sums of floats depend on the order of addition, in their last digits."""
    return [_rounded(row) for row in one] == [_rounded(row) for row in other]


def _rounded(row: str) -> str:
    return re.sub(r"\d+\.\d+(E\d+)?", lambda number: f"{float(number[0]):.6g}", row)


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main())
