"""`format("strandline")` does everything in one session: read, write, INSERT, stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import IllegalArgumentException

import strandline
import strandline.spark
from tests.tables import SCHEMA, events, numbers_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_reads_writes_and_inserts(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Batch writes and SQL INSERT go through a commit of ours, never Spark's own files."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 10))
    rows = spark.read.format("strandline").load(table.url)

    copy = str(tmp_path / "copy")
    writer = rows.where("n < 5").write.format("strandline").option("timeColumn", "ts")
    writer.mode("append").save(copy)
    with pytest.raises(IllegalArgumentException, match="TableExists"):
        rows.write.format("strandline").save(copy)
    spark.sql(f"CREATE TABLE copied USING strandline LOCATION '{copy}'")
    try:
        spark.sql("INSERT INTO copied SELECT * FROM copied WHERE n = 3")
        assert spark.sql("SELECT count(*) FROM copied").collect()[0][0] == 6
    finally:
        spark.sql("DROP TABLE copied")

    assert numbers_in(strandline.open_table(copy)) == [0, 1, 2, 3, 4, 3]
    assert strandline.open_table(copy).verify(deep=True).ok


def test_streams_from_table_to_table(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] A stream reads by native scans, in limits, and commits each batch once."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    for number in range(3):
        source.append(events(number * 10, 10))

    def run() -> list[int]:
        query = (
            spark.readStream.format("strandline")
            .option("maxFilesPerTrigger", "2")
            .load(source.url)
            .where("n % 2 = 0")
            .writeStream.format("strandline")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("timeColumn", "ts")
            .trigger(availableNow=True)
            .start(str(tmp_path / "to"))
        )
        query.awaitTermination()
        assert query.exception() is None
        return [progress.numInputRows for progress in query.recentProgress]

    assert run() == [20, 10]
    assert sorted(numbers_in(strandline.open_table(tmp_path / "to"))) == list(range(0, 30, 2))
    source.append(events(30, 10))
    assert run() == [10]
    assert sum(run()) == 0
    assert sorted(numbers_in(strandline.open_table(tmp_path / "to"))) == list(range(0, 40, 2))


def test_a_stream_says_what_it_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    """Other output modes and pinned versions are refused before anything is written."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    source.append(events(0, 1))
    counts = spark.readStream.format("strandline").load(source.url).groupBy("user").count()
    complete = counts.writeStream.format("strandline").outputMode("complete")
    with pytest.raises(IllegalArgumentException, match="output mode append"):
        complete.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "to"))

    assert not (tmp_path / "to").exists()
