"""What planning adds in Spark's driver over 100,000 segments: seconds until the files are listed.

    python benchmarks/spark_planning.py [--segments 100000] [--folder /tmp/many]

The table is metadata alone; no data file is opened. In a folder that is named it stays: `--prepare`
only builds it, and a later run measures without building it again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_data
import bench_planning
from bench_bytecode import keep_bytecode
from bench_report import Verdict, median, verdicts

import strandline.spark

REPEATS = 7


def listed(frame: Any) -> tuple[float, int]:
    """How long the scan of a query takes to list its files, and how many these are."""
    leaf = frame._jdf.queryExecution().sparkPlan().collectLeaves().head()  # noqa: SLF001
    location, filters = leaf.relation().location(), leaf.dataFilters()
    begun = time.perf_counter()
    found = location.listFiles(leaf.partitionFilters(), filters)
    seconds = time.perf_counter() - begun
    return seconds, found.head().files().size()


def main() -> int:
    """Half way through the table a tenth of it, then all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where the table is kept for a later run")
    parser.add_argument("--prepare", action="store_true", help="build the table, measure nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="strandline-spark-") as name:
        place = (options.folder or Path(name)) / f"segments-{options.segments}"
        if not place.exists():
            building = place.with_name("building")  # what a run that was broken off leaves
            shutil.rmtree(building, ignore_errors=True)
            bench_planning._build_strandline(building, options.segments)  # noqa: SLF001 - the same table
            building.rename(place)
        return 0 if options.prepare or measure(place, options.segments) else 1


def measure(place: Path, count: int) -> bool:
    """Whether the targets were met."""
    spark = strandline.spark.session("spark_planning", memory="2g")
    frame = strandline.spark.read(spark, place, columns=["event_id", "_ts"])
    first = bench_data.START_MS + count // 2 * bench_planning.SEGMENT_MS
    last = first + count // 10 * bench_planning.SEGMENT_MS
    queries = {
        f"{count // 10:,} of {count:,} files remain": (
            frame.where(f"_ts >= {first} AND _ts < {last}"),
            count // 10,
            0.3,
        ),
        f"all of {count:,} files remain": (frame, count, 1.5),
    }
    met = []
    for text, (query, files, most) in queries.items():
        runs = [listed(query) for _ in range(REPEATS)]
        right = {found for _, found in runs} == {files}
        took = median([seconds for seconds, _ in runs])
        first_one = runs[0][0]
        measured = f"{took:.3f} s (first {first_one:.3f})" if right else f"wrong: {runs[0][1]}"
        met.append(Verdict(f"{text}: at most {most} s", measured, met=right and took <= most))
    spark.stop()
    return verdicts(met)


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main())
