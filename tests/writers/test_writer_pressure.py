"""A store that is slow or down slows producers; memory stays bounded, and no row is lost."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.catalog.runtime import REAL
from strandline.tableformat.errors import AccessDenied, StorageFailed, StoreBusy
from strandline.writers import flusher
from strandline.writers.receipts import Receipt
from strandline.writers.tuning import Tuning
from tests.tables import events
from tests.writers.rigs import (
    PATIENCE_S,
    Rig,
    close_now,
    ended,
    event,
    flush_once,
    in_threads,
    logged,
    numbers,
    without_threads,
)

if TYPE_CHECKING:
    from pathlib import Path

LATER = {"flush_age": "1h"}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(flusher, "LONGEST_PAUSE_S", 0.002)


# --- states -------------------------------------------------------------------------------------


def test_the_state_says_how_the_table_stands(tmp_path: Path) -> None:
    """[M5] in_sync, pending_write, syncing, in_sync again."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        states = [writer.sync_state]
        with rig.gate() as gate:
            receipt = writer.append(event(0))
            states.append(writer.sync_state)
            writer._buffers.ask_for(receipt._memtable)  # noqa: SLF001 - as a receipt does
            gate.wait()
            states.append(writer.sync_state)
        receipt.wait(PATIENCE_S)
        states.append(writer.sync_state)
    assert states == ["in_sync", "pending_write", "syncing", "in_sync"]


def test_rows_of_a_flush_that_is_half_committed_are_counted_once(tmp_path: Path) -> None:
    """[T5] [T9] A flush of two commits, and the store goes down between them."""
    rig = Rig(ttl="1d")
    creates: list[str] = []
    down = threading.Event()

    def fail_after_the_first(name: str, path: str) -> None:
        if name == "put_if_absent" and path.startswith("_strandline/manifests/"):
            creates.append(path)
            if len(creates) > 1:
                down.set()
                raise StorageFailed("the store is down")

    writer = rig.table.writer("w", wal=tmp_path / "wal", **LATER)
    for first in (0, 200):
        receipt = writer.append(events(first, 200, step_ms=3_600_000))
    rig.store.before = fail_after_the_first
    with pytest.raises(strandline.WriterBusy, match=r"within 0 s\. The writer keeps them"):
        receipt.wait(0)
    assert down.wait(PATIENCE_S)

    stats = writer.stats()
    report = writer.close(0)

    assert (stats.rows, stats.rows_committed, stats.rows_pending) == (400, 200, 200)
    assert (report.committed, report.records_left, report.rows_left) == (False, 1, 200)
    rig.mend_store()
    assert rig.open().recover("w", tmp_path / "wal").rows == 200
    assert numbers(rig.open().scan()) == list(range(400))


def test_the_state_tells_of_errors_and_of_their_end(tmp_path: Path) -> None:
    """[M5] error while tries fail, in_sync after one succeeded; the error can be read."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        seen: list[tuple[str, str | None]] = []
        failed = threading.Event()

        def fail_three_times(name: str, path: str) -> None:
            if name == "put_if_absent" and len(seen) < 3:
                seen.append((writer.sync_state, writer.stats().last_error))
                failed.set()
                raise AccessDenied(f"{path}: the key has expired")

        rig.store.before = fail_three_times
        receipt = writer.append(event(0))
        assert receipt.wait(PATIENCE_S).first_seq == 0
        stats = writer.stats()
    assert [state for state, _ in seen] == ["syncing", "error", "error"]
    assert "the key has expired" in str(seen[-1][1])
    assert (stats.sync_state, stats.last_error, stats.retries) == ("in_sync", None, 3)


def test_a_writer_that_stopped_is_stale(tmp_path: Path) -> None:
    """[M5] [O8] For good, and every later call says why."""
    rig = Rig()
    writer = rig.table.writer("w", wal=tmp_path / "wal", **LATER)
    receipt = writer.append(event(0))
    rig.open().fence("token")
    with pytest.raises(strandline.Fenced):
        receipt.wait(PATIENCE_S)
    ended(writer)
    assert (writer.sync_state, receipt.state) == ("stale", "failed")
    assert "fenced" in str(writer.stats().last_error)
    with pytest.raises(strandline.WriterClosed, match="fenced"):
        writer.append(event(1))
    report = writer.close()
    assert (report.committed, report.rows_left, report.records_left) == (False, 1, 1)
    assert logged(tmp_path / "wal") == [0]


# --- memory -------------------------------------------------------------------------------------


def test_a_blocked_store_stops_appends_before_memory_is_full(tmp_path: Path) -> None:
    """[E14] Taken rows stay within the budget and one row; a timeout takes nothing."""
    rig = Rig()
    budget = 20_000
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=budget, flush_rows=10, **LATER
    ) as writer:
        with rig.gate():
            taken = 0
            while writer.stats().bytes_pending <= budget:
                writer.append(event(taken), timeout=0)
                taken += 1
            with pytest.raises(strandline.WriterBusy, match="not taken"):
                writer.append(event(-1), timeout=0)
            with pytest.raises(strandline.WriterBusy):
                writer.append([event(-1)], timeout=0)
            stats = writer.stats()
            assert 10 < taken < 200
            assert stats.bytes_pending <= budget + 1_000
            assert (stats.records, stats.blocked) == (taken, 2)
            assert stats.queue_depth > 0.9
            assert logged(tmp_path / "wal") == list(range(taken))
        writer.append(event(taken), timeout=PATIENCE_S)
        writer.flush(PATIENCE_S)
        assert writer.stats().bytes_pending == 0
    assert numbers(rig.open().scan()) == list(range(taken + 1))


def test_appends_that_wait_go_on_when_the_store_does(tmp_path: Path) -> None:
    """[E14] Without a timeout they wait as long as it takes; all rows arrive, each once."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=5_000, flush_rows=5, **LATER
    ) as writer:

        def produce(worker: int) -> None:
            for i in range(40):
                writer.append(event(1000 * worker + i))

        with rig.gate() as gate:
            producers = [threading.Thread(target=produce, args=(w,)) for w in range(3)]
            for producer in producers:
                producer.start()
            gate.wait()
            while writer.stats().blocked < 3:
                assert writer.stats().bytes_pending < 7_000
        for producer in producers:
            producer.join(PATIENCE_S)
    found = numbers(rig.open().scan())
    assert sorted(found) == sorted(1000 * w + i for w in range(3) for i in range(40))
    for worker in range(3):
        mine = [n for n in found if n // 1000 == worker]
        assert mine == sorted(mine)


def test_a_batch_larger_than_the_budget_enters_alone(tmp_path: Path) -> None:
    """[E14] It could never wait long enough otherwise."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=1_000, timeout_s=PATIENCE_S, **LATER
    ) as writer:
        for first in (0, 500):
            writer.append(events(first, 500))
    assert numbers(rig.open().scan()) == list(range(1000))


def test_a_memtable_that_fills_all_memory_is_committed_without_being_asked(tmp_path: Path) -> None:
    """[E14] It was not full when the queue was; nobody but its flush can make room."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=1_000, passive_memtables=1, **LATER
    ) as writer:
        with rig.gate() as gate:
            first = writer.append(event(0))
            writer._buffers.ask_for(first._memtable)  # noqa: SLF001 - as a receipt does
            gate.wait()
            writer.append(events(1, 500))
            waiting = threading.Thread(target=writer.append, args=(event(501),))
            waiting.start()
            while not writer.stats().blocked:
                assert waiting.is_alive()
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
    assert numbers(rig.open().scan()) == list(range(502))


def test_a_closed_writer_lets_nobody_wait(tmp_path: Path) -> None:
    """[T9] [E14] Appends that wait for memory when the writer is closed are refused."""
    rig = Rig()
    writer = rig.table.writer("w", wal=tmp_path / "wal", memory_bytes=500, flush_rows=1, **LATER)
    refused: list[BaseException] = []

    def produce() -> None:
        try:
            for n in range(100):
                writer.append(event(n))
        except strandline.WriterClosed as error:
            refused.append(error)

    with rig.gate() as gate:
        producer = threading.Thread(target=produce)
        producer.start()
        gate.wait()
        while not writer.stats().blocked:
            assert producer.is_alive()
        report = writer.close(timeout=0)
        producer.join(PATIENCE_S)
        assert len(refused) == 1
        assert not report.committed
        assert report.rows_left == writer.stats().records
    ended(writer)


# --- outages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation", ["put_if_absent", "write_new", "read", "list"], ids=lambda name: name
)
def test_a_store_that_is_down_for_a_while_loses_nothing(tmp_path: Path, operation: str) -> None:
    """[E14] [X5] Appends go on meanwhile; when it is back, everything is committed once."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", flush_rows=4, **LATER) as writer:
        rig.break_store(operation)
        for n in range(10):
            writer.append(event(n))
        if operation in ("put_if_absent", "write_new"):
            while writer.stats().retries < 3:
                assert writer.sync_state != "in_sync"
            assert writer.sync_state == "error"
            assert rig.open().tail().next_seq == 0
        rig.mend_store()
        writer.flush(PATIENCE_S)
    assert numbers(rig.open().scan()) == list(range(10))


def test_a_commit_whose_reply_was_lost_is_not_repeated(tmp_path: Path) -> None:
    """[E2] [X5] The same records are offered again; the table knows them."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipts = [writer.append(event(n)) for n in range(3)]
        lost = []

        def lose(name: str, path: str) -> None:
            if name == "put_if_absent" and not lost:
                lost.append(path)
                raise StorageFailed("the connection broke after the answer")

        rig.store.after = lose
        writer.flush(PATIENCE_S)
        assert lost
        assert [receipt.wait().first_seq for receipt in receipts] == [0, 1, 2]
        assert writer.append(event(3)).wait(PATIENCE_S).first_seq == 3
    assert numbers(rig.open().scan()) == [0, 1, 2, 3]


def test_a_throttling_store_is_waited_for(tmp_path: Path) -> None:
    """[E14] The commit itself is patient; nothing is uploaded twice for it."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        answers = iter([True, True, False])

        def throttle(name: str, path: str) -> None:
            if name == "put_if_absent" and next(answers, False):
                raise StoreBusy(f"{path}: slow down")

        rig.store.before = throttle
        writer.append(event(0)).wait(PATIENCE_S)
        assert [name for name, _ in rig.store.calls].count("write_new") == 1
    assert numbers(rig.open().scan()) == [0]


# --- closing while the store is down ------------------------------------------------------------


def test_close_waits_no_longer_than_it_is_told_and_reports_what_is_left(tmp_path: Path) -> None:
    """[T9] The rows are in the log, receipts say so, and the next writer commits them."""
    rig = Rig()
    folder = tmp_path / "wal"
    writer = rig.table.writer("w", wal=folder, flush_rows=2, **LATER)
    rig.break_store("put_if_absent")
    receipts = [writer.append([event(2 * n), event(2 * n + 1)]) for n in range(3)]

    report = writer.close(timeout=0)

    assert (report.committed, report.records_left, report.rows_left) == (False, 3, 6)
    assert report.log == str(folder)
    assert "6 rows in 3 records are not committed: kept in" in str(report)
    for receipt in receipts:
        with pytest.raises(strandline.WriterClosed, match="in its log"):
            receipt.wait(PATIENCE_S)
    ended(writer)
    rig.mend_store()
    with rig.table.writer("w", wal=folder, **LATER) as again:
        assert again.recovered.records == 3
        assert again.stats().recovered_records == 3
    assert numbers(rig.open().scan()) == list(range(6))


def test_leaving_without_a_log_says_that_rows_are_lost() -> None:
    """[T9] Silence would be worse than an error."""
    rig = Rig()
    writer = rig.table.writer("w", wal=False, ack="buffered", close_timeout_s=0, **LATER)
    rig.break_store("put_if_absent")

    def work() -> None:
        with writer:
            writer.append(event(0))

    with pytest.raises(strandline.WriterBusy, match="LOST"):
        work()
    ended(writer)


def test_a_receipt_can_be_waited_for_again(tmp_path: Path) -> None:
    """[T9] A timeout of `wait` changes nothing about the rows."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        with rig.gate():
            receipt = writer.append(event(0))
            with pytest.raises(strandline.WriterBusy, match="goes on trying"):
                receipt.wait(0)
            with pytest.raises(strandline.WriterBusy):
                writer.flush(0)
        assert receipt.wait(PATIENCE_S).rows == 1


def test_a_flush_waits_no_longer_than_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[T9] However many memtables wait, the time is for all of them together."""
    waits: list[float] = []
    now = 0.0
    rig = Rig(replace(REAL, monotonic=lambda: now))

    def wait(receipt: Receipt, timeout: float) -> None:
        nonlocal now
        del receipt
        waits.append(timeout)
        now += 0.4

    with rig.table.writer("w", wal=tmp_path / "wal", flush_rows=1, **LATER) as writer:
        with rig.gate() as gate, monkeypatch.context() as patch:
            for n in range(3):
                writer.append(event(n))
            gate.wait()
            patch.setattr(Receipt, "wait", wait)
            writer.flush(1.0)
        writer.flush(PATIENCE_S)
    assert waits == pytest.approx([1.0, 0.6, 0.2])


# --- tuning -------------------------------------------------------------------------------------


def test_tuning_goes_up_above_half_and_down_below_a_quarter_with_rest_between() -> None:
    """[T5] Five flushes lie between two steps, in whichever direction."""
    tuning = Tuning()
    levels = []
    for depth in [0.51] * 12 + [0.3] * 6 + [0.24] * 11:
        tuning = tuning.after_flush(depth, depth)
        levels.append(tuning.level)
    assert levels == [1] * 5 + [2] * 5 + [3] * 2 + [3] * 6 + [2] * 5 + [1] * 5 + [0]
    assert (tuning.scale_ups, tuning.scale_downs) == (3, 3)
    assert [Tuning(level=n).batch_factor for n in (0, 1, 3)] == [1, 2, 8]
    assert [Tuning(level=n).degraded for n in (0, 1, 2)] == [False, False, True]
    for depth in (0.5, 0.25):
        assert Tuning(level=1).after_flush(depth, depth).level == 1
    top = Tuning(level=8)
    assert top.after_flush(1.0, 1.0).level == 8
    assert top.after_flush(0.4, 0.2).level == 7


def test_large_commits_do_not_keep_their_own_level_up(tmp_path: Path) -> None:
    """[T5] Flushes of a quarter of the memory are no queue once the table keeps up again."""
    rig = Rig()
    options: dict[str, Any] = {"memory_bytes": 4_000, "flush_bytes": 1_000, **LATER}
    with without_threads():
        writer = rig.table.writer("w", wal=tmp_path / "wal", **options)
        writer._flusher.tuning = Tuning(level=3)  # noqa: SLF001 - after a time of need
        for n in range(80):
            writer.append(event(n))
            if writer.stats().memtables:
                flush_once(writer)
        stats = writer.stats()
        close_now(writer)

    assert (stats.level, stats.scale_downs) == (0, 3)
    assert numbers(rig.open().scan()) == list(range(80))


def test_a_full_queue_makes_commits_larger(tmp_path: Path) -> None:
    """[T5] [T1] While the table cannot keep up, flushes grow; rows are never dropped."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=10_000, flush_rows=4, **LATER
    ) as writer:

        def produce() -> None:
            for n in range(400):
                writer.append(event(n))

        with rig.gate() as gate:
            producer = threading.Thread(target=produce)
            producer.start()
            gate.wait()
            while not writer.stats().blocked:
                assert producer.is_alive()
        producer.join(PATIENCE_S)
        writer.flush(PATIENCE_S)
        stats = writer.stats()
    assert stats.scale_ups >= 1
    assert stats.rows_committed == 400
    assert numbers(rig.open().scan()) == list(range(400))


def test_many_threads_with_a_small_budget(tmp_path: Path) -> None:
    """[E14] [O9] Everything at once: short memory, small flushes, batches and rows."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", memory_bytes=3_000, flush_rows=7, **LATER
    ) as writer:

        def produce(worker: int) -> None:
            for i in range(50):
                first = 1000 * worker + 2 * i
                if i % 2:
                    writer.append(event(first))
                else:
                    writer.append(events(first, 2))

        in_threads(*[lambda w=w: produce(w) for w in range(4)])
    found = numbers(rig.open().scan())
    assert len(found) == len(set(found)) == 4 * 75
