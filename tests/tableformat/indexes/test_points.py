"""postings, enum_bitmap and the membership filters: where single values are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.binding import BoundCompare, BoundIn, BoundLike, BoundNull
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.indexes import filters, split_block_bloom, xor8
from strandline.tableformat.indexes.distinct import MAX_DISTINCT
from strandline.tableformat.indexes.enum_bitmap import MAX_VALUE_BYTES
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.membership import Membership
from strandline.tableformat.indexes.occurrences import Occurrences, hash32, occurrences
from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
from strandline.tableformat.like import parse_like
from strandline.tableformat.types import ColumnType
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
    true_zones,
)

POSTINGS, ENUM = Variant("postings"), Variant("enum_bitmap")
FILTERS = [Variant(k, a) for k in ("membership", "zone_membership") for a in ("sbbf", "xor8")]


def spread(rows: int, distinct: int, zone_rows: int) -> Case:
    """Integers in no order."""
    values = np.random.default_rng(11).integers(0, distinct, rows) * 7919
    case = case_of("int64", [0], 1)
    return Case(case.column, pa.chunked_array([pa.array(values)]), ZoneLayout(rows, zone_rows))


def zones_with(case: Case, value: int) -> list[bool]:
    """By looking at every row."""
    rows = case.values.to_numpy() == value
    return [bool(rows[i : i + case.layout.zone_rows].any()) for i in case.layout.starts.tolist()]


# --- postings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "distinct", "zone_rows", "size"),
    [
        (5000, 700, 100, 16 + 4 * 700 + 4 * 11 + 700),  # 50 zones, and counts of one byte
        (5000, 1, 10, 16 + 4),  # as many zones for every hash: no counts; 500 zones
        (30_000, 40, 10, 16 + 4 * 40 + 4 + 2 * 40),  # 3,000 zones: two bytes each
        (70_000, 3, 1, 16 + 4 * 3 + 4 + 2 * 3),  # 70,000 zones: four bytes each
    ],
)
def test_postings_name_the_zones_of_each_value(
    rows: int, distinct: int, zone_rows: int, size: int
) -> None:
    """[E6] Exactly, hashes of 32 bits permitting, and in all widths of zones and counts."""
    case = spread(rows, distinct, zone_rows)
    pairs = sum(sum(zones_with(case, v * 7919)) for v in range(distinct))
    built = KINDS["postings"].build(case.zones)
    assert built is not None
    width = 1 if case.layout.count <= 256 else 2 if case.layout.count <= 65_536 else 4
    assert len(built.data) == size + width * pairs

    for value in [*range(0, distinct, 7), distinct, -1]:
        wanted = value * 7919
        mask = mask_of(POSTINGS, case, lambda c, w=wanted: BoundCompare(c, "=", w))  # type: ignore[misc]
        assert mask == zones_with(case, wanted)


def test_postings_of_unique_values_have_no_counts() -> None:
    """[E6] Five bytes a row for up to 256 zones."""
    case = case_of("int64", list(range(1000)), 10)
    built = KINDS["postings"].build(case.zones)
    assert built is not None

    assert len(built.data) == 16 + 5 * 1000
    assert mask_of(POSTINGS, case, lambda c: BoundCompare(c, "=", 543)).index(True) == 54


def test_many_wanted_values_are_found_together() -> None:
    """[T2] Hits and misses side by side, some between the same two stored hashes."""
    case = spread(2000, 3000, 40)
    wanted = tuple(range(0, 3000 * 7919, 7919 // 2))[:1500]

    mask = mask_of(POSTINGS, case, lambda c: BoundIn(c, wanted, with_nan=False, negated=False))

    assert mask == np.any([zones_with(case, v) for v in wanted], axis=0).tolist()


def test_misses_hardly_ever_name_a_zone() -> None:
    """[E6] 20,000 hashes of 32 bits: one miss in 200,000 meets one of them; none of 3,000 here."""
    index = index_of(POSTINGS, spread(40_000, 20_000, 200))
    column = case_of("int64", [0], 1).column

    hits = [index.may_match(BoundCompare(column, "=", -1 - i)).any() for i in range(3000)]

    assert not any(hits)


# --- distinct hashes --------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_hashes_that_share_their_upper_half_are_kept_apart(pairs: list[tuple[int, int]]) -> None:
    """[E6] A filter that left one of them out would lose rows."""
    hashes = np.array([(upper << 32) + lower for upper, lower in pairs], np.uint64)
    layout = ZoneLayout(len(pairs), 3)

    found = occurrences(hashes, None, layout)

    assert found.halves.tolist() == sorted(hash32(hashes).tolist())
    for by_zone in (False, True):
        kept, zones = found.distinct_hashes(by_zone=by_zone)
        expected = {(h, i // 3 if by_zone else 0) for i, h in enumerate(hashes.tolist())}
        assert sorted(zip(kept.tolist(), zones.tolist(), strict=True)) == sorted(expected)
        assert zones.tolist() == sorted(zones.tolist())


def test_nulls_occur_nowhere() -> None:
    """[E11] A null has no hash, although a number stands in its place."""
    hashes = np.array([1 << 40, 0, 1 << 40], np.uint64)

    found: Occurrences = occurrences(hashes, np.array([True, False, True]), ZoneLayout(3, 2))

    assert found.distinct == 1
    assert found.zones.tolist() == [0, 1]


# --- filters ----------------------------------------------------------------------------------

RATES = {"sbbf": 0.008, "xor8": 0.0055}
"""What SPEC.md promises at most; about 0.006 and 0.004 are expected."""


@pytest.mark.parametrize("variant", FILTERS, ids=str)
@pytest.mark.parametrize("distinct", [40, 20_000])
def test_false_positives_are_as_rare_as_stated(variant: Variant, distinct: int) -> None:
    """[E6] Over 100 zones of 200 rows, and over the segment; and nothing is missed."""
    case = spread(20_000, distinct, 200)
    index = index_of(variant, case)
    column, groups = case.column, 100 if "zone" in variant.kind else 1

    answers = 0.0
    # Zones with the same few values have the same filter, so that counts as one.
    misses = 20_000 // groups if distinct > 1000 else 5000
    for i in range(misses):
        mask = index.may_match(BoundCompare(column, "=", -1 - i))
        answers += mask.mean()
    for value in range(0, distinct, max(1, distinct // 50)):
        truth = zones_with(case, value * 7919)
        mask = index.may_match(BoundCompare(column, "=", value * 7919))
        assert not (truth & ~mask).any()

    assert answers / misses <= RATES[variant.algorithm]


def test_filters_have_the_stated_size() -> None:
    """[E6] 12 bits a distinct value, and 9.84; both of them with little on top."""
    case = spread(60_000, 10_000, 2048)
    built = {v.algorithm: v.build(case.zones) for v in FILTERS[:2]}

    sizes = {name: len(found.data) for name, found in built.items() if found is not None}
    distinct = case.zones.distinct
    assert abs(sizes["sbbf"] / (distinct * 12 / 8) - 1) < 0.02
    assert abs(sizes["xor8"] / (distinct * 1.23) - 1) < 0.02


def test_the_estimate_of_distinct_values_is_close() -> None:
    """[E6] It decides about the size of a filter, and so about its rate."""
    generator = np.random.default_rng(3)
    for distinct, rows in ((1, 2048), (10, 2048), (500, 2048), (2048, 2048), (30_000, 100_000)):
        pool = generator.integers(0, 2**64, distinct, np.uint64)
        hashes = np.concatenate([pool, generator.choice(pool, rows - distinct)])
        groups = np.zeros(rows, np.int64)
        (found,) = split_block_bloom.distinct_counts(hashes, groups, np.array([rows]))
        assert abs(found - distinct) <= max(0.05 * distinct, 1)


def test_xor8_is_given_up_only_after_many_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E6] A group that fails tries other seeds; if none fits there is no index, and no error."""
    hashes = np.random.default_rng(1).integers(0, 2**64, 3000, np.uint64)
    groups = np.sort(np.random.default_rng(2).integers(0, 600, 3000))
    assert filters.encode_xors(hashes, groups, 600) is not None

    monkeypatch.setattr(xor8, "MAX_SEEDS", 1)
    thirds = np.ones(600, np.int64)  # room for three of five values: peeling cannot succeed
    assert xor8.build(hashes, groups, np.arange(600) * 3, thirds) is None


def test_groups_of_xor8_do_not_disturb_each_other() -> None:
    """[E6] Many tiny groups, of which some need several seeds, and an empty one."""
    generator = np.random.default_rng(4)
    groups = np.sort(generator.integers(0, 2000, 9000))
    groups = groups[groups != 77]
    hashes = generator.integers(0, 2**64, len(groups), np.uint64)
    data = filters.encode_xors(hashes, groups, 2000)
    assert data is not None
    assert len(set(np.frombuffer(data, np.uint8, 2000, 4 * 2001).tolist())) > 1, "several seeds"
    from strandline.tableformat.indexes.blob import BlobReader  # noqa: PLC0415

    found = filters.decode(BlobReader("x", data), "xor8", 2000)

    for hashed, group in list(zip(hashes, groups.tolist(), strict=True))[::37]:
        assert found.may_hold(np.array([hashed]))[group]
    held = [found.may_hold(hashes[i : i + 1]) for i in range(300)]
    assert not np.any(held, axis=0)[77]


@pytest.mark.parametrize("variant", FILTERS, ids=str)
def test_an_empty_column_holds_nothing(variant: Variant) -> None:
    """[E11] All null: no value can be there."""
    case = case_of("string", [None, None, None], 2)

    assert mask_of(variant, case, lambda c: BoundCompare(c, "=", "")) == [False, False]


@pytest.mark.parametrize("variant", FILTERS, ids=str)
def test_zeros_and_nan_are_found_in_filters(variant: Variant) -> None:
    """[E11] -0.0 equals 0.0, and NaN itself."""
    case = case_of("float64", [-0.0, 1.0, math.nan, 2.0], 2)

    zero = mask_of(variant, case, lambda c: BoundCompare(c, "=", 0.0))
    nan = mask_of(variant, case, lambda c: BoundIn(c, (), with_nan=True, negated=False))

    assert zero[0]
    assert nan[1]


def test_a_filter_is_not_asked_for_hundreds_of_values() -> None:
    """[E9] One of them would nearly always seem to be there."""
    kind, column = KINDS["membership"], case_of("int64", [1], 1).column
    few = BoundIn(column, tuple(range(filters.MAX_WANTED - 1)), with_nan=False, negated=False)
    many = BoundIn(column, tuple(range(filters.MAX_WANTED)), with_nan=False, negated=False)

    assert kind.serves(few)
    assert not kind.serves(many)
    assert index_of(FILTERS[0], case_of("int64", [1], 1)).may_match(many) is None


def test_an_unknown_algorithm_is_refused() -> None:
    """[E8] By its name."""
    kind = KINDS["membership"]
    assert isinstance(kind, Membership)
    with pytest.raises(InvalidInput, match="'cuckoo'"):
        kind.build(case_of("int64", [1], 1).zones, "cuckoo")


# --- enum_bitmap ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL_NAMES)
@FEW
@given(data=st.data())
def test_an_enum_answers_exactly(name: str, data: st.DataObject) -> None:
    """[E6, E11] A zone is kept if and only if it has a TRUE row, under any leaf."""
    case = data.draw(cases(name))
    index = index_of(ENUM, case)
    for leaf in data.draw(bound_leaves(name)):
        mask = index.may_match(leaf)
        if mask is not None:
            assert mask.tolist() == true_zones(case, leaf).tolist()


def test_an_enum_decides_patterns_on_whole_values() -> None:
    """[E6] Also wildcards in the middle, which no bounds can decide; a line end is a character."""
    case = case_of("string", ["abc", "axc", "abd", "a\nc", None, "b"], 1)

    def mask(pattern: str, *, negated: bool) -> list[bool]:
        return mask_of(ENUM, case, lambda c: BoundLike(c, parse_like(pattern), negated))

    assert mask("a_c", negated=False) == [True, True, False, True, False, False]
    assert mask("a%c", negated=True) == [False, False, True, False, False, True]
    assert mask(r"a.c%", negated=False) == [False] * 6
    assert mask_of(ENUM, case, lambda c: BoundNull(c, negated=False)) == [
        False, False, False, False, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("first_rows", [True, False])
def test_an_enum_has_at_most_256_values(*, first_rows: bool) -> None:
    """[E6] Whether that shows in the first rows or only later."""
    filler = [] if first_rows else [0] * 5000
    fits = case_of("int64", [*filler, *range(MAX_DISTINCT), None], 7)
    wide = case_of("int64", [*filler, *range(MAX_DISTINCT + 1), None], 7)

    assert KINDS["enum_bitmap"].build(fits.zones) is not None
    assert KINDS["enum_bitmap"].build(wide.zones) is None
    assert fits.zones.distinct == MAX_DISTINCT
    assert wide.zones.distinct == MAX_DISTINCT + 1


def test_an_enum_of_long_texts_is_not_built() -> None:
    """[E6] Whole values are stored, so a few huge ones would make a huge index."""
    short = case_of("string", ["a" * 1000, "b"], 1)
    long = case_of("string", ["a" * MAX_VALUE_BYTES, "b"], 1)

    assert KINDS["enum_bitmap"].build(short.zones) is not None
    assert KINDS["enum_bitmap"].build(long.zones) is None


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("string", ["b", None, "a", "b", "c"]),
        ("int64", [3, None, 1, 3]),
        ("float64", [0.0, -0.0, math.nan, None, 1.0]),
    ],
)
def test_a_dictionary_made_elsewhere_gives_the_same_enum(kind: str, rows: list[Any]) -> None:
    """[E8] The encoder has looked values up already; floats may have two zeros in there."""
    case = case_of(kind, rows, 2)
    encoded = case.values.dictionary_encode()
    column = ColumnZones(encoded, ColumnType(kind), case.layout, encoded=encoded)

    assert KINDS["enum_bitmap"].build(column) == KINDS["enum_bitmap"].build(case.zones)
