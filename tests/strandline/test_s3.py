"""Tables on S3: exact request counts, and credentials that never come out again."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import Counter
from functools import partial
from typing import Any

import pytest

import strandline
from strandline.api import open_in
from strandline.catalog.page_cache import PAGES
from strandline.writers import log_places
from tests.tables import SCHEMA, Place, events, numbers_in

pytestmark = pytest.mark.s3


def _count(table: strandline.Table) -> Counter[str]:
    """Count every HTTP request of a handle from now on."""
    sent: Counter[str] = Counter()

    def note(request: Any, **_: Any) -> None:
        sent[request.method] += 1

    filesystem = table._chain.storage._filesystem()  # type: ignore[attr-defined]  # noqa: SLF001
    filesystem.s3.meta.events.register("before-send.s3", note)
    return sent


@pytest.fixture
def place(s3_bucket: Any) -> Place:
    """A fresh bucket."""
    return Place(s3_bucket.url, s3_bucket.storage_options)


def test_an_append_is_two_requests(place: Place) -> None:
    """[C1] One PUT for the rows, one for the commit; nothing is read."""
    table = place.create()
    table.append(events(0, 10))
    sent = _count(table)

    table.append(events(10, 10))

    assert sent == {"PUT": 2}


def test_hundred_appends_cost_little_more_than_two_requests_each(place: Place) -> None:
    """[M6] Rolling metadata into pages included: below three requests per append on average."""
    table = place.create()
    table.append(events(0, 1))
    sent = _count(table)

    for batch in range(1, 101):
        table.append(events(batch, 1))

    assert sent["PUT"] == 202, "two per append, and two for the one roll"
    assert sent["GET"] == 0
    assert numbers_in(place.open()) == list(range(101))


def test_the_first_append_of_a_handle_reads_the_head_once(place: Place) -> None:
    """[C1] Open is a listing and a read; the append adds two."""
    place.create().append(events(0, 1))
    table = place.open()
    sent = _count(table)

    table.append(events(1, 1))

    assert sent == {"PUT": 2}


def test_opening_and_planning_a_small_table_is_three_requests(place: Place) -> None:
    """[X3] LIST and GET to open, one GET to see that nothing is newer; three with the plan."""
    place.create().append(events(0, 100))
    table = place.open()
    sent = _count(table)

    open_in(table._chain.storage)  # noqa: SLF001 - the same connection, opened once more
    assert sent == {"GET": 2}
    table.scan(filter="n > 50").plan()
    assert sent == {"GET": 3}
    table.tail()
    assert sent == {"GET": 4}


def test_a_lost_race_costs_three_requests_more(place: Place) -> None:
    """[C1] The refused PUT, the winner, and the one after it that is not there; no data again."""
    table, other = place.create(), place.open()
    other.append(events(0, 1))
    sent = _count(table)

    table.append(events(1, 1))

    assert sent == {"PUT": 3, "GET": 2}


def test_reading_a_small_table_is_one_request_per_file(place: Place) -> None:
    """[E10] Small segments are read whole, in parallel; pages once, then from the cache."""
    table = place.create()
    for batch in range(3):
        table.append(events(batch, 1))
    PAGES.clear()
    reader = place.open()
    scan = reader.scan()
    sent = _count(reader)

    scan.to_arrow()

    assert sent == {"GET": 3}


CANARIES = {
    "key": "CANARYKEY0123456789A",
    "secret": "canary-secret-Zx81jQ",
    "token": "canary-token-9kLmW2pQ",
}


def test_credentials_never_come_out(s3_bucket: Any, caplog: pytest.LogCaptureFixture) -> None:
    """[C10] Not in logs at DEBUG, reprs, errors, tracebacks, pickled errors, or stored bytes."""
    options = {**s3_bucket.storage_options, **CANARIES}
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG):
        table = strandline.create_table(
            s3_bucket.url, SCHEMA, time_column="ts", storage_options=options
        )
        table.append(events(0, 5), properties={"a": "b"})
        scan = table.scan(filter="n > 1")
        scan.to_arrow()
        seen += [repr(table), str(table), repr(scan), scan.explain(), repr(table.config)]
        failures = [
            lambda: strandline.create_table(s3_bucket.url, SCHEMA, storage_options=options),
            lambda: table.append([{"nope": 1}]),
            lambda: strandline.open_table("s3://no-such-bucket-here/t", storage_options=options),
            lambda: strandline.open_table(
                s3_bucket.url, storage_options={**options, "endpoint_url": "http://127.0.0.1:9"}
            ),
        ]
        for fail in failures:
            with pytest.raises(strandline.StrandlineError) as caught:
                fail()
            error = caught.value
            seen += [str(error), repr(error), repr(pickle.dumps(error))]
            seen += traceback.format_exception(error)
    storage = table._chain.storage  # noqa: SLF001
    stored = b"".join(storage.read(path) for path, _ in storage.walk(""))
    everything = "\n".join([*seen, caplog.text])
    for canary in CANARIES.values():
        assert canary not in everything
        assert canary.encode() not in stored


def test_credentials_of_a_writer_never_come_out(
    s3_bucket: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C10] Table and log have their own; both work, and then the log's store is gone."""
    mine = {**s3_bucket.storage_options, **CANARIES}
    logs = {key: f"{value}-of-the-log" for key, value in CANARIES.items()}
    wal = {"dir": f"{s3_bucket.url}-wal", "storage_options": {**s3_bucket.storage_options, **logs}}
    gone = {**wal, "storage_options": {**wal["storage_options"], "endpoint_url": "http://[::1]:9"}}
    seen: list[str] = []
    with caplog.at_level(logging.DEBUG):
        table = strandline.create_table(
            s3_bucket.url, SCHEMA, time_column="ts", storage_options=mine
        )
        with table.writer("w", wal=wal, metrics=lambda *told: seen.append(repr(told))) as writer:
            receipt = writer.append(events(0, 3))
            receipt.wait()
            seen += [repr(writer), repr(vars(writer)), repr(receipt), repr(writer.stats())]
        seen += [repr(writer.close()), str(writer.close())]
        hasty = partial(log_places.ObjectFolder, give_up_s=0.0)
        monkeypatch.setattr(log_places, "ObjectFolder", hasty)
        for fail in (
            lambda: table.writer("w", wal=gone),
            lambda: table.recover("w", gone),
            lambda: table.writer("w", wal={**wal, "no_such_option": 1}),
        ):
            with pytest.raises(strandline.StrandlineError) as caught:
                fail()
            seen += [str(caught.value), repr(caught.value), repr(pickle.dumps(caught.value))]
            seen += traceback.format_exception(caught.value)
    everything = "\n".join([*seen, caplog.text])
    for canary in CANARIES.values():
        assert canary not in everything
