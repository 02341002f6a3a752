"""Single values in metadata: every value reads back bit for bit, anything else is corrupt."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import types, values
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.types import ColumnType

RANGES = {
    **types.INTEGER_RANGES,
    "bool": (0, 1),
    "date": (-(2**31), 2**31 - 1),
    "timestamp": (values.INT64_MIN, values.INT64_MAX),
    "timestamptz": (values.INT64_MIN, values.INT64_MAX),
}


def read_back(kind: ColumnType, value: values.Value) -> values.Value:
    """The value after a trip through JSON bytes."""
    return values.decode(kind, orjson.loads(orjson.dumps(values.encode(kind, value))), "x")


@settings(deadline=None)
@given(
    st.sampled_from(sorted(RANGES)).flatmap(
        lambda n: st.tuples(st.just(n), st.integers(*RANGES[n]))
    )
)
def test_integers_read_back(drawn: tuple[str, int]) -> None:
    """[M2] 64-bit numbers are strings in JSON, so no reader rounds them."""
    name, value = drawn
    assert read_back(ColumnType(name), value) == value


@pytest.mark.parametrize("name", sorted(RANGES))
def test_integers_outside_their_type_are_corrupt(name: str) -> None:
    """[X4] A bound that its column cannot hold is damage, not a bound."""
    low, high = RANGES[name]
    kind = ColumnType(name)
    assert (read_back(kind, low), read_back(kind, high)) == (low, high)
    for wrong in (low - 1, high + 1):
        with pytest.raises(CorruptTable, match="outside"):
            values.decode(kind, str(wrong), "x")


@settings(deadline=None)
@given(st.integers(1, 38), st.data())
def test_decimals_are_unscaled_integers_of_their_precision(
    precision: int, data: st.DataObject
) -> None:
    """[M2] 38 digits read back; one more is corrupt."""
    kind = types.decimal(precision, 0)
    value = data.draw(st.integers(1 - 10**precision, 10**precision - 1))

    assert read_back(kind, value) == value
    for wrong in (10**precision, -(10**precision)):
        with pytest.raises(CorruptTable):
            values.decode(kind, str(wrong), "x")


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_floats_read_back_bit_for_bit(value: float) -> None:
    """[M2] The sign of zero, the infinities and the smallest numbers survive."""
    back = read_back(ColumnType("float64"), value)

    assert struct.pack("<d", back) == struct.pack("<d", value)


def test_nan_reads_back() -> None:
    """[M2] JSON has no NaN; we write its name."""
    assert values.encode(ColumnType("float32"), math.nan) == "NaN"
    assert math.isnan(float(read_back(ColumnType("float32"), math.nan)))


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",))), st.binary())
def test_text_and_bytes_read_back(text: str, data: bytes) -> None:
    """[M2] Bytes stand as base64, text as itself."""
    assert read_back(ColumnType("string"), text) == text
    assert read_back(ColumnType("binary"), data) == data
    assert values.encode(ColumnType("binary"), data) == base64.b64encode(data).decode()


def _nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int64", 5),
        ("int64", None),
        ("int64", ""),
        ("int64", "-0"),
        ("int64", "+5"),
        ("int64", "05"),
        ("int64", " 5"),
        ("int64", "5\n"),
        ("int64", "5.0"),
        ("int64", "1_000"),
        ("int64", "\u0665"),
        ("int64", "9" * 5000),
        ("bool", "true"),
        ("float64", 1.5),
        ("float64", "nan"),
        ("float64", "inf"),
        ("float64", "1e999"),
        ("float64", "-1e309"),
        ("float64", "1."),
        ("float64", ".5"),
        ("float64", "0x1p3"),
        ("float64", "1_0"),
        ("float64", "9" * 5000),
        ("binary", "a"),
        ("binary", "YQ"),
        ("binary", "Y Q="),
        ("binary", "ü==="),
        ("binary", b"YQ=="),
        ("string", 5),
        ("string", _nested(5000)),
    ],
    ids=lambda value: str(type(value).__name__) if not isinstance(value, str) else value[:10],
)
def test_other_texts_are_corrupt(name: str, text: Any) -> None:
    """[X4] One spelling per value: anything else in metadata is a clear, short error."""
    with pytest.raises(CorruptTable, match=r"^here: ") as caught:
        values.decode(ColumnType(name), text, "here")

    assert len(str(caught.value)) < 250


def test_nested_types_have_no_single_values() -> None:
    """A default or bound of a list column cannot be written, so it cannot be read."""
    kind = types.from_json({"list": {"type": "int8"}})

    with pytest.raises(CorruptTable, match="list<int8> column has no single values"):
        values.decode(kind, "5", "here")


@settings(deadline=None)
@given(st.integers(values.INT64_MIN, values.INT64_MAX))
def test_int64_fields_read_back(value: int) -> None:
    """[M2] Versions, times and counts are strings of at most 64 bits."""
    assert values.decode_int64(str(value), "x", least=values.INT64_MIN) == value


@pytest.mark.parametrize("text", [5, None, "-1", "-0", "01", str(2**63), "", "x", _nested(5000)])
def test_other_int64_fields_are_corrupt(text: Any) -> None:
    """[X4] Numbers, negative counts and 65 bits are refused."""
    with pytest.raises(CorruptTable, match=r"^here: "):
        values.decode_int64(text, "here")


def test_the_least_value_is_accepted() -> None:
    """Zero where counts begin, and whatever else a field names."""
    assert values.decode_int64("0", "x") == 0
    assert values.decode_int64("-1", "x", least=-1) == -1
    with pytest.raises(CorruptTable):
        values.decode_int64("0", "x", least=1)
