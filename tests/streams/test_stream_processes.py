"""Several processes on one stream table, and processes that end without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import strandline
from tests.streams.rigs import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

PRODUCER = textwrap.dedent(
    """
    import sys, time, strandline
    table = strandline.open_table(sys.argv[1], kind="stream")
    name, count = sys.argv[2], int(sys.argv[3])
    n = 0
    while count == 0 or n < count:
        rows = [{"id": f"{name}-{n}-{i}", "x": n, "at": int(time.time() * 1000)} for i in range(3)]
        table.put("alice", rows, flush=True)
        print(n, flush=True)
        n += 1
    """
)


def start(url: Path, name: str, count: int) -> subprocess.Popen[str]:
    """A process that puts three rows at a time, and says so when they are flushed."""
    command = [sys.executable, "-c", PRODUCER, str(url), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_what_was_flushed_survives_kill_9(tmp_path: Path) -> None:
    """[K3] [K4] Killed at some moment of its puts: every acknowledged row is there, once."""
    url = tmp_path / "s"
    table = strandline.create_table(url, SCHEMA, kind="stream", ttl="15m", row_id="id")
    for turn in range(3):
        with start(url, f"p{turn}", 0) as producer:
            assert producer.stdout is not None
            for _ in range(20 + 7 * turn):
                producer.stdout.readline()
            os.kill(producer.pid, signal.SIGKILL)
            told = 20 + 7 * turn + sum(line.endswith("\n") for line in producer.stdout)

        ids = table.latest("alice", columns=["id"]).column("id").to_pylist()
        for n in range(told):
            assert all(f"p{turn}-{n}-{i}" in ids for i in range(3))
        assert len(ids) == len(set(ids))
        table.put("alice", [{"id": f"after-{turn}", "x": 0}], flush=True)
        assert f"after-{turn}" in table.latest("alice").column("id").to_pylist()


def test_processes_that_write_one_users_log_do_not_spoil_it(tmp_path: Path) -> None:
    """[K3] [K4] Three processes, one file: nothing is torn, lost or doubled."""
    url = tmp_path / "s"
    table = strandline.create_table(url, SCHEMA, kind="stream", ttl="15m", row_id="id")
    producers = [start(url, f"p{n}", 60) for n in range(3)]
    for producer in producers:
        with producer:
            assert producer.stdout is not None
            producer.stdout.read()
        assert producer.returncode == 0

    ids = table.latest("alice").column("id").to_pylist()
    expected = {f"p{p}-{n}-{i}" for p in range(3) for n in range(60) for i in range(3)}
    assert len(ids) == len(expected)
    assert set(ids) == expected


def test_a_forked_child_stores_nothing_of_its_parent(tmp_path: Path) -> None:
    """[K3] The child's copy of the buffers is dropped; the parent stores its rows itself."""
    table = strandline.create_table(
        tmp_path / "s", SCHEMA, kind="stream", ttl="15m", row_id="id", time_column="at"
    )
    now = int(time.time() * 1000)
    table.put("alice", [{"id": "a", "x": 1, "at": now}])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            table.put("alice", [{"id": "b", "x": 1, "at": now}])
        except strandline.WriterClosed:
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    (log,) = (tmp_path / "s").glob("w*/*/alice.log")
    assert log.read_bytes() == b""

    table.close()

    assert strandline.open_table(tmp_path / "s", kind="stream").latest("alice").num_rows == 1
