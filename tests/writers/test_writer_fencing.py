"""A writer that was replaced, however late it wakes up, makes nothing visible and loses nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat.actions import MAX_PREVIOUS
from strandline.tableformat.storage import open_storage
from tests.tables import events, memory_url
from tests.writers.rigs import (
    PATIENCE_S,
    Rig,
    close_now,
    ended,
    event,
    flush_once,
    logged,
    numbers,
    without_threads,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables import Place

LATER = {"flush_age": "1h"}


# --- the table's fence --------------------------------------------------------------------------


def test_a_fenced_table_takes_rows_of_writers_with_the_token_only(
    place: Place, tmp_path: Path
) -> None:
    """[O8] What a writer logged without it stays in the log until one comes that has it."""
    place.create()
    folder = tmp_path / "without"
    without = place.open().writer("b", wal=folder, **LATER)
    receipt = without.append(event(1))
    table = place.open()
    table.fence("token-1")
    with table.writer("a", wal=tmp_path / "with", fence="token-1", **LATER) as writer:
        assert writer.append(event(0)).wait(PATIENCE_S).first_seq == 0

    with pytest.raises(strandline.Fenced):
        receipt.wait(PATIENCE_S)
    ended(without)
    assert "token-1" not in f"{without.stats().last_error} {without!r} {without._options!r}"  # noqa: SLF001
    assert numbers(place.open().scan()) == [0]
    assert logged(folder) == [1]

    with pytest.raises(strandline.Fenced):
        place.open().writer("b", wal=folder)
    assert logged(folder) == [1]
    with place.open().writer("b", wal=folder, fence="token-1") as again:
        assert again.recovered.records == 1
    assert numbers(place.open().scan()) == [0, 1]


@pytest.mark.parametrize("token", [None, "token-0"])
def test_who_lacks_the_token_cannot_push_out_a_writer_that_has_it(
    tmp_path: Path, token: str | None
) -> None:
    """[O8] [COM-12] It fails when it opens, before it acknowledges a row; the other goes on."""
    rig = Rig()
    rig.table.fence("token-1")
    with rig.open().writer("w", wal=tmp_path / "new", fence="token-1", **LATER) as writer:
        writer.append(event(0)).wait(PATIENCE_S)
        version = rig.open().version

        with pytest.raises(strandline.Fenced):
            rig.open().writer("w", wal=tmp_path / "old", fence=token)

        assert rig.open().version == version
        assert writer.append(event(1)).wait(PATIENCE_S).first_seq == 1
    with pytest.raises(strandline.CommitConflict, match="the table carries none"):
        Rig().table.writer("w", wal=tmp_path / "other", fence="token-1")


def test_a_fence_that_is_set_while_a_writer_works_stops_it(tmp_path: Path) -> None:
    """[O8] What it committed before stays, what comes after does not get in."""
    rig = Rig()
    writer = rig.table.writer("a", wal=tmp_path / "wal", **LATER)
    writer.append(event(0)).wait(PATIENCE_S)
    rig.open().fence("token-2")
    receipt = writer.append(event(1))
    with pytest.raises(strandline.Fenced):
        receipt.wait(PATIENCE_S)
    ended(writer)
    assert numbers(rig.open().scan()) == [0]
    assert logged(tmp_path / "wal")[-1:] == [1]


# --- two writers of one id ----------------------------------------------------------------------


def test_opening_a_writer_id_again_fences_the_one_before(place: Place, tmp_path: Path) -> None:
    """[O8] The old one's next commit fails; its rows come back once, from its own log."""
    table = place.create()
    old = table.writer("w", wal=tmp_path / "old", **LATER)
    old.append(event(0)).wait(PATIENCE_S)
    old.append(event(1))
    new = place.open().writer("w", wal=tmp_path / "new", **LATER)
    new.append(event(10)).wait(PATIENCE_S)

    with pytest.raises(strandline.WriterFenced):
        old.flush(PATIENCE_S)
    ended(old)

    assert old.sync_state == "stale"
    assert numbers(place.open().scan()) == [0, 10]
    new.append(event(11)).wait(PATIENCE_S)
    assert new.close().committed
    for expected in (1, 0):
        with place.open().writer("w", wal=tmp_path / "old", **LATER) as again:
            assert again.recovered.records == expected
    assert numbers(place.open().scan()) == [0, 10, 11, 1]


@pytest.mark.parametrize("operation", ["write_new", "put_if_absent"])
def test_a_writer_that_stalls_on_its_way_to_the_commit_is_fenced_too(
    tmp_path: Path, operation: str
) -> None:
    """[O8] [C1] It wakes up with uploaded files and a manifest in its hand, and gets nowhere."""
    rig = Rig()
    zombie = rig.table.writer("w", wal=tmp_path / "old", **LATER)
    with rig.gate(operation) as gate:
        receipts = [zombie.append(event(0)), zombie.append(events(1, 3))]
        zombie._buffers.ask_for(zombie._buffers.active)  # noqa: SLF001 - as a receipt does
        gate.wait()
        with rig.open().writer("w", wal=tmp_path / "new", **LATER) as other:
            other.append(event(10)).wait(PATIENCE_S)
    for receipt in receipts:
        with pytest.raises(strandline.WriterFenced):
            receipt.wait(PATIENCE_S)
    ended(zombie)
    assert numbers(rig.open().scan()) == [10]
    assert logged(tmp_path / "old") == [0, 1, 2, 3]

    with rig.open().writer("w", wal=tmp_path / "old", **LATER) as again:
        assert (again.recovered.records, again.recovered.rows) == (2, 4)
        again.append(event(20))
    assert numbers(rig.open().scan()) == [10, 0, 1, 2, 3, 20]
    with rig.open().writer("w", wal=tmp_path / "old", **LATER) as again:
        assert again.recovered.records == 0
    assert numbers(rig.open().scan()) == [10, 0, 1, 2, 3, 20]


def test_a_writer_whose_commit_landed_before_it_was_replaced_is_not_repeated(
    tmp_path: Path,
) -> None:
    """[O8] [E2] It never learnt of its success; its log is recovered without doubling."""
    rig = Rig()
    zombie = rig.table.writer("w", wal=tmp_path / "old", **LATER)
    zombie.append(event(0))
    with rig.gate("never") as gate:
        landed = type(gate)("put_if_absent")
        rig.store.after = landed
        zombie._buffers.ask_for(zombie._buffers.active)  # noqa: SLF001
        landed.wait()
        zombie.append(event(1))
        with rig.open().writer("w", wal=tmp_path / "new", **LATER) as other:
            other.append(event(10))
        rig.store.after = lambda *_: None
        landed.opened.set()
    with pytest.raises(strandline.WriterFenced):
        zombie.flush(PATIENCE_S)
    ended(zombie)
    with rig.open().writer("w", wal=tmp_path / "old", **LATER) as again:
        assert again.recovered.records == 1
    assert numbers(rig.open().scan()) == [0, 10, 1]


def test_what_a_replaced_writer_goes_on_to_acknowledge_is_recovered_too() -> None:
    """[O8] [E2] In a store nothing locks it out: it logs on after its log was replayed once."""
    rig = Rig()
    wal = memory_url()
    old = rig.table.writer("w", wal=wal, **LATER)
    old.append(event(0)).wait(PATIENCE_S)
    expected = [0]
    for n in (1, 2, 3):
        old.append(event(n))  # acknowledged: it does not know yet that it was replaced
        with rig.open().writer("w", wal=wal, **LATER) as new:
            assert new.recovered.records == 1
            new.append(event(10 + n))
        expected += [n, 10 + n]
        assert numbers(rig.open().scan()) == expected
    with pytest.raises(strandline.WriterFenced):
        old.flush(PATIENCE_S)
    ended(old)
    with rig.open().writer("w", wal=wal, **LATER) as new:
        assert new.recovered.records == 0
    assert numbers(rig.open().scan()) == expected


def test_writers_of_different_ids_do_not_mind_each_other(place: Place, tmp_path: Path) -> None:
    """[O8] [C1] Their commits race, and all of them land."""
    place.create()
    writers = [
        place.open().writer(f"w{i}", wal=tmp_path / str(i), flush_rows=5, **LATER) for i in range(3)
    ]
    for n in range(30):
        writers[n % 3].append(event(n))
    for writer in writers:
        assert writer.close().committed
    found = numbers(place.open().scan())
    assert sorted(found) == list(range(30))
    for i in range(3):
        assert [n for n in found if n % 3 == i] == list(range(i, 30, 3))


def test_an_id_of_numbered_batches_cannot_be_a_writer(tmp_path: Path) -> None:
    """The two count different things; the message says what to do."""
    rig = Rig()
    rig.table.append(events(0, 1), writer_id="w", batch=1)
    with pytest.raises(strandline.CommitConflict, match="another writer_id"):
        rig.table.writer("w", wal=tmp_path / "wal")
    rig.table.writer("v", wal=tmp_path / "wal").close()


@pytest.mark.parametrize("seed", range(25))
def test_writers_that_share_a_log_in_a_store_lose_and_double_nothing(seed: int) -> None:
    """[O8] [E2] [E15] Any of them appends, commits, crashes or is replaced at any time."""
    chance = random.Random(seed)
    rig, wal = Rig(), memory_url()
    alive: list[list[Any]] = []
    acknowledged: list[int] = []
    with without_threads():
        for n in range(60):
            what = chance.choice(["open", "append", "append", "append", "flush", "crash"])
            if what == "open" or not alive:
                # One that was replaced more often than a position remembers has to be gone.
                alive = [[writer, claims + 1] for writer, claims in alive if claims < MAX_PREVIOUS]
                alive.append([rig.open().writer("w", wal=wal, **LATER), 0])
                continue
            entry = chance.choice(alive)
            if what == "append":
                entry[0].append(event(n))
                acknowledged.append(n)
            elif what == "crash":
                alive.remove(entry)
            elif entry[0]._buffers.uncommitted():  # noqa: SLF001
                try:
                    flush_once(entry[0])
                except strandline.WriterFenced:
                    alive.remove(entry)
        close_now(rig.open().writer("w", wal=wal, **LATER))
    assert sorted(numbers(rig.open().scan())) == acknowledged
    assert open_storage(wal).list("") == []
