"""What every store promises; each backend inherits the same tests."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strandline.tableformat.errors import (
    CorruptTable,
    InvalidInput,
    ObjectMissing,
    StorageFailed,
    UnsupportedStore,
)
from strandline.tableformat.storage import Put, Storage, open_storage
from strandline.tableformat.stores.probe import PROBE_FOLDER, probe, probe_once_per_process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import S3Bucket

ROUNDS = 20

ESCAPES = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a/./b",
    "a//b",
    "/etc/passwd",
    "a/",
    "a\\b",
    "a\0b",
    "a\nb",
    "s3://bucket/key",
    "file:///etc/passwd",
    "\ud800",
    None,
    7,
]


class PendingFailure:
    """A write before the commit that failed."""

    def wait(self) -> None:
        """Fail as a full disk would."""
        raise StorageFailed("the disk is full")


class StorageContract:
    """The tests; a backend gives `storage` (an empty root)."""

    def test_what_is_written_is_read(self, storage: Storage) -> None:
        """[M1] An object reads back as it was written, whatever kind of buffer it came from."""
        for name, data in {
            "bytes": b"abc",
            "bytearray": bytearray(b"abc"),
            "view": memoryview(b"xabcx")[1:4],
            "buffer": pa.py_buffer(b"abc"),
            "empty": b"",
        }.items():
            storage.write_new(f"w0-60/shard-0/{name}", data).wait()
            expected = b"" if name == "empty" else b"abc"
            assert storage.read(f"w0-60/shard-0/{name}") == expected
            assert storage.size(f"w0-60/shard-0/{name}") == len(expected)

    def test_waiting_twice_is_fine(self, storage: Storage) -> None:
        """A pending write may be waited for by the commit and by its caller."""
        pending = storage.write_new("a/b", b"1")
        pending.wait()
        pending.wait()

    def test_an_absent_object_is_missing(self, storage: Storage) -> None:
        """Only an object that is not there is reported as missing."""
        storage.write_new("there", b"1").wait()
        for call in (
            lambda: storage.read("nowhere"),
            lambda: storage.read("no/where"),
            lambda: storage.size("nowhere"),
            lambda: storage.read_ranges([("nowhere", 0, 1)]),
        ):
            with pytest.raises(ObjectMissing, match="where does not exist"):
                call()

    def test_many_objects_are_asked_for_at_once(self, storage: Storage) -> None:
        """[X1] Answers keep the order of the questions; what is absent is None, and no error."""
        names = [f"n/{number:02}" for number in range(20)]
        for name in names:
            storage.write_new(name, name.encode()).wait()
        asked = ["no/where", *reversed(names), "nowhere", names[3]]

        found, dates = storage.read_each(asked), storage.written_ms(asked)

        expected = [None if "where" in name else name.encode() for name in asked]
        assert list(found) == expected
        assert [date is None for date in dates] == [data is None for data in expected]
        assert min(date for date in dates if date is not None) > 10**12
        assert list(storage.read_each([])) == list(storage.written_ms([])) == []

    def test_ranges_come_back_in_the_order_asked(self, storage: Storage) -> None:
        """Near, far, overlapping, repeated and empty ranges of several objects are all exact."""
        one, two = bytes(range(256)) * 1024, b"0123456789"
        storage.write_new("one", one).wait()
        storage.write_new("two", two).wait()
        requests = [
            ("two", 8, 2),
            ("one", 200_000, 100),
            ("one", 0, 10),
            ("one", 5, 10),
            ("two", 0, 0),
            ("one", 5, 10),
            ("one", len(one) - 1, 1),
        ]
        found = storage.read_ranges(requests)
        whole = {"one": one, "two": two}
        assert found == [whole[path][start : start + length] for path, start, length in requests]
        assert storage.read_ranges([]) == []

    @pytest.mark.parametrize(("start", "length"), [(8, 3), (10, 1), (11, 5), (0, 11)])
    def test_an_object_shorter_than_its_metadata_is_corrupt(
        self, storage: Storage, start: int, length: int
    ) -> None:
        """[X4] A truncated object is an error, never a short answer."""
        storage.write_new("ten", b"0123456789").wait()
        with pytest.raises(CorruptTable, match="ten is shorter"):
            storage.read_ranges([("ten", 0, 2), ("ten", start, length)])

    def test_a_negative_range_is_refused(self, storage: Storage) -> None:
        """A range from the end is not a thing here."""
        with pytest.raises(InvalidInput):
            storage.read_ranges([("a", -4, 4)])

    def test_list_shows_the_files_of_one_folder(self, storage: Storage) -> None:
        """Names are bare and sorted; folders, deeper files and other folders do not show."""
        for path in ("f/b", "f/a", "f/sub/x", "f/c", "fz", "top"):
            storage.put_if_absent(path, b"1")
        assert storage.list("f/") == ["a", "b", "c"]
        assert storage.list("f/", limit=1) == ["a"]
        assert storage.list("f/", limit=2) == ["a", "b"]
        assert storage.list("f/", limit=0) == []
        assert storage.list("f/", start_after="a") == ["b", "c"]
        assert storage.list("f/", start_after="a", limit=1) == ["b"]
        assert storage.list("f/", start_after="aa", limit=5) == ["b", "c"]
        assert storage.list("f/sub/") == ["x"]
        assert storage.list("") == ["fz", "top"]
        assert storage.list("absent/") == []

    def test_list_finds_a_file_behind_many_folders(self, storage: Storage) -> None:
        """A limit counts files, not the folders that sort before them."""
        for path in ("f/a/1", "f/b/1", "f/c/1", "f/z"):
            storage.put_if_absent(path, b"1")
        assert storage.list("f/", limit=1) == ["z"]

    def test_walk_shows_everything_below(self, storage: Storage) -> None:
        """Paths are relative to the table root, at any depth."""
        for path in ("f/b", "f/sub/x", "fz"):
            storage.put_if_absent(path, b"12")
        assert sorted(storage.walk("")) == [("f/b", 2), ("f/sub/x", 2), ("fz", 2)]
        assert sorted(storage.walk("f/")) == [("f/b", 2), ("f/sub/x", 2)]
        assert list(storage.walk("absent/")) == []

    def test_the_first_create_wins(self, storage: Storage) -> None:
        """[M2] A name that exists is never replaced."""
        assert storage.put_if_absent("m/1", b"first") is Put.CREATED
        assert storage.put_if_absent("m/1", b"second") is Put.EXISTS
        assert storage.read("m/1") == b"first"
        assert storage.list("m/") == ["1"]

    def test_a_name_is_free_again_after_delete(self, storage: Storage) -> None:
        """Delete removes what is there and does not mind what is not."""
        for path in ("m/1", "m/2", "m/3"):
            storage.put_if_absent(path, b"1")
        storage.delete(["m/1", "absent", "no/where", "m/3"])
        storage.delete(["absent"])
        storage.delete([])
        assert storage.list("m/") == ["2"]
        assert storage.put_if_absent("m/1", b"again") is Put.CREATED

    def test_a_commit_waits_for_its_files(self, storage: Storage) -> None:
        """[X5] Nothing is visible before every file it points to is durable."""
        started, done = threading.Event(), threading.Event()

        class Slow:
            def wait(self) -> None:
                started.set()
                assert done.wait(timeout=30)

        with ThreadPoolExecutor(1) as pool:
            put = pool.submit(lambda: storage.put_if_absent("m/1", b"1", after=[Slow()]))
            assert started.wait(timeout=30)
            assert storage.list("m/") == []
            done.set()
            assert put.result() is Put.CREATED
        assert storage.list("m/") == ["1"]

    def test_a_failed_file_stops_the_commit(self, storage: Storage) -> None:
        """[X5] If a file could not be written, nothing is created and the reason is told."""
        with pytest.raises(StorageFailed, match="disk is full"):
            storage.put_if_absent("m/1", b"1", after=[PendingFailure()])
        assert storage.list("m/") == []
        assert list(storage.walk("")) == []
        assert storage.put_if_absent("m/1", b"2") is Put.CREATED

    def test_one_thread_wins_each_name(self, storage: Storage) -> None:
        """[M2] Eight threads create one name: one wins, and its bytes are kept."""
        ready = threading.Barrier(8)

        def race(me: int) -> list[bool]:
            won = []
            for turn in range(ROUNDS):
                ready.wait(timeout=60)
                won.append(storage.put_if_absent(f"r/{turn}", b"%d" % me) is Put.CREATED)
            return won

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(race, range(8)))
        for turn in range(ROUNDS):
            winners = [me for me in range(8) if results[me][turn]]
            assert [storage.read(f"r/{turn}")] == [b"%d" % me for me in winners]

    def test_an_object_appears_whole(self, storage: Storage) -> None:
        """[X5] A reader finds nothing or everything, never a part."""
        data = bytes(1 << 20)
        over = threading.Event()
        seen: list[int] = []

        def look() -> None:
            turn = 0
            while not over.is_set() or turn < ROUNDS:
                try:
                    seen.append(len(storage.read(f"big/{turn}")))
                    turn += 1
                except ObjectMissing:
                    continue

        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(look)
            for turn in range(ROUNDS):
                storage.put_if_absent(f"big/{turn}", data)
            over.set()
            looking.result()
        assert seen == [len(data)] * ROUNDS

    @pytest.mark.parametrize("path", ESCAPES)
    def test_a_path_cannot_leave_the_table(self, storage: Storage, path: Any) -> None:
        """Metadata may be hostile: such a path is refused by every operation."""
        for call in (
            lambda: storage.read(path),
            lambda: storage.size(path),
            lambda: storage.read_ranges([(path, 0, 1)]),
            lambda: storage.write_new(path, b""),
            lambda: storage.put_if_absent(path, b""),
            lambda: storage.delete([path]),
        ):
            with pytest.raises(CorruptTable):
                call()
        assert list(storage.walk("")) == []

    @pytest.mark.parametrize("prefix", ["../", "/", "a//", "a/../"])
    def test_a_folder_cannot_leave_the_table(self, storage: Storage, prefix: str) -> None:
        """Listing is held to the same rule."""
        with pytest.raises(CorruptTable):
            storage.list(prefix)
        with pytest.raises(CorruptTable):
            list(storage.walk(prefix))

    def test_the_clock_is_the_present(self, storage: Storage) -> None:
        """The store's time is near ours here, where both run on one machine."""
        storage.put_if_absent("m/1", b"1")
        assert abs(storage.clock_ms() - time.time() * 1000) < 60_000

    def test_the_lock_is_never_an_error(self, storage: Storage) -> None:
        """Without a table, or while another holds it, a commit goes on."""
        with storage.commit_lock() as held:
            assert held is False
        storage.put_if_absent("_strandline/manifests/1", b"1")
        with storage.commit_lock() as held, storage.commit_lock(timeout_s=0.0) as again:
            assert held is storage.is_local
            assert again is False

    def test_it_can_be_sent_to_a_worker(self, storage: Storage) -> None:
        """A storage survives pickling, and its repr is its URL."""
        storage.put_if_absent("m/1", b"1")
        copy = pickle.loads(pickle.dumps(storage))
        assert copy.read("m/1") == b"1"
        assert repr(copy) == f"<{type(storage).__name__} {storage.url}>"

    def test_the_probe_accepts_it_and_leaves_nothing(self, storage: Storage) -> None:
        """[M2] A store that keeps the promise passes, once per process."""
        probe(storage)
        probe_once_per_process(storage)
        probe_once_per_process(storage)
        assert list(storage.walk("")) == []
        assert storage.list(f"{PROBE_FOLDER}/") == []


def test_the_probe_survives_a_vacuum_that_takes_its_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[C1] [C8] Whoever loses its object in between tries again, and blames no sound store."""
    storage = open_storage("memory://probed-while-vacuumed")
    real, calls, gone_after = storage.put_if_absent, 0, set[int]()

    def put(path: str, data: bytes) -> Put:
        nonlocal calls
        calls += 1
        made = real(path, data)
        if calls in gone_after:
            storage.delete([path])
        return made

    monkeypatch.setattr(storage, "put_if_absent", put)
    for number in (1, 2):
        calls, gone_after = 0, {number}
        probe(storage)
        assert calls == 2 * 4
        assert list(storage.walk("")) == []
    calls, gone_after = 0, {1, 5}
    with pytest.raises(UnsupportedStore):
        probe(storage)


def _race_in_process(url: str, options: dict[str, Any], me: int, ready: Any, wins: Any) -> None:
    storage = open_storage(url, options)
    won = []
    for turn in range(ROUNDS):
        ready.wait(timeout=60)
        won.append(storage.put_if_absent(f"r/{turn}", b"%d" % me) is Put.CREATED)
    wins.put((me, won))


def assert_one_process_wins(url: str, options: dict[str, Any]) -> None:
    """Race four processes for the same names."""
    spawn = multiprocessing.get_context("spawn")
    ready, wins = spawn.Barrier(4), spawn.Queue()
    racers = [
        spawn.Process(target=_race_in_process, args=(url, options, me, ready, wins))
        for me in range(4)
    ]
    for racer in racers:
        racer.start()
    results = dict(wins.get(timeout=120) for _ in racers)
    for racer in racers:
        racer.join()
    storage = open_storage(url, options)
    for turn in range(ROUNDS):
        winners = [me for me in range(4) if results[me][turn]]
        assert [storage.read(f"r/{turn}")] == [b"%d" % me for me in winners]


class TestLocal(StorageContract):
    """A folder on this disk."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        """Open a root that does not exist yet."""
        return open_storage(tmp_path / "lake" / "table")

    def test_one_process_wins_each_name(self, tmp_path: Path) -> None:
        """[M2] Four processes create one name: one wins, and its bytes are kept."""
        assert_one_process_wins(str(tmp_path / "table"), {})


class TestMemory(StorageContract):
    """A name in this process."""

    @pytest.fixture
    def storage(self) -> Storage:
        """Open a fresh name."""
        return open_storage(f"memory://{uuid.uuid4().hex}/table")

    def test_a_name_is_shared(self) -> None:
        """Two storages of one name see the same; another name sees nothing."""
        name = uuid.uuid4().hex
        open_storage(f"memory://{name}/a/b").put_if_absent("x", b"1")
        assert open_storage(f"memory://{name}/a/b/").read("x") == b"1"
        assert open_storage(f"memory://{name}").read("a/b/x") == b"1"
        assert open_storage(f"memory://{name}2").list("") == []


@pytest.mark.s3
class TestS3(StorageContract):
    """A bucket on moto's server."""

    @pytest.fixture
    def storage(self, s3_bucket: S3Bucket) -> Storage:
        """Open an empty bucket."""
        return open_storage(s3_bucket.url, s3_bucket.storage_options)

    def test_one_process_wins_each_name(self, s3_bucket: S3Bucket) -> None:
        """[M2] Four processes create one name: one wins, and its bytes are kept."""
        assert_one_process_wins(s3_bucket.url, s3_bucket.storage_options)
