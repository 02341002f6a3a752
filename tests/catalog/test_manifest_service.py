"""Metadata from memory, from this machine's disk, from the store: the same answers."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.api import create_in, open_in
from strandline.catalog import cache_places, local_cache
from strandline.catalog.manifest_service import ManifestService, Part
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import codec, paths, rolling
from strandline.tableformat.errors import CorruptTable, InvalidInput, MissingFile, StorageFailed
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, events, memory_url, numbers_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.table import Table
    from tests.conftest import S3Bucket

ROWS = 24
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _caches() -> Iterator[None]:
    """Let go of all caches, in memory and on disk, as the end of a process does."""
    yield
    new_process()


def new_process() -> None:
    """Forget what a process keeps."""
    PAGES.clear()
    cache_places.close_all()
    cache_places._OPEN.clear()  # noqa: SLF001 - what a new process has not opened yet


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> str:
    """A table with rolled, merged and folded pages; where it is."""
    for name, value in {
        "ROLL_AT": 4,
        "ROLL_STEP": 2,
        "ROLL_ALL_AT": 6,
        "LEAST_PAGE": 2,
        "FOLD_WINDOWS_ABOVE": 4,
        "KEEP_WINDOWS": 2,
    }.items():
        monkeypatch.setattr(rolling, name, value)
    url = memory_url()
    table = create_in(open_storage(url), SCHEMA, time_column="ts", ttl="1d")
    for n in range(ROWS):
        # Some hours get several files, which are rolled into one page.
        table.append(events(n // 4 * 4, 1, step_ms=HOUR_MS))
    assert table.manifest.windows
    assert table.manifest.window_pages
    new_process()
    return url


def watched(url: str) -> WatchedStorage:
    """The store, with every request noted."""
    return WatchedStorage(open_storage(url))


def expected() -> list[int]:
    """Column `n` of all rows."""
    return [n // 4 * 4 for n in range(ROWS)]


def kinds(calls: list[tuple[str, str]]) -> dict[str, int]:
    """How many requests went to each folder of the table's metadata."""
    found: dict[str, int] = {}
    for _, path in calls:
        name = path.split("/")[1] if path.startswith(paths.META) else "data"
        found[name] = found.get(name, 0) + 1
    return found


# --- requests -----------------------------------------------------------------------------------


def test_a_warm_cache_leaves_only_the_head_to_be_read(stored: str, tmp_path: Path) -> None:
    """[M4] [M8] The second process plans over all pages and asks the store for the head alone."""
    first = watched(stored)
    cold = open_in(first, cache=tmp_path).scan().plan()
    assert kinds(first.calls)["pages"] > 3
    new_process()

    second = watched(stored)
    warm = open_in(second, cache=tmp_path).scan().plan()

    assert (warm.segments, warm.report) == (cold.segments, cold.report)
    head = open_in(open_storage(stored)).version
    assert second.calls == [
        ("list", paths.MANIFESTS),
        ("read", paths.manifest_path(head)),
        ("read", paths.manifest_path(head + 1)),
    ]


def test_a_process_of_its_own_finds_what_another_left(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] Between real processes, over a table on disk."""
    copy = tmp_path / "table"
    store = open_storage(stored)
    for path, _ in store.walk(""):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes(store.read(path))
    code = f"""
import json
from strandline.api import open_in
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
store = WatchedStorage(open_storage({str(copy)!r}))
table = open_in(store, cache={str(tmp_path / "cache")!r})
rows = table.scan(columns=["n"]).to_arrow().column("n").to_pylist()
asked = [path for name, path in store.calls if "/pages/" in path]
print(json.dumps([rows, len(asked), table.manifest_service.stats().to_json()]))
"""
    monkeypatch.delenv("STRANDLINE_CACHE", raising=False)
    answers = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))

    (rows, asked, stats), (rows_again, asked_again, stats_again) = answers
    assert rows == rows_again == expected()
    assert (asked > 3, asked_again) == (True, 0)
    assert stats["storage_objects"] == stats["cache_misses"] == stats_again["cache_hits"] > 3
    assert stats_again["storage_objects"] == stats_again["cache_misses"] == 0


def test_memory_comes_first_then_the_disk_then_the_store(stored: str, tmp_path: Path) -> None:
    """[M4] The answer fills the faster tiers, and the counters say who gave it."""
    store = watched(stored)
    table = open_in(store, cache=tmp_path)
    service = table.manifest_service
    pages = table.scan().plan().report.pages.kept + 1  # the page of folded windows too

    def tiers() -> tuple[int, int, int]:
        stats = service.stats()
        return stats.memory_hits, stats.cache_hits, stats.storage_objects

    assert tiers() == (0, 0, pages)
    table.scan().plan()
    assert tiers() == (pages, 0, pages)
    PAGES.clear()
    table.scan().plan()
    assert tiers() == (pages, pages, pages)
    table.scan().plan()
    assert tiers() == (2 * pages, pages, pages)
    stats = service.stats()
    assert (stats.memory_misses, stats.cache_misses, stats.cache_damaged) == (2 * pages, pages, 0)
    assert stats.storage_bytes > 1000


def test_an_older_version_comes_from_the_cache_too(stored: str, tmp_path: Path) -> None:
    """[M4] [C2] Only its marker is asked for: a version that was removed stays gone."""
    head = open_in(open_storage(stored)).version
    old = open_in(watched(stored), head - 3, cache=tmp_path)
    rows = numbers_in(old)
    new_process()

    store = watched(stored)
    again = open_in(store, head - 3, cache=tmp_path)
    asked = list(store.calls)

    assert numbers_in(again) == rows != expected()
    assert asked == [
        ("list", paths.MANIFESTS),
        ("read", paths.manifest_path(head)),
        ("list", paths.GC_MARKERS),
    ]
    store.inner.put_if_absent(paths.gc_marker_path(head - 2), b"")
    with pytest.raises(strandline.VersionNotFound):
        open_in(store, head - 3, cache=tmp_path)


def test_the_head_is_never_taken_from_a_cache(stored: str, tmp_path: Path) -> None:
    """[M4] [C2] What another handle commits is seen by the next scan, however warm the cache."""
    table = open_in(open_storage(stored), cache=tmp_path)
    assert numbers_in(table) == expected()

    open_in(open_storage(stored)).append(events(99, 1))

    assert numbers_in(table) == [*expected(), 99]


def test_a_table_in_the_place_of_another_is_read_as_itself(tmp_path: Path) -> None:
    """[M4] The same URL, versions and cache, but other commits: nothing of the old one shows."""
    cache = tmp_path / "cache"
    for first in (0, 100):
        place = tmp_path / "table"
        made = strandline.create_table(place, SCHEMA, time_column="ts", cache=cache)
        made.append(events(first, 2))
        made.append(events(first + 2, 2))
        older = strandline.open_table(place, version=2, cache=cache)
        assert numbers_in(older) == [first, first + 1]
        place.rename(tmp_path / f"old-{first}")
        new_process()


# --- damage -------------------------------------------------------------------------------------


def _rows_of(folder: Path) -> list[tuple[str, bytes]]:
    db = sqlite3.connect(next(folder.glob("*.sqlite")))
    found = db.execute("SELECT key, data FROM objects ORDER BY key").fetchall()
    db.close()
    return found


def _change(folder: Path, change: str, values: list[Any]) -> None:
    db = sqlite3.connect(next(folder.glob("*.sqlite")))
    db.executemany(change, values)
    db.commit()
    db.close()


def _swap(folder: Path) -> None:
    rows = _rows_of(folder)
    shifted = [data for _, data in rows[1:] + rows[:1]]
    pairs = [(data, key) for (key, _), data in zip(rows, shifted, strict=True)]
    _change(folder, "UPDATE objects SET data = ? WHERE key = ?", pairs)


def _flip(folder: Path) -> None:
    flipped = [(bytes([d[0] ^ 1]) + d[1:], key) for key, d in _rows_of(folder)]
    _change(folder, "UPDATE objects SET data = ? WHERE key = ?", flipped)


def _cut(folder: Path) -> None:
    cut = [(data[:-1], key) for key, data in _rows_of(folder)]
    _change(folder, "UPDATE objects SET data = ? WHERE key = ?", cut)


def _text(folder: Path) -> None:
    _change(folder, "UPDATE objects SET data = ?", [("text",)])


def _garbage(folder: Path) -> None:
    next(folder.glob("*.sqlite")).write_bytes(b"\0garbage" * 1000)


def _truncate(folder: Path) -> None:
    file = next(folder.glob("*.sqlite"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flip_everywhere(folder: Path) -> None:
    file = next(folder.glob("*.sqlite"))
    data = bytearray(file.read_bytes())
    data[100::257] = bytes(byte ^ 64 for byte in data[100::257])
    file.write_bytes(data)


@pytest.mark.parametrize("first", ["pages", "manifest"])
@pytest.mark.parametrize(
    "damage", [_swap, _flip, _cut, _text, _garbage, _truncate, _flip_everywhere]
)
def test_a_damaged_cache_never_changes_an_answer(
    stored: str, tmp_path: Path, damage: Any, first: str
) -> None:
    """[M4] [X4] Every copy is compared with its checksum; the store answers, and all is well."""
    head = open_in(open_storage(stored)).version
    older = numbers_in(open_in(open_storage(stored), head - 3))
    for version in (head - 3, None):
        new_process()
        open_in(open_storage(stored), version, cache=tmp_path).scan().plan()
    new_process()
    damage(tmp_path)

    asked = open_in(open_storage(stored), None if first == "pages" else head - 3, cache=tmp_path)
    assert numbers_in(asked) == (expected() if first == "pages" else older)
    stats = asked.manifest_service.stats()
    assert stats.storage_objects > 1
    assert damage not in (_swap, _flip, _cut) or stats.cache_damaged
    assert numbers_in(open_in(open_storage(stored), head - 3, cache=tmp_path)) == older
    for _ in range(2):
        new_process()
        table = open_in(open_storage(stored), cache=tmp_path)
        assert numbers_in(table) == expected()
    assert table.manifest_service.stats().storage_objects == 0, "it is used again"


def _manifest(url: str, version: int) -> bytes:
    return open_storage(url).read(paths.manifest_path(version))


def test_a_cached_manifest_of_another_commit_is_not_believed(stored: str, tmp_path: Path) -> None:
    """[M4] Sound bytes of the right version, but not those that the head's history names."""
    head = open_in(open_storage(stored)).version
    open_in(open_storage(stored), head - 3, cache=tmp_path)
    new_process()
    document = codec.decode_document(_manifest(stored, head - 3), "manifest")
    for record in (document["commit"], document["history"][0]):
        record["commit_id"] = "f" * 32
    forged = codec.encode_document(json.dumps({**document, "segments": []}).encode())
    _change(tmp_path, "UPDATE objects SET data = ?", [(forged,)])

    older = open_in(open_storage(stored), head - 3, cache=tmp_path)

    assert numbers_in(older) == numbers_in(open_in(open_storage(stored), head - 3))
    assert older.manifest_service.stats().cache_damaged == 1


def test_a_stored_manifest_of_another_commit_is_not_kept(stored: str, tmp_path: Path) -> None:
    """[M4] The store's answer is given as it is, and asked for again the next time."""
    store = open_storage(stored)
    head = open_in(store).version
    path = paths.manifest_path(head - 3)
    right = store.read(path)
    document = codec.decode_document(right, "manifest")
    for record in (document["commit"], document["history"][0]):
        record["commit_id"] = "f" * 32
    store.delete([path])
    store.put_if_absent(path, codec.encode_document(json.dumps(document).encode()))
    assert open_in(store, head - 3, cache=tmp_path).manifest.commit.commit_id == "f" * 32
    store.delete([path])
    store.put_if_absent(path, right)

    assert open_in(store, head - 3, cache=tmp_path).manifest.commit.commit_id != "f" * 32


def test_an_unusable_cache_is_told_and_costs_nothing_else(stored: str, tmp_path: Path) -> None:
    """[M4] [M5] Answers come from the store; the reason stands in the stats."""
    (tmp_path / "file").write_bytes(b"")
    table = open_in(open_storage(stored), cache=tmp_path / "file" / "cache")

    assert numbers_in(table) == expected()
    stats = table.manifest_service.stats()
    assert "file" in str(stats.cache_problem)
    assert stats.last_error is None


# --- states -------------------------------------------------------------------------------------


def test_the_state_says_how_the_service_stands(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M5] in_sync, syncing, pending_write while the cache is locked, in_sync again."""
    monkeypatch.setattr(local_cache, "BUSY_S", 0.001)
    monkeypatch.setattr(local_cache, "REST_S", 0.0)
    open_in(open_storage(stored), cache=tmp_path)
    cache_places.open_cache(tmp_path, is_local=False).put({})  # type: ignore[union-attr]
    store = watched(stored)
    table = open_in(store, cache=tmp_path)
    service = table.manifest_service
    seen = [service.sync_state]
    store.before = lambda name, _: seen.append(service.sync_state) if name != "list" else None
    locker = sqlite3.connect(next(tmp_path.glob("*.sqlite")), isolation_level=None)
    locker.execute("BEGIN IMMEDIATE")

    table.scan().plan()
    assert set(seen[1:]) == {"syncing"}
    assert (seen[0], service.sync_state) == ("in_sync", "pending_write")
    waiting = service.stats().pending
    assert waiting > 3
    locker.close()
    PAGES.clear()
    table.scan().plan()

    assert service.sync_state == "in_sync"
    assert service.stats().pending == 0
    assert len(_rows_of(tmp_path)) == waiting


def test_a_service_that_cannot_reach_the_store_is_stale_until_it_can(stored: str) -> None:
    """[M5] What it knows may be old; the error can be read, and goes when the store answers."""
    store = watched(stored)
    table = open_in(store)
    service = table.manifest_service

    def fail(name: str, path: str) -> None:
        raise StorageFailed(f"{name} {path}: no route")

    store.before = fail
    with pytest.raises(StorageFailed):
        table.refresh()
    assert service.sync_state == "stale"
    assert "no route" in str(service.stats().last_error)
    store.before = lambda *_: None
    table.refresh()
    assert (service.sync_state, service.stats().last_error) == ("in_sync", None)


def test_a_service_whose_load_failed_is_in_error_until_one_succeeds(stored: str) -> None:
    """[M5] [RD-2] A page that is missing, then there again."""
    store = watched(stored)
    table = open_in(store)
    page = table.manifest.window_pages[0].path
    data = store.inner.read(page)
    store.inner.delete([page])

    with pytest.raises(MissingFile):
        table.scan().plan()
    assert table.manifest_service.sync_state == "error"
    assert "missing" in str(table.manifest_service.stats().last_error)
    store.inner.put_if_absent(page, data)
    table.scan().plan()
    assert table.manifest_service.sync_state == "in_sync"


# --- parts --------------------------------------------------------------------------------------


def test_parts_of_an_object_are_kept_apart(tmp_path: Path) -> None:
    """[M4] The same bytes at two places of one object, and a whole object, are three entries."""
    store = watched(memory_url())
    store.inner.put_if_absent("_strandline/pages/x", b"abcabc")
    service = ManifestService(store, cache_places.open_cache(tmp_path, is_local=False))

    def part(start: int, length: int, text: bytes) -> Part:
        return Part("_strandline/pages/x", start, length, codec.checksum(text))

    parts = [part(0, 3, b"abc"), part(3, 3, b"abc"), part(0, 6, b"abcabc")]
    for _ in range(2):
        found = service.get_or_load(parts, lambda i, data: (i, data))
        assert found == [(0, b"abc"), (1, b"abc"), (2, b"abcabc")]
        PAGES.clear()
    assert service.stats().storage_objects == 3
    with pytest.raises(CorruptTable, match="checksum"):
        service.get_or_load([part(1, 3, b"abc")], lambda _, data: data)


# --- where it is ----------------------------------------------------------------------------------


def test_the_environment_turns_the_cache_on(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] A folder, or `on` for the user's own; an argument wins; local disks have no need."""
    monkeypatch.setenv("STRANDLINE_CACHE", str(tmp_path / "a"))
    strandline.open_table(stored).scan().plan()
    assert _rows_of(tmp_path / "a")
    PAGES.clear()
    strandline.open_table(stored, cache=tmp_path / "b").scan().plan()
    assert _rows_of(tmp_path / "b")
    monkeypatch.setenv("STRANDLINE_CACHE", str(tmp_path / "c"))
    PAGES.clear()
    strandline.open_table(stored, cache=False).scan().plan()
    strandline.create_table(tmp_path / "local", SCHEMA).scan().plan()
    assert not (tmp_path / "c").exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for word, there in (("off", False), ("", False), ("on", True)):
        monkeypatch.setenv("STRANDLINE_CACHE", word)
        PAGES.clear()
        strandline.open_table(stored).scan().plan()
        assert (tmp_path / "home" / "strandline").exists() == there


def test_a_cache_is_given_by_folder_and_size(stored: str, tmp_path: Path) -> None:
    """[M4] What is not understood is refused before anything is opened."""
    table = strandline.open_table(stored, cache={"dir": tmp_path, "bytes": 2**20})
    table.scan().plan()
    assert _rows_of(tmp_path)
    for wrong in (1, "", {"dir": 1}, {"size": 1}, {"bytes": 10}, {"bytes": "1GB"}):
        with pytest.raises(InvalidInput, match="cache"):
            strandline.open_table(stored, cache=wrong)


@pytest.mark.s3
def test_credentials_are_not_in_the_cache(s3_bucket: S3Bucket, tmp_path: Path) -> None:
    """[C10] Pages and their places only, named by the URL as it is shown."""
    options = s3_bucket.storage_options
    made: Table = strandline.create_table(
        s3_bucket.url, SCHEMA, time_column="ts", storage_options=options, cache=tmp_path
    )
    for n in range(70):
        made.append(events(n, 1))
    new_process()
    strandline.open_table(s3_bucket.url, storage_options=options, cache=tmp_path).scan().plan()
    cache_places.close_all()

    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert s3_bucket.url.encode() in stored
    for secret in ("key", "secret"):
        assert options[secret].encode() not in stored
