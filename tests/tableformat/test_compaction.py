"""Which segments become one: runs, from entries alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.compaction import Policy, plan_runs
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.segments import SegmentEntry
from strandline.tableformat.windows import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR = 3_600_000
POLICY = Policy(target_rows=100, target_bytes=1_000_000)


def entry(seq: int, rows: int = 10, *, hour: int = 0, shard: int = 0, **more: Any) -> SegmentEntry:
    """A segment with `rows` rows from `seq` on."""
    window = Window(hour * HOUR, HOUR)
    fields: dict[str, Any] = {
        "path": f"{window.prefix}/shard-{shard}/batch-1-{seq:016x}.parquet",
        "window": window,
        "shard": shard,
        "row_count": rows,
        "size_bytes": 100 * rows,
        "min_seq": seq,
        "max_seq": seq + rows - 1,
        "min_ts": window.start_ms,
        "max_ts": window.start_ms,
        "column_stats": {},
        "footer_bytes": 1,
        "footer_xxh64": "0" * 16,
        "schema_id": 1,
        "created_at": 1,
    }
    return SegmentEntry(**(fields | more))


def runs(entries: Sequence[SegmentEntry], policy: Policy = POLICY, **more: int) -> list[list[int]]:
    """First numbers of the segments of each run."""
    return [[e.min_seq for e in run.segments] for run in plan_runs(entries, policy, **more)]


def test_small_neighbours_become_one() -> None:
    """[M7] The trailing run and every other run, in the order of sequence numbers."""
    listed = [entry(20), entry(0), entry(10), entry(30, 90), entry(120), entry(130)]

    assert runs(listed) == [[0, 10, 20], [120, 130]]


def test_runs_stay_in_their_window_shard_and_schema() -> None:
    """[M7] [T6] What does not belong together stays apart."""
    listed = [
        *(entry(0), entry(10, shard=1), entry(20, hour=1), entry(30)),
        *(entry(40, schema_id=2), entry(50, schema_id=2), entry(60)),
    ]

    assert runs(listed) == [[0, 30], [40, 50]]


def test_a_run_is_cut_where_it_grows_too_large() -> None:
    """[M7] Rows and bytes of a run are bounded, and so is the memory to rewrite it."""
    assert runs([entry(40 * i, 40) for i in range(5)]) == [[0, 40], [80, 120]]
    heavy = [entry(10 * i, size_bytes=400_000) for i in range(5)]
    assert runs(heavy) == [[0, 10], [20, 30]]


def test_fewer_neighbours_than_asked_for_are_left_alone() -> None:
    """[M7] A policy may wait for more."""
    listed = [entry(0), entry(10)]

    assert runs(listed, replace(POLICY, min_segments=3)) == []
    assert runs(listed[:1]) == []


def test_missing_indexes_are_worth_a_rewrite_of_one_segment() -> None:
    """[E6] [T1] What a hurried flush left out is built later."""
    assert runs([entry(0, 90, index_debt={3: ("postings",)}), entry(90, 90)]) == [[0]]


def test_what_nobody_sees_is_not_rewritten() -> None:
    """[M7] Segments below the floor or the trim point go with expiry, not with compaction."""
    listed = [entry(0), entry(10), entry(20, hour=1), entry(30, hour=1)]

    assert runs(listed, floor_ts=HOUR) == [[20, 30]]
    assert runs(listed, trim_seq=15) == [[20, 30]]


@pytest.mark.parametrize("bad", [{"target_rows": 0}, {"min_segments": 1}, {"target_bytes": "1"}])
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    """[E1] The error names the setting."""
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        Policy(**bad)


@given(
    st.lists(st.tuples(st.integers(1, 120), st.integers(0, 1), st.integers(1, 2)), max_size=30),
    st.integers(2, 4),
)
def test_runs_never_share_a_segment_nor_grow_too_large(
    sizes: list[tuple[int, int, int]], least: int
) -> None:
    """[M7] Whatever the segments: runs are disjoint, bounded, of one place and one schema."""
    listed, seq = [], 0
    for rows, hour, schema in sizes:
        listed.append(entry(seq, rows, hour=hour, schema_id=schema))
        seq += rows

    found = plan_runs(listed, replace(POLICY, min_segments=least))

    paths = [e.path for run in found for e in run.segments]
    assert len(paths) == len(set(paths))
    for run in found:
        assert len(run.segments) >= least
        assert run.rows <= POLICY.target_rows
        assert {(e.window, e.schema_id) for e in run.segments} == {
            (run.window, run.segments[0].schema_id)
        }


def test_a_segment_that_outweighs_its_neighbours_is_left_alone_if_enough_are_left() -> None:
    """[M7] Or a few new rows would have all the older ones written again, each time."""
    three = replace(POLICY, min_segments=3)
    news = [entry(40 + 2 * n, 2) for n in range(3)]
    assert runs([entry(0, 40), *news], three) == [[40, 42, 44]]
    assert runs([entry(0, 40), *news[:2]], three) == []
    assert runs([entry(0, 40), *news], POLICY) == [[0, 40, 42, 44]], "who asks for pairs gets them"
    assert runs([entry(0, 6), *news], three) == [[0, 40, 42, 44]], "not more than all others"
    around = [entry(2 * n, 2) for n in range(3)] + [entry(6, 30), *news]
    assert runs(around, three) == [[0, 2, 4], [40, 42, 44]]


def test_rows_that_trickle_in_are_written_again_only_a_few_times() -> None:
    """[M7] Its segment is at least twice as large each time a row is written again."""
    policy = Policy(min_segments=16)
    listed: list[SegmentEntry] = [entry(0, 300_000)]
    written = 0
    for n in range(2_000):
        listed.append(entry(300_000 + 10 * n, 10))
        for run in plan_runs(listed, policy):
            first, last = run.segments[0], run.segments[-1]
            at = listed.index(first)
            listed[at : listed.index(last) + 1] = [entry(first.min_seq, run.rows)]
            written += run.rows
    assert len(listed) < 48
    doublings = 11  # from 10 rows to less than 20,480
    assert written <= doublings * 20_000
