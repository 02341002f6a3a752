"""The harness can fail: bugs that others have shipped are planted, and each is found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import chain as chained
from typing import TYPE_CHECKING, Any

import pytest

from strandline import appending
from strandline.catalog import commit, documents
from strandline.tableformat import actions, moves, paths
from strandline.tableformat.errors import CommitStateUnknown, OutcomeUnclear, StorageFailed
from strandline.tableformat.segments import WindowEntry
from strandline.tableformat.storage import Put
from strandline.tableformat.stores import local
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.writers import recovery
from strandline.writers.flusher import Flusher
from strandline.writers.wal_files import FileLog
from strandline.writers.writer import Writer
from tests.faults.disk import CRASH, ERROR, TEAR, Unsynced
from tests.faults.disk_harness import DiskCase, every_disk_case, prepare_disk, run_disk_case
from tests.faults.harness import Case, every_case, prepare, run_case
from tests.faults.ledger import BrokenPromise
from tests.faults.scenarios import (
    APPEND,
    CLAMP,
    CONCURRENT,
    CONCURRENT_ROLL,
    FLUSH,
    KEYED,
    RECOVER,
    ROLL,
    SCENARIOS,
    WIDE,
    ZOMBIE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.faults.scenarios import Scenario

Patch = pytest.MonkeyPatch
Attempt = commit._Attempt  # noqa: SLF001 - bugs are planted inside
Local = local.LocalStorage


def found(scenario: Scenario) -> str:
    """The first broken promise among all turns of another process and all single faults."""
    turns = [Case(scenario, other_at=turn) for turn in range(20)] if scenario.other else []
    return _first(run_case, chained(turns, every_case(scenario)))


def found_on_disk(scenario: Scenario, *, lazy: bool = False) -> str:
    """The first broken promise among all power cuts and disk errors of a scenario."""
    plain = [DiskCase(scenario, unsynced=fate, lazy=lazy, seed=1) for fate in Unsynced]
    return _first(run_disk_case, chained(plain, every_disk_case(scenario, lazy=lazy)))


def _first(run: Any, cases: Iterable[Any]) -> str:
    try:
        for case in cases:
            run(case)
    except BrokenPromise as broken:
        return str(broken)
    raise AssertionError("no case found the planted bug")


@pytest.fixture(autouse=True)
def prepared() -> None:
    """Tables that scenarios begin with are made before a bug is planted."""
    for scenario in SCENARIOS:
        prepare(scenario, 0)
    for scenario in (APPEND, WIDE, ROLL, FLUSH):
        for seed in (0, 1):
            prepare_disk(scenario, seed)


def test_taking_exists_for_success_is_found(monkeypatch: Patch) -> None:
    """[C1] Another writer's version is not ours."""
    monkeypatch.setattr(Attempt, "_other_than_us", lambda *_: None)
    assert "(done) is lost" in found(CONCURRENT)


def test_taking_exists_for_failure_is_found(monkeypatch: Patch) -> None:
    """[C1] A new commit id for each attempt does not know its own commit again."""
    monkeypatch.setattr(Attempt, "_other_than_us", lambda self, version: self.chain.load(version))
    assert "refers to a file twice" in found(APPEND)


def test_trying_the_next_version_after_an_unclear_answer_is_found(monkeypatch: Patch) -> None:
    """[C1] Only the identical create may be sent again."""

    def one_try(self: Any, version: int, data: bytes, pending: Any) -> Any:
        path = paths.manifest_path(version)
        outcome = self.chain.storage.put_if_absent(path, data, after=pending)
        return None if outcome is Put.CREATED else self.chain.load(version)

    def once(self: Any, head: Any, change: Any) -> Any:
        try:
            return right(self, head, change)
        except OutcomeUnclear:
            return None, self.chain.refresh(head)

    right = Attempt.once
    monkeypatch.setattr(Attempt, "create_version", one_try)
    monkeypatch.setattr(Attempt, "once", once)
    assert "refers to a file twice" in found(APPEND)


def test_not_waiting_for_data_files_is_found(monkeypatch: Patch) -> None:
    """[X5] A manifest must not be seen before its files are durable."""
    right = MemoryStorage.put_if_absent

    def put(self: Any, path: str, data: bytes, *, after: Any = ()) -> Put:
        del after
        return right(self, path, data)

    monkeypatch.setattr(MemoryStorage, "put_if_absent", put)
    assert "missing" in found(APPEND).lower()


def test_acknowledging_what_was_refused_is_found(monkeypatch: Patch) -> None:
    """[C1] An error of the create is no success."""
    right = Attempt.create_version

    def create_version(self: Any, *args: Any) -> Any:
        with suppress(StorageFailed):
            return right(self, *args)
        return None

    monkeypatch.setattr(Attempt, "create_version", create_version)
    assert "versions have gaps" in found(APPEND)


def test_deleting_files_of_an_unknown_commit_is_found(monkeypatch: Patch) -> None:
    """[X5] The commit may have landed: its files must stay."""
    right = commit.commit

    def tidy_minded(chain: Any, base: Any, change: Any, **options: Any) -> Any:
        try:
            return right(chain, base, change, **options)
        except CommitStateUnknown:
            files = [e.path for action in change.actions for e in action.segments]
            chain.storage.inner.delete(files)
            raise

    monkeypatch.setattr(appending, "commit", tidy_minded)
    assert "listed and missing" in found(APPEND)


def test_not_looking_for_a_vacuums_marker_is_found(monkeypatch: Patch) -> None:
    """[C1] A version below the marker is not a commit."""
    monkeypatch.setattr(Attempt, "is_zombie", lambda *_: False)
    assert "(done) is lost" in found(ZOMBIE)


def test_forgetting_batch_keys_is_found(monkeypatch: Patch) -> None:
    """[E15] A batch that is sent again is not stored again."""
    monkeypatch.setattr(actions, "settle_key", lambda *_: None)
    assert "batch 2" in found(KEYED)


def test_forgetting_folded_positions_is_found(monkeypatch: Patch) -> None:
    """[E15] Positions in pages count as well."""
    monkeypatch.setattr(documents, "cold_positions", lambda *_: {})
    assert "twice" in found(ROLL) or "told" in found(ROLL)


def test_keeping_clamped_rows_after_a_lost_race_is_found(monkeypatch: Patch) -> None:
    """[C1] Rows are clamped again when the tail has moved."""
    right = actions._add_segments  # noqa: SLF001 - a bug is planted here

    def add(draft: Any, action: Any, *rest: Any) -> Any:
        return right(draft, replace(action, clamped_to=None), *rest)

    monkeypatch.setattr(actions, "_add_segments", add)
    assert "_ts goes back" in found(CLAMP)


def test_rolling_what_another_has_rolled_is_found(monkeypatch: Patch) -> None:
    """[C1] A page takes the place of segments only while all of them are still listed."""

    def roll(draft: Any, action: Any) -> Any:
        moved = set(action.moved)
        kept = tuple(entry for entry in draft.segments if entry.path not in moved)
        window = WindowEntry(window=action.window, pages=(action.page,))
        return replace(draft, segments=kept, windows=(*draft.windows, window))

    monkeypatch.setattr(moves, "roll", roll)
    assert "rows of" in found(CONCURRENT_ROLL)


# --- writers with a log ---


def test_pruning_the_log_before_the_commit_is_found(monkeypatch: Patch) -> None:
    """[E1] Rows stay in the log until they are certainly in the table."""
    right = Flusher._flush  # noqa: SLF001 - a bug is planted here

    def flush(self: Any, memtable: Any) -> bool:
        self._prune(memtable.last_record)
        return right(self, memtable)

    monkeypatch.setattr(Flusher, "_flush", flush)
    assert "(done) is lost" in found(FLUSH)


def test_forgetting_what_was_committed_before_a_crash_is_found(monkeypatch: Patch) -> None:
    """[E15] Replay begins behind the writer's position."""

    def commit_all(self: Any) -> tuple[int, str]:
        first = self.files[0].header.first_record if self.files else 1
        return first - 1, f"recovered#{self.incarnation}"

    monkeypatch.setattr(recovery._Log, "_position", commit_all)  # noqa: SLF001
    assert "holds" in found(FLUSH)


def test_removing_a_log_that_was_not_replayed_is_found(monkeypatch: Patch) -> None:
    """[E1] A log is removed behind its last record's commit."""
    monkeypatch.setattr(recovery._Log, "replay", lambda *_, **__: recovery.Recovered())  # noqa: SLF001
    assert "(done) is lost" in found(RECOVER)


def test_acknowledging_before_the_sync_of_the_log_is_found(monkeypatch: Patch) -> None:
    """[E1] With fsync, an acknowledgement survives a power cut."""
    monkeypatch.setattr(Writer, "_keep_promise", lambda *_: None)
    assert "(done) is lost" in found_on_disk(FLUSH)


def test_not_syncing_the_name_of_a_log_file_is_found(monkeypatch: Patch) -> None:
    """[E1] A file whose name was not synced is not there after a power cut."""
    right = FileLog._open_file  # noqa: SLF001

    def open_file(self: Any, header: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._disk, "fsync_dir", lambda _: None)
            right(self, header)

    monkeypatch.setattr(FileLog, "_open_file", open_file)
    assert "(done) is lost" in found_on_disk(FLUSH)


# --- on a disk ---


def test_skipping_the_sync_of_files_is_found(monkeypatch: Patch) -> None:
    """[X5] Bytes that were not synced are not there after a power cut."""

    def write_file(self: Any, full: str, data: Any) -> None:
        fd = self._open_new(full)
        self._disk.write(fd, memoryview(data))
        self._disk.close(fd)

    monkeypatch.setattr(Local, "_write_file", write_file)
    assert "unsynced" in found_on_disk(APPEND)


def test_skipping_the_sync_of_the_manifests_name_is_found(monkeypatch: Patch) -> None:
    """[X5] A linked name that was not synced is not there after a power cut."""
    monkeypatch.setattr(Local, "_sync_names", lambda *_: None)
    assert "(done) is lost" in found_on_disk(APPEND)


def test_skipping_the_sync_of_new_folders_is_found(monkeypatch: Patch) -> None:
    """[X5] A file in a folder whose own name was not synced is not there after a power cut."""
    monkeypatch.setattr(Local, "_make_durable", lambda *_: None)
    assert "listed and missing" in found_on_disk(WIDE)


def test_forgetting_that_an_outer_folder_was_not_synced_is_found(monkeypatch: Patch) -> None:
    """[X5] One failed sync of a folder's name must not be the last one tried."""

    def make_durable(self: Any, folder: str) -> None:
        while folder not in self._durable_folders and folder.startswith(self._root):
            outer = folder.rpartition("/")[0]
            self._disk.fsync_dir(outer)
            self._durable_folders.add(folder)
            folder = outer

    monkeypatch.setattr(Local, "_make_durable", make_durable)
    errors = (case for case in every_disk_case(ROLL) if case.fault == ERROR)
    assert "listed and missing" in _first(run_disk_case, errors)


def test_not_waiting_for_syncs_is_found(monkeypatch: Patch) -> None:
    """[X5] The link comes after every sync, however late its thread is."""
    right = Local.put_if_absent

    def put(self: Any, path: str, data: bytes, *, after: Any = ()) -> Put:
        outcome = right(self, path, data)
        for pending in after:
            pending.wait()
        return outcome

    monkeypatch.setattr(Local, "put_if_absent", put)
    assert "listed and missing" in found_on_disk(APPEND, lazy=True)


def test_creating_the_name_before_the_bytes_is_found(monkeypatch: Patch) -> None:
    """[X5] A crash would leave a torn version behind."""

    def put(self: Any, path: str, data: bytes, *, after: Any = ()) -> Put:
        for pending in after:
            pending.wait()
        full = self._full(path)
        with suppress(FileExistsError):
            self._write_file(full, data)
            self._sync_names(full.rpartition("/")[0], path)
            return Put.CREATED
        return Put.EXISTS

    monkeypatch.setattr(Local, "put_if_absent", put)
    crashes = (case for case in every_disk_case(APPEND) if case.fault in (CRASH, TEAR))
    assert "CorruptTable" in _first(run_disk_case, crashes)


def test_taking_a_failed_link_for_refused_is_found(monkeypatch: Patch) -> None:
    """[C1] A network disk may report an error of a link that was made."""
    monkeypatch.setattr(local, "_NOT_LINKED", frozenset(range(200)))
    assert "(refused) is in the table" in found_on_disk(APPEND)
