"""Python values into columns: no coercion, and the first value that does not fit is named."""

from __future__ import annotations

import enum
import math
from array import array
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from strandline.tableformat import types
from strandline.tableformat.errors import InvalidRow
from strandline.tableformat.pyvalues import column_from_python

STRUCT = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
LIST = pa.list_(pa.int32())
MAP = pa.map_(pa.string(), pa.int64())
US = pa.timestamp("us")
UTC_US = pa.timestamp("us", tz="UTC")
BERLIN = ZoneInfo("Europe/Berlin")
SECOND_HALF_PAST_TWO = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
LAST = datetime.max  # noqa: DTZ901 - naive on purpose
NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)


class Color(enum.StrEnum):
    """Text with a class of its own."""

    RED = "red"


class Level(enum.IntEnum):
    """An integer with a class of its own."""

    HIGH = 3


class Nowhere(tzinfo):
    """A time zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> None:
        return None


def column(values: list[Any], target: pa.DataType) -> list[Any]:
    """The values after they were a column of this type."""
    kind = types.from_arrow(target)
    out = column_from_python(values, kind, "x")
    assert out.type.equals(types.to_arrow(kind), check_metadata=True)
    out.validate(full=True)
    result: list[Any] = out.to_pylist()
    return result


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (True, pa.bool_(), True),
        (np.True_, pa.bool_(), True),
        (-(2**63), pa.int64(), -(2**63)),
        (Level.HIGH, pa.int8(), 3),
        (np.uint8(200), pa.int16(), 200),
        (1.5, pa.float64(), 1.5),
        (2**60, pa.float64(), 2.0**60),
        (np.int64(5), pa.float32(), 5.0),
        (np.float32(0.1), pa.float32(), float(np.float32(0.1))),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (-math.inf, pa.float32(), -math.inf),
        (np.float16(0.5), pa.float64(), 0.5),
        (Decimal("1.50"), pa.decimal128(3, 1), Decimal("1.5")),
        (Decimal("1E+2"), pa.decimal128(5, 2), Decimal(100)),
        (7, pa.decimal128(5, 2), Decimal(7)),
        (np.int16(7), pa.decimal128(5, 2), Decimal(7)),
        (date(2024, 2, 29), pa.date32(), date(2024, 2, 29)),
        (datetime(1, 1, 1), US, datetime(1, 1, 1)),  # noqa: DTZ001
        (LAST, US, LAST),
        (np.datetime64("2024-01-01T00:00:00.000001"), US, datetime(2024, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (np.datetime64("NaT"), US, None),
        (pd.Timestamp("2024-01-01"), US, datetime(2024, 1, 1)),  # noqa: DTZ001
        (pd.NaT, US, None),
        (pd.NA, pa.string(), None),
        (NOON, UTC_US, NOON),
        (NOON.astimezone(BERLIN), UTC_US, NOON),
        (SECOND_HALF_PAST_TWO, UTC_US, datetime(2024, 10, 27, 1, 30, tzinfo=UTC)),
        (NOON.astimezone(timezone(timedelta(microseconds=5))), UTC_US, NOON),
        (pd.Timestamp("2024-06-01 14:00", tz="Europe/Berlin"), UTC_US, NOON),
        ("ü\0x", pa.string(), "ü\0x"),
        (Color.RED, pa.string(), "red"),
        (np.str_("a"), pa.string(), "a"),
        (b"\xff", pa.binary(), b"\xff"),
        (bytearray(b"ab"), pa.binary(), b"ab"),
        (memoryview(b"abcd")[::2], pa.binary(), b"ac"),
        ([1, None], LIST, [1, None]),
        ((1, 2), LIST, [1, 2]),
        (deque([1]), LIST, [1]),
        (range(2), LIST, [0, 1]),
        (array("i", [4]), LIST, [4]),
        (np.array([1, 2]), LIST, [1, 2]),
        (np.eye(2, dtype=int), pa.list_(LIST), [[1, 0], [0, 1]]),
        ({"a": 1}, STRUCT, {"a": 1, "b": None}),
        (OrderedDict(b="x", a=1), STRUCT, {"a": 1, "b": "x"}),
        (MappingProxyType({"a": 1}), STRUCT, {"a": 1, "b": None}),
        ({"k": 1, "l": None}, MAP, [("k", 1), ("l", None)]),
        ([("k", 1)], MAP, [("k", 1)]),
        ([{"a": 1}, None], pa.list_(STRUCT), [{"a": 1, "b": None}, None]),
        ({"k": [{"a": 1}]}, pa.map_(pa.string(), pa.list_(STRUCT)), [("k", [{"a": 1, "b": None}])]),
    ],
)  # fmt: skip
def test_values_that_fit_enter_exactly(value: Any, target: pa.DataType, expected: Any) -> None:
    """[E1] Subclasses, numpy's scalars and other spellings of the same value are welcome."""
    assert column([None, value, None], target) == [None, expected, None]
    assert column([value], target) == [expected]
    assert column([], target) == []


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (1, pa.bool_()),
        ("true", pa.bool_()),
        (True, pa.int64()),
        (np.True_, pa.int64()),
        (1.0, pa.int64()),
        ("1", pa.int64()),
        (Decimal(1), pa.int64()),
        (2**63, pa.int64()),
        (10**30, pa.int64()),
        (128, pa.int8()),
        (-1, pa.uint32()),
        (np.timedelta64(1, "s"), pa.int64()),
        (True, pa.float64()),
        (2**53 + 1, pa.float64()),
        (10**400, pa.float64()),
        (Decimal("0.5"), pa.float64()),
        ("0.5", pa.float64()),
        (2**24 + 1, pa.float32()),
        (1e300, pa.float32()),
        (0.5, pa.decimal128(5, 2)),
        ("1", pa.decimal128(5, 2)),
        (True, pa.decimal128(5, 2)),
        (1000, pa.decimal128(5, 2)),
        (Decimal("1.005"), pa.decimal128(5, 2)),
        (Decimal("NaN"), pa.decimal128(5, 2)),
        (Decimal("Infinity"), pa.decimal128(5, 2)),
        (Decimal("1E+500"), pa.decimal128(5, 2)),
        (NOON, pa.date32()),
        (5, pa.date32()),
        ("2024-01-01", pa.date32()),
        (date(2024, 1, 1), US),
        (5, US),
        (NOON, US),
        (pd.Timestamp(1), US),
        (np.datetime64(1, "ns"), US),
        (np.datetime64(10**6, "Y"), US),
        (NOON.replace(tzinfo=None), UTC_US),
        (NOON.replace(tzinfo=Nowhere()), UTC_US),
        (pd.Timestamp(1, tz="UTC"), UTC_US),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), UTC_US),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), UTC_US),
        (np.datetime64("2024-01-01"), UTC_US),
        (5, pa.string()),
        (b"a", pa.string()),
        (float("nan"), pa.string()),
        ("\ud800", pa.string()),
        (["a"], pa.string()),
        ("a", pa.binary()),
        (5, pa.binary()),
        ("abc", pa.list_(pa.string())),
        (b"abc", LIST),
        ({1, 2}, LIST),
        ({"a": 1}, LIST),
        (iter([1]), LIST),
        (np.array(5), LIST),
        (5, LIST),
        ([("a", 1)], STRUCT),
        ((1, "x"), STRUCT),
        ("a", STRUCT),
        ([1, 2], MAP),
        ([("a", 1, 2)], MAP),
        ("ab", MAP),
        (5, MAP),
        (object(), pa.string()),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any, target: pa.DataType) -> None:
    """[E1] No number becomes a time, no truth a number, no text a list of letters."""
    good = {pa.bool_(): True, US: datetime(2024, 1, 1), UTC_US: NOON}.get(target)  # noqa: DTZ001
    for row, values in ((0, [value]), (3, [None, None, good, value, value])):
        with pytest.raises(InvalidRow) as caught:
            column_from_python(values, types.from_arrow(target), "x")

        assert (caught.value.row, caught.value.field) == (row, "x")
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("value", "target", "field"),
    [
        ({"b": "x"}, STRUCT, "x.a"),
        ({"a": None}, STRUCT, "x.a"),
        ({"a": 2**40}, STRUCT, "x.a"),
        ({"a": 1, "c": 1}, STRUCT, "x.c"),
        ({"a": 1, 5: 1}, STRUCT, "x.5"),
        ([1, True], LIST, "x.element"),
        ([[1], ["a"]], pa.list_(LIST), "x.element.element"),
        ([{"a": 1}, {"a": 1, "b": 5}], pa.list_(STRUCT), "x.element.b"),
        ({"k": 1.0}, MAP, "x.value"),
        ({5: 1}, MAP, "x.key"),
        ({None: 1}, MAP, "x.key"),
    ],
)
def test_misfits_inside_nested_values_are_named_by_path(
    value: Any, target: pa.DataType, field: str
) -> None:
    """[E1] The row is the table's row, the field says where inside it."""
    good = {STRUCT: {"a": 1}, MAP: {"g": 1}}.get(target, [])

    with pytest.raises(InvalidRow) as caught:
        column_from_python([good, None, good, value, value], types.from_arrow(target), "x")

    assert (caught.value.row, caught.value.field) == (3, field)


def test_text_beyond_two_gibibytes_is_built_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow answers with chunks where one array cannot hold the text; so do we."""
    build = pa.array

    def small_arrays(values: list[Any], kind: pa.DataType) -> Any:
        whole = build(values, kind)
        return whole if len(values) < 3 else pa.chunked_array([whole.slice(0, 1), whole.slice(1)])

    monkeypatch.setattr(pa, "array", small_arrays)

    out = column_from_python(list("abcde"), types.ColumnType("string"), "x")

    assert out.to_pylist() == list("abcde")
    assert [len(chunk) for chunk in out.chunks] == [2, 1, 2]
    with pytest.raises(InvalidRow) as caught:
        column_from_python([*"abcd", 5], types.ColumnType("string"), "x")
    assert caught.value.row == 4
