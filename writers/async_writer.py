"""The writer for asyncio programs: nothing that can wait runs in the event loop.

A plain row that finds room is taken right there, which costs one `write` at most. Batches, logs
that sync, opening and closing run in threads; commits and free memory are told to the loop.
"""

# ruff: noqa: SLF001 - this is the other half of Writer

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from strandline.tableformat.errors import WriterBusy, WriterClosed
from strandline.writers.options import check_seconds
from strandline.writers.receipts import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from strandline.readers.scan import Scan
    from strandline.writers.log import Log
    from strandline.writers.memtable import Memtable
    from strandline.writers.results import Commit
    from strandline.writers.stats import CloseReport, WriterStats
    from strandline.writers.writer import Writer

THREADS: Final = 4
"""One may open, sync, take a batch and read; none of them waits for another."""

T = TypeVar("T")
_Taken = tuple["Memtable", int]


class AsyncReceipt:
    """Rows that the writer has taken; await it for their commit. Cheap to throw away."""

    __slots__ = ("_receipt", "_writer")

    def __init__(self, receipt: Receipt, writer: AsyncWriter) -> None:
        self._receipt, self._writer = receipt, writer

    def __repr__(self) -> str:
        return f"<strandline.AsyncReceipt record {self.record}, {self.state}>"

    @property
    def record(self) -> int:
        """The number of the rows' record in the writer's log."""
        return self._receipt.record

    @property
    def state(self) -> str:
        """`pending`, `committed` or `failed`."""
        return self._receipt.state

    @property
    def done(self) -> bool:
        """Whether awaiting it would go on at once."""
        return self._receipt.done

    def __await__(self) -> Generator[Any, None, Commit]:
        return self._commit().__await__()

    async def _commit(self) -> Commit:
        await self._writer._settled(self._receipt._memtable)
        return self._receipt.wait(0)


class AsyncWriter:
    """`Writer` for asyncio: opened by `async with`, for tasks of one event loop."""

    def __init__(self, open_writer: Callable[[], Writer]) -> None:
        self._open_writer = open_writer
        self._writer: Writer | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="strandline-async")
        self._queue: deque[_Entry] = deque()
        """Appends that could not be taken at once: rows enter in the order of the calls."""
        self._taking: asyncio.Task[None] | None = None
        self._is_full = False
        """Nothing is being taken, because the writer's memory is full."""
        self._room_found: asyncio.Future[None] | None = None
        self._leaving = False
        """Closing has begun: nobody is to wait for memory any more."""
        self._unsynced: list[tuple[int, asyncio.Future[None]]] = []
        self._syncing: asyncio.Task[None] | None = None
        self._opening = threading.Lock()
        self._unwanted = False
        self._report: CloseReport | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._in_thread(self._open)
        except BaseException:
            # Cancelled: the thread goes on, and what it opens must not stay open.
            with self._opening:
                self._unwanted = True
            if self._writer is not None:
                self._pool.submit(self._writer.close)
            self._pool.shutdown(wait=False)
            raise
        return self

    def _open(self) -> None:
        writer = self._open_writer()
        with self._opening:
            if not self._unwanted:
                self._writer = writer
                return
        writer.close()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = await self.close()
        if not report.committed and report.log is None and error is None:
            raise WriterBusy(f"the writer was closed, and {report}")

    @property
    def writer(self) -> Writer:
        """The writer behind it."""
        if self._writer is None:
            raise WriterClosed("this writer is not open yet; use `async with`. Nothing was taken.")
        return self._writer

    # --- taking rows ---

    async def append(self, data: Any, *, timeout: float | None = None) -> AsyncReceipt:  # noqa: ASYNC109 - for memory only
        """Take rows as `Writer.append` does; other tasks run while this one has to wait.

        A task that is cancelled while it waits for memory has given nothing. Later its rows may
        have been taken, once.
        """
        check_seconds("timeout", timeout)
        writer = self.writer
        taken: _Taken | None = None
        if self._is_quick and self._taking is None:
            with suppress(WriterBusy):
                taken = writer._take_row(data, 0)
        if taken is None:
            limit_s = writer._options.timeout_s if timeout is None else timeout
            taken = await self._take_in_turn(data, limit_s)
        memtable, index = taken
        receipt = AsyncReceipt(Receipt(memtable, index, writer._buffers.ask_for), self)
        if memtable.first_record and writer._syncs:
            await self._synced(receipt.record)
        elif memtable.first_record and writer._waits:
            await receipt
        return receipt

    @property
    def _is_quick(self) -> bool:
        """Whether the writer's lock is only held for moments: a sync takes longer."""
        return not self.writer._options.log.fsync

    async def _take_in_turn(self, data: Any, limit_s: float | None) -> _Taken:
        """Queue up; a thread takes the rows of all who wait, as far as there is memory."""
        entry = _Entry(data, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_all())
        try:
            await asyncio.wait([entry.taken], timeout=limit_s)
        except asyncio.CancelledError:
            entry.taken.cancel()
            raise
        if not entry.taken.done():
            # If its turn has not come yet, it may find room all the same.
            entry.expired = True
            if self._is_full:
                _resolve(entry.taken, error=_busy())
        taken: _Taken = await entry.taken
        return taken

    async def _take_all(self) -> None:
        try:
            while self._queue:
                entries = [entry for entry in self._queue if not entry.taken.done()]
                self._queue.clear()
                count = await self._in_thread(self._take_each, entries)
                for entry in entries[:count]:
                    _resolve(entry.taken, entry.outcome, entry.error)
                self._queue.extendleft(reversed(entries[count:]))
                if count < len(entries) and not self._leaving:
                    await self._room()
                if self._leaving:
                    self._refuse_waiting()
        except Exception as error:  # noqa: BLE001 - raised in the tasks that wait
            for entry in (*entries, *self._queue):
                _resolve(entry.taken, error=error)
            self._queue.clear()
        finally:
            self._taking = None

    def _take_each(self, entries: list[_Entry]) -> int:
        """In a thread: how many were dealt with before memory was full."""
        for count, entry in enumerate(entries):
            try:
                entry.outcome = self.writer._take(entry.data, 0)
            except WriterBusy:
                return count
            except Exception as error:  # noqa: BLE001 - raised in the task that appends
                entry.error = error
        return len(entries)

    async def _room(self) -> None:
        """Wait for the oldest rows to be committed: only that gives memory back."""
        self._is_full = True
        for entry in self._queue:
            if entry.expired:
                _resolve(entry.taken, error=_busy())
        try:
            waiting = await self._locked(self.writer._buffers.uncommitted)
            if waiting and not self._leaving:
                self._room_found = self._when_settled(waiting[0])
                await self._room_found
        finally:
            self._is_full = False

    def _refuse_waiting(self) -> None:
        """A store that does not answer gives no memory back, and who leaves does not wait."""
        for entry in self._queue:
            _resolve(entry.taken, error=_closed())
        self._queue.clear()

    # --- promises ---

    async def _synced(self, record: int) -> None:
        """Return once the record is in the log; one thread syncs for all tasks that wait."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsynced.append((record, done))
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync_all())
        await done

    async def _sync_all(self) -> None:
        log = self.writer._log
        assert log is not None
        while self._unsynced:
            waiting, self._unsynced = self._unsynced, []
            error: BaseException | None = None
            try:
                await self._in_thread(_sync, log, [record for record, _ in waiting])
            except Exception as failed:  # noqa: BLE001 - raised in the tasks that wait
                error = failed
            for _, done in waiting:
                _resolve(done, None, error)
        self._syncing = None

    async def _settled(self, memtable: Memtable) -> None:
        if not memtable.settled.is_set():
            await self._run(self.writer._buffers.ask_for, memtable)
            await self._when_settled(memtable)

    def _when_settled(self, memtable: Memtable) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(_resolve, done)

        memtable.when_settled(tell)
        return done

    # --- threads ---

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Here, if the writer's lock is only held for moments, else in a thread."""
        if self._is_quick:
            return call(*arguments)
        return await self._in_thread(call, *arguments)

    async def _locked(self, call: Callable[[], T]) -> T:
        def look() -> T:
            with self.writer._buffers.changed:
                return call()

        return await self._run(look)

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        if self._report is not None:
            raise _closed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(call, *arguments))

    # --- the rest of a writer ---

    async def flush(self) -> None:
        """Return once every row taken so far is committed."""
        for memtable in await self._locked(self.writer._buffers.uncommitted):
            await self._settled(memtable)
            if memtable.error is not None:
                raise memtable.error

    async def scan(self, *arguments: Any, **named: Any) -> Scan:
        """As `Writer.scan`. Reading the rows blocks: `await asyncio.to_thread(scan.to_arrow)`."""
        return await self._in_thread(partial(self.writer.scan, *arguments, **named))

    def stats(self) -> WriterStats:
        """Counters and state."""
        return self.writer.stats()

    async def close(self, timeout: float | None = None) -> CloseReport:  # noqa: ASYNC109 - the thread's
        """Commit what was taken, waiting at most `timeout` seconds, and say what is left.

        Goes on in its thread if this task is cancelled.
        """
        check_seconds("timeout", timeout)
        if self._report is None:
            self._leaving = True
            if self._room_found is not None:
                _resolve(self._room_found)
            report = await asyncio.shield(self._in_thread(self.writer.close, timeout))
            if self._syncing is not None:
                await asyncio.shield(self._syncing)
            self._report = report
            self._pool.shutdown(wait=False)
        return self._report


@dataclass(slots=True, eq=False)
class _Entry:
    """An append that waits to be taken."""

    data: Any
    taken: asyncio.Future[Any]
    expired: bool = False
    """Its time is over: it is not to wait any longer."""
    outcome: _Taken | None = None
    error: Exception | None = None


def _busy() -> WriterBusy:
    return WriterBusy(
        "no memory became free in time. These rows were not taken; send them again later, or look "
        "at writer.stats()."
    )


def _closed() -> WriterClosed:
    return WriterClosed("this writer is closed; nothing was taken. Open a new one.")


def _resolve(
    done: asyncio.Future[Any], result: Any = None, error: BaseException | None = None
) -> None:
    if done.done():
        return  # its task was cancelled
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _sync(log: Log, records: list[int]) -> None:
    # The newest first: its sync serves the others, which then return at once.
    for record in sorted(records, reverse=True):
        log.sync_until(record)
