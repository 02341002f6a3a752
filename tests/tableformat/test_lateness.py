"""Lateness against a plain model that looks at one row after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import lateness
from strandline.tableformat.lateness import (
    JITTER,
    LATE,
    NORMAL,
    Marks,
    classify,
    marks_of,
    only_behind,
)

FAR_MS = 253_402_300_799_999
times = st.one_of(st.integers(0, 40), st.integers(0, FAR_MS))
rows_of_keys = st.lists(st.tuples(st.integers(0, 5), times), max_size=30)


def classes_of(
    ts: list[int], keys: list[int] | None, marks: Marks, jitter_ms: int = 0, shards: int = 1
) -> tuple[list[int], list[bool], Marks]:
    """The classes of a batch, which rows are behind, and the marks after it."""
    hashes = None if keys is None else np.array(keys, np.uint64)
    shard = None if keys is None else np.array([k % shards for k in keys], np.int32)
    found = classify(np.array(ts, np.int64), hashes, shard, marks, jitter_ms)
    classes = [NORMAL] * len(ts) if found.classes is None else found.classes.tolist()
    behind = [False] * len(ts) if found.behind is None else found.behind.tolist()
    assert found.count(JITTER) == classes.count(JITTER)
    assert found.count(LATE) == classes.count(LATE)
    return classes, behind, found.marks


class Model:
    """One row after the other, one dict of marks, oldest use first."""

    def __init__(self, shard_marks: dict[int, int], shards: int, max_keys: int) -> None:
        self.unknown = dict(shard_marks)
        self.shards, self.max_keys = shards, max_keys
        self.marks: dict[int, int] = {}

    def mark(self, key: int) -> int | None:
        return self.marks.get(key, self.unknown.get(key % self.shards))

    def batch(self, rows: list[tuple[int, int]], jitter_ms: int) -> tuple[list[int], list[bool]]:
        start = {key: self.mark(key) for key, _ in rows}
        classes, behind = [], []
        for key, ts in rows:
            mark, first = self.mark(key), start[key]
            normal = mark is None or ts >= mark
            classes.append(NORMAL if normal else JITTER if ts >= mark - jitter_ms else LATE)
            behind.append(first is not None and ts < first - jitter_ms)
            self.marks.pop(key, None)
            self.marks[key] = ts if mark is None else max(mark, ts)
        while len(self.marks) > self.max_keys:
            key, mark = next(iter(self.marks.items()))
            del self.marks[key]
            shard = key % self.shards
            self.unknown[shard] = max(self.unknown.get(shard, -1), mark)
        return classes, behind


@given(
    batches=st.lists(rows_of_keys, max_size=4),
    durable=st.dictionaries(st.integers(0, 2), times),
    jitter_ms=st.one_of(st.integers(0, 20), st.integers(0, FAR_MS)),
    shards=st.integers(1, 3),
    max_keys=st.integers(1, 8),
)
def test_classes_equal_a_look_at_every_row(
    batches: list[list[tuple[int, int]]],
    durable: dict[int, int],
    jitter_ms: int,
    shards: int,
    max_keys: int,
) -> None:
    """[T3] Random keys, times, jitter and a cache that forgets: as one row after the other."""
    durable = {shard: mark for shard, mark in durable.items() if shard < shards}
    model, marks = Model(durable, shards, max_keys), marks_of(durable, shards, max_keys)
    for rows in batches:
        expected = model.batch(rows, jitter_ms)

        ts, keys = [ts for _, ts in rows], [key for key, _ in rows]
        classes, behind, marks = classes_of(ts, keys, marks, jitter_ms, shards)

        assert (classes, behind) == expected
        assert dict(zip(marks.keys.tolist(), marks.marks.tolist(), strict=True)) == model.marks


@given(
    rows=rows_of_keys,
    durable=st.dictionaries(st.integers(0, 2), times),
    jitter_ms=st.one_of(st.integers(0, 20), st.integers(0, FAR_MS)),
    shards=st.integers(1, 3),
    keyed=st.booleans(),
)
def test_a_batch_that_stands_alone_is_stored_as_if_keys_were_looked_at(
    rows: list[tuple[int, int]],
    durable: dict[int, int],
    jitter_ms: int,
    shards: int,
    *,
    keyed: bool,
) -> None:
    """[T3] Where no key is known, the shard's mark is every key's."""
    marks = marks_of(durable, shards)
    ts, keys = [ts for _, ts in rows], [key for key, _ in rows]
    _, expected, _ = classes_of(ts, keys if keyed else None, marks, jitter_ms, shards)

    of_rows = np.array([key % shards for key in keys], np.int32) if keyed and shards > 1 else None
    found = only_behind(np.array(ts, np.int64), of_rows, marks, jitter_ms)

    assert ([False] * len(ts) if found.behind is None else found.behind.tolist()) == expected


@given(
    batches=st.lists(st.lists(times, max_size=30), max_size=4),
    durable=st.none() | times,
    jitter_ms=st.integers(0, 20),
)
def test_a_table_without_key_is_one_key(
    batches: list[list[int]], durable: int | None, jitter_ms: int
) -> None:
    """[T3] No shard_by: the table itself is the key, and its mark the newest row of all."""
    known = {} if durable is None else {0: durable}
    model, marks = Model(known, 1, 9), marks_of(known, 1)
    for ts in batches:
        expected = model.batch([(0, t) for t in ts], jitter_ms)

        classes, behind, marks = classes_of(ts, None, marks, jitter_ms)

        assert (classes, behind) == expected


@pytest.mark.parametrize(
    ("ts", "expected"), [(1000, NORMAL), (999, JITTER), (880, JITTER), (879, LATE), (0, LATE)]
)
@pytest.mark.parametrize("keys", [None, [7]])
def test_the_boundaries_are_exact(ts: int, expected: int, keys: list[int] | None) -> None:
    """[T3] Equal to the mark is normal, the jitter's own boundary is jitter, one less is late."""
    classes, behind, _ = classes_of([ts], keys, marks_of({0: 1000}, 1), jitter_ms=120)

    assert classes == [expected]
    assert behind == [expected == LATE]


def test_the_first_row_of_a_new_key_is_normal() -> None:
    """[T3] Nothing is known of it, so nothing can be newer."""
    marks = marks_of({}, 1)
    *_, marks = classes_of([1000], [1], marks)

    assert classes_of([5], [2], marks)[0] == [NORMAL]
    assert classes_of([5], [1], marks)[0] == [LATE]


def test_a_late_row_does_not_lower_its_mark() -> None:
    """[T3] A row between a late one and the mark is as late as before."""
    marks = marks_of({}, 1)
    *_, marks = classes_of([1000, 10], [1, 1], marks)

    assert classes_of([500], [1], marks)[0] == [LATE]


def test_rows_out_of_order_inside_a_batch_are_counted_and_stay_together() -> None:
    """[T3] Counted by the exact rule; stored apart only if older than the batch before."""
    marks = marks_of({0: 50}, 1)

    classes, behind, _ = classes_of([100, 60, 40], None, marks, jitter_ms=5)

    assert classes == [NORMAL, LATE, LATE]
    assert behind == [False, False, True]


def test_marks_are_a_value_that_can_be_tried_again() -> None:
    """A flush that is attempted twice is measured against the same marks twice."""
    marks = marks_of({0: 10}, 1, max_keys=2)
    first = classes_of([20, 5, 30], [1, 2, 3], marks)
    again = classes_of([20, 5, 30], [1, 2, 3], marks)

    assert first[:2] == again[:2]
    assert marks.unknown.tolist() == [10]
    assert len(marks.keys) == 0


def test_a_million_keys_keep_their_bound() -> None:
    """[T3] Memory is bounded; forgotten keys are measured against the newest forgotten one."""
    ts = np.arange(100_000, dtype=np.int64)
    keys = np.arange(100_000, dtype=np.uint64)

    marks = classify(ts, keys, None, marks_of({}, 1), 0).marks

    assert len(marks.keys) == lateness.MAX_KEYS
    assert marks.unknown.tolist() == [100_000 - lateness.MAX_KEYS - 1]
