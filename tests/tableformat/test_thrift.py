"""Thrift's compact protocol, as far as Parquet needs it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import thrift
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.thrift import CompactReader


@given(st.integers(0, 2**63 - 1))
def test_numbers_survive(value: int) -> None:
    """Of any width up to 63 bits."""
    assert CompactReader(thrift.varint(value)).varint() == value
    assert CompactReader(thrift.number(value >> 1)).zigzag() == value >> 1


@given(st.lists(st.binary(max_size=20), max_size=40))
def test_lists_survive(items: list[bytes]) -> None:
    """Short ones keep their size in the head, long ones behind it."""
    data = thrift.list_of(thrift.BINARY, [thrift.binary(item) for item in items])
    reader = CompactReader(data)
    assert reader.value(thrift.LIST) == items
    assert reader.at == len(data)


STRUCTURE = bytes.fromhex(
    "15 08"  # field 1, i32: 4
    "11"  # field 2: true
    "12"  # field 3: false
    "18 03 616263"  # field 4, binary: abc
    "1c 16 01 00"  # field 5, struct: {1: -1}
    "19 25 02 04"  # field 6, list of i32: [1, 2]
    "05 3c 06"  # field 30 (long form), i32: 3
    "13 07"  # field 31, byte: 7
    "17 0000000000000840"  # field 32, double
    "00"
)
FIELDS = {1: 4, 2: True, 3: False, 4: b"abc", 5: {1: -1}, 6: [1, 2], 30: 3, 31: 7}


def test_a_structure_of_all_kinds() -> None:
    """Field by field, with short and long heads."""
    reader = CompactReader(STRUCTURE)
    found = reader.structure()
    assert found.pop(32) == bytes.fromhex("0000000000000840")
    assert found == FIELDS
    assert reader.at == len(STRUCTURE)


@given(st.sets(st.sampled_from([*FIELDS, 99])))
def test_unwanted_fields_are_passed_over(wanted: set[int]) -> None:
    """Wherever they stand, the others are found."""
    reader = CompactReader(STRUCTURE)
    found = reader.structure(dict.fromkeys(wanted))
    assert found == {field: value for field, value in FIELDS.items() if field in wanted}
    assert reader.at == len(STRUCTURE)


def test_every_truncation_is_refused() -> None:
    """[X4] Read or passed over, a structure that ends early is damage."""
    for size in range(len(STRUCTURE)):
        for wanted in (None, {}):
            with pytest.raises(CorruptTable):
                CompactReader(STRUCTURE[:size]).structure(wanted)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_structure_or_damage(data: bytes) -> None:
    """[X4] No other error, and nothing is reserved that is not there."""
    for wanted in (None, {}, {1: None, 2: {1: None}}):
        with suppress(CorruptTable):
            CompactReader(data).structure(wanted)


@pytest.mark.parametrize("wanted", [None, {}], ids=["read", "passed_over"])
def test_deep_nesting_is_refused(wanted: dict[int, None] | None) -> None:
    """[X4] Before the stack ends."""
    for head in (b"\x1c", b"\x19\x19"):
        with pytest.raises(CorruptTable):
            CompactReader(head * 100_000).structure(wanted)


@pytest.mark.parametrize("wanted", [None, {}], ids=["read", "passed_over"])
def test_a_list_that_claims_too_much_is_refused(wanted: dict[int, None] | None) -> None:
    """[X4] Also one of elements that take no bytes of their own."""
    for kind in range(16):
        data = bytes([0x19, 0xF0 | kind]) + thrift.varint(2**40) + b"\0" * 20
        with pytest.raises(CorruptTable):
            CompactReader(data).structure(wanted)
