"""The cache on disk: bounded, shared, and never more than a shortcut."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from strandline.catalog import local_cache
from strandline.catalog.local_cache import LocalCache
from strandline.catalog.page_cache import ObjectKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 2 * 2**20


def key(number: int) -> ObjectKey:
    """The key of an object that is told from others by its number."""
    return ObjectKey("s3://bucket/table", f"_strandline/pages/{number}", f"{number:016x}")


def content(number: int, size: int = 10_000) -> bytes:
    """What the object with this number holds."""
    return random.Random(number).randbytes(size)


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now

    def seconds(self) -> float:
        return self.now / 1000


@pytest.fixture
def clock() -> Clock:
    """The time of the cache under test."""
    return Clock()


@pytest.fixture
def cache(tmp_path: Path, clock: Clock) -> Iterator[LocalCache]:
    """A small cache in a folder of its own."""
    made = make(tmp_path / "cache", clock)
    yield made
    made.close()


def make(folder: Path, clock: Clock | None = None, limit: int = LIMIT) -> LocalCache:
    """A cache as another process would open it."""
    clock = clock or Clock()
    return LocalCache(folder, limit, now_ms=clock, monotonic=clock.seconds)


def files(cache: LocalCache) -> dict[str, int]:
    """The files of the cache and their sizes."""
    return {path.name: path.stat().st_size for path in cache.folder.iterdir()}


def test_what_one_process_keeps_another_finds(cache: LocalCache) -> None:
    """[M4] By key; what is not there is simply left out."""
    assert cache.get([key(1)]) == {}
    assert cache.put({key(1): content(1), key(2): b""})

    other = make(cache.folder)
    assert other.get([key(1), key(2), key(3)]) == {key(1): content(1), key(2): b""}
    assert (cache.problem, other.problem) == (None, None)
    other.close()


def test_more_keys_than_a_query_takes(cache: LocalCache) -> None:
    """[M4] A plan may ask for thousands of pages at once."""
    objects = {key(i): bytes([i % 256]) for i in range(1_203)}
    assert cache.put(objects)

    assert cache.get(list(objects)) == objects


def test_the_cache_is_bounded_and_the_least_recently_used_leaves_first(
    cache: LocalCache, clock: Clock
) -> None:
    """[M4] Everything in the folder counts, whatever was put in; what is used stays."""
    cache.put({key(0): content(0)})
    for i in range(1, 1_000):
        clock.now += 2 * local_cache.TOUCH_AFTER_MS
        assert cache.put({key(i): content(i)})
        assert cache.get([key(0)]) == {key(0): content(0)}
        assert sum(files(cache).values()) <= LIMIT
    held = [i for i in range(1_000) if cache.get([key(i)])]

    assert held[0] == 0
    assert held[1:] == list(range(held[1], 1_000))
    assert LIMIT // 3 < 10_000 * len(held) < LIMIT


def test_objects_of_all_sizes_stay_within_the_bound(cache: LocalCache) -> None:
    """[M4] Tiny ones have overhead, huge ones are not kept at all."""
    chance = random.Random(5)
    for i in range(300):
        sizes = [chance.choice((0, 10, 300, 5_000, 90_000, 300_000)) for _ in range(5)]
        assert cache.put({key(10 * i + n): content(n, size) for n, size in enumerate(sizes)})
        assert sum(files(cache).values()) <= LIMIT
    assert cache.problem is None
    assert cache.get([key(2_990 + n) for n in range(5)])


def test_only_the_user_can_read_it(cache: LocalCache) -> None:
    """[C10] The folder and every file in it; a file that others can write is not believed."""
    cache.put({key(1): content(1)})
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert len(files(cache)) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in cache.folder.iterdir()} == {0o600}
    cache.close()

    (file,) = (path for path in cache.folder.iterdir() if path.suffix == ".sqlite")
    file.chmod(0o644)
    assert make(cache.folder).get([key(1)]) == {key(1): content(1)}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o622)
    suspicious = make(cache.folder)
    assert suspicious.get([key(1)]) == {}
    assert "written by other users" in str(suspicious.problem)


# --- damage -------------------------------------------------------------------------------------


def filled(folder: Path) -> Path:
    """A closed cache with twenty objects; gives its one file."""
    cache = make(folder)
    cache.put({key(i): content(i) for i in range(20)})
    cache.close()
    (file,) = folder.iterdir()
    return file


def works_again(folder: Path) -> None:
    """Whatever was done to its file, a cache takes and gives objects after a try or two."""
    cache = make(folder)
    for _ in range(2):
        found = cache.get([key(i) for i in range(20)])
        if any(data != right(k) for k, data in found.items()):
            cache.distrust()
        cache.put({key(i): content(i) for i in range(20, 40)})
    found = cache.get([key(i) for i in range(40)])
    assert all(data == right(k) for k, data in found.items())
    assert {key(i) for i in range(20, 40)} <= found.keys()
    assert cache.problem is None
    assert len([name for name in files(cache) if name.endswith(".sqlite")]) == 1
    cache.close()


def right(which: ObjectKey) -> bytes:
    """What should be under a key."""
    return content(int(which.identity, 16))


@pytest.mark.parametrize("seed", [*range(60), 488, 1669, 2744])
def test_flipped_bytes_cost_the_copies_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """[M4] [X4] A few bytes anywhere, or a whole page: an answer or none, and no exception.

    The last three damage an index so that what goes in does not come out again.
    """
    file = filled(tmp_path / "cache")
    data, chance = bytearray(file.read_bytes()), random.Random(seed)
    if seed % 3 == 0:
        start = chance.randrange(len(data) // 4096) * 4096
        data[start : start + 4096] = chance.randbytes(4096)
    for _ in range(chance.choice((1, 8, 200))):
        # Half of them where SQLite keeps its own notes: the first pages.
        end = len(data) if chance.random() < 0.5 else 3 * 4096
        data[chance.randrange(end)] ^= 1 << chance.randrange(8)
    file.write_bytes(data)

    works_again(tmp_path / "cache")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.5, 0.99])
def test_a_truncated_file_costs_the_copies_and_nothing_else(tmp_path: Path, share: float) -> None:
    """[M4] [X4] From an empty file to one that lacks its last page."""
    file = filled(tmp_path / "cache")
    os.truncate(file, int(file.stat().st_size * share))

    works_again(tmp_path / "cache")


@pytest.mark.parametrize("size", [0, 100, 1_000_000])
def test_a_file_that_is_cut_while_it_is_open(cache: LocalCache, size: int) -> None:
    """[M4] [X4] Another program may do anything at any time."""
    cache.put({key(i): content(i) for i in range(20)})
    db = sqlite3.connect(next(cache.folder.glob("*.sqlite")))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    file = next(cache.folder.glob("*.sqlite"))
    os.truncate(file, size)

    for _ in range(3):
        found = cache.get([key(i) for i in range(20)])
        assert all(data == right(k) for k, data in found.items())
        cache.put({key(i): content(i) for i in range(20)})
    cache.close()
    works_again(cache.folder)


@pytest.mark.parametrize("text", [b"not a database", b"SQLite format 3\x00" + b"x" * 5_000])
def test_a_file_that_is_no_database_is_replaced(tmp_path: Path, text: bytes) -> None:
    """[M4] [X4] The next number is used, and the old file goes."""
    file = filled(tmp_path / "cache")
    file.write_bytes(text)

    works_again(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["objects-v1-2.sqlite"]


def test_another_table_in_the_database_is_not_ours(tmp_path: Path) -> None:
    """[M4] A database of the right name with other contents is given up."""
    file = filled(tmp_path / "cache")
    db = sqlite3.connect(file)
    db.execute("ALTER TABLE objects RENAME COLUMN data TO other")
    db.close()

    works_again(tmp_path / "cache")


@pytest.mark.parametrize("kind", ["folder", "file instead of a folder", "link"])
def test_a_place_that_cannot_be_used_is_left_alone(tmp_path: Path, kind: str) -> None:
    """[M4] No answer, no exception, and a reason that can be read."""
    folder = tmp_path / "cache"
    if kind == "folder":
        (folder / "objects-v1-1.sqlite").mkdir(parents=True)
    elif kind == "link":
        folder.mkdir()
        (tmp_path / "elsewhere").write_bytes(b"precious")
        (folder / "objects-v1-1.sqlite").symlink_to(tmp_path / "elsewhere")
    else:
        folder.write_bytes(b"precious")
    cache = make(folder)

    assert cache.get([key(1)]) == {}
    assert not cache.put({key(1): content(1)})
    assert cache.problem
    if kind != "folder":
        assert (folder if folder.is_file() else tmp_path / "elsewhere").read_bytes() == b"precious"


# --- others -------------------------------------------------------------------------------------


def test_a_locked_cache_is_passed_by_and_used_again_later(
    cache: LocalCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] One try that waits a little, then none until it has rested."""
    monkeypatch.setattr(local_cache, "BUSY_S", 0.001)
    cache.put({key(1): content(1)})
    cache.close()
    locker = sqlite3.connect(next(cache.folder.glob("*.sqlite")), isolation_level=None)
    locker.execute("PRAGMA locking_mode=EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")

    assert cache.get([key(1)]) == {}
    assert "locked" in str(cache.problem)
    assert not cache.put({key(2): content(2)})
    locker.close()
    assert cache.get([key(1)]) == {}, "it did not rest"
    clock.now += 1_000 * int(local_cache.REST_S + 1)
    assert cache.get([key(1)]) == {key(1): content(1)}
    assert cache.problem is None


def test_a_read_only_cache_still_answers(
    cache: LocalCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] Copies come out, none go in, and reading does not fail for want of a note."""
    cache.put({key(1): content(1)})
    cache.close()
    connect = sqlite3.connect

    def read_only(place: str, **options: Any) -> sqlite3.Connection:
        return connect(place.replace("mode=rw", "mode=ro"), **options)

    monkeypatch.setattr(local_cache.sqlite3, "connect", read_only)
    monkeypatch.setattr(local_cache.os, "access", lambda *_: False)

    for _ in range(3):
        clock.now += 2 * local_cache.TOUCH_AFTER_MS
        assert cache.get([key(1)]) == {key(1): content(1)}
        assert not cache.put({key(2): content(2)})
        assert "readonly" in str(cache.problem)
    clock.now += 2_000 * int(local_cache.REST_S)
    assert not cache.put({key(2): content(2)})
    assert cache.get([key(1)]) == {key(1): content(1)}, "it rests only from writing"


def test_a_full_disk_takes_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    """[M4] In a process that may write no file larger than 200 kB."""
    code = f"""
import resource, sys
from tests.catalog.test_local_cache import content, key, make
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
cache = make(Path({str(tmp_path / "cache")!r}))
taken = [cache.put({{key(i): content(i)}}) for i in range(40)]
assert taken[0] and not taken[-1], taken
assert cache.problem
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
again = make(cache.folder)
found = again.get([key(i) for i in range(40)])
assert found, again.problem
assert all(data == content(int(k.identity, 16)) for k, data in found.items())
assert again.put({{key(99): content(99)}}), again.problem
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_child_process_opens_the_cache_for_itself(cache: LocalCache) -> None:
    """[M4] A connection that went through a fork would share its locks."""
    cache.put({key(1): content(1)})
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(
        target=lambda: answers.put(
            (
                cache.get([key(1)]),
                cache.put({key(2): content(2)}),
                len(local_cache._INHERITED),  # noqa: SLF001 - set aside, neither used nor closed
            )
        )
    )
    child.start()
    child.join(60)

    assert child.exitcode == 0
    assert answers.get() == ({key(1): content(1)}, True, 1)
    assert cache.get([key(1), key(2)]) == {key(1): content(1), key(2): content(2)}


HAMMER = """
import random, sys
from pathlib import Path
from strandline.catalog.local_cache import LocalCache
from tests.catalog.test_local_cache import LIMIT, content, key
chance, cache = random.Random(int(sys.argv[2])), LocalCache(Path(sys.argv[1]), LIMIT)
hits = wrong = 0
for step in range(400):
    numbers = chance.sample(range(300), 6)
    found = cache.get([key(n) for n in numbers])
    hits += len(found)
    wrong += sum(data != content(int(k.identity, 16)) for k, data in found.items())
    cache.put({key(n): content(n) for n in numbers if key(n) not in found})
print(hits, wrong, cache.problem)
"""


def test_four_processes_hammer_one_cache(tmp_path: Path) -> None:
    """[M4] They share copies, none is ever wrong, and the bound holds for all together."""
    folder = tmp_path / "cache"
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", HAMMER, str(folder), str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(4)
    ]
    said = [worker.communicate(timeout=300) for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0, 0, 0], said
    answers = [out.split() for out, _ in said]
    assert [wrong for _, wrong, *_ in answers] == ["0"] * 4
    assert all(int(hits) > 100 for hits, *_ in answers), answers
    assert [path.name for path in folder.iterdir()] == ["objects-v1-1.sqlite"], "it was given up"
    assert (folder / "objects-v1-1.sqlite").stat().st_size <= LIMIT
    db = sqlite3.connect(folder / "objects-v1-1.sqlite")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
