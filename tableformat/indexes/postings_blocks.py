"""Blob `postings_blocks`: a part of large postings, and belief in it.

A lookup needs a few hundred of the bytes of postings, which may be millions. Beside such postings
stands a small blob with the checksum of each block of them, and with the first of every thousand
hashes: it says which blocks a hash can be in, and what their bytes have to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.indexes.blob import BlobReader, corrupt, smallest_unsigned
from strandline.tableformat.indexes.equality import asks_for_values, wanted_halves
from strandline.tableformat.indexes.postings import COUNT_TYPES, HASHES_PER_GROUP
from strandline.tableformat.indexes.runs import sorted_once
from strandline.tableformat.page_table import page_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.types import ColumnType

    Ranges = list[tuple[int, int]]
    Read = Callable[[Ranges], Sequence[bytes | memoryview]]
    """(start, length) parts of the postings; CorruptTable where there are none."""

KIND: Final = "postings_blocks"
LEAST_BYTES: Final = 64 * 2**10
"""Smaller postings are read as a whole."""
_BLOCK: Final = 4096
_HEAD: Final = 16
"""Bytes of the postings' header; blocks begin behind it, so a run of hashes is one block."""
_RUN: Final = 1024
_WORD: Final = 4


class _Layout(NamedTuple):
    """Where the arrays of some postings lie, as their header says."""

    hashes: int
    pairs: int
    count_bytes: int
    zone_bytes: int

    @property
    def runs(self) -> int:
        return -(-self.hashes // _RUN)

    @property
    def counts_at(self) -> int:
        groups = -(-self.hashes // HASHES_PER_GROUP) if self.count_bytes else 0
        return _HEAD + _WORD * (self.hashes + groups)

    @property
    def zones_at(self) -> int:
        return self.counts_at + self.count_bytes * self.hashes

    @property
    def size(self) -> int:
        return self.zones_at + self.zone_bytes * self.pairs


def build(postings: bytes) -> bytes:
    """The blob that stands beside these postings, which are sound."""
    hashes, pairs, count_bytes, _ = np.frombuffer(postings, "<u4", _HEAD // _WORD).tolist()
    firsts = np.frombuffer(postings, "<u4", hashes, _HEAD)[::_RUN]
    if count_bytes:
        groups = -(-hashes // HASHES_PER_GROUP)
        begins = np.frombuffer(postings, "<u4", groups, _HEAD + _WORD * hashes)
        begins = begins[:: _RUN // HASHES_PER_GROUP]
    else:
        begins = np.arange(len(firsts), dtype=np.int64) * (_RUN * (pairs // max(hashes, 1)))
    view = memoryview(postings)
    blocks = range(_HEAD, len(postings), _BLOCK)
    checksums = np.array([page_checksum(view[at : at + _BLOCK]) for at in blocks], "<u4")
    zone_begins = np.append(begins, pairs).astype("<u4")
    return postings[:_HEAD] + b"".join(part.tobytes() for part in (firsts, zone_begins, checksums))


def open(  # noqa: A001 - what every index kind calls it
    data: bytes, *, size_bytes: int, zone_count: int, kind: ColumnType
) -> PartialPostings:
    """Postings of so many bytes, of which nothing is read yet; CorruptTable if malformed."""
    blob = BlobReader(KIND, data)
    hashes, pairs, count_bytes, zero = blob.array("<u4", _HEAD // _WORD).tolist()
    if count_bytes not in COUNT_TYPES or zero or not hashes or pairs < hashes:
        blob.fail("its header is none")
    if not count_bytes and pairs % hashes:
        blob.fail("its zones cannot be shared out evenly")
    zone_bytes = np.dtype(smallest_unsigned(zone_count - 1)).itemsize
    layout = _Layout(hashes, pairs, count_bytes, zone_bytes)
    if layout.size != size_bytes:
        blob.fail("it does not fit the postings beside it")
    firsts = blob.array("<u4", layout.runs)
    begins = blob.array("<u4", layout.runs + 1).astype(np.int64)
    checksums = blob.array("<u4", -(-(size_bytes - _HEAD) // _BLOCK)).tolist()
    blob.finish()
    if (firsts[1:] <= firsts[:-1]).any() or (begins[1:] <= begins[:-1]).any():
        blob.fail("its numbers do not ascend")
    if begins[0] or begins[-1] != pairs:
        blob.fail("its zones do not add up")
    return PartialPostings(layout, firsts, begins, checksums, zone_count, kind)


@dataclass(frozen=True, eq=False)
class PartialPostings:
    """Answers as the whole postings do, and reads what one answer needs."""

    layout: _Layout
    firsts: NDArray[np.uint32]
    """The first hash of each run."""
    begins: NDArray[np.int64]
    """Where the zones of each run begin, and their number behind the last."""
    checksums: list[int]
    zone_count: int
    kind: ColumnType
    read: Read | None = None
    """To be set before it is asked."""

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        if not isinstance(leaf, BoundCompare | BoundIn) or not asks_for_values(leaf):
            return None
        mask = np.zeros(self.zone_count, np.bool_)
        wanted = wanted_halves(leaf, self.kind)
        at = np.searchsorted(self.firsts, wanted, side="right") - 1
        runs = sorted_once(at[at >= 0]).tolist()
        pieces = iter(self._pieces([found for run in runs for found in self._ranges(run)]))
        for run in runs:
            hashes = np.frombuffer(next(pieces), "<u4")
            counts = self._counts(pieces, len(hashes), run)
            zones = np.frombuffer(next(pieces), f"<u{self.layout.zone_bytes}")
            if int(counts.sum()) != len(zones):
                raise corrupt(KIND, "the zones of a run do not add up")
            place = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
            asked = np.zeros(len(hashes), np.bool_)
            asked[place[hashes[place] == wanted]] = True
            chosen = zones[np.repeat(asked, counts)]
            if len(chosen) and int(chosen.max()) >= self.zone_count:
                raise corrupt(KIND, "it names a zone that does not exist")
            mask[chosen] = True
        return mask

    def _counts(self, pieces: Any, hashes: int, run: int) -> NDArray[np.int64]:
        if self.layout.count_bytes:
            found = np.frombuffer(next(pieces), f"<u{self.layout.count_bytes}")
            return found.astype(np.int64)
        return np.full(hashes, int(self.begins[run + 1] - self.begins[run]) // hashes, np.int64)

    def _ranges(self, run: int) -> Ranges:
        """Where hashes, counts and zones of a run lie."""
        layout, first = self.layout, run * _RUN
        count = min(_RUN, layout.hashes - first)
        found = [(_HEAD + _WORD * first, _WORD * count)]
        if layout.count_bytes:
            found.append(
                (layout.counts_at + layout.count_bytes * first, layout.count_bytes * count)
            )
        begin, end = self.begins[run : run + 2].tolist()
        found.append(
            (layout.zones_at + layout.zone_bytes * begin, layout.zone_bytes * (end - begin))
        )
        return found

    def _pieces(self, ranges: Ranges) -> list[memoryview]:
        """These bytes, once the blocks that they lie in have their checksums."""
        size, whole = self.layout.size, []
        for start, length in ranges:
            begin = start - (start - _HEAD) % _BLOCK
            end = start + length
            whole.append((begin, min(end + (_HEAD - end) % _BLOCK, size) - begin))
        found = []
        assert self.read is not None
        for (start, length), (begin, _), data in zip(ranges, whole, self.read(whole), strict=True):
            view = memoryview(data)
            for at in range(0, len(view), _BLOCK):
                expected = self.checksums[(begin - _HEAD + at) // _BLOCK]
                if page_checksum(view[at : at + _BLOCK]) != expected:
                    raise corrupt(KIND, "a block of the postings does not have its checksum")
            found.append(view[start - begin : start - begin + length])
        return found
