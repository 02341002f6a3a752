"""Kind `rank`: which zones to read first for ORDER BY with a LIMIT, and when to stop.

The blob is that of a zone map, followed by the zones in the order in which a reader wants them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.indexes.blob import BlobReader, smallest_unsigned
from strandline.tableformat.indexes.contract import Built
from strandline.tableformat.indexes.zone_map import decode_bounds, encode_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.pruning import Bounds
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.values import Value


@dataclass(frozen=True, slots=True)
class RankBound:
    """What the rows of a zone can be at most, NaN being the greatest value."""

    low: Value | None
    """No value is less. None: no bound is known, or all rows are null."""
    high: Value | None
    """No value is greater. None: likewise."""
    null_count: int
    rows: int

    @property
    def is_empty(self) -> bool:
        """All rows are null: the zone has nothing to rank."""
        return self.null_count == self.rows


class Rank:
    """Serves no leaf; it gives an order of zones."""

    name = "rank"

    def build(self, column: ColumnZones) -> Built | None:
        bounds = encode_bounds(column.bounds, column.domain)
        width = smallest_unsigned(column.layout.count - 1)
        orders = (zone_order(column.bounds, descending=way) for way in (False, True))
        return Built(
            b"".join((bounds.data, *(order.astype(width).tobytes() for order in orders))),
            bounds.params,
        )

    def serves(self, leaf: Leaf) -> bool:  # noqa: ARG002 - whatever it is
        return False

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> RankIndex:
        blob = BlobReader(self.name, data)
        bounds = decode_bounds(blob, params, layout, kind)
        width = smallest_unsigned(layout.count - 1)
        orders = [blob.array(width, layout.count).astype(np.int64) for _ in range(2)]
        blob.finish()
        for order in orders:
            if (np.sort(order) != np.arange(layout.count)).any():
                blob.fail("an order does not name each zone once")
        return RankIndex(bounds, orders[0], orders[1])


@dataclass(frozen=True, eq=False)
class RankIndex:
    """Zones by their least and by their greatest value."""

    bounds: Bounds
    ascending: NDArray[np.int64]
    descending: NDArray[np.int64]

    def may_match(self, leaf: Leaf) -> None:  # noqa: ARG002 - whatever it is
        return None

    def order(self, *, descending: bool) -> NDArray[np.int64]:
        """The zones, best first; those of which nothing is known lead, those all null close."""
        return self.descending if descending else self.ascending

    def bound_of(self, zone: int) -> RankBound:
        bounds = self.bounds
        known = bool(bounds.known[zone])
        low: Any = bounds.mins[zone] if known else None
        high: Any = bounds.maxs[zone] if known else None
        if bounds.has_nan[zone]:
            high = math.nan
        return RankBound(
            low.item() if isinstance(low, np.generic) else low,
            high.item() if isinstance(high, np.generic) else high,
            int(bounds.null_count[zone]),
            int(bounds.value_count[zone]),
        )


def zone_order(bounds: Bounds, *, descending: bool) -> NDArray[np.int64]:
    """Zones by their least value upwards, or by their greatest downwards, NaN being greatest.

    Zones without bounds may hold anything and come first, zones that are all null come last,
    equal ones stay in the order of their rows.
    """
    ends = bounds.maxs if descending else bounds.mins
    tiers = np.where(bounds.known, 1, 0)
    if descending:
        tiers[bounds.has_nan] = 0
    tiers[~bounds.holds_values] = 2
    ranked = np.flatnonzero(tiers == 1)
    place = np.zeros(len(tiers), np.int64)
    place[ranked] = np.searchsorted(np.sort(ends[ranked]), ends[ranked])
    return np.lexsort((-place if descending else place, tiers))
