"""Writers whose process forks, and whose program ends without closing them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.writers.wal_files import FileLog
from tests.tables import memory_url
from tests.writers.rigs import (
    PATIENCE_S,
    Rig,
    crash,
    ended,
    event,
    log_names,
    logged,
    numbers,
    without_threads,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from strandline.writers.receipts import Receipt
    from strandline.writers.writer import Writer

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
LATER = {"flush_age": "1h"}


def in_child(job: Callable[[], object]) -> str:
    """What a forked child says: the job's result, or its error."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = str(job())
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            said = f"{type(error).__name__}: {error}"
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with open(reads, encoding="utf-8") as answer:  # noqa: PTH123 - a pipe
        said = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.mark.parametrize("rows", [event(100), [event(100), event(101)]], ids=["row", "batch"])
@pytest.mark.parametrize("in_store", [False, True])
def test_a_forked_child_appends_nothing_and_the_parent_goes_on(
    tmp_path: Path, rows: Any, *, in_store: bool
) -> None:
    """[E2] Its records would take the parent's numbers, and the log could not be replayed."""
    rig = Rig(url=str(tmp_path / "table"))
    wal = memory_url() if in_store else tmp_path / "wal"
    with without_threads():
        writer = rig.table.writer("w", wal=wal, ack="buffered", **LATER)
    writer.append(event(0))

    for _ in range(2):
        said = in_child(lambda: writer.append(rows))
        assert said.startswith("WriterClosed: ")
        assert "forked" in said

    writer.append(event(1))
    if in_store:
        return  # memory is no store that two processes share; the refusal is all there is to see
    crash(writer)
    assert logged(tmp_path / "wal") == [0, 1]
    with rig.open().writer("w", wal=wal) as again:
        assert again.recovered.records == 2
    assert numbers(rig.open().scan()) == [0, 1]


def test_a_forked_child_that_leaves_takes_nothing_along(tmp_path: Path) -> None:
    """[T9] Closing, flushing, waiting and looking neither hang nor touch the parent's rows."""
    rig = Rig(url=str(tmp_path / "table"))
    with rig.table.writer("w", wal={"dir": tmp_path / "wal", "fsync": True}, **LATER) as writer:
        receipt = writer.append(event(0))

        def leave(writer: Writer = writer, receipt: Receipt = receipt) -> str:
            with pytest.raises(strandline.WriterClosed, match="forked"):
                receipt.wait(PATIENCE_S)
            writer.flush(PATIENCE_S)
            with writer:
                stats = writer.stats()
            return f"{writer.close().committed} {stats.sync_state} {stats.rows_pending}"

        assert in_child(leave) == "True stale 0"
        assert logged(tmp_path / "wal") == [0]
        assert writer.append(event(1)).wait(PATIENCE_S).first_seq == 1
    assert numbers(rig.open().scan()) == [0, 1]


def test_a_forked_child_may_open_a_writer_of_its_own(tmp_path: Path) -> None:
    """[E4] Other id, other log, threads of its own."""
    rig = Rig(url=str(tmp_path / "table"))
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(event(0))

        def write() -> int:
            with rig.open().writer("child", wal=tmp_path / "child") as own:
                return own.append(event(10)).wait(PATIENCE_S).first_seq

        assert in_child(write) == "0"
    assert numbers(rig.open().scan()) == [10, 0]


def test_a_writer_that_is_closed_lets_forked_children_alone(tmp_path: Path) -> None:
    """The numbers of its files mean other files by then, such as those of a new process."""
    rig = Rig(url=str(tmp_path / "table"))
    writer = rig.table.writer("w", wal=tmp_path / "wal", **LATER)
    writer.append(event(0))
    log = writer._log  # noqa: SLF001
    assert isinstance(log, FileLog)
    held = {log._fd, log._folder._lock}  # noqa: SLF001
    assert writer.close().committed
    ended(writer)
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(64)]
    assert held <= set(others)

    assert in_child(lambda: len([os.fstat(other) for other in others])) == "64"

    for other in others:
        os.close(other)


def test_a_child_that_outlives_a_killed_parent_does_not_keep_its_log(tmp_path: Path) -> None:
    """[E2] A worker process that was forked on the way may run for days."""
    program = f"""
import os, sys, strandline
table = strandline.create_table({str(tmp_path / "table")!r}, {{"n": "int64"}})
writer = table.writer("w", wal={str(tmp_path / "wal")!r}, flush_age="1h")
writer.append({{"n": 1}})
if os.fork():
    os._exit(1)
print("ready", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.wait(PATIENCE_S)
        table = strandline.open_table(tmp_path / "table")
        assert table.recover("w", tmp_path / "wal").records == 1
        assert numbers(table.scan()) == [1]


@pytest.mark.parametrize("leaves", ["", "sys.exit(0)", "os._exit(0)"])
def test_a_program_that_ends_closes_its_writers(tmp_path: Path, leaves: str) -> None:
    """[T9] Only one that is torn away leaves its rows in the log."""
    program = f"""
import os, sys, strandline
table = strandline.create_table({str(tmp_path / "table")!r}, {{"n": "int64"}})
writer = table.writer("w", wal={str(tmp_path / "wal")!r}, flush_age="1h")
writer.append({{"n": 1}})
{leaves}
"""
    subprocess.run([sys.executable, "-c", program], check=True)

    torn_away = leaves.startswith("os")
    assert (log_names(tmp_path / "wal") == []) is not torn_away
    table = strandline.open_table(tmp_path / "table")
    assert numbers(table.scan()) == ([] if torn_away else [1])
