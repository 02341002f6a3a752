"""range: buckets of values, per zone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.indexes.kinds import KINDS, mask_of_all
from strandline.tableformat.indexes.value_range import MAX_BUCKETS
from strandline.tableformat.indexes.zones import ZoneLayout
from tests.tableformat.indexes.cases import (
    ALL_NAMES,
    FEW,
    Case,
    Variant,
    bound_leaves,
    case_of,
    cases,
    index_of,
    mask_of,
    opened,
    true_zones,
)

RANGE, ZONE_MAP = Variant("range"), Variant("zone_map")


def drifting(kind: str = "int64") -> Case:
    """100 zones of 500 rows that go up, and in each of them one row from anywhere."""
    generator = np.random.default_rng(8)
    values = np.arange(50_000) * 10
    values[::500] = generator.integers(0, 500_000, 100)
    column = case_of(kind, [0], 1).column
    array = pa.array(values).cast(pa.int64() if kind == "int64" else pa.float64())
    return Case(column, pa.chunked_array([array]), ZoneLayout(50_000, 500))


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_false_positives_are_as_rare_as_stated(kind: str) -> None:
    """[E6] A hundredth of the range: too many are only zones with rows in a bucket that is cut.

    A zone map keeps every zone whose one stray row reaches beyond what is asked for.
    """
    case = drifting(kind)
    ranges, bounds = index_of(RANGE, case), index_of(ZONE_MAP, case)
    rows = case.values.to_numpy().reshape(100, 500)
    extra, extra_of_bounds = [], []
    for start in range(0, 495_000, 4950):
        stop = start + 5000
        leaves = [BoundCompare(case.column, ">=", start), BoundCompare(case.column, "<", stop)]
        truth = ((rows >= start) & (rows < stop)).any(axis=1)
        mask = ranges.may_match_all(leaves)
        assert not (truth & ~mask).any()
        cut = [int(np.searchsorted(ranges.edges, end, side="right")) - 1 for end in (start, stop)]
        near = np.isin(np.searchsorted(ranges.edges, rows, side="right") - 1, cut).any(axis=1)
        assert not (mask & ~truth & ~near).any()
        extra.append((mask & ~truth).mean())
        found = mask_of_all(bounds, leaves)
        assert found is not None
        extra_of_bounds.append((found & ~truth).mean())

    assert np.mean(extra) <= 0.02
    assert np.mean(extra_of_bounds) > 0.2


@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_single_values_meet_few_zones(kind: str) -> None:
    """[E6] A bucket has 1/255 of the rows: here that is one or two zones, and strays."""
    case = drifting(kind)
    ranges, bounds = index_of(RANGE, case), index_of(ZONE_MAP, case)

    wanted = [BoundCompare(case.column, "=", value) for value in range(5, 500_000, 4999)]
    kept = np.mean([ranges.may_match(leaf).mean() for leaf in wanted])
    kept_by_bounds = np.mean([bounds.may_match(leaf).mean() for leaf in wanted])

    assert kept < 0.03
    assert kept_by_bounds > 0.3


def test_an_index_takes_32_bytes_a_zone_and_2_kb() -> None:
    """[E6] 255 edges, the greatest value, and 256 bits for each zone."""
    built = KINDS["range"].build(drifting().zones)
    assert built is not None

    assert len(built.data) == 4 + 8 * (MAX_BUCKETS + 1) + 100 * 32


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_few_values_are_told_apart(name: str, data: st.DataObject) -> None:
    """[E6] With a bucket for every value, = and IN and ranges are exact where a value occurs."""
    case = data.draw(cases(name))
    index: Any = opened(RANGE, case)
    if index is None:
        return
    held = set(case.zones.few_distinct.values)  # type: ignore[union-attr]
    for leaf in data.draw(bound_leaves(name)):
        mask = index.may_match(leaf)
        if mask is not None and isinstance(leaf, BoundCompare) and leaf.value in held:
            truth = true_zones(case, leaf)
            if leaf.operator == ">":  # the bucket of the value itself is kept as well
                truth |= true_zones(case, BoundCompare(leaf.column, "=", leaf.value))
                greatest = all(v <= leaf.value or v != v for v in held)  # noqa: PLR0124 - NaN
                truth = true_zones(case, leaf) if greatest else truth
            assert mask.tolist() == truth.tolist()


def test_nan_has_a_bucket_of_its_own() -> None:
    """[E11] It is above everything, equals itself, and is below nothing."""
    nan = math.nan
    case = case_of("float64", [nan, None, 1.0, 2.0, None, None, nan, -5.0], 2)

    def mask(operator: str, value: float) -> list[bool]:
        return mask_of(RANGE, case, lambda c: BoundCompare(c, operator, value))

    assert mask("=", nan) == [True, False, False, True]
    assert mask(">", 100.0) == [True, False, False, True]
    assert mask("<=", 0.0) == [False, False, False, True]
    found = mask_of(RANGE, case, lambda c: BoundIn(c, (2.0,), with_nan=True, negated=False))
    assert found == [True, True, False, True]


def test_a_column_of_nothing_but_nan_has_no_buckets() -> None:
    """[E11] Nor has one that is all null."""
    only_nan = case_of("float64", [math.nan, None], 1)
    only_null = case_of("int64", [None, None], 1)

    assert mask_of(RANGE, only_nan, lambda c: BoundCompare(c, ">", 1.0)) == [True, False]
    assert mask_of(RANGE, only_nan, lambda c: BoundCompare(c, "<", 1.0)) == [False, False]
    assert mask_of(RANGE, only_null, lambda c: BoundCompare(c, ">=", 1)) == [False, False]


def test_decimals_beyond_64_bits_have_no_range() -> None:
    """[E6] But literals may be beyond what the column holds."""
    wide = case_of("decimal(38,0)", [10**30], 1)
    narrow = case_of("decimal(38,0)", [5, 7], 1)

    assert KINDS["range"].build(wide.zones) is None
    assert mask_of(RANGE, narrow, lambda c: BoundCompare(c, "<", 10**30)) == [True, True]
    assert mask_of(RANGE, narrow, lambda c: BoundCompare(c, ">", 10**30)) == [False, False]
    assert mask_of(RANGE, narrow, lambda c: BoundCompare(c, "<=", -(10**30))) == [False, False]
    assert mask_of(RANGE, narrow, lambda c: BoundCompare(c, ">=", -(10**30))) == [True, True]
