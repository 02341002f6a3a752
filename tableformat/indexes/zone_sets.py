"""Numbered sets of zones, as bitmaps or as lists, whichever is smaller.

| form | bytes |
|---|---|
| bitmaps | for each set one bit per zone, the first zone in the lowest bit of the first byte |
| lists | an offset of 4 bytes for each set and one more, then zone numbers, ascending in a set |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.indexes.blob import (
    BlobReader,
    bytes_of_bits,
    packed,
    smallest_unsigned,
    unpacked,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMS: Final = frozenset({"bitmaps", "lists"})


@dataclass(frozen=True, eq=False)
class ZoneSets:
    """Sets 0, 1, … of zones."""

    zone_count: int
    bitmaps: NDArray[np.uint8] | None
    """A row of bits for each set."""
    offsets: NDArray[np.uint32]
    zones: NDArray[Any]
    """Without bitmaps: set i holds `zones[offsets[i]:offsets[i + 1]]`."""

    def union(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """A mask over the zones: those that are in one of the wanted sets."""
        if self.bitmaps is not None:
            found = np.bitwise_or.reduce(self.bitmaps[wanted], axis=0)
            return unpacked(found, self.zone_count)
        mask = np.zeros(self.zone_count, np.bool_)
        mask[self.zones[np.repeat(wanted, np.diff(self.offsets))]] = True
        return mask


def encode(
    sets: NDArray[np.int64], zones: NDArray[np.int64], set_count: int, zone_count: int
) -> tuple[str, bytes]:
    """Form and bytes of sets given as pairs of set and zone: each pair once, ascending."""
    width = smallest_unsigned(zone_count - 1)
    lists = 4 * (set_count + 1) + np.dtype(width).itemsize * len(zones)
    if lists < set_count * bytes_of_bits(zone_count):
        offsets = np.searchsorted(sets, np.arange(set_count + 1)).astype("<u4")
        return "lists", offsets.tobytes() + zones.astype(width).tobytes()
    flags = np.zeros((set_count, zone_count), np.bool_)
    flags[sets, zones] = True
    return "bitmaps", packed(flags).tobytes()


def decode(blob: BlobReader, form: str, set_count: int, zone_count: int) -> ZoneSets:
    """Take the sets from the front of a blob."""
    if form == "bitmaps":
        size = bytes_of_bits(zone_count)
        bits = blob.array("u1", set_count * size).reshape(set_count, size)
        return ZoneSets(zone_count, bits, np.zeros(0, np.uint32), np.zeros(0, np.uint8))
    offsets = blob.array("<u4", set_count + 1)
    if offsets[0] or (offsets[1:] < offsets[:-1]).any():
        blob.fail("the offsets of its lists do not ascend from 0")
    zones = blob.array(smallest_unsigned(zone_count - 1), int(offsets[-1]))
    if len(zones) and int(zones.max()) >= zone_count:
        blob.fail("it names a zone that does not exist")
    return ZoneSets(zone_count, None, offsets, zones)
