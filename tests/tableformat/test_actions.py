"""Actions applied to a manifest: claims, batches without rows, and the retention floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.api import create_in
from strandline.tableformat import actions
from strandline.tableformat.actions import (
    MAX_PREVIOUS,
    AddSegments,
    AlreadyCommitted,
    ClaimWriter,
    ExternalKey,
    Stamp,
    WalKey,
    apply,
)
from strandline.tableformat.errors import CommitConflict, WriterFenced
from strandline.tableformat.manifest import Manifest, position_from_json
from strandline.tableformat.storage import open_storage
from tests.tables import SCHEMA, START_MS, Script, events, memory_url

OLD, NEW = "a" * 32, "b" * 32


def manifest(**changes: Any) -> Manifest:
    """The manifest of a table with three rows in one file."""
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, runtime=Script().runtime(), time_column="ts")
    table.append(events(0, 3))
    return replace(table.manifest, **changes)


def applied(head: Manifest, *wanted: Any, **cold: Any) -> Manifest:
    """The manifest after an action."""
    stamp = Stamp(commit_id="c" * 32, now_ms=head.commit.committed_at + 7, operation="test")
    made = apply(head, "0" * 16, wanted, stamp, cold)
    assert isinstance(made, Manifest)
    return made


def records(incarnation: str, first: int, last: int, **more: Any) -> AddSegments:
    """A flush of log records that hold no rows."""
    key = WalKey("w", incarnation, first, last)
    return AddSegments(segments=(), rows=0, last_ts=0, key=key, **more)


def test_a_claim_begins_a_new_log_at_the_tail() -> None:
    """[POS-8] The position of a claim says where the first row of the log may go."""
    head = manifest()

    position = applied(head, ClaimWriter("w", NEW)).positions["w"]

    assert (position.kind, position.incarnation, position.number) == ("wal", NEW, 0)
    assert (position.first_seq, position.rows, position.version) == (3, 0, head.version + 1)
    assert position.committed_at == head.commit.committed_at + 7
    assert position.previous == ()


def test_a_claim_by_the_holder_changes_nothing_of_the_position() -> None:
    """[POS-8] The claim of a process that asks twice must not forget its own records."""
    head = applied(applied(manifest(), ClaimWriter("w", NEW)), records(NEW, 1, 4))

    again = applied(head, ClaimWriter("w", NEW))

    assert again.positions["w"] == head.positions["w"]
    assert again.positions["w"].number == 4


def test_claims_remember_the_newest_four_logs_they_replaced() -> None:
    """[POS-8] Newest first, each with its last committed record, each once."""
    head = manifest()
    names = [f"{i:032x}" for i in range(7)]
    for i, name in enumerate(names):
        head = applied(applied(head, ClaimWriter("w", name)), records(name, 1, i + 1))

    previous = head.positions["w"].previous

    assert previous == tuple((names[i], i + 1) for i in (5, 4, 3, 2))
    assert len(previous) == MAX_PREVIOUS
    back = applied(head, ClaimWriter("w", names[4])).positions["w"]
    assert back.previous == ((names[6], 7), (names[5], 6), (names[3], 4), (names[2], 3))


def test_a_position_keeps_what_it_replaced_through_json_and_later_records() -> None:
    """[POS-8] Also when the position had moved to a page meanwhile."""
    claimed = applied(manifest(), ClaimWriter("w", OLD))
    claimed = applied(claimed, ClaimWriter("w", NEW))
    position = claimed.positions["w"]

    assert position.previous == ((OLD, 0),)
    assert position_from_json(position.to_json()) == position
    cold = replace(claimed, positions={})
    later = applied(cold, records(NEW, 1, 2), w=position)
    assert (later.positions["w"].number, later.positions["w"].previous) == (2, ((OLD, 0),))
    assert "previous" not in replace(position, previous=()).to_json()


@pytest.mark.parametrize("first", [1, 2])
def test_records_of_a_replaced_log_are_fenced(first: int) -> None:
    """[POS-7] [O8] Also its first ones: it may have stalled before it wrote any."""
    head = applied(manifest(), ClaimWriter("w", NEW))

    with pytest.raises(WriterFenced, match="another process has opened"):
        applied(head, records(OLD, first, 9))
    with pytest.raises(WriterFenced):
        applied(replace(head, positions={}), records(OLD, first, 9), w=head.positions["w"])


def test_a_claim_does_not_take_the_id_of_a_writer_that_numbers_batches() -> None:
    """[POS-5] Numbered batches and log records count different things."""
    added = AddSegments(segments=(), rows=0, last_ts=0, key=ExternalKey("w", 1))
    head = applied(manifest(), added)

    with pytest.raises(CommitConflict, match="another writer_id"):
        applied(head, ClaimWriter("w", NEW))


def test_a_batch_without_rows_commits_its_position() -> None:
    """[POS-1] [T4] All rows dropped: the records are settled, and the tail does not move."""
    head = applied(manifest(), ClaimWriter("w", NEW))

    made = applied(head, records(NEW, 1, 5))

    assert made.positions["w"].number == 5
    assert (made.next_seq, made.last_ts, made.segments) == (3, head.last_ts, head.segments)
    assert made.commit.first_seq is None
    stamp = Stamp(commit_id="d" * 32, now_ms=0, operation="test")
    known = apply(made, "0" * 16, [records(NEW, 1, 5)], stamp, {})
    assert isinstance(known, AlreadyCommitted)


def test_files_with_rows_below_the_floor_are_written_again() -> None:
    """[COM-8] [T4] The floor may have risen since the files were made; the boundary is visible."""
    head = manifest()
    added = AddSegments(segments=head.segments, rows=3, last_ts=START_MS)
    lowest = head.segments[0].min_ts

    with pytest.raises(actions.MustRewrite, match="floor"):
        applied(replace(head, floor_ts=lowest + 1), added)
    assert applied(replace(head, floor_ts=lowest), added).next_seq == 6
