"""The harness itself: each fault does what its name says, and a seed gives one trace."""

from __future__ import annotations

import pytest

from strandline.tableformat import paths
from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
)
from strandline.tableformat.storage import Put
from tests.faults.client import Client
from tests.faults.disk import CrashDisk, DiskFault, Unsynced
from tests.faults.disk_harness import DiskCase, run_disk_case
from tests.faults.harness import Case, run_case, seeded_case
from tests.faults.kinds import (
    BUSY_FOR_LONG,
    CRASH_AFTER,
    CRASH_BEFORE,
    DENY,
    FAIL_BEFORE,
    FAULTS_OF,
    IN_FLIGHT,
    LATE,
    LOSE_REPLY,
    Fault,
    Kind,
    SimulatedCrash,
)
from tests.faults.ledger import decoded
from tests.faults.scenarios import APPEND, ROLL, SCENARIOS, Scenario
from tests.faults.storage import FaultyStorage
from tests.faults.world import World, empty_memory_store, scripted


def storage_with(fault: Fault, number: int = 0) -> FaultyStorage:
    """Return an empty store with one fault."""
    return FaultyStorage(empty_memory_store(), {number: fault})


def holds(storage: FaultyStorage, path: str) -> bool:
    """Whether the store itself has the object."""
    try:
        storage.inner.read(path)
    except ObjectMissing:
        return False
    return True


@pytest.mark.parametrize(
    ("fault", "error", "done"),
    [
        (FAIL_BEFORE, StorageFailed, False),
        (LOSE_REPLY, OutcomeUnclear, True),
        (CRASH_BEFORE, SimulatedCrash, False),
        (CRASH_AFTER, SimulatedCrash, True),
        (DENY, AccessDenied, False),
        (BUSY_FOR_LONG, StoreBusy, False),
        (LATE[0], OutcomeUnclear, False),
    ],
    ids=str,
)
def test_a_create_goes_wrong_as_named(
    fault: Fault, error: type[BaseException], *, done: bool
) -> None:
    """The caller hears one thing, and the store holds what the fault says."""
    storage = storage_with(fault)
    with pytest.raises(error) as raised:
        storage.put_if_absent("a/b", b"1")
    assert type(raised.value) is error
    assert holds(storage, "a/b") is done


@pytest.mark.parametrize("fault", FAULTS_OF["write_new"], ids=str)
def test_what_happens_to_a_data_file_is_told_when_it_is_waited_for(fault: Fault) -> None:
    """Stores write in the background; only a crash needs nobody to wait."""
    storage = storage_with(fault)
    if fault in (CRASH_BEFORE, CRASH_AFTER, *IN_FLIGHT):
        with pytest.raises(SimulatedCrash):
            storage.write_new("a/b", b"1")
    else:
        pending = storage.write_new("a/b", b"1")
        for _ in range(2):
            with pytest.raises(StorageFailed):
                pending.wait()
    assert holds(storage, "a/b") is (fault in (CRASH_AFTER, LOSE_REPLY))


def test_a_data_file_arrives_when_it_is_waited_for_and_not_before() -> None:
    """Otherwise a commit that does not wait would look right."""
    storage = FaultyStorage(empty_memory_store())
    pending = storage.write_new("a/b", b"1")
    assert not holds(storage, "a/b")
    assert storage.put_if_absent("m", b"", after=[pending]) is Put.CREATED
    assert holds(storage, "a/b")


def test_after_a_crash_the_process_does_nothing_more() -> None:
    """Neither reads nor writes, and clean-up code has no effect either."""
    storage = storage_with(CRASH_AFTER)
    with pytest.raises(SimulatedCrash):
        storage.list("a/")
    for act in (lambda: storage.read("x"), lambda: storage.delete(["x"])):
        with pytest.raises(SimulatedCrash):
            act()


@pytest.mark.parametrize("fault", [*LATE, *IN_FLIGHT], ids=str)
def test_a_late_create_lands_when_it_is_due_and_only_if_the_name_is_free(fault: Fault) -> None:
    """It is the same conditional write, only later."""
    for taken in (False, True):
        storage = storage_with(fault)
        with pytest.raises(SimulatedCrash if fault in IN_FLIGHT else OutcomeUnclear):
            storage.put_if_absent("a", b"late")
        if taken:
            storage.inner.put_if_absent("a", b"other")
        for _ in range(fault.lands if isinstance(fault.lands, int) else 0):
            assert holds(storage, "a") is taken
            storage.list("b/")
        if fault not in IN_FLIGHT:
            storage.list("b/")
        storage.restart()
        storage.reopened()
        assert storage.inner.read("a") == (b"other" if taken else b"late")


def test_a_busy_store_is_busy_as_often_as_asked() -> None:
    """`times` counts operations in a row."""
    storage = storage_with(Fault(Kind.THROTTLE, times=2, code=429))
    for _ in range(2):
        with pytest.raises(StoreBusy, match="429"):
            storage.list("a/")
    assert storage.list("a/") == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_gives_the_same_trace(scenario: Scenario) -> None:
    """[X5] A failing case can be run again, operation for operation."""
    case = seeded_case(scenario, 7)
    assert run_case(case) == run_case(case)
    assert run_disk_case(DiskCase(APPEND, seed=7)) == run_disk_case(DiskCase(APPEND, seed=7))
    assert run_case(Case(APPEND, seed=1)) != run_case(Case(APPEND, seed=2))


def test_the_roll_scenario_does_every_kind_of_housekeeping() -> None:
    """Rolling, merging and folding, of windows and of positions, all happen under faults."""
    with scripted(0, ROLL.thresholds):
        world = World(0, empty_memory_store())
        ROLL.prepare(world, Client(world, world.store, "before"))
        begin = len(world.store.list(paths.MANIFESTS))
        ROLL.run(world, Client(world, world.store, "ours"))
        names = sorted(world.store.list(paths.MANIFESTS), reverse=True)
        versions = [
            decoded(world.store.read(paths.MANIFESTS + name), number)
            for number, name in enumerate(names, 1)
        ]
    seen = set()
    for before, after in zip(versions[begin - 1 :], versions[begin:], strict=False):
        removed = set(after.removed_files)
        seen |= {"roll"} if len(after.segments) < len(before.segments) else set()
        seen |= {"merge pages"} if any(p.endswith(".parquet") for p in removed) else set()
        for what in ("window_pages", "position_pages"):
            old = {page.path for page in getattr(before, what)}
            new = {page.path for page in getattr(after, what)}
            seen |= {f"fold {what}"} if new - old else set()
            seen |= {f"merge {what}"} if old - new else set()
    assert seen == {
        "roll",
        "merge pages",
        "fold window_pages",
        "merge window_pages",
        "fold position_pages",
        "merge position_pages",
    }


# --- the disk ---


def disk_with_file(*, synced: bool, named: bool) -> CrashDisk:
    """Return a disk with one file, its bytes and its name synced or not."""
    disk = CrashDisk()
    fd = disk.open_new("/f")
    disk.write(fd, memoryview(b"12345678"))
    if synced:
        disk.fsync(fd)
    disk.close(fd)
    if named:
        disk.fsync_dir("/")
    return disk


def test_a_power_cut_takes_what_was_not_synced() -> None:
    """Bytes need fsync, names need the folder's fsync, and neither stands for the other."""
    for synced in (False, True):
        for named in (False, True):
            disk = disk_with_file(synced=synced, named=named)
            kept = disk.after_power_cut(Unsynced.KEPT)
            assert kept.read("/f") == b"12345678"
            lost = disk.after_power_cut(Unsynced.LOST)
            assert lost.scan("/") == ([("f", False)] if named else [])
            if named:
                assert lost.read("/f") == (b"12345678" if synced else b"")


def test_mixed_fates_tear_files_and_drop_names() -> None:
    """Some seed gives every outcome that a real disk may give."""
    disk = disk_with_file(synced=False, named=False)
    found = set()
    for seed in range(2_000):
        after = disk.after_power_cut(Unsynced.MIXED, seed)
        found.add(after.read("/f") if after.scan("/") else None)
    assert {None, b"", b"12345678", b"1234", b"1234" + bytes(4)} <= found


def test_an_unsynced_unlink_may_come_back() -> None:
    """Removing a name is as volatile as giving one."""
    disk = disk_with_file(synced=True, named=True)
    disk.unlink("/f")
    assert disk.scan("/") == []
    assert disk.after_power_cut(Unsynced.LOST).read("/f") == b"12345678"
    assert disk.after_power_cut(Unsynced.KEPT).scan("/") == []


def test_a_torn_write_leaves_half_of_the_bytes() -> None:
    """The process ends in the middle of a write."""
    disk = CrashDisk()
    fd = disk.open_new("/f")
    disk.faults[1] = DiskFault(torn=True)
    with pytest.raises(SimulatedCrash):
        disk.write(fd, memoryview(b"12345678"))
    assert disk.after_power_cut(Unsynced.KEPT).read("/f") == b"1234"
    with pytest.raises(SimulatedCrash):
        disk.fsync(fd)
