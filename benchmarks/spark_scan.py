"""The native scan against `spark.read.parquet` over the same files: seconds, tasks, files, bytes.

`python benchmarks/spark_scan.py --rows 10000000`; small sizes show that it runs, not how fast.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline
import strandline.spark

START_MS = 1_700_000_000_000
BATCHES = 20


def fill(place: Path, rows: int) -> strandline.Table:
    """Events in the order of time, by users who come and go."""
    table = strandline.create_table(
        place, {"tm": "int64", "user": "int64", "v": "float64"}, time_column="tm"
    )
    chance = np.random.default_rng(1)
    each = max(1, rows // BATCHES)
    for batch in range(BATCHES):
        times = START_MS + np.arange(batch * each, (batch + 1) * each)
        users = chance.integers(0, 1000, each) + batch * 1000
        table.append(
            pa.table({"tm": times, "user": users, "v": chance.random(each)}, schema=table.schema)
        )
    return table


def measured(spark: Any, frame: Any, repeats: int = 3) -> tuple[float, int]:
    """The best of some runs, and the partitions that the query reads."""
    tasks = frame.rdd.getNumPartitions()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        frame.collect()
        best = min(best, time.perf_counter() - start)
        spark.catalog.clearCache()
    return best, tasks


def main() -> None:
    """Print one line per query and road."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    folder = Path(tempfile.mkdtemp())
    try:
        table = fill(folder / "t", rows)
        spark = strandline.spark.session("spark_scan", memory="2g")
        paths = [f"{table.url}/{path}" for path in table.files().column("path").to_pylist()]
        roads = {
            "native": strandline.spark.read(spark, table.url),
            "parquet": spark.read.parquet(*paths),
        }
        first, span = START_MS + rows // 2, rows // 100
        queries = {
            "full scan": "SELECT count(v), max(user), sum(tm) FROM t",
            "aggregate": "SELECT user % 100, avg(v) FROM t GROUP BY 1",
            "1% of time": f"SELECT sum(v) FROM t WHERE tm >= {first} AND tm < {first + span}",  # noqa: S608 - numbers
            "one user": "SELECT count(*), sum(v) FROM t WHERE user = 5005",
        }
        print(f"{rows} rows, {len(paths)} files, {table.manifest.next_seq} numbers")
        for name, text in queries.items():
            for road, frame in roads.items():
                frame.createOrReplaceTempView("t")
                seconds, tasks = measured(spark, spark.sql(text))
                print(f"{name:12} {road:8} {seconds:8.3f} s  {tasks} output partitions")
        for name, text in (("1% of time", f"tm >= {first} AND tm < {first + span}"),):
            plan = table.scan(filter=text).plan()
            size = sum(entry.size_bytes for entry in plan.segments)
            print(f"{name}: native reads {len(plan.segments)} of {len(paths)} files, {size} bytes")
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
