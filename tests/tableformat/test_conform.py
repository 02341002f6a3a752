"""Arrow arrays into column types: what is converted, what is refused, and how that is said."""

from __future__ import annotations

import mmap
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.tableformat import conform as conform_module
from strandline.tableformat import types
from strandline.tableformat.conform import conform_column
from strandline.tableformat.errors import InvalidRow

NAN = float("nan")
US = pa.timestamp("us")
UTC_US = pa.timestamp("us", tz="UTC")


def conformed(array: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The array as a column of this type, checked by Arrow itself."""
    given = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    kind = types.from_arrow(target)
    out = conform_column(given, kind, "x")
    for typed in (out, *out.chunks):
        assert typed.type.equals(types.to_arrow(kind), check_metadata=True)
    out.validate(full=True)
    return out


def refusal(array: pa.Array | pa.ChunkedArray, target: pa.DataType) -> InvalidRow:
    """The error for an array that a column of this type refuses."""
    given = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    with pytest.raises(InvalidRow) as caught:
        conform_column(given, types.from_arrow(target), "x")
    return caught.value


def raw(values: list[int], kind: pa.DataType) -> pa.Array:
    """An array of this type over these 64-bit integers."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.array(values))])


STRUCT = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
STRUCT_OTHERWISE = pa.struct([("b", pa.large_string()), ("a", pa.int8())])
MAP = pa.map_(pa.string(), pa.int64())


# --- what is converted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (pa.array(["a", None, "ü\0"], pa.large_string()), pa.string()),
        (pa.array(["a", None, "a longer text than fits a view"], pa.string_view()), pa.string()),
        (pa.array([b"a", None, b"\xff"], pa.large_binary()), pa.binary()),
        (pa.array([b"a", None, b"\xff"], pa.binary_view()), pa.binary()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([b"a", None, b"a"]).dictionary_encode(), pa.binary()),
        (pa.array([300, None, 300]).dictionary_encode(), pa.int16()),
        (
            pa.DictionaryArray.from_arrays([0, 1, None], pa.array(["a", None], pa.string_view())),
            pa.string(),
        ),
        (pa.array([1, None, -128], pa.int8()), pa.int64()),
        (pa.array([1, None, 127], pa.int64()), pa.int8()),
        (pa.array([1, 2**32 - 1], pa.uint64()), pa.uint32()),
        (pa.array([1, 2**63 - 1], pa.uint64()), pa.int64()),
        (pa.array([-(2**53), 2**53, None]), pa.float64()),
        (pa.array([2**60, -(2**63), 3 * 2**55, 0, None]), pa.float64()),
        (pa.array([2**63, 2**64 - 2**11], pa.uint64()), pa.float64()),
        (pa.array([2**24, 2**40, -(2**24) - 2]), pa.float32()),
        (pa.array([0.5, -0.0, float("inf"), None], pa.float32()), pa.float64()),
        (pa.array([0.5, 2.0**127, float("-inf"), None]), pa.float32()),
        (pa.array(np.array([0.5, 1.5], np.float16)), pa.float32()),
        (pa.array([5, None, -7], pa.int64()), pa.decimal128(3, 2)),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(38, 18)),
        (pa.array([0, None]), pa.decimal128(38, 38)),
        (pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)), pa.decimal128(3, 1)),
        (pa.array([Decimal("1.2"), None], pa.decimal256(50, 1)), pa.decimal128(38, 9)),
        (pa.array([Decimal("1.2"), None], pa.decimal64(9, 1)), pa.decimal128(9, 1)),
        (pa.array([Decimal(1200)], pa.decimal128(6, -2)), pa.decimal128(6, 0)),
        (raw([86_400_000, -86_400_000, 0], pa.date64()), pa.date32()),
        (raw([1, -1], pa.timestamp("s")), US),
        (raw([1, -1], pa.timestamp("ms", tz="Europe/Berlin")), UTC_US),
        (raw([1000, -3000], pa.timestamp("ns")), US),
        (raw([1000, -3000], pa.timestamp("ns", tz="+02:00")), UTC_US),
        (pa.array([[1, 2], None, []], pa.large_list(pa.int64())), pa.list_(pa.int32())),
        (
            pa.array([[1, 2], None, []], pa.list_(pa.field("item", pa.int64()))),
            pa.list_(pa.int64()),
        ),
        (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), pa.list_(pa.int64())),
        (pa.array([[1, 2], None, []], pa.list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array([["a"], None], pa.large_list_view(pa.string_view())), pa.list_(pa.string())),
        (pa.array([{"b": "x", "a": 1}, None], STRUCT_OTHERWISE), STRUCT),
        (pa.array([{"a": 1}, None], pa.struct([("a", pa.int64())])), STRUCT),
        (pa.array([[("k", 1)], None, []], pa.map_(pa.large_string(), pa.int8())), MAP),
        (
            pa.array(
                [[("k", [{"a": 1}, None])]], pa.map_(pa.string(), pa.large_list(STRUCT_OTHERWISE))
            ),
            pa.map_(pa.string(), pa.list_(STRUCT)),
        ),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:60],
)
def test_lossless_conversions_are_made(given: pa.Array, target: pa.DataType) -> None:
    """[E1] [C12] Other layouts of the same values enter as they are, whole, sliced or chunked."""
    for case in (given, pa.concat_arrays([given, given, given]).slice(1), given.slice(0, 0)):
        expected = [_comparable(value) for value in case.to_pylist()]

        out = conformed(case, target)

        assert [_comparable(value) for value in out.to_pylist()] == expected

    chunked = pa.chunked_array([given, given.slice(1), given.slice(0, 0)])
    assert conformed(chunked, target).num_chunks == 3


def _comparable(value: Any) -> Any:
    """Values as they compare across types: instants in UTC, structs with all their fields."""
    if hasattr(value, "utcoffset") and value.utcoffset() is not None:
        return value.timestamp()
    if isinstance(value, list):
        return [_comparable(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_comparable(v) for v in value)
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if v is not None}
    return value


def test_nan_stays_nan() -> None:
    """NaN is a float of every width; its neighbours are still checked."""
    assert np.isnan(conformed(pa.array([NAN]), pa.float32())[0].as_py())
    assert refusal(pa.array([NAN, None, 0.5, 0.1]), pa.float32()).row == 3


def test_run_ends_are_decoded() -> None:
    """[E1] A run-end encoded column enters like the values it stands for."""
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None]))

    assert conformed(runs, pa.string()).to_pylist() == ["a", "a", None]


@pytest.mark.parametrize(
    "target", [pa.int8(), pa.string(), pa.decimal128(5, 2), UTC_US, STRUCT, pa.list_(STRUCT)]
)
def test_an_untyped_column_of_nulls_fits_any_type(target: pa.DataType) -> None:
    """[E1] `null` is what Arrow makes of a column without a value."""
    assert conformed(pa.nulls(3), target).to_pylist() == [None] * 3


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None]),
        pa.array(["a", None]),
        pa.array([Decimal("1.5")]),
        pa.array([[1], None], pa.list_(pa.field("element", pa.int64()))),
        pa.array([{"a": 1}, None], pa.struct([pa.field("a", pa.int64(), nullable=False)])),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_what_fits_is_not_copied(array: pa.Array) -> None:
    """[C12] A column of the exact type comes back as the same object."""
    given = pa.chunked_array([array, array.slice(1)])

    assert conform_column(given, types.from_arrow(array.type), "x") is given


def test_a_wider_layout_keeps_its_bytes() -> None:
    """Large strings get narrow offsets over the same memory, even from far inside a buffer."""
    wide = pa.array(["skipped" * 50, "ab", None, "cd"], pa.large_string()).slice(1)

    out = conformed(wide, pa.string()).chunk(0)

    assert out.to_pylist() == ["ab", None, "cd"]
    assert out.buffers()[2].address == wide.buffers()[2].address + 350


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("good", "bad", "source", "target"),
    [
        (1, 128, pa.int64(), pa.int8()),
        (1, -1, pa.int64(), pa.uint32()),
        (1, 2**63, pa.uint64(), pa.int64()),
        (1, 2**53 + 1, pa.int64(), pa.float64()),
        (1, 2**63 - 1, pa.int64(), pa.float64()),
        (1, 2**64 - 1, pa.uint64(), pa.float64()),
        (1, 2**24 + 1, pa.int32(), pa.float32()),
        (0.5, 0.1, pa.float64(), pa.float32()),
        (0.5, 1e300, pa.float64(), pa.float32()),
        (1, 1000, pa.int64(), pa.decimal128(5, 2)),
        (0, 1, pa.int64(), pa.decimal128(38, 38)),
        (Decimal("1.10"), Decimal("1.11"), pa.decimal128(9, 2), pa.decimal128(9, 1)),
        (Decimal("1.10"), Decimal(1000), pa.decimal128(9, 2), pa.decimal128(4, 2)),
        ("a", "b" * 40, pa.string(), pa.int64()),
    ],
)
@pytest.mark.parametrize("row", [0, 1, 7, 12])
def test_the_first_value_that_does_not_fit_is_named(
    good: Any, bad: Any, source: pa.DataType, target: pa.DataType, row: int
) -> None:
    """[E1] The row counts through chunks and past nulls; the value is in the message."""
    if source == pa.string():
        good = None  # a string column is refused for its type, at its first value
    values = [good, None] * 7
    values[row] = bad
    values[13] = bad
    chunks = [pa.array(values[:5], source), pa.array(values[5:], source)]

    error = refusal(pa.chunked_array(chunks), target)

    assert (error.row, error.field) == (row, "x")
    if source != pa.string():
        assert str(bad)[:20] in error.reason


@pytest.mark.parametrize(
    ("good", "bad", "source", "target", "said"),
    [
        (1000, 1001, pa.timestamp("ns"), US, "1001 ns since 1970"),
        (0, 2**62, pa.timestamp("s"), US, f"{2**62} s since 1970"),
        (0, -(2**62), pa.timestamp("ms", tz="UTC"), UTC_US, f"{-(2**62)} ms since 1970"),
        (86_400_000, 1, pa.date64(), pa.date32(), "1 ms since 1970 is not a whole day"),
    ],
)
def test_times_that_would_lose_digits_are_named(
    good: int, bad: int, source: pa.DataType, target: pa.DataType, said: str
) -> None:
    """[E1] Nanoseconds are not cut off, days are whole, and far times do not overflow."""
    error = refusal(raw([good] * 6 + [bad] * 2, source), target)

    assert error.row == 6
    assert said in error.reason


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.array([None, "5"]), pa.int64()),
        (pa.array([None, 5]), pa.string()),
        (pa.array([None, True]), pa.int64()),
        (pa.array([None, 1]), pa.bool_()),
        (pa.array([None, 1.0]), pa.int64()),
        (pa.array([None, True]), pa.float64()),
        (pa.array([None, 1.0]), pa.decimal128(5, 2)),
        (pa.array([None, Decimal("1.5")]), pa.float64()),
        (pa.array([None, "a"]), pa.binary()),
        (pa.array([None, b"a"]), pa.string()),
        (pa.array([None, 1]), US),
        (pa.array([None, 1], pa.int32()), pa.date32()),
        (pa.array([None, 1], pa.date32()), US),
        (pa.array([None, 1], US), pa.date32()),
        (pa.array([None, 1], pa.time64("us")), US),
        (pa.array([None, 1], pa.duration("us")), pa.int64()),
        (pa.array([None, "a"]), pa.list_(pa.string())),
        (pa.array([None, [("a", 1)]], pa.map_(pa.string(), pa.int64())), pa.list_(STRUCT)),
        (pa.array([None, {"a": 1}]), pa.map_(pa.string(), pa.int64())),
        (pa.array([None, [1]]), STRUCT),
        (pa.array([None, True]).dictionary_encode(), pa.int64()),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array([None, "1"])), pa.string()),
    ],
    ids=lambda value: str(getattr(value, "type", value))[:40],
)
def test_other_types_are_refused_at_their_first_value(
    source: pa.Array, target: pa.DataType
) -> None:
    """[E1] Text is not parsed, numbers are not times, truth is not a number."""
    error = refusal(source, target)

    assert (error.row, error.field) == (1, "x")
    assert str(types.from_arrow(target)) in error.reason


def test_a_wrong_type_without_values_is_refused_without_a_row() -> None:
    """[E1] Nulls of another type are a mistake too, only no row is to blame."""
    assert refusal(pa.array([None, None], pa.string()), pa.int64()).row is None


@pytest.mark.parametrize(
    ("source", "target"), [(US, UTC_US), (pa.timestamp("ms", tz="Asia/Tokyo"), US)]
)
def test_zones_are_neither_invented_nor_dropped(source: pa.DataType, target: pa.DataType) -> None:
    """[E1] The message says how to decide it."""
    error = refusal(raw([1], source), target)

    assert error.row == 0
    assert "pyarrow: pc." in error.reason


# --- nested values ----------------------------------------------------------------------------


def test_a_null_inside_a_value_is_found_in_its_row() -> None:
    """[E1] Required members are checked where their parent is there, at any depth."""
    inner = pa.struct([pa.field("a", pa.int32())])
    rows = [[{"a": 1}], None, [], [None, {"a": 2}], [{"a": 3}, {"a": None}]]
    target = pa.list_(STRUCT)

    error = refusal(pa.array(rows, pa.list_(inner)), target)

    assert (error.row, error.field) == (4, "x.element.a")
    assert conformed(pa.array(rows[:4], pa.list_(inner)), target).to_pylist()[3][0] is None


def test_required_elements_and_values_must_be_there() -> None:
    """[E1] A list and a map may declare that they hold no nulls."""
    elements = pa.list_(pa.field("element", pa.int64(), nullable=False))
    error = refusal(pa.array([[1], None, [2, None]]), elements)
    assert (error.row, error.field) == (2, "x.element")

    items = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    source = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64()))
    error = refusal(source.slice(1), items)
    assert (error.row, error.field) == (1, "x.value")


def test_a_required_member_that_is_left_out_is_named() -> None:
    """[E1] A struct without a required member is refused at its first value."""
    error = refusal(pa.array([None, {"b": "x"}]), STRUCT)

    assert (error.row, error.field) == (1, "x.a")


def test_a_null_struct_may_hide_anything() -> None:
    """What lies under a null parent is not data: neither nulls nor overflows count there."""
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, 2**40, None])],
        names=["a"],
        mask=pa.array([False, True, True]),
    )

    assert conformed(hidden, STRUCT).to_pylist() == [{"a": 1, "b": None}, None, None]


def test_unknown_members_are_refused() -> None:
    """[E1] A struct's extra fields are not dropped in silence."""
    error = refusal(pa.array([None, {"a": 1, "c": 2}]), STRUCT)
    assert (error.row, error.field) == (1, "x.c")

    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert refusal(twice, STRUCT).field == "x.a"


def test_list_views_in_any_order_keep_their_elements() -> None:
    """A view may point backwards and share elements."""
    views = pa.ListViewArray.from_arrays([2, 0, 0], [1, 2, 3], pa.array([10, 11, 12]))

    assert conformed(views, pa.list_(pa.int64())).to_pylist() == [[12], [10, 11], [10, 11, 12]]


def test_an_element_that_does_not_fit_names_its_row() -> None:
    """[E1] Rows are counted, not elements, also past empty and null lists and in slices."""
    lists = pa.array([[9, 9], [1, 2], None, [], [3, 2**40]]).slice(1)

    error = refusal(lists, pa.list_(pa.int32()))

    assert (error.row, error.field) == (3, "x.element")


# --- more than 2 GiB --------------------------------------------------------------------------


def test_text_beyond_two_gibibytes_is_split_into_chunks() -> None:
    """[E1] Where 32-bit offsets end, a chunk ends; one value beyond that is refused by name."""
    pages = mmap.mmap(-1, 5 << 30)  # zeros, which are valid text and take no memory to look at
    data = pa.py_buffer(pages)

    def large(*ends: int) -> pa.Array:
        offsets = pa.py_buffer(np.array([0, *ends], np.int64))
        return pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, data])

    def binary(array: pa.Array) -> pa.ChunkedArray:
        return conform_column(pa.chunked_array([array]), types.ColumnType("binary"), "x")

    gib = 1 << 30
    assert [len(c) for c in binary(large(gib, 2 * gib, 3 * gib, 4 * gib)).chunks] == [1, 1, 1, 1]
    assert [len(c) for c in binary(large(gib, 2 * gib - 1, 3 * gib, 4 * gib)).chunks] == [2, 1, 1]
    with pytest.raises(InvalidRow) as caught:
        binary(large(gib, gib, 3 * gib + 1, 4 * gib))
    assert caught.value.row == 2


def test_nested_values_are_split_like_flat_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for the elements of lists and the text inside structs too."""
    monkeypatch.setattr(conform_module, "INT32_MAX", 10)
    lists = pa.array([[1] * 6, [2] * 6, None], pa.large_list(pa.int64()))
    structs = pa.array([{"a": 1, "b": "x" * 8}, {"a": 2, "b": "y" * 8}])

    assert conformed(lists, pa.list_(pa.int64())).to_pylist() == lists.to_pylist()
    assert conformed(lists, pa.list_(pa.int64())).num_chunks == 2
    wide = structs.cast(pa.struct([("a", pa.int32()), ("b", pa.large_string())]))
    assert conformed(wide, STRUCT).to_pylist() == structs.to_pylist()
    error = refusal(pa.array([[1], [2] * 11], pa.large_list(pa.int64())), pa.list_(pa.int64()))
    assert (error.row, error.field) == (1, "x")
