"""Arrow data that breaks Arrow's own rules is refused before it reaches a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat.damage import check_valid
from strandline.tableformat.errors import InvalidRow


class Unhashable(pa.ExtensionType):
    """Someone's type; like any Python class with `__eq__` alone, it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "tests.unhashable")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _: pa.DataType, __: bytes) -> Unhashable:
        return cls()


def damaged(array: pa.Array) -> int | None:
    """The row that the error names."""
    with pytest.raises(InvalidRow, match="damaged") as caught:
        check_valid(array, "x")
    assert caught.value.field == "x"
    return caught.value.row


def offsets_array(kind: pa.DataType, offsets: list[int], data: bytes) -> pa.Array:
    """A text or binary array over these raw parts."""
    width: Any = np.int64 if "large" in str(kind) else np.int32
    buffers = [None, pa.py_buffer(np.array(offsets, width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=20), max_size=20), st.integers(0, 5))
def test_text_is_accepted_exactly_where_python_can_read_it(
    values: list[bytes | None], skipped: int
) -> None:
    """[E1] Only UTF-8 passes, for plain and large text, whole and sliced, and rows are named."""
    for kind, view in ((pa.binary(), pa.string()), (pa.large_binary(), pa.large_string())):
        array = pa.array(values, kind).view(view).slice(min(skipped, len(values)))
        wrong = [n for n, value in enumerate(values[skipped:]) if value and not _readable(value)]
        if wrong:
            assert damaged(array) == wrong[0]
        else:
            check_valid(array, "x")


def _readable(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("place", range(20))
def test_a_bad_byte_is_found_at_any_place_also_behind_a_slice(place: int) -> None:
    """[E1] Bytes are looked at eight at a time; none of the eight may be overlooked."""
    text = bytearray(b"a" * 20)
    text[place] = 0xFF
    array = pa.array([b"x" * 20, bytes(text), b"y" * 20]).view(pa.string())

    assert damaged(array) == 1
    assert damaged(array.slice(1, 1)) == 0
    check_valid(array.slice(2), "x")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_character_cut_in_two_is_damage_though_the_whole_is_text(kind: pa.DataType) -> None:
    """[E1] The buffer of all values may be UTF-8 while single values are not."""
    assert damaged(offsets_array(kind, [0, 4, 5, 6], "aaaaü".encode())) == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_offsets_that_go_back_are_damage(kind: pa.DataType) -> None:
    """[E1] Wild offsets would make readers crash or see other rows' bytes."""
    damaged(offsets_array(kind, [0, 3, 1, 4], b"abcd"))
    check_valid(offsets_array(kind, [2, 2, 4], b"\xffbcd"), "x")


def test_unused_bytes_do_not_matter() -> None:
    """Bytes before, behind and under nulls belong to no value."""
    array = pa.array([b"\xff", b"a", None, b"\xff"], pa.binary()).view(pa.string())

    check_valid(array.slice(1, 2), "x")
    hidden = pa.Array.from_buffers(
        pa.string(),
        2,
        [pa.py_buffer(b"\x02"), *offsets_array(pa.string(), [0, 1, 2], b"\xffa").buffers()[1:]],
    )
    assert hidden.to_pylist() == [None, "a"]
    check_valid(hidden, "x")


@pytest.mark.parametrize(
    "array",
    [
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 5]), pa.array(["a"]), safe=False),
        pa.array([[b"a"], [b"b"], [b"\xff"]], pa.list_(pa.binary())).view(pa.list_(pa.string())),
        pa.array([b"a", b"b", b"\xff"], pa.binary_view()).view(pa.string_view()),
        pa.Array.from_buffers(
            pa.decimal128(3, 1), 3, [None, pa.py_buffer(np.array([1, 0, 2, 0, 1000, 0]))]
        ),
    ],
    ids=lambda array: str(array.type)[:30],
)
def test_other_damage_is_found_too(array: pa.Array) -> None:
    """[E1] Dictionary indices, text inside lists and views, decimals with too many digits.

    Where the damage may lie in a part that many rows share, no row is blamed.
    """
    has_parts = pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type)

    assert damaged(array) == (None if has_parts else 2)


def test_healthy_arrays_of_all_kinds_pass() -> None:
    """Nothing sound is refused, nor an empty array."""
    for array in (
        pa.array([1, None]),
        pa.nulls(3),
        pa.array([True, None]),
        pa.array([{"a": ["x"]}, None]),
        pa.array([], pa.string()),
        pa.ExtensionArray.from_storage(Unhashable(), pa.array(["1"])),
        pa.array(["ü" * 1000, "a" * 1001, ""]),
    ):
        check_valid(array, "x")
