"""Which segments may hold a wanted row, from column bounds alone.

Reading one segment too many costs time; skipping one that matches loses rows. So a segment is
skipped only where its stats prove that the filter is TRUE for none of its rows. Works on arrays
over all segments at once, and without pyarrow, whose first scalar loads pandas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from strandline.tableformat.binding import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundKnown,
    BoundLike,
    BoundNull,
    BoundOr,
    BoundPair,
    Leaf,
    opposite,
)
from strandline.tableformat.column_lookup import NestedField
from strandline.tableformat.like import after_prefix
from strandline.tableformat.types import Domain
from strandline.tableformat.values import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.schema import Column

Mask = Any  # NDArray[np.bool_]; numpy's operators widen it to Any


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is known of one column, over n segments (or zones)."""

    mins: NDArray[Any]
    """int64, float64, or object (str, bytes, the large integers of decimals). A lower bound of
    all values that are neither null nor NaN; valid where `known`."""

    maxs: NDArray[Any]
    """Likewise an upper bound."""

    known: NDArray[np.bool_]
    """Both bounds are there. False where stats are missing, or no such value exists."""

    null_count: NDArray[np.int64]
    """-1 where unknown."""

    value_count: NDArray[np.int64]
    """Rows, nulls included."""

    has_nan: NDArray[np.bool_]
    """True where unknown. Looked at for float columns only."""

    exact: NDArray[np.bool_] | None = None
    """Where the bounds are values that occur, not cut short; None where that is not known."""

    # Both are asked for by every predicate on the column; bounds outlive a plan.

    @cached_property
    def holds_values(self) -> Mask:
        """False where all rows are null."""
        # An unknown null count is -1 and never equals a row count.
        return self.null_count != self.value_count

    @cached_property
    def all_hold_values(self) -> bool:
        """Whether `holds_values` holds everywhere."""
        return bool(self.holds_values.all())

    @cached_property
    def all_known(self) -> bool:
        """Whether `known` holds everywhere."""
        return bool(self.known.all())

    def at(self, where: Any) -> Bounds:
        """The bounds of some of the segments, by their rows or as a slice."""
        return Bounds(
            mins=self.mins[where],
            maxs=self.maxs[where],
            known=self.known[where],
            null_count=self.null_count[where],
            value_count=self.value_count[where],
            has_nan=self.has_nan[where],
            exact=None if self.exact is None else self.exact[where],
        )


def certain(lows: NDArray[Any], highs: NDArray[Any]) -> Bounds:
    """Bounds of a hidden column: always known, never null."""
    count = len(lows)
    yes, no = np.broadcast_to(np.True_, count), np.broadcast_to(np.False_, count)
    return Bounds(
        mins=lows,
        maxs=highs,
        known=yes,
        null_count=np.broadcast_to(np.int64(0), count),
        value_count=np.broadcast_to(np.int64(1), count),
        has_nan=no,
        exact=yes,
    )


class StatsSource(Protocol):
    """Where pruning finds the bounds of a column."""

    @property
    def count(self) -> int:
        """How many segments there are."""

    def bounds(self, column_id: int) -> Bounds | None:
        """None: nothing is known of that column, so every segment may match."""


def may_match(bound: Bound, stats: StatsSource) -> NDArray[np.bool_]:
    """A mask over the segments: False only where certainly no row is TRUE."""
    mask: NDArray[np.bool_] = _mask(bound, stats)
    return mask


def must_match(bound: Bound, stats: StatsSource) -> Mask:
    """A mask over the segments: True only where certainly every row is TRUE.

    That is where no row can satisfy the opposite and none is null.
    """
    match bound:
        case BoundConstant(value):
            return np.full(stats.count, value is True)
        case BoundAnd(parts):
            return _as_mask(np.all([must_match(part, stats) for part in parts], axis=0))
        case BoundOr(parts):
            return _as_mask(np.any([must_match(part, stats) for part in parts], axis=0))
        case _:
            return ~_mask(opposite(bound), stats) & _never_null(bound, stats)


def _never_null(leaf: Leaf, stats: StatsSource) -> Mask:
    """Where the leaf is TRUE or FALSE in every row."""
    match leaf:
        case BoundConstant() | BoundNull():
            return np.ones(stats.count, np.bool_)
        case BoundPair(left, _, right):
            columns = [left, right]
        case _:
            columns = [leaf.column]
    mask = np.ones(stats.count, np.bool_)
    for column in columns:
        bounds = _bounds(column, stats)
        mask &= False if bounds is None else bounds.null_count == 0
    return mask


def _mask(bound: Bound, stats: StatsSource) -> Mask:
    match bound:
        case BoundConstant(value):
            return np.full(stats.count, value is True)
        case BoundAnd(parts):
            return reduce(and_, [_mask(part, stats) for part in parts])
        case BoundOr(parts):
            return reduce(or_, [_mask(part, stats) for part in parts])
        case BoundPair():
            return _pair_mask(bound, stats)
        case _:
            bounds = _bounds(bound.column, stats)
            return np.ones(stats.count, np.bool_) if bounds is None else leaf_mask(bound, bounds)


def _bounds(column: Column, stats: StatsSource) -> Bounds | None:
    """What is known of a column; of a field inside a struct nothing is."""
    return None if isinstance(column, NestedField) else stats.bounds(column.id)


def leaf_mask(
    bound: BoundKnown | BoundCompare | BoundIn | BoundLike | BoundNull, bounds: Bounds
) -> Mask:
    """A mask over the segments (or zones) of `bounds`: False only where no row is TRUE."""
    if isinstance(bound, BoundNull):
        if not bound.negated:
            return bounds.null_count != 0
        return bounds.holds_values
    if isinstance(bound, BoundKnown):
        return bounds.holds_values & bound.value
    is_float = bound.column.type.domain is Domain.FLOAT
    if bounds.all_known and not is_float:
        # Most often so: nothing is copied, be it a million bounds.
        exact: Mask = False if bounds.exact is None else bounds.exact
        known = _Ranges(least=bounds.mins, most=bounds.maxs, exact=exact, has_nan=False)
        possible = _possible(bound, known)
        return possible if bounds.all_hold_values else bounds.holds_values & possible
    where = _usable(bounds, is_float=is_float)
    ranges = _Ranges(
        least=bounds.mins[where],
        most=bounds.maxs[where],
        exact=False if bounds.exact is None else bounds.exact[where],
        has_nan=bounds.has_nan[where] if is_float else False,
    )
    mask = bounds.holds_values.copy()
    mask[where] &= _possible(bound, ranges)
    return mask


def _usable(bounds: Bounds, *, is_float: bool) -> Mask:
    """Where bounds can prune. A NaN as a bound bounds nothing, whoever wrote it."""
    if not is_float:
        return bounds.known
    least, most = bounds.mins.astype(np.float64), bounds.maxs.astype(np.float64)
    return bounds.known & ~np.isnan(least) & ~np.isnan(most)


# --- one column, where its bounds are known ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ranges:
    least: NDArray[Any]
    most: NDArray[Any]
    exact: Mask
    """False where that holds for all, and likewise `has_nan`."""
    has_nan: Mask


def _possible(bound: BoundCompare | BoundIn | BoundLike, ranges: _Ranges) -> Mask:
    match bound:
        case BoundCompare(_, operator, value):
            return _compare(ranges, operator, value)
        case BoundIn():
            return _in(ranges, bound)
        case _:
            return _like(ranges, bound)


def _compare(ranges: _Ranges, operator: str, value: Any) -> Mask:
    """Whether a value of the range, or a NaN, can satisfy the comparison."""
    if isinstance(value, float) and math.isnan(value):
        # Known bounds mean that there is a value other than NaN.
        return ranges.has_nan if operator == "=" else np.ones(len(ranges.least), np.bool_)
    match operator:
        case "=":
            return _compare(ranges, "<=", value) & _against(ranges.most, np.greater_equal, value)
        case "!=":
            only = _against(ranges.least, np.equal, value) & _against(ranges.most, np.equal, value)
            return ~(only & ranges.exact) | ranges.has_nan
        case "<":
            return _against(ranges.least, np.less, value)
        case "<=":
            return _against(ranges.least, np.less_equal, value)
        case _:
            compare = np.greater if operator == ">" else np.greater_equal
            found = _against(ranges.most, compare, value)
            return found if ranges.has_nan is False else found | ranges.has_nan


def _against(array: NDArray[Any], compare: np.ufunc, value: Any) -> Mask:
    if array.dtype == np.int64 and type(value) is int and INT64_MIN <= value <= INT64_MAX:
        found: Mask = compare(array, value)
        return found
    bounds, literal = _aligned(array, [value])
    return _as_mask(compare(bounds, literal))


def _in(ranges: _Ranges, bound: BoundIn) -> Mask:
    if bound.negated:
        single = _as_mask(ranges.least == ranges.most) & ranges.exact
        only = single & _first_at_or_above(ranges.least, ranges.least, bound)
        return ~only | (ranges.has_nan & (not bound.with_nan))
    return _first_at_or_above(ranges.least, ranges.most, bound) | (ranges.has_nan & bound.with_nan)


def _first_at_or_above(least: NDArray[Any], most: NDArray[Any], bound: BoundIn) -> Mask:
    """Whether one of the sorted values falls into each range."""
    if not bound.values or not len(least):
        return np.zeros(len(least), np.bool_)
    low, wanted = _aligned(least, bound.values, bound.derived)
    first = np.searchsorted(wanted, low, side="left")
    exists = first < len(wanted)
    high, wanted = _aligned(most, bound.values, bound.derived)
    return exists & _as_mask(wanted[np.minimum(first, len(wanted) - 1)] <= high)


def _like(ranges: _Ranges, bound: BoundLike) -> Mask:
    prefix = bound.pattern.prefix
    if bound.negated:
        # What lies between two texts with a common prefix has that prefix too, so bounds that
        # were cut short prove it as well.
        if not bound.pattern.is_prefix:
            return np.ones(len(ranges.least), np.bool_)
        return ~(_begins(ranges.least, prefix) & _begins(ranges.most, prefix))
    mask = _compare(ranges, ">=", prefix)
    beyond = after_prefix(prefix)
    return mask if beyond is None else mask & _compare(ranges, "<", beyond)


def _begins(texts: NDArray[Any], prefix: str) -> Mask:
    return np.fromiter((text.startswith(prefix) for text in texts), np.bool_, len(texts))


def _aligned(
    array: NDArray[Any], values: Sequence[Any], known: dict[Any, Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bounds and literals as two arrays that compare exactly; `known` keeps the latter.

    numpy turns an int64 array and a larger integer into floats, which merges neighbours beyond
    2**53, and strips trailing NULs from text and bytes. Python objects do neither.
    """
    if array.dtype.kind == "f":
        return array, _literals(values, np.float64, known)
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    fits = (
        array.dtype.kind in "iu"
        and array.dtype != np.uint64
        and isinstance(values[0], int)
        and values[0] >= INT64_MIN
        and values[-1] <= INT64_MAX
    )
    if fits:
        return array.astype(np.int64, copy=False), _literals(values, np.int64, known)
    return array.astype(object), _literals(values, object, known)


def _literals(values: Sequence[Any], kind: Any, known: dict[Any, Any] | None) -> NDArray[Any]:
    if known is not None and kind in known:
        kept: NDArray[Any] = known[kind]
        return kept
    made = np.empty(len(values), kind)
    made[:] = values
    if known is not None:
        known[kind] = made
    return made


def _as_mask(compared: Any) -> Mask:
    # A comparison of object arrays may give objects; masks must be booleans for `~` and `&`.
    return np.asarray(compared, np.bool_)


# --- two columns ------------------------------------------------------------------------------


def _pair_mask(bound: BoundPair, stats: StatsSource) -> Mask:
    mask = np.ones(stats.count, np.bool_)
    left, right = _bounds(bound.left, stats), _bounds(bound.right, stats)
    for bounds in (left, right):
        if bounds is not None:
            mask &= bounds.holds_values
    if left is None or right is None or bound.left.type.domain is Domain.FLOAT:
        return mask
    known = left.known & right.known
    first, last = (left.mins[known].astype(object), left.maxs[known].astype(object))
    other_first, other_last = (right.mins[known].astype(object), right.maxs[known].astype(object))
    match bound.operator:
        case "<":
            possible = first < other_last
        case "<=":
            possible = first <= other_last
        case ">":
            possible = last > other_first
        case ">=":
            possible = last >= other_first
        case "=":
            possible = (first <= other_last) & (last >= other_first)
        case _:
            return mask
    mask[known] &= _as_mask(possible)
    return mask
