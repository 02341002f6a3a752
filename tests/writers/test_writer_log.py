"""The log on a disk: who may use it, what a sync promises, and what happens when the disk fails."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat.errors import LogFailed, LogInUse
from strandline.tableformat.schema import schema_from
from strandline.writers import wal_files
from strandline.writers.log import LogOptions, read_log
from strandline.writers.wal_files import FileLog, LogFolder, PrivateDisk
from strandline.writers.wal_frames import JSON_ROWS, LogHeader, frame, json_payload
from tests.tables import events
from tests.writers.rigs import PATIENCE_S, Rig, event, log_names, logged, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATER = {"flush_age": "1h"}


class TestDisk(PrivateDisk):
    """The real disk, with a place to step in before each call."""

    __test__ = False

    def __init__(self) -> None:
        self.before: Callable[[str], None] = lambda _: None
        self.calls: list[str] = []

    def _step(self, name: str) -> None:
        self.calls.append(name)
        self.before(name)

    def open_new(self, path: str) -> int:
        self._step("open_new")
        return super().open_new(path)

    def write(self, fd: int, data: memoryview | bytes) -> None:
        try:
            self._step("write")
        except OSError:
            super().write(fd, bytes(data)[: len(data) // 2])  # a full disk takes a part
            raise
        super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        self._step("close")
        super().close(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> TestDisk:
    """The disk under every log that is opened in this test."""
    disk = TestDisk()
    monkeypatch.setattr(wal_files, "PrivateDisk", lambda: disk)
    return disk


def fail(code: int, *names: str) -> Callable[[str], None]:
    """Let these calls fail as a system would."""

    def step(name: str) -> None:
        if name in names:
            raise OSError(code, os.strerror(code))

    return step


def nothing(_: str) -> None:
    """Let the disk work."""


# --- whose log it is ----------------------------------------------------------------------------


def test_only_its_owner_can_read_a_log(tmp_path: Path) -> None:
    """[E2] Rows stand in it in the clear: files 0600, folders 0700."""
    folder = tmp_path / "deep" / "wal"
    rig = Rig()
    with rig.table.writer("w", wal=folder, **LATER) as writer:
        writer.append(event(0))
        for path in (folder, folder.parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_log_belongs_to_one_writer_at_a_time(tmp_path: Path) -> None:
    """[E2] A second one is refused, here and in another process; afterwards it is free."""
    rig = Rig(url=str(tmp_path / "table"))
    folder = tmp_path / "wal"
    attempt = (
        "import sys, strandline\n"
        "try:\n"
        "    strandline.open_table(sys.argv[1]).writer('w', wal=sys.argv[2]).close()\n"
        "except strandline.LogInUse as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", attempt, rig.url, str(folder)]
    with rig.table.writer("w", wal=folder, **LATER) as writer:
        writer.append(event(0))
        with pytest.raises(LogInUse, match="of this process"):
            rig.open().writer("w", wal=folder)
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "of this process or of another process" in told
        # Refused before it could claim the id: the first one goes on.
        writer.flush(PATIENCE_S)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
    assert numbers(rig.open().scan()) == [0]


def test_a_log_of_another_table_or_writer_is_not_touched(tmp_path: Path) -> None:
    """[E2] It is named, and its rows stay where they are."""
    folder = tmp_path / "wal"
    rig, other = Rig(), Rig()
    writer = rig.table.writer("w", wal=folder, **LATER)
    writer.append(event(0))
    rig.break_store("put_if_absent")
    assert not writer.close(timeout=0).committed
    writer._flusher.thread.join(PATIENCE_S)  # noqa: SLF001 - the log is free when it has ended
    rig.mend_store()

    with pytest.raises(strandline.InvalidInput, match="belongs to another table"):
        other.table.writer("w", wal=folder)
    with pytest.raises(strandline.InvalidInput, match="belongs to writer 'w'"):
        rig.table.writer("v", wal=folder)
    assert logged(folder) == [0]
    rig.table.writer("w", wal=folder).close()
    assert numbers(rig.open().scan()) == [0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "file").write_bytes(b"")
    rig = Rig()
    with pytest.raises(LogFailed, match="file/wal"):
        rig.table.writer("w", wal=tmp_path / "file" / "wal")


# --- sync ---------------------------------------------------------------------------------------


def test_threads_that_wait_for_a_sync_share_the_next_one(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] Group commit: while one sync runs all others write, and one more serves them all."""
    rig = Rig()
    wal = {"dir": tmp_path / "wal", "fsync": True}
    with rig.table.writer("w", wal=wal, **LATER) as writer:
        reached, go_on = threading.Event(), threading.Event()

        def block(name: str) -> None:
            if name == "fsync":
                reached.set()
                assert go_on.wait(PATIENCE_S)

        disk.before = block
        returned: list[int] = []

        def produce(n: int) -> None:
            writer.append(event(n))
            returned.append(n)

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
        threads[0].start()
        assert reached.wait(PATIENCE_S)
        for thread in threads[1:]:
            thread.start()
        while writer.stats().records < 8:
            assert not returned
        assert returned == []  # nobody is told before the disk has it
        before = disk.calls.count("fsync")
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(returned) == 8
        assert disk.calls.count("fsync") - before <= 2
        assert writer.stats().wal_syncs <= 3
        disk.before = nothing


def test_every_record_is_synced_before_its_append_returns(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] One thread: one sync each; with `fsync_every_n`, one for n."""
    rig = Rig()
    for every, expected in ((1, 6), (3, 2)):
        wal = {"dir": tmp_path / str(every), "fsync": True, "fsync_every_n": every}
        with rig.table.writer("w", wal=wal, **LATER) as writer:
            disk.calls.clear()
            for n in range(6):
                writer.append(event(n))
            assert disk.calls.count("fsync") == expected
            assert disk.calls.count("write") == 6


def test_without_fsync_nothing_is_synced(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] The end of a process does not need it."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        disk.calls.clear()
        for n in range(6):
            writer.append(event(n))
        assert disk.calls == ["write"] * 6


def test_a_sync_that_fails_stops_the_log(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] [E15] What could not be written may be dropped: a later sync proves nothing."""
    rig = Rig()
    wal = {"dir": tmp_path / "wal", "fsync": True}
    writer = rig.table.writer("w", wal=wal, **LATER)
    writer.append(event(0))
    disk.before = fail(errno.EIO, "fsync")
    with pytest.raises(LogFailed, match="may be committed all the same"):
        writer.append(event(1))
    disk.before = nothing
    for _ in range(2):
        with pytest.raises(LogFailed, match="takes no more records"):
            writer.append(event(2))
    writer.flush(PATIENCE_S)  # what is in memory needs no log
    assert writer.close().committed
    with rig.table.writer("w", wal=wal, **LATER) as again:
        again.append(event(3))
    assert numbers(rig.open().scan()) == [0, 1, 3]


# --- a disk that is full ------------------------------------------------------------------------


def test_a_full_disk_refuses_rows_and_keeps_what_it_acknowledged(
    tmp_path: Path, disk: TestDisk
) -> None:
    """[E2] [E15] Nothing acknowledged is lost, nothing refused appears, and it goes on after."""
    rig = Rig()
    folder = tmp_path / "wal"
    writer = rig.table.writer("w", wal=folder, **LATER)
    writer.append(event(0))
    writer.append([event(1), event(2)])
    disk.before = fail(errno.ENOSPC, "write", "open_new")
    for rows in (event(8), [event(9)]):
        with pytest.raises(LogFailed, match=r"No space left.*not acknowledged"):
            writer.append(rows)
    disk.before = nothing
    writer.append(event(3))
    writer.append([event(4)])
    assert logged(folder) == [0, 1, 2, 3, 4]
    assert writer.stats().records == 4
    assert writer.close().committed
    assert numbers(rig.open().scan()) == [0, 1, 2, 3, 4]
    assert log_names(folder) == []


def test_a_full_disk_does_not_keep_rows_from_the_table(tmp_path: Path, disk: TestDisk) -> None:
    """[E15] [E3] Without room for a new log file, what is in memory is committed all the same."""
    rig = Rig()
    folder = tmp_path / "wal"
    with rig.table.writer("w", wal=folder, flush_rows=2, **LATER) as writer:
        disk.before = fail(errno.ENOSPC, "open_new")
        receipts = [writer.append(event(n)) for n in range(2)]
        assert [receipt.wait(PATIENCE_S).first_seq for receipt in receipts] == [0, 1]
        with pytest.raises(LogFailed):
            writer.append(event(8))
        disk.before = nothing
        receipts = [writer.append(event(n)) for n in range(2, 5)]
        writer.flush(PATIENCE_S)
    assert numbers(rig.open().scan()) == [0, 1, 2, 3, 4]


def test_records_before_a_torn_one_are_synced(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] A thread that wrote before the disk was full is told only what is true."""
    log = FileLog(LogFolder(str(tmp_path / "wal")), LogOptions(fsync=True))
    log.begin(header(1))
    log.write(row(1), 1)
    disk.before = fail(errno.ENOSPC, "write")
    with pytest.raises(LogFailed):
        log.write(row(2), 2)
    disk.before = nothing
    disk.calls.clear()
    log.write(row(2), 2)
    assert disk.calls[:2] == ["fsync", "close"]  # the old file, before the new one is begun
    log.sync_until(1)
    log.close()


def header(first: int, **columns: str) -> LogHeader:
    """The beginning of a file of one column, or of these."""
    return LogHeader(
        table_uuid="a" * 32,
        writer_id="w",
        incarnation="b" * 32,
        first_record=first,
        schema=schema_from({"n": "int64", **columns}),
    )


def row(number: int) -> bytes:
    """A record whose one row is its number."""
    return frame(number, 0, JSON_ROWS, json_payload([[number]]))


def written(folder: Path) -> list[int]:
    """The numbers of all records in a folder, which must be sound."""
    return [
        record.number
        for file in read_log((name, (folder / name).read_bytes()) for name in log_names(folder))
        for record in file.records
    ]


# --- gathered records -----------------------------------------------------------------------------


def test_gathered_records_are_written_together(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] When the buffer is full, when asked, and when the log is closed or begins a file."""
    folder = tmp_path / "wal"
    options = LogOptions(buffered=True, buffer_size=3 * len(row(1)))
    log = FileLog(LogFolder(str(folder)), options)
    log.begin(header(1))
    disk.calls.clear()
    for n in (1, 2, 3):
        log.write(row(n), n)
    assert disk.calls == []
    log.write(row(4), 4)
    assert (disk.calls, written(folder)) == (["write"], [1, 2, 3])
    log.flush()
    assert written(folder) == [1, 2, 3, 4]
    log.write(row(5), 5)
    log.begin(header(6))
    assert written(folder) == [1, 2, 3, 4, 5]
    log.write(row(6), 6)
    log.close()
    assert written(folder) == [1, 2, 3, 4, 5, 6]


def test_flush_each_write_gathers_nothing(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] The same as no buffer at all; so does `ack="wal"`, whose every append is a promise."""
    log = FileLog(LogFolder(str(tmp_path / "a")), LogOptions(buffered=True, flush_each_write=True))
    log.begin(header(1))
    disk.calls.clear()
    log.write(row(1), 1)
    assert disk.calls == ["write"]
    log.close()


@pytest.mark.parametrize(
    "wal", [{}, {"buffered": True}, {"buffered": True, "fsync": True}], ids=str
)
def test_a_record_that_was_refused_is_not_written_later(
    tmp_path: Path, disk: TestDisk, wal: dict[str, Any]
) -> None:
    """[E2] Its number belongs to the next one; two of a kind would spoil the log."""
    rig = Rig()
    folder = tmp_path / "wal"
    with rig.table.writer("w", wal={"dir": folder, **wal}, **LATER) as writer:
        writer.append(event(0))
        disk.before = fail(errno.ENOSPC, "write")
        with pytest.raises(LogFailed):
            writer.append(event(8))
        disk.before = nothing
        writer.append(event(1))
        writer.append(events(2, 2))
        assert logged(folder) == [0, 1, 2, 3]


def test_what_was_gathered_survives_a_full_disk_in_order(tmp_path: Path, disk: TestDisk) -> None:
    """[E2] Files that could not be begun leave no gap and no mixture behind."""
    folder = tmp_path / "wal"
    log = FileLog(LogFolder(str(folder)), LogOptions(buffered=True))
    log.begin(header(1))
    log.write(row(1), 1)
    disk.before = fail(errno.ENOSPC, "open_new")
    with pytest.raises(LogFailed):
        log.begin(header(2))
    log.write(row(2), 2)
    disk.before = nothing
    log.begin(header(3))
    log.write(row(3), 3)
    disk.before = fail(errno.ENOSPC, "write")
    with pytest.raises(LogFailed):
        log.flush()
    log.write(row(4), 4)
    disk.before = nothing
    log.flush()
    log.close()
    assert written(folder) == [1, 2, 3, 4]


def test_a_file_for_new_columns_that_failed_leaves_the_old_ones_in_use(
    tmp_path: Path, disk: TestDisk
) -> None:
    """[E2] Rows under the old columns must not be read under the new ones."""
    rig = Rig()
    folder = tmp_path / "wal"
    writer = rig.table.writer("w", wal=folder, **LATER)
    writer.append(event(0))
    rig.open().evolve(add={"extra": "int64"})
    disk.before = fail(errno.ENOSPC, "open_new")
    with pytest.raises(LogFailed):
        writer.append(event(8, extra=1))
    disk.before = nothing
    with writer._buffers.changed:  # noqa: SLF001 - a thread that still knows the old columns
        old = writer._buffers.active.schema  # noqa: SLF001
    taken = writer._buffers.add_table(  # noqa: SLF001
        events(1, 1), old, arrived_ms=0, timeout_s=0
    )
    assert taken[1] == 1
    assert logged(folder) == [0, 1]
    writer.append(event(2, extra=2))
    assert writer.close().committed
    found = rig.open().scan(columns=["n", "extra"]).to_arrow().to_pylist()
    assert [tuple(r.values()) for r in found] == [(0, None), (1, None), (2, 2)]


# --- pruning ------------------------------------------------------------------------------------


def test_only_files_whose_records_are_all_committed_go(tmp_path: Path) -> None:
    """[E3] A file ends where the next begins; the one that is written to stays."""
    folder = tmp_path / "wal"
    log = FileLog(LogFolder(str(folder)), LogOptions())
    for first in (1, 3, 5):
        log.begin(header(first))
        for n in (first, first + 1):
            log.write(row(n), n)
    remaining = []
    for committed in (1, 2, 3, 4, 6):
        log.prune(committed)
        remaining.append(written(folder))
    assert remaining == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6], [3, 4, 5, 6], [5, 6], [5, 6]]
    log.close(finished=True)
    assert log_names(folder) == []


def test_a_file_that_cannot_be_removed_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E3] [E15] The rows are in the table; the next open finds the file and removes it."""
    rig = Rig()
    folder = tmp_path / "wal"

    def refuse(_: PrivateDisk, path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patch:
        patch.setattr(PrivateDisk, "unlink", refuse)
        with rig.table.writer("w", wal=folder, flush_rows=1, **LATER) as writer:
            for n in range(3):
                writer.append(event(n)).wait(PATIENCE_S)
        assert log_names(folder)
    with rig.table.writer("w", wal=folder, **LATER) as again:
        assert again.recovered.records == 0
        assert again.recovered.already == 3
    assert numbers(rig.open().scan()) == [0, 1, 2]
