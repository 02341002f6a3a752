"""Spark gives the rows that a Python scan gives."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

import strandline
import strandline.spark
from tests.edited import commit_by_hand, first_data_file, flip
from tests.tables import SCHEMA, START_MS, events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from strandline.table import Table

pytestmark = pytest.mark.spark

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
EVERY_TYPE: dict[str, tuple[Any, list[Any]]] = {
    "flag": ("bool", [True, False, None]),
    "i8": ("int8", [-128, 127, None]),
    "i16": ("int16", [-(2**15), 2**15 - 1, None]),
    "i32": ("int32", [-(2**31), 2**31 - 1, None]),
    "i64": ("int64", [-(2**63), 2**63 - 1, None]),
    "u8": ("uint8", [0, 255, None]),
    "u16": ("uint16", [0, 65_535, None]),
    "u32": ("uint32", [0, 2**32 - 1, None]),
    "f32": ("float32", [-0.5, float("inf"), None]),
    "f64": ("float64", [-0.0, 1e300, None]),
    "dec": ("decimal(38,2)", [Decimal("-1.25"), Decimal(10) ** 35, None]),
    "day": ("date", [date(1, 1, 1), date(9999, 12, 31), None]),
    "wall": ("timestamp", [datetime(1200, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4), None]),  # noqa: DTZ001
    "moment": ("timestamptz", [datetime(1500, 1, 1, tzinfo=UTC), NOON, None]),
    "text": ("string", ["", "naïve 🌊", None]),
    "raw": ("binary", [b"", b"\x00\xff", None]),
    "many": (pa.list_(pa.field("element", pa.int32())), [[1, None], [], None]),
    "pair": (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
    ),
    "names": (pa.map_(pa.string(), pa.int32()), [[("k", 1)], [], None]),
}


def _plain(value: Any) -> Any:
    """A value from Spark or from Arrow, in one form that can be compared and sorted."""
    if isinstance(value, datetime):
        # Spark's Python rows hold local time without a zone.
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return sorted((key, _plain(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def spark_rows(frame: DataFrame) -> list[str]:
    """Rows by way of Arrow, in an order of their own."""
    rows = frame.toArrow().to_pylist()
    return sorted(repr([(name, _plain(row[name])) for name in frame.columns]) for row in rows)


def python_rows(table: Table) -> list[str]:
    """The same rows from a Python scan."""
    found = table.scan().to_arrow()
    return sorted(
        repr([(name, _plain(row[name])) for name in found.column_names])
        for row in found.to_pylist()
    )


def assert_same(spark: SparkSession, table: Table, **pinned: Any) -> DataFrame:
    """Spark and Python agree about names, order of columns, and rows."""
    frame = strandline.spark.read(spark, table.url, **pinned)
    expected = strandline.open_table(table.url, **pinned)
    assert frame.columns == expected.schema.names
    assert spark_rows(frame) == python_rows(expected)
    return frame


def test_every_type_reads_as_in_python(spark: SparkSession, tmp_path: Path) -> None:
    """[C3] Extremes, nulls and nested values of each column type come out of Spark unchanged."""
    table = strandline.create_table(
        tmp_path / "t", {n: kind for n, (kind, _) in EVERY_TYPE.items()}
    )
    table.append({name: values for name, (_, values) in EVERY_TYPE.items()})

    assert_same(spark, table)


def test_an_empty_table_has_columns_and_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A table without a file can be joined and counted like any other."""
    table = strandline.create_table(
        tmp_path / "t", {n: kind for n, (kind, _) in EVERY_TYPE.items()}
    )

    frame = assert_same(spark, table)

    assert frame.count() == 0
    assert dict(frame.dtypes)["u32"] == "bigint"
    assert dict(frame.dtypes)["wall"] == "timestamp_ntz"


def test_rename_and_add_do_not_mix_two_columns_up(spark: SparkSession, tmp_path: Path) -> None:
    """[C3] A new column with an old name never sees the old column's data, also under a filter."""
    table = strandline.create_table(tmp_path / "t", {"a": "int64", "b": "string"})
    table.append([{"a": 1, "b": "old"}])
    table.evolve(rename={"a": "kept"}, add={"a": "int64"})
    table.append([{"kept": 2, "a": 1, "b": "new"}])

    frame = assert_same(spark, table)

    assert [row.b for row in frame.where("a = 1").collect()] == ["new"]
    assert [row.b for row in frame.where("kept = 1").collect()] == ["old"]
    assert frame.where("a IS NULL").count() == 1


def test_a_dropped_column_is_gone_and_its_name_is_free(spark: SparkSession, tmp_path: Path) -> None:
    """[C3] Drop, then add under the same name: old files give null, not their old values."""
    table = strandline.create_table(tmp_path / "t", {"a": "int64", "b": "string"})
    table.append([{"a": 1, "b": "old"}])
    table.evolve(drop=["a"])
    assert_same(spark, table)
    table.evolve(add={"a": "int64"}, reorder=["a"])
    table.append([{"a": 5, "b": "new"}])

    frame = assert_same(spark, table)

    assert [row.a for row in frame.orderBy("b").collect()] == [5, None]


WIDENINGS = [
    ("int8", "int16", [-128, 127]),
    ("int8", "int64", [-128, 127]),
    ("int16", "int32", [-(2**15), 2**15 - 1]),
    ("int32", "int64", [-(2**31), 2**31 - 1]),
    ("uint8", "uint16", [0, 255]),
    ("uint8", "uint32", [0, 255]),
    ("uint8", "int16", [0, 255]),
    ("uint8", "int64", [0, 255]),
    ("uint16", "uint32", [0, 65_535]),
    ("uint16", "int32", [0, 65_535]),
    ("uint16", "int64", [0, 65_535]),
    ("uint32", "int64", [0, 2**32 - 1]),
    ("float32", "float64", [0.1, float("inf")]),
    ("decimal(5,2)", "decimal(12,2)", [Decimal("-999.99"), Decimal("0.01")]),
    ("decimal(12,2)", "decimal(38,2)", [Decimal("-999.99"), Decimal("0.01")]),
]


def test_widened_columns_keep_every_old_value(spark: SparkSession, tmp_path: Path) -> None:
    """[C3] Files written before and after a widening read as one column of the wider type."""
    table = strandline.create_table(
        tmp_path / "t", {f"c_{n}": old for n, (old, _, _) in enumerate(WIDENINGS)}
    )
    old = pa.table(
        {
            f"c_{n}": pa.array([*values, None], table.schema.field(f"c_{n}").type)
            for n, (_, _, values) in enumerate(WIDENINGS)
        }
    )
    table.append(old)
    table.evolve(widen={f"c_{n}": new for n, (_, new, _) in enumerate(WIDENINGS)})
    table.append(old.cast(table.schema))

    frame = assert_same(spark, table)

    assert frame.where("c_3 = -2147483648").count() == 2
    assert frame.where("c_11 = 4294967295").count() == 2
    assert frame.where("c_13 = -999.99").count() == 2


def test_a_version_and_a_time_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    """[C2] A DataFrame stays at its version while the table moves on."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    before = table.history()[0].committed_at
    frame = strandline.spark.read(spark, table.url)
    table.append([{"n": 2}])

    assert [row.n for row in frame.collect()] == [1]
    assert_same(spark, table, version=2)
    assert_same(spark, table, as_of=before)
    assert strandline.spark.read(spark, table.url).count() == 2


def test_what_is_below_floor_and_trim_point_is_hidden(spark: SparkSession, tmp_path: Path) -> None:
    """[X1] Rows of a file that straddles the floor or the trim point are hidden one by one.

    Also when an older version is read: what has expired stays hidden.
    """
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts", ttl="1d")
    table.append(events(0, 10, step_ms=3_600_000))  # two windows
    table.append(events(10, 5))
    table.append(events(20, 5), writer_id="w", batch=1)
    commit_by_hand(table, floor_ts=START_MS + 3 * 3_600_000, trim_seq=6)

    frame = assert_same(spark, table)

    assert sorted(row.n for row in frame.collect()) == [6, 7, 8, 9]
    assert sorted(
        row.n for row in strandline.spark.read(spark, table.url, version=2).collect()
    ) == [6, 7, 8, 9]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_floor_does_not_depend_on_the_sessions_zone(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """A time column without a zone counts as UTC, whatever zone the session has."""
    start = datetime(2024, 3, 10, 0, 0)  # noqa: DTZ001 - America/New_York skips an hour that day
    table = strandline.create_table(
        tmp_path / "t", {"at": "timestamp", "n": "int64"}, time_column="at"
    )
    table.append([{"at": start + timedelta(hours=n), "n": n} for n in range(12)])
    floor = int(start.replace(tzinfo=UTC).timestamp() * 1000) + 5 * 3_600_000
    commit_by_hand(table, floor_ts=floor)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = strandline.spark.read(spark, table.url).select("n").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert sorted(row.n for row in rows) == list(range(5, 12))


def test_odd_paths_are_only_paths(spark: SparkSession, tmp_path: Path) -> None:
    """Names that look like patterns, partitions or hidden folders change nothing."""
    table = strandline.create_table(tmp_path / "_day=1" / "a {b}[c]* %41 é" / "t", {"n": "int64"})
    table.append([{"n": 1}])
    table.append([{"n": 2}])

    assert_same(spark, table)


def test_unlisted_files_are_invisible(spark: SparkSession, tmp_path: Path) -> None:
    """[M1] A Parquet file beside the table's own is not read."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    file = first_data_file(table)
    file.with_name("batch-1-00000000000000ff.parquet").write_bytes(file.read_bytes())

    assert_same(spark, table)


def test_a_missing_file_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """[M1] Rows that cannot be read are never left out in silence."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    table.append([{"n": 2}])
    first_data_file(table).unlink()

    with pytest.raises(Py4JJavaError, match=r"MissingFile: .* is not in the store"):
        strandline.spark.read(spark, table.url).collect()


def test_a_damaged_page_is_an_error_and_not_a_wrong_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    """[X4] Spark compares the checksum of every page it reads."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64", "text": "string"})
    table.append([{"n": n, "text": f"some text {n}"} for n in range(1000)])
    frame = strandline.spark.read(spark, table.url)
    flip(first_data_file(table), 200)

    with pytest.raises(Py4JJavaError, match=r"(?i)crc|checksum"):
        frame.toArrow()


def test_a_flipped_bit_of_a_footer_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """[X4] Tasks compare footers with the manifest; Spark alone would give wrong rows for some."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": n} for n in range(500)])
    file, footer = first_data_file(table), table.manifest.segments[0].footer_bytes
    whole = file.read_bytes()
    frame = strandline.spark.read(spark, table.url)
    assert frame.where("n >= 490").count() == 10

    for place in (*range(len(whole) - 8 - footer, len(whole) - 8, 37), *range(-8, 0)):
        flip(file, place, place % 8)
        with pytest.raises(Py4JJavaError, match=r"CorruptTable: .* its footer"):
            frame.where("n >= 490").count()
        file.write_bytes(whole)

    assert frame.where("n >= 490").count() == 10


@pytest.mark.parametrize("change", [-1, 1], ids=["shorter", "longer"])
def test_a_file_of_another_size_is_an_error(
    spark: SparkSession, tmp_path: Path, change: int
) -> None:
    """[X4] Parquet would look for the footer at its end, wherever that is."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    table.append([{"n": 1}])
    file = first_data_file(table)
    whole = file.read_bytes()
    file.write_bytes(whole[:change] if change < 0 else whole + whole[-change:])

    with pytest.raises(Py4JJavaError, match=r"CorruptTable: .* bytes, and the manifest says"):
        strandline.spark.read(spark, table.url).count()


def test_what_no_checksum_covers_leaves_out_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """[X4] [PAR-15] Page indexes, bloom filters and unverified dictionaries are not asked."""
    table = strandline.create_table(
        tmp_path / "t", {"n": "int64", "page": "string"}, row_group_rows=1024, zone_rows=256
    )
    pages = ("north", "east", "south", "west")
    table.append([{"n": n * 7 % 4096, "page": pages[n % 4]} for n in range(4096)])
    file, frame = first_data_file(table), strandline.spark.read(spark, table.url)
    whole, metadata = file.read_bytes(), pq.read_metadata(file)
    assert metadata.row_group(0).column(0).has_column_index
    chunks = [metadata.row_group(g).column(c) for g in range(4) for c in range(2)]
    data_end = max(
        (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        for chunk in chunks
    )
    footer_begin = len(whole) - 8 - table.manifest.segments[0].footer_bytes
    assert footer_begin - data_end > 500

    file.write_bytes(whole[:data_end] + bytes(footer_begin - data_end) + whole[footer_begin:])
    for condition, count in {"n = 77": 1, "n < 100": 100, "page = 'south'": 1024}.items():
        assert frame.where(condition).count() == count

    in_dictionary = whole.index(b"south", chunks[1].dictionary_page_offset)
    assert in_dictionary < chunks[1].data_page_offset
    file.write_bytes(whole)
    flip(file, in_dictionary)
    with pytest.raises(Py4JJavaError, match=r"(?i)crc|checksum"):
        frame.where("page = 'south'").count()


def test_stores_that_spark_cannot_reach_are_named(spark: SparkSession) -> None:
    """[C11] Without hadoop-aws the error says what to add, before anything is read."""
    with pytest.raises(strandline.UnsupportedStore, match="hadoop-aws"):
        strandline.spark.read(spark, "s3://bucket/table")
    with pytest.raises(strandline.UnsupportedStore, match="memory://"):
        strandline.spark.read(spark, "memory://name/table")


def test_sql_over_a_view(spark: SparkSession, tmp_path: Path) -> None:
    """[C11] Plain Spark SQL on a temporary view."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 70))
    strandline.spark.read(spark, table.url).createOrReplaceTempView("events")

    rows = spark.sql('SELECT user, count(*) AS rows FROM events GROUP BY user ORDER BY "user"')

    assert sorted((row.user, row.rows) for row in rows.collect()) == [
        (f"user-{n}", 10) for n in range(7)
    ]
