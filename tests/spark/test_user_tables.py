"""Tables of users, and remembered answers, in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import strandline
from strandline.spark import enable, read, read_users
from strandline.spark.user_tables import UsersReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import S3Bucket

pytestmark = pytest.mark.spark


def test_spark_reads_one_user_some_and_all(spark: SparkSession, tmp_path: Path) -> None:
    """[M9] The rows of Python, each with its user; a table of users is never taken for empty."""
    schema = {"at": "timestamptz", "n": "int64", "small": "uint8", "text": "string"}
    table = strandline.create_table(tmp_path / "t", schema, time_column="at", scope="user")
    assert isinstance(table, strandline.UsersTable)
    for number, user in enumerate(("alice", "Bob/../x", "ünï")):
        rows = [{"at": None, "n": n, "small": 200, "text": user} for n in range(10 + number)]
        table.user(user).append(rows)
    table.user("alice").delete(filter="n = 3")

    every = read_users(spark, tmp_path / "t")

    assert every.columns == ["_user", "at", "n", "small", "text"]
    found = sorted((r["_user"], r["n"], r["small"], r["text"]) for r in every.collect())
    python = table.scan_users(columns=["n", "small", "text"]).to_arrow().to_pylist()
    assert found == sorted((r["_user"], r["n"], r["small"], r["text"]) for r in python)
    assert len(found) == 9 + 11 + 12
    some = read_users(spark, tmp_path / "t", ["ünï", "nobody"], columns=["_seq"], filter="n >= 9")
    assert sorted(map(tuple, some.collect())) == [("ünï", 9), ("ünï", 10), ("ünï", 11)]
    with pytest.raises(strandline.InvalidInput, match="scan_users"):
        read(spark, tmp_path / "t")
    with pytest.raises(strandline.InvalidInput, match="no column"):
        read_users(spark, tmp_path / "t", columns=["gone"])


def test_spark_reads_the_newest_rows_of_keyed_users(spark: SparkSession, tmp_path: Path) -> None:
    """[M9] [C4] [USR-10] The winners of each user; one user's key hides nobody else's."""
    table = strandline.create_table(
        tmp_path / "t", {"id": "int64", "v": "string"}, scope="user", primary_key="id"
    )
    assert isinstance(table, strandline.UsersTable)
    for user in ("ann", "bob", "eve"):
        table.user(user).upsert([{"id": n, "v": f"{user}-old"} for n in range(4)])
    table.user("ann").upsert([{"id": 1, "v": "ann-new"}])
    table.user("bob").delete(keys=[0, 1, 2])

    found = sorted(map(tuple, read_users(spark, tmp_path / "t").collect()))

    python = table.scan_users().to_arrow().to_pylist()
    assert found == sorted((r["_user"], r["id"], r["v"]) for r in python)
    assert len(found) == 4 + 1 + 4
    some = read_users(spark, tmp_path / "t", filter="v = 'ann-old'").collect()
    assert sorted(row["id"] for row in some) == [0, 2, 3]
    with pytest.raises(strandline.InvalidInput, match="read_users"):
        read(spark, tmp_path / "t")


def test_a_relative_path_means_the_drivers_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M9] Tasks run in folders of their own, and open the table all the same."""
    monkeypatch.chdir(tmp_path)
    table = strandline.create_table("t", {"n": "int64"}, scope="user")
    assert isinstance(table, strandline.UsersTable)
    table.user("ada").append([{"n": 1}])

    assert [tuple(row) for row in read_users(spark, "t").collect()] == [("ada", 1)]


@pytest.mark.s3
def test_options_of_the_session_open_users_tables(spark: SparkSession, s3_bucket: S3Bucket) -> None:
    """[C10] [M9] What `enable` was given is for tables of users, too; tasks show none of it."""
    options = s3_bucket.storage_options
    table = strandline.create_table(
        s3_bucket.url, {"n": "int64"}, scope="user", storage_options=options
    )
    assert isinstance(table, strandline.UsersTable)
    table.user("ada").append([{"n": 1}])
    enable(spark, storage_options={s3_bucket.url: options})

    assert [tuple(row) for row in read_users(spark, s3_bucket.url).collect()] == [("ada", 1)]
    reader = UsersReader("s3://b/t", {"secret": "canary"}, None, (), None, pa.schema([]))
    assert "canary" not in repr(reader)


def test_spark_takes_a_remembered_answer(spark: SparkSession, tmp_path: Path) -> None:
    """[E13] What `show` gives becomes a DataFrame as it is."""
    table = strandline.create_table(tmp_path / "t", {"k": "string", "x": "float64"})
    table.append([{"k": "a", "x": 1.5}, {"k": "b", "x": 2.0}, {"k": "a", "x": 0.25}])
    table.remember("sums", {"columns": ["k"], "aggregates": {"total": "sum(x)", "n": "count(*)"}})
    table.append([{"k": "b", "x": 1.0}])

    frame = spark.createDataFrame(table.show("sums"))

    assert sorted(map(tuple, frame.collect())) == [("a", 1.75, 2), ("b", 3.0, 2)]
