"""Compaction and re-indexing as Spark jobs: one commit, every row as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import strandline
import strandline.spark
from strandline.tableformat.errors import InvalidInput
from strandline.writers import rewrite_tasks
from strandline.writers.tuning import Tuning
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NAMES = [*SCHEMA.names, "_seq", "_ts", "_window"]


def many_segments(place: Path, count: int = 12, **config: Any) -> strandline.Table:
    """Small segments in two hourly windows."""
    table = strandline.create_table(place, SCHEMA, time_column="ts", ttl="1d", **config)
    for first in range(0, 500 * count, 500):
        table.append(events(first, 500))
    return table


def rows_of(table: strandline.Table) -> pa.Table:
    """Everything a reader sees of each row."""
    return table.scan(NAMES).to_arrow()


def test_a_compaction_is_one_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M7] [C5] Runs of all windows are rewritten by tasks and land in one version.

    A relative path means the driver's folder; tasks run in another one.
    """
    monkeypatch.chdir(tmp_path)
    table = many_segments(tmp_path / "t")
    before, version = rows_of(table), table.version

    planned = strandline.spark.compact(spark, table.url, dry_run=True)
    report = strandline.spark.compact(spark, "t")

    assert planned.runs == report.runs == 2
    assert (report.segments_before, report.segments_after) == (13, 2)
    assert (report.rows, report.lost_runs, report.version) == (6000, 0, version + 1)
    assert table.refresh().files().num_rows == 2
    assert rows_of(table).equals(before)
    assert table.verify(deep=True).ok
    assert strandline.spark.compact(spark, table.url).runs == 0


def test_large_tables_are_taken_in_rounds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M7] What one commit cannot take comes in several, planned piece by piece."""
    table = many_segments(tmp_path / "t", 80)
    before, version = rows_of(table), table.version
    assert table.manifest.windows, "some segments have rolled into pages"

    def small(runs: Any) -> Any:
        return rounds(runs, 10)

    rounds = rewrite_tasks.in_rounds
    monkeypatch.setattr("strandline.spark.rewrites.in_rounds", small)
    report = strandline.spark.compact(spark, table.url, target_rows=2500)

    assert report.segments_before >= 70
    assert report.version > version + 5
    assert rows_of(table.refresh()).equals(before)
    assert table.verify(deep=True).ok


def test_runs_that_others_changed_are_left_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M7] Appends and another compaction while tasks run: nothing lost, nothing doubled."""
    table = many_segments(tmp_path / "t")
    inside = rewrite_tasks.commit_together

    def late(place: Any, done: Any) -> Any:
        other = strandline.open_table(table.url)
        other.delete(filter="n = 3")  # replaces a segment of the first window
        other.append(events(6000, 10))
        return inside(place, done)

    monkeypatch.setattr("strandline.spark.rewrites.commit_together", late)
    report = strandline.spark.compact(spark, table.url)

    assert (report.runs, report.lost_runs) == (1, 1)
    found = rows_of(table.refresh()).column("n").to_pylist()
    assert found == [n for n in range(6010) if n != 3]
    assert table.verify(deep=True).ok
    written = {
        str(path.relative_to(tmp_path / "t")) for path in tmp_path.rglob("compact-*.parquet")
    }
    assert written <= set(table.files().column("path").to_pylist()), "lost output is gone"


def test_reindexing_pays_debts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E8] [T1] Indexes that writers under pressure left out are built by tasks, once."""
    table = strandline.create_table(
        tmp_path / "t",
        SCHEMA,
        time_column="ts",
        indexes={"user": ["postings"]},
        row_group_rows=4096,
        zone_rows=512,
    )
    table.append(events(0, 5000))
    with monkeypatch.context() as pressure:
        pressure.setattr(Tuning, "degraded", property(lambda _: True))
        with table.writer("w", wal=False, ack="committed") as writer:
            writer.append(events(5000, 5000))
    table.append(events(10_000, 10))  # too small for indexes
    before = rows_of(table.refresh())

    report = strandline.spark.reindex(spark, table.url)

    assert (report.runs, report.segments_before, report.segments_after) == (1, 1, 1)
    user = table.refresh().manifest.schema.column("user").id
    indexed = [entry.index for entry in table.manifest.segments if entry.index is not None]
    assert [index.kinds[user] for index in indexed] == [("postings",)] * 2
    assert rows_of(table).equals(before)
    assert strandline.spark.reindex(spark, table.url).runs == 0
    assert strandline.spark.reindex(spark, table.url, every=True, dry_run=True).runs == 2


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Bad settings and tables of users are refused before a task runs."""
    table = many_segments(tmp_path / "t", 2)
    with pytest.raises(InvalidInput, match="target_rows"):
        strandline.spark.compact(spark, table.url, target_rows=0)
    with pytest.raises(InvalidInput, match="twice"):
        strandline.spark.compact(spark, table.url, sort_by=["n", "n"])
    users = strandline.create_table(tmp_path / "u", SCHEMA, time_column="ts", scope="user")
    with pytest.raises(InvalidInput, match="belong to users"):
        strandline.spark.compact(spark, users.url)
