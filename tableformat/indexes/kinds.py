"""The index kinds by their names in the catalog."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from strandline.tableformat.indexes.calendar import Calendar
from strandline.tableformat.indexes.contract import Built, Kind, ZoneIndex, mask_of_all
from strandline.tableformat.indexes.enum_bitmap import EnumBitmap
from strandline.tableformat.indexes.membership import Membership
from strandline.tableformat.indexes.postings import Postings
from strandline.tableformat.indexes.rank import Rank
from strandline.tableformat.indexes.temporal import Temporal
from strandline.tableformat.indexes.value_range import ValueRange
from strandline.tableformat.indexes.zone_map import ZoneMap

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "Built", "Kind", "ZoneIndex", "mask_of_all"]

_ALL: Final[tuple[Kind, ...]] = (
    ZoneMap(),
    Membership("membership", by_zone=False),
    Membership("zone_membership", by_zone=True),
    Postings(),
    EnumBitmap(),
    ValueRange(),
    Calendar(),
    Temporal(),
    Rank(),
)
KINDS: Final[Mapping[str, Kind]] = MappingProxyType({kind.name: kind for kind in _ALL})
