"""Two operations at once: one stops before each of its storage operations, the other runs whole."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from strandline.api import create_in, open_in
from strandline.tableformat import rolling
from strandline.tableformat.errors import CommitConflict, ImplausibleExpiry
from strandline.tableformat.windows import DAY_MS, HOUR_MS
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
from tests.maintenance.aging import SCHEMA, numbers, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.table import Table
    from strandline.tableformat.storage import Storage

SMALL = {"ROLL_AT": 3, "ROLL_STEP": 1, "ROLL_ALL_AT": 4, "LEAST_PAGE": 2, "TIER_FACTOR": 2}
YEARS_MS = 10 * 365 * DAY_MS
NEWEST = 10
BEFORE = list(range(NEWEST + 1))
"""Row n is n days old; the newest was appended a moment ago. With a TTL of a week, 8 and 9 go."""
TRIM_TO = 2
OLDER = 14
"""The version that was the newest until a moment ago: a purge gives it up."""
TAGGED = [0, 1, 2]
PINNED = {"newest": BEFORE, "older": BEFORE[:-1], "tag": TAGGED}
"""What readers see that opened the table before."""


class Jumping(Clock):
    """A clock for everybody, and one of the store's own."""

    skew_ms = 0

    def store_ms(self) -> int:
        return self.peek_ms() + self.skew_ms


@cache
def _objects() -> Objects:
    """A table whose files are days old, with pages, an old version and orphans."""
    clock = Jumping()
    with scripted(0, SMALL):
        world = World(0, empty_memory_store(clock.store_ms), clock)
        clock.sleep(-5 * DAY_MS / 1000)
        table = create_in(
            world.store,
            SCHEMA,
            runtime=world.runtime("before"),
            time_column="at",
            ttl="7d",
            # Rows keep their times, also where the clock has gone back behind them.
            uncapped=True,
        )
        for n in range(NEWEST):
            table.append([row(START_MS - n * DAY_MS, n)])
        table.tag("tagged", 4)
        day = START_MS - START_MS % DAY_MS
        for path in (
            f"w{day}-{DAY_MS}/shard-0/batch-1-{'c' * 16}.parquet",
            f"_strandline/pages/1-{'b' * 16}.parquet",
            "_strandline/manifests/.tmp-1",
        ):
            world.store.write_new(path, b"left behind").wait()
        clock.sleep(5 * DAY_MS / 1000)
        table.append([row(START_MS, NEWEST)])
        table.expire_versions("1d")
        return objects_in(world.store)


@dataclass
class Pair:
    """What two operations saw and did."""

    added: list[int]
    seen: list[list[int]]


def _append(table: Table, pair: Pair) -> None:
    n = 100 + len(pair.added)
    pair.added.append(n)
    done = table.append([row(START_MS + 1, n)])
    # Where the clock has jumped over the TTL, the row is below the floor when it comes.
    assert (done.rows, done.dropped) in ((1, 0), (0, 1))
    assert not done.dropped or table.refresh().manifest.floor_ts > START_MS


def _expire(table: Table, pair: Pair) -> None:
    del pair
    table.expire()


def _trim(table: Table, pair: Pair) -> None:
    del pair
    assert table.trim(TRIM_TO) == TRIM_TO


def _read(table: Table, pair: Pair) -> None:
    pair.seen.append(sorted(numbers(table)))


def _purge(table: Table, pair: Pair) -> None:
    """All that others may have open is given up: untagged, or not the newest."""
    del pair
    with suppress(CommitConflict):  # the other one was faster
        table.untag("tagged")
    table.purge(dry_run=False)


class _NoWaiting(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.set()
        return True


def _follow(table: Table, pair: Pair) -> None:
    found: list[int] = []
    batches = table.follow(0, ["n"])
    # It ends where it would wait: there may be nothing left to come.
    with mock.patch.object(batches, "_stopped", _NoWaiting()):
        for batch in batches:
            found += batch.column("n").to_pylist()
    assert len(set(found)) == len(found)
    pair.seen.append(sorted(found))


OPERATIONS: dict[str, Callable[[Table, Pair], Any]] = {
    "append": _append,
    "expire": _expire,
    "compact": lambda table, _: table.compact(min_segments=2),
    "vacuum": lambda table, _: table.vacuum(dry_run=False),
    "trim": _trim,
    "purge": _purge,
    "read": _read,
    "follow": _follow,
}
PAIRS = list(product(OPERATIONS, OPERATIONS))


def _handle(world: World, storage: Storage, name: str, version: int | str | None = None) -> Table:
    return open_in(storage, version, runtime=world.runtime(name))


def interleave(
    first: str, second: str, stop: int | None, jump: Callable[[Jumping], None] = lambda _: None
) -> int:
    """Run the first operation, and the second before its storage operation of a number.

    `jump` turns clocks at that moment. Gives the number of the first one's storage operations.
    """
    clock = Jumping()
    with scripted(0, SMALL):
        world = World(0, memory_store_with(_objects(), clock.store_ms), clock)
        faulty = FaultyStorage(world.store, clock_ms=clock.store_ms)
        table, other = _handle(world, faulty, "first"), _handle(world, world.store, "second")
        readers = {
            name: _handle(world, world.store, "reader", version)
            for name, version in (("newest", table.version), ("older", OLDER), ("tag", "tagged"))
        }
        faulty.trace.clear()
        pair = Pair([], [])

        def meanwhile() -> None:
            jump(clock)
            with mock.patch.object(rolling, "ROLL_AT", 3):
                _run(second, other, pair)

        if stop is not None:
            faulty.hooks[stop] = meanwhile
        _run(first, table, pair)
        if stop is not None and stop >= len(faulty.trace):
            meanwhile()
        forget_everything()
        _check(world, readers, pair, grace_is_over=clock.peek_ms() > START_MS + DAY_MS)
    return len(faulty.trace)


def _run(name: str, table: Table, pair: Pair) -> None:
    try:
        OPERATIONS[name](table, pair)
    except ImplausibleExpiry:
        assert name in ("expire", "purge")


def _check(world: World, readers: dict[str, Table], pair: Pair, *, grace_is_over: bool) -> None:
    head = check_store(world.store)
    table = _handle(world, world.store, "after")
    assert head.trim_seq in (0, TRIM_TO)
    visible = [n for n in BEFORE if n >= head.trim_seq and _time_of(n) >= head.floor_ts]
    added = pair.added if head.floor_ts <= START_MS else []
    assert sorted(numbers(table)) == [*visible, *added]
    assert table.verify(deep=True).ok
    for seen in pair.seen:
        # A reader saw what was there before one of the steps or after it, and nothing else.
        assert set(visible) <= set(seen) <= {*BEFORE, *pair.added}
        assert seen == sorted(set(seen))
    if not grace_is_over:
        assert {name: sorted(numbers(reader)) for name, reader in readers.items()} == PINNED
        if "tagged" in table.tags():
            assert sorted(numbers(open_in(world.store, "tagged"))) == [
                n for n in TAGGED if n in visible
            ]


def _time_of(n: int) -> int:
    return START_MS - n % NEWEST * DAY_MS


def _stops(first: str) -> range:
    return range(_length(first) + 1)


@cache
def _length(first: str) -> int:
    return interleave(first, "read", None)


JUMPS: dict[str, Callable[[Jumping], None]] = {
    **{
        f"store {name}": lambda clock, ms=ms: setattr(clock, "skew_ms", ms)
        for name, ms in (
            ("+1h", HOUR_MS),
            ("-1h", -HOUR_MS),
            ("+10y", YEARS_MS),
            ("-10y", -YEARS_MS),
        )
    },
    **{
        f"all {name}": lambda clock, ms=ms: clock.sleep(ms / 1000)
        for name, ms in (
            ("+1h", HOUR_MS),
            ("-1h", -HOUR_MS),
            ("+10y", YEARS_MS),
            ("-10y", -YEARS_MS),
        )
    },
}


def test_the_operations_do_something() -> None:
    """Each has work to do on the table of these tests, or the pairs would show nothing."""
    clock = Jumping()
    with scripted(0, SMALL):
        store = memory_store_with(_objects(), clock.store_ms)
        table = _handle(World(0, store, clock), store, "all")
        assert table.expire(dry_run=True).rows_hidden == 2
        assert table.compact(min_segments=2, dry_run=True).runs
        assert sorted(numbers(table)) == PINNED["newest"]
        assert len(table.vacuum().removed) > 2
        assert table.manifest.windows


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_two_operations_at_once_lose_nothing(first: str, second: str) -> None:
    """[C1] [C2] [C8] [X1] [O11] Rows once, references whole, a pinned reader reads on."""
    stops = _stops(first)
    step = max(1, len(stops) // 3)
    for stop in stops[PAIRS.index((first, second)) % step :: step]:
        interleave(first, second, stop)


@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("first", ["expire", "vacuum"])
def test_clocks_jump_in_between(first: str, jump: str) -> None:
    """[C8] [X1] The store's clock alone, or everybody's, by an hour or by years."""
    for second in ("expire", "vacuum"):
        stops = _stops(first)
        interleave(first, second, stops[len(stops) // 2], JUMPS[jump])


@pytest.mark.proof
@pytest.mark.parametrize("jump", ["none", *JUMPS])
@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_every_pair_at_every_operation(first: str, second: str, jump: str) -> None:
    """[C1] [C2] [C8] [X1] [O11] The same at each single storage operation, and with every jump."""
    for stop in _stops(first):
        interleave(first, second, stop, JUMPS.get(jump, lambda _: None))
