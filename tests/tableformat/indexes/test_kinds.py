"""Promises that every index kind keeps, for every column type."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.binding import BoundAnd, BoundCompare, BoundConstant, BoundPair
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.indexes.kinds import KINDS, mask_of_all
from strandline.tableformat.indexes.zones import MAX_ZONES, ColumnZones, ZoneLayout
from tests.filter_cases import SCHEMA
from tests.tableformat.indexes.cases import (
    ALL_NAMES,
    FEW,
    TIME_UNITS,
    VARIANTS,
    Case,
    Variant,
    bound_leaves,
    case_of,
    cases,
    opened,
    true_zones,
)


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_no_index_removes_a_zone_with_a_true_row(name: str, data: st.DataObject) -> None:
    """[E6, E11] Whatever is in the column, whatever is asked, and whichever kind answers."""
    case = data.draw(cases(name))
    wanted = [(leaf, true_zones(case, leaf)) for leaf in data.draw(bound_leaves(name))]
    for variant in VARIANTS:
        index = opened(variant, case)
        for leaf, truth in wanted if index is not None else ():
            mask = index.may_match(leaf)  # type: ignore[union-attr]
            assert (mask is not None) == KINDS[variant.kind].serves(leaf), variant
            if mask is None:
                continue
            assert mask.dtype == np.bool_
            assert mask.shape == (case.layout.count,)
            assert not (truth & ~mask).any(), (str(variant), leaf, case.values.to_pylist())


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_leaves_asked_together_keep_rows_that_satisfy_all(name: str, data: st.DataObject) -> None:
    """[E6, E11] A range has two ends; asked together, kinds that know values see the gap."""
    case = data.draw(cases(name))
    found = data.draw(bound_leaves(name))
    on_column = [f for f in found if not isinstance(f, BoundConstant | BoundPair)][:3]
    if not on_column:
        return
    truth = true_zones(case, BoundAnd(tuple(on_column)))
    for variant in VARIANTS:
        index = opened(variant, case)
        if index is None:
            continue
        mask = mask_of_all(index, on_column)
        one_by_one = [m for m in map(index.may_match, on_column) if m is not None]
        assert (mask is None) == (not one_by_one)
        if mask is None:
            continue
        assert not (truth & ~mask).any(), (str(variant), on_column, case.values.to_pylist())
        assert not (mask & ~np.all(one_by_one, axis=0)).any()
        if variant.kind == "enum_bitmap":
            assert mask.tolist() == truth.tolist()


FITTING = {
    "zone_map": ALL_NAMES,
    "membership": ALL_NAMES,
    "zone_membership": ALL_NAMES,
    "postings": ALL_NAMES,
    "enum_bitmap": ALL_NAMES,
    "rank": ALL_NAMES,
    "range": ["day", "f32", "f64", "flag", "i64", "i8", "local", "moment", "money", "u32"],
    "temporal": ["day", "i64", "local", "moment"],
    "calendar": ["day", "i64", "local", "moment"],
}


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_each_kind_takes_the_types_it_is_for(variant: Variant) -> None:
    """[E6] A kind that quietly builds nothing would never be missed."""
    assert sorted(FITTING) == sorted(KINDS)
    for name in ALL_NAMES:
        column = SCHEMA.column(name)
        values = pa.chunked_array([pa.nulls(3, types.to_arrow(column.type))])
        unit = TIME_UNITS.get(name)
        built = variant.build(ColumnZones(values, column.type, ZoneLayout(3, 2), time_unit=unit))
        # `huge` fits into 64 bits here: all of it is null.
        assert (built is not None) == (name in [*FITTING[variant.kind], "huge"]) or name == "huge"


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_the_same_column_gives_the_same_bytes(name: str, data: st.DataObject) -> None:
    """[E6] However the rows are cut into chunks, and whatever was asked of the column before."""
    case = data.draw(cases(name))
    whole = Case(case.column, pa.chunked_array([case.values.combine_chunks()]), case.layout)
    shared = case.zones
    for variant in VARIANTS:
        assert variant.build(shared) == variant.build(whole.zones)


WIDER = [
    ("int8", "int64", [1, -2, None, 127, 5]),
    ("uint8", "int16", [1, 2, None, 255, 5]),
    ("uint32", "int64", [1, 2**32 - 1, None, 7, 5]),
    ("float32", "float64", [1.5, float("nan"), None, -0.0, 0.1]),
    ("decimal(4,2)", "decimal(38,2)", ["1.00", "-99.99", None, "0.10", "5.00"]),
]


@pytest.mark.parametrize(("old", "new", "rows"), WIDER)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_an_index_outlives_the_widening_of_its_column(
    variant: Variant, old: str, new: str, rows: list[Any]
) -> None:
    """[C3, E6] Built with the narrow type, opened with the wide one: same answers."""
    if old.startswith("decimal"):
        rows = pa.array(rows).cast(types.to_arrow(types.from_json(old))).to_pylist()
    narrow = case_of(old, rows, 2)
    wide = case_of(new, narrow.values.cast(types.to_arrow(types.from_json(new))).to_pylist(), 2)
    built = variant.build(narrow.zones)
    if built is None:
        return

    index = KINDS[variant.kind].open(built.data, built.params, wide.layout, wide.column.type)

    assert built == variant.build(wide.zones)
    for row in wide.zones.few_distinct.values:  # type: ignore[union-attr]
        leaf = BoundCompare(wide.column, "=", row)
        mask = index.may_match(leaf)
        assert mask is None or not (true_zones(wide, leaf) & ~mask).any()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_leaves_that_look_at_no_column_or_two_are_left_to_others(variant: Variant) -> None:
    """[E11] None is "cannot tell", which prunes nothing."""
    case = case_of("timestamp", [1, None, 3], 2)
    index = opened(variant, case)
    assert index is not None

    for leaf in (BoundConstant(value=False), BoundPair(case.column, "<", case.column)):
        assert not KINDS[variant.kind].serves(leaf)
        assert index.may_match(leaf) is None


def test_a_layout_that_is_none_is_refused() -> None:
    """[X4] Counts come from stored bytes, too."""
    for rows, size in ((0, 1), (1, 0), (-1, 5), (MAX_ZONES + 1, 1), (2**62, 2048)):
        with pytest.raises(CorruptTable, match="no layout"):
            ZoneLayout(rows, size)
    assert ZoneLayout(32_768, 2048).count == 16


def test_zones_are_those_of_the_specification() -> None:
    """[E5] 32,768 rows at 2,048 rows give 16 zones; a short last zone is fine."""
    layout = ZoneLayout(5000, 2048)

    assert layout.count == 3
    assert layout.starts.tolist() == [0, 2048, 4096]
    assert layout.rows.tolist() == [2048, 2048, 904]
    assert np.bincount(layout.zone_of_row).tolist() == [2048, 2048, 904]


def test_columns_that_do_not_fit_are_refused() -> None:
    """[E1] A nested column has no values to compare, and zones must cover the rows."""
    values = pa.chunked_array([pa.array([[1]])])
    with pytest.raises(InvalidInput, match="no values"):
        ColumnZones(values, types.from_json({"list": {"type": "int64"}}), ZoneLayout(1, 1))
    with pytest.raises(InvalidInput, match="2 rows"):
        ColumnZones(pa.chunked_array([[1, 2]]), types.from_json("int64"), ZoneLayout(3, 1))


def test_reading_an_index_does_not_load_pandas() -> None:
    """[X3] Planning stays fast: pyarrow loads pandas with its first scalar."""
    code = """
import sys
import numpy as np
import pyarrow as pa
from strandline.tableformat.binding import BoundCompare, BoundIn, BoundNull
from strandline.tableformat.indexes.kinds import KINDS, mask_of_all
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.schema import Column
from strandline.tableformat.types import ColumnType
kind = ColumnType("timestamp")
column = Column(id=1, name="x", physical_name="x", type=kind)
blobs = eval(sys.argv[1])
for name, (data, params) in blobs.items():
    index = KINDS[name].open(data, params, ZoneLayout(3, 2), kind)
    index.may_match(BoundCompare(column, "=", 1))
    index.may_match(BoundIn(column, (1, 2), False, False))
    index.may_match(BoundNull(column, False))
assert "pandas" not in sys.modules
"""
    case = case_of("timestamp", [1, None, 3], 2)
    blobs = {}
    for name, kind in KINDS.items():
        built = kind.build(case.zones)
        assert built is not None
        blobs[name] = (built.data, built.params)

    subprocess.run([sys.executable, "-c", code, repr(blobs)], check=True, timeout=60)
