"""Stream tables in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.spark import read_stream_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_gives_the_answers_of_python(spark: SparkSession, tmp_path: Path) -> None:
    """[K8] Same rows for every user: deletes applied, newest per id, nulls and times kept."""
    schema = {"id": "string", "x": "int64", "at": "timestamptz"}
    table = strandline.create_table(
        tmp_path / "s", schema, kind="stream", ttl="15m", row_id="id", shards=4
    )
    for user in ("alice", "Bob/../x", "ünï"):
        table.put(user, [{"id": str(n), "x": n, "at": None} for n in range(20)])
        table.put(user, [{"id": "3", "x": 33}])
        table.delete(user, ["5", "6"])
    table.put("alice", [{"id": "old", "x": 1}])
    table.flush()

    rows = read_stream_table(spark, tmp_path / "s")

    assert rows.columns == ["_user", "id", "x", "at", "_ts"]
    found = {(r["_user"], r["id"]): (r["x"], r["_ts"]) for r in rows.collect()}
    assert rows.count() == len(found) == 3 * 18 + 1
    for user in table.users():
        for row in table.latest(user, columns=["id", "x", "_ts"]).to_pylist():
            assert found.pop((user, row["id"])) == (row["x"], row["_ts"])
    assert not found
    assert rows.where("x = 33").count() == 3
