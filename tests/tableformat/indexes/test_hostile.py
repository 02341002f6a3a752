"""Damaged and hostile indexes: a clear error or a mask of the right length, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat.binding import BoundCompare, BoundIn, BoundKnown, BoundLike, BoundNull
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.zones import ZoneLayout
from strandline.tableformat.like import parse_like
from strandline.tableformat.types import Domain
from tests.tableformat.indexes.cases import VARIANTS, Case, Variant, case_of

if TYPE_CHECKING:
    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.contract import Built

HUGE = 10**37
COLUMNS: dict[str, Case] = {
    "int64": case_of("int64", [5, None, 7, -3, 5, 5, None, 9, 2**62], 2, name="i64"),
    "float64": case_of("float64", [1.5, None, float("nan"), -0.0, 2.5, 1.5, 9.0], 2),
    "string": case_of("string", ["é", None, "ab", "", "b" * 40, "ab", "zz"], 2),
    "binary": case_of("binary", [b"\xff", None, b"", b"a", b"c" * 40], 2),
    "decimal": case_of("decimal(38,0)", [None, 5, HUGE, -HUGE, 5, 0, HUGE], 2),
    "timestamp": case_of("timestamp", [-1, None, 0, 3_600_000_000, 10**15, 7, 0, 1], 2),
}
WANTED: dict[Domain, tuple[Any, ...]] = {
    Domain.INT: (-HUGE, -1, 5, 7),
    Domain.FLOAT: (0.0, 1.5),
    Domain.TEXT: ("", "ab", "é"),
    Domain.BYTES: (b"", b"a"),
}


def leaves(case: Case) -> list[Leaf]:
    """One leaf of every form."""
    column, domain = case.column, case.zones.domain
    values = WANTED[domain]
    found: list[Any] = [BoundCompare(column, o, v) for o in ("=", "!=", "<", ">=") for v in values]
    found += [BoundIn(column, values, domain is Domain.FLOAT, n) for n in (False, True)]
    found += [BoundNull(column, n) for n in (False, True)]
    found += [BoundKnown(column, v) for v in (False, True)]
    if domain is Domain.TEXT:
        found += [BoundLike(column, parse_like("a%"), n) for n in (False, True)]
    return found


def use(variant: Variant, case: Case, data: bytes, params: Any, layout: ZoneLayout) -> None:
    """Ask everything; only CorruptTable may come out of it, or masks that fit."""
    try:
        index: Any = KINDS[variant.kind].open(data, params, layout, case.column.type)
        for leaf in leaves(case):
            mask = index.may_match(leaf)
            assert mask is None or mask.shape == (layout.count,)
        if variant.kind == "rank":
            for way in (False, True):
                zones = index.order(descending=way).tolist()
                assert sorted(zones) == list(range(layout.count))
                assert len([index.bound_of(zone) for zone in zones]) == layout.count
    except CorruptTable as error:
        assert variant.kind in str(error)  # noqa: PT017 - an error is one of two right answers
        assert "rows are not affected" in str(error)  # noqa: PT017


def built(variant: Variant, case: Case) -> Built:
    """The index, or a skipped test."""
    found = variant.build(case.zones)
    if found is None:
        pytest.skip("this column has no such index")
    return found


EVERY = pytest.mark.parametrize("variant", VARIANTS, ids=str)
EACH = pytest.mark.parametrize("column", COLUMNS)


@EVERY
@EACH
def test_a_blob_cut_at_any_byte_is_refused(variant: Variant, column: str) -> None:
    """[T8, X4] Every length is implied by what stands before: no shorter blob can be whole."""
    case = COLUMNS[column]
    whole = built(variant, case)
    kind = KINDS[variant.kind]
    for length in range(len(whole.data)):
        with pytest.raises(CorruptTable, match="damaged"):
            kind.open(whole.data[:length], whole.params, case.layout, case.column.type)
    with pytest.raises(CorruptTable, match="damaged"):
        kind.open(whole.data + b"\0", whole.params, case.layout, case.column.type)


@EVERY
@EACH
def test_any_flipped_bit_is_survived(variant: Variant, column: str) -> None:
    """[T8, X4] Checksums find flips; whoever gets past them still meets no crash."""
    case = COLUMNS[column]
    whole = built(variant, case)
    for bit in range(8 * len(whole.data)):
        data = bytearray(whole.data)
        data[bit // 8] ^= 1 << bit % 8
        use(variant, case, bytes(data), whole.params, case.layout)


@EVERY
@settings(max_examples=150)
@given(data=st.data(), column=st.sampled_from(sorted(COLUMNS)), zones=st.integers(1, 400))
def test_any_bytes_are_survived(
    variant: Variant, data: st.DataObject, column: str, zones: int
) -> None:
    """[T8, X4] Large counts, wild offsets, another number of zones than the blob was made for."""
    case = COLUMNS[column]
    found = variant.build(case.zones)
    if found is None:
        return
    words = st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0", b"\0\0\0\x80"])
    pieces = data.draw(st.lists(words | st.binary(max_size=9), max_size=12))
    keep = data.draw(st.integers(0, len(found.data)))
    blob = found.data[:keep] + b"".join(pieces)

    use(variant, case, blob, found.params, ZoneLayout(zones, 1))


@EVERY
def test_parameters_of_any_kind_are_survived(variant: Variant) -> None:
    """[X4] They come from a JSON text that a stranger may have written."""
    for case in COLUMNS.values():
        found = variant.build(case.zones)
        if found is None:
            continue
        for name in found.params:
            for value in (None, 0, [], {}, "", "int65", "bytes\0"):
                params = found.params | {name: value}
                with pytest.raises(CorruptTable, match=name):
                    KINDS[variant.kind].open(found.data, params, case.layout, case.column.type)
            without = {key: v for key, v in found.params.items() if key != name}
            with pytest.raises(CorruptTable, match=name):
                KINDS[variant.kind].open(found.data, without, case.layout, case.column.type)


@EVERY
@EACH
def test_an_index_of_another_type_or_layout_is_survived(variant: Variant, column: str) -> None:
    """[X4] A catalog may point at the wrong blob."""
    found = built(variant, COLUMNS[column])
    for other in COLUMNS.values():
        for layout in (other.layout, ZoneLayout(1, 1), ZoneLayout(70_000, 1), ZoneLayout(300, 1)):
            use(variant, other, found.data, found.params, layout)
