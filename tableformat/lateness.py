"""How late a row is: measured against the newest row of its key that came before it.

Lateness decides the file a row is stored in and what counters say, never what a scan returns. So
the marks may be approximate in one direction: a key that is not remembered is measured against
the newest row of any forgotten key of its shard. Everything works on whole batches at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

NORMAL: Final = 0
JITTER: Final = 1
"""Below the mark of its key, by no more than the table's `jitter_ms`."""
LATE: Final = 2
MAX_KEYS: Final = 65_536
_NO_MARK: Final = -1
"""Below every `_ts`: nothing is late against it."""
_MOST_BITS: Final = 62

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]
Uint64s = np.ndarray[Any, np.dtype[np.uint64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The newest `_ts` of keys, as a value: a flush that has to be tried again starts from it.

    Keys are 64-bit hashes. Two keys with one hash share a mark, which moves a row to another file
    once in a blue moon and nothing else.
    """

    unknown: Int64s
    """Per shard: what a key that is not listed is measured against."""
    keys: Uint64s
    """Sorted; the three arrays below go with it."""
    marks: Int64s
    used: Int64s
    """When the key's newest row came, in rows seen; the least are forgotten first."""
    shard: Int32s
    rows_seen: int = 0
    max_keys: int = MAX_KEYS


def marks_of(shard_marks: Mapping[int, int], shards: int, max_keys: int = MAX_KEYS) -> Marks:
    """The marks of a writer that begins: what a manifest knows, which is one mark per shard."""
    unknown = np.full(shards, _NO_MARK, np.int64)
    for shard, mark in shard_marks.items():
        if shard < shards:
            unknown[shard] = mark
    return Marks(
        unknown=unknown,
        keys=np.empty(0, np.uint64),
        marks=np.empty(0, np.int64),
        used=np.empty(0, np.int64),
        shard=np.empty(0, np.int32),
        max_keys=max_keys,
    )


def raised(marks: Marks, to: Marks) -> Marks:
    """Marks whose unlisted keys are measured against the newer of two rows."""
    return replace(marks, unknown=np.maximum(marks.unknown, to.unknown))


@dataclass(frozen=True, slots=True)
class Lateness:
    """What a batch looks like against the marks before it, and the marks after it."""

    marks: Marks
    classes: np.ndarray[Any, np.dtype[np.uint8]] | None = None
    """NORMAL, JITTER or LATE for each row; None: all are normal."""
    behind: Bools | None = None
    """Rows that are late already against the marks before the batch; None: no row is.

    Only these are stored apart. Rows that are out of order inside one batch stay together, or
    an ordinary unsorted import would write every window twice.
    """

    def count(self, kind: int) -> int:
        """How many rows are JITTER or LATE."""
        return 0 if self.classes is None else int(np.count_nonzero(self.classes == kind))


def classify(
    ts_ms: Int64s, keys: Uint64s | None, shards: Int32s | None, marks: Marks, jitter_ms: int
) -> Lateness:
    """Measure each row against the newest earlier row of its key.

    `keys`: hashes of the rows' keys; None if the table has one key, itself. `shards`: where the
    keys are stored; None if there is one shard.
    """
    if not ts_ms.size:
        return Lateness(marks)
    if keys is None:
        return _classify_one_key(ts_ms, marks, jitter_ms)
    groups = _Groups(keys)
    shard_of_key = _first_shards(groups, shards)
    before = _known_marks(groups.keys, shard_of_key, marks)
    earlier, newest = groups.running_max(ts_ms)
    after = _remember(marks, groups, shard_of_key, np.maximum(before, newest))
    before_rows = groups.to_rows(before)
    return _lateness(ts_ms, before_rows, np.maximum(earlier, before_rows), after, jitter_ms)


def only_behind(ts_ms: Int64s, shards: Int32s | None, marks: Marks, jitter_ms: int) -> Lateness:
    """Which rows are stored apart, of a batch that stands alone.

    `marks` know no keys, and after it nothing is remembered by key: then there is no need to look
    at keys, which takes longer than everything else where each row has its own.
    """
    before = marks.unknown[0 if shards is None else shards]
    behind = ts_ms < before - jitter_ms
    return Lateness(marks, behind=behind if behind.any() else None)


def _classify_one_key(ts_ms: Int64s, marks: Marks, jitter_ms: int) -> Lateness:
    before = marks.unknown[0]
    after = replace(marks, unknown=np.maximum(marks.unknown, ts_ms.max()))
    if ts_ms[0] >= before and bool((ts_ms[1:] >= ts_ms[:-1]).all()):
        return Lateness(after)  # in order: by far the most frequent case
    running = np.maximum(np.maximum.accumulate(ts_ms), before)
    mark = np.concatenate([[before], running[:-1]])
    return _lateness(ts_ms, before, mark, after, jitter_ms)


def _lateness(
    ts_ms: Int64s, before: Int64s | np.int64, mark: Int64s, after: Marks, jitter_ms: int
) -> Lateness:
    below = ts_ms < mark
    if not below.any():
        return Lateness(after)
    # Where there is no mark, this limit lies below every time.
    late = ts_ms < mark - jitter_ms
    behind = ts_ms < before - jitter_ms
    return Lateness(
        after,
        below.astype(np.uint8) + late.astype(np.uint8),
        behind if behind.any() else None,
    )


class _Groups:
    """The rows of a batch by key, each key's rows in their own order."""

    def __init__(self, keys: Uint64s) -> None:
        self.order = np.argsort(keys, kind="stable")
        ordered = keys[self.order]
        is_first = np.ones(len(keys), np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        self.starts = np.flatnonzero(is_first)
        self.lasts = np.append(self.starts[1:], len(keys)) - 1
        self.number = np.cumsum(is_first) - 1
        self.keys: Uint64s = ordered[self.starts]

    def to_rows(self, of_keys: Int64s) -> Int64s:
        """A value per key as a value per row."""
        out = np.empty(len(self.order), np.int64)
        out[self.order] = of_keys[self.number]
        return out

    def running_max(self, ts_ms: Int64s) -> tuple[Int64s, Int64s]:
        """Per row the greatest time among earlier rows of its key; per key the greatest of all.

        Key number and time go into one integer, the key in front, so that a running maximum over
        all rows starts anew with each key.
        """
        times, meaning = ts_ms - ts_ms.min(), None
        bits = int(times.max()).bit_length()
        if bits + len(self.keys).bit_length() > _MOST_BITS:
            meaning, times = np.unique(ts_ms, return_inverse=True)
            bits = len(meaning).bit_length()
        joined = np.maximum.accumulate((self.number << bits) | times[self.order])
        found = joined & ((1 << bits) - 1)
        reached = found + ts_ms.min() if meaning is None else meaning[found]
        shifted = np.empty_like(reached)
        shifted[1:] = reached[:-1]
        shifted[self.starts] = _NO_MARK
        earlier = np.empty_like(reached)
        earlier[self.order] = shifted
        return earlier, reached[self.lasts]


def _first_shards(groups: _Groups, shards: Int32s | None) -> Int32s:
    if shards is None:
        return np.zeros(len(groups.keys), np.int32)
    of_keys: Int32s = shards[groups.order[groups.starts]]
    return of_keys


def _known_marks(keys: Uint64s, shard_of_key: Int32s, marks: Marks) -> Int64s:
    found: Int64s = marks.unknown[shard_of_key]
    if len(marks.keys):
        place = np.minimum(np.searchsorted(marks.keys, keys), len(marks.keys) - 1)
        found = np.where(marks.keys[place] == keys, marks.marks[place], found)
    return found


def _remember(marks: Marks, groups: _Groups, shard_of_key: Int32s, newest: Int64s) -> Marks:
    """The marks after a batch; beyond the limit the keys that were idle longest are forgotten."""
    stays = ~np.isin(marks.keys, groups.keys, assume_unique=True)
    keys = np.concatenate([marks.keys[stays], groups.keys])
    times = np.concatenate([marks.marks[stays], newest])
    used = np.concatenate([marks.used[stays], marks.rows_seen + groups.order[groups.lasts]])
    shard = np.concatenate([marks.shard[stays], shard_of_key])
    unknown = marks.unknown
    surplus = len(keys) - marks.max_keys
    if surplus > 0:
        by_age = np.argpartition(used, surplus)
        forgotten, kept = by_age[:surplus], by_age[surplus:]
        unknown = unknown.copy()
        np.maximum.at(unknown, shard[forgotten], times[forgotten])
        keys, times, used, shard = keys[kept], times[kept], used[kept], shard[kept]
    order = np.argsort(keys)
    return replace(
        marks,
        unknown=unknown,
        keys=keys[order],
        marks=times[order],
        used=used[order],
        shard=shard[order],
        rows_seen=marks.rows_seen + len(groups.order),
    )
