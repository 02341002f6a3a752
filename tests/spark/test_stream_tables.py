"""Stream tables in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.spark import enable, read_stream_table
from strandline.spark.stream_tables import ShardReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import S3Bucket

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


def test_a_relative_path_means_the_drivers_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[K8] Tasks run in folders of their own, and open the table all the same."""
    monkeypatch.chdir(tmp_path)
    schema = {"id": "string", "x": "int64"}
    table = strandline.create_table("s", schema, kind="stream", ttl="15m", row_id="id", shards=2)
    table.put("ada", [{"id": "a", "x": 1}])
    table.flush()

    assert [row.x for row in read_stream_table(spark, "s").collect()] == [1]


@pytest.mark.s3
def test_options_of_the_session_open_stream_tables(
    spark: SparkSession, s3_bucket: S3Bucket
) -> None:
    """[C10] [K8] What `enable` was given is for stream tables, too."""
    options = s3_bucket.storage_options
    schema = {"id": "string", "x": "int64"}
    table = strandline.create_table(
        s3_bucket.url, schema, kind="stream", ttl="15m", row_id="id", shards=2,
        storage_options=options,
    )  # fmt: skip
    table.put("ada", [{"id": "a", "x": 1}])
    table.flush()
    enable(spark, storage_options={s3_bucket.url: options})

    assert [row.x for row in read_stream_table(spark, s3_bucket.url).collect()] == [1]


def test_what_travels_to_tasks_shows_no_secret() -> None:
    """[C10] Storage options are in no repr, wherever Spark may print one."""
    assert "canary" not in repr(ShardReader("s3://b/t", {"secret": "canary"}, 0))
