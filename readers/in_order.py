"""Rows of segments into the order of their sequence numbers.

Segments come sorted by their first number. Most follow one another, and their rows pass through
as they come. Where segments overlap, or hold their rows in another order, rows are held back only
until nothing that is still to be read can have a smaller number. Where that would take too much
memory, the large ones among overlapping segments are read side by side, each a part at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from strandline.readers.arrow_arrays import int64_array, integers
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.readers.split_reader import SplitReader
    from strandline.tableformat.segments import SegmentEntry

    Int64s = np.ndarray[Any, np.dtype[np.int64]]


class Read(Protocol):
    """Gives (number of the reader, rows) in the order of the readers and of their rows."""

    def __call__(self, readers: Sequence[SplitReader], /, *, share: int) -> Iterable[Numbered]:
        """Within a part of the memory: one of `share` equal ones."""


Numbered = tuple[int, pa.Table]


def needs_numbers(segments: Sequence[SegmentEntry]) -> list[bool]:
    """Which segments must be read with `_seq`: their rows may have to be sorted."""
    pairs = zip(segments, _overlapping(segments), strict=True)
    return [entry.rows_are != DENSE or overlaps for entry, overlaps in pairs]


def _overlapping(segments: Sequence[SegmentEntry]) -> list[bool]:
    """Which segments have numbers between those of another one."""
    reaches = [-1, *accumulate((entry.max_seq for entry in segments), max)]
    starts = [*(entry.min_seq for entry in segments[1:]), None]
    return [
        entry.min_seq <= reach or (following is not None and entry.max_seq >= following)
        for entry, reach, following in zip(segments, reaches, starts, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Apart:
    """Which segments are read side by side, and what each may have of the memory."""

    segments: frozenset[int]
    share: int
    """One of so many equal parts for what is read ahead of a segment, and as much for what waits:
    twice as many as segments overlap anywhere."""


NONE_APART: Final = Apart(frozenset(), 1)


def read_apart(readers: Sequence[SplitReader], memory_bytes: int) -> Apart:
    """The segments that memory does not hold while rows of others have to come first.

    None where it holds all that overlap: they are read one after the other then, and ahead.
    """
    overlapping = _overlapping([reader.entry for reader in readers])
    several = [number for number, overlaps in enumerate(overlapping) if overlaps]
    if not several:
        return NONE_APART
    # More than all of the memory is as much as needs telling, however large a damaged number is.
    most = memory_bytes + 1
    weights = np.array([min(readers[n].memory_share, most) for n in several], np.int64)
    starts = np.array([readers[number].entry.min_seq for number in several], np.int64)
    ends = np.array([readers[number].entry.max_seq for number in several], np.int64)
    by_end = np.argsort(ends, kind="stable")
    ended = np.searchsorted(ends[by_end], starts)
    weights_ended = np.append(0, np.cumsum(weights[by_end]))[ended]
    if int((np.cumsum(weights) - weights_ended).max()) <= memory_bytes:
        return NONE_APART
    share = 2 * int((np.arange(1, len(starts) + 1) - ended).max())
    chosen = [
        n
        for n, weight in zip(several, weights.tolist(), strict=True)
        if weight * share > memory_bytes
    ]
    return Apart(frozenset(chosen), share) if chosen else NONE_APART


def in_order(
    readers: Sequence[SplitReader], numbered: Sequence[bool], apart: Apart, read: Read
) -> Iterator[pa.Table]:
    """The rows of all readers, sorted where they came with `_seq`."""
    one_by_one = [number for number in range(len(readers)) if number not in apart.segments]
    streams = {
        number: _pieces([readers[number]], read, apart.share) for number in sorted(apart.segments)
    }
    merge = _Merge(readers, streams)
    pieces = _pieces([readers[n] for n in one_by_one], read, 2 if streams else 1)
    if one_by_one:
        yield from merge.below(readers[one_by_one[0]].entry.min_seq)
    for at, rows, floor in pieces:
        reader = readers[one_by_one[at]]
        yield from merge.below(reader.entry.min_seq)
        if not numbered[one_by_one[at]]:
            yield rows
            continue
        merge.hold(reader, rows)
        if floor is not None:
            yield from merge.below(floor)
    yield from merge.below(None)


def _pieces(
    readers: Sequence[SplitReader], read: Read, share: int
) -> Iterator[tuple[int, pa.Table, int | None]]:
    """Rows, and a number that none of those behind them is below; None: nothing is behind them."""
    last, unit = -1, 0
    for at, rows in read(readers, share=share):
        last, unit = at, unit + 1 if at == last else 1
        floors = [readers[at].least_from(unit)]
        floors += [reader.entry.min_seq for reader in readers[at + 1 : at + 2]]
        yield at, rows, min((floor for floor in floors if floor is not None), default=None)


class _Merge:
    """Rows that wait for smaller numbers, and the segments that are read as their turn comes."""

    def __init__(
        self,
        readers: Sequence[SplitReader],
        streams: dict[int, Iterator[tuple[int, pa.Table, int | None]]],
    ) -> None:
        self._readers, self._streams = readers, streams
        self._floors = {number: readers[number].entry.min_seq for number in streams}
        """No row that a stream still has is below this."""
        self._held: list[tuple[Int64s, pa.Table]] = []
        self._given = 0
        """All rows below this number have been given."""

    def hold(self, reader: SplitReader, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        rows = sorted_rows([rows])
        numbers = integers(rows.column("_seq"))
        if numbers[0] < self._given:
            raise CorruptTable(
                f"{reader.storage.url}: {reader.entry.path} holds row {numbers[0]} behind a place "
                "where its footer says that only greater numbers follow. Rows would come in a "
                "wrong order, so no more are returned; restore the file."
            )
        self._held.append((numbers, rows))

    def below(self, limit: int | None) -> Iterator[pa.Table]:
        """Rows with numbers below the limit, those of streams too; None: all."""
        while self._floors:
            number = min(self._floors, key=self._floors.__getitem__)
            if limit is not None and self._floors[number] >= limit:
                break
            # At its end a stream says that there is nothing behind.
            _, rows, floor = next(self._streams[number], (0, None, None))
            if rows is not None:
                self.hold(self._readers[number], rows)
            if floor is None:
                del self._floors[number]
            else:
                self._floors[number] = floor
            least = [*self._floors.values(), *(() if limit is None else (limit,))]
            yield from self._cut(min(least, default=None))
        yield from self._cut(limit)

    def _cut(self, limit: int | None) -> Iterator[pa.Table]:
        """Held rows below the limit."""
        if limit is not None:
            self._given = max(self._given, limit)
        ready, rest = [], []
        for numbers, rows in self._held:
            cut = len(numbers) if limit is None else int(np.searchsorted(numbers, limit))
            if cut:
                ready.append(rows.slice(0, cut))
            if cut < len(numbers):
                rest.append((numbers[cut:], rows.slice(cut)) if cut else (numbers, rows))
        self._held = rest
        if ready:
            yield sorted_rows(ready)


def sorted_rows(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of some tables by their numbers."""
    rows = pa.concat_tables(tables)
    numbers = integers(rows.column("_seq"))
    if bool((numbers[1:] > numbers[:-1]).all()):
        return rows
    return rows.take(int64_array(np.argsort(numbers, kind="stable")))
