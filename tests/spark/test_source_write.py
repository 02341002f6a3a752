"""Batch writes: in every save mode, once, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import strandline
from strandline.catalog.runtime import REAL
from strandline.place import TablePlace
from strandline.spark import backfill, register_source, save
from strandline.tableformat.errors import (
    CommitConflict,
    CorruptTable,
    InvalidInput,
    TableExists,
)
from strandline.writers.foreign_files import commit_files, write_files
from tests.spark.orphans import check_orphans
from tests.spark.source_tables import event, events_frame, filled_table, new_table, numbers_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.writers.foreign_files import WrittenFiles

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _source(spark: SparkSession) -> None:
    register_source(spark)


def test_one_job_is_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    """[C1] Rows of all tasks are numbered in the order of the DataFrame, in one version."""
    table = new_table(tmp_path / "t")

    events_frame(spark, 100).write.format("strandline").mode("append").save(table.url)

    assert (table.tail().version, table.tail().next_seq) == (2, 100)
    assert numbers_of(table) == list(range(100))
    assert table.verify(deep=True).ok


def test_a_transaction_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] With txnAppId and txnVersion a write that is repeated changes nothing."""
    table = new_table(tmp_path / "t")
    keys = {"txnAppId": "nightly", "txnVersion": "7"}
    frame = events_frame(spark, 10)

    for _ in range(2):
        frame.write.format("strandline").mode("append").options(**keys).save(table.url)
    again = save(frame, "append", {"path": table.url, **keys})

    assert again is not None
    assert again.duplicate
    assert (again.first_seq, again.rows) == (0, 10)
    assert numbers_of(table) == list(range(10))
    newer = save(frame, "append", {"path": table.url, **keys, "txnVersion": "8"})
    assert newer is not None
    assert newer.first_seq == 10


def test_save_modes(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] append, errorifexists and ignore mean what Spark users expect."""
    path = {"path": str(tmp_path / "t"), "timeColumn": "ts", "ttl": "7d"}
    frame = events_frame(spark, 10)

    created = save(frame, "errorifexists", path)
    assert created is not None
    assert created.rows == 10
    table = strandline.open_table(path["path"])
    assert table.config.time_column is not None
    with pytest.raises(TableExists, match="nothing was changed"):
        save(frame, "errorifexists", path)
    assert save(frame, "ignore", path) is None
    appended = save(frame, "append", path)
    assert appended is not None
    assert (appended.first_seq, appended.last_seq) == (10, 19)
    with pytest.raises(InvalidInput, match="save mode"):
        save(frame, "upsert", path)
    assert table.tail().next_seq == 20


def test_overwrite_replaces_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    """[C13] One commit takes all rows out and puts the new ones in; old versions keep theirs."""
    table = filled_table(tmp_path / "t", commits=2, rows=5)

    events_frame(spark, 4, first=90).write.format("strandline").mode("overwrite").save(table.url)
    assert numbers_of(table) == [90, 91, 92, 93]
    assert table.tail().version == 4
    save(events_frame(spark, 2), "overwrite", {"path": table.url})
    assert numbers_of(table) == [0, 1]
    save(events_frame(spark, 2).where("n < 0"), "overwrite", {"path": table.url})

    assert numbers_of(table) == []
    assert table.tail().next_seq == 16
    assert numbers_of(strandline.open_table(table.url, version=3)) == list(range(10))


def test_wrong_rows_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """[E1] A column that the table lacks is refused by name, and nothing is committed."""
    table = filled_table(tmp_path / "t", commits=1, rows=2)
    frame = events_frame(spark, 3).selectExpr("*", "1 AS surplus")

    with pytest.raises(PySparkException, match="surplus"):
        frame.write.format("strandline").mode("append").save(table.url)

    assert table.tail().version == 2


def test_a_failing_task_commits_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """[C1] [M1] Files of tasks that finished before another failed are listed nowhere."""
    table = new_table(tmp_path / "t")
    frame = events_frame(spark, 40).selectExpr(
        "ts", "if(n = 35, cast(raise_error('broken') AS bigint), n) AS n", "tag"
    )

    with pytest.raises(PySparkException, match="broken"):
        frame.write.format("strandline").mode("append").save(table.url)
    with pytest.raises(PySparkException, match="broken"):
        save(frame, "append", {"path": table.url})

    assert (table.tail().version, table.tail().next_seq) == (1, 0)
    events_frame(spark, 40).write.format("strandline").mode("append").save(table.url)
    assert numbers_of(table) == list(range(40))
    check_orphans(tmp_path / "t", table)


def test_backfill_orders_by_time(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] A backfill spreads rows by time: one commit, every task few windows."""
    table = new_table(tmp_path / "t")
    shuffled = events_frame(spark, 240).orderBy("tag", "n")

    done = backfill(shuffled, table.url, tasks=3)

    assert done is not None
    assert (done.version, done.rows) == (2, 240)
    assert numbers_of(table) == list(range(240))
    assert table.files().num_rows <= 12


def test_clamped_tables_keep_their_order(spark: SparkSession, tmp_path: Path) -> None:
    """[O2] Times do not go back, also where many tasks made the rows."""
    table = new_table(tmp_path / "t", order="clamp")
    save(events_frame(spark, 30), "append", {"path": table.url})
    save(events_frame(spark, 30), "append", {"path": table.url})

    times = table.scan(["_ts"]).to_arrow().column("_ts").to_pylist()
    assert times == sorted(times)
    assert len(times) == 60


# --- what the driver checks, without Spark ---


def _written(table: strandline.Table, first: int, count: int) -> WrittenFiles:
    rows = pa.Table.from_pylist([event(first + i) for i in range(count)])
    return write_files(table.manifest_service.storage, REAL, table.manifest, rows)


def _commit(table: strandline.Table, *parts: WrittenFiles, **how: Any) -> Any:
    return commit_files(TablePlace(table), parts, operation="append", **how)


def test_parts_with_offsets_count_on(tmp_path: Path) -> None:
    """[O1] Rows that are spread over windows and shards keep their numbers in a later part."""
    table = new_table(tmp_path / "t", shard_by="tag", shards=2)
    parts = [_written(table, 0, 50), _written(table, 50, 50)]

    done = _commit(table, *parts)

    assert (done.first_seq, done.last_seq) == (0, 99)
    assert numbers_of(table) == list(range(100))
    table.append([event(100)])
    assert numbers_of(table) == list(range(101))
    assert table.verify(deep=True).ok


def test_a_damaged_file_is_not_committed(tmp_path: Path) -> None:
    """[X4] What is not in the store as it was written is not listed."""
    table = new_table(tmp_path / "t")
    part = _written(table, 0, 3)
    (path,) = (tmp_path / "t").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(CorruptTable, match="Nothing was committed"):
        _commit(table, part)
    path.unlink()
    with pytest.raises(CorruptTable, match="is gone"):
        _commit(table, part)
    assert table.tail().version == 1


def test_times_that_go_back_between_tasks_are_refused(tmp_path: Path) -> None:
    """[O2] Tasks cannot clamp against each other, so the driver refuses what they got wrong."""
    table = new_table(tmp_path / "t", order="clamp")
    later, earlier = _written(table, 10, 3), _written(table, 0, 3)

    with pytest.raises(InvalidInput, match="coalesce"):
        _commit(table, later, earlier)
    table.append([event(50)])
    with pytest.raises(CommitConflict, match="Run the job again"):
        _commit(table, later)
    assert table.tail().next_seq == 1
