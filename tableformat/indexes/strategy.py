"""Which indexes of a segment answer a filter, and which zones they leave.

For each leaf of a filter one explicit choice is made from the kinds that the segment has. Leaves
combine as the filter does, AND over AND, and nothing is ever negated: a mask says where a row may
match, and its complement says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundOr,
    BoundPair,
    Leaf,
    conjuncts,
)
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.hidden_columns import SEQ_ID
from strandline.tableformat.indexes.contract import common, mask_of_all
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.pruning import Bounds, certain, may_match

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.tableformat.indexes.kinds import ZoneIndex
    from strandline.tableformat.indexes.reference import KindsByColumn
    from strandline.tableformat.indexes.zones import ZoneLayout

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Place = tuple[int, str]
"""A column id and a kind."""

_EXACT_FOR_POINTS: Final = ("enum_bitmap", "postings")
"""Kinds that leave little to gain by a second one."""
_POINTS: Final = (*_EXACT_FOR_POINTS, "zone_membership", "membership", "range", "calendar")
_RANGES: Final = ("calendar", "range")
_BOUNDS: Final = ("temporal", "zone_map")
ROWS: Final = "rows"
"""Not an index: where rows are numbered without a gap, a number says which zone it is in."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One leaf of a filter, and the kinds that are asked about it."""

    leaf: Leaf
    column: int
    kinds: tuple[str, ...]


def leaves(bound: Bound) -> Iterator[Leaf]:
    """All leaves of a filter, from left to right."""
    if isinstance(bound, BoundAnd | BoundOr):
        for part in bound.parts:
            yield from leaves(part)
    else:
        yield bound


def choose(bound: Bound, available: KindsByColumn, *, dense: bool) -> list[Choice]:
    """The strategy for a segment: what to ask about each leaf. Leaves without help are left out."""
    chosen = []
    for leaf in leaves(bound):
        if isinstance(leaf, BoundConstant | BoundPair):
            continue
        column = leaf.column.id
        if column == SEQ_ID:
            kinds: tuple[str, ...] = (ROWS,) if dense else ()
        else:
            kinds = _kinds_for(leaf, available.get(column, ()))
        if kinds:
            chosen.append(Choice(leaf, column, kinds))
    return chosen


def _kinds_for(leaf: Any, available: tuple[str, ...]) -> tuple[str, ...]:
    usable = [kind for kind in available if kind in KINDS and KINDS[kind].serves(leaf)]
    bounds = _first(_BOUNDS, usable)
    if _is_point(leaf):
        sharp = _first(_POINTS, usable)
        return sharp if sharp and sharp[0] in _EXACT_FOR_POINTS else sharp + bounds
    if "enum_bitmap" in usable:
        return ("enum_bitmap",)
    return bounds + _first(_RANGES, usable)


def _first(preferred: tuple[str, ...], usable: list[str]) -> tuple[str, ...]:
    return next(((kind,) for kind in preferred if kind in usable), ())


def _is_point(leaf: Leaf) -> bool:
    if isinstance(leaf, BoundCompare):
        return leaf.operator == "="
    return isinstance(leaf, BoundIn) and not leaf.negated


@dataclass(slots=True)
class Removed:
    """What asking the indexes of one segment came to."""

    zones: Mask
    """True where a row may match."""
    by_place: dict[Place, int]
    """How many zones each index ruled out by itself."""
    broken: dict[Place, str] = field(default_factory=dict)
    """Indexes that turned out damaged when they were asked, and what is wrong with each."""


def zones_left(
    bound: Bound,
    choices: list[Choice],
    layout: ZoneLayout,
    opened: Callable[[int, str], ZoneIndex | None],
    first_seq: int,
) -> Removed:
    """Ask the chosen indexes; one that could not be opened, or is damaged, rules out nothing."""
    by_leaf = {id(choice.leaf): choice for choice in choices}
    broken: dict[Place, str] = {}

    def usable(column: int, kind: str) -> ZoneIndex | None:
        return None if (column, kind) in broken else opened(column, kind)

    while True:
        asked = _Asked(by_leaf, layout, usable, first_seq)
        zones = asked.zones(bound)
        if not asked.broken:
            return Removed(zones, asked.by_place, broken)
        # What a damaged index said about other leaves counts no more than what it cannot say.
        broken |= asked.broken


class _Asked:
    """The indexes of one segment, asked about one filter."""

    def __init__(
        self,
        choices: dict[int, Choice],
        layout: ZoneLayout,
        opened: Callable[[int, str], ZoneIndex | None],
        first_seq: int,
    ) -> None:
        self._choices, self._layout, self._opened = choices, layout, opened
        self._first_seq = first_seq
        self.by_place: dict[Place, int] = {}
        self.broken: dict[Place, str] = {}

    def zones(self, bound: Bound) -> Mask:
        match bound:
            case BoundConstant(value):
                return np.full(self._layout.count, value is True)
            case BoundAnd():
                return self._all_of(conjuncts(bound))
            case BoundOr(parts):
                return np.asarray(np.any([self.zones(p) for p in parts], axis=0), np.bool_)
            case _:
                return self._all_of((bound,))

    def _all_of(self, parts: Sequence[Bound]) -> Mask:
        """Leaves on one column are asked together: only so is a gap between their ends seen."""
        mask = np.ones(self._layout.count, np.bool_)
        together: dict[tuple[int, tuple[str, ...]], list[Leaf]] = {}
        for part in parts:
            choice = self._choices.get(id(part))
            if choice is not None:
                together.setdefault((choice.column, choice.kinds), []).append(choice.leaf)
            elif isinstance(part, BoundAnd | BoundOr | BoundConstant):
                mask &= self.zones(part)
        for (column, kinds), asked in together.items():
            for kind in kinds:
                found = self._ask(column, kind, asked)
                if found is not None:
                    removed = int(np.count_nonzero(~found))
                    self.by_place[column, kind] = self.by_place.get((column, kind), 0) + removed
                    mask &= found
        return mask

    def _ask(self, column: int, kind: str, asked: Sequence[Leaf]) -> Mask | None:
        if kind == ROWS:
            numbers = _Numbers(self._layout, self._first_seq)
            return common(may_match(leaf, numbers) for leaf in asked)
        index = self._opened(column, kind)
        try:
            return None if index is None else mask_of_all(index, asked)
        except CorruptTable as error:
            # Some kinds look at their lists only when they are asked for them.
            self.broken[column, kind] = str(error)
            return None


def number_bounds(layout: ZoneLayout, first_seq: int) -> Bounds:
    """The sequence numbers of each zone of a dense segment."""
    return certain(first_seq + layout.starts, first_seq + layout.starts + layout.rows - 1)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The same as stats."""

    layout: ZoneLayout
    first_seq: int

    @property
    def count(self) -> int:
        return self.layout.count

    def bounds(self, column_id: int) -> Bounds | None:
        return number_bounds(self.layout, self.first_seq) if column_id == SEQ_ID else None
