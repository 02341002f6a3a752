"""Running one case: a story with faults, a restart, and the promises checked."""

from __future__ import annotations

import contextlib
import copy
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.client import Client
from tests.faults.kinds import FAULTS_OF, Fault, SimulatedCrash
from tests.faults.ledger import Batch, BrokenPromise, Ledger, Told, check_store
from tests.faults.storage import FaultyStorage, Operation
from tests.faults.world import (
    Clock,
    Objects,
    World,
    empty_memory_store,
    forget_everything,
    memory_store_with,
    objects_in,
    scripted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.faults.scenarios import Scenario

LAST_BATCH = 9_999


@dataclass(frozen=True)
class Case:
    """A scenario with the faults that hit it; everything else follows from the seed."""

    scenario: Scenario
    faults: tuple[tuple[int, Fault], ...] = ()
    other_at: int | None = None
    """The operation before which the scenario's other process has its turn."""
    is_local: bool = False
    """Follow a commit's rules for disks: look first, and always look for a vacuum's marker."""
    seed: int = 0

    def __str__(self) -> str:
        faults = " ".join(f"{number}:{fault}" for number, fault in self.faults)
        other = "" if self.other_at is None else f" other@{self.other_at}"
        rules = " local" if self.is_local else ""
        return f"{self.scenario.name}{rules}{other} {faults or 'no fault'} seed {self.seed}"


def run_case(case: Case) -> list[Operation]:
    """Tell the story, restart, check; gives the trace. `BrokenPromise` names the case."""
    prepare(case.scenario, case.seed)
    with scripted(case.seed, case.scenario.thresholds):
        try:
            return _run(case, _prepared_world(case))
        except BrokenPromise as broken:
            raise BrokenPromise(f"{case}: {broken}") from broken
        except Exception as error:
            raise BrokenPromise(f"{case}: {type(error).__name__}: {error}") from error


_prepared: dict[tuple[str, int], tuple[Objects, Ledger, Clock]] = {}


def prepare(scenario: Scenario, seed: int) -> None:
    """Make the table that a scenario begins with; it is the same for every case."""
    if (scenario.name, seed) in _prepared:
        return
    with scripted(seed, scenario.thresholds):
        clock = Clock()
        world = World(seed, empty_memory_store(clock.peek_ms), clock)
        scenario.prepare(world, Client(world, world.store, "before"))
        objects = objects_in(world.store)
    _prepared[scenario.name, seed] = objects, world.ledger, world.clock


def _prepared_world(case: Case) -> World:
    objects, ledger, clock = _prepared[case.scenario.name, case.seed]
    clock = copy.copy(clock)
    world = World(case.seed, memory_store_with(objects, clock.peek_ms), clock)
    world.ledger = copy.deepcopy(ledger)
    return world


def _run(case: Case, world: World) -> list[Operation]:
    scenario = case.scenario
    storage = FaultyStorage(world.store, clock_ms=world.clock.peek_ms, is_local=case.is_local)
    client = Client(world, storage, "ours")
    scenario.before(world, client)
    storage.trace.clear()
    storage.faults.update(case.faults)
    if case.other_at is not None and scenario.other is not None:
        other, act = Client(world, world.store, "other"), scenario.other
        storage.hooks[case.other_at] = lambda: act(world, other)
    with contextlib.suppress(SimulatedCrash):
        scenario.run(world, client)
    storage.restart()
    check_after_restart(case.scenario, world, storage.reopened)
    return storage.trace


def check_after_restart(scenario: Scenario, world: World, reopened: object = None) -> None:
    """Open the table in a new process, keep on working, and compare with the ledger."""
    forget_everything()
    survivor = Client(world, world.store, "restarted")
    survivor.open()
    if callable(reopened):
        reopened()
    scenario.after_restart(world, survivor)
    check_promises(scenario, world)
    survivor.append(Batch(LAST_BATCH))
    if world.ledger.told[LAST_BATCH] is not Told.DONE:
        raise BrokenPromise("the table takes no further append")
    forget_everything()
    check_promises(scenario, world)


def check_promises(scenario: Scenario, world: World) -> None:
    """Everything that was promised to anybody, against what the store holds."""
    head = check_store(world.store)
    table = Client(world, world.store, "reader").table
    rows = table.scan(columns=["at", "batch", "i", "text", "_seq", "_ts"]).to_arrow().to_pylist()
    world.ledger.check_rows(
        rows,
        head.next_seq,
        clamped=scenario.config.get("order") == "clamp",
        keyed=bool(head.config.primary_key),
    )
    if table.version != head.version:
        raise BrokenPromise(f"the head is {table.version}, the newest version {head.version}")
    if not world.ledger.columns <= set(table.schema.names):
        raise BrokenPromise(f"columns are lost: {world.ledger.columns - set(table.schema.names)}")


def every_case(scenario: Scenario, *, is_local: bool = False, seed: int = 0) -> Iterator[Case]:
    """Give every operation with every fault, and with another process every place for its turn.

    Operations that come only after a fault, such as a second attempt, are for `second_faults`.
    """
    quiet = Case(scenario, is_local=is_local, seed=seed)
    turns: Iterable[int | None] = [None]
    if scenario.other is not None:
        turns = [None, *range(len(run_case(quiet)) + 1)]
    for turn in turns:
        plain = Case(scenario, other_at=turn, is_local=is_local, seed=seed)
        yield plain
        for operation in run_case(plain):
            for fault in FAULTS_OF[operation.kind]:
                yield Case(scenario, ((operation.number, fault),), turn, is_local, seed)


def second_faults(case: Case) -> Iterator[Case]:
    """After a first fault, every fault at every operation behind it."""
    first = max(number for number, _ in case.faults)
    for operation in run_case(case):
        if operation.number > first:
            for fault in FAULTS_OF[operation.kind]:
                faults = (*case.faults, (operation.number, fault))
                yield Case(case.scenario, faults, case.other_at, case.is_local, case.seed)


def seeded_case(scenario: Scenario, seed: int) -> Case:
    """A case with several faults, all chosen by the seed."""
    chance = random.Random(f"{scenario.name} {seed}")
    is_local = chance.random() < 0.5
    trace = run_case(Case(scenario, is_local=is_local, seed=seed))
    faults: Mapping[int, Fault] = {
        number: chance.choice(FAULTS_OF[chance.choice(trace).kind])
        for number in chance.sample(range(2 * len(trace) + 4), k=min(4, len(trace)))
    }
    turn = chance.randrange(len(trace) + 1) if scenario.other is not None else None
    return Case(scenario, tuple(sorted(faults.items(), key=lambda f: f[0])), turn, is_local, seed)
