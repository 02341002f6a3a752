"""Stories of everything that ends something: rows, versions, files. A rerun finishes each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from strandline.api import open_in
from strandline.maintenance.reachability import name_of
from strandline.tableformat import expiry, paths
from strandline.tableformat.errors import CommitConflict
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from tests.faults.harness import check_promises
from tests.faults.ledger import BASE_TS, Batch, BrokenPromise
from tests.faults.scenarios import Scenario
from tests.faults.world import forget_everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.table import Table
    from tests.faults.client import Client
    from tests.faults.world import World

_PAGES = {"ROLL_AT": 4, "ROLL_STEP": 1, "ROLL_ALL_AT": 4, "LEAST_PAGE": 2}
_OLD = (1, 2, 4)
"""Batches whose windows end before the floor that a TTL of a day asks for."""
_ORPHANS = (
    f"w{BASE_TS - BASE_TS % HOUR_MS}-{HOUR_MS}/shard-0/batch-1-{'a' * 16}.parquet",
    f"_strandline/pages/1-{'b' * 16}.parquet",
    "_strandline/manifests/.tmp-left",
)


def _at(number: int, hours_ago: int) -> Batch:
    return Batch(number, rows=2, first_ts=BASE_TS - hours_ago * HOUR_MS)


def _aged(world: World, client: Client) -> None:
    """Batches in windows of a day ago and of today, some of them in pages."""
    del world
    client.create(ttl="1d")
    for number, hours in ((1, 30), (2, 30), (3, 1), (4, 27), (5, 1), (6, 0)):
        client.append(_at(number, hours))


def _expired(world: World, client: Client) -> None:
    _aged(world, client)
    client.expire(*_OLD)
    world.clock.sleep(2 * DAY_MS / 1000)


def _still_whole(world: World) -> None:
    """What was promised holds before anybody runs it again, or a rerun would hide a mistake."""
    check_promises(_ANY, world)
    forget_everything()


_ANY = Scenario("any", lambda *_: None)


def _finish_expiry(world: World, client: Client) -> None:
    """A rerun hides what is due and leaves no prefix behind."""
    _still_whole(world)
    client.expire(*_OLD, grace=0)
    left = expiry.expired_prefixes(world.store.folders(""), client.table.manifest.floor_ts)
    _promise(not left and client.table.manifest.floor_ts > 0, f"a rerun left {left}")


def _late_and_expiry(world: World, client: Client) -> None:
    """Rows for a window that is about to go, and the same expiry by somebody else."""
    del world
    client.append(_at(100, 1))
    client.expire(*_OLD, grace=0)


EXPIRE = Scenario(
    "expire",
    lambda _, client: client.expire(*_OLD, grace=0),
    prepare=_aged,
    after_restart=_finish_expiry,
    thresholds=_PAGES,
)
CONCURRENT_EXPIRE = Scenario(
    "concurrent_expire",
    lambda _, client: client.expire(*_OLD, grace=0),
    prepare=_aged,
    before=lambda _, client: client.open(),
    other=_late_and_expiry,
    after_restart=_finish_expiry,
)
EXPIRE_LATER = Scenario(
    "expire_after_the_grace",
    lambda _, client: client.expire(*_OLD),
    prepare=_expired,
    after_restart=_finish_expiry,
    thresholds=_PAGES,
)


def _numbered(world: World, client: Client) -> None:
    """Five batches of two rows, some of them in pages."""
    del world
    client.create()
    for number in range(1, 6):
        client.append(_at(number, 0))


def _append_and_compact(world: World, client: Client) -> None:
    del world
    client.append(_at(100, 0))
    client.compact()


def _trim_again(world: World, client: Client) -> None:
    _still_whole(world)
    client.trim(4, 1, 2)


TRIM = Scenario(
    "trim",
    lambda _, client: client.trim(4, 1, 2),
    prepare=_numbered,
    before=lambda _, client: client.open(),
    other=_append_and_compact,
    after_restart=_trim_again,
    thresholds=_PAGES,
)


def _tagged(world: World, client: Client) -> None:
    _numbered(world, client)
    client.table.tag("old", 2)


def _retag(world: World, client: Client) -> None:
    """Whatever was half done: one tag is there and keeps its version, the other is gone."""
    _still_whole(world)
    table = client.table
    table.tag("new", 3)
    with suppress(CommitConflict):
        table.untag("old")
    _promise(table.tags() == {"new": 3}, f"the tags are {table.tags()}")
    world.clock.sleep(9 * DAY_MS / 1000)
    client.append(_at(50, 0))
    world.clock.sleep(9 * DAY_MS / 1000)
    table.expire_versions("1d")
    table.vacuum(dry_run=False)
    rows = open_in(world.store, "new").scan(["batch"]).to_arrow().column("batch").to_pylist()
    _promise(rows == [1, 1, 2, 2], f"the tagged version shows {rows}")


def _tag_twice(world: World, client: Client) -> None:
    del world
    client.do(lambda table: table.tag("new", 3))
    client.do(lambda table: table.untag("old"))


TAG = Scenario(
    "tag_and_untag",
    _tag_twice,
    prepare=_tagged,
    before=lambda _, client: client.open(),
    other=lambda _, client: client.append(_at(100, 0)),
    after_restart=_retag,
    thresholds=_PAGES,
)


def _roll_back(world: World, client: Client) -> None:
    client.roll_back(world.ledger.commits[3].version, 4, 5)


def _roll_back_again(world: World, client: Client) -> None:
    _still_whole(world)
    _roll_back(world, client)


ROLLBACK = Scenario(
    "rollback",
    _roll_back,
    prepare=_numbered,
    before=lambda _, client: client.open(),
    after_restart=_roll_back_again,
    thresholds=_PAGES,
)


# --- versions and files ---


def _weeks_old(world: World, client: Client) -> None:
    """Versions and files that nobody needs any more, and what crashed writers left behind."""
    _numbered(world, client)
    client.delete(2)
    client.compact()
    for path in _ORPHANS:
        world.store.write_new(path, b"left behind").wait()
    world.clock.sleep(9 * DAY_MS / 1000)
    client.append(_at(6, 0))
    world.clock.sleep(9 * DAY_MS / 1000)


def _given_up(world: World, client: Client) -> None:
    _weeks_old(world, client)
    client.table.expire_versions("1d")


def _finished(step: Callable[[Table], Any]) -> Callable[[World, Client], None]:
    def finish(world: World, client: Client) -> None:
        """A rerun removes what is left, and once the grace is over a further one finds nothing."""
        _still_whole(world)
        client.table.expire_versions("1d")
        step(client.table)
        client.table.vacuum(dry_run=False)
        _still_whole(world)
        world.clock.sleep(2 * DAY_MS / 1000)  # for those who read a version when it was given up
        client.table.vacuum(dry_run=False)
        left = client.table.vacuum().removed
        _promise(not left, f"a rerun left {left}")
        there = {path for path, _ in world.store.walk("")}
        _promise(not there & set(_ORPHANS), "a rerun left orphans")
        oldest = client.table.manifest.lifecycle.oldest_version
        gone = [paths.manifest_path(version) for version in range(1, oldest)]
        _promise(not there & set(gone), "a rerun left manifests that were given up")
        _promise(all(name_of(path) for path in there), f"unknown kinds among {there}")

    return finish


VERSIONS = Scenario(
    "expire_versions",
    lambda _, client: client.do(lambda table: table.expire_versions("1d")),
    prepare=_weeks_old,
    before=lambda _, client: client.open(),
    other=_append_and_compact,
    after_restart=_finished(lambda _: None),
    thresholds=_PAGES,
)
VACUUM = Scenario(
    "vacuum",
    lambda _, client: client.do(lambda table: table.vacuum(dry_run=False)),
    prepare=_given_up,
    before=lambda _, client: client.open(),
    other=_append_and_compact,
    after_restart=_finished(lambda _: None),
    thresholds=_PAGES,
)
PURGE = Scenario(
    "purge",
    lambda _, client: client.do(lambda table: table.purge(dry_run=False)),
    prepare=_weeks_old,
    after_restart=_finished(lambda table: table.purge(dry_run=False)),
    thresholds=_PAGES,
)
MAINTAIN = Scenario(
    "maintain",
    lambda _, client: client.do(lambda table: table.maintain()),
    prepare=_weeks_old,
    before=lambda _, client: client.open(),
    other=lambda _, client: client.do(lambda table: table.maintain()),
    after_restart=_finished(lambda table: table.maintain()),
    thresholds=_PAGES,
)


def _promise(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads like assert
    if not holds:
        raise BrokenPromise(otherwise)


LIFECYCLE = (
    EXPIRE,
    CONCURRENT_EXPIRE,
    EXPIRE_LATER,
    TRIM,
    TAG,
    ROLLBACK,
    VERSIONS,
    VACUUM,
    PURGE,
    MAINTAIN,
)
LONG = (CONCURRENT_EXPIRE, TRIM, TAG, VERSIONS, VACUUM, MAINTAIN)
"""Stories with another process whose pairs of turns and faults are many."""
