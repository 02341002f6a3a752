"""One process with a writer: what it takes, logs, flushes and recovers, in one thread.

The log lies where the table lies, so that a case numbers the operations of both in one row.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from strandline.tableformat.errors import LogFailed, StrandlineError
from strandline.tableformat.stores.local import LocalStorage
from strandline.writers import flusher, log_places, recovery, wal_objects, writer
from strandline.writers.wal_files import LogFolder
from strandline.writers.wal_objects import ObjectFolder, ObjectLog
from tests.faults.kinds import SimulatedCrash
from tests.faults.ledger import Told
from tests.faults.world import InlineExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.table import Table
    from strandline.tableformat.storage import Storage
    from strandline.writers.receipts import Receipt
    from strandline.writers.writer import Writer
    from tests.faults.ledger import Batch
    from tests.faults.world import Clock, World

WRITER = "producer"
PATIENCE = 8
"""How often a flush is tried again before the process that closed its writer ends."""


class _ThreadWhenJoined:
    """A thread that does all of its work while somebody waits for its end."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target
        self._ran = False

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None:
        del timeout
        if not self._ran:
            self._ran = True
            self._target()


class _Event:
    """An event that is set by nobody; waiting for it takes scripted time, and not for ever."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits = 0

    def set(self) -> None: ...

    def wait(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        self._waits += 1
        return self._waits >= PATIENCE


class _Condition:
    """A condition without other threads: only scripted time can pass."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait(self, seconds: float | None = None) -> None:
        assert seconds is not None, "nobody else could end this wait"
        self._clock.sleep(seconds)

    def wait_for(self, is_true: Callable[[], bool], seconds: float) -> None:
        if not is_true():
            self._clock.sleep(seconds)


class _StepwiseLog(ObjectLog):
    """A log in a store whose objects are stored by whoever waits for them."""

    def sync_until(self, record: int) -> None:
        self._want(record)
        while max(self._stored, self._failed_until) < record:
            self.step()
        super().sync_until(record)


@contextmanager
def in_one_thread(clock: Clock, log_place: Callable[[], object]) -> Iterator[None]:
    """Let writers work when they are told to, with their log in a chosen place."""
    threads = SimpleNamespace(
        Thread=_ThreadWhenJoined,
        Event=lambda: _Event(clock),
        Condition=lambda: _Condition(clock),
    )
    time = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)
    with pytest.MonkeyPatch.context() as patch:
        for module in (flusher, wal_objects):
            patch.setattr(module, "threading", threads)
            patch.setattr(module, "time", time)
        patch.setattr(flusher, "Background", InlineExecutor)
        patch.setattr(wal_objects, "ThreadPoolExecutor", InlineExecutor)
        patch.setattr(log_places, "ObjectLog", _StepwiseLog)
        patch.setattr(recovery, "MOST_BYTES_AT_ONCE", 1)  # so that one recovery is several commits
        patch.setattr(writer, "open_place", lambda *_: log_place())
        yield


def log_place(storage: Storage, folder: str) -> LogFolder | ObjectFolder:
    """Where a process keeps its log: on the table's disk, or among the table's objects."""
    if isinstance(storage, LocalStorage):
        return LogFolder(f"/lake/{folder}", storage._disk)  # noqa: SLF001 - the same disk
    return ObjectFolder(storage)


class Producer:
    """A writer of one process, and what it was told."""

    def __init__(self, world: World, table: Table, storage: Storage, folder: str) -> None:
        self._world, self._table, self._storage, self._folder = world, table, storage, folder
        self._receipts: list[tuple[Batch, Receipt]] = []

    def produce(self, *parts: Sequence[Batch], fence: str | None = None) -> None:
        """Open a writer, which recovers; take each part and flush it; close."""
        with self._opened(fence) as opened:
            if opened is not None:
                self._take(opened, parts)
                opened.close()
                self._note_commits()

    def leave_behind(self, *parts: Sequence[Batch]) -> None:
        """As `produce`, and the process ends while the last part is only in the log."""
        with self._opened(None) as opened:
            assert opened is not None
            self._take(opened, parts)
            self._note_commits()

    @contextmanager
    def _opened(self, fence: str | None) -> Iterator[Writer | None]:
        place = partial(log_place, self._storage, self._folder)
        with in_one_thread(self._world.clock, place):
            try:
                opened = self._table.writer(
                    WRITER, wal={"fsync": True}, flush_age="1h", fence=fence
                )
            except StrandlineError:
                yield None
            else:
                yield opened

    def _take(self, opened: Writer, parts: Sequence[Sequence[Batch]]) -> None:
        for part in parts:
            for batch in part:
                self._append(opened, batch)
            if part is not parts[-1]:
                self._flush(opened)

    def _append(self, opened: Writer, batch: Batch) -> None:
        ledger, rows = self._world.ledger, batch.data()
        ledger.note(batch, Told.REFUSED)
        ledger.orders.setdefault(self._folder, []).append(batch.number)
        try:
            receipt = opened.append(rows[0] if len(rows) == 1 else rows)
        except (SimulatedCrash, LogFailed) as error:
            ledger.note(batch, Told.NOTHING)
            if isinstance(error, SimulatedCrash):
                raise
        except StrandlineError:
            return
        else:
            ledger.note(batch, Told.DONE)
            self._receipts.append((batch, receipt))

    def _flush(self, opened: Writer) -> None:
        """Commit what waits, as the writer's thread would."""
        buffers, flushing = opened._buffers, opened._flusher  # noqa: SLF001 - it has no thread
        if buffers.failed is not None or not buffers.uncommitted():
            return
        buffers.ask_for(buffers.active)
        try:
            flushing.step()
        except StrandlineError as error:
            flushing._stop(error)  # noqa: SLF001

    def _note_commits(self) -> None:
        for batch, receipt in self._receipts:
            if receipt.state == "committed":
                self._world.ledger.note(batch, Told.DONE, receipt.wait())
