"""Vacuum, versions, purge: nothing that anybody may need is removed, and the rest is."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import pytest

from strandline.catalog import tidy
from strandline.catalog.commit import commit
from strandline.catalog.manifest_service import ManifestService
from strandline.catalog.page_cache import PAGES
from strandline.maintenance import maintain, reachability
from strandline.maintenance import vacuum as work
from strandline.maintenance.reachability import KINDS, REFERENCED, name_of
from strandline.tableformat import paths, rolling, windows
from strandline.tableformat.errors import (
    CommitConflict,
    CorruptTable,
    InvalidInput,
    MissingFile,
    StorageFailed,
    TableDropped,
    VersionNotFound,
)
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import DAY_MS, HOUR_MS, MINUTE_MS
from tests.maintenance.aging import NOW, Aging, hourly, numbers, row

SMALL = {"ROLL_AT": 3, "ROLL_STEP": 1, "ROLL_ALL_AT": 4, "LEAST_PAGE": 2, "TIER_FACTOR": 2}
_LOADED = ManifestService._bytes  # noqa: SLF001 - pages that come from the store
ORPHAN = f"w{NOW - NOW % (30 * DAY_MS)}-{30 * DAY_MS}/shard-0/batch-1-{'a' * 16}"


def orphaned(world: Aging) -> list[str]:
    """Objects that crashed writers left behind."""
    left = [f"{ORPHAN}.parquet", f"{ORPHAN}.icx", f"_strandline/pages/1-{'b' * 16}.parquet"]
    left += [f"_strandline/pages/1-{'c' * 16}.json.lz4", "_strandline/manifests/.tmp-1"]
    for path in left:
        world.store.write_new(path, b"left behind").wait()
    return sorted(left)


def segments_of(world: Aging) -> list[str]:
    """The data files in the store."""
    return [path for path in world.files() if path.startswith("w") and path.endswith(".parquet")]


def test_orphans_go_and_live_files_stay() -> None:
    """[C8] Dry run by default; removed are the files of no version, once they are old."""
    world = Aging()
    with mock.patch.multiple(rolling, **SMALL):
        table = hourly(world, 12)
    left = orphaned(world)
    assert table.vacuum(dry_run=False).removed == ()

    world.wait(2 * DAY_MS)
    for n in range(3):
        table.append([row(NOW, 100 + n)])
    world.wait(2 * DAY_MS)
    before = world.files()
    plan = table.vacuum()
    assert sorted(set(plan.removed) & set(left)) == left
    assert world.files() == before

    done = table.vacuum(dry_run=False)

    assert sorted(done.removed) == sorted(plan.removed)
    assert not set(world.files()) & set(left)
    assert sorted(numbers(table)) == [*range(12), 100, 101, 102]
    assert table.verify(deep=True).ok
    assert [numbers(world.open(v)) for v in range(2, 6)]


def test_what_is_not_ours_is_left_alone() -> None:
    """[C8] [VAC-3] A kind that nobody registered is never removed."""
    world = Aging()
    table = hourly(world, 2)
    foreign = ["README.txt", "w0-60000/shard-0/user.log", "_strandline/new"]
    others = ["_strandline/users/x", "_strandline/user_names/x", "_strandline/materializations/x"]
    for path in foreign + others:
        world.store.write_new(path, b"x").wait()
    world.wait(9 * DAY_MS)

    assert table.vacuum(dry_run=False).unknown == len(foreign)
    assert {*foreign, *others} <= set(world.files())


def test_every_kind_of_object_is_registered() -> None:
    """[C8] Everything that a table writes has a kind; a new one fails here until it is known."""
    world = Aging(ttl="1d")
    fold = {"FOLD_WINDOWS_ABOVE": 2, "KEEP_WINDOWS": 1, "FOLD_POSITIONS_ABOVE": 2}
    with mock.patch.multiple(rolling, **SMALL, **fold, KEEP_POSITIONS=1):
        table = world.create()
        for n in range(24):
            table.append([row(NOW - n % 6 * HOUR_MS, n)], writer_id=f"w{n}", batch=1)
        rows = [row(NOW - n // 900, n) for n in range(70_000)]
        table.append(rows)
    world.wait(2 * DAY_MS)
    table.expire_versions(older_than="1h", grace=0)

    found = {path: name_of(path) for path in world.files()}

    assert [path for path, name in found.items() if name is None] == []
    kinds = {name.kind for name in found.values() if name is not None}
    assert kinds >= {"manifest", "gc_marker", "segment", "index", "segment_page", "document_page"}
    assert set(KINDS) >= REFERENCED


def test_every_place_in_the_grammar_has_a_kind() -> None:
    """[C8] [VAC-3] Whoever adds a path adds it here, and to the kinds that vacuum knows."""
    window, name = windows.Window(0, HOUR_MS), "0" * 16
    places = {
        "manifest_path": paths.manifest_path(1),
        "gc_marker_path": paths.gc_marker_path(1),
        "segment_path": paths.segment_path(window, 0, "batch", 1, name),
        "segment_page_path": paths.segment_page_path(1, name),
        "document_page_path": paths.document_page_path(1, name),
        "user_folder": f"{paths.user_folder('ada')}manifests/x",
        "user_card": paths.user_card("ada"),
    }
    makers = {
        called
        for called, made in inspect.getmembers(paths, inspect.isfunction)
        if called.endswith(("_path", "_folder", "_card")) and not called.startswith(("parse", "_"))
    }

    assert makers == set(places)
    assert [path for path in places.values() if name_of(path) is None] == []
    folders = {v for k, v in vars(paths).items() if k.isupper() and str(v).startswith(paths.META)}
    assert [
        f for f in folders - {paths.META} if not any(p.startswith(f) for p in places.values())
    ] == []


def test_every_object_of_a_remembered_query_and_of_users_has_a_kind() -> None:
    """[C8] [E13] [M9] They lie in the same table, and vacuum leaves them alone."""
    world = Aging(ttl="6h")
    table = hourly(world, 2)
    table.remember("all", {"aggregates": {"rows": "count(*)"}})
    table.refresh_query("all")
    assert "remembered queries keep" in table.purge().promise
    users = Aging(ttl="6h", scope="user")
    users.create().user("ada").append([row(NOW, 1)])

    for found in (world.files(), users.files()):
        assert [path for path in found if name_of(path) is None] == []


def test_a_writer_that_stalled_over_a_vacuum_writes_its_files_again() -> None:
    """[C8] [COM-9] The files floor refuses what vacuum may have removed; no row is lost."""
    world = Aging()
    table = hourly(world, 2)
    stalled = world.open()
    right = MemoryStorage.put_if_absent
    turns = []

    def meanwhile(self: MemoryStorage, path: str, data: bytes, **more: object) -> object:
        if not turns and path.startswith(paths.MANIFESTS):
            turns.append(path)
            with mock.patch.object(MemoryStorage, "put_if_absent", right):
                world.wait(3 * DAY_MS)
                table.append([row(NOW, 50)])
                world.wait(3 * DAY_MS)
                assert len(table.vacuum(dry_run=False).removed) == 1
        return right(self, path, data, **more)  # type: ignore[arg-type]

    with mock.patch.object(MemoryStorage, "put_if_absent", meanwhile):
        stalled.append([row(NOW, 60)])

    assert sorted(numbers(table)) == [0, 1, 50, 60]
    assert table.verify(deep=True).ok


def test_the_store_is_listed_before_the_newest_version_is_read() -> None:
    """[C8] [VAC-1] A file that is committed between the two is in the version and stays."""
    world = Aging()
    table = hourly(world, 2)
    other = world.open()
    right = MemoryStorage.walk

    def walk(self: MemoryStorage, prefix: str) -> object:
        other.append([row(NOW, 70)])
        found = list(right(self, prefix))
        other.append([row(NOW, 71)])
        return iter(found)

    with mock.patch.object(MemoryStorage, "walk", walk):
        table.vacuum(dry_run=False, grace=0)

    assert sorted(numbers(table)) == [0, 1, 70, 71]
    assert table.verify(deep=True).ok


def test_vacuum_fails_closed_on_a_version_it_cannot_read() -> None:
    """[C8] [VAC-2] What a damaged or missing version needs is not known, so nothing is removed."""
    for damage in (True, False):
        world = Aging()
        table = hourly(world, 3)
        orphaned(world)
        world.wait(9 * DAY_MS)
        path = paths.manifest_path(2)
        world.store.delete([path])
        if damage:
            world.store.write_new(path, b"garbage").wait()
        files = set(world.files())

        with pytest.raises(CorruptTable):
            table.vacuum(dry_run=False)

        assert files <= set(world.files())


def test_versions_go_by_the_time_since_they_were_replaced() -> None:
    """[GC-1] [GC-2] [TAG-2] [TAG-3] [TAG-4] Tags stay, a marker comes first, the newest stays."""
    world = Aging()
    table = hourly(world, 3)
    table.tag("keep", 2)
    world.wait(9 * DAY_MS)
    table.append([row(NOW, 3)])

    assert table.expire_versions("1d", dry_run=True).oldest_version == 5
    report = table.expire_versions("1d")

    # Version 5 was the newest until a moment ago, however old it is.
    assert (report.oldest_version, report.tagged, report.manifests_removed) == (5, (2,), 0)
    world.wait(DAY_MS + MINUTE_MS)
    removed = table.expire_versions("7d").manifests_removed
    left = {paths.manifest_version(p.rpartition("/")[2]) for p in world.files(paths.MANIFESTS)}
    assert left == {2, 5, 6, 7}
    assert removed == 3
    assert world.files(paths.GC_MARKERS) == [paths.gc_marker_path(5)]
    assert numbers(world.open("keep")) == [0]
    assert numbers(world.open(5)) == [0, 1, 2]
    for version in (1, 3):
        with pytest.raises(VersionNotFound):
            world.open(version)
    with pytest.raises(VersionNotFound):
        table.tag("late", 3)
    with pytest.raises(VersionNotFound):
        table.rollback(3)
    table.vacuum(dry_run=False, grace=0)
    assert numbers(world.open("keep")) == [0]
    assert [r.version for r in table.history()] == [8, 7, 6, 5]


def test_the_last_versions_can_be_kept_whatever_their_age() -> None:
    """[C6] `retain_last` is a floor."""
    world = Aging()
    table = hourly(world, 9)
    world.wait(90 * DAY_MS)

    assert table.expire_versions("1d", retain_last=4).oldest_version == 7
    with pytest.raises(InvalidInput, match="1 or more"):
        table.expire_versions(retain_last=0)


def test_retention_of_nothing_leaves_the_table_readable() -> None:
    """[GC-2] No version younger than an hour is removed, whatever is asked for."""
    world = Aging(ttl="1d")
    table = hourly(world, 3)
    for _ in range(3):
        world.wait(MINUTE_MS)
        table.expire(grace=0)
        table.expire_versions(0, grace=0)
        table.vacuum(dry_run=False, grace=0)
    assert max(world.files(paths.MANIFESTS)) == paths.manifest_path(1)
    world.wait(2 * HOUR_MS)
    table.expire_versions(0, grace=0)
    table.vacuum(dry_run=False, grace=0)

    assert sorted(numbers(world.open())) == [0, 1, 2]
    assert table.append([row(NOW, 3)]).first_seq == 3
    assert table.verify(deep=True).ok


def test_a_run_that_ended_between_commit_and_removal_is_finished_by_the_next() -> None:
    """[TAG-4] What was given up is in the manifest, so nothing has to be remembered."""
    world = Aging()
    table = hourly(world, 3)
    world.wait(2 * DAY_MS)
    with mock.patch.object(work, "remove_versions", return_value=[]):
        table.expire_versions("1h")
    with pytest.raises(VersionNotFound):
        world.open(2)
    world.wait(2 * DAY_MS)

    table.vacuum(dry_run=False)

    assert paths.manifest_path(2) not in world.files()


@pytest.mark.parametrize("hide", ["expire", "trim", "delete", "maintain"])
def test_a_reader_has_its_grace_from_when_its_rows_were_hidden(hide: str) -> None:
    """[C8] [C2] [VAC-5] However old files are: nobody needed them a grace ago, or they stay."""
    world = Aging(ttl="6h")
    with mock.patch.multiple(rolling, **SMALL):
        table = hourly(world, 10)
    table.append([row(world.script.now, 10)])
    world.wait(9 * DAY_MS)
    table.append([row(world.script.now, 11)])
    reader = world.open(table.version)
    expected = sorted(numbers(reader))
    changes = {
        "expire": table.expire,
        "trim": lambda: table.trim(5),
        "delete": lambda: table.delete(filter="n < 5"),
        "maintain": table.maintain,
    }

    changes[hide]()
    for hours in (0, 12, 11):
        world.wait(hours * HOUR_MS)
        table.expire(now=NOW)
        table.expire_versions("1h")
        table.vacuum(dry_run=False)
        PAGES.clear()
        assert sorted(numbers(reader)) == expected
    world.wait(2 * HOUR_MS)
    table.expire()
    table.expire_versions("1h")
    removed = table.vacuum(dry_run=False).removed

    assert table.verify(deep=True).ok
    assert removed or len(segments_of(world)) == 1
    with pytest.raises(MissingFile):
        numbers(reader)


PINNED = {"version": 3, "tag": "x"}


@pytest.mark.parametrize("way", ["expire_versions", "maintain", "purge"])
@pytest.mark.parametrize("pin", PINNED)
def test_a_reader_has_its_grace_from_when_its_version_was_given_up(pin: str, way: str) -> None:
    """[C8] [C9] [VAC-5] [TAG-4] However long ago it was replaced, by number or by a tag."""
    world = Aging()
    with mock.patch.multiple(rolling, **SMALL):
        table = hourly(world, 5)
    table.tag("x", 3)
    table.compact(min_segments=2)
    world.wait(9 * DAY_MS)
    table.append([row(NOW, 5)])
    if pin == "tag":
        table.expire_versions("7d")
        world.wait(2 * DAY_MS)
        table.vacuum(dry_run=False)
    reader = world.open(PINNED[pin])
    assert sorted(numbers(reader)) == [0, 1]

    table.untag("x")
    table.append([row(NOW, 6)])
    give_up = {
        "expire_versions": lambda: table.expire_versions("7d"),
        "maintain": table.maintain,
        "purge": lambda: table.purge(dry_run=False),
    }
    for hours in (0, 12, 11):
        world.wait(hours * HOUR_MS)
        give_up[way]()
        table.vacuum(dry_run=False)
        PAGES.clear()
        assert sorted(numbers(reader)) == [0, 1]
    world.wait(2 * HOUR_MS)
    table.vacuum(dry_run=False)

    assert sorted(numbers(world.open())) == list(range(7))
    assert table.verify(deep=True).ok
    with pytest.raises(MissingFile):
        numbers(reader)


def test_what_was_kept_a_grace_ago_and_cannot_be_told_stays() -> None:
    """[C8] [VAC-5] Where the version that would tell is gone, all that is listed counts as kept."""
    world = Aging()
    table = hourly(world, 5)
    table.compact(min_segments=2)
    world.wait(2 * DAY_MS)
    telling = table.version
    table.append([row(NOW, 5)])
    world.wait(2 * HOUR_MS)
    table.expire_versions("1h")
    world.store.delete([paths.manifest_path(telling)])
    files = set(segments_of(world))
    world.wait(22 * HOUR_MS - MINUTE_MS)

    table.vacuum(dry_run=False)

    assert files == set(segments_of(world))
    world.wait(DAY_MS)
    table.vacuum(dry_run=False)
    assert len(segments_of(world)) < len(files)
    assert table.verify(deep=True).ok


def test_a_shorter_grace_between_two_longer_ones_stops_neither() -> None:
    """[C8] What a run without grace has removed, a later one does not miss."""
    world = Aging(ttl="6h")
    with mock.patch.multiple(rolling, **SMALL):
        table = hourly(world, 12)
        table.trim(2)
        world.wait(2 * HOUR_MS)
        table.expire()
        table.append([row(world.script.now, 20)])
        table.compact()
    with mock.patch.object(work, "remove_versions", return_value=[]):
        table.expire_versions("1h", grace=0)
        table.vacuum(dry_run=False, grace=0)
    PAGES.clear()

    table.vacuum(dry_run=False)
    table.purge(dry_run=False)

    assert table.verify(deep=True).ok


def test_one_clock_that_jumps_takes_nobodys_grace() -> None:
    """[C8] A store ten years ahead, or behind while rows are hidden: the other clock counts."""
    for skew, ahead in ((10 * 365 * DAY_MS, True), (-10 * 365 * DAY_MS, False)):
        world = Aging(ttl="6h")
        table = hourly(world, 10)
        reader = world.open(table.version)
        world.skew_ms = 0 if ahead else skew
        table.expire(now=NOW)
        world.skew_ms = skew if ahead else 0
        table.expire(now=NOW)
        table.expire_versions("1h")
        table.vacuum(dry_run=False)

        assert sorted(numbers(reader)) == list(range(10))


def test_a_version_that_another_run_gives_up_meanwhile_stops_no_vacuum() -> None:
    """[C8] Safe to run twice at once: a manifest that goes between list and read was given up."""
    world = Aging()
    table = hourly(world, 4)
    world.wait(9 * DAY_MS)
    table.append([row(NOW, 4)])
    world.wait(9 * DAY_MS)
    other = world.open()
    right, turns = MemoryStorage.read, []

    def read(self: MemoryStorage, path: str) -> bytes:
        if not turns and path == paths.manifest_path(2):
            turns.append(path)
            other.expire_versions("1d")
            other.vacuum(dry_run=False)
        return right(self, path)

    with mock.patch.object(MemoryStorage, "read", read):
        table.vacuum(dry_run=False)

    assert turns
    assert sorted(numbers(world.open())) == [0, 1, 2, 3, 4]


def test_a_deletion_that_vacuum_was_only_told_of_is_said() -> None:
    """[C8] A store that acknowledges and keeps is found out, for few objects and for many."""
    for count in (1, 40):
        world = Aging()
        table = hourly(world, 2)
        for n in range(count):
            world.store.write_new(ORPHAN.replace("a" * 16, f"{n:b>16x}") + ".parquet", b"x").wait()
        world.wait(9 * DAY_MS)
        table.append([row(NOW, 2)])
        world.wait(9 * DAY_MS)

        with (
            mock.patch.object(MemoryStorage, "delete", return_value=None),
            pytest.raises(StorageFailed, match="still there"),
        ):
            table.vacuum(dry_run=False)

        assert len(table.vacuum(dry_run=False).removed) == count


def test_many_versions_cost_what_changed_in_them() -> None:
    """[C8] A page is read once, and a window that did not change is not looked at again."""
    world = Aging()
    with mock.patch.multiple(rolling, **SMALL):
        table = hourly(world, 40)
    pages = len([path for path in world.files() if "/pages/" in path])
    world.wait(DAY_MS)
    PAGES.clear()
    with (
        mock.patch.object(ManifestService, "_bytes", autospec=True, side_effect=_LOADED) as loads,
        mock.patch.object(reachability, "is_hidden", side_effect=reachability.is_hidden) as looks,
    ):
        table.vacuum()

    loaded = [part for call in loads.call_args_list for part in call.args[1]]
    assert len(loaded) == len(set(loaded)) <= pages
    # Each version is one more segment and a page or two, however many it lists.
    assert looks.call_count < 10 * table.version


def test_what_is_hidden_and_gone_is_no_damage() -> None:
    """[X4] [EXP-4] [TRM-1] Folded windows and pages may still list it; verify does not miss it."""
    world = Aging(ttl="6h")
    fold = {"FOLD_WINDOWS_ABOVE": 4, "KEEP_WINDOWS": 1, "LEAST_PAGE": 1}
    with mock.patch.multiple(rolling, **{**SMALL, **fold}):
        table = world.create()
        for n in reversed(range(12)):
            table.append([row(NOW - n * HOUR_MS, n)])
        version = table.version
        assert table.manifest.window_pages
        table.expire()
        table.trim(4)
        world.wait(2 * HOUR_MS)
    files = len(segments_of(world))
    table.expire(now=NOW, grace=0)
    table.vacuum(dry_run=False, grace=0)

    assert len(segments_of(world)) < files
    assert table.verify(deep=True).ok
    assert world.open(version).verify(deep=True).ok


def test_purge_keeps_its_promise() -> None:
    """[C8] [O4] Trimmed, expired and replaced bytes are gone when the report says so."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    table.trim(2)
    table.expire()
    first = table.purge(dry_run=False)
    assert "is gone from the store after a purge that runs after" in first.promise

    world.wait(first.complete_after_ms - world.store_ms() + MINUTE_MS)
    table.append([row(world.script.now, 90)])
    second = table.purge(dry_run=False)

    # Rows 2 to 6 have expired a moment ago and have their own grace.
    assert len(segments_of(world)) == 6
    world.wait(second.complete_after_ms - world.store_ms() + MINUTE_MS)
    table.purge(dry_run=False, grace="23h")
    assert len(segments_of(world)) == 1
    assert numbers(table) == []
    assert table.verify(deep=True).ok


def test_purge_names_the_tags_that_hold_bytes_back() -> None:
    """[C9] A promise with an exception says so."""
    world = Aging()
    table = hourly(world, 3)
    table.tag("old", 2)
    table.trim(1)
    world.wait(9 * DAY_MS)

    report = table.purge(dry_run=False)

    assert report.tagged == (2,)
    assert "except" in report.promise


def test_maintenance_follows_the_settings_and_may_run_twice() -> None:
    """[X1] [C8] Two runs, one inside the other: nothing fails, nothing is lost."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    other = world.open()
    right, turns = MemoryStorage.delete, []

    def delete(self: MemoryStorage, given: list[str]) -> None:
        if not turns:
            turns.append(given)
            other.maintain()
        right(self, given)

    table.expire()
    world.wait(8 * DAY_MS)
    table.append([row(world.script.now, 99)])
    with mock.patch.object(MemoryStorage, "delete", delete):
        report = table.maintain()

    assert turns
    assert set(report.steps) == {"expire", "compact", "expire_versions", "vacuum"}
    assert numbers(world.open()) == [99]
    assert world.open().verify(deep=True).ok


def test_an_empty_table_ends_only_when_it_was_empty_for_long() -> None:
    """[O7] 0 is off; the age counts from its last use and from when its last row was hidden."""
    world = Aging(ttl="6h")
    table = hourly(world, 1)
    world.wait(2 * DAY_MS)
    assert not table.maintain().dropped

    table.set(delete_on_empty_secs=3600)
    assert not table.maintain().dropped
    world.wait(2 * HOUR_MS)
    table.append([row(world.script.now, 1)])
    world.wait(HOUR_MS + MINUTE_MS)
    assert not table.maintain().dropped
    world.wait(8 * HOUR_MS)
    # Row 1 was visible until this run, which has expired it.
    assert numbers(table) == [1]
    assert not table.maintain().dropped
    assert numbers(table) == []
    world.wait(30 * MINUTE_MS)
    assert not table.maintain().dropped
    world.wait(31 * MINUTE_MS)
    assert table.maintain().dropped
    with pytest.raises(TableDropped):
        world.open()


def test_a_table_ends_after_longer_than_its_versions_are_kept() -> None:
    """[O7] Daily runs that raise floors and give up versions do not put the end off for ever."""
    world = Aging(ttl="6h")
    table = hourly(world, 1)
    table.set(delete_on_empty_secs=10 * 24 * 3600, history="1d")
    days = 0
    while not table.maintain().dropped:
        world.wait(DAY_MS)
        days += 1
        assert days < 20

    assert days == 11


@pytest.mark.parametrize("change", ["set", "append", "tag"])
def test_what_comes_before_the_drop_lands_keeps_the_table(change: str) -> None:
    """[O7] [DRP-1] Another setting, a row, even another run: whoever comes next decides anew."""
    world = Aging(ttl="6h")
    table = hourly(world, 1)
    table.set(delete_on_empty_secs=3600)
    world.wait(2 * DAY_MS)
    assert not table.maintain().dropped
    world.wait(2 * DAY_MS)
    other = world.open()
    changes = {
        "set": lambda: other.set(delete_on_empty_secs=0),
        "append": lambda: other.append([row(world.script.now, 2)]),
        "tag": lambda: other.tag("x"),
    }
    right = maintain.commit

    def late(*args: Any, **named: Any) -> Any:
        changes[change]()
        return right(*args, **named)

    with mock.patch.object(maintain, "commit", late):
        assert not table.maintain().dropped
    assert world.open().version > 0


def test_a_page_that_vacuum_may_have_removed_is_refused() -> None:
    """[VAC-4] Housekeeping that stalled over a vacuum commits nothing."""
    world = Aging()
    table = hourly(world, 3)
    with mock.patch.multiple(rolling, **SMALL):
        stalled = tidy._roll(table._chain, table.manifest)  # noqa: SLF001
    assert stalled is not None
    world.wait(3 * DAY_MS)
    table.append([row(NOW, 9)])
    world.wait(3 * DAY_MS)
    table.vacuum(dry_run=False)

    with pytest.raises(CommitConflict, match="vacuum may have removed"):
        commit(table._chain, table._head, stalled, operation="tidy")  # noqa: SLF001


def test_tables_whose_files_are_listed_elsewhere_are_left_alone() -> None:
    """[C8] [VAC-2] [M9] Files of users stand in chains of their own: one walk refuses."""
    world = Aging(ttl="6h", scope="user")
    table = world.create()
    table.user("ada").append([row(NOW, 1)])
    world.wait(9 * DAY_MS)
    files = world.files()

    with pytest.raises(InvalidInput, match="Nothing was removed"):
        work.vacuum(table._chain, table._head, grace_ms=0, dry_run=False)  # noqa: SLF001

    assert world.files() == files
