"""Tables as sources and sinks of streaming queries: every row once, wherever a query stops."""

from __future__ import annotations

import shutil
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from strandline.spark import register_source
from strandline.spark.source_options import read_options
from strandline.spark.source_rows import Rows, spark_schema
from strandline.spark.stream_read import StreamReader
from tests.spark.source_tables import (
    START,
    event,
    events_frame,
    filled_table,
    new_table,
    numbers_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import strandline

pytestmark = pytest.mark.spark

KNOWS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
"""PySpark 4.1 has neither limits nor availableNow for Python sources."""


@pytest.fixture(autouse=True)
def _source(spark: SparkSession) -> None:
    register_source(spark)


def copy_stream(
    spark: SparkSession,
    source: strandline.Table,
    sink: strandline.Table,
    checkpoint: Path,
    **options: Any,
) -> list[int]:
    """Copy what is there now, and give the rows of each batch."""
    rows = spark.readStream.format("strandline").options(**options).load(source.url)
    query = (
        rows.writeStream.format("strandline")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(sink.url)
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def forget(notes: Path, first: int) -> None:
    """Remove Spark's notes of batches, with their checksums (`.3.crc`)."""
    for note in notes.iterdir():
        number = note.name.removeprefix(".").removesuffix(".crc")
        if number.isdecimal() and int(number) >= first:
            note.unlink()


def test_a_stream_copies_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] Limits hold, restarts go on where the last run ended, compaction in between or not."""
    source, sink = filled_table(tmp_path / "a"), new_table(tmp_path / "b")

    batches = copy_stream(spark, source, sink, tmp_path / "cp", maxFilesPerTrigger=2)
    assert len(batches) > 2 or not KNOWS_LIMITS
    assert sorted(numbers_of(sink)) == list(range(90))

    source.append([event(90 + i) for i in range(5)])
    source.compact()
    copy_stream(spark, source, sink, tmp_path / "cp")
    assert sorted(numbers_of(sink)) == list(range(95))
    version = sink.tail().version
    copy_stream(spark, source, sink, tmp_path / "cp")
    assert sink.tail().version == version


def test_a_batch_that_runs_again_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] The query died after its commit and before its own note of it, at every batch."""
    source, sink = filled_table(tmp_path / "a"), new_table(tmp_path / "b")
    copy_stream(spark, source, sink, tmp_path / "cp", maxFilesPerTrigger=3)
    batches = len(list((tmp_path / "cp" / "commits").glob("[0-9]*")))

    for kept in range(batches - 1, -1, -1):
        # Spark's notes of the commits from here on are lost; one batch's offset is there.
        forget(tmp_path / "cp" / "commits", kept)
        forget(tmp_path / "cp" / "offsets", kept + 1)
        copy_stream(spark, source, sink, tmp_path / "cp", maxFilesPerTrigger=3)
        assert sorted(numbers_of(sink)) == list(range(90))


def test_rows_that_go_before_they_are_read_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[C7] [X1] [O4] Expiry and trimming under a stream: no error, and no row twice."""
    source, sink = filled_table(tmp_path / "a"), new_table(tmp_path / "b")
    copy_stream(spark, source, sink, tmp_path / "cp")
    source.append([event(n) for n in range(90, 240)])
    source.expire(START + timedelta(days=7, hours=100), grace=0)  # whole windows: four days
    copy_stream(spark, source, sink, tmp_path / "cp")
    assert numbers_of(source) == list(range(96, 240))
    assert sorted(numbers_of(sink)) == [*range(90), *range(96, 240)]

    source.append([event(n) for n in range(240, 260)])
    source.trim(250)
    copy_stream(spark, source, sink, tmp_path / "cp")

    assert sorted(numbers_of(sink)) == [*range(90), *range(96, 240), *range(250, 260)]


@pytest.mark.proof
def test_another_query_is_another_writer(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] Batch numbers count within a query: a new checkpoint writes its own rows."""
    source, sink = filled_table(tmp_path / "a", commits=1, rows=3), new_table(tmp_path / "b")
    copy_stream(spark, source, sink, tmp_path / "cp1")
    copy_stream(spark, source, sink, tmp_path / "cp2")
    assert sorted(numbers_of(sink)) == [0, 0, 1, 1, 2, 2]


def test_a_replaced_table_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] Offsets belong to one table; rows of another are not passed off as its next ones."""
    source, sink = filled_table(tmp_path / "a", commits=1, rows=3), new_table(tmp_path / "b")
    copy_stream(spark, source, sink, tmp_path / "cp")
    shutil.rmtree(tmp_path / "a")
    source = filled_table(tmp_path / "a", commits=2, rows=5)

    with pytest.raises(PySparkException, match="another table"):
        copy_stream(spark, source, sink, tmp_path / "cp")
    assert sorted(numbers_of(sink)) == [0, 1, 2]


def test_a_failing_task_is_repeated_by_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] A batch whose task failed left nothing behind, and is written whole later."""
    source, sink = filled_table(tmp_path / "a", commits=1, rows=6), new_table(tmp_path / "b")
    rows = spark.readStream.format("strandline").load(source.url)
    broken = rows.selectExpr("ts", "if(n = 4, int(raise_error('broken')), n) AS n", "tag")

    def run(frame: Any) -> None:
        writer = frame.writeStream.format("strandline").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "cp")).start(sink.url).awaitTermination()

    with pytest.raises(PySparkException, match="broken"):
        run(broken)
    assert sink.tail().version == 1
    run(rows)
    assert sorted(numbers_of(sink)) == list(range(6))


# --- offsets, without a query ---


def reader_of(table: strandline.Table, **options: str) -> StreamReader:
    """The reader that Spark's planner would make."""
    settings = read_options({"path": table.url, **options})
    return StreamReader(Rows(settings, spark_schema(table.manifest, settings)))


def test_where_a_stream_begins(tmp_path: Path) -> None:
    """[C7] From the first row, a version, a time, or the tail."""
    table = filled_table(tmp_path / "t")
    at = [record.committed_at for record in reversed(table.history())]

    starts = {
        None: 0,
        ("startingVersion", "1"): 0,
        ("startingVersion", "3"): 30,
        ("startingVersion", "latest"): 90,
        ("startingTimestamp", str(at[2])): 30,
        ("startingTimestamp", str(at[2] + 1)): 60,
        ("startingTimestamp", "2020-01-01"): 0,
    }
    for option, seq in starts.items():
        offset = reader_of(table, **dict([option] if option else [])).initialOffset()
        assert offset == {"seq": seq, "table": table.uuid}, option


def test_the_tail_is_where_the_first_look_found_it(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] Rows that come after the first look belong to the stream, also after a crash."""
    source, sink = filled_table(tmp_path / "a", commits=1, rows=4), new_table(tmp_path / "b")
    reader = reader_of(source, startingVersion="latest")
    first = reader.initialOffset()
    source.append([event(4)])
    assert reader.initialOffset() == first
    # An empty batch puts the beginning into the checkpoint; what is behind it comes next.
    assert reader.latestOffset(first)["seq"] == 4
    assert reader.latestOffset(first)["seq"] == 5

    copy_stream(spark, source, sink, tmp_path / "cp", startingVersion="latest")
    source.append([event(5)])
    forget(tmp_path / "cp" / "commits", 0)
    copy_stream(spark, source, sink, tmp_path / "cp", startingVersion="latest")
    if not KNOWS_LIMITS:  # Spark 4.1 ends with the batch that runs again
        copy_stream(spark, source, sink, tmp_path / "cp", startingVersion="latest")
    assert numbers_of(sink) == [5]


def test_limits_cut_batches_and_always_get_on(tmp_path: Path) -> None:
    """[C7] Files and bytes bound a batch; one file is always read, and the end is reached."""
    table = filled_table(tmp_path / "t")
    for options in ({"maxFilesPerTrigger": "1"}, {"maxBytesPerTrigger": "1"}):
        reader = reader_of(table, **options)
        offset, steps, rows = reader.initialOffset(), 0, 0
        limit = reader.getDefaultReadLimit() if KNOWS_LIMITS else None
        while (latest := reader.latestOffset(offset, limit)) != offset:
            parts = reader.partitions(offset, latest)
            rows += sum(batch.num_rows for part in parts for batch in reader.read(part))
            offset, steps = latest, steps + 1
        assert (rows, offset["seq"]) == (90, 90)
        assert steps == table.files().num_rows


def test_a_restart_at_every_offset_reads_every_row_once(tmp_path: Path) -> None:
    """[C7] Wherever a query is stopped, the two halves are the whole."""
    table = filled_table(tmp_path / "t")
    for cut in range(0, 91, 13):
        found = []
        for start, end in ((0, cut), (cut, 90)):
            reader = reader_of(table)
            ends = [{"seq": seq, "table": table.uuid} for seq in (start, end)]
            for part in reader.partitions(*ends):
                for batch in reader.read(part):
                    found += batch.column("n").to_pylist()
            if cut == 39:
                table.compact()
        assert sorted(found) == list(range(90))


def test_new_rows_do_not_move_the_target_of_available_now(tmp_path: Path) -> None:
    """[C7] availableNow ends at what was there when it began."""
    table = filled_table(tmp_path / "t", commits=1, rows=4)
    reader = reader_of(table)
    if not hasattr(reader, "prepareForTriggerAvailableNow"):
        return
    reader.prepareForTriggerAvailableNow()
    table.append([event(100)])
    assert reader.latestOffset(reader.initialOffset(), None)["seq"] == 4


@pytest.mark.proof
def test_complete_mode_replaces_the_result(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] An aggregate in complete mode is the whole result each time."""
    source = filled_table(tmp_path / "a", commits=1, rows=6)
    sink = new_table(tmp_path / "b")
    for more in (0, 1):
        source.append([event(10 + i) for i in range(more)])
        counted = (
            spark.readStream.format("strandline")
            .load(source.url)
            .groupBy("tag")
            .agg({"n": "count", "ts": "max"})
            .selectExpr("`max(ts)` AS ts", "`count(n)` AS n", "tag")
        )
        writer = counted.writeStream.format("strandline").outputMode("complete")
        writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
        writer.trigger(availableNow=True).start(sink.url).awaitTermination()
        assert sum(numbers_of(sink)) == 6 + more
        assert len(numbers_of(sink)) == 3


@pytest.mark.proof
def test_foreach_batch_and_batch_writes_mix(spark: SparkSession, tmp_path: Path) -> None:
    """[C7] A sink takes batch appends too; positions of queries and jobs stay apart."""
    source, sink = filled_table(tmp_path / "a", commits=1, rows=3), new_table(tmp_path / "b")
    copy_stream(spark, source, sink, tmp_path / "cp")
    events_frame(spark, 2, first=50).write.format("strandline").mode("append").save(sink.url)
    assert sorted(numbers_of(sink)) == [0, 1, 2, 50, 51]
