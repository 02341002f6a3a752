"""zone_map, temporal, calendar and rank: what they know of zones, and what they leave."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.binding import BoundCompare, BoundIn, BoundKnown, BoundLike, BoundNull
from strandline.tableformat.indexes.calendar import MAX_SLOTS
from strandline.tableformat.indexes.kinds import KINDS, mask_of_all
from strandline.tableformat.indexes.rank import RankBound
from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
from strandline.tableformat.like import parse_like
from strandline.tableformat.pruning import leaf_mask
from strandline.tableformat.schema import stat_values
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
)

ZONE_MAP, TEMPORAL, CALENDAR = Variant("zone_map"), Variant("temporal"), Variant("calendar")
RANK = Variant("rank")
HOUR = 3_600_000_000
NAN = math.nan


def zones_of(case: Case) -> list[list[Any]]:
    """The domain values of each zone."""
    values, size = stat_values(case.column.type, case.values), case.layout.zone_rows
    return [values[i : i + size] for i in range(0, len(values), size)]


def ends_by_hand(values: list[Any]) -> tuple[Any, Any]:
    """The least and greatest value, neither null nor NaN; None if there is none."""
    held = [v for v in values if v is not None and v == v]  # noqa: PLR0124 - NaN
    return (min(held), max(held)) if held else (None, None)


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_a_zone_map_holds_the_bounds_of_each_zone(name: str, data: st.DataObject) -> None:
    """[E6] Exactly, where they are short enough; and the nulls, and whether there is a NaN."""
    case = data.draw(cases(name))

    bounds = index_of(ZONE_MAP, case).bounds

    for zone, values in enumerate(zones_of(case)):
        low, high = ends_by_hand(values)
        assert bounds.null_count[zone] == values.count(None)
        assert bounds.value_count[zone] == len(values)
        assert bounds.has_nan[zone] == any(isinstance(v, float) and math.isnan(v) for v in values)
        if low is None or not bounds.known[zone]:
            assert not bounds.known[zone]
            # Nothing but U+10FFFF or 0xFF in front: no upper bound is short enough.
            assert low is None or high[:32] in ("\U0010ffff" * 32, b"\xff" * 32)
        elif bounds.exact[zone]:
            assert (bounds.mins[zone], bounds.maxs[zone]) == (low, high)
        else:
            assert bounds.mins[zone] <= low
            assert bounds.maxs[zone] >= high
            assert max(len(low), len(high)) > 32


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_a_zone_map_answers_as_pruning_does(name: str, data: st.DataObject) -> None:
    """[E9] Zones are pruned by the rules that segments are pruned by, after a trip to bytes."""
    case = data.draw(cases(name))
    index = index_of(ZONE_MAP, case)
    for leaf in data.draw(bound_leaves(name)):
        mask = index.may_match(leaf)
        if mask is not None:
            assert mask.tolist() == leaf_mask(leaf, case.zones.bounds).tolist()


def test_a_zone_map_leaves_what_it_should() -> None:
    """[E6] An index that keeps everything would be right, too, and useless."""
    case = case_of("int64", [1, 2, None, None, 7, 7, 9, None], 2)

    def mask(operator: str, value: int) -> list[bool]:
        return mask_of(ZONE_MAP, case, lambda c: BoundCompare(c, operator, value))

    assert mask("=", 2) == [True, False, False, False]
    assert mask("!=", 7) == [True, False, False, True]
    assert mask(">", 7) == [False, False, False, True]
    assert mask_of(ZONE_MAP, case, lambda c: BoundNull(c, negated=False)) == [
        False, True, False, True,
    ]  # fmt: skip
    assert mask_of(ZONE_MAP, case, lambda c: BoundNull(c, negated=True)) == [
        True, False, True, True,
    ]  # fmt: skip
    texts = case_of("string", ["ab", "ac", "b", "c"], 2)
    assert mask_of(ZONE_MAP, texts, lambda c: BoundLike(c, parse_like("a%"), negated=False)) == [
        True, False,
    ]  # fmt: skip


# --- temporal ---------------------------------------------------------------------------------

TIMES = [
    ("timestamp", [5, 9, None, None, -3, 2**32]),
    ("timestamptz", [-(2**63), 2**63 - 1, 0, 1, None, 5]),
    ("date", [-5, 5, None, 7, 2**31 - 1, -(2**31)]),
]


@pytest.mark.parametrize(("kind", "rows"), TIMES)
def test_fences_are_the_exact_bounds_of_each_zone(kind: str, rows: list[Any]) -> None:
    """[E6] Near and far, before the epoch, and as far apart as the type allows."""
    of_type = types.from_json(kind)
    stored = pa.array(rows, pa.int32() if kind == "date" else pa.int64())
    values = pa.chunked_array([stored.view(types.to_arrow(of_type))])
    column = ColumnZones(values, of_type, ZoneLayout(len(rows), 2))
    built = KINDS["temporal"].build(column)
    assert built is not None

    bounds: Any = KINDS["temporal"].open(built.data, built.params, column.layout, of_type)
    bounds = bounds.bounds

    for zone in range(3):
        low, high = ends_by_hand(rows[2 * zone : 2 * zone + 2])
        assert bounds.known[zone] == (low is not None)
        if low is not None:
            assert (bounds.mins[zone], bounds.maxs[zone]) == (low, high)
    assert bounds.null_count.tolist() == [rows[i : i + 2].count(None) for i in (0, 2, 4)]


def test_fences_of_near_times_take_four_bytes_each() -> None:
    """[E6] An hour of microseconds fits; a day does not."""
    near = case_of("timestamp", [10**15 + i * 10**6 for i in range(3600)], 60)
    far = case_of("timestamp", [10**15 + i * 10**8 for i in range(3600)], 60)

    sizes = [len(KINDS["temporal"].build(c.zones).data) for c in (near, far)]  # type: ignore[union-attr]

    assert sizes == [8 + 60 * 12, 8 + 60 * 20]


# --- calendar ---------------------------------------------------------------------------------


def test_a_few_late_rows_do_not_widen_a_zone() -> None:
    """[E6] Fences would keep both zones for the hour in between; the calendar keeps none."""
    case = case_of("timestamp", [0, 1, 9 * HOUR, 2 * HOUR, 2 * HOUR, 9 * HOUR + 1], 3)

    def masks(operator: str, value: int) -> list[list[bool]]:
        return [
            mask_of(v, case, lambda c: BoundCompare(c, operator, value))
            for v in (TEMPORAL, CALENDAR)
        ]

    assert masks("=", 5 * HOUR) == [[True, True], [False, False]]
    assert masks("=", HOUR - 1) == [[True, False], [True, False]]
    assert masks("=", 3 * HOUR - 1) == [[True, True], [False, True]]
    assert masks("<", 2 * HOUR) == [[True, False], [True, False]]
    assert masks("<=", 2 * HOUR) == [[True, True], [True, True]]
    assert masks(">", 10 * HOUR - 1) == [[False, False], [False, False]]
    assert masks(">=", 9 * HOUR) == [[True, True], [True, True]]
    wanted = (5 * HOUR, 2 * HOUR + 7)
    found = mask_of(CALENDAR, case, lambda c: BoundIn(c, wanted, with_nan=False, negated=False))
    assert found == [False, True]


def test_a_range_of_time_picks_the_zones_of_its_hours() -> None:
    """[E6, E9] Both ends together: each alone is met by the rows before, and by the late ones."""
    case = case_of("timestamp", [0, 1, 9 * HOUR, 2 * HOUR, 2 * HOUR, 9 * HOUR + 1], 3)
    ends = [BoundCompare(case.column, ">=", HOUR), BoundCompare(case.column, "<", 3 * HOUR)]

    masks = [mask_of_all(index_of(v, case), ends) for v in (TEMPORAL, CALENDAR)]

    assert [m.tolist() for m in masks if m is not None] == [[True, True], [False, True]]


@pytest.mark.parametrize(
    ("kind", "rows", "value", "expected"),
    [
        ("date", [date(1969, 12, 31), date(1970, 1, 1)], -1, [True, False]),
        ("timestamp", [datetime(1969, 12, 31, 23), datetime(1970, 1, 1)], -1, [True, False]),  # noqa: DTZ001
        ("int64", [-3_600_000, 0], -1, [True, False]),
    ],
)
def test_slots_are_days_of_dates_and_hours_of_times(
    kind: str, rows: list[Any], value: int, expected: list[bool]
) -> None:
    """[E6] Also before the epoch, and for `_ts`, which counts in milliseconds."""
    case = case_of(kind, rows, 1, name="i64")

    assert mask_of(CALENDAR, case, lambda c: BoundCompare(c, "=", value)) == expected


@pytest.mark.parametrize("step", [HOUR, 1000 * HOUR, 2 * 10**14])
def test_a_calendar_has_at_most_4096_slots(step: int) -> None:
    """[E6] Dense hours, rare hours, and hours so far apart that only sorting finds them."""
    fits = case_of("timestamp", [i * step for i in range(MAX_SLOTS)], 100)
    wide = case_of("timestamp", [i * step for i in range(MAX_SLOTS + 1)], 100)

    assert KINDS["calendar"].build(wide.zones) is None
    mask = mask_of(CALENDAR, fits, lambda c: BoundCompare(c, "=", 250 * step))
    assert [zone for zone, kept in enumerate(mask) if kept] == [2]


@pytest.mark.parametrize("shuffled", [False, True])
def test_both_forms_of_a_calendar_say_the_same(*, shuffled: bool) -> None:
    """[E6] Lists where few zones have an hour, bitmaps where most do."""
    hours = np.arange(3000) // 50
    if shuffled:
        np.random.default_rng(5).shuffle(hours)
    case = case_of("timestamp", (hours * HOUR).tolist(), 10)
    built = KINDS["calendar"].build(case.zones)
    assert built is not None
    assert built.params == {"zones": "bitmaps" if shuffled else "lists"}

    for hour in (0, 17, 59, 60):
        mask = mask_of(CALENDAR, case, lambda c, h=hour: BoundCompare(c, "=", h * HOUR + 5))  # type: ignore[misc]
        assert mask == (hours.reshape(-1, 10) == hour).any(axis=1).tolist()
        mask = mask_of(CALENDAR, case, lambda c, h=hour: BoundCompare(c, "<", h * HOUR))  # type: ignore[misc]
        assert mask == (hours.reshape(-1, 10) < hour).any(axis=1).tolist()


def test_nulls_are_in_no_calendar() -> None:
    """[E11] So it knows where values are, and says nothing of IS NULL."""
    case = case_of("timestamp", [None, None, 5, None], 2)
    index = index_of(CALENDAR, case)

    assert index.may_match(BoundNull(case.column, negated=False)) is None
    assert index.may_match(BoundNull(case.column, negated=True)).tolist() == [False, True]
    assert index.may_match(BoundKnown(case.column, value=True)).tolist() == [False, True]
    assert index.may_match(BoundKnown(case.column, value=False)).tolist() == [False, False]


# --- rank -------------------------------------------------------------------------------------


def rank_key(value: Any) -> tuple[bool, Any]:
    """NaN above everything."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_stopping_early_finds_the_best_rows(name: str, data: st.DataObject) -> None:
    """[E6] Zones in the order of rank, until none that is left can beat the worst row kept."""
    case = data.draw(cases(name))
    descending, limit = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    zones = zones_of(case)
    index = index_of(RANK, case)

    best: list[Any] = []
    for zone in index.order(descending=descending).tolist():
        bound: RankBound = index.bound_of(zone)
        edge = bound.high if descending else bound.low
        if len(best) == limit and edge is not None:
            worst, reached = rank_key(best[-1]), rank_key(edge)
            if (reached <= worst) if descending else (reached >= worst):
                break
        best += [v for v in zones[zone] if v is not None]
        best = sorted(best, key=rank_key, reverse=descending)[:limit]

    held = [v for values in zones for v in values if v is not None]
    expected = sorted(held, key=rank_key, reverse=descending)[:limit]
    assert [rank_key(v) for v in best] == [rank_key(v) for v in expected]


def test_rank_orders_zones_with_nan_nulls_and_unknown_bounds() -> None:
    """[E6] NaN is greatest; what may hold anything leads, what holds nothing closes."""
    case = case_of("float64", [5.0, 6.0, None, None, NAN, 1.0, 9.0, 2.0, NAN, None], 2)
    index = index_of(RANK, case)

    assert index.order(descending=False).tolist() == [4, 2, 3, 0, 1]
    assert index.order(descending=True).tolist() == [2, 4, 3, 0, 1]
    assert index.bound_of(0) == RankBound(5.0, 6.0, 0, 2)
    assert index.bound_of(1) == RankBound(None, None, 2, 2)
    assert index.bound_of(1).is_empty
    low_and_nan = index.bound_of(2)
    assert low_and_nan.low == 1.0
    assert math.isnan(low_and_nan.high)
    assert index.bound_of(4).low is None
    assert not index.bound_of(4).is_empty
    texts = case_of("string", ["b", "c", "\U0010ffff" * 33, "a"], 1)
    assert index_of(RANK, texts).order(descending=False).tolist() == [2, 3, 0, 1]
