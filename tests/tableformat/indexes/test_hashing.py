"""Canonical hashes: equal values hash alike, wherever they come from."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.binding import BoundCompare
from strandline.tableformat.indexes.hashing import NAN_BITS, column_hashes, literal_hashes
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.schema import stat_values
from tests.filter_cases import SCHEMA
from tests.tableformat.indexes.cases import ALL_NAMES, FEW, VARIANTS, Case, case_of, cases, opened


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_a_literal_hashes_as_the_column_does(name: str, data: st.DataObject) -> None:
    """[E6] For every type: otherwise a lookup would miss the row that it asks for."""
    case: Case = data.draw(cases(name))
    kind = SCHEMA.column(name).type

    hashes = column_hashes(case.values, kind).tolist()

    values = stat_values(kind, case.values)
    one_by_one = [0 if v is None else int(literal_hashes([v], kind)[0]) for v in values]
    assert hashes == one_by_one


@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, math.nan]), min_size=1, max_size=9))
def test_floats_hash_by_their_value(values: list[float]) -> None:
    """[IDX-7] Eight bytes of the float64; one zero, one NaN."""
    expected = []
    for value in values:
        bits = struct.pack("<Q", NAN_BITS) if math.isnan(value) else struct.pack("<d", value + 0.0)
        expected.append(xxhash.xxh64_intdigest(bits))

    case = case_of("float64", values, 1)
    assert column_hashes(case.values, case.column.type).tolist() == expected


def test_every_form_of_nan_is_one() -> None:
    """[IDX-7] A negative NaN and one with a payload, in a file from elsewhere."""
    forms = [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1, (0x7FF0 << 48) + 1]
    values = pa.chunked_array([pa.array(np.array(forms, np.uint64).view(np.float64))])

    narrow = np.array([0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001], np.uint32)
    short = pa.chunked_array([pa.array(narrow.view(np.float32))])

    found = {*column_hashes(values, types.from_json("float64")).tolist()}
    found |= {*column_hashes(short, types.from_json("float32")).tolist()}
    assert found == {xxhash.xxh64_intdigest(struct.pack("<Q", NAN_BITS))}


def test_every_form_of_nan_can_be_indexed() -> None:
    """[E6] numpy warns about calculations with a signalling NaN, and warnings are errors here."""
    forms = np.array([(0x7FF0 << 48) + 1, (0x7FF8 << 48) + 1, 0], np.uint64).view(np.float64)
    values = pa.chunked_array([pa.array(forms)])
    for variant in VARIANTS:
        case = Case(case_of("float64", [0.0], 1).column, values, ZoneLayout(3, 2))
        index = opened(variant, case)
        mask = index and index.may_match(BoundCompare(case.column, "=", math.nan))
        assert mask is None or mask[0]


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("int8", "int64", [1, -1, None]),
        ("uint32", "int64", [2**32 - 1]),
        ("float32", "float64", [0.5, -0.0, math.nan]),
    ],
)
def test_a_wider_type_keeps_the_hash(old: str, new: str, values: list[Any]) -> None:
    """[IDX-7] Old segments keep their indexes when a column is widened."""
    narrow, wide = case_of(old, values, 1), case_of(new, values, 1)

    assert (
        column_hashes(narrow.values, narrow.column.type).tolist()
        == column_hashes(wide.values, wide.column.type).tolist()
    )


def test_what_a_column_cannot_hold_has_no_hash() -> None:
    """[E11] Half a surrogate pair, a third truth value, a number beyond the type: no row has it."""
    assert not len(literal_hashes(["\ud800"], types.from_json("string")))
    assert not len(literal_hashes([2, -1], types.from_json("bool")))
    assert not len(literal_hashes([2**63], types.from_json("int64")))
    assert not len(literal_hashes([10**39], types.from_json("decimal(38,0)")))
    assert not len(literal_hashes([1.5], types.from_json("int64")))


def test_nulls_hash_to_zero_and_slices_are_themselves() -> None:
    """[SHA-1] Whatever stands in the buffers under a null, or before a slice."""
    values = pa.chunked_array([pa.array(["x", None, "abc", "", "abc"] * 40)]).slice(1, 150)
    kind = types.from_json("string")

    assert column_hashes(values, kind).tolist() == [
        0 if v is None else xxhash.xxh64_intdigest(v.encode()) for v in values.to_pylist()
    ]
