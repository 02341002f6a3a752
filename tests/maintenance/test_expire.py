"""Expiry: hidden at once by one small commit, removed after the grace, resumable anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from strandline.catalog.manifest_service import ManifestService
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import expiry, rolling
from strandline.tableformat.errors import (
    ImplausibleExpiry,
    InvalidInput,
    StorageFailed,
)
from strandline.tableformat.retention import MAX_RAISES, RaiseFloor, apply_retention
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS
from tests.maintenance.aging import NOW, Aging, hourly, numbers, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.storage import Put

YEAR_MS = 365 * DAY_MS


def test_rows_of_expired_windows_are_hidden_at_once_and_removed_after_the_grace() -> None:
    """[X1] [K7] [EXP-1] [EXP-2] [EXP-3] [EXP-5] The floor is committed first; prefixes go later."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    before = world.windows()

    report = table.expire()

    assert numbers(table) == [0, 1, 2, 3, 4, 5, 6]
    assert (report.rows_hidden, report.segments_hidden, report.prefixes_waiting) == (3, 3, 3)
    assert table.manifest.floor_ts == NOW - 6 * HOUR_MS
    (raised,) = table.manifest.lifecycle.raises
    assert (raised.floor_ts, raised.version) == (NOW - 6 * HOUR_MS, table.version)
    assert abs(raised.raised_at - world.store_ms()) < 1000
    assert len(table.manifest.removed_files) == 3
    assert world.windows() == before

    world.wait(DAY_MS - MINUTE_MS)
    assert table.expire(now=NOW).prefixes_removed == ()
    assert world.windows() == before

    world.wait(2 * MINUTE_MS)
    gone = table.expire(now=NOW)
    assert (len(gone.prefixes_removed), gone.files_removed) == (3, 3)
    assert world.windows() == before[3:]
    assert numbers(table) == [0, 1, 2, 3, 4, 5, 6]
    assert table.verify(deep=True).ok
    assert "6h (ttl) + 1h (window) + 1d (grace)" in gone.promise


def test_expiry_reads_no_page_and_commits_once() -> None:
    """[X1] [K2] Whatever the number of segments: one commit, and no page is opened for it."""
    world = Aging(ttl="6h")
    with mock.patch.multiple(rolling, ROLL_AT=3, ROLL_STEP=1, ROLL_ALL_AT=4, LEAST_PAGE=2):
        table = hourly(world, 12)
        for n in range(12):
            table.append([row(NOW - n * HOUR_MS, 100 + n)])
    assert table.manifest.windows
    version = table.refresh().version
    PAGES.clear()

    with mock.patch.object(ManifestService, "_bytes", side_effect=AssertionError("a page")):
        table.expire()

    assert table.version == version + 1
    assert sorted(numbers(table)) == [*range(7), *range(100, 107)]


def test_windows_that_were_folded_away_expire_too() -> None:
    """[EXP-4] A window page may still list an expired window; its files are not opened."""
    world = Aging(ttl="6h")
    small = {"ROLL_AT": 3, "ROLL_STEP": 1, "ROLL_ALL_AT": 4, "LEAST_PAGE": 1}
    fold = {"FOLD_WINDOWS_ABOVE": 4, "KEEP_WINDOWS": 1}
    with mock.patch.multiple(rolling, **small, **fold):
        table = world.create()
        for n in reversed(range(12)):
            table.append([row(NOW - n * HOUR_MS, n)])
    assert table.manifest.window_pages

    table.expire()
    world.wait(2 * DAY_MS)
    table.expire(now=NOW)

    assert sorted(numbers(table)) == list(range(7))
    assert table.files().num_rows == 7
    assert len(world.windows()) == 7


def test_a_dry_run_changes_nothing() -> None:
    """[X1] It says what would happen, to the row."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    files, version = world.files(), table.version

    report = table.expire(dry_run=True)

    assert (report.dry_run, report.rows_hidden, report.floor_ts) == (True, 3, NOW - 6 * HOUR_MS)
    assert (world.files(), table.refresh().version) == (files, version)
    assert "would" in str(report)


def test_older_versions_and_tags_hide_what_has_expired() -> None:
    """[O4] [C9] [VIS-3] TTL wins over time travel."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    version = table.version
    table.tag("all")
    table.expire()

    assert numbers(world.open(version)) == numbers(world.open("all")) == list(range(7))


def test_a_reader_that_began_before_has_its_grace() -> None:
    """[C2] A handle keeps the floor it was opened with, and its files stay for the grace."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    reader = world.open(table.version)

    table.expire()
    world.wait(DAY_MS - MINUTE_MS)
    table.expire(now=NOW)

    assert numbers(reader) == list(range(10))


def test_a_table_without_ttl_keeps_everything() -> None:
    """[O4] Retention may be infinite."""
    world = Aging()
    table = hourly(world, 3)
    world.wait(10 * YEAR_MS)

    assert table.expire().rows_hidden == 0
    assert numbers(table) == [0, 1, 2]
    assert "for ever" in table.expire().promise


def test_rows_below_the_floor_are_dropped_afterwards() -> None:
    """[T4] The floor is durable and counts for every later write."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    table.expire()

    commit = world.open().append([row(NOW - 8 * HOUR_MS, 50), row(NOW, 51)])

    assert (commit.rows, commit.dropped) == (1, 1)
    assert 50 not in numbers(table)


@pytest.mark.parametrize("skew", [2 * HOUR_MS, 10 * YEAR_MS, -2 * HOUR_MS, -10 * YEAR_MS])
def test_clocks_that_contradict_each_other_cannot_empty_a_table(skew: int) -> None:
    """[X1] A store whose clock jumped by hours or years hides at most half without `force`."""
    world = Aging(ttl="6h")
    table = hourly(world, 7)
    world.skew_ms = skew

    if skew > DAY_MS:
        with pytest.raises(ImplausibleExpiry, match="Nothing was changed"):
            table.expire()
        assert numbers(table) == list(range(7))
        table.expire(force=True)
        assert numbers(table) == []
    else:
        table.expire()
        assert len(numbers(table)) >= 3


def test_an_hour_of_skew_is_believed() -> None:
    """[X1] Clocks differ a little everywhere."""
    world = Aging(ttl="6h")
    table = hourly(world, 7)
    world.skew_ms = HOUR_MS

    table.expire()

    assert numbers(table) == list(range(6))


def test_a_clock_that_jumps_back_lowers_no_floor_and_shortens_no_grace() -> None:
    """[VIS-2] [T4] The floor only rises; the grace counts from the store's own time."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    table.expire()
    floor, windows = table.manifest.floor_ts, world.windows()
    world.wait(-5 * HOUR_MS)

    assert table.expire().floor_ts == floor
    assert table.expire(grace="6h").prefixes_removed == ()
    assert (table.manifest.floor_ts, world.windows()) == (floor, windows)


def test_a_share_may_be_capped() -> None:
    """[X1] An operator's limit for one run."""
    table = hourly(Aging(ttl="6h"), 10)

    with pytest.raises(ImplausibleExpiry, match="expire would hide 30"):
        table.expire(max_share=0.2)
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        table.expire(max_share=2)
    table.expire(max_share=0.3)


def before_the_next_commit(act: Callable[[], object]) -> Any:
    """Something that another process commits just before the next manifest is created."""
    right = MemoryStorage.put_if_absent
    turns = iter([act])

    def put(self: MemoryStorage, path: str, *args: Any, **options: Any) -> Put:
        if "/manifests/" in path and (turn := next(turns, None)):
            turn()
        return right(self, path, *args, **options)

    return mock.patch.object(MemoryStorage, "put_if_absent", put)


@pytest.mark.parametrize("ttl", ["30d", "8h", None])
def test_a_ttl_that_is_set_during_a_run_is_the_one_that_counts(ttl: str | None) -> None:
    """[X1] [EXP-7] A floor never falls, so one of an older ttl would hide rows for ever."""
    world = Aging(ttl="6h")
    table, other = hourly(world, 10), world.open()

    with before_the_next_commit(lambda: other.set(ttl=ttl)):
        report = table.expire()

    hidden = 1 if ttl == "8h" else 0
    assert numbers(table) == list(range(10 - hidden))
    assert report.rows_hidden == hidden


def test_the_share_is_that_of_the_table_when_the_floor_rises() -> None:
    """[X1] Rows that others delete meanwhile make the rest a greater part of the table."""
    world = Aging(ttl="6h")
    table, other = hourly(world, 10), world.open()

    with (
        before_the_next_commit(lambda: other.delete(filter="n < 7")),
        pytest.raises(ImplausibleExpiry, match="expire would hide 100"),
    ):
        table.expire(max_share=0.4)
    assert numbers(table) == [7, 8, 9]


def test_a_commit_that_landed_late_has_its_full_grace() -> None:
    """[EXP-5] The store's own date of the manifest counts where the process had stalled."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    right = MemoryStorage.put_if_absent

    def stalled(self: MemoryStorage, path: str, data: bytes, **more: object) -> object:
        world.wait(2 * DAY_MS)
        return right(self, path, data, **more)  # type: ignore[arg-type]

    with mock.patch.object(MemoryStorage, "put_if_absent", stalled):
        report = table.expire()

    assert report.prefixes_removed == ()
    world.wait(DAY_MS)
    assert len(table.expire(now=NOW).prefixes_removed) == 3


def test_a_deletion_that_did_not_happen_is_said() -> None:
    """[X1] A store that acknowledges and keeps is found out; rows stay hidden."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)

    with (
        mock.patch.object(MemoryStorage, "delete", return_value=None),
        pytest.raises(StorageFailed, match="still there"),
    ):
        table.expire(grace=0)

    assert numbers(table.refresh()) == list(range(7))
    assert len(table.expire(grace=0).prefixes_removed) == 3


def test_a_partial_deletion_brings_no_row_back() -> None:
    """[X1] Whatever is left of an expired prefix is invisible and goes with the next run."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    table.expire()
    world.store.delete(world.files(world.windows()[0] + "/")[:1])

    assert numbers(world.open()) == list(range(7))
    assert len(table.expire(grace=0).prefixes_removed) == 2


def test_a_file_that_arrives_late_in_a_removed_prefix_goes_with_the_next_run() -> None:
    """[EXP-5] Prefixes are found by name, so nothing has to be remembered of them."""
    world = Aging(ttl="6h")
    table = hourly(world, 10)
    prefix = world.windows()[0]
    table.expire(grace=0)
    world.store.write_new(f"{prefix}/shard-0/batch-1-{'0' * 16}.parquet", b"late").wait()

    assert table.expire(grace=0).prefixes_removed == (prefix,)
    assert prefix not in world.windows()


def test_a_changed_ttl_renames_nothing() -> None:
    """[X1] [WIN-1] New windows have the new length; old ones keep their folders and expire too."""
    world = Aging(ttl="6h")
    table = hourly(world, 4)
    windows = world.windows()

    table.set(ttl="14d")
    table.append([row(NOW, 50)])

    assert set(windows) < set(world.windows())
    assert table.config.window_ms == WEEK_MS
    assert numbers(table) == [0, 1, 2, 3, 50]
    table.set(ttl="2h")
    table.expire(grace=0)
    assert numbers(table) == [0, 1, 2, 50]
    table.set(ttl=None)
    world.wait(YEAR_MS)
    assert table.expire().rows_hidden == 0


@pytest.mark.parametrize("settings", [{}, {"shards": 4}, {"ttl": 5}, {"on_late": "maybe"}])
def test_settings_that_cannot_change_are_refused(settings: dict[str, object]) -> None:
    """[X1] Bad input changes nothing."""
    table = hourly(Aging(ttl="6h"), 1)
    version = table.version

    with pytest.raises(InvalidInput):
        table.set(**settings)

    assert table.refresh().version == version


def test_raises_that_decide_nothing_any_more_are_forgotten() -> None:
    """[EXP-2] The list stays short however often expire runs, and delays no removal for long."""
    manifest = hourly(Aging(ttl="6h"), 1).manifest
    for minute in range(1, 3000):
        action = RaiseFloor(minute, minute * MINUTE_MS, DAY_MS, 6 * HOUR_MS)
        manifest = apply_retention(manifest, action, 0)

    raises = manifest.lifecycle.raises
    assert len(raises) <= MAX_RAISES
    assert raises[0].floor_ts == 2999
    floor, _ = expiry.removable_floor(manifest, 2999 * MINUTE_MS, DAY_MS)
    assert 2999 - 1440 - 60 <= floor <= 2999 - 1440
