"""Small tables for the tests of the data source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import strandline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"ts": "timestamptz", "n": "int64", "tag": "string"}


def event(n: int) -> dict[str, Any]:
    """One row: an hour later than the one before."""
    return {"ts": START + timedelta(hours=n), "n": n, "tag": f"tag-{n % 3}"}


def new_table(path: Path, **config: Any) -> strandline.Table:
    """An empty table with day windows."""
    return strandline.create_table(str(path), COLUMNS, time_column="ts", ttl="7d", **config)


def filled_table(path: Path, *, commits: int = 3, rows: int = 30) -> strandline.Table:
    """Rows 0, 1, 2, … in several commits; a commit spans several windows."""
    table = new_table(path)
    for at in range(commits):
        table.append([event(at * rows + i) for i in range(rows)])
    return table


def load(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    """The table through the data source."""
    return spark.read.format("strandline").options(**options).load(url)


def events_frame(spark: SparkSession, count: int, *, first: int = 0, tasks: int = 4) -> DataFrame:
    """The same rows as `event` makes, from several tasks."""
    numbers = spark.range(first, first + count, 1, tasks)
    return numbers.selectExpr(
        "timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, int(id), 0, 0) AS ts",
        "id AS n",
        "concat('tag-', id % 3) AS tag",
    )


def numbers_of(table: strandline.Table) -> list[int]:
    """`n` of every row, in the order of sequence numbers."""
    found: list[int] = table.scan(["n"]).to_arrow().column("n").to_pylist()
    return found
