"""Segments that take the place of others, as actions on manifests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from strandline.tableformat.actions import AddSegments
from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import CommitConflict, CorruptTable, Fenced
from strandline.tableformat.replacing import PresentFence, RemoveAll, ReplaceSegments, row_total
from strandline.tableformat.segments import STORED
from tests.tableformat.test_actions import applied, manifest

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Manifest


def replacement(head: Manifest, **changes: Any) -> ReplaceSegments:
    """One segment for the only one of the table, with the same rows."""
    (old,) = head.segments
    path = old.path.replace("batch-1-", "compact-2-")
    new = replace(old, path=path, rows_are=STORED, encoded=b"", created_at=0)
    fields: dict[str, Any] = {
        "inline": (old.path,),
        "paged": (),
        "pages": (),
        "unfolded": (),
        "added": (new,),
    }
    return ReplaceSegments(**(fields | changes))


def test_a_segment_takes_the_place_of_another() -> None:
    """[COM-13] [MAN-10] The old file is listed as removed; tail and counts stay."""
    head = manifest()

    after = applied(head, replacement(head))

    assert [entry.path for entry in after.segments] == [
        head.segments[0].path.replace("batch-1-", "compact-2-")
    ]
    assert after.removed_files == (head.segments[0].path,)
    assert after.segments[0].created_at == after.commit.committed_at
    assert (after.next_seq, after.deleted_rows, row_total(after)) == (3, 0, 3)


def test_what_is_no_longer_inline_has_to_be_looked_for() -> None:
    """[COM-13] [M7] The inputs are looked at again on the very version that is replaced."""
    head = manifest()

    with pytest.raises(MustRewrite):
        applied(replace(head, segments=()), replacement(head))


@pytest.mark.parametrize("deleted", [-1, 1, 3])
def test_rows_that_do_not_add_up_are_refused(deleted: int) -> None:
    """[COM-14] [MAN-10] No commit loses or doubles a row unnoticed."""
    head = manifest()

    with pytest.raises(CorruptTable, match="defect"):
        applied(head, replacement(head, deleted_rows=deleted))


def test_deleted_rows_are_counted_for_ever() -> None:
    """[MAN-10] The numbers that are in no file any more can be told from lost ones."""
    head = manifest()

    after = applied(head, replacement(head, added=(), deleted_rows=3))

    assert (after.next_seq, after.deleted_rows, row_total(after)) == (3, 3, 0)


def test_files_that_vacuum_may_have_removed_are_refused() -> None:
    """[COM-13] The output is made again from a newer version, or not at all."""
    head = manifest(files_floor=2)
    (old,) = head.segments
    stale = replace(old, path=old.path.replace("batch-1-", "compact-1-"), encoded=b"")

    with pytest.raises(CommitConflict, match="vacuum"):
        applied(head, replacement(head, added=(stale,)))


def test_removing_all_lists_what_goes() -> None:
    """[MAN-10] Overwriting takes out whatever the version has that it lands on."""
    head = manifest()

    after = applied(head, RemoveAll(), AddSegments(segments=(), rows=0, last_ts=0))

    assert after.segments == ()
    assert after.removed_files == (head.segments[0].path,)
    assert (after.next_seq, after.deleted_rows, after.last_ts) == (3, 3, head.last_ts)


def test_taking_rows_away_asks_for_the_fence() -> None:
    """[O8] [COM-14] Who may not append may not delete either."""
    head = manifest(fence="token")

    with pytest.raises(Fenced):
        applied(head, PresentFence(None), RemoveAll())

    assert applied(head, PresentFence("token"), RemoveAll()).segments == ()
