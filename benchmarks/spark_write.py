"""Writing rows from Spark: a Strandline table against Spark's own Parquet, same rows, one run.

python benchmarks/spark_write.py [rows]      # 10,000,000 by default; the target is 1.5 ×
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_bytecode import keep_bytecode
from bench_report import Verdict, median, say, verdicts

import strandline
import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

ROUNDS = 3
TARGET = 1.5
USERS = 100_000
SCHEMA = {"ts": "timestamptz", "user": "int64", "page": "string", "amount": "float64"}


def timed(work: Callable[[], Any]) -> float:
    """How many seconds it took."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def one_round(frame: DataFrame, place: Path, rows: int) -> dict[str, float]:
    """What each road takes for the same rows."""
    table = strandline.create_table(place / "table", SCHEMA, time_column="ts")
    seconds = {
        "Parquet": timed(lambda: frame.write.parquet(str(place / "parquet"))),
        "save": timed(lambda: strandline.spark.save(frame, "append", {"path": table.url})),
    }
    assert table.tail().next_seq == rows
    say(f"{rows:,} rows: " + ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items()))
    return seconds


def main(rows: int) -> int:
    """Write both ways in turn, and compare the medians."""
    spark = strandline.spark.session("spark_write", memory="2g")
    frame = spark.range(0, rows, 1, 4).selectExpr(
        "timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, 0, 0, id / 1000) AS ts",
        f"id % {USERS} AS user",
        "concat('page-', id % 500) AS page",
        "cast(id % 997 AS double) / 7 AS amount",
    )
    took: dict[str, list[float]] = {"Parquet": [], "save": []}
    with tempfile.TemporaryDirectory(prefix="strandline-spark-") as folder:
        one_round(frame.where(f"user < {USERS // 10}"), Path(folder, "warm"), rows // 10)
        for turn in range(ROUNDS):
            place = Path(folder, str(turn))
            for name, seconds in one_round(frame, place, rows).items():
                took[name].append(seconds)
            sizes = {road: size_of(place / road) / 1e6 for road in ("parquet", "table")}
            shutil.rmtree(place)
    spark.stop()
    found = {name: median(values) for name, values in took.items()}
    for name, one in found.items():
        say(f"{name:10} {one:8.2f} s  {rows / one / 1e6:6.2f} M rows/s")
    say(f"Parquet {sizes['parquet']:.1f} MB, table {sizes['table']:.1f} MB")
    ratio = found["save"] / found["Parquet"]
    asked = f"{rows:,} rows: at most {TARGET} × Spark's own Parquet"
    return 0 if verdicts([Verdict(asked, f"{ratio:.2f} ×", met=ratio <= TARGET)]) else 1


if __name__ == "__main__":
    keep_bytecode()
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000))
