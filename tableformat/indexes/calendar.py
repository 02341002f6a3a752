"""Kind `calendar`: for each hour of UTC that has rows, the zones that hold them.

Fences of a zone span everything between its first and last moment, so a few late rows make them
useless. Here a zone belongs just to the hours that it has rows of. A date column has days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import (
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundKnown,
    BoundLike,
    BoundNull,
    BoundPair,
)
from strandline.tableformat.indexes import zone_sets
from strandline.tableformat.indexes.blob import BlobReader, choice
from strandline.tableformat.indexes.contract import Built, common
from strandline.tableformat.indexes.runs import run_starts, sorted_once
from strandline.tableformat.indexes.time_units import unit_of
from strandline.tableformat.values import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType

MAX_SLOTS: Final = 4096
"""Hours (or days) that a column may have rows in: 170 days of hours, 11 years of days."""
SLOT_LENGTHS: Final = {"day": 1, "ms": 3_600_000, "us": 3_600_000_000}
"""How many units of the column's time make one slot: an hour, or a day where that is the unit."""
_WIDEST_TABLE: Final = 1 << 24


class Calendar:
    """Serves all comparisons of one column, but not IS NULL: nulls are not in a calendar."""

    name = "calendar"

    def build(self, column: ColumnZones) -> Built | None:
        if column.time_unit is None:
            return None
        found = _occupied(column, SLOT_LENGTHS[column.time_unit])
        if found is None:
            return None
        slots, numbers, zones = found
        form, sets = zone_sets.encode(numbers, zones, len(slots), column.layout.count)
        count = np.array([len(slots)], "<u4")
        data = b"".join((count.tobytes(), slots.astype("<i8").tobytes(), sets))
        return Built(data, {"zones": form})

    def serves(self, leaf: Leaf) -> bool:
        if isinstance(leaf, BoundNull):
            return leaf.negated
        return not isinstance(leaf, BoundConstant | BoundPair | BoundLike)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> CalendarIndex:
        blob = BlobReader(self.name, data)
        unit = unit_of(kind)
        if unit is None:
            blob.fail(f"a {kind} column holds no times")
        form = choice(self.name, params, "zones", zone_sets.FORMS)
        count = blob.number("<u4")
        if count > MAX_SLOTS:
            blob.fail(f"it says that it has {count} hours, and {MAX_SLOTS} is the most")
        slots = blob.array("<i8", count)
        if (slots[1:] <= slots[:-1]).any():
            blob.fail("its hours do not ascend")
        sets = zone_sets.decode(blob, form, count, layout.count)
        blob.finish()
        return CalendarIndex(slots, sets, SLOT_LENGTHS[unit])


@dataclass(frozen=True, eq=False)
class CalendarIndex:
    """The slots that have rows, and a set of zones for each."""

    slots: NDArray[np.int64]
    sets: zone_sets.ZoneSets
    length: int

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        return self.may_match_all((leaf,))

    def may_match_all(self, leaves: Sequence[Leaf]) -> NDArray[np.bool_] | None:
        wanted = common(self._wanted(leaf) for leaf in leaves)
        return None if wanted is None else self.sets.union(wanted)

    def _wanted(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        """The slots that may hold a TRUE row; None: cannot tell."""
        match leaf:
            case BoundCompare(_, operator, value) if isinstance(value, int):
                return self._compared(operator, value)
            case BoundIn(_, values, _, False):
                slots = [self._slot(value) for value in values if isinstance(value, int)]
                return np.isin(self.slots, np.array(slots, np.int64))
            case BoundKnown(_, value):
                return np.full(len(self.slots), value)
            case BoundIn() | BoundNull(_, True):
                return np.ones(len(self.slots), np.bool_)
        return None

    def _compared(self, operator: str, value: int) -> NDArray[np.bool_]:
        match operator:
            case "=":
                return np.equal(self.slots, self._slot(value))
            case "<":
                return np.less_equal(self.slots, self._slot(value - 1))
            case "<=":
                return np.less_equal(self.slots, self._slot(value))
            case ">":
                return np.greater_equal(self.slots, self._slot(value + 1))
            case ">=":
                return np.greater_equal(self.slots, self._slot(value))
        return np.ones(len(self.slots), np.bool_)

    def _slot(self, value: int) -> int:
        # Beyond int64 there are no rows, and the nearest int64 lies beyond all slots as well.
        return min(max(value // self.length, INT64_MIN), INT64_MAX)


def _occupied(
    column: ColumnZones, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """The slots with rows, and pairs of slot number and zone; None if there are too many slots."""
    assert column.numbers is not None
    hours = column.numbers // length
    zones = column.layout.zone_of_row.astype(np.int64)
    if column.valid is not None:
        hours, zones = hours[column.valid], zones[column.valid]
    # Time mostly goes on from row to row: what is left after this is short.
    changes = run_starts(hours, zones)
    hours, zones = hours[changes], zones[changes]
    slots = _ticked_off(hours)
    if len(slots) > MAX_SLOTS:
        return None
    pairs = _ticked_off(np.searchsorted(slots, hours) * column.layout.count + zones)
    return slots, pairs // column.layout.count, pairs % column.layout.count


def _ticked_off(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order; where they lie close together, without sorting."""
    if not len(numbers):
        return numbers
    least = int(numbers.min())
    width = int(numbers.max()) - least + 1
    if width > _WIDEST_TABLE:
        return sorted_once(numbers)
    seen = np.zeros(width, np.bool_)
    seen[numbers - least] = True
    return np.flatnonzero(seen) + least
