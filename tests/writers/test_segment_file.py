"""Data files: exact stats, honest about NaN, checked page by page, readable by anyone."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.tableformat import codec, stats
from strandline.tableformat.config import make_config
from strandline.tableformat.schema import Schema, schema_from, stat_values
from strandline.writers.segment_file import SegmentFile, encode_segment
from tests import filter_cases


def encode(columns: dict[str, Any], kinds: dict[str, str]) -> tuple[SegmentFile, Schema]:
    """Encode columns of the named types."""
    schema = schema_from(kinds)
    rows = pa.table(columns, schema=schema.arrow)
    config = make_config(schema, time_column=None)
    return encode_segment(rows, schema, config, ts_ms=np.arange(rows.num_rows)), schema


def stats_of(columns: dict[str, Any], kinds: dict[str, str]) -> stats.ColumnStats:
    """Stats of the first column."""
    file, schema = encode(columns, kinds)
    return stats.from_json(schema.columns[0].type, file.column_stats["1"], "test")


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("int8", [3, -4, None], -4, 3),
        ("uint32", [2**32 - 1, 5], 5, 2**32 - 1),
        ("bool", [False, False], 0, 0),
        ("decimal(10,2)", [Decimal("-1.50"), Decimal(3)], -150, 300),
        ("decimal(38,0)", [Decimal(10**37), Decimal(-1)], -1, 10**37),
        ("string", ["b", "a", ""], "", "b"),
        ("binary", [b"\xff", b"\x00"], b"\x00", b"\xff"),
        ("float32", [1.5, -0.0, 0.0], -0.0, 1.5),
    ],
)
def test_bounds_are_typed_and_exact(kind: str, values: list[Any], low: Any, high: Any) -> None:
    """[M2] Each type's least and greatest value, in its own domain."""
    found = stats_of({"v": values}, {"v": kind})

    assert (found.min, found.max) == (low, high)
    assert found.exact
    assert found.null_count == values.count(None)


def test_a_column_with_nan_has_bounds_of_its_numbers_and_no_parquet_stats() -> None:
    """[M2] NaN is above all numbers; other readers must not see bounds that leave it out."""
    columns = {"v": [2.0, math.nan, None, -1.0], "w": [1.0, 2.0, 3.0, 4.0]}
    file, schema = encode(columns, {"v": "float64", "w": "float64"})
    found = stats.from_json(schema.columns[0].type, file.column_stats["1"], "test")
    group = pq.read_metadata(pa.BufferReader(file.data)).row_group(0)

    assert (found.min, found.max, found.has_nan, found.null_count) == (-1.0, 2.0, True, 1)
    assert group.column(0).statistics is None or not group.column(0).statistics.has_min_max
    assert group.column(1).statistics.has_min_max


def test_all_null_and_all_nan_columns_have_no_bounds() -> None:
    """[M2] Nothing is invented where nothing is known."""
    nulls = stats_of({"v": pa.array([None, None], pa.float64())}, {"v": "float64"})
    nans = stats_of({"v": [math.nan, math.nan]}, {"v": "float64"})

    assert (nulls.min, nulls.max, nulls.null_count, nulls.has_nan) == (None, None, 2, False)
    assert (nans.min, nans.max, nans.null_count, nans.has_nan) == (None, None, 0, True)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
@settings(max_examples=200)
def test_truncated_text_bounds_still_are_bounds(texts: list[str]) -> None:
    """[M2] However texts are cut, the least is below and the greatest above every one of them."""
    low, high, exact = stats.bounded(min(texts), max(texts))

    if low is not None and high is not None:
        assert all(low <= text <= high for text in texts)  # type: ignore[operator] # both are text
        assert len(low) <= stats.MAX_BOUND_LENGTH  # type: ignore[arg-type]
        assert exact == (low in texts and high in texts)


@pytest.mark.parametrize(
    ("high", "bound"),
    [
        ("a" * 40, "a" * 31 + "b"),
        ("a" * 31 + "\U0010ffff" * 9, "a" * 30 + "b"),
        ("\U0010ffff" * 40, None),
        ("a" * 31 + "\ud7ff" * 9, "a" * 31 + "\ue000"),
        (b"a" * 31 + b"\xff" * 9, b"a" * 30 + b"b"),
        (b"\xff" * 40, None),
    ],
)
def test_the_greatest_bound_is_raised_when_it_is_cut(high: Any, bound: Any) -> None:
    """[M2] The cut value itself would be too small; surrogates are stepped over."""
    assert stats.bounded(high[:0], high)[1] == bound


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_stats_equal_a_look_at_every_value(data: st.DataObject) -> None:
    """[M2] All types, random values: bounds, nulls and NaN as Python finds them."""
    name = data.draw(st.sampled_from(tuple(filter_cases.TYPES)))
    rows = data.draw(st.lists(filter_cases.rows_of((name,)), min_size=1, max_size=8))
    column = filter_cases.table_of(rows).column(name)
    found = stats_of({name: column}, {name: filter_cases.TYPES[name]})
    schema = schema_from({name: filter_cases.TYPES[name]})
    held = [
        v for v in stat_values(schema.columns[0].type, column.combine_chunks()) if v is not None
    ]
    real = [v for v in held if v == v]  # noqa: PLR0124 - NaN is not equal to itself

    assert found.null_count == len(rows) - len(held)
    assert found.has_nan == (len(real) < len(held))
    if real:
        assert (found.min, found.max) == (min(real), max(real))


def test_the_footer_is_where_the_entry_says_and_hashes_as_it_says() -> None:
    """[X4] Length and XXH64 of the footer, as a reader checks them."""
    file, _ = encode({"v": [1, 2, 3]}, {"v": "int64"})
    data = bytes(file.data)

    assert data[-4:] == b"PAR1"
    assert int.from_bytes(data[-8:-4], "little") == file.footer_bytes
    assert codec.checksum(data[-8 - file.footer_bytes : -8]) == file.footer_xxh64


def test_every_page_carries_a_crc() -> None:
    """[X4] A flipped bit in a page is an error of the Parquet reader itself."""
    file, _ = encode(
        {"v": [hashlib.sha256(b"%d" % i).hexdigest() for i in range(900)]}, {"v": "string"}
    )
    data = bytearray(bytes(file.data))
    data[len(data) // 2] ^= 1

    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(pa.BufferReader(bytes(data)), page_checksum_verification=True).read()


def test_files_carry_physical_names_and_field_ids(tmp_path: Any) -> None:
    """[M3] A plain Parquet reader sees the columns, and their ids as field ids."""
    file, schema = encode({"a b": ["x"], "n": [1]}, {"a b": "string", "n": "int64"})
    path = tmp_path / "f.parquet"
    path.write_bytes(bytes(file.data))

    parquet = pq.ParquetFile(path)
    assert parquet.schema_arrow.names == [c.physical_name for c in schema.columns]
    ids = [parquet.schema_arrow.field(i).metadata[b"PARQUET:field_id"] for i in range(2)]
    assert ids == [b"1", b"2"]
    assert duckdb.sql(f"select * from '{path}'").fetchall() == [("x", 1)]


def test_large_row_counts_are_cut_into_row_groups() -> None:
    """The configured number of rows per group, and stats over all groups together."""
    schema = schema_from({"v": "int64"})
    config = make_config(schema, time_column=None, row_group_rows=1024)
    rows = pa.table({"v": range(3000)}, schema=schema.arrow)
    file = encode_segment(rows, schema, config, ts_ms=np.arange(3000))
    metadata = pq.read_metadata(pa.BufferReader(file.data))

    assert [metadata.row_group(i).num_rows for i in range(3)] == [1024, 1024, 952]
    assert file.column_stats["1"] == {"min": "0", "max": "2999", "null_count": "0"}


@pytest.mark.parametrize(("values", "coded"), [("sorted", False), ("mixed", True), ("few", True)])
def test_a_column_whose_equal_values_are_neighbours_needs_no_dictionary(
    values: str, *, coded: bool
) -> None:
    """As in the column that rows are sorted by: the dictionary would be most of the file."""
    names = [f"user-{n // 5:06d}" for n in range(20_000)]
    if values == "mixed":
        names = [f"user-{n * 7_919 % 100}" for n in range(20_000)]
    if values == "few":
        names = sorted(f"user-{n % 10}" for n in range(20_000))

    file, _ = encode({"v": names}, {"v": "string"})

    chunk = pq.read_metadata(pa.BufferReader(file.data)).row_group(0).column(0)
    assert (chunk.dictionary_page_offset is not None) == coded


@pytest.mark.parametrize(
    ("values", "zone_pages", "coded"),
    [("prices", False, True), ("prices", True, False), ("any", False, False)],
)
def test_floats_that_repeat_in_a_row_group_get_a_dictionary(
    values: str, *, zone_pages: bool, coded: bool
) -> None:
    """Prices in cents do, and read twice as fast; not where single pages are read."""
    random = np.random.default_rng(1)
    given = random.gamma(2.0, 30.0, 40_000)
    schema = schema_from({"v": "float64"})
    rows = pa.table({"v": np.round(given, 2) if values == "prices" else given}).cast(schema.arrow)
    config = make_config(schema, time_column=None, zone_pages=zone_pages)

    file = encode_segment(rows, schema, config, ts_ms=np.arange(rows.num_rows))

    chunk = pq.read_metadata(pa.BufferReader(file.data)).row_group(0).column(0)
    assert (chunk.dictionary_page_offset is not None) == coded
    assert pq.read_table(pa.BufferReader(file.data)).column("v").equals(rows.column("v"))


SCATTERED = np.random.default_rng(3).integers(0, 2_000, 70_000)


@pytest.mark.parametrize(
    ("numbers", "coded"),
    [
        (SCATTERED, True),
        (np.random.default_rng(3).integers(0, 60_000, 70_000), False),
        # As sessions do, each value comes a few times, and never again.
        (np.arange(70_000) // 3, False),
    ],
    ids=["few_everywhere", "many", "sessions"],
)
def test_text_that_repeats_all_over_a_row_group_gets_a_dictionary_and_a_filter(
    numbers: np.ndarray[Any, Any], *, coded: bool
) -> None:
    """[E5] Its values need not come twice among neighbours; those that do prove nothing."""
    texts = pa.array([f"user-{n:05}" for n in numbers.tolist()])
    file, _ = encode({"v": texts}, {"v": "string"})

    metadata = pq.read_metadata(pa.BufferReader(file.data))
    chunk = metadata.row_group(0).column(0)
    assert (chunk.dictionary_page_offset is not None) == coded
    assert file.index is not None
    assert file.index.kinds.get(1) == (("membership",) if coded else None)


def test_such_a_filter_finds_every_value_and_few_others(tmp_path: Any) -> None:
    """[E5] [E6] Also where some are null: no false negatives, and a segment without it is left."""
    texts = [None if n % 7 == 0 else f"user-{n:05}" for n in SCATTERED.tolist()]
    table = strandline.create_table(tmp_path / "t", {"user": "string"})
    table.append({"user": texts})

    for n in range(0, 2_000, 13):
        scan = table.scan(filter=f"user = 'user-{n:05}'")
        assert scan.count() == (0 if n % 7 == 0 else int((n == SCATTERED).sum()))
    opened = [len(table.scan(filter=f"user = 'nobody-{n}'").plan().segments) for n in range(200)]
    assert sum(opened) <= 6
