"""A write-ahead log in an object store: what is acknowledged is stored, at one request a group."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat.errors import (
    AccessDenied,
    OutcomeUnclear,
    StoreBusy,
    UnsupportedStore,
)
from strandline.tableformat.storage import open_storage
from strandline.writers import log_places, wal_objects
from strandline.writers.log import LogOptions, read_log
from strandline.writers.wal_frames import JSON_ROWS, LogHeader, frame, json_payload
from strandline.writers.wal_objects import ObjectFolder, ObjectLog
from tests.stores import WatchedStorage
from tests.tables import Place, memory_url, numbers_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NEVER_S = 3600.0
"""So long that a test would hang before it passes by accident."""


def _rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"user": "u", "amount": 0.5, "n": n} for n in range(first, first + count)]


def _header(first: int = 1) -> LogHeader:
    schema = strandline.create_table(memory_url(), {"n": "int64"}).manifest.schema
    return LogHeader(
        table_uuid="t", writer_id="w", incarnation="abc", first_record=first, schema=schema
    )


def _frame(record: int) -> bytes:
    return frame(record, 1, JSON_ROWS, json_payload([[record]]))


@pytest.fixture
def store() -> WatchedStorage:
    """A store in memory that notes what it is asked."""
    return WatchedStorage(open_storage(memory_url()))


@pytest.fixture
def open_log(store: WatchedStorage) -> Iterator[Callable[..., ObjectLog]]:
    """Logs that end with the test, however it ends."""
    logs: list[ObjectLog] = []

    def make(**settings: Any) -> ObjectLog:
        given = {"linger_s": NEVER_S, "give_up_s": 5.0, **settings}
        log = ObjectLog(ObjectFolder(store), LogOptions(), **given)
        log.begin(_header())
        logs.append(log)
        return log

    yield make
    store.before = store.after = lambda *_: None
    for log in logs:
        log.close(finished=True)


def _stored(store: WatchedStorage) -> list[list[int]]:
    """The record numbers in each object."""
    names = store.inner.list("")
    files = read_log([(name, store.inner.read(name)) for name in names])
    return [[record.number for record in file.records] for file in files]


# --- the log by itself ---


def test_a_synced_record_is_one_request(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E2] One PUT, nothing read; the object is a whole log file."""
    log = open_log()

    for record in (1, 2):
        log.write(_frame(record), record)
        log.sync_until(record)

    assert store.names() == ["put_if_absent", "put_if_absent"]
    assert _stored(store) == [[1], [2]]
    assert log.stats()["wal_syncs"] == 2


def test_all_who_wait_share_the_next_object(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E2] While one object is on its way, seven appends gather; one more request stores all."""
    log = open_log()
    begun, go_on = threading.Event(), threading.Event()

    def hold(name: str, _: str) -> None:
        if name == "put_if_absent" and not begun.is_set():
            begun.set()
            go_on.wait()

    store.before = hold
    log.write(_frame(1), 1)
    waiters = [threading.Thread(target=log.sync_until, args=(1,))]
    waiters[0].start()
    begun.wait()
    for record in range(2, 9):
        log.write(_frame(record), record)
        waiters.append(threading.Thread(target=log.sync_until, args=(record,)))
        waiters[-1].start()
    go_on.set()
    for waiter in waiters:
        waiter.join()

    assert _stored(store) == [[1], [2, 3, 4, 5, 6, 7, 8]]


def test_rotation_waits_for_nothing_and_keeps_schemas_apart(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E3] `begin` is called under the writer's lock, so it must not talk to the store."""
    log = open_log()
    log.write(_frame(1), 1)

    log.begin(_header(2))

    assert store.names() == []
    log.write(_frame(2), 2)
    log.sync_until(2)
    assert _stored(store) == [[1], [2]]


def test_records_nobody_waits_for_are_stored_soon(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """With ack="buffered" the log follows by itself, by age and by size."""
    stored = threading.Event()
    store.after = lambda *_: stored.set()
    log = open_log(linger_s=0.01)

    log.write(_frame(1), 1)

    assert stored.wait(30)


@pytest.mark.parametrize("error", [StoreBusy("slow down"), OutcomeUnclear("no reply")])
def test_a_store_that_is_busy_or_silent_is_asked_again(
    store: WatchedStorage, open_log: Callable[..., ObjectLog], error: Exception
) -> None:
    """[E14] Three times no, then yes: the append is late and lost nothing."""
    left = [error] * 3

    def refuse(name: str, _: str) -> None:
        if name == "put_if_absent" and left:
            raise left.pop()

    store.before = refuse
    log = open_log()

    log.write(_frame(1), 1)
    log.sync_until(1)

    assert store.names() == ["put_if_absent"] * 4
    assert _stored(store) == [[1]]


def test_a_lost_reply_stores_the_object_once(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E15] It was stored and the reply got lost: the same name and bytes again, which exists."""
    lost = [OutcomeUnclear("no reply")]

    def lose(name: str, _: str) -> None:
        if name == "put_if_absent" and lost:
            raise lost.pop()

    store.after = lose
    log = open_log()
    log.write(_frame(1), 1)
    log.sync_until(1)
    log.write(_frame(2), 2)
    log.sync_until(2)

    assert _stored(store) == [[1], [2]]


def test_after_a_failure_the_same_bytes_go_under_the_same_name(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E15] The failed object may be there after all, so records behind it get one of their own."""
    down = [True]

    def refuse(name: str, _: str) -> None:
        if name == "put_if_absent" and down:
            raise OutcomeUnclear("no reply")

    store.after = refuse
    log = open_log(give_up_s=0.0)
    log.write(_frame(1), 1)
    with pytest.raises(strandline.LogFailed, match="no reply"):
        log.sync_until(1)
    down.clear()
    log.write(_frame(2), 2)

    log.sync_until(2)

    assert _stored(store) == [[1], [2]]


def test_a_denied_log_says_so_at_once(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """Waiting does not mend a missing permission."""

    def deny(*_: str) -> None:
        raise AccessDenied("may not write")

    store.before = deny
    log = open_log(give_up_s=NEVER_S)
    log.write(_frame(1), 1)

    with pytest.raises(strandline.LogFailed, match="may not write"):
        log.sync_until(1)


def test_a_store_that_fails_in_an_unknown_way_lets_nobody_wait_for_ever(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E14] Such as one that knows no conditional writes; later records are tried all the same."""
    broken = True

    def fail(*_: str) -> None:
        if broken:
            raise UnsupportedStore("does not know conditional writes")

    store.before = fail
    log = open_log(give_up_s=NEVER_S)
    log.write(_frame(1), 1)
    with pytest.raises(strandline.LogFailed, match="does not know conditional writes"):
        log.sync_until(1)

    broken = False
    log.write(_frame(2), 2)
    log.sync_until(2)

    assert _stored(store) == [[1], [2]]


def test_committed_records_need_no_object(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E3] What the table has is forgotten: memory is given back, waiting appends return."""

    def deny(name: str, _: str) -> None:
        if name == "put_if_absent":
            raise AccessDenied("may not write")

    store.before = deny
    log = open_log()
    for record in (1, 2, 3):
        log.write(_frame(record), record)

    log.begin(_header(4))
    log.prune(3)
    log.sync_until(3)

    assert not log._groups  # noqa: SLF001 - memory is what is promised


def test_pruning_removes_what_is_committed_and_keeps_the_rest(
    store: WatchedStorage, open_log: Callable[..., ObjectLog]
) -> None:
    """[E3] One request removes all of a flush."""
    log = open_log()
    for record in (1, 2, 3):
        log.write(_frame(record), record)
        log.sync_until(record)
    store.names()

    log.prune(2)

    assert store.names() == ["delete"]
    assert _stored(store) == [[3]]


def test_a_gap_among_committed_objects_is_harmless(store: WatchedStorage) -> None:
    """A bulk delete may end half-way; what it left is in the table. Elsewhere a gap is damage."""
    for record in (1, 3, 4):
        name = f"abc-{record:020d}.wal"
        store.inner.put_if_absent(name, _header(record).encode() + _frame(record))
    folder = ObjectFolder(store)
    files = [(name, folder.read(name)) for name in folder.names()]

    assert [file.header.first_record for file in read_log(files, committed=2)] == [3, 4]
    with pytest.raises(strandline.DamagedLog, match="begins with record 3"):
        read_log(files)


# --- below a writer ---


@pytest.fixture
def table(place: Place) -> strandline.Table:
    """An empty table, on disk, in memory, on S3."""
    return place.create()


def _log_of(place: Place) -> dict[str, Any]:
    """Options of a log beside the table, or in memory where the table is a folder."""
    url = f"{place.url}-wal" if "://" in place.url else memory_url()
    return {"dir": url, "storage_options": place.storage_options}


def _abandon(writer: strandline.Writer) -> None:
    """Leave a writer as a crash would: nothing more is committed, its log stays."""

    def crash(*_: Any) -> None:
        raise strandline.StrandlineError("a crash")

    writer._committer.commit = crash  # type: ignore[assignment]  # noqa: SLF001 - no public way
    writer.close()


def test_rows_acknowledged_by_an_object_log_are_recovered_once(
    place: Place, table: strandline.Table
) -> None:
    """[E2] [E15] The process is gone; another machine opens the writer and has every row."""
    wal = _log_of(place)
    first = table.writer("p", wal=wal, flush_age="1h")
    for row in _rows(0, 5):
        first.append(row)
    first.append(_rows(5, 20))
    _abandon(first)
    assert numbers_in(place.open()) == []

    with place.open().writer("p", wal=wal) as second:
        assert second.recovered.records == 6
        second.append(_rows(25, 1))

    assert numbers_in(place.open()) == list(range(26))
    left = open_storage(wal["dir"], wal["storage_options"]).list("")
    assert left == []


def test_a_second_process_takes_over_and_the_first_loses_nothing(
    place: Place, table: strandline.Table
) -> None:
    """[O8] Without a lock the claim decides: what the old one still logs is found later, once."""
    wal = _log_of(place)
    old = table.writer("p", wal=wal, flush_age="1h")
    old.append(_rows(0, 1)[0])

    new = place.open().writer("p", wal=wal, flush_age="1h")
    old.append(_rows(1, 1)[0])
    with pytest.raises(strandline.WriterFenced):
        old.flush(60)
    old.close()
    new.append(_rows(2, 1)[0])
    new.close()
    with place.open().writer("p", wal=wal):
        pass

    assert sorted(numbers_in(place.open())) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_is_there_once_whatever_the_store_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E15] [E2] Four threads, a store that refuses or loses replies at random, then a crash."""
    chance = random.Random(seed)
    store = WatchedStorage(open_storage(memory_url()))
    monkeypatch.setattr(log_places, "open_storage", lambda *_: store)
    monkeypatch.setattr(wal_objects, "FIRST_PAUSE_S", 0.001)
    place = Place(memory_url())
    writer = place.create().writer("p", wal="memory://elsewhere", flush_rows=20, flush_age="1h")
    acknowledged: list[int] = []

    def fail(*_: str) -> None:
        if chance.random() < 0.2:
            raise chance.choice([StoreBusy("slow down"), OutcomeUnclear("no reply")])

    def produce(first: int) -> None:
        for row in _rows(first, 25):
            writer.append(row)
            acknowledged.append(row["n"])

    store.before = store.after = fail
    threads = [threading.Thread(target=produce, args=(100 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _abandon(writer)
    place.open().writer("p", wal="memory://elsewhere").close()

    assert len(acknowledged) == 100
    assert sorted(numbers_in(place.open())) == sorted(acknowledged)


@pytest.mark.s3
def test_requests_on_s3_per_append_flush_and_open(s3_bucket: Any) -> None:
    """[E2] One PUT each append; a flush adds its two PUTs and one delete for all objects."""
    place = Place(s3_bucket.url, s3_bucket.storage_options)
    table = place.create()
    folder = f"s3://{s3_bucket.name}/wal"
    with table.writer(
        "p", wal={"dir": folder, "storage_options": place.storage_options}, flush_age="1h"
    ) as writer:
        sent = _count(writer._log._storage)  # type: ignore[union-attr]  # noqa: SLF001
        for row in _rows(0, 3):
            writer.append(row)
        assert sent == {"PUT": 3}

        writer.flush()

    assert sent == {"PUT": 3 + 2, "POST": 1}


def _count(storage: Any) -> Counter[str]:
    sent: Counter[str] = Counter()

    def note(request: Any, **_: Any) -> None:
        sent[request.method] += 1

    storage._filesystem().s3.meta.events.register("before-send.s3", note)  # noqa: SLF001
    return sent


def test_appends_go_on_while_an_object_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E14] The writer's lock is free during an upload: others append, look and are counted."""
    store = WatchedStorage(open_storage(memory_url()))
    monkeypatch.setattr(log_places, "open_storage", lambda *_: store)
    monkeypatch.setattr(wal_objects, "LINGER_S", NEVER_S)
    table = Place(memory_url()).create()
    writer = table.writer("p", wal="memory://elsewhere", flush_age="1h")
    begun, go_on = threading.Event(), threading.Event()

    def hold(name: str, _: str) -> None:
        if name == "put_if_absent" and not begun.is_set():
            begun.set()
            go_on.wait()

    store.before = hold
    threads = [threading.Thread(target=writer.append, args=(row,)) for row in _rows(0, 3)]
    threads[0].start()
    begun.wait()
    for thread in threads[1:]:
        thread.start()
    while writer.stats().records < 3:
        pass  # the two take the lock while the upload is held
    assert writer.scan().count() == 3
    go_on.set()
    for thread in threads:
        thread.join()

    assert writer.stats().wal_syncs == 2
    assert writer.close().committed
    assert sorted(numbers_in(table)) == [0, 1, 2]


def test_a_log_that_cannot_be_stored_is_an_error_and_the_rows_still_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[E15] LogFailed means: not acknowledged. The living writer commits all the same."""
    store = WatchedStorage(open_storage(memory_url()))
    monkeypatch.setattr(log_places, "open_storage", lambda *_: store)
    table = Place(memory_url()).create()

    def deny(name: str, _: str) -> None:
        if name == "put_if_absent":
            raise AccessDenied("may not write")

    store.before = deny
    with table.writer("p", wal="memory://elsewhere", flush_age="1h") as writer:
        with pytest.raises(strandline.LogFailed, match="look whether they arrived"):
            writer.append(_rows(0, 1)[0])
        writer.flush()

    assert numbers_in(table) == [0]
