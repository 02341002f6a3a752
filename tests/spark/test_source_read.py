"""Batch reads through the data source."""

from __future__ import annotations

import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

import strandline
from strandline.spark import register_source
from strandline.spark.source_options import Sealed, read_options
from strandline.spark.source_rows import say_reads_all
from tests.spark.source_tables import START, event, filled_table, load, new_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _source(spark: SparkSession) -> None:
    register_source(spark)


def numbers(frame: Any) -> list[int]:
    """`n` of every row, sorted: a DataFrame promises no order."""
    return sorted(row.n for row in frame.select("n").collect())


def test_rows_are_those_of_the_python_reader(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Values, types and sequence numbers come out as a scan gives them."""
    table = filled_table(tmp_path / "t")

    found = load(spark, table.url, columns="_seq, n, tag, _ts, _window", splitBytes=1)

    rows = sorted(tuple(row) for row in found.collect())
    expected = table.scan(["_seq", "n", "tag", "_ts", "_window"]).to_arrow().to_pylist()
    assert rows == [tuple(row.values()) for row in expected]
    assert found.rdd.getNumPartitions() > 3


def test_it_says_once_that_it_reads_all_columns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """[E10] For each table; who names columns is told nothing."""
    options = read_options({"path": str(tmp_path / "t")})
    with caplog.at_level("WARNING", logger="strandline.spark"):
        say_reads_all(read_options({"path": options.url, "columns": "n"}))
        assert not caplog.messages
        for _ in range(2):
            say_reads_all(options)
        say_reads_all(read_options({"path": str(tmp_path / "other")}))

    assert [message.split(":")[0] for message in caplog.messages] == [
        str(tmp_path / "t"),
        str(tmp_path / "other"),
    ]
    assert all("all columns are read" in message for message in caplog.messages)


def test_options_prune_rows(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Filter, times and sequence numbers are what `scan` takes."""
    table = filled_table(tmp_path / "t")

    assert numbers(load(spark, table.url, filter="tag = 'tag-1' AND n < 9")) == [1, 4, 7]
    assert numbers(load(spark, table.url, startSeq=3, endSeq=5)) == [3, 4]
    times = {"startTime": "2026-01-01T05:00:00Z", "endTime": "2026-01-01 06:00:00"}
    assert numbers(load(spark, table.url, **times)) == [5, 6]
    assert numbers(load(spark, table.url, filter="n = -1")) == []


def test_time_travel_and_pinning(spark: SparkSession, tmp_path: Path) -> None:
    """[C2] Old versions by number and time; a DataFrame keeps to the version it began with."""
    table = filled_table(tmp_path / "t", commits=1)
    at = table.history()[0].committed_at
    frame = load(spark, table.url)
    table.append([event(1000)])

    assert numbers(frame) == numbers(load(spark, table.url, versionAsOf=2)) == list(range(30))
    assert numbers(load(spark, table.url, timestampAsOf=at)) == list(range(30))
    assert len(numbers(load(spark, table.url))) == 31


def test_evolved_columns(spark: SparkSession, tmp_path: Path) -> None:
    """[C3] Renamed, added and dropped columns read right over old files."""
    table = filled_table(tmp_path / "t", commits=1, rows=3)
    table.evolve(rename={"tag": "label"}, add={"tag": "int32"})
    table.append([{**event(3), "tag": 7, "label": "new"}])

    found = load(spark, table.url, columns="n, label, tag")

    assert sorted(tuple(row) for row in found.collect()) == [
        (0, "tag-0", None),
        (1, "tag-1", None),
        (2, "tag-2", None),
        (3, "new", 7),
    ]


def test_all_types_arrive(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Batches have the very schema that Spark derives, nested types and unsigned too."""
    schema = pa.schema(
        {
            "u8": pa.uint8(),
            "u32": pa.uint32(),
            "small": pa.int8(),
            "x": pa.float32(),
            "money": pa.decimal128(10, 2),
            "day": pa.date32(),
            "wall": pa.timestamp("us"),
            "moment": pa.timestamp("us", tz="UTC"),
            "raw": pa.binary(),
            "list": pa.list_(pa.uint16()),
            "map": pa.map_(pa.string(), pa.int64()),
            "struct": pa.struct({"a": pa.uint8(), "b": pa.list_(pa.string())}),
        }
    )
    full = {
        "u8": 255,
        "u32": 2**32 - 1,
        "small": -128,
        "x": 1.5,
        "money": Decimal("12.50"),
        "day": date(2026, 1, 31),
        "wall": datetime(2026, 1, 31, 12, 30),  # noqa: DTZ001 - without a zone on purpose
        "moment": START,
        "raw": b"\x00\xff",
        "list": [1, 65_535, None],
        "map": {"k": 1},
        "struct": {"a": 200, "b": ["x"]},
    }
    table = strandline.create_table(str(tmp_path / "t"), schema)
    table.append(pa.Table.from_pylist([full, dict.fromkeys(full)], schema))

    first, second = load(spark, table.url, columns="_seq," + ",".join(full)).collect()

    given = first.asDict(recursive=True)
    assert given.pop("_seq") == 0
    assert given.pop("moment").timestamp() == START.timestamp()
    assert {**given, "raw": bytes(given["raw"])} == {k: v for k, v in full.items() if k != "moment"}
    assert set(second[1:]) == {None}


def test_empty_tables_and_empty_plans(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] No rows is an answer."""
    table = new_table(tmp_path / "t")
    assert load(spark, table.url).collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "n"}, "option 'colums' is not known"),
        ({"columns": "nope"}, "nope"),
        ({"startSeq": "x"}, "startSeq must be an integer"),
        ({"versionAsOf": "1", "timestampAsOf": "1"}, "not both"),
        ({"filter": "n ="}, "cannot understand the filter"),
        ({"storage.secret": "abc"}, "may be a credential"),
    ],
)
def test_wrong_options_are_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    """[C11] A mistake is an error in our own words, and no secret is repeated."""
    table = filled_table(tmp_path / "t", commits=1, rows=2)
    with pytest.raises(PySparkException, match=message) as caught:
        load(spark, table.url, **options).collect()
    assert "abc" not in str(caught.value)


class LeakySource(DataSource):
    """What happens to a source that takes Spark's filters: the reason why ours does not."""

    @classmethod
    def name(cls) -> str:
        return "leaky"

    def schema(self) -> str:
        return "id INT"

    def reader(self, schema: Any) -> DataSourceReader:
        del schema

        class Reader(DataSourceReader):
            wanted: int | None = None

            def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's
                for one in filters:
                    if isinstance(one, EqualTo):
                        self.wanted = one.value
                    else:
                        yield one

            def partitions(self) -> list[InputPartition]:
                return [InputPartition(0)]

            def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
                del partition
                rows = range(5) if self.wanted is None else [self.wanted]
                return iter([(row,) for row in rows])

        return Reader()


def test_pushed_filters_do_not_leak_into_us(spark: SparkSession, tmp_path: Path) -> None:
    """[X2] Spark gives a second query the rows of the first one's filter; ours are right."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(LeakySource)
        leaky = spark.read.format("leaky").load()
        counts = leaky.where("id = 3").count(), leaky.count()
        table = filled_table(tmp_path / "t", commits=1, rows=5)
        ours = load(spark, table.url)
        assert (ours.where("n = 3").count(), ours.count()) == (1, 5)
        joined = ours.where("n = 3").alias("a").join(ours.alias("b"), "tag")
        assert joined.count() == 2
        assert counts[0] == 1
        assert counts[1] in (1, 5), "1 is the leak; 5 once Spark has mended it"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_sealed_options_are_never_shown() -> None:
    """[C10] Reprs and option errors do not tell what travels to the workers."""
    options = read_options({"path": "memory://x"}, Sealed({"secret": "canary-0815"}))

    assert "canary-0815" not in repr(options) + str(options)
    assert pickle.loads(pickle.dumps(options)).storage_options() == {"secret": "canary-0815"}


def test_secrets_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """[C10] An option names a variable; its value is looked up where it is used."""
    monkeypatch.setenv("LAKE_SECRET", "canary-0816")
    options = read_options({"path": "memory://x", "storage.secret": "env:LAKE_SECRET"})

    assert options.storage_options() == {"secret": "canary-0816"}
    assert "canary-0816" not in repr(options)
