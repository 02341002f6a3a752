"""Keyed tables in Spark: the newest row of each key answers, on every road."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import strandline
import strandline.spark
from tests.spark.test_native_scan import files_read
from tests.tables import START_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.table import Table

pytestmark = pytest.mark.spark

COLUMNS = {"ts": "int64", "shop": "string", "item": "int32", "price": "int64"}
Row = tuple[int, str, int, int]


def rows(*given: Row) -> list[dict[str, Any]]:
    """Hour, shop, item and price."""
    return [
        {"ts": START_MS + hour * 3_600_000, "shop": shop, "item": item, "price": price}
        for hour, shop, item, price in given
    ]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Files that overlap in keys: replaced, replaced at the same time, and too late to replace."""
    made = strandline.create_table(
        tmp_path / "prices", COLUMNS, time_column="ts", primary_key=["shop", "item"], ttl="30d"
    )
    made.append(rows((1, "a", 1, 10), (1, "b", 1, 11), (1, "c", 1, 12), (5, "d", 1, 13)))
    made.append(rows((2, "a", 1, 20), (1, "b", 1, 21), (3, "e", 1, 22), (3, "e", 1, 23)))
    made.append(rows((4, "d", 1, 30), (9, "x", 1, 31), (9, "x", 2, 32)))
    return made


def stored(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a query, in an order of their own."""
    return sorted(tuple(row) for row in frame.collect())


def python(table: Table, **request: Any) -> list[tuple[Any, ...]]:
    """The same from Python."""
    found = table.scan(["shop", "item", "price", "_seq"], **request).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def native(spark: SparkSession, table: Table, **request: Any) -> DataFrame:
    """The same columns from Spark."""
    return strandline.spark.read(
        spark, table.url, columns=["shop", "item", "price", "_seq", "_ts", "ts"], **request
    )


def shown(frame: DataFrame) -> list[tuple[Any, ...]]:
    """What `python` gives."""
    return stored(frame.select("shop", "item", "price", "_seq"))


WINNERS = [
    ("a", 1, 20, 4),
    ("b", 1, 21, 5),
    ("c", 1, 12, 2),
    ("d", 1, 13, 3),
    ("e", 1, 23, 7),
    ("x", 1, 31, 9),
    ("x", 2, 32, 10),
]


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_the_newest_row_of_each_key_is_read(
    spark: SparkSession, table: Table, adaptive: str
) -> None:
    """[X2] [C4] [M8] The greatest (`_ts`, `_seq`) wins, whatever files and partitions it is in."""
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        assert python(table) == WINNERS
        assert shown(native(spark, table)) == WINNERS
        assert native(spark, table).count() == len(WINNERS)
        assert stored(native(spark, table).groupBy("shop").count()) == [
            *((shop, 1) for shop in "abcde"),
            ("x", 2),
        ]
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", str(before))


@pytest.fixture
def named(spark: SparkSession, table: Table, tmp_path: Path) -> Iterator[Table]:
    """The table as `USING strandline`, and another one in a catalog that is attached."""
    strandline.spark.enable(spark)
    spark.sql(f"CREATE TABLE keyed_prices USING strandline LOCATION '{table.url}'")
    lake = strandline.Catalog(tmp_path / "lake")
    made = lake.create_table("keyed_view", COLUMNS, time_column="ts", primary_key=["shop"])
    made.append(rows((1, "a", 1, 1), (2, "a", 1, 2)))
    strandline.spark.attach(spark, tmp_path / "lake")
    yield table
    strandline.spark.detach(spark)
    spark.sql("DROP TABLE keyed_prices")


def test_every_road_to_a_keyed_table_gives_winners(spark: SparkSession, named: Table) -> None:
    """[C11] [C4] SQL tables, which are live, `format("strandline")` and attached views."""
    chosen = "shop, item, price"
    winners = [row[:3] for row in WINNERS]
    loaded = spark.read.format("strandline").load(named.url)

    assert stored(spark.sql(f"SELECT {chosen} FROM keyed_prices")) == winners
    assert stored(loaded.selectExpr("shop", "item", "price")) == winners
    assert stored(spark.sql("SELECT shop, price FROM keyed_view")) == [("a", 2)]
    assert spark.sql("SELECT count(*) FROM keyed_view__segments").collect()[0][0] == 1
    named.append(rows((20, "a", 1, 99)))
    assert spark.sql("SELECT price FROM keyed_prices WHERE shop = 'a'").collect()[0][0] == 99
    assert loaded.where("shop = 'a'").collect()[0].price == 20  # pinned
    joined = spark.sql(
        "SELECT l.shop, r.price FROM keyed_prices l JOIN keyed_prices r USING (shop, item) "
        "WHERE l.price > 30 AND r.price < 50"
    )
    assert stored(joined) == [("x", 31), ("x", 32)]


FILTERS = {
    "price = 10": 3,  # the file with its winner would be left out by its prices
    "price < 13": 3,
    "price >= 20": 3,
    "_seq = 4": 3,
    "_seq < 4": 3,
    f"_ts <= {START_MS + 3_600_000}": 3,
    f"ts <= {START_MS + 3_600_000}": 3,
    f"_ts >= {START_MS + 8 * 3_600_000}": 1,
    f"{START_MS + 8 * 3_600_000} < _ts": 1,
    f"_ts BETWEEN {START_MS + 8 * 3_600_000} AND {START_MS + 9 * 3_600_000}": 1,
    "shop = 'c'": 2,
    "shop = 'c' AND price > 12": 2,
    "(shop = 'c' AND price < 13) OR shop = 'b'": 2,
    "shop = 'c' OR price = 30": 3,
    "shop = 'x' AND item = 2": 1,
    "NOT (shop >= 'c')": 2,
    "shop IN ('b', 'x')": 3,
    "length(shop) = 1 AND item = 2": 1,
    "rand() < 2 AND price = 20": 3,
    "shop IN (SELECT s FROM VALUES ('e') AS v(s)) AND price = 22": 3,
}


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_are_about_winners(spark: SparkSession, table: Table, condition: str) -> None:
    """[C4] [E11] Only what is said about the key, and the least `_ts`, leaves files out."""
    frame = native(spark, table)
    found = frame.where(condition)

    if "SELECT" not in condition:
        assert files_read(found) == FILTERS[condition]
    everything = spark.createDataFrame(frame.toArrow())
    assert shown(found) == shown(everything.where(condition))


REQUESTS: list[dict[str, int]] = [
    {"start_seq": 3},
    {"end_seq": 5},
    {"start_seq": 3, "end_seq": 8},
    {"end_ts": START_MS + 3 * 3_600_000},
    {"start_ts": START_MS + 2 * 3_600_000, "end_ts": START_MS + 5 * 3_600_000},
    {"version": 3},
    {"start_seq": 5, "all_rows": True},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_bounds_are_about_winners_and_the_trim_point_is_not(
    spark: SparkSession, table: Table, request_: dict[str, int]
) -> None:
    """[C4] [O4] As Python reads; a row that was trimmed replaces none any more."""
    asked = dict(request_)
    version = asked.pop("version", None)
    pinned = strandline.open_table(table.url, version)

    assert shown(native(spark, table, version=version, **asked)) == python(pinned, **asked)
    table.trim(5)
    trimmed = strandline.open_table(table.url, version)
    assert shown(native(spark, table, version=version, **asked)) == python(trimmed, **asked)
    assert ("d", 1, 30, 8) in python(table)


def test_queries_that_need_no_column_or_hidden_ones(spark: SparkSession, table: Table) -> None:
    """[X2] The key is read for finding winners, also where nobody asks for it."""
    only_price = strandline.spark.read(spark, table.url, columns=["price", "_window"])

    assert sorted(row.price for row in only_price.select("price").collect()) == sorted(
        row[2] for row in WINNERS
    )
    assert only_price.where("_window >= 0").count() == len(WINNERS)
    assert only_price.selectExpr("count(*)", "max(price)").collect()[0] == (len(WINNERS), 32)
    file_name = only_price.selectExpr("_metadata.file_path AS f", "price").where("price = 20")
    assert file_name.collect()[0].f.endswith(".parquet")


def test_appends_and_inserts_upsert(spark: SparkSession, named: Table) -> None:
    """[C4] [C7] Rows that Spark appends replace those of their keys, as `append` does."""
    spark.sql(f"INSERT INTO keyed_prices VALUES ({START_MS + 36_000_000}, 'a', 1, 77)")
    more = spark.createDataFrame(pa.Table.from_pylist(rows((30, "b", 1, 78), (0, "c", 1, 79))))
    more.selectExpr("ts", "shop", "cast(item AS int)", "price").write.format("strandline").mode(
        "append"
    ).save(named.url)

    prices = {row.shop: row.price for row in spark.table("keyed_prices").collect()}
    assert (prices["a"], prices["b"], prices["c"]) == (77, 78, 12)
    assert named.scan(all_rows=True).count() == 14
    with pytest.raises(PySparkException, match="shop"):
        spark.sql("INSERT INTO keyed_prices VALUES (1, NULL, 1, 77)")
    assert named.scan(all_rows=True).count() == 14


def test_deleted_keys_have_no_row(spark: SparkSession, named: Table) -> None:
    """[C4] A tombstone hides what it has seen, and no row that comes later."""
    filters = ("price = 20", "shop = 'a'", "shop = 'b' OR item = 2", "_seq < 5", "price IS NULL")
    before = native(spark, named)
    named.delete(keys=[("a", 1), ("x", 2), ("nobody", 7)])
    named.delete(filter="price = 12")
    named.append(rows((400_000, "x", 2, 5)))

    assert shown(native(spark, named)) == python(named)
    assert {row[:2] for row in python(named)} == {
        *(("b", 1), ("d", 1), ("e", 1), ("x", 1), ("x", 2)),
    }
    assert shown(before) == WINNERS
    live = spark.sql("SELECT shop, item, price FROM keyed_prices")
    assert stored(live) == sorted(row[:3] for row in python(named))
    for condition in filters:
        everything = spark.createDataFrame(native(spark, named).toArrow())
        found = native(spark, named).where(condition)
        assert shown(found) == shown(everything.where(condition)), condition
    every = native(spark, named, all_rows=True)
    assert shown(every) == python(named, all_rows=True)
    assert spark.sql("SELECT count(*) FROM keyed_prices WHERE shop = 'a'").collect()[0][0] == 0


def test_changes_tell_deletes_apart(spark: SparkSession, table: Table) -> None:
    """[KEY-9] `_deleted` is there when it is asked for, with all rows."""
    table.delete(keys=[("a", 1)])
    columns = ["shop", "price", "_seq", "_deleted"]

    changes = strandline.spark.read(spark, table.url, columns=columns, all_rows=True)

    assert stored(changes.where("_deleted")) == [("a", None, 11, True)]
    assert changes.where("NOT _deleted").count() == 11
    assert changes.where("price > 0").count() == 11
    with pytest.raises(strandline.InvalidInput, match="all_rows"):
        strandline.spark.read(spark, table.url, columns=columns)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_stream_gives_every_change(
    spark: SparkSession, table: Table, tmp_path: Path, *, deletes: bool
) -> None:
    """[C7] What a stream has given is never taken back, so replaced rows are in it, too."""
    table.delete(keys=[("a", 1)])
    place = str(tmp_path / "checkpoint")
    columns = ("columns", "shop,_seq,_deleted") if deletes else ("hiddenColumns", "true")

    def run() -> list[int]:
        query = (
            spark.readStream.format("strandline")
            .option(*columns)
            .load(table.url)
            .writeStream.format("memory")
            .queryName("keyed_changes")
            .option("checkpointLocation", place)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(row._seq for row in spark.table("keyed_changes").collect())  # noqa: SLF001

    assert run() == list(range(12 if deletes else 11))
