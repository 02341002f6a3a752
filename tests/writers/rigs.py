"""Tables whose store can be watched, stopped and broken, and rows for their writers."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from strandline import api
from strandline.catalog.runtime import REAL
from strandline.tableformat.errors import StorageFailed
from strandline.tableformat.storage import open_storage
from strandline.writers import flusher
from strandline.writers.log import SUFFIX, read_log
from strandline.writers.wal_files import FileLog
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, START_MS, memory_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.catalog.runtime import Runtime
    from strandline.table import Table
    from strandline.writers.writer import Writer

PATIENCE_S = 30
"""How long a test waits for something that must come; reaching it is a failure."""


def event(n: int, /, **changed: Any) -> dict[str, Any]:
    """Row number `n`, as plain values."""
    at = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=n)
    return {"ts": at, "user": f"user-{n % 7}", "amount": n / 4, "n": n, **changed}


def numbers(rows: Any) -> list[int]:
    """Column `n` of a table or a scan."""
    table = rows.to_arrow() if hasattr(rows, "to_arrow") else rows
    found: list[int] = table.column("n").to_pylist()
    return found


@dataclass
class Gate:
    """Holds the threads that come to one kind of operation until it is opened."""

    operation: str = "put_if_absent"
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self, name: str, path: str) -> None:
        del path
        if name == self.operation and not self.opened.is_set():
            self.reached.set()
            assert self.opened.wait(PATIENCE_S), "nobody opened the gate"

    def wait(self) -> None:
        """Return once somebody stands at the gate."""
        assert self.reached.wait(PATIENCE_S), "nobody came to the gate"


class Rig:
    """A table in a store that a test can watch; `store.before` is where it steps in."""

    def __init__(self, runtime: Runtime = REAL, url: str | None = None, **config: Any) -> None:
        self.url = url or memory_url()
        self.store = WatchedStorage(open_storage(self.url))
        settings = {"time_column": "ts", **config}
        schema = settings.pop("schema", SCHEMA)
        self.table: Table = api.create_in(self.store, schema, runtime=runtime, **settings)

    def open(self) -> Table:
        """A handle of somebody else, whose store is not watched."""
        return api.open_table(self.url)

    @contextmanager
    def gate(self, operation: str = "put_if_absent") -> Iterator[Gate]:
        """Stop the store at this operation; it goes on when the block ends, if not before."""
        gate = Gate(operation)
        self.store.before = gate
        try:
            yield gate
        finally:
            self.store.before = lambda *_: None
            gate.opened.set()

    def break_store(self, *operations: str) -> None:
        """Let these operations fail until `mend_store`."""

        def fail(name: str, path: str) -> None:
            if name in operations:
                raise StorageFailed(f"{name} {path}: the store is down")

        self.store.before = fail

    def mend_store(self) -> None:
        self.store.before = lambda *_: None


def ended(writer: Writer) -> None:
    """Return once the writer's thread has ended, and with it everything it does behind commits."""
    writer._flusher.thread.join(PATIENCE_S)  # noqa: SLF001 - there is no other way to know
    assert not writer._flusher.thread.is_alive()  # noqa: SLF001


def log_names(folder: Path) -> list[str]:
    """The log files in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(SUFFIX))


def logged(folder: Path) -> list[int]:
    """Column `n` of everything a log holds."""
    files = read_log((name, (folder / name).read_bytes()) for name in log_names(folder))
    return [
        n
        for file in files
        for record in file.records
        for n in numbers(record.rows(file.header.schema))
    ]


def in_threads(*jobs: Any) -> None:
    """Run jobs at the same time; the first error of any of them is raised."""
    errors: list[BaseException] = []

    def run(job: Any) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


# --- writers without a thread, which a test moves step by step and can end at any moment ---------


class IdleThread:
    """Stands where the flusher's thread would; the test calls `step` itself."""

    def __init__(self, **_: Any) -> None: ...

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool:
        return False


@contextmanager
def without_threads() -> Iterator[None]:
    """Open writers whose flusher waits to be moved."""
    idle = SimpleNamespace(Thread=IdleThread, Event=threading.Event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flusher, "threading", idle)
        yield


def flush_once(writer: Writer) -> None:
    """Commit the oldest rows that wait, here and now."""
    writer._buffers.ask_for(writer._buffers.active)  # noqa: SLF001 - as a receipt does
    writer._flusher.step()  # noqa: SLF001 - what the thread would do


def close_now(writer: Writer) -> None:
    """Close a writer that has no thread."""
    with writer._buffers.changed:  # noqa: SLF001
        writer._buffers.closing = True  # noqa: SLF001
    writer._flusher._run()  # noqa: SLF001


def crash(writer: Writer) -> None:
    """End a writer as the end of its process would: nothing is written, the lock is free."""
    log = writer._log  # noqa: SLF001
    if isinstance(log, FileLog):
        fd, log._fd = log._fd, -1  # noqa: SLF001
        with suppress(OSError):
            os.close(fd)
        log._folder.release()  # noqa: SLF001
