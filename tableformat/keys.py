"""Keyed tables: which row of a key counts, and what may be left out before that is known.

The winner of a key is its row with the greatest (`_ts`, `_seq`). Every filter is about winners. A
row that lost must not come back because the winner was filtered out first, so before winners are
known only conditions may drop rows that treat a key's winner at least as well as its losers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.binding import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundOr,
    all_true,
    columns_of,
)
from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
_COMPACT_ROWS: Final = 2**20
_ORDER: Final = "order"


def before_winners(bound: Bound, key_ids: Collection[int]) -> Bound | None:
    """What a filter allows to drop before winners are known; None: nothing.

    All rows of a key have the same key columns, and its winner has the greatest `_ts`. So a
    condition on key columns holds for all of them or none, and a lower bound of `_ts` that a
    loser passes its winner passes too. Every other condition counts as true here. The filter has
    no negations (see `binding`), so this never drops a row that the filter itself lets through.
    """
    match bound:
        case BoundAnd(parts):
            return all_true(before_winners(part, key_ids) for part in parts)
        case BoundOr(parts):
            either = [before_winners(part, key_ids) for part in parts]
            known = tuple(part for part in either if part is not None)
            return BoundOr(known) if len(known) == len(either) else None
        case BoundCompare(column, ">" | ">=", _) if column.id == TS_ID:
            return bound
        case _ if columns_of(bound) <= set(key_ids):
            return bound
        case _:
            return None


class Newest:
    """Finds the winners among rows that come in any order, keeping one row for each key."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._rows = self._held = 0

    def add(self, keys: Sequence[pa.ChunkedArray], ts_ms: Int64s, seqs: Int64s) -> None:
        """Rows by their key columns, times and sequence numbers."""
        if not len(seqs):
            return
        columns = {str(i): _wide(values) for i, values in enumerate(keys)}
        part = pa.table({**columns, "_ts": pa.array(ts_ms), "_seq": pa.array(seqs)})
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > max(_COMPACT_ROWS, 2 * self._held):
            self._compact()

    def _compact(self) -> None:
        newest = _newest(pa.concat_tables(self._parts))
        self._parts = [newest]
        self._rows = self._held = newest.num_rows

    def seqs(self) -> Int64s:
        """The sequence numbers of the winners, ascending."""
        if not self._parts:
            return np.zeros(0, np.int64)
        self._compact()
        return np.sort(self._parts[0].column("_seq").to_numpy())


def forgettable(
    places: Int64s, ts_ms: Int64s, seqs: Int64s, *, deleted: Bools, visible: Bools, mine: Bools
) -> Bools:
    """Which rows no version from now on can return, so that a rewrite may leave them out.

    `places`: a number for each key. `deleted`: which rows are tombstones. `mine`: which are
    rewritten; of the others no row is forgotten, but they count. A row is forgotten for
    another of its key with an equal or greater `_ts` and a greater `_seq`: neither a floor nor a
    trim point hides that one and leaves this. A row that came late, with an earlier time and a
    greater number than what it lost to, counts again once the other is trimmed; so both stay. A
    tombstone that nothing takes the place of stays while it hides a row that is visible.
    """
    _, ranks = np.unique(ts_ms, return_inverse=True)
    found = mine & _outdone(places, ranks.reshape(-1).astype(np.int64), seqs)
    stones = np.flatnonzero(mine & deleted & ~found)
    if len(stones):
        rows = np.flatnonzero(visible & ~deleted & ~found)
        found[stones[~_hides_some(places, ts_ms, seqs, stones, rows)]] = True
    return found


def _outdone(places: Int64s, ranks: Int64s, seqs: Int64s) -> Bools:
    """Rows with a later one of their key that has no lesser rank."""
    order = np.lexsort((-seqs, places))
    # Keys ascend, so the greatest number so far is of an earlier key, or of this one.
    numbers = places[order] * (int(ranks.max(initial=0)) + 1) + ranks[order]
    before = np.concatenate([[-1], np.maximum.accumulate(numbers)[:-1]])
    found = np.zeros(len(places), np.bool_)
    found[order] = before >= numbers
    return found


def _hides_some(places: Int64s, ts_ms: Int64s, seqs: Int64s, stones: Int64s, rows: Int64s) -> Bools:
    """Which tombstones are newer than one of the rows of their key."""
    order = rows[np.lexsort((seqs[rows], ts_ms[rows], places[rows]))]
    # The oldest row of each key decides.
    keys, first = np.unique(places[order], return_index=True)
    if not len(keys):
        return np.zeros(len(stones), np.bool_)
    at = np.minimum(np.searchsorted(keys, places[stones]), len(keys) - 1)
    oldest = order[first[at]]
    older = (ts_ms[oldest] < ts_ms[stones]) | (
        (ts_ms[oldest] == ts_ms[stones]) & (seqs[oldest] < seqs[stones])
    )
    hides: Bools = (keys[at] == places[stones]) & older
    return hides


def _newest(rows: pa.Table) -> pa.Table:
    """One row for each key: that with the greatest (`_ts`, `_seq`)."""
    ts_ms, seqs = (rows.column(name).to_numpy() for name in ("_ts", "_seq"))
    order = _Order(ts_ms, seqs)
    names = rows.column_names[:-2]
    ranked = rows.select(names).append_column(_ORDER, order.of(ts_ms, seqs))
    # Other threads are busy with reading, and merging their groups costs more than it saves.
    best = ranked.group_by(names, use_threads=False).aggregate([(_ORDER, "max")])
    ts_ms, seqs = order.back(best.column(f"{_ORDER}_max").combine_chunks())
    return (
        best.select(names)
        .append_column("_ts", pa.array(ts_ms))
        .append_column("_seq", pa.array(seqs))
    )


class _Order:
    """Times and sequence numbers as one number that orders by the first, then by the second."""

    def __init__(self, ts_ms: Int64s, seqs: Int64s) -> None:
        self._first_ts, self._first_seq = int(ts_ms.min()), int(seqs.min())
        self._span = int(seqs.max()) - self._first_seq + 1
        times = int(ts_ms.max()) - self._first_ts + 1
        self._fits = times * self._span <= INT64_MAX

    def of(self, ts_ms: Int64s, seqs: Int64s) -> pa.Array:
        if self._fits:
            return pa.array((ts_ms - self._first_ts) * self._span + (seqs - self._first_seq))
        # 128 bits have room for everything; the lower half comes first in memory.
        words = np.stack([seqs, ts_ms], axis=1)
        return pa.Array.from_buffers(pa.decimal128(38, 0), len(words), [None, pa.py_buffer(words)])

    def back(self, order: pa.Array) -> tuple[Int64s, Int64s]:
        if self._fits:
            times, places = np.divmod(order.to_numpy(), self._span)
            return times + self._first_ts, places + self._first_seq
        words = np.frombuffer(order.buffers()[1], np.int64).reshape(-1, 2)
        words = words[order.offset : order.offset + len(order)]
        return np.ascontiguousarray(words[:, 1]), np.ascontiguousarray(words[:, 0])


def _wide(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys of many files together may take more than the 2 GiB that plain strings can count."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    return values.cast(pa.large_binary()) if pa.types.is_binary(values.type) else values
