"""Azure Blob Storage: the real adlfs against a small server that speaks the Blob service's XML.

What this cannot show is Azure's own behaviour: its credentials, accounts with real folders, and
that the service itself honours If-None-Match. `strandline doctor` probes the last on a real one.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
    StrandlineError,
)
from strandline.tableformat.storage import Put, Storage, open_storage
from strandline.tableformat.stores import remote
from tests.tableformat.test_storage_contract import StorageContract

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("adlfs", reason="needs the extra azure")

DROP = (0, "")
"""An answer that carries the request out and closes the connection instead."""


class FakeAzure(ThreadingHTTPServer):
    """Containers in memory."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: dict[str, bytes] = {}
        self.answers: list[tuple[int, str]] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeAzure

    def log_message(self, *args: Any) -> None:
        """Keep the test's output clean."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers: dict[str, str] = {}
        with self.server.lock:
            self.server.requests.append(self.command)
            forced = self.server.answers.pop(0) if self.server.answers else None
            if forced is None or forced == DROP:
                status, content = self._carry_out(body, headers)
            else:
                status, content = forced[0], b""
                headers["x-ms-error-code"] = forced[1]
        if forced == DROP:
            self.close_connection = True
            return
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(content)))
        headers |= {"ETag": '"1"', "Last-Modified": self.date_time_string()}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _carry_out(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        url = urlsplit(self.path)
        asked = dict(parse_qsl(url.query))
        _, _, container, *rest = unquote(url.path).split("/", 3)
        key, blobs = "".join(rest), self.server.blobs
        if container != "box":
            headers["x-ms-error-code"] = "ContainerNotFound"
            return 404, b""
        if asked.get("comp") == "list":
            headers["Content-Type"] = "application/xml"
            return 200, self._listing(asked)
        if self.command == "PUT":
            if self.headers.get("If-None-Match") == "*" and key in blobs:
                headers["x-ms-error-code"] = "BlobAlreadyExists"
                return 409, b""
            blobs[key] = body
            return 201, b""
        if key not in blobs:
            headers["x-ms-error-code"] = "BlobNotFound"
            return 404, b""
        if self.command == "DELETE":
            del blobs[key]
            return 202, b""
        return self._content(blobs[key], headers)

    def _content(self, data: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        headers["x-ms-blob-type"] = "BlockBlob"
        if self.command == "HEAD":
            headers["Content-Length"] = str(len(data))
            return 200, b""
        wanted = self.headers.get("x-ms-range")
        if not wanted:
            return 200, data
        start, end = map(int, wanted.removeprefix("bytes=").split("-"))
        part = data[start : end + 1]
        if not part:
            headers["x-ms-error-code"] = "InvalidRange"
            return 416, b""
        headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(data)}"
        return 206, part

    def _listing(self, asked: dict[str, str]) -> bytes:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        seen: dict[str, int | None] = {}
        for key, data in sorted(self.server.blobs.items()):
            if key.startswith(prefix):
                head, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                entry = f"{prefix}{head}/" if found else key
                if entry >= asked.get("marker", ""):
                    seen[entry] = None if found else len(data)
        page = int(asked.get("maxresults", 3))  # small, so that pages are followed
        items = "".join(
            f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>"
            if size is None
            else f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Content-Length>{size}</Content-Length><BlobType>BlockBlob</BlobType>"
            "</Properties></Blob>"
            for name, size in list(seen.items())[:page]
        )
        marker = escape(list(seen)[page]) if len(seen) > page else ""
        return (
            '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="box">'
            f"<Blobs>{items}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
        ).encode()

    do_GET = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815 - http.server's names


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAzure]:
    """Start the fake; retries do not wait."""
    monkeypatch.setattr(remote, "RETRY_DELAYS_S", (0.0, 0.0))
    running = FakeAzure()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def options_for(server: FakeAzure) -> dict[str, Any]:
    """Return the storage_options that reach the fake."""
    return {
        "connection_string": (
            "DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=Y2FuYXJ5LWtleQ==;"
            f"BlobEndpoint=http://127.0.0.1:{server.server_port}/acct;"
        )
    }


@pytest.fixture
def storage(server: FakeAzure) -> Storage:
    """Open a table root on the fake."""
    return open_storage("abfs://box/t", options_for(server))


class TestAzure(StorageContract):
    """A container on the fake."""


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((409, "ContainerBeingDeleted"), StoreBusy),
        ((403, "AuthorizationFailure"), AccessDenied),
        ((400, "InvalidHeaderValue"), StorageFailed),
        ((404, "ContainerNotFound"), StorageFailed),
        ((500, "InternalError"), OutcomeUnclear),
        # aiohttp below may have sent the PUT twice, so "busy" proves nothing here.
        ((503, "ServerBusy"), OutcomeUnclear),
    ],
)
def test_each_answer_to_a_create_has_one_meaning(
    server: FakeAzure, storage: Storage, answer: tuple[int, str], kind: type[Exception]
) -> None:
    """[X5] As on S3; the client's own retries stay out of it."""
    server.answers = [answer]
    with pytest.raises(StrandlineError) as caught:
        storage.put_if_absent("m/1", b"1")
    assert type(caught.value) is kind
    assert server.requests == ["PUT"]


def test_a_lost_reply_comes_back_as_exists(server: FakeAzure, storage: Storage) -> None:
    """[X5] aiohttp sends the PUT again, so our own create is reported as a stranger's."""
    server.answers = [DROP]
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS
    assert server.requests == ["PUT", "PUT"]


def test_busy_after_a_lost_reply_is_unclear(server: FakeAzure, storage: Storage) -> None:
    """[X5] The create happened; the answer to the second, unasked PUT must not deny it."""
    server.answers = [DROP, (503, "ServerBusy")]
    with pytest.raises(OutcomeUnclear):
        storage.put_if_absent("m/1", b"1")
    assert storage.read("m/1") == b"1"


@pytest.mark.parametrize(
    "answer",
    [(409, "BlobAlreadyExists"), (412, "ConditionNotMet"), (403, "UnauthorizedBlobOverwrite")],
)
def test_every_way_to_say_exists_is_understood(
    server: FakeAzure, storage: Storage, answer: tuple[int, str]
) -> None:
    """[M2] Azure answers a lost create with 409, and a create-only token with 403."""
    server.answers = [answer]
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS


def test_a_missing_container_is_not_a_missing_object(server: FakeAzure, storage: Storage) -> None:
    """The first is a mistake in the URL, the second is an answer."""
    with pytest.raises(StorageFailed) as caught:
        open_storage("abfs://other/t", options_for(server)).read("x")
    assert type(caught.value) is StorageFailed
    with pytest.raises(ObjectMissing):
        storage.read("x")


def test_each_operation_is_one_request(server: FakeAzure, storage: Storage) -> None:
    """An append is one upload per file and one for the manifest."""
    storage.put_if_absent("m/1", b"1", after=[storage.write_new("a", b"2")])
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS
    storage.read("m/1")
    storage.list("m/", limit=1)
    assert server.requests == ["PUT", "PUT", "PUT", "GET", "GET"]
