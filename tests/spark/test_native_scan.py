"""Spark's own scan over our plan: which files are read, and that answers stay right."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

import strandline
import strandline.spark
from strandline.spark.sources import SOURCES
from tests.edited import commit_by_hand
from tests.tables import SCHEMA, START_MS, events, numbers_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.table import Table

pytestmark = pytest.mark.spark

FILES, ROWS = 8, 100


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Eight files of a hundred rows, one after the other in time."""
    made = strandline.create_table(
        tmp_path_factory.mktemp("native") / "t", SCHEMA, time_column="ts", ttl="30d"
    )
    for number in range(FILES):
        made.append(events(number * ROWS, ROWS))
    return made


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: Table) -> DataFrame:
    """The table with its hidden columns."""
    return strandline.spark.read(spark, table.url, hidden_columns=True)


@pytest.fixture
def session_table(spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    """A table that Spark's catalog knows as `ev`."""
    made = strandline.create_table(tmp_path / "ev", SCHEMA, time_column="ts")
    made.append(events(0, 10))
    strandline.spark.enable(spark)
    spark.sql(f"CREATE TABLE ev USING strandline LOCATION '{made.url}'")
    yield made
    spark.sql("DROP TABLE ev")


def files_read(frame: DataFrame) -> int:
    """How many files the scans of a query list."""
    plan = frame._jdf.queryExecution().sparkPlan()  # type: ignore[operator] # noqa: SLF001
    leaves = plan.collectLeaves()
    return sum(
        leaves.apply(n).relation().location().listFiles(
            leaves.apply(n).partitionFilters(), leaves.apply(n).dataFilters()
        ).head().files().size()
        for n in range(leaves.size())
    )  # fmt: skip


MOMENT = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=350)
PRUNING = {
    "n = 350": 1,
    "n <=> 350": 1,
    "350 = n": 1,
    "n < 100": 1,
    "n <= 100": 2,
    "n > 700": 1,
    "n >= 700": 1,
    "n BETWEEN 150 AND 250": 2,
    "n IN (5, 705)": 2,
    f"n IN ({', '.join(str(n) for n in range(100, 200))})": 1,
    "n IS NULL": 0,
    "NOT (n >= 100)": 1,
    "n < 100 OR n >= 700": 2,
    "n < 100 AND user LIKE 'user%'": 1,
    "n < 100 AND length(user) > 3": 1,
    "NOT (n >= 100 OR length(user) = 0)": 1,
    "user LIKE 'nobody%'": 0,
    "user LIKE 'user%'": FILES,
    "length(user) = 6": FILES,
    "n < 100 OR length(user) = 6": FILES,
    "CAST(n AS int) = 5": FILES,
    "n = CAST('350' AS bigint)": 1,
    "_seq = 350": 1,
    "_seq BETWEEN 150 AND 250": 2,
    "_seq < 100 OR _seq >= 750": 2,
    f"_ts = {START_MS + 350_000}": 1,
    f"_ts >= {START_MS + 750_000}": 1,
    "_window < 0": 0,
    f"ts = TIMESTAMP '{MOMENT.isoformat()}'": 1,
    f"ts >= TIMESTAMP '{MOMENT.isoformat()}'": 5,
}


@pytest.mark.parametrize("condition", PRUNING, ids=lambda text: text[:40])
def test_filters_choose_files_and_change_no_answer(
    frame: DataFrame, table: Table, condition: str
) -> None:
    """[C11] Files that a filter rules out are not listed; rows are those that all files give."""
    rows = table.scan(["ts", "user", "amount", "n", "_seq", "_ts", "_window"]).to_arrow()
    spark = frame.sparkSession

    found = frame.where(condition)

    assert files_read(found) == PRUNING[condition]
    wanted = spark.createDataFrame(rows).where(condition).select("n")
    assert sorted(row.n for row in found.select("n").collect()) == sorted(
        row.n for row in wanted.collect()
    )


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_prune_in_any_session_zone(frame: DataFrame, zone: str) -> None:
    """[C11] A literal means what the session's zone says; the right file is found."""
    spark = frame.sparkSession
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        local = spark.sql(f"SELECT CAST(timestamp_millis({START_MS + 350_000}) AS string)")
        found = frame.where(f"ts = TIMESTAMP '{local.collect()[0][0]}'")
        assert files_read(found) == 1
        assert [row.n for row in found.select("n").collect()] == [350]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_sequence_numbers_are_exact_in_every_kind_of_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[X2] Dense files, files split over windows and shards, sorted ones: `_seq` as in Python."""
    table = strandline.create_table(
        tmp_path / "t", SCHEMA, time_column="ts", ttl="1h", shard_by="user", shards=3,
        sort_by=["amount"],
    )  # fmt: skip
    table.append(events(0, 50, step_ms=200_000))
    table.append(events(50, 50, step_ms=200_000))

    found = strandline.spark.read(spark, table.url, columns=["n", "_seq", "_ts", "_window"])

    wanted = table.scan(["n", "_seq", "_ts", "_window"]).to_arrow().to_pylist()
    assert sorted(tuple(row) for row in found.collect()) == sorted(
        tuple(row.values()) for row in wanted
    )


def test_hidden_columns_cost_nothing_unused(frame: DataFrame) -> None:
    """[X2] A query that does not name them reads its own columns and no file constants."""
    plan = frame.select("n").where("n > 5")._jdf.queryExecution().toString()  # type: ignore[operator] # noqa: SLF001

    assert "ReadSchema: struct<n:bigint>" in plan
    assert "row_index" not in plan


def test_bounds_cut_files_that_straddle_them(spark: SparkSession, table: Table) -> None:
    """Sequence and time bounds give the rows of the same Python scan."""
    for bounds in (
        {"start_seq": 150, "end_seq": 450},
        {"start_ts": START_MS + 99_000, "end_ts": START_MS + 501_000},
        {"start_seq": 100, "end_seq": 200},
    ):
        found = strandline.spark.read(spark, table.url, **bounds)  # type: ignore[arg-type]
        wanted = table.scan(["n"], **bounds).to_arrow().column("n").to_pylist()  # type: ignore[arg-type]
        assert sorted(row.n for row in found.select("n").collect()) == wanted
        assert found.count() == len(wanted)
        assert found.where("n = 160").count() == wanted.count(160)


def test_several_scans_of_one_table_in_one_query(frame: DataFrame) -> None:
    """Self-joins, unions, subqueries and caching: each scan keeps its own filter."""
    frame.createOrReplaceTempView("many")
    spark = frame.sparkSession

    joined = spark.sql(
        "SELECT count(*) FROM many a JOIN many b ON a._seq = b._seq + 1 "
        "WHERE a.n < 300 AND b.n > 50"
    )
    assert joined.collect()[0][0] == 248
    union = spark.sql("SELECT n FROM many WHERE n < 3 UNION ALL SELECT n FROM many WHERE n > 797")
    assert sorted(row.n for row in union.collect()) == [0, 1, 2, 798, 799]
    nested = "SELECT n FROM many WHERE n = (SELECT max(n) - 1 FROM many WHERE n < 500)"
    assert [row.n for row in spark.sql(nested).collect()] == [498]
    exists = "SELECT count(*) FROM many a WHERE a.n IN (SELECT b.n FROM many b WHERE b._seq < 7)"
    assert spark.sql(exists).collect()[0][0] == 7
    cached = frame.where("n < 250").cache()
    try:
        assert (cached.count(), cached.where("n < 10").count(), frame.count()) == (250, 10, 800)
    finally:
        cached.unpersist()


def test_runtime_filters_and_broadcasts(frame: DataFrame) -> None:
    """AQE, broadcast threads and injected bloom filters reach the planner and change no answer."""
    spark = frame.sparkSession
    settings = {
        "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
        "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
        "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "10GB",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        left, right = frame.alias("l"), frame.where("amount < 5 AND user = 'user-1'").alias("r")
        found = left.join(right, "n").select("n").collect()
        assert sorted(row.n for row in found) == [1, 8, 15]
    finally:
        for key in settings:
            spark.conf.unset(key)
    small = frame.where("n < 5").hint("broadcast")
    assert frame.join(small, "n").count() == 5


def test_concurrent_queries(frame: DataFrame) -> None:
    """Many threads plan and run at once; each gets its own rows."""

    def ask(number: int) -> int:
        found: int = frame.where(f"n >= {number * 10} AND n < {number * 10 + 10}").count()
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(24))) == [10] * 24


def test_one_format_name_for_reading(spark: SparkSession, table: Table) -> None:
    """[C11] Options of `format("strandline")`: version, time, bounds, columns."""
    strandline.spark.enable(spark)
    reader = spark.read.format("strandline")

    assert reader.load(table.url).columns == table.schema.names
    assert spark.read.format("strandline").option("versionAsOf", "3").load(table.url).count() == 200
    at = table.history()[2].committed_at
    assert spark.read.format("strandline").option("timestampAsOf", at).load(table.url).count() == (
        strandline.open_table(table.url, as_of=at).scan().count()
    )
    bounded = spark.read.format("strandline").options(startSeq="5", endSeq="8", columns="n, _seq")
    assert sorted(tuple(row) for row in bounded.load(table.url).collect()) == [
        (5, 5), (6, 6), (7, 7),
    ]  # fmt: skip


def test_what_is_wrong_reaches_the_user(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """[C11] Messages of our errors come out of Spark as they are."""
    strandline.spark.enable(spark)
    with pytest.raises(IllegalArgumentException, match="TableNotFound"):
        spark.read.format("strandline").load(str(tmp_path / "nothing"))
    with pytest.raises(IllegalArgumentException, match="knows no option 'versionsof'"):
        spark.read.format("strandline").option("versionsOf", "1").load(table.url)
    for option in ("startTime", "endTime", "timestampAsOf"):
        with pytest.raises(IllegalArgumentException, match=f"option {option} .*'yesterday'"):
            spark.read.format("strandline").option(option, "yesterday").load(table.url)
    with pytest.raises(IllegalArgumentException, match="option versionAsOf must be"):
        spark.read.format("strandline").option("versionAsOf", "newest").load(table.url)
    with pytest.raises(IllegalArgumentException, match="say where the table is"):
        spark.read.format("strandline").load()
    with pytest.raises(strandline.InvalidInput, match="give version or as_of"):
        strandline.spark.read(spark, table.url, version=1, as_of=5)
    with pytest.raises(AnalysisException, match="_seq"):
        strandline.spark.read(spark, table.url).select("_seq")


def test_a_table_in_sparks_catalog_is_live(spark: SparkSession, session_table: Table) -> None:
    """[C11] Each query on `USING strandline` sees the newest version, one for all its scans."""
    assert spark.sql("SELECT count(*) FROM ev").collect()[0][0] == 10
    session_table.append(events(10, 5))

    assert spark.sql("SELECT count(*), max(n) FROM ev").collect()[0] == (15, 14)
    both = spark.sql("SELECT count(*) FROM ev a JOIN ev b ON a.n = b.n WHERE a.n >= 12")
    assert both.collect()[0][0] == 3


@pytest.mark.parametrize("cached", ["live", "pinned"])
def test_a_cache_of_one_version_is_not_taken_for_another(
    spark: SparkSession, session_table: Table, cached: str
) -> None:
    """[C2] A live table and a DataFrame of its first version: neither is answered by the other."""
    spark.sql("SELECT * FROM ev").collect()
    # As Spark's catalog spells it; so the two plans differ in nothing else.
    pinned = spark.read.format("strandline").load(f"file:{session_table.url}")
    session_table.append(events(10, 5))
    kept = (spark.table("ev") if cached == "live" else pinned).cache()
    try:
        assert kept.count() == (15 if cached == "live" else 10)

        assert pinned.count() == 10
        assert spark.table("ev").count() == 15
    finally:
        kept.unpersist()


def test_a_changed_column_asks_for_a_refresh(spark: SparkSession, session_table: Table) -> None:
    """[C3] A rename is seen through, a dropped column is an error, and REFRESH TABLE heals it."""
    spark.sql("SELECT * FROM ev").collect()
    session_table.evolve(rename={"amount": "price"}, add={"amount": "string"})
    assert spark.sql("SELECT sum(amount) FROM ev").collect()[0][0] == 11.25
    session_table.evolve(drop=["user"])
    with pytest.raises(IllegalArgumentException, match="REFRESH TABLE"):
        spark.sql("SELECT count(*) FROM ev WHERE n > 1").collect()

    spark.sql("REFRESH TABLE ev")

    assert spark.sql("SELECT * FROM ev").columns == ["ts", "price", "n", "amount"]


def test_an_insert_under_old_names_is_refused(spark: SparkSession, session_table: Table) -> None:
    """[C3] A name that means another column by now takes no rows; REFRESH TABLE heals it."""
    spark.sql("SELECT * FROM ev").collect()
    session_table.evolve(rename={"amount": "price"}, add={"amount": "float64"})
    before = session_table.tail()
    for verb in ("INTO", "OVERWRITE"):
        with pytest.raises(IllegalArgumentException, match=r"called 'price'.*REFRESH TABLE"):
            spark.sql(f"INSERT {verb} ev SELECT * FROM ev")
    assert session_table.tail() == before

    spark.sql("REFRESH TABLE ev")
    spark.sql("INSERT INTO ev SELECT * FROM ev")

    found = spark.sql("SELECT sum(price), count(amount), count(*) FROM ev").collect()[0]
    assert tuple(found) == (22.5, 0, 20)


def test_a_new_column_needs_no_refresh_to_insert(spark: SparkSession, session_table: Table) -> None:
    """[C3] Names that Spark knows still mean the same columns; the new one stays empty."""
    spark.sql("SELECT * FROM ev").collect()
    session_table.evolve(add={"more": "string"})

    spark.sql("INSERT INTO ev SELECT * FROM ev WHERE n = 3")

    assert numbers_in(session_table.refresh())[-1] == 3


def give_up_versions(table: Table) -> None:
    """Only the newest version can be opened, and none is in memory."""
    version = table.refresh().version
    lifecycle = replace(table.manifest.lifecycle, oldest_version=version)
    commit_by_hand(table, lifecycle=lifecycle)
    SOURCES._tables.clear()  # noqa: SLF001 - as after many other tables


def test_a_live_table_outlives_the_version_it_was_first_seen_at(
    spark: SparkSession, session_table: Table
) -> None:
    """[C11] Versions that are given up take no live table with them, nor a running stream."""
    query = spark.readStream.format("strandline").load(session_table.url).writeStream
    stream = query.format("memory").queryName("streamed").start()
    try:
        stream.processAllAvailable()
        assert spark.sql("SELECT count(*) FROM ev").collect()[0][0] == 10
        session_table.append(events(10, 5))
        give_up_versions(session_table)
        with pytest.raises(strandline.VersionNotFound):
            strandline.open_table(session_table.url, version=2)

        assert spark.sql("SELECT count(*) FROM ev").collect()[0][0] == 15
        stream.processAllAvailable()
        assert spark.table("streamed").count() == 15
    finally:
        stream.stop()


def test_a_new_session_knows_the_format(spark: SparkSession, table: Table) -> None:
    """`newSession()` after `enable` reads without another call."""
    strandline.spark.enable(spark)
    other = spark.newSession()

    assert other.read.format("strandline").load(table.url).where("n < 5").count() == 5


def test_an_older_version_hides_what_has_expired(spark: SparkSession, tmp_path: Path) -> None:
    """[X1] The floor of the newest version holds for every version."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 10))
    frame = strandline.spark.read(spark, table.url)
    commit_by_hand(table, floor_ts=START_MS + 4_000)

    assert strandline.spark.read(spark, table.url, version=2).count() == 6
    assert frame.count() == 10, "a handle keeps what it saw when it was opened"


def test_nested_columns_are_pruned_and_filtered(spark: SparkSession, tmp_path: Path) -> None:
    """[E10] Spark reads single fields of a struct, and filters on them are understood."""
    device = pa.struct([("os", pa.string()), ("version", pa.int64()), ("noise", pa.string())])
    table = strandline.create_table(
        tmp_path / "t", pa.schema([("device", device), ("n", pa.int64())])
    )
    table.append(
        [{"device": {"os": "linux", "version": n, "noise": "x"}, "n": n} for n in range(9)]
    )
    table.evolve(rename={"device": "machine"})
    frame = strandline.spark.read(spark, table.url)

    found = frame.where("machine.version > 6").select("machine.os", "n")

    assert sorted(tuple(row) for row in found.collect()) == [("linux", 7), ("linux", 8)]
    plan: Any = found._jdf.queryExecution().toString()  # type: ignore[operator] # noqa: SLF001
    assert "noise" not in plan.split("Physical Plan")[1]
