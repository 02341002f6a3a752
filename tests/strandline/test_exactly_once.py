"""Batches with keys land once, conditions hold at the commit, and fences keep writers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.catalog.commit import MetadataChange, commit
from strandline.tableformat import rolling
from strandline.tableformat.actions import ClaimWriter, WalKey
from strandline.writers.append import AppendChange, Conditions
from tests.tables import Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Position


def test_a_batch_sent_twice_is_stored_once(place: Place) -> None:
    """[C1] The second answer is the first one's, from any handle, at any later time."""
    table = place.create()
    first = table.append(events(0, 3), writer_id="p", batch=7)
    table.append(events(3, 1))

    again = place.open().append(events(0, 3), writer_id="p", batch=7)
    older = place.open().append(events(0, 3), writer_id="p", batch=6)

    assert (again.first_seq, again.last_seq, again.version) == (0, 2, first.version)
    assert again.duplicate
    assert (older.duplicate, older.superseded_by, older.rows) == (True, 7, 0)
    assert again.superseded_by is None
    assert not table.append(events(4, 1), writer_id="p", batch=8).duplicate
    assert not table.append(events(5, 1), writer_id="other", batch=7).duplicate
    assert numbers_in(place.open()) == [0, 1, 2, 3, 4, 5]


def _wal_append(
    table: strandline.Table, first: int, count: int, key: WalKey
) -> strandline.Commit | None:
    """Append under a WAL key; None if the records were in the table already."""
    chain = table._chain  # noqa: SLF001 - the writer that uses these keys comes with the WAL
    head = chain.find_head()
    change = AppendChange(
        chain.storage,
        chain.runtime,
        head.manifest,
        rows=events(first, count),
        schema=head.manifest.schema,
        conditions=Conditions(key=key),
    )
    done = commit(chain, head, change, operation="append")
    made = done.snapshot.manifest
    return None if done.earlier else strandline.Commit(made.version, first, first, count)


def test_wal_records_follow_each_other_without_gap_or_overlap() -> None:
    """[E2] Records that are in the table are recognised, whichever way they are grouped."""
    table = Place(memory_url()).create()
    one = "a" * 32

    assert _wal_append(table, 0, 4, WalKey("w", one, 1, 4)) is not None
    assert _wal_append(table, 0, 4, WalKey("w", one, 1, 4)) is None
    assert _wal_append(table, 0, 2, WalKey("w", one, 1, 2)) is None
    assert _wal_append(table, 4, 2, WalKey("w", one, 5, 6)) is not None
    with pytest.raises(strandline.WriterPositionConflict):
        _wal_append(table, 0, 9, WalKey("w", one, 8, 9))
    with pytest.raises(strandline.WriterPositionConflict):
        _wal_append(table, 0, 9, WalKey("w", one, 6, 7))
    assert numbers_in(table) == [0, 1, 2, 3, 4, 5]


def test_a_log_without_a_stored_position_is_not_replayed_blindly() -> None:
    """[E2] A log that goes on where the table knows nothing is refused."""
    table = Place(memory_url()).create()
    _wal_append(table, 0, 1, WalKey("w", "a" * 32, 1, 1))

    with pytest.raises(strandline.WriterPositionLost):
        _wal_append(table, 1, 1, WalKey("new", "a" * 32, 2, 2))
    assert numbers_in(table) == [0]


def _claim(table: strandline.Table, incarnation: str) -> Position:
    chain = table._chain  # noqa: SLF001 - as above
    change = MetadataChange((ClaimWriter("w", incarnation),))
    done = commit(chain, chain.find_head(), change, operation="claim")
    return done.snapshot.manifest.positions["w"]


def test_a_claim_fences_the_log_before_it() -> None:
    """[POS-7] [POS-8] [O8] The old log adds nothing any more, not even as its first record."""
    table = Place(memory_url()).create()
    old, new = "a" * 32, "b" * 32
    _claim(table, old)
    _wal_append(table, 0, 2, WalKey("w", old, 1, 2))
    stalled = "c" * 32

    position = _claim(table, new)

    for zombie in (WalKey("w", old, 3, 3), WalKey("w", old, 1, 2), WalKey("w", stalled, 1, 1)):
        with pytest.raises(strandline.WriterFenced, match="still in its log"):
            _wal_append(table, 9, 1, zombie)
    assert (position.incarnation, position.number, position.previous) == (new, 0, ((old, 2),))
    assert _wal_append(table, 2, 1, WalKey("w", new, 1, 1)) is not None
    assert table.refresh().manifest.positions["w"].previous == ((old, 2),)
    assert numbers_in(table) == [0, 1, 2]


def test_a_claim_finds_a_position_that_has_moved_to_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[POS-8] [PAG-10] Who was idle for long is fenced, and remembered, like anybody else."""
    for name, value in (("ROLL_AT", 4), ("FOLD_POSITIONS_ABOVE", 4), ("KEEP_POSITIONS", 2)):
        monkeypatch.setattr(rolling, name, value)
    table = Place(memory_url()).create()
    _claim(table, "a" * 32)
    _wal_append(table, 0, 3, WalKey("w", "a" * 32, 1, 3))
    for writer in range(20):
        table.append(events(3 + writer, 1), writer_id=f"p{writer}", batch=1)
    assert "w" not in table.manifest.positions
    assert table.manifest.position_pages

    assert _claim(table, "a" * 32).number == 3
    position = _claim(table, "b" * 32)

    assert (position.number, position.previous) == (0, (("a" * 32, 3),))


def test_one_id_cannot_be_both_kinds_of_writer() -> None:
    """Numbered batches and log records count different things."""
    table = Place(memory_url()).create()
    _wal_append(table, 0, 1, WalKey("w", "a" * 32, 1, 1))

    with pytest.raises(strandline.CommitConflict, match="another writer_id"):
        table.append(events(1, 1), writer_id="w", batch=1)


def test_match_seq_is_a_condition_on_the_commit(place: Place) -> None:
    """[O8] Two writers that expect the same place: one wins, the other learns where the tail is."""
    table, other = place.create(), place.open()
    table.append(events(0, 3), match_seq=0)

    with pytest.raises(strandline.SeqMismatch) as caught:
        other.append(events(9, 1), match_seq=0)

    assert (caught.value.expected, caught.value.actual) == (0, 3)
    other.append(events(3, 1), match_seq=3)
    assert numbers_in(table) == [0, 1, 2, 3]


def test_a_fence_keeps_other_writers_out(place: Place) -> None:
    """[O8] Appends without the token, or with an old one, leave nothing visible."""
    table, zombie = place.create(), place.open()
    zombie.append(events(0, 1))
    table.fence("epoch-2")

    for token in (None, "epoch-1"):
        with pytest.raises(strandline.Fenced) as caught:
            zombie.append(events(9, 1), fence=token)
        assert "epoch" not in str(caught.value)
    table.append(events(1, 1), fence="epoch-2")
    table.fence(None)
    with pytest.raises(strandline.CommitConflict):
        table.append(events(9, 1), fence="epoch-2")
    zombie.append(events(2, 1))
    assert numbers_in(place.open()) == [0, 1, 2]


def test_a_known_batch_answers_before_any_condition_can_fail_it() -> None:
    """[C1, O8] The first attempt is what moved the tail; its retry must not be refused for it."""
    table = Place(memory_url()).create()
    table.append(events(0, 2), writer_id="p", batch=1, match_seq=0)
    table.fence("taken")

    again = table.append(events(0, 2), writer_id="p", batch=1, match_seq=0)

    assert again.duplicate
    assert again.first_seq == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"writer_id": "p"},
        {"batch": 1},
        {"writer_id": "", "batch": 1},
        {"writer_id": "x" * 300, "batch": 1},
        {"writer_id": "p", "batch": -1},
        {"writer_id": "p", "batch": 2**63},
        {"writer_id": "p", "batch": True},
        {"writer_id": 5, "batch": 1},
        {"match_seq": -1},
        {"match_seq": "0"},
        {"fence": 7},
        {"properties": {"a": 1}},
        {"properties": {"a": "x" * 5000}},
        {"properties": ["a"]},
    ],
)
def test_bad_conditions_are_refused(arguments: dict[str, object]) -> None:
    """Nothing is written."""
    table = Place(memory_url()).create()

    with pytest.raises(strandline.InvalidInput):
        table.append(events(0, 1), **arguments)  # type: ignore[arg-type] # that is the point

    assert table.refresh().version == 1


def test_properties_are_kept_in_the_history() -> None:
    """[C6] A commit carries what its writer wanted to say."""
    table = Place(memory_url()).create()
    table.append(events(0, 1), properties={"job": "nightly"})

    assert dict(table.history()[0].properties) == {"job": "nightly"}
