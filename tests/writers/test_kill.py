"""A producer process is killed at any moment; what it was told it keeps, once and in order."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import S3Bucket

ROOT = Path(__file__).parents[2]
COLUMNS = {"thread": "int32", "n": "int64", "text": "string"}
MOST_ACKS = 600
STRIDE = 10**6
"""Each producer counts from a number of its own, so that rows tell who wrote them."""


class Nursery:
    """A process that forks producers on demand."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.writers.producer"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, job: dict[str, Any]) -> None:
        """Have a producer started."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def lines(self) -> Iterator[list[str]]:
        """What producer and nursery say, word by word, until the producer has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            yield words
            if words[0] == "ended":
                return
        raise AssertionError("the nursery has ended")

    def close(self) -> None:
        """End it; no producer is alive."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """One interpreter for all producers of this module."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@dataclass
class Victim:
    """A table, a log, and what all its producers were told so far."""

    url: str
    wal: dict[str, Any]
    storage_options: dict[str, Any] | None = None
    user: str | None = None
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    """Thread, first number, rows."""
    checked_seq: int = 0
    rounds: int = 0

    def live_and_die(self, nursery: Nursery, acks: int, flush_rows: int) -> None:
        """Start a producer and kill it once it has told us of so many appends.

        With none at all it is killed while it opens its table and replays its log.
        """
        job = {
            "url": self.url,
            "storage_options": self.storage_options,
            "wal": self.wal,
            "flush_rows": flush_rows,
            "user": self.user,
            "first": STRIDE * self.rounds,
        }
        self.rounds += 1
        nursery.ask(job)
        pid = seen = 0
        killed = False
        for words in nursery.lines():
            assert words[0] != "error", " ".join(words)
            if words[0] == "pid":
                pid = int(words[1])
            if words[0] == "ack":
                thread, first, rows = map(int, words[1:])
                self.acknowledged.append((thread, first, rows))
                seen += 1
            if words[0] == "ended":
                assert int(words[1]) == signal.SIGKILL
            if pid and seen >= acks and not killed:
                os.kill(pid, signal.SIGKILL)
                killed = True

    def recover_and_check(self) -> None:
        """Open the log again, as the next start of the service would, and count rows."""
        table = strandline.open_table(self.url, storage_options=self.storage_options)
        if self.user is not None:
            table = table.user(self.user)
        table.writer("p", wal=self.wal).close()
        rows = table.scan(start_seq=self.checked_seq).to_arrow()
        found = list(
            zip(rows.column("thread").to_pylist(), rows.column("n").to_pylist(), strict=True)
        )
        assert max(Counter(found).values(), default=1) == 1, "a row is there twice"
        told = {(thread, n + i) for thread, n, rows in self.acknowledged for i in range(rows)}
        assert told <= set(found), f"{len(told - set(found))} acknowledged rows are lost"
        assert rows.column("text").to_pylist() == [f"row {n}" for _, n in found]
        for thread in range(2):
            mine = [n for t, n in found if t == thread]
            assert mine == sorted(mine), f"rows of thread {thread} have changed places"
            self._check_no_gaps(mine)
        self.acknowledged.clear()
        self.checked_seq = table.tail().next_seq

    def _check_no_gaps(self, mine: list[int]) -> None:
        """A record that was lost between two others would show here, acknowledged or not."""
        for before, after in pairwise(mine):
            assert after == before + 1 or after % STRIDE == 0, f"{before}, then {after}"


def kill_many(nursery: Nursery, victim: Victim, times: int, seed: object) -> None:
    """Kill producers at random moments; sometimes two in a row before anybody looks."""
    chance = random.Random(str(seed))
    strandline.create_table(
        victim.url,
        COLUMNS,
        storage_options=victim.storage_options,
        scope="shared" if victim.user is None else "user",
    )
    for number in range(times):
        acks = chance.choice((0, 1, 2, chance.randrange(MOST_ACKS), chance.randrange(MOST_ACKS)))
        victim.live_and_die(nursery, acks, flush_rows=chance.choice((1, 7, 50, 10**6)))
        if chance.random() < 0.7 or number == times - 1:
            victim.recover_and_check()
    assert victim.checked_seq > 0


def on_disk(folder: Path, **wal: Any) -> Victim:
    """A table and a log on this machine."""
    return Victim(str(folder / "table"), {"dir": str(folder / "wal"), **wal})


def on_s3(bucket: S3Bucket, wal: dict[str, Any]) -> Victim:
    """A table on S3."""
    return Victim(bucket.url, wal, bucket.storage_options)


FSYNC = pytest.mark.parametrize("fsync", [False, True], ids=["no_fsync", "fsync"])


@FSYNC
def test_kills_on_a_disk(nursery: Nursery, tmp_path: Path, *, fsync: bool) -> None:
    """[E2] [E15] 10 kills: every acknowledged row is there once, in the order it was given."""
    kill_many(nursery, on_disk(tmp_path, fsync=fsync), 5, f"disk {fsync}")


def test_kills_of_a_users_producer(nursery: Nursery, tmp_path: Path) -> None:
    """[M9] [E2] [E15] 5 kills: a user's rows are as safe as those of a table."""
    victim = on_disk(tmp_path)
    victim.user = "ann/../é"
    kill_many(nursery, victim, 5, "user")


@pytest.mark.s3
@FSYNC
def test_kills_on_s3(nursery: Nursery, tmp_path: Path, s3_bucket: S3Bucket, *, fsync: bool) -> None:
    """[E2] [E15] 6 kills: the table in an object store, the log on a disk."""
    wal = {"dir": str(tmp_path / "wal"), "fsync": fsync}
    kill_many(nursery, on_s3(s3_bucket, wal), 3, f"s3 {fsync}")


@pytest.mark.s3
def test_kills_on_s3_with_the_log_there_too(nursery: Nursery, s3_bucket: S3Bucket) -> None:
    """[E2] [E15] 4 kills of a producer without a disk."""
    wal = {"dir": s3_bucket.url + "-wal", "storage_options": s3_bucket.storage_options}
    kill_many(nursery, on_s3(s3_bucket, wal), 4, "s3 log")


def _many(nursery: Nursery, tmp_path: Path, bucket: S3Bucket, times: int, seed: object) -> None:
    """Kills on every kind of place: seven of twenty on each disk, two on each kind of S3."""
    for fsync in (False, True):
        folder = tmp_path / f"fsync-{fsync}-{seed}"
        kill_many(nursery, on_disk(folder, fsync=fsync), 7 * times // 20, f"{seed} {fsync}")
        wal = {"dir": str(tmp_path / f"wal-{fsync}-{seed}"), "fsync": fsync}
        table = Victim(f"{bucket.url}-{fsync}", wal, bucket.storage_options)
        kill_many(nursery, table, times // 10, f"{seed} s3 {fsync}")
    wal = {"dir": f"{bucket.url}-wal", "storage_options": bucket.storage_options}
    kill_many(nursery, on_s3(bucket, wal), times // 10, f"{seed} s3 log")


@pytest.mark.proof
@pytest.mark.s3
def test_200_kills(nursery: Nursery, tmp_path: Path, s3_bucket: S3Bucket) -> None:
    """[E2] [E15] On disks with and without fsync and on S3."""
    _many(nursery, tmp_path, s3_bucket, 200, "proof")


@pytest.mark.soak
@pytest.mark.s3
@pytest.mark.parametrize("part", range(10))
def test_2000_kills(nursery: Nursery, tmp_path: Path, s3_bucket: S3Bucket, part: int) -> None:
    """[E2] [E15] In ten parts, with new moments each."""
    _many(nursery, tmp_path, s3_bucket, 200, f"soak {part}")
