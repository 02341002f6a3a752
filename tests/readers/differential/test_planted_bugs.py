"""The comparison can fail: bugs that lose, invent or mix up rows are planted, and each is found."""

# ruff: noqa: SLF001 - bugs are planted inside

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.readers import evaluate, in_order, row_ranges
from strandline.readers.flat_pages import FlatPages
from strandline.readers.index_reader import IndexReader
from strandline.readers.logical_columns import LogicalColumns
from strandline.tableformat import binding, codec, pruning, stats
from strandline.tableformat.binding import BoundCompare, BoundNull, BoundOr
from strandline.tableformat.hidden_columns import SEQ_ID
from strandline.tableformat.indexes import strategy
from strandline.tableformat.indexes.enum_bitmap import EnumIndex
from tests.readers.differential import harness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Patch = pytest.MonkeyPatch
MOST_SEEDS = 200


def first_difference(modes: Sequence[str], kinds: Sequence[pa.DataType]) -> str:
    """What the first seed says that notices."""
    for seed in range(MOST_SEEDS):
        try:
            harness.run(seed, modes=modes, kinds=kinds)
        except harness.Difference as difference:
            return str(difference)
    raise AssertionError("no seed found the planted bug")


def forgets_nan_when_skipping(patch: Patch) -> None:
    """NaN is above every number, also in a file whose greatest number is small."""
    right = pruning._compare
    patch.setattr(
        pruning, "_compare", lambda ranges, *rest: right(replace(ranges, has_nan=False), *rest)
    )


def leaves_out_the_upper_bound(patch: Patch) -> None:
    """A file whose greatest value is the wanted one holds it."""
    right = pruning._against

    def against(array: Any, compare: np.ufunc, value: Any) -> Any:
        return right(array, np.greater if compare is np.greater_equal else compare, value)

    patch.setattr(pruning, "_against", against)


def takes_null_for_false_under_not(patch: Patch) -> None:
    """NOT (x > 1) is NULL where x is, not TRUE."""
    right = binding._bind_compare

    def bind_compare(column: Any, operator: str, value: Any, *, negated: bool) -> Any:
        bound = right(column, operator, value, negated=negated)
        return BoundOr((bound, BoundNull(column, negated=False))) if negated else bound

    patch.setattr(binding, "_bind_compare", bind_compare)


def ignores_null_in_a_list(patch: Patch) -> None:
    """X NOT IN (1, NULL) is never TRUE."""
    right = binding._bind_in

    def bind_in(column: Any, values: tuple[Any, ...], *, negated: bool) -> Any:
        held = tuple(value for value in values if value is not None)
        return right(column, held or values, negated=negated)

    patch.setattr(binding, "_bind_in", bind_in)


def tells_the_zeros_apart(patch: Patch) -> None:
    """-0.0 equals 0.0, also in a list."""
    patch.setattr(evaluate.pc, "add", lambda array, _: array)


def cuts_long_bounds_down(patch: Patch) -> None:
    """A greatest text that is cut short must be raised, or longer ones lie beyond it."""
    patch.setattr(stats, "_ceil_text", lambda high: high[: stats.MAX_BOUND_LENGTH])


def compares_texts_by_utf16(patch: Patch) -> None:
    """Beyond the BMP, the order of UTF-16 is not that of code points."""
    patch.setattr(pruning, "after_prefix", lambda prefix: prefix + "\uffff")


def compares_decimals_as_floats(patch: Patch) -> None:
    """Neighbours of 38 digits are one float."""
    right = pruning._aligned

    def aligned(array: Any, values: Any) -> Any:
        if isinstance(values[0], int):
            return array.astype(np.float64), np.asarray(values, np.float64)
        return right(array, values)

    patch.setattr(pruning, "_aligned", aligned)


def returns_rows_as_they_are_stored(patch: Patch) -> None:
    """Rows sorted inside a file go back into the order of their numbers."""
    patch.setattr(in_order, "sorted_rows", pa.concat_tables)


def numbers_rows_by_their_place(patch: Patch) -> None:
    """A file whose rows are no run of the append carries their numbers along."""
    right = LogicalColumns._hidden

    def hidden(self: Any, stored: Any, column_id: int, rows: Any) -> Any:
        found = right(self, stored, column_id, rows)
        return np.sort(found) if column_id == SEQ_ID else found

    patch.setattr(LogicalColumns, "_hidden", hidden)


def trusts_damaged_indexes(patch: Patch) -> None:
    """What does not have its checksum is not looked at."""
    right = IndexReader._opened

    def opened(self: Any, indexes: Any, blob: Any, data: bytes) -> Any:
        return right(self, indexes, replace(blob, xxh64=codec.checksum(data)), data)

    patch.setattr(IndexReader, "_opened", opened)


def looks_at_the_zones_before(patch: Patch) -> None:
    """Zone i begins with row i * zone_rows."""
    right = row_ranges.of_zones
    patch.setattr(row_ranges, "of_zones", lambda zones, *rest: right(np.roll(zones, -1), *rest))


def takes_no_index_for_no_match(patch: Patch) -> None:
    """A leaf without an index may match anywhere, also on one side of an OR."""
    right = strategy.zones_left

    def zones_left(bound: Any, choices: Any, layout: Any, opened: Any, first_seq: int) -> Any:
        if isinstance(bound, BoundOr) and choices:
            known = {id(choice.leaf) for choice in choices}
            bound = BoundOr(tuple(part for part in bound.parts if id(part) in known) or bound.parts)
        return right(bound, choices, layout, opened, first_seq)

    patch.setattr(strategy, "zones_left", zones_left)


def takes_the_complement_for_not_equal(patch: Patch) -> None:
    """A zone that holds a value may hold others, too."""
    right = EnumIndex.may_match_all

    def may_match_all(self: Any, leaves: Any) -> Any:
        mask = right(self, leaves)
        for leaf in leaves:
            if isinstance(leaf, BoundCompare) and leaf.operator == "!=":
                mask = mask & ~right(self, [replace(leaf, operator="=")])
        return mask

    patch.setattr(EnumIndex, "may_match_all", may_match_all)


def mixes_up_rows_of_pages(patch: Patch) -> None:
    """Pages of several segments are decoded together and shared out in their order."""
    right = FlatPages.decode

    def decode(self: Any, blobs: Any) -> Any:
        rows = right(self, blobs)
        return rows.take(pa.array(np.arange(rows.num_rows)[::-1].copy()))

    patch.setattr(FlatPages, "decode", decode)


ON, CORRUPT = ("on",), ("corrupt",)
TEXTS, FLOATS = (pa.string(),), (pa.float32(), pa.float64())
LARGE = (pa.decimal128(38, 0), pa.int64())
BUGS = [
    (forgets_nan_when_skipping, ON, FLOATS),
    (leaves_out_the_upper_bound, ON, ()),
    (takes_null_for_false_under_not, ON, ()),
    (ignores_null_in_a_list, ON, ()),
    (tells_the_zeros_apart, ON, FLOATS),
    (cuts_long_bounds_down, ON, TEXTS),
    (returns_rows_as_they_are_stored, ON, ()),
    (numbers_rows_by_their_place, ON, ()),
    (looks_at_the_zones_before, ON, ()),
    (takes_no_index_for_no_match, ON, ()),
    (takes_the_complement_for_not_equal, ON, (pa.string(), pa.bool_())),
    # These show in few filters, so that it takes longer until one comes by.
    pytest.param(compares_texts_by_utf16, ON, TEXTS, marks=pytest.mark.proof),
    pytest.param(compares_decimals_as_floats, ON, LARGE, marks=pytest.mark.proof),
    pytest.param(mixes_up_rows_of_pages, ON, (pa.string(), pa.int64()), marks=pytest.mark.proof),
    pytest.param(trusts_damaged_indexes, CORRUPT, (), marks=pytest.mark.proof),
]
"""Each with the modes and the types that it is about: all at once would only take longer."""


@pytest.mark.parametrize(
    ("plant", "modes", "kinds"), BUGS, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], modes: Any, kinds: Any, monkeypatch: Patch
) -> None:
    """[E11] The comparison with DuckDB notices, and says how to see it again."""
    plant(monkeypatch)

    told = first_difference(modes, kinds)

    assert "again:   python -m tests.readers.differential.harness" in told
