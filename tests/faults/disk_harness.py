"""Running one case on a disk: a call that fails or never returns, a power cut, the promises."""

from __future__ import annotations

import contextlib
import copy
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from strandline.tableformat.stores import local
from tests.faults.client import Client
from tests.faults.disk import CRASH, TEAR, Call, CrashDisk, DiskFault, Unsynced, faults_of
from tests.faults.harness import check_after_restart
from tests.faults.kinds import SimulatedCrash
from tests.faults.ledger import BrokenPromise, Ledger
from tests.faults.world import Clock, World, scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.faults.scenarios import Scenario

ROOT = "/lake/table"


@dataclass(frozen=True)
class DiskCase:
    """A scenario, the call that goes wrong in it, and what the power cut afterwards leaves."""

    scenario: Scenario
    number: int | None = None
    fault: DiskFault | None = None
    unsynced: Unsynced = Unsynced.LOST
    other_at: int | None = None
    lazy: bool = False
    """Write data files when they are waited for, not before: as late as a thread may be."""
    seed: int = 0

    def __str__(self) -> str:
        fault = "no fault" if self.number is None else f"{self.number}:{self.fault}"
        other = "" if self.other_at is None else f" other@{self.other_at}"
        lazy = " lazy" if self.lazy else ""
        return (
            f"{self.scenario.name} on disk{lazy}{other} {fault}, unsynced {self.unsynced.value}, "
            f"seed {self.seed}"
        )


class _Lazy(Future[Any]):
    """A call that is made when somebody asks for its result."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        super().__init__()
        self._begin: Callable[[], Any] = lambda: call(*args)
        self._begun = False

    def result(self, timeout: float | None = None) -> Any:
        if not self._begun:
            self._begun = True
            try:
                self.set_result(self._begin())
            except BaseException as error:  # noqa: BLE001 - kept for whoever asks again
                self.set_exception(error)
        return super().result(timeout)


def storage_on(disk: CrashDisk) -> local.LocalStorage:
    """Return the table's storage in a new process on this disk."""
    return local.LocalStorage(ROOT, disk, background=False)


_prepared: dict[tuple[str, int], tuple[CrashDisk, Ledger, Clock]] = {}


def run_disk_case(case: DiskCase) -> list[Call]:
    """Tell the story on a disk, cut the power, restart, check; gives the trace."""
    prepare_disk(case.scenario, case.seed)
    with scripted(case.seed, case.scenario.thresholds), pytest.MonkeyPatch.context() as patch:
        if case.lazy:
            patch.setattr(local, "run_now", _Lazy)
        try:
            return _run(case)
        except BrokenPromise as broken:
            raise BrokenPromise(f"{case}: {broken}") from broken
        except Exception as error:
            raise BrokenPromise(f"{case}: {type(error).__name__}: {error}") from error


def prepare_disk(scenario: Scenario, seed: int) -> None:
    """Make the table that a scenario begins with; it is the same for every case."""
    if (scenario.name, seed) in _prepared:
        return
    with scripted(seed, scenario.thresholds):
        disk = CrashDisk()
        world = World(seed, storage_on(disk))
        scenario.prepare(world, Client(world, world.store, "before"))
    _prepared[scenario.name, seed] = disk.after_power_cut(Unsynced.LOST), world.ledger, world.clock


def _run(case: DiskCase) -> list[Call]:
    scenario = case.scenario
    begin, ledger, clock = _prepared[scenario.name, case.seed]
    disk = begin.clone()
    world = World(case.seed, storage_on(disk))
    world.ledger, world.clock = copy.deepcopy(ledger), copy.copy(clock)
    client = Client(world, world.store, "ours")
    scenario.before(world, client)
    disk.trace.clear()
    if case.number is not None and case.fault is not None:
        disk.faults[case.number] = case.fault
    if case.other_at is not None and scenario.other is not None:
        other, act = Client(world, storage_on(disk.peer()), "other"), scenario.other
        disk.hooks[case.other_at] = lambda: act(world, other)
    with contextlib.suppress(SimulatedCrash):
        scenario.run(world, client)
    survivor = disk.after_power_cut(case.unsynced, case.seed)
    world.store = storage_on(survivor)
    check_after_restart(scenario, world)
    return disk.trace


def every_disk_case(
    scenario: Scenario, *, lazy: bool = False, seeds: Iterable[int] = (0,)
) -> Iterator[DiskCase]:
    """Give every call with every fault and every fate of what was not synced."""
    for seed in seeds:
        turns: Iterable[int | None] = [None]
        if scenario.other is not None:
            turns = range(len(run_disk_case(DiskCase(scenario, lazy=lazy, seed=seed))) + 1)
        for turn in turns:
            for unsynced in Unsynced:
                plain = DiskCase(scenario, None, None, unsynced, turn, lazy, seed)
                yield plain
                for call in run_disk_case(plain):
                    for fault in faults_of(call.name):
                        # An error is followed by the end of the story: one fate is enough.
                        if fault in (CRASH, TEAR) or unsynced is Unsynced.LOST:
                            yield DiskCase(scenario, call.number, fault, unsynced, turn, lazy, seed)
