"""Shards against the hash of each value's bytes, taken one by one."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.sharding import HASHES, key_hashes, shards_of, unfit

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def integer_bytes(value: int) -> bytes:
    """Eight bytes, little-endian, two's complement."""
    return value.to_bytes(8, "little", signed=True)


def microseconds(value: datetime) -> bytes:
    """A time as the integer it is stored as."""
    passed = value - EPOCH.replace(tzinfo=value.tzinfo)
    return integer_bytes((passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds)


INT_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
KINDS: dict[str, tuple[Any, Any]] = {
    **{name: (st.integers(*bounds), integer_bytes) for name, bounds in INT_RANGES.items()},
    "string": (st.text(), lambda value: value.encode()),
    "binary": (st.binary(), lambda value: value),
    "bool": (st.booleans(), lambda value: bytes([value])),
    "date": (st.dates(), lambda value: integer_bytes((value - date(1970, 1, 1)).days)),
    "timestamp": (st.datetimes(), microseconds),
    "timestamptz": (st.datetimes(timezones=st.just(UTC)), microseconds),
    "decimal(20,3)": (
        st.decimals(min_value=-(10**16), max_value=10**16, places=3),
        lambda value: int(value * 1000).to_bytes(16, "little", signed=True),
    ),
    "decimal(38,0)": (
        st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
        lambda value: int(value).to_bytes(16, "little", signed=True),
    ),
}


def column(kind: str, values: list[Any], cut: int = 0) -> tuple[pa.ChunkedArray, types.ColumnType]:
    """Values as a column of two chunks."""
    held = types.from_json(kind)
    arrow = types.to_arrow(held)
    return pa.chunked_array([pa.array(v, arrow) for v in (values[:cut], values[cut:])], arrow), held


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_shards_equal_a_hash_of_each_value(kind: str, data: st.DataObject) -> None:
    """[SHA-1] [T6] XXH64 of the canonical bytes, modulo the shards; null goes to shard 0."""
    strategy, canonical = KINDS[kind]
    values = data.draw(st.lists(st.none() | strategy, max_size=12))
    shards = data.draw(st.integers(1, 1024))
    held, of_type = column(kind, values, data.draw(st.integers(0, len(values))))

    hashes = [None if v is None else xxhash.xxh64_intdigest(canonical(v)) for v in values]

    assert key_hashes(held, of_type).tolist() == [h or 0 for h in hashes]
    expected = [0 if h is None else h % shards for h in hashes]
    assert shards_of(held, of_type, shards, "xxh64").tolist() == expected


@pytest.mark.parametrize("kind", INT_RANGES)
@given(data=st.data(), power=st.integers(0, 10))
def test_a_mask_takes_the_low_bits(kind: str, data: st.DataObject, power: int) -> None:
    """[SHA-2] [T6] Of the two's complement, so that negative keys are spread as well."""
    values = data.draw(st.lists(st.none() | st.integers(*INT_RANGES[kind]), max_size=12))
    held, of_type = column(kind, values)

    found = shards_of(held, of_type, 2**power, "mask").tolist()

    assert found == [0 if v is None else v % 2**power for v in values]


def test_known_shards_stay_where_they_are() -> None:
    """[SHA-1] A table lives for years: these keys may never move to another shard."""
    names, kind = column("string", ["", "user-1", "user-2", "ä"])
    numbers, of_numbers = column("int64", [0, 1, -1, 1234567890123])

    assert [f"{h:016x}" for h in key_hashes(names, kind).tolist()] == [
        "ef46db3751d8e999",
        "a173746b114c6be8",
        "7395dd9943ab55e9",
        "ad857d534a6ca359",
    ]
    assert shards_of(names, kind, 8, "xxh64").tolist() == [1, 0, 1, 1]
    assert shards_of(numbers, of_numbers, 8, "xxh64").tolist() == [3, 5, 1, 5]


def test_a_slice_of_a_column_is_hashed_as_itself() -> None:
    """Rows handed in are often a part of something larger."""
    held, kind = column("int64", list(range(100)), 37)

    part = shards_of(held.slice(30, 20), kind, 16, "xxh64")

    assert np.array_equal(part, shards_of(held, kind, 16, "xxh64")[30:50])


@pytest.mark.parametrize(
    ("kind", "hash_name", "shards", "reason"),
    [
        ("float64", "xxh64", 2, "canonical"),
        ("float32", "xxh64", 2, "canonical"),
        ({"list": {"type": "int64"}}, "xxh64", 2, "canonical"),
        ("string", "mask", 2, "integer"),
        ("date", "mask", 2, "integer"),
        ("int64", "mask", 3, "power of two"),
    ],
)
def test_columns_that_cannot_be_a_key_say_why(
    kind: Any, hash_name: str, shards: int, reason: str
) -> None:
    """[SHA-3] [T6] Zero has two signs and NaN many forms: floats have no canonical bytes."""
    assert reason in str(unfit(types.from_json(kind), hash_name, shards))


def test_every_other_column_can_be_a_key() -> None:
    """[T6] All types with canonical bytes, under both hashes where the hash allows it."""
    for kind in KINDS:
        assert unfit(types.from_json(kind), HASHES[0], 1000) is None
    for kind in INT_RANGES:
        assert unfit(types.from_json(kind), HASHES[1], 1024) is None
