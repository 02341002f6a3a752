"""Stream tables while a store or a disk fails: at every operation, in every way."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from strandline.streams import log_files
from strandline.tableformat.errors import StorageFailed, StrandlineError
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.local import LocalStorage
from strandline.tableformat.windows import MINUTE_MS
from tests.faults.disk import CrashDisk, Unsynced, faults_of
from tests.faults.kinds import Fault, Kind, SimulatedCrash
from tests.faults.storage import FaultyStorage
from tests.streams.rigs import NOW, new_stream, pairs, reopened, row
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from strandline.streams.table import StreamTable
    from strandline.tableformat.storage import Storage

KINDS = [
    Fault(Kind.FAIL_BEFORE),
    Fault(Kind.LOSE_REPLY),
    Fault(Kind.CRASH_BEFORE),
    Fault(Kind.CRASH_AFTER),
    Fault(Kind.LAND_LATE, lands=1),
    Fault(Kind.LAND_LATE, lands=3),
    Fault(Kind.THROTTLE),
    Fault(Kind.DENY),
]


OLD = row("old", 0, NOW - 1)
"""In a window that expires during the story."""


class Story:
    """Puts, deletes and an expiry; what was acknowledged, and what may be there."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self.maybe: set[tuple[str, int]] = set()
        self.deleted: set[str] = set()

    def run(self, table: StreamTable) -> None:
        for n in range(6):
            self._put(table, f"row-{n}", n)
        self._delete(table, "row-1")
        self._put(table, "row-2", 20)
        with suppress(StorageFailed):
            table.expire(NOW + MINUTE_MS)

    def _put(self, table: StreamTable, name: str, x: int) -> None:
        self.maybe.add((name, x))
        for _ in range(3):  # putting a row again is safe: its id is the same
            with suppress(StorageFailed):
                table.put("alice", [row(name, x)], flush=True)
                self.told[name] = x
                break

    def _delete(self, table: StreamTable, name: str) -> None:
        self.deleted.add(name)
        try:
            table.delete("alice", [name], flush=True)
        except StorageFailed:
            return
        self.told.pop(name, None)

    def check(self, table: StreamTable) -> None:
        found = [pair for pair in pairs(table.range("alice")) if pair != ("old", 0)]
        assert len(dict(found)) == len(found)
        for name, x in self.told.items():
            assert name in self.deleted or dict(found).get(name, -1) >= x, (name, found)
        assert set(found) <= self.maybe


def tell(storage: Storage, script: Script) -> Story:
    """The story on a storage that may fail, up to its end or the process's."""
    story = Story()
    try:
        table = reopened(storage, script)
    except (SimulatedCrash, StorageFailed):
        return story
    try:
        story.run(table)
        table.close()
    except SimulatedCrash:
        with suppress(SimulatedCrash):
            table.disown(StrandlineError("the process has ended"))
    return story


@pytest.fixture(autouse=True)
def _merge_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_OBJECTS", 2)


def _prepared(storage: Storage) -> Script:
    script = Script(now=NOW)
    new_stream(storage, script).put("alice", [row("row-0", -1), OLD], flush=True)
    return script


@pytest.mark.parametrize("fault", KINDS, ids=str)
def test_no_fault_of_a_store_loses_or_doubles_acknowledged_rows(fault: Fault) -> None:
    """[K6] [X5] [STR-6] [STR-7] Every operation of the story goes wrong once."""
    calm = FaultyStorage(open_storage(memory_url()))
    script = _prepared(calm.inner)
    tell(calm, script)
    assert {"put_if_absent", "list", "delete", "folders", "walk", "read"} <= {
        operation.kind for operation in calm.trace
    }
    for number in range(len(calm.trace)):
        inner = open_storage(memory_url())
        script = _prepared(inner)
        faulty = FaultyStorage(inner, {number: fault})
        story = tell(faulty, script)
        faulty.restart()
        story.maybe.add(("row-0", -1))
        story.check(reopened(inner, script))


def _on_disk(faults: dict[int, Any], clone: CrashDisk) -> tuple[CrashDisk, Story, Script]:
    disk = clone.clone()
    disk.faults = faults
    script = Script(now=NOW)
    story = tell(LocalStorage("/t", disk, background=False), script)
    return disk, story, script


def test_no_fault_of_a_disk_loses_or_doubles_acknowledged_rows() -> None:
    """[K3] [K4] [X5] Errors, torn and full writes, and the process's end, at every call."""
    start = CrashDisk()
    start.mkdir("/t")
    _prepared(LocalStorage("/t", start, background=False))
    calm, _, _ = _on_disk({}, start)
    calls = list(calm.trace)
    assert {"open_append", "hold", "write", "state", "read_at", "unlink"} <= {
        call.name for call in calls
    }
    for call in calls:
        for fault in faults_of(call.name):
            disk, story, script = _on_disk({call.number: fault}, start)
            story.maybe.add(("row-0", -1))
            after = LocalStorage("/t", disk.after_power_cut(Unsynced.KEPT), background=False)
            table = reopened(after, script)
            story.check(table)
            table.put("alice", [row("later", 99)], flush=True)
            assert ("later", 99) in pairs(reopened(after, script).range("alice"))
