"""The writer for asyncio: many tasks, a loop that is never blocked, nothing lost or doubled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.api import open_in
from strandline.tableformat.errors import StoreBusy
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
from tests.tables import Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 60
"""A test that waits this long has failed."""


def _row(n: int) -> dict[str, Any]:
    return {"user": "u", "amount": 0.5, "n": n}


def _run(main: Any) -> Any:
    """Run a test's coroutine, and fail instead of hanging."""

    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return asyncio.run(bounded(), debug=False)


@pytest.fixture
def table(tmp_path: Path) -> strandline.Table:
    """An empty table on disk."""
    return Place(str(tmp_path / "table")).create()


class Gate:
    """A store whose commits wait until the test lets them through."""

    def __init__(self) -> None:
        url = memory_url()
        strandline.create_table(url, events(0, 1).schema, time_column="ts")
        self.store = WatchedStorage(open_storage(url))
        self.table = open_in(self.store)
        self.asked, self.open = threading.Event(), threading.Event()

    def shut(self) -> None:
        """Hold the next uploads."""

        def hold(name: str, _: str) -> None:
            if name in ("write_new", "put_if_absent"):
                self.asked.set()
                self.open.wait()

        self.store.before = hold


def test_a_row_and_its_commit(table: strandline.Table, tmp_path: Path) -> None:
    """`await append` keeps the promise of ack; awaiting the receipt gives the commit."""

    async def main() -> None:
        async with table.async_writer("p", wal=tmp_path / "wal") as writer:
            receipt = await writer.append(_row(0))
            commit = await receipt
            assert (commit.first_seq, commit.last_seq) == (0, 0)
            assert receipt.done
            assert receipt.state == "committed"
            batch = await writer.append(events(1, 10))
            assert (await batch).rows == 10
            assert writer.stats().rows_committed == 11

    _run(main())
    assert numbers_in(table) == list(range(11))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"wal": {"fsync": True}},
        {"ack": "committed"},
        {"wal": {"dir": "memory://async-wal"}},
        {"ack": "buffered", "wal": False},
    ],
    ids=["wal", "fsync", "committed", "objects", "buffered"],
)
def test_many_tasks_append_at_once(
    table: strandline.Table, tmp_path: Path, options: dict[str, Any]
) -> None:
    """[E2] 300 tasks of 3 rows: every row once, each task's rows in its order."""
    options = dict(options)
    if options.get("wal") is not False:
        options["wal"] = {"dir": str(tmp_path / "wal"), **options.get("wal", {})}

    async def main() -> int:
        async with table.async_writer("p", flush_age="20ms", **options) as writer:

            async def task(number: int) -> None:
                for step in range(3):
                    await writer.append(_row(3 * number + step))

            await asyncio.gather(*(task(number) for number in range(300)))
            return writer.stats().wal_syncs

    syncs = _run(main())
    found = numbers_in(table)
    assert sorted(found) == list(range(900))
    places = {n: place for place, n in enumerate(found)}
    assert all(places[3 * t] < places[3 * t + 1] < places[3 * t + 2] for t in range(300))
    assert syncs < 300, "tasks that wait share a sync"


def test_rows_enter_in_the_order_of_the_calls(table: strandline.Table, tmp_path: Path) -> None:
    """[O2] Batches go through a thread and plain rows do not; they keep their order."""

    async def main() -> None:
        async with table.async_writer("p", wal=tmp_path / "wal", flush_age="1h") as writer:
            await asyncio.gather(
                *(writer.append(events(n, 1) if n % 3 else _row(n)) for n in range(30))
            )

    _run(main())
    assert numbers_in(table) == list(range(30))


def test_the_loop_runs_on_while_a_commit_is_held() -> None:
    """[E4] Appends, other tasks and stats go on while the store does not answer."""
    gate = Gate()

    async def main() -> None:
        async with gate.table.async_writer("p", wal=False, ack="buffered") as writer:
            gate.shut()
            receipt = await writer.append(_row(0))
            waiting = asyncio.create_task(_commit_of(receipt))
            await asyncio.to_thread(gate.asked.wait)
            for n in range(1, 50):
                await writer.append(_row(n))
            assert not waiting.done()
            assert writer.stats().sync_state == "syncing"
            gate.open.set()
            assert (await waiting).first_seq == 0
            await writer.flush()
            assert writer.stats().rows_pending == 0
            scan = await writer.scan(filter="n >= 48")
            assert await asyncio.to_thread(scan.count) == 2

    _run(main())
    assert numbers_in(gate.table) == list(range(50))


async def _commit_of(receipt: Any) -> strandline.Commit:
    commit: strandline.Commit = await receipt
    return commit


def test_full_memory_makes_tasks_wait_and_then_go_on() -> None:
    """[E14] Backpressure awaits; a timeout says so and takes nothing."""
    gate = Gate()

    async def main() -> None:
        async with gate.table.async_writer(
            "p", wal=False, ack="buffered", memory_bytes=2_000, flush_rows=4
        ) as writer:
            gate.shut()
            tasks = [asyncio.create_task(writer.append(_row(n))) for n in range(100)]
            await asyncio.to_thread(gate.asked.wait)
            with pytest.raises(strandline.WriterBusy, match="not taken"):
                await writer.append(_row(1000), timeout=0)
            with pytest.raises(strandline.WriterBusy, match="not taken"):
                await writer.append([_row(1001)], timeout=0.01)
            assert sum(task.done() for task in tasks) < 50
            assert writer.stats().bytes_pending < 10_000
            for _ in range(100):
                await asyncio.to_thread(int)
            assert writer.stats().blocked < 10, "waiting is not trying again and again"
            gate.open.set()
            await asyncio.gather(*tasks)

    _run(main())
    assert numbers_in(gate.table) == list(range(100))


def test_a_timeout_is_for_memory_and_for_nothing_else(
    table: strandline.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E14] Where there is room, waiting for one's turn is no reason to be refused."""
    begun, go_on = threading.Event(), threading.Event()

    async def main() -> None:
        async with table.async_writer("p", wal=tmp_path / "wal") as writer:
            take = writer.writer._take  # noqa: SLF001

            def take_slowly(*given: Any) -> Any:
                begun.set()
                go_on.wait()
                return take(*given)

            monkeypatch.setattr(writer.writer, "_take", take_slowly)
            first = asyncio.create_task(writer.append([_row(0)]))
            await asyncio.to_thread(begun.wait)
            others = [asyncio.create_task(writer.append(_row(n), timeout=0)) for n in (1, 2)]
            for _ in range(20):
                await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(first, *others)

    _run(main())
    assert numbers_in(table) == [0, 1, 2]


def test_cancelled_tasks_lose_nothing_and_double_nothing() -> None:
    """Cancelled before there was memory: not taken. Before its commit: committed all the same."""
    gate = Gate()

    async def main() -> set[int]:
        async with gate.table.async_writer(
            "p", wal=False, ack="committed", memory_bytes=2_000, flush_rows=4
        ) as writer:
            gate.shut()
            tasks = [asyncio.create_task(writer.append(_row(n))) for n in range(100)]
            await asyncio.to_thread(gate.asked.wait)
            taken = set(range(writer.stats().records))
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks[::2], return_exceptions=True)
            gate.open.set()
            await asyncio.gather(*tasks[1::2])
            return taken

    taken = _run(main())
    found = numbers_in(gate.table)
    assert len(found) == len(set(found))
    assert {n for n in range(100) if n % 2 or n in taken} == set(found)
    assert len(taken) < 50


def test_a_cancelled_open_leaves_nothing_open(tmp_path: Path) -> None:
    """The next writer finds the log's lock free."""
    gate = Gate()
    gate.shut()

    async def main() -> None:
        task = asyncio.create_task(gate.table.async_writer("p", wal=tmp_path / "wal").__aenter__())
        await asyncio.to_thread(gate.asked.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    _run(main())
    gate.open.set()
    for thread in threading.enumerate():
        if thread.name.startswith("strandline-async"):
            thread.join(PATIENCE_S)
    gate.table.writer("p", wal=tmp_path / "wal").close()


def test_close_reports_and_what_comes_later_is_refused(
    table: strandline.Table, tmp_path: Path
) -> None:
    """[T9] Twice is fine; rows and batches after it get a clear error."""

    async def main() -> None:
        writer = table.async_writer("p", wal=tmp_path / "wal")
        with pytest.raises(strandline.WriterClosed, match="not open yet"):
            await writer.append(_row(0))
        async with writer:
            await writer.append(_row(0))
            assert (await writer.close()).committed
            assert (await writer.close()).committed
            for data in (_row(1), events(1, 2)):
                with pytest.raises(strandline.WriterClosed):
                    await writer.append(data)

    _run(main())
    assert numbers_in(table) == [0]


def test_a_closed_writer_lets_no_task_wait_for_memory(tmp_path: Path) -> None:
    """[T9] [E14] The store does not answer: what was not taken is refused, not forgotten."""
    gate = Gate()

    async def main() -> tuple[int, list[Any]]:
        try:
            async with gate.table.async_writer(
                "p", wal=tmp_path / "wal", memory_bytes=2_000, flush_rows=4
            ) as writer:
                gate.shut()
                tasks = [asyncio.create_task(writer.append(_row(n))) for n in range(50)]
                await asyncio.to_thread(gate.asked.wait)
                report = await writer.close(timeout=0)
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                return report.rows_left, ends
        finally:
            gate.open.set()

    left, ends = _run(main())
    refused = [end for end in ends if isinstance(end, BaseException)]
    assert len(ends) - len(refused) == left < 50
    assert {type(end) for end in refused} == {strandline.WriterClosed}


def test_a_store_that_is_down_at_the_end_fails_the_waiting_tasks(tmp_path: Path) -> None:
    """[T9] Bounded close: waiting receipts end, the report names what the log keeps."""
    gate = Gate()

    def refuse(name: str, _: str) -> None:
        if name in ("write_new", "put_if_absent"):
            gate.asked.set()
            raise StoreBusy("slow down")

    async def main() -> strandline.CloseReport:
        async with gate.table.async_writer("p", wal=tmp_path / "wal") as writer:
            gate.store.before = refuse
            waiting = asyncio.create_task(_commit_of(await writer.append(_row(7))))
            await asyncio.to_thread(gate.asked.wait)
            report = await writer.close(timeout=0)
            with pytest.raises(strandline.WriterClosed):
                await waiting
            await asyncio.to_thread(writer.writer._flusher.thread.join)  # noqa: SLF001 - the lock
            return report

    report = _run(main())
    assert report.rows_left == 1
    gate.store.before = lambda *_: None
    assert gate.table.recover("p", tmp_path / "wal").rows == 1
    assert numbers_in(gate.table) == [7]
