"""Kinds `membership` and `zone_membership`: filters for one value, over a segment or each zone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.indexes import filters
from strandline.tableformat.indexes.blob import BlobReader, choice
from strandline.tableformat.indexes.contract import Built
from strandline.tableformat.indexes.equality import asks_for_values, wanted_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType


@dataclass(frozen=True)
class Membership:
    """Serves = and IN with few values."""

    name: str
    by_zone: bool

    def build(self, column: ColumnZones, algorithm: str = "sbbf") -> Built | None:
        """`xor8` takes a third less room and several times as long to build."""
        if algorithm not in filters.ALGORITHMS:
            raise InvalidInput(f"{algorithm!r} is no filter; take sbbf or xor8")
        data = self._blooms(column) if algorithm == "sbbf" else self._xors(column)
        return None if data is None else Built(data, {"algorithm": algorithm})

    def _blooms(self, column: ColumnZones) -> bytes | None:
        hashes, zones, rows = column.hashes, column.layout.zone_of_row, column.layout.rows
        if column.valid is not None:
            hashes, zones = hashes[column.valid], zones[column.valid]
        if not self.by_zone:
            zones, rows = np.zeros_like(zones), rows.sum(keepdims=True)
        return filters.encode_blooms(hashes, zones, rows)

    def _xors(self, column: ColumnZones) -> bytes | None:
        hashes, groups = column.occurrences.distinct_hashes(by_zone=self.by_zone)
        return filters.encode_xors(hashes, groups, self._groups(column.layout))

    def serves(self, leaf: Leaf) -> bool:
        few = not isinstance(leaf, BoundIn) or len(leaf.values) < filters.MAX_WANTED
        return few and asks_for_values(leaf)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> MembershipIndex:
        algorithm = choice(self.name, params, "algorithm", filters.ALGORITHMS)
        found = filters.decode(BlobReader(self.name, data), algorithm, self._groups(layout))
        return MembershipIndex(self, found, layout.count, kind)

    def _groups(self, layout: ZoneLayout) -> int:
        return layout.count if self.by_zone else 1


@dataclass(frozen=True, eq=False)
class MembershipIndex:
    """Filters, and the zones that they speak for."""

    of: Membership
    held: filters.Filters
    zone_count: int
    kind: ColumnType

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        if not isinstance(leaf, BoundCompare | BoundIn) or not self.of.serves(leaf):
            return None
        found = self.held.may_hold(wanted_hashes(leaf, self.kind))
        return found if self.of.by_zone else np.repeat(found, self.zone_count)
