"""A writer ends at any point; opening its log again loses nothing and doubles nothing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.place import TablePlace
from strandline.tableformat.errors import DamagedLog, LogFailed, WriterPositionLost
from strandline.writers import recovery
from strandline.writers.recovery import Recovered, recover
from strandline.writers.wal_files import LogFolder, PrivateDisk
from tests.faults.kinds import SimulatedCrash
from tests.tables import events
from tests.writers.rigs import (
    Rig,
    close_now,
    crash,
    event,
    flush_once,
    log_names,
    logged,
    numbers,
    without_threads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.writers.writer import Writer

LATER = {"flush_age": "1h"}


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    with without_threads():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the log lies."""
    return tmp_path / "wal"


def open_writer(rig: Rig, folder: Path, **options: Any) -> Writer:
    """A writer in a new process: a handle of its own."""
    return rig.open().writer("w", wal=folder, **{**LATER, **options})


def reopen(rig: Rig, folder: Path) -> Recovered:
    """What the next start finds, and does."""
    writer = open_writer(rig, folder)
    close_now(writer)
    assert log_names(folder) == []
    return writer.recovered


def crash_at(operation: str, *, times: int = 1) -> Any:
    """End the process when it comes to this operation for the n-th time."""
    seen = 0

    def step(name: str, path: str) -> None:
        nonlocal seen
        del path
        if name == operation:
            seen += 1
            if seen == times:
                raise SimulatedCrash

    return step


# --- the failure model --------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [0.0, 0.4, 0.99])
def test_a_crash_before_the_log_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, torn: float
) -> None:
    """[E15] The append never returned, and a part of a record is no record."""
    rig = Rig()
    writer = open_writer(rig, folder)
    writer.append(event(0))
    write = PrivateDisk.write

    def torn_write(disk: PrivateDisk, fd: int, data: Any) -> None:
        write(disk, fd, bytes(data)[: int(len(data) * torn)])
        raise SimulatedCrash

    with monkeypatch.context() as patch:
        patch.setattr(PrivateDisk, "write", torn_write)
        with pytest.raises(SimulatedCrash):
            writer.append(event(1))
    crash(writer)

    assert reopen(rig, folder) == Recovered(records=1, rows=1, already=0)
    assert numbers(rig.open().scan()) == [0]


def test_a_crash_after_the_log_loses_nothing(folder: Path) -> None:
    """[E15] [E2] Rows that were acknowledged are committed by the next start."""
    rig = Rig()
    writer = open_writer(rig, folder)
    for n in range(3):
        writer.append(event(n))
    writer.append(events(3, 4))
    crash(writer)

    assert numbers(rig.open().scan()) == []
    assert reopen(rig, folder) == Recovered(records=4, rows=7, already=0)
    assert numbers(rig.open().scan()) == list(range(7))
    assert reopen(rig, folder) == Recovered()


@pytest.mark.parametrize(
    ("when", "operation"),
    [
        ("before", "write_new"),
        ("after", "write_new"),
        ("before", "put_if_absent"),
        ("after", "put_if_absent"),
    ],
)
@pytest.mark.parametrize("flushed_before", [False, True])
def test_a_crash_during_a_flush_loses_and_doubles_nothing(
    folder: Path, when: str, operation: str, *, flushed_before: bool
) -> None:
    """[E15] [E2] Before and after the upload, before and after the commit itself."""
    rig = Rig()
    writer = rig.table.writer("w", wal=folder, **LATER)
    writer.append(event(0))
    if flushed_before:
        flush_once(writer)
    writer.append(event(1))
    writer.append(events(2, 2))
    setattr(rig.store, when, crash_at(operation))
    with pytest.raises(SimulatedCrash):
        flush_once(writer)
    crash(writer)
    rig.store.before = rig.store.after = lambda *_: None

    landed = (when, operation) == ("after", "put_if_absent")
    assert numbers(rig.open().scan()) == ([0, 1, 2, 3] if landed else [0] * flushed_before)
    recovered = reopen(rig, folder)
    assert recovered.records == (0 if landed else 3 - flushed_before)
    assert numbers(rig.open().scan()) == [0, 1, 2, 3]


def test_a_crash_after_the_commit_and_before_the_log_is_pruned_doubles_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E15] [E3] The log still has rows that the table has too: its position tells."""
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=2)
    for n in range(5):
        writer.append(event(n))

    def crash_instead(*_: object) -> None:
        raise SimulatedCrash

    with monkeypatch.context() as patch:
        patch.setattr(PrivateDisk, "unlink", crash_instead)
        with pytest.raises(SimulatedCrash):
            flush_once(writer)
    crash(writer)

    assert numbers(rig.open().scan()) == [0, 1]
    assert logged(folder) == [0, 1, 2, 3, 4]
    assert reopen(rig, folder) == Recovered(records=3, rows=3, already=2)
    assert numbers(rig.open().scan()) == [0, 1, 2, 3, 4]


# --- replay -------------------------------------------------------------------------------------


def test_replay_may_group_records_differently(folder: Path) -> None:
    """[E2] One file had become two commits, and only the first of them had landed."""
    rig = Rig(ttl="1d")
    writer = rig.table.writer("w", wal=folder, **LATER)
    for i in range(3):
        writer.append(events(200 * i, 200, step_ms=3_600_000))
    writer.append(event(600))
    rig.store.before = crash_at("put_if_absent", times=2)
    with pytest.raises(SimulatedCrash):
        flush_once(writer)
    crash(writer)
    rig.store.before = lambda *_: None
    assert numbers(rig.open().scan()) == list(range(200))

    assert reopen(rig, folder) == Recovered(records=3, rows=401, already=1)
    assert numbers(rig.open().scan()) == list(range(601))


def test_replay_reads_old_columns_by_their_ids(folder: Path) -> None:
    """[E2] The table changed while the log waited; both of its schemas are in the log."""
    rig = Rig()
    writer = open_writer(rig, folder)
    writer.append(event(0))
    rig.open().evolve(add={"extra": "int64"}, rename={"amount": "price"})
    writer.append({"n": 1, "extra": 5, "price": 0.5, "ts": event(1)["ts"]})
    writer.append({"n": 2, "extra": 6, "price": None, "ts": event(2)["ts"], "user": "x"})
    crash(writer)
    rig.open().evolve(drop=["user"], widen={}, reorder=["extra"], comments={"n": "number"})

    assert reopen(rig, folder).records == 3
    rows = rig.open().scan(columns=["n", "price", "extra"]).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(0, 0.0, None), (1, 0.5, 5), (2, None, 6)]


def test_looking_changes_nothing(folder: Path) -> None:
    """[E2] `dry_run` counts what a replay would bring."""
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=2)
    for n in range(3):
        writer.append(event(n))
    crash(writer)
    version = rig.open().version

    place = LogFolder(str(folder))
    found = recover(TablePlace(rig.open()), "w", place, dry_run=True)
    place.release()

    assert found == Recovered(records=3, rows=3, already=0)
    assert logged(folder) == [0, 1, 2]
    assert rig.open().version == version
    assert reopen(rig, folder) == found


def test_a_damaged_log_is_neither_replayed_nor_removed(folder: Path) -> None:
    """[E2] A hole in the middle: an error that names the file, and everything stays."""
    rig = Rig()
    writer = open_writer(rig, folder)
    for n in range(4):
        writer.append(event(n))
    crash(writer)
    (name,) = log_names(folder)
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / name).write_bytes(data)
    version = rig.open().version

    for _ in range(2):
        with pytest.raises(DamagedLog, match=name):
            open_writer(rig, folder)

    assert (folder / name).read_bytes() == data
    assert rig.open().version == version


def test_a_log_whose_first_file_is_gone_is_not_replayed(folder: Path) -> None:
    """[E2] Records between the table's position and the log would be lost without a word."""
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=2)
    for n in range(5):
        writer.append(event(n))
    crash(writer)
    (folder / log_names(folder)[0]).unlink()

    with pytest.raises(strandline.WriterPositionConflict, match="stored position is 0"):
        open_writer(rig, folder)
    assert logged(folder) == [2, 3, 4]
    assert numbers(rig.open().scan()) == []


# --- the position is gone -----------------------------------------------------------------------


def left_behind(rig: Rig, folder: Path) -> None:
    """A log of four records, of which two are in the table, and which the table has forgotten."""
    writer = open_writer(rig, folder, flush_records=2)
    for n in range(4):
        writer.append(event(n))
    flush_once(writer)
    crash(writer)
    for i in range(6):
        close_now(open_writer(rig, folder.parent / f"other-{i}"))


def test_a_position_that_is_gone_is_an_error_and_nothing_is_replayed(folder: Path) -> None:
    """[E2] Guessing could double rows or lose them; the log stays until somebody answers."""
    rig = Rig()
    left_behind(rig, folder)
    version, kept = rig.open().version, logged(folder)

    for _ in range(2):
        with pytest.raises(WriterPositionLost):
            open_writer(rig, folder)

    assert logged(folder) == kept == [2, 3]
    assert rig.open().version == version
    assert numbers(rig.open().scan()) == [0, 1]


def test_whoever_knows_what_arrived_can_say_so(folder: Path) -> None:
    """[E2] `committed_up_to` names the newest record that is in the table."""
    rig = Rig()
    left_behind(rig, folder)
    place = LogFolder(str(folder))
    for wrong in (0, 5, -1):
        with pytest.raises(strandline.InvalidInput, match="records 3 to 4"):
            recover(TablePlace(rig.open()), "w", place, committed_up_to=wrong)
    assert logged(folder) == [2, 3]

    done = recover(TablePlace(rig.open()), "w", place, committed_up_to=3)
    place.release()

    assert done == Recovered(records=1, rows=1, already=1)
    assert log_names(folder) == []
    assert numbers(rig.open().scan()) == [0, 1, 3]


@pytest.mark.parametrize("said_again", [None, 3, 2])
def test_a_replay_that_somebody_answered_for_can_be_interrupted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said_again: int | None
) -> None:
    """[E2] [E15] The first answer, the second and none: what the replay has done is known."""
    monkeypatch.setattr(recovery, "MOST_BYTES_AT_ONCE", 1)
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=1, passive_memtables=9)
    for n in range(6):
        writer.append(event(n))
    for _ in range(2):
        flush_once(writer)
    crash(writer)
    for i in range(6):
        close_now(open_writer(rig, folder.parent / f"other-{i}"))
    place = LogFolder(str(folder))
    rig.store.before = crash_at("put_if_absent", times=3)  # the claim, record 3, record 4
    with pytest.raises(SimulatedCrash):
        recover(TablePlace(rig.table.refresh()), "w", place, committed_up_to=2)
    rig.store.before = lambda *_: None
    assert numbers(rig.open().scan()) == [0, 1, 2]

    done = recover(TablePlace(rig.open()), "w", place, committed_up_to=said_again)
    place.release()

    assert done == Recovered(records=3, rows=3, already=1)
    assert numbers(rig.open().scan()) == [0, 1, 2, 3, 4, 5]


def test_a_log_of_many_small_files_is_replayed_in_few_commits(folder: Path) -> None:
    """[E2] A log in a store is one object per sync; one commit for each would take minutes."""
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=1, passive_memtables=99)
    for n in range(20):
        writer.append(event(n))
    crash(writer)
    assert len(log_names(folder)) > 20
    version = rig.open().version

    place = LogFolder(str(folder))
    done = recover(TablePlace(rig.table.refresh()), "w", place)
    place.release()

    assert done == Recovered(records=20, rows=20)
    assert rig.open().version == version + 1
    assert numbers(rig.open().scan()) == list(range(20))


# --- a recovery that is interrupted itself ------------------------------------------------------


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", ["write_new", "put_if_absent"])
def test_recovery_can_be_interrupted_anywhere_and_begun_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, operation: str, when: str, *, taken_over: bool
) -> None:
    """[E15] [E2] At the first upload or commit, the second, and so on, until it comes through."""
    monkeypatch.setattr(recovery, "MOST_BYTES_AT_ONCE", 1)
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=1, passive_memtables=9)
    for n in range(7):
        writer.append(event(n))
    flush_once(writer)
    crash(writer)
    if taken_over:
        close_now(open_writer(rig, folder.parent / "other"))
    crashes = 0
    while True:
        setattr(rig.store, when, crash_at(operation, times=1 + crashes))
        try:
            place = LogFolder(str(folder))
            recover(TablePlace(rig.table.refresh()), "w", place)
        except SimulatedCrash:
            crashes += 1
            place.release()
            assert crashes < 20
            continue
        place.release()
        break
    rig.store.before = rig.store.after = lambda *_: None
    assert crashes >= 2
    assert numbers(rig.open().scan()) == list(range(7))
    assert reopen(rig, folder) == Recovered()
    assert numbers(rig.open().scan()) == list(range(7))


@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("position", range(4))
def test_files_that_could_not_be_removed_are_recognised(
    folder: Path, monkeypatch: pytest.MonkeyPatch, position: int, *, taken_over: bool
) -> None:
    """[E15] [E3] Replayed and committed, but the disk refused to forget some of them."""
    rig = Rig()
    writer = open_writer(rig, folder, flush_records=2, passive_memtables=9)
    for n in range(7):
        writer.append(event(n))
    crash(writer)
    if taken_over:
        close_now(open_writer(rig, folder.parent / "other"))
    removed = 0
    unlink = PrivateDisk.unlink

    def refuse(disk: PrivateDisk, path: str) -> None:
        nonlocal removed
        if removed == position:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        removed += 1
        unlink(disk, path)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateDisk, "unlink", refuse)
        with pytest.raises(LogFailed):
            open_writer(rig, folder)
    assert numbers(rig.open().scan()) == list(range(7))
    again = reopen(rig, folder)
    assert (again.records, numbers(rig.open().scan())) == (0, list(range(7)))
