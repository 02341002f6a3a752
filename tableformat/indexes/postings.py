"""Kind `postings`: from the hash of a value to the zones that hold it.

Finds single values in columns without any order. A lookup is one binary search in the sorted
hashes and a look at two short lists; nothing is decoded beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.indexes.blob import BlobReader, corrupt, smallest_unsigned
from strandline.tableformat.indexes.contract import Built
from strandline.tableformat.indexes.equality import asks_for_values, wanted_halves

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType

HASHES_PER_GROUP: Final = 64
"""Every so many hashes, the place of the first one's zones is written down."""
COUNT_TYPES: Final = {0: "", 1: "u1", 2: "<u2", 4: "<u4"}
_MOST: Final = (1 << 32) - 1
POSTINGS: Final = "postings"


class Postings:
    """Serves = and IN."""

    name = POSTINGS

    def build(self, column: ColumnZones) -> Built | None:
        found = column.occurrences
        zones = found.zones[found.new_pair]
        first = np.flatnonzero(found.new_half[found.new_pair])
        pairs, hashes = len(zones), len(first)
        if pairs > _MOST:
            return None
        counts = np.diff(first, append=pairs)
        even = hashes == 0 or int(counts.min()) == int(counts.max())
        width = "" if even else smallest_unsigned(int(counts.max()))
        size = np.dtype(width).itemsize if width else 0
        parts = [
            np.array([hashes, pairs, size, 0], "<u4"),
            found.halves[found.new_half].astype("<u4"),
        ]
        if width:
            parts += [first[::HASHES_PER_GROUP].astype("<u4"), counts.astype(width)]
        parts.append(zones.astype(smallest_unsigned(column.layout.count - 1)))
        return Built(b"".join(part.tobytes() for part in parts))

    def serves(self, leaf: Leaf) -> bool:
        return asks_for_values(leaf)

    def open(
        self,
        data: bytes,
        params: Mapping[str, Any],  # noqa: ARG002 - the blob says it all
        layout: ZoneLayout,
        kind: ColumnType,
    ) -> PostingsIndex:
        blob = BlobReader(POSTINGS, data)
        hashes, pairs, size, zero = blob.array("<u4", 4).tolist()
        if size not in COUNT_TYPES or zero or pairs < hashes or (pairs and not hashes):
            blob.fail("its header is none")
        if not size and hashes and pairs % hashes:
            blob.fail("its zones cannot be shared out evenly")
        return PostingsIndex(
            hashes=blob.array("<u4", hashes),
            groups=blob.array("<u4", -(-hashes // HASHES_PER_GROUP) if size else 0),
            counts=blob.array(COUNT_TYPES[size], hashes) if size else None,
            zones=_rest(blob, smallest_unsigned(layout.count - 1), pairs),
            zone_count=layout.count,
            kind=kind,
        )


def _rest(blob: BlobReader, dtype: str, count: int) -> NDArray[Any]:
    found = blob.array(dtype, count)
    blob.finish()
    return found


@dataclass(frozen=True, eq=False)
class PostingsIndex:
    """The arrays of the blob as they are."""

    hashes: NDArray[np.uint32]
    """Ascending, each once."""
    groups: NDArray[np.uint32]
    counts: NDArray[Any] | None
    """Zones of each hash; None: as many for each."""
    zones: NDArray[Any]
    zone_count: int
    kind: ColumnType

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        if not isinstance(leaf, BoundCompare | BoundIn) or not asks_for_values(leaf):
            return None
        mask = np.zeros(self.zone_count, np.bool_)
        wanted = wanted_halves(leaf, self.kind)
        if not len(self.hashes) or not len(wanted):
            return mask
        place = np.searchsorted(self.hashes, wanted)
        place = np.minimum(place, len(self.hashes) - 1)
        place = place[self.hashes[place] == wanted]
        zones = self.zones[
            self._slice(int(place[0])) if len(place) == 1 else self._positions(place)
        ]
        if len(zones) and int(zones.max()) >= self.zone_count:
            raise corrupt(POSTINGS, "it names a zone that does not exist")
        mask[zones] = True
        return mask

    def _slice(self, place: int) -> slice:
        """As `_positions`, for one hash: most lookups are for one value."""
        if self.counts is None:
            count = len(self.zones) // len(self.hashes)
            start = place * count
        else:
            group = place // HASHES_PER_GROUP
            earlier = self.counts[group * HASHES_PER_GROUP : place]
            start = int(self.groups[group]) + int(earlier.sum(dtype=np.int64))
            count = int(self.counts[place])
        if start + count > len(self.zones):
            raise corrupt(POSTINGS, "a list of zones ends behind the last one")
        return slice(start, start + count)

    def _positions(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in `zones` the zones of these hashes stand."""
        if self.counts is None:
            counts = np.full(len(place), len(self.zones) // len(self.hashes), np.int64)
            starts = place * counts
        else:
            counts, starts = self.counts[place].astype(np.int64), self._starts(place)
        # In a sound index the lists of different hashes do not overlap.
        if (starts + counts > len(self.zones)).any() or counts.sum() > len(self.zones):
            raise corrupt(POSTINGS, "a list of zones ends behind the last one")
        before = np.cumsum(counts) - counts
        return np.repeat(starts - before, counts) + np.arange(counts.sum())

    def _starts(self, place: NDArray[np.int64]) -> NDArray[np.int64]:
        assert self.counts is not None
        group = place // HASHES_PER_GROUP
        nearby = group[:, None] * HASHES_PER_GROUP + np.arange(HASHES_PER_GROUP)
        earlier = nearby < place[:, None]
        counts = self.counts[np.minimum(nearby, len(self.counts) - 1)]
        within: NDArray[np.int64] = np.where(earlier, counts, 0).sum(axis=1, dtype=np.int64)
        return self.groups[group] + within
