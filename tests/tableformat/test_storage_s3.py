"""S3 as it misbehaves: statuses, lost replies, stores that ignore the condition, leaking logs."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
    StrandlineError,
    UnsupportedStore,
)
from strandline.tableformat.storage import Put, Storage, open_storage
from strandline.tableformat.stores import remote
from strandline.tableformat.stores.probe import probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import S3Bucket

pytestmark = pytest.mark.s3
pytest.importorskip("s3fs")


@dataclass(frozen=True)
class Answer:
    """What the server does with its next request."""

    status: int = 0
    """0: answer as S3 would."""

    code: str = ""
    apply: bool = False
    """Carry a PUT out, whatever is answered."""

    drop: bool = False
    """Close the connection instead of answering."""

    message: str = "scripted"


class ScriptedS3(ThreadingHTTPServer):
    """A very small S3 that can be told how to answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.answers: list[Answer] = []
        self.requests: list[str] = []
        self.honours_condition = True
        self.lists_fresh = True
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedS3

    def log_message(self, *args: Any) -> None:
        """Keep the test's output clean."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = unquote(urlsplit(self.path).path).removeprefix("/bucket/")
        with self.server.lock:
            self.server.requests.append(self.command)
            answer = self.server.answers.pop(0) if self.server.answers else Answer()
            if answer.status == 0 or answer.apply:
                status, content = self._carry_out(key, body)
        if answer.drop:
            self.close_connection = True
            return
        if answer.status:
            status = answer.status
            text = f"<Error><Code>{answer.code}</Code><Message>{answer.message}</Message></Error>"
            content = text.encode() if status >= 400 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _carry_out(self, key: str, body: bytes) -> tuple[int, bytes]:
        objects = self.server.objects
        if self.command == "PUT":
            conditional = self.headers.get("If-None-Match") == "*" and self.server.honours_condition
            if conditional and key in objects:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
            objects[key] = body
            return 200, b""
        if self.command == "DELETE":
            objects.pop(key, None)
            return 204, b""
        if "list-type" in self.path:
            listed = sorted(objects) if self.server.lists_fresh else []
            items = "".join(f"<Contents><Key>{k}</Key><Size>1</Size></Contents>" for k in listed)
            return 200, f"<ListBucketResult>{items}</ListBucketResult>".encode()
        if key in objects:
            return 200, objects[key]
        return 404, b"<Error><Code>NoSuchKey</Code></Error>"

    do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = _serve  # noqa: N815 - http.server's names


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    """Start the scripted store; retries do not wait."""
    monkeypatch.setattr(remote, "RETRY_DELAYS_S", (0.0, 0.0))
    running = ScriptedS3()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def options_for(server: ScriptedS3, **more: Any) -> dict[str, Any]:
    """Return the storage_options that reach the scripted store."""
    return {
        "key": "scripted-access-key",
        "secret": "scripted-secret-key",
        "endpoint_url": f"http://127.0.0.1:{server.server_port}",
        "client_kwargs": {"region_name": "us-east-1"},
        **more,
    }


@pytest.fixture
def storage(server: ScriptedS3) -> Storage:
    """Open a table root on the scripted store."""
    return open_storage("s3://bucket/t", options_for(server))


# --- the meaning of an answer to a create ------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(409, "ConditionalRequestConflict"), StoreBusy),
        (Answer(429, "TooManyRequests"), StoreBusy),
        (Answer(503, "SlowDown"), StoreBusy),
        (Answer(503, "ServiceUnavailable"), StoreBusy),
        (Answer(400, "RequestTimeout"), StoreBusy),
        (Answer(403, "AccessDenied"), AccessDenied),
        (Answer(401, "Unauthorized"), AccessDenied),
        (Answer(400, "ExpiredToken"), AccessDenied),
        (Answer(400, "InvalidRequest"), StorageFailed),
        (Answer(404, "NoSuchBucket"), StorageFailed),
        (Answer(500, "InternalError"), OutcomeUnclear),
        (Answer(500, "InternalError", apply=True), OutcomeUnclear),
        (Answer(502, "BadGateway"), OutcomeUnclear),
        (Answer(504, "GatewayTimeout"), OutcomeUnclear),
        (Answer(drop=True, status=1), OutcomeUnclear),
        (Answer(drop=True, apply=True), OutcomeUnclear),
        (Answer(501, "NotImplemented"), UnsupportedStore),
    ],
    ids=str,
)
def test_each_answer_to_a_create_has_one_meaning(
    server: ScriptedS3, storage: Storage, answer: Answer, kind: type[Exception]
) -> None:
    """[X5] "Did not happen" is only said when it is known; nothing is sent a second time."""
    server.answers = [answer]
    with pytest.raises(StrandlineError) as caught:
        storage.put_if_absent("m/1", b"1")
    assert type(caught.value) is kind
    assert "m/1" in str(caught.value) or kind is UnsupportedStore
    assert server.requests == ["PUT"]
    if kind is not OutcomeUnclear:
        assert server.objects == {}


@pytest.mark.parametrize("code", ["PreconditionFailed", "", "SomethingElse"])
def test_a_412_of_any_shape_means_exists(server: ScriptedS3, storage: Storage, code: str) -> None:
    """[M2] s3fs makes a FileExistsError of one shape only; the status decides."""
    server.answers = [Answer(412, code)]
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS


def test_a_lost_reply_shows_as_exists_on_the_second_try(
    server: ScriptedS3, storage: Storage
) -> None:
    """[X5] Sending the identical create again makes the outcome definite."""
    server.answers = [Answer(apply=True, drop=True)]
    with pytest.raises(OutcomeUnclear):
        storage.put_if_absent("m/1", b"1")
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS
    assert storage.read("m/1") == b"1"


def test_a_kept_connection_that_breaks_is_not_used_twice_in_silence(
    server: ScriptedS3, storage: Storage
) -> None:
    """[X5] aiohttp would resend the PUT; a 503 to that would then hide a create that happened."""
    storage.put_if_absent("m/0", b"0")  # opens the connection
    server.answers = [Answer(apply=True, drop=True), Answer(503, "SlowDown")]
    with pytest.raises(OutcomeUnclear):
        storage.put_if_absent("m/1", b"1")
    assert server.requests == ["PUT", "PUT"]
    assert server.objects["t/m/1"] == b"1"


def test_with_retries_switched_on_busy_is_unclear(server: ScriptedS3) -> None:
    """[X5] A user may ask botocore to retry; then a 503 may follow a create that happened."""
    config = {"retries": {"total_max_attempts": 2, "mode": "legacy"}}
    storage = open_storage("s3://bucket/t", options_for(server, config_kwargs=config))
    server.answers = [Answer(500, "InternalError", apply=True), Answer(503, "SlowDown")]
    with pytest.raises(OutcomeUnclear):
        storage.put_if_absent("m/1", b"1")
    server.answers = [Answer(500, "InternalError", apply=True)]
    assert storage.put_if_absent("m/2", b"2") is Put.EXISTS


# --- the meaning of an answer to a read --------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(404, "NoSuchKey"), ObjectMissing),
        (Answer(404, "NoSuchBucket"), StorageFailed),
        (Answer(403, "AccessDenied"), AccessDenied),
        (Answer(400, "ExpiredToken"), AccessDenied),
        (Answer(418, "Teapot"), StorageFailed),
        (Answer(429, "TooManyRequests"), StoreBusy),
        (Answer(500, "InternalError"), StoreBusy),
        (Answer(503, "SlowDown"), StoreBusy),
        (Answer(drop=True, status=1), StorageFailed),
    ],
    ids=str,
)
def test_each_answer_to_a_read_has_one_meaning(
    server: ScriptedS3, storage: Storage, answer: Answer, kind: type[Exception]
) -> None:
    """404 for a key is the only "absent"; what may pass is tried three times."""
    for call in (lambda: storage.read("m/1"), lambda: storage.read_ranges([("m/1", 0, 1)])):
        server.requests.clear()
        server.answers = [answer] * 3
        with pytest.raises(StorageFailed) as caught:
            call()
        assert type(caught.value) is kind
        passing = answer.drop or answer.status in {429, 500, 503}
        assert len(server.requests) == (3 if passing else 1)
        server.answers = []


@pytest.mark.parametrize(
    "answer", [Answer(503, "SlowDown"), Answer(500, "InternalError"), Answer(drop=True, status=1)]
)
def test_what_may_be_repeated_is_repeated(
    server: ScriptedS3, storage: Storage, answer: Answer
) -> None:
    """Reads, lists, deletes and plain writes outlast a hiccup of the store."""
    for work in (
        lambda: storage.write_new("a", b"1").wait(),
        lambda: storage.read("a"),
        lambda: storage.list(""),
        lambda: storage.delete(["a"]),
    ):
        server.answers = [answer]
        work()


def test_a_store_that_ignores_ranges_still_answers_exactly(
    server: ScriptedS3, storage: Storage
) -> None:
    """The whole object comes back with status 200; the wanted bytes are cut from it."""
    server.objects["t/a"] = b"0123456789"
    assert storage.read_ranges([("a", 3, 4)]) == [b"3456"]


def test_an_endpoint_that_is_not_there_is_told(server: ScriptedS3) -> None:
    """Nothing listens: a failure, not an absent table."""
    options = options_for(server, endpoint_url="http://127.0.0.1:9")
    storage = open_storage("s3://bucket/t", options)
    with pytest.raises(StorageFailed, match=r"127\.0\.0\.1:9") as caught:
        storage.read("m/1")
    assert type(caught.value) is StorageFailed


# --- the probe ---------------------------------------------------------------------------------


def test_the_probe_refuses_a_store_that_ignores_the_condition(
    server: ScriptedS3, storage: Storage
) -> None:
    """[M2] A store that lets both creates win holds no table."""
    server.honours_condition = False
    with pytest.raises(UnsupportedStore, match="ignores conditional writes"):
        probe(storage)
    assert server.objects == {}


def test_the_probe_refuses_a_store_that_always_says_yes(
    server: ScriptedS3, storage: Storage
) -> None:
    """[M2] Status 200 to everything proves nothing."""
    server.answers = [Answer(200)] * 10
    with pytest.raises(UnsupportedStore, match="ignores conditional writes"):
        probe(storage)


def test_the_probe_refuses_a_stale_list(server: ScriptedS3, storage: Storage) -> None:
    """The newest version is found by listing, so a list must show what was just written."""
    server.lists_fresh = False
    with pytest.raises(UnsupportedStore, match="does not list"):
        probe(storage)


def test_the_probe_outlasts_lost_replies(server: ScriptedS3, storage: Storage) -> None:
    """[X5] A first create that comes back as "exists" is no reason to refuse."""
    server.answers = [Answer(apply=True, drop=True), Answer(503, "SlowDown")]
    probe(storage)
    assert server.objects == {}


def test_a_writer_that_may_not_delete_passes_the_probe(
    server: ScriptedS3, storage: Storage
) -> None:
    """Append-only credentials are fine; the probe's few bytes stay."""
    server.answers = [Answer()] * 4 + [Answer(403, "AccessDenied")]
    probe(storage)
    assert len(server.objects) == 1


# --- how many requests -------------------------------------------------------------------------


@pytest.fixture
def counted(s3_bucket: S3Bucket) -> tuple[Storage, Counter[str]]:
    """Open a bucket whose every HTTP request is counted by its method."""
    storage: Any = open_storage(s3_bucket.url, s3_bucket.storage_options)
    sent: Counter[str] = Counter()

    def count(request: Any, **_: Any) -> None:
        sent[request.method] += 1

    storage._filesystem().s3.meta.events.register("before-send.s3", count)  # noqa: SLF001
    return storage, sent


def test_each_operation_is_one_request(counted: tuple[Storage, Counter[str]]) -> None:
    """An append is one PUT per file and one for the manifest; nothing is asked before."""
    storage, sent = counted
    pending = storage.write_new("w0-60/shard-0/a", b"x" * 1000)
    storage.put_if_absent("_strandline/manifests/1", b"1", after=[pending])
    assert sent == {"PUT": 2}
    storage.put_if_absent("_strandline/manifests/1", b"1")
    assert sent == {"PUT": 3}

    sent.clear()
    storage.list("_strandline/manifests/", limit=1)
    storage.list("_strandline/manifests/", start_after="0", limit=1)
    storage.read("_strandline/manifests/1")
    storage.read_ranges([("w0-60/shard-0/a", 0, 10), ("w0-60/shard-0/a", 500, 10)])
    assert sent == {"GET": 4}

    sent.clear()
    storage.size("_strandline/manifests/1")
    list(storage.walk(""))
    assert sent == {"HEAD": 1, "GET": 1}

    sent.clear()
    storage.delete(["w0-60/shard-0/a"])
    storage.delete(["a", "b", "_strandline/manifests/1"])
    assert sent == {"DELETE": 1, "POST": 1}


def test_the_probe_costs_five_requests(counted: tuple[Storage, Counter[str]]) -> None:
    """Two creates, a read, a list and a delete, once per process."""
    storage, sent = counted
    probe(storage)
    assert sent == {"PUT": 2, "GET": 2, "DELETE": 1}


def test_storages_of_one_bucket_share_a_client(s3_bucket: S3Bucket) -> None:
    """Making a client takes 100 ms, so opening a hundred tables makes one."""
    one: Any = open_storage(s3_bucket.url, s3_bucket.storage_options)
    two: Any = open_storage(s3_bucket.url + "2", dict(s3_bucket.storage_options))
    assert one._filesystem() is two._filesystem()  # noqa: SLF001


def test_long_lists_are_followed_to_their_end(s3_bucket: S3Bucket) -> None:
    """A folder of more than a thousand objects is listed, walked and deleted as a whole."""
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    names = [f"{number:04}" for number in range(1005)]
    for pending in [storage.write_new(f"many/{name}", b"1") for name in names]:
        pending.wait()
    assert storage.list("many/") == names
    assert len(list(storage.walk("many/"))) == len(names)
    storage.delete([f"many/{name}" for name in names])
    assert storage.list("many/") == []


def test_a_large_file_goes_up_in_parts(
    counted: tuple[Storage, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the limit an upload is split, and reads back whole."""
    storage, sent = counted
    data = os.urandom(1 << 20) * 17
    monkeypatch.setattr("strandline.tableformat.stores.s3.LARGE_OBJECT", 12 << 20)
    storage.write_new("big", data).wait()
    assert sent == {"POST": 2, "PUT": 3}
    assert storage.read("big") == data


def test_the_clock_is_the_stores_own(server: ScriptedS3, storage: Storage) -> None:
    """The time comes from the reply to this thread, also from an error."""
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patch:
        patch.setattr(_Handler, "date_time_string", lambda *_: "Sat, 01 Jan 2000 00:00:01 GMT")
        storage.put_if_absent("m/1", b"1")
    assert storage.clock_ms() == 946_684_801_000
    with monkeypatch.context() as patch:
        patch.setattr(_Handler, "date_time_string", lambda *_: "Sat, 01 Jan 2000 00:00:02 GMT")
        assert storage.put_if_absent("m/1", b"1") is Put.EXISTS
    assert storage.clock_ms() == 946_684_802_000
    assert server.requests == ["PUT", "PUT"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_opens_connections_of_its_own(s3_bucket: S3Bucket) -> None:
    """[X5] fsspec's event loop does not cross a fork; the storage does."""
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    storage.put_if_absent("m/0", b"0")
    child = os.fork()
    if child == 0:
        ok = False
        try:
            ok = storage.put_if_absent("m/1", b"1", after=[storage.write_new("a", b"2")])
            ok = ok is Put.CREATED
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert storage.read("m/1") == b"1"


# --- secrets -----------------------------------------------------------------------------------

CANARIES = {
    "key": "CANARYKEY0123456789",
    "secret": "canary/secret+with=signs&more",
    "token": "canarytoken" * 20 + "/+==",
}


def test_no_secret_reaches_logs_errors_or_reprs(
    server: ScriptedS3, caplog: pytest.LogCaptureFixture
) -> None:
    """[C10] Even with everything at DEBUG, where botocore prints headers and signatures."""
    caplog.set_level(logging.DEBUG)
    storage = open_storage("s3://bucket/t", options_for(server, **CANARIES))
    shown = [repr(storage), str(storage)]

    storage.put_if_absent("m/1", b"1", after=[storage.write_new("a", b"2")])
    storage.read("m/1")
    storage.list("m/")
    echo = " ".join(CANARIES.values())
    for answer in (Answer(403, "InvalidAccessKeyId", message=echo), Answer(drop=True, status=1)):
        for call in (lambda: storage.read("m/2"), lambda: storage.put_if_absent("m/2", b"")):
            server.answers = [answer] * 3
            with pytest.raises(StorageFailed) as caught:
                call()
            shown += [str(caught.value), repr(caught.value)]
            shown += traceback.format_exception(caught.value)
            server.answers = []

    assert "botocore" in {record.name.partition(".")[0] for record in caplog.records}
    assert "***" in caplog.text
    for canary in CANARIES.values():
        assert canary not in caplog.text
        assert not [text for text in shown if canary in text]
