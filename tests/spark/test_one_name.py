"""`format("strandline")` does everything in one session: read, write, INSERT, stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException

import strandline
import strandline.spark
from strandline.spark.streams import STREAMS
from tests.tables import SCHEMA, START_MS, events, numbers_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

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


def test_a_write_that_is_committed_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    """[C1] Whether Spark could scan the table now is not asked, so nobody writes rows twice."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    writer = spark.range(3).selectExpr("id AS n").write.format("strandline")

    # The writer takes storage options among its own; the native scan knows none of them.
    writer.option("storage.region", "here").mode("append").save(table.url)

    assert sorted(numbers_in(strandline.open_table(table.url))) == [0, 1, 2]
    spark.sql(f"CREATE TABLE made USING strandline LOCATION '{tmp_path / 'made'}' AS SELECT 5 AS n")
    try:
        assert spark.sql("SELECT n FROM made").collect()[0][0] == 5
    finally:
        spark.sql("DROP TABLE made")


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


def test_save_modes_and_overwriting_inserts(spark: SparkSession, tmp_path: Path) -> None:
    """[C1] [C13] All rows are replaced in one commit, or none is; old versions keep theirs."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": n} for n in range(3)])

    def rows(first: int) -> DataFrame:
        return spark.range(first, first + 2, 1, 1).selectExpr("id AS n")

    rows(10).write.format("strandline").mode("ignore").save(table.url)
    assert (table.tail().version, numbers_in(table.refresh())) == (2, [0, 1, 2])
    rows(20).write.format("strandline").mode("overwrite").save(table.url)
    assert (table.tail().version, numbers_in(table.refresh())) == (3, [20, 21])
    spark.sql(f"CREATE TABLE over USING strandline LOCATION '{table.url}'")
    try:
        spark.sql("INSERT OVERWRITE over SELECT n + 1 FROM over WHERE n = 20")
        assert spark.sql("SELECT n FROM over").collect() == [(21,)]
    finally:
        spark.sql("DROP TABLE over")

    assert (table.tail().version, numbers_in(table.refresh())) == (4, [21])
    assert numbers_in(strandline.open_table(table.url, version=3)) == [20, 21]
    rows(30).write.format("strandline").mode("ignore").save(str(tmp_path / "new"))
    assert numbers_in(strandline.open_table(tmp_path / "new")) == [30, 31]


@pytest.mark.parametrize("mode", ["append", "ignore"])
def test_a_new_name_in_sparks_catalog_replaces_no_rows(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """[C1] Spark makes a table it does not know by replacing; where one is, that is refused."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    rows = spark.range(5, 7).selectExpr("id AS n").write.format("strandline").mode(mode)

    with pytest.raises(IllegalArgumentException, match="CREATE TABLE unknown USING strandline"):
        rows.option("path", table.url).saveAsTable("unknown")

    assert numbers_in(table.refresh()) == [1]
    spark.sql(f"CREATE TABLE known USING strandline LOCATION '{table.url}'")
    rows.option("path", table.url).saveAsTable("known")
    rows.option("path", str(tmp_path / "new")).saveAsTable("made")
    try:
        assert sorted(numbers_in(table.refresh())) == ([1, 5, 6] if mode == "append" else [1])
        assert [row.n for row in spark.sql("SELECT n FROM made ORDER BY n").collect()] == [5, 6]
    finally:
        spark.sql("DROP TABLE known")
        spark.sql("DROP TABLE made")


def run_stream(rows: DataFrame, sink: str, checkpoint: Path, road: str = "strandline") -> None:
    """Write what a stream has now."""
    writer = rows.writeStream.format(road).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(sink)
    query.awaitTermination()
    assert query.exception() is None


def forget_commits(checkpoint: Path) -> None:
    """The query died behind its last batch and before Spark's note of it."""
    notes = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda note: int(note.name))
    notes[-1].unlink()
    notes[-1].with_name(f".{notes[-1].name}.crc").unlink()


@pytest.mark.parametrize(
    "begin", [{"startingVersion": "latest"}, {"startingTimestamp": "2100-01-01"}], ids=str
)
def test_a_stream_from_the_tail_keeps_its_beginning(
    spark: SparkSession, tmp_path: Path, begin: dict[str, str]
) -> None:
    """[C7] Rows that come after the first look belong to it, also if its first batch runs again."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    sink = strandline.create_table(tmp_path / "to", SCHEMA, time_column="ts")
    source.append(events(0, 10))
    rows = spark.readStream.format("strandline").options(**begin).load(source.url)

    run_stream(rows, sink.url, tmp_path / "cp")
    source.append(events(10, 5))
    forget_commits(tmp_path / "cp")
    run_stream(rows, sink.url, tmp_path / "cp")
    source.append(events(15, 1))
    run_stream(rows, sink.url, tmp_path / "cp")

    assert numbers_in(strandline.open_table(sink.url)) == [10, 11, 12, 13, 14, 15]


def test_rows_that_go_before_they_are_read_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[C7] [X1] [O4] Expiry and trimming under a stream: no error, and no row twice."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts", ttl="7d")
    sink = strandline.create_table(tmp_path / "to", SCHEMA, time_column="ts")
    rows = spark.readStream.format("strandline").load(source.url)
    hour_ms = 3_600_000
    source.append(events(0, 10, step_ms=hour_ms))
    run_stream(rows, sink.url, tmp_path / "cp")
    source.append(events(10, 60, step_ms=hour_ms))
    source.expire(START_MS + (7 * 24 + 40) * hour_ms, grace=0)
    kept = numbers_in(source.refresh())
    assert 10 < kept[0] <= 40
    run_stream(rows, sink.url, tmp_path / "cp")
    assert sorted(numbers_in(strandline.open_table(sink.url))) == [*range(10), *kept]

    source.append(events(70, 10, step_ms=hour_ms))
    running = STREAMS.start({"path": source.url})
    end = STREAMS.latest(running["stream"], {"seq": 70, "table": source.uuid})
    source.trim(75)
    assert end is not None
    assert STREAMS.batch(running["stream"], None, end)["state"]["start_seq"] == 75
    STREAMS.stop(running["stream"])
    run_stream(rows, sink.url, tmp_path / "cp")

    wanted = [*range(10), *kept, *range(75, 80)]
    assert sorted(numbers_in(strandline.open_table(sink.url))) == wanted


def test_a_query_that_changes_roads_writes_no_batch_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[C7] A batch that the native sink committed is known to the data source, and the reverse."""
    strandline.spark.enable(spark)
    with pytest.raises(strandline.StrandlineError, match="name='strandline_rows'"):
        strandline.spark.register_source(spark)
    strandline.spark.register_source(spark, name="strandline_rows")
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    sink = strandline.create_table(tmp_path / "to", SCHEMA, time_column="ts")
    rows = spark.readStream.format("strandline").load(source.url)
    for count, roads in enumerate((("strandline", "strandline_rows"),) * 2):
        source.append(events(count * 5, 5))
        for road in roads if count else reversed(roads):
            run_stream(rows, sink.url, tmp_path / "cp", road)
            forget_commits(tmp_path / "cp")

    run_stream(rows, sink.url, tmp_path / "cp")

    assert numbers_in(strandline.open_table(sink.url)) == list(range(10))


def test_a_stream_says_what_it_cannot_do(spark: SparkSession, tmp_path: Path) -> None:
    """Other output modes and pinned versions are refused before anything is written."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    source.append(events(0, 1))
    counts = spark.readStream.format("strandline").load(source.url).groupBy("user").count()
    update = counts.writeStream.format("strandline").outputMode("update")
    with pytest.raises(IllegalArgumentException, match="output mode append or complete, not"):
        update.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "to"))

    assert not (tmp_path / "to").exists()


def test_a_stream_of_whole_results_replaces_them(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] [C13] In output mode complete, each batch takes the place of the one before, once."""
    strandline.spark.enable(spark)
    source = strandline.create_table(tmp_path / "from", SCHEMA, time_column="ts")
    sink = strandline.create_table(tmp_path / "to", {"k": "int64", "rows": "int64"})

    def run() -> dict[int, int]:
        rows = spark.readStream.format("strandline").load(source.url)
        counts = rows.groupBy((rows.n % 2).alias("k")).agg({"*": "count"}).toDF("k", "rows")
        writer = counts.writeStream.format("strandline").outputMode("complete")
        writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
        writer.trigger(availableNow=True).start(sink.url).awaitTermination()
        found = strandline.open_table(sink.url).scan().to_arrow().to_pylist()
        return {row["k"]: row["rows"] for row in found}

    source.append(events(0, 3))
    assert run() == {0: 2, 1: 1}
    source.append(events(3, 2))
    assert run() == {0: 3, 1: 2}
    forget_commits(tmp_path / "cp")
    version = sink.tail().version
    assert run() == {0: 3, 1: 2}
    assert sink.tail().version == version


def test_what_is_wrong_with_rows_is_said_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[E1] [C11] By the driver where columns tell it, from a task where only values do."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", {"n": "int32", "m": "int64"})

    def message_for(*columns: str) -> str:
        writer = spark.range(4).selectExpr(*columns).write.format("strandline").mode("append")
        with pytest.raises(IllegalArgumentException) as raised:
            writer.save(table.url)
        return str(raised.value).split("\n\nJVM stacktrace")[0]

    missing = "InvalidRow: the data, field 'x': there is no such column (columns: n, m). "
    assert message_for("id AS x") == f"{missing}Nothing was written."
    wrong = "InvalidRow: the data, field 'm': the data is string and the column is int64. "
    assert message_for("string(id) AS m") == f"{wrong}Nothing was written."
    assert not [path for path in (tmp_path / "t").iterdir() if path.name.startswith("w")]
    large = message_for("(id + 1) * 5000000000 AS n")
    assert large.startswith("InvalidRow: row 0, field 'n': ")
    assert large.endswith(
        "does not fit int32: it holds -2147483648 to 2147483647. Nothing was written."
    )
    assert message_for("raise_error('by hand') AS m").startswith("SparkRuntimeException: [USER_")
    assert table.tail().version == 1


def test_what_a_table_has_not_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Partitions and buckets of Spark's, and SQL that changes rows: nothing is done."""
    strandline.spark.enable(spark)
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    rows = spark.range(5, 7).selectExpr("id AS n").write.format("strandline").mode("append")

    with pytest.raises(IllegalArgumentException, match="partitionBy means nothing"):
        rows.partitionBy("n").save(table.url)
    rows = spark.range(5, 7).selectExpr("id AS n").write.format("strandline")
    with pytest.raises(IllegalArgumentException, match="bucketBy and CLUSTERED BY mean nothing"):
        rows.bucketBy(2, "n").option("path", str(tmp_path / "new")).saveAsTable("buckets")
    spark.sql(f"CREATE TABLE changed USING strandline LOCATION '{table.url}'")
    try:
        for name, statement in {
            "DELETE FROM": "DELETE FROM changed WHERE n = 1",
            "UPDATE": "UPDATE changed SET n = 2",
            "MERGE INTO": "MERGE INTO changed t USING changed s ON t.n = s.n "
            "WHEN MATCHED THEN DELETE",
        }.items():
            with pytest.raises(PySparkException, match=name):
                spark.sql(statement)
    finally:
        spark.sql("DROP TABLE changed")

    assert numbers_in(table.refresh()) == [1]
    assert not (tmp_path / "new").exists()
