"""Maintenance over all users of a table: as careful as for one chain, in bounded memory."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import strandline
from strandline.maintenance import users_vacuum
from strandline.tableformat import paths
from strandline.tableformat.errors import (
    CorruptTable,
    ImplausibleExpiry,
    InvalidInput,
    VersionNotFound,
)
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.stores.remote import RemoteStorage
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from strandline.users import UsersTable
from tests.maintenance.aging import NOW, Aging, row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import S3Bucket
    from tests.tables import Place


def world_of_users(*names: str, appends: int = 3, **config: Any) -> tuple[Aging, UsersTable]:
    """A table in which each user appended one row a time; row n is n hours old."""
    world = Aging(scope="user", **config)
    table = world.create()
    assert isinstance(table, UsersTable)
    for name, n in itertools.product(names, range(appends)):
        table.user(name).append([row(NOW - n * HOUR_MS, n)])
    return world, table


def rows_of(table: UsersTable) -> dict[str, list[int]]:
    """Every user's rows."""
    return {
        name: sorted(scan.to_arrow().column("n").to_pylist()) for name, scan in table.scan_users()
    }


def data_files(world: Aging) -> set[str]:
    """The segments in the store."""
    return {path for path in world.files() if path.startswith("w") and path.endswith(".parquet")}


def reopened(world: Aging) -> UsersTable:
    """A handle of another process."""
    table = world.open()
    assert isinstance(table, UsersTable)
    return table


def test_a_users_rows_are_compacted_deleted_and_overwritten(place: Place) -> None:
    """[M9] [M7] [C4] [C5] What replaces rows of one user changes nobody else's."""
    table = strandline.create_table(
        place.url, {"n": "int64"}, scope="user", storage_options=place.storage_options
    )
    for name, n in itertools.product(("ada", "bob", "eve"), range(4)):
        table.user(name).append([{"n": n}])

    report = table.compact()  # type: ignore[call-arg]
    assert (report.runs, report.segments_before, report.segments_after) == (3, 12, 3)
    assert table.user("ada").delete(filter="n >= 2").rows == 2
    table.user("bob").overwrite([{"n": 9}])

    assert rows_of(table) == {"ada": [0, 1], "bob": [9], "eve": [0, 1, 2, 3]}  # type: ignore[arg-type]
    assert table.user("bob").append([{"n": 10}]).first_seq == 5
    assert table.verify(deep=True).ok
    assert len(table.user("ada").scan(["_seq"]).to_arrow()) == 2


def test_files_that_no_user_needs_go_and_others_stay() -> None:
    """[M9] [C8] [USR-8] What compaction replaced goes once its versions are given up."""
    world, table = world_of_users("ada", "bob", "eve")
    table.user("ada").compact()
    before = data_files(world)
    world.wait(2 * DAY_MS)
    assert table.vacuum(dry_run=False).removed == ()
    table.expire_versions("1d")
    assert table.vacuum(dry_run=False).removed == ()
    world.wait(DAY_MS)

    plan = table.vacuum()
    done = table.vacuum(dry_run=False)

    gone = before - data_files(world)
    assert len(gone) == 3
    assert gone <= set(done.removed)
    assert set(plan.removed) == set(done.removed)
    assert rows_of(table) == {name: [0, 1, 2] for name in ("ada", "bob", "eve")}
    assert table.verify(deep=True).ok
    assert table.vacuum(dry_run=False).removed == ()


def test_orphans_of_users_go() -> None:
    """[M9] [C8] A file that was never committed goes, also in a table whose version never moved."""
    world, table = world_of_users("ada")
    window = data_files(world).pop().rpartition("/")[0]
    left = [f"{window}/batch-1-{'a' * 16}.parquet", f"_strandline/pages/1-{'b' * 16}.parquet"]
    beyond = f"{window}/batch-7-{'c' * 16}.parquet"
    for path in (*left, beyond):
        world.store.write_new(path, b"left behind").wait()
    assert table.vacuum(dry_run=False).too_young == 2
    world.wait(2 * DAY_MS)

    report = table.vacuum(dry_run=False)

    assert sorted(report.removed) == sorted(left)
    assert beyond in world.files(), "a version that was not there yet cannot be judged"
    assert rows_of(table) == {"ada": [0, 1, 2]}
    assert table.user("ada").manifest.files_floor == 2


@pytest.mark.parametrize(
    "is_due",
    [
        pytest.param(lambda path: path.startswith("w"), id="after its data file"),
        pytest.param(lambda path: path.startswith(paths.USER_CARDS), id="before it is listed"),
        pytest.param(lambda path: "/users/" in path, id="before its first version"),
    ],
)
@pytest.mark.parametrize("is_new", [True, False], ids=["new user", "known user"])
def test_a_user_that_stalled_over_a_vacuum_writes_its_files_again(
    is_due: Callable[[str], bool], *, is_new: bool
) -> None:
    """[M9] [C8] [USR-4] [USR-9] Vacuum and a commit at any moment of it: no row is lost."""
    world, table = world_of_users("ada", "bob")
    if not is_new:
        table.user("late").append([row(NOW, 0)])
    stalled = reopened(world).user("late")
    turns: list[int] = []
    rights = {name: getattr(MemoryStorage, name) for name in ("put_if_absent", "write_new")}

    def vacuumed() -> None:
        with mock.patch.multiple(MemoryStorage, **rights):
            world.wait(9 * DAY_MS)
            turns.append(len(table.vacuum(dry_run=False).removed))

    def put(self: MemoryStorage, path: str, data: bytes, **more: object) -> object:
        if not turns and is_due(path):
            vacuumed()
        return rights["put_if_absent"](self, path, data, **more)

    def write(self: MemoryStorage, path: str, data: bytes) -> object:
        pending = rights["write_new"](self, path, data)
        if not turns and is_due(path):
            pending.wait()
            vacuumed()
        return pending

    with mock.patch.multiple(MemoryStorage, put_if_absent=put, write_new=write):
        stalled.append([row(NOW, 60)])

    if is_new or not is_due(paths.USER_CARDS):
        assert turns == [1], "the vacuum was to remove the file that waited for its commit"
    assert rows_of(table)["late"] == ([60] if is_new else [0, 60])
    assert table.verify(deep=True).ok


@pytest.mark.parametrize("is_damaged", [True, False])
def test_one_user_that_cannot_be_read_stops_every_removal(*, is_damaged: bool) -> None:
    """[M9] [C8] [VAC-2] What that user needs is not known."""
    world, table = world_of_users("ada", "bob")
    orphan = data_files(world).pop().rpartition("/")[0] + f"/batch-1-{'a' * 16}.parquet"
    world.store.write_new(orphan, b"left behind").wait()
    world.wait(9 * DAY_MS)
    path = paths.user_folder("bob") + "manifests/" + paths.manifest_path(2).rpartition("/")[2]
    world.store.delete([path])
    if is_damaged:
        world.store.write_new(path, b"garbage").wait()
    files = set(world.files())

    with pytest.raises(CorruptTable):
        table.vacuum(dry_run=False)

    assert files <= set(world.files())


def test_versions_of_users_go_behind_a_marker() -> None:
    """[M9] [C9] [TAG-4] Each chain keeps its newest, and those within the grace."""
    world, table = world_of_users("ada", "bob", appends=4)
    table.user("ada").tag("first", 1)
    world.wait(3 * DAY_MS)
    table.user("bob").append([row(NOW, 9)])

    def kept(name: str) -> list[int]:
        names = world.store.list(paths.user_folder(name) + "manifests/")
        return sorted(v for v in map(paths.manifest_version, names) if v is not None)

    assert table.expire_versions("2d").manifests_removed == 0
    world.wait(DAY_MS + HOUR_MS)
    report = table.expire_versions("30d")

    assert (report.manifests_removed, report.tagged) == (6, (1,))
    assert (kept("ada"), kept("bob")) == ([1, 5, 6], [4, 5, 6])
    markers = [path for path in world.files() if "/users/" in path and "/gc/" in path]
    assert len(markers) == 2
    with pytest.raises(VersionNotFound):
        table.user("bob")._chain.at_version(2, table.user("bob")._head)  # noqa: SLF001
    assert rows_of(table) == {
        "ada": [0, 1, 2, 3],
        "bob": [0, 1, 2, 3, 9],
    }
    assert table.user("ada").append([row(NOW, 5)]).first_seq == 4


def test_expiry_of_users_asks_whether_its_share_is_plausible() -> None:
    """[M9] [X1] All users' rows are counted where it matters; no wrong clock hides them."""
    world, table = world_of_users("ada", "bob", ttl="6h", appends=8)
    world.wait(2 * HOUR_MS)
    plan = table.expire(dry_run=True)
    assert (plan.rows_hidden, plan.segments_hidden) == (6, 6)
    with pytest.raises(ImplausibleExpiry):
        table.expire(max_share=0.2)
    world.skew_ms = 9 * DAY_MS
    with pytest.raises(ImplausibleExpiry):
        table.expire()
    world.skew_ms = 0
    assert table.manifest.floor_ts == 0

    report = table.expire(max_share=0.4, grace=0)

    assert (report.rows_hidden, len(report.prefixes_removed)) == (6, 3)
    world.wait(HOUR_MS)
    unasked = table.expire(grace=0)
    assert unasked.rows_hidden is None
    assert "of all users" in str(unasked)
    assert {name: len(rows) for name, rows in rows_of(table).items()} == {"ada": 4, "bob": 4}
    assert table.verify(deep=True).ok


def test_a_users_next_commit_forgets_what_has_expired() -> None:
    """[M9] [USR-2] [EXP-3] The table's floor rises once; manifests of users stay small."""
    world, table = world_of_users("ada", ttl="6h", appends=6)
    world.wait(4 * HOUR_MS)
    table.expire(grace=0)
    ada = table.user("ada")
    assert len(ada.manifest.segments) == 6

    ada.append([row(NOW, 7)])

    manifest = table.user("ada").manifest
    assert len(manifest.segments) == 4
    assert len(manifest.removed_files) == 3
    assert table.verify(deep=True).ok


def test_purge_of_users_keeps_its_promise() -> None:
    """[M9] [C8] What was deleted is gone from the store after the time that is said."""
    world, table = world_of_users("ada", "bob")
    before = data_files(world)
    table.user("ada").delete(filter="n = 1")
    promised = table.purge(dry_run=False).complete_after_ms

    world.wait(promised - world.script.now + 1)
    table.purge(dry_run=False)

    gone = before - data_files(world)
    assert len(gone) == 1
    assert rows_of(table) == {"ada": [0, 2], "bob": [0, 1, 2]}


def test_maintenance_of_users_does_all_steps() -> None:
    """[M9] [C8] By the table's settings, and twice is once."""
    world, table = world_of_users("ada", "bob", ttl="30d")
    table.set(history="1h")
    before = data_files(world)
    heard: list[str] = []
    world.wait(2 * DAY_MS)
    table.maintain(progress=lambda step, *_: heard.append(step))
    assert set(heard) == {"expire", "compact", "expire_versions", "vacuum"}
    world.wait(2 * DAY_MS)
    assert table.maintain().steps["vacuum"].to_json()["removed"] == ()
    world.wait(DAY_MS)

    done = table.maintain()
    again = table.maintain()

    assert done.steps["vacuum"].to_json()["by_kind"]["segment"] == 6
    assert not before & data_files(world)
    assert again.steps["vacuum"].to_json()["removed"] == ()
    assert rows_of(table) == {
        "ada": [0, 1, 2],
        "bob": [0, 1, 2],
    }
    with pytest.raises(InvalidInput, match="own handle"):
        table.user("ada").maintain()


def test_keyed_users_are_maintained_as_any_other() -> None:
    """[M9] [C4] [C8] [USR-10] What a user replaced or deleted goes; another's same keys stay."""
    world, table = world_of_users("ada", "bob", primary_key=["n"])
    for n in range(12):
        table.user("ada").append([row(NOW - n % 9 * HOUR_MS, n % 3)])
    table.user("ada").delete(keys=[1])
    table.user("bob").delete(filter="n = 2")
    left = {"ada": [0, 2], "bob": [0, 1]}
    assert rows_of(table) == left
    before = data_files(world)

    report = table.compact()
    assert report.rows_dropped > 0
    assert rows_of(table) == left
    world.wait(8 * DAY_MS)
    table.maintain()
    world.wait(2 * DAY_MS)
    table.maintain()

    assert len(data_files(world)) < len(before)
    assert not before & data_files(world)
    assert rows_of(table) == left
    assert table.verify(deep=True).ok
    table.user("bob").append([row(NOW + DAY_MS, 2)])
    assert rows_of(table)["bob"] == [0, 1, 2]


def test_verify_says_whose_file_is_gone() -> None:
    """[M9] [X4] One fault among many users is found and named."""
    world, table = world_of_users("ada", "bob")
    assert table.verify().segments == 6
    entry = table.user("bob").manifest.segments[0]
    world.store.delete([entry.path])

    report = table.verify()

    (problem,) = report.problems
    assert problem.path == entry.path
    assert "user 'bob'" in str(problem)


def test_maintenance_of_more_users_takes_no_more_memory() -> None:
    """[M9] Four times as many users: what is held at once grows by eight bytes a file or so."""

    def peak(users: int) -> int:
        world, table = world_of_users(*(f"u{n}" for n in range(users)), appends=2, ttl="30d")
        table.compact()
        world.wait(2 * DAY_MS)
        tracemalloc.start()
        table.expire(dry_run=True)
        table.compact()
        users_vacuum.vacuum_all(table._chain, table._head, grace_ms=0, dry_run=True)  # noqa: SLF001
        (_, most) = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(20)
    assert peak(200) - peak(50) < 400_000


@pytest.mark.s3
def test_users_are_listed_by_the_thousand(s3_bucket: S3Bucket) -> None:
    """[M9] [C8] Maintenance asks an object store once for all names, not folder by folder."""
    table = strandline.create_table(
        s3_bucket.url, {"n": "int64"}, scope="user", storage_options=s3_bucket.storage_options
    )
    assert isinstance(table, UsersTable)
    for n in range(70):
        table.user(f"u{n}").append([{"n": n}])
    table.user("x" * 300).append([{"n": 70}])
    asked: list[str] = []
    list_page = RemoteStorage._do  # noqa: SLF001

    def watched(self: Any, what: str, path: str, call: Any) -> Any:
        if what == "list" and paths.USER_CARDS.rstrip("/") in path:
            asked.append(path)
        return list_page(self, what, path, call)

    with mock.patch.object(RemoteStorage, "_do", watched):
        assert len(table.users()) == 71
        assert asked == [paths.USER_CARDS]
        table.vacuum(dry_run=False, grace=0)
        assert 1 <= len(asked) <= 4
    assert sorted(n for rows in rows_of(table).values() for n in rows) == list(range(71))


def test_what_a_crash_left_among_cards_is_no_user(tmp_path: Path) -> None:
    """[M9] [USR-4] Temporary files and strangers' folders are nobody's names."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"}, scope="user")
    assert isinstance(table, UsersTable)
    for name in ("ada", "Bob", "x" * 200):
        table.user(name).append([{"n": 1}])
    for card in list((tmp_path / "t").glob(paths.USER_CARDS + "*/*")):
        (card.parent / ".tmp-0123456789abcdef").write_bytes(b"left")
        (card.parent / "other").mkdir()
        (card.parent / "other" / "file").write_bytes(b"left")
    assert table.users() == ["Bob", "ada", "x" * 200]
    assert sorted(name for n in range(256) for name in table.users_in(n)) == table.users()


def test_a_table_of_users_does_not_end_because_it_is_empty() -> None:
    """[O7] A setting that nothing would heed is refused, not kept."""
    _, table = world_of_users("ada")
    version = table.version

    with pytest.raises(InvalidInput, match="users come and go"):
        table.set(delete_on_empty_secs=60)

    assert table.refresh().version == version
    table.set(delete_on_empty_secs=0)
