"""Two operations on a keyed table at once: one stops before each storage operation of the other."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from strandline.api import create_in, open_in
from tests.faults.ledger import check_store
from tests.faults.storage import FaultyStorage
from tests.faults.world import (
    START_MS,
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
    from collections.abc import Callable

    from strandline.table import Table
    from strandline.tableformat.storage import Storage

SMALL = {"ROLL_AT": 4, "ROLL_STEP": 1, "ROLL_ALL_AT": 5, "LEAST_PAGE": 2, "TIER_FACTOR": 2}
HOUR_MS = 3_600_000


def row(hours: float, key: int, v: str) -> dict[str, Any]:
    """A row so many hours before the clock begins."""
    return {"at": START_MS - int(hours * HOUR_MS), "id": key, "v": v}


@cache
def _objects() -> Objects:
    """Two windows with replaced rows, deleted keys, a late row and pages."""
    clock = Clock()
    with scripted(0, SMALL):
        world = World(0, empty_memory_store(clock.peek_ms), clock)
        clock.sleep(-2 * HOUR_MS / 1000)
        table = create_in(
            world.store,
            {"at": "int64", "id": "int64", "v": "string"},
            runtime=world.runtime("before"),
            time_column="at",
            ttl="1d",
            primary_key="id",
        )
        for n in range(3):
            table.upsert([row(9 - n / 10, key, f"old {n}") for key in (1, 2, 3, 4)])
        table.upsert([row(5, 1, "kept"), row(5, 3, "bad")])
        table.delete(keys=[4, 9])
        table.upsert([row(8, 5, "kept"), row(8.5, 4, "late")])
        clock.sleep(2 * HOUR_MS / 1000)
        return objects_in(world.store)


def _upsert(table: Table) -> None:
    assert table.upsert([row(1, 6, "new"), row(7, 5, "newer"), row(8, 9, "late")]).rows == 3


def _delete_keys(table: Table) -> None:
    assert table.delete(keys=[2, 8]).rows == 2


def _delete_where(table: Table) -> None:
    table.delete(filter="v = 'bad'")


def found(table: Table) -> dict[int, str]:
    """What a scan gives, by key; `exists` and `get` say the same."""
    rows = table.scan(["id", "v"]).to_arrow()
    given = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(given) == rows.num_rows
    return given


BEFORE = {1: "kept", 2: "old 2", 3: "bad", 5: "kept"}
AFTER: dict[str, dict[int, str | None]] = {
    "upsert": {6: "new", 5: "newer"},
    "delete keys": {2: None},
    "delete where": {3: None},
    "compact": {},
    "read": {},
}
OPERATIONS: dict[str, Callable[[Table], Any]] = {
    "upsert": _upsert,
    "delete keys": _delete_keys,
    "delete where": _delete_where,
    "compact": lambda table: table.compact(),
    "read": found,
}
FORGOTTEN_9 = {9: "late"}
"""Key 9 was deleted and never had a row: once compaction has been there, a late one counts."""
PAIRS = [pair for pair in product(OPERATIONS, OPERATIONS) if pair != ("read", "read")]
QUICK = [pair for pair in PAIRS if "compact" in pair]


def expected(*done: str) -> dict[int, str]:
    """The keys after some operations, in any order: each has keys of its own."""
    left: dict[int, str | None] = dict(BEFORE)
    for name in done:
        left |= AFTER[name]
    return {key: v for key, v in left.items() if v is not None}


def _handle(world: World, storage: Storage, name: str) -> Table:
    return open_in(storage, runtime=world.runtime(name))


def interleave(first: str, second: str, stop: int | None) -> int:
    """Run the first operation, and the second before its storage operation of a number."""
    clock = Clock()
    with scripted(0, SMALL):
        world = World(0, memory_store_with(_objects(), clock.peek_ms), clock)
        faulty = FaultyStorage(world.store, clock_ms=clock.peek_ms)
        table, other = _handle(world, faulty, "first"), _handle(world, world.store, "second")
        faulty.trace.clear()
        if stop is not None:
            faulty.hooks[stop] = lambda: OPERATIONS[second](other)
        OPERATIONS[first](table)
        if stop is not None and stop >= len(faulty.trace):
            OPERATIONS[second](other)
        forget_everything()
        check_store(world.store)
        after = _handle(world, world.store, "after")
        wanted = expected(first, *([] if stop is None else [second]))
        may_come = FORGOTTEN_9 if {first, second} == {"upsert", "compact"} else {}
        assert found(after) in (wanted, {**wanted, **may_come})
        keys = range(10)
        assert after.exists(keys).tolist() == [key in found(after) for key in keys]
        assert after.verify(deep=True).ok
        for _ in range(2):
            _handle(world, world.store, "again").compact()
            assert found(_handle(world, world.store, "reader")) == found(after)
    return len(faulty.trace)


@pytest.mark.parametrize(("first", "second"), QUICK, ids=[f"{a}-{b}" for a, b in QUICK])
def test_two_operations_on_a_keyed_table_at_once(first: str, second: str) -> None:
    """[C4] [M7] [KEY-13] Whatever comes first, the same keys are there."""
    length = interleave(first, second, None)
    step = max(1, length // 3)
    for stop in range(QUICK.index((first, second)) % step, length + 1, step):
        interleave(first, second, stop)


@pytest.mark.proof
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_every_pair_on_a_keyed_table_at_every_operation(first: str, second: str) -> None:
    """[C4] [M7] [KEY-13] The same at each single storage operation."""
    for stop in range(interleave(first, second, None) + 1):
        interleave(first, second, stop)
