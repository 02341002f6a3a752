"""What planning adds in Spark's driver over 100,000 segments: seconds until the files are listed.

python benchmarks/spark_planning.py [segments]      # metadata alone; no data file is opened
"""

from __future__ import annotations

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


def main(count: int) -> int:
    """Half way through the table a tenth of it, then all of it."""
    with tempfile.TemporaryDirectory(prefix="strandline-spark-") as name:
        place = Path(name) / "t"
        bench_planning._build_strandline(place, count)  # noqa: SLF001 - the same table
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
            measured = f"{took:.3f} s" if right else f"wrong files: {runs[0][1]}"
            met.append(Verdict(f"{text}: at most {most} s", measured, met=right and took <= most))
        spark.stop()
    return 0 if verdicts(met) else 1


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
