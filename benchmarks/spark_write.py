"""Writing rows from Spark: a Strandline table against Spark's own Parquet, same rows, one run.

python benchmarks/spark_write.py [rows]      # 10,000,000 by default; the target is 1.5 ×
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_bytecode import keep_bytecode

import strandline
import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
TARGET = 1.5


def seconds(work: Callable[[], Any]) -> float:
    """How long it took."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main(rows: int) -> None:
    """Write both ways in turn, and show the best of each."""
    spark = strandline.spark.session("spark_write", config={"spark.sql.shuffle.partitions": "4"})
    frame = spark.range(0, rows, 1, 4).selectExpr(
        "timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, 0, 0, id / 1000) AS ts",
        "id % 100000 AS user",
        "concat('page-', id % 500) AS page",
        "cast(id % 997 AS double) / 7 AS amount",
    )
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            place = f"{folder}/{turn}"
            schema = {"ts": "timestamptz", "user": "int64", "page": "string", "amount": "float64"}
            table = strandline.create_table(f"{place}-table", schema, time_column="ts")
            roads = {
                "Parquet": lambda at=place: frame.write.parquet(f"{at}-parquet"),
                "save": lambda at=table.url: strandline.spark.save(frame, "append", {"path": at}),
            }
            for name, work in roads.items():
                took = seconds(work)
                best[name] = min(took, best.get(name, took))
            size = sum(f.stat().st_size for f in Path(f"{place}-table").rglob("*") if f.is_file())
            assert table.tail().next_seq == rows
    for name, took in best.items():
        print(f"{name:10} {took:8.2f} s  {rows / took / 1e6:6.2f} M rows/s")
    print(
        f"table: {size / 1e6:.1f} MB; ratio {best['save'] / best['Parquet']:.2f}, at most {TARGET}"
    )
    spark.stop()


if __name__ == "__main__":
    keep_bytecode()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
