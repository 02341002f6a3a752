"""Google Cloud Storage: the real gcsfs against a small server that speaks its JSON API.

What this cannot show is Google's own behaviour: its credentials, its rate limits, and that the
service itself honours ifGenerationMatch. `strandline doctor` probes the last on a real bucket.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

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

pytest.importorskip("gcsfs", reason="needs the extra gcs")

DROP = 0
"""An answer that carries the request out and closes the connection instead."""


class FakeGcs(ThreadingHTTPServer):
    """Buckets in memory."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.statuses: list[int] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeGcs

    def log_message(self, *args: Any) -> None:
        """Keep the test's output clean."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.requests.append(self.command)
            forced = self.server.statuses.pop(0) if self.server.statuses else 200
            status, content = self._carry_out(body) if forced in {200, DROP} else (forced, b"{}")
        if forced == DROP:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _carry_out(self, body: bytes) -> tuple[int, bytes]:
        url = urlsplit(self.path)
        asked = dict(parse_qsl(url.query))
        parts = url.path.partition("/storage/v1/b/")[2].split("/")
        objects = self.server.objects
        if parts[0] != "bucket":
            return 404, b'{"error": {"message": "The specified bucket does not exist."}}'
        if self.command == "POST":
            if asked.get("ifGenerationMatch") == "0" and asked["name"] in objects:
                return 412, b'{"error": {"message": "conditionNotMet"}}'
            objects[asked["name"]] = body
            return 200, b"{}"
        if len(parts) == 2:
            return 200, self._listing(asked)
        key = unquote(parts[2])
        if key not in objects:
            return 404, b'{"error": {"message": "No such object"}}'
        if self.command == "DELETE":
            del objects[key]
            return 204, b""
        if asked.get("alt") != "media":
            return 200, json.dumps(
                {"size": str(len(objects[key])), "updated": datetime.now(UTC).isoformat()}
            ).encode()
        wanted = self.headers.get("Range", "")
        if not wanted:
            return 200, objects[key]
        start, end = map(int, wanted.removeprefix("bytes=").split("-"))
        part = objects[key][start : end + 1]
        return (206, part) if part else (416, b"")

    def _listing(self, asked: dict[str, str]) -> bytes:
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        offset = max(asked.get("startOffset", ""), asked.get("pageToken", ""))
        seen: dict[str, int | None] = {}
        for key, data in sorted(self.server.objects.items()):
            if key.startswith(prefix):
                head, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                entry = f"{prefix}{head}/" if found else key
                if entry >= offset:
                    seen[entry] = None if found else len(data)
        page = int(asked.get("maxResults", 3))  # small, so that pages are followed
        items = [{"name": k, "size": str(n)} for k, n in list(seen.items())[:page] if n is not None]
        reply: dict[str, Any] = {"items": items}
        if len(seen) > page:
            reply["nextPageToken"] = list(seen)[page]
        return json.dumps(reply).encode()

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """Start the fake; retries do not wait."""
    monkeypatch.setattr(remote, "RETRY_DELAYS_S", (0.0, 0.0))
    running = FakeGcs()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def storage(server: FakeGcs) -> Storage:
    """Open a table root on the fake."""
    endpoint = f"http://127.0.0.1:{server.server_port}"
    return open_storage("gs://bucket/t", {"token": "anon", "endpoint_url": endpoint})


class TestGcs(StorageContract):
    """A bucket on the fake."""


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (409, StoreBusy),
        (429, StoreBusy),
        (503, StoreBusy),
        (401, AccessDenied),
        (403, AccessDenied),
        (400, StorageFailed),
        (404, StorageFailed),
        (500, OutcomeUnclear),
        (502, OutcomeUnclear),
        (DROP, OutcomeUnclear),
    ],
)
def test_each_answer_to_a_create_has_one_meaning(
    server: FakeGcs, storage: Storage, status: int, kind: type[Exception]
) -> None:
    """[X5] As on S3; gcsfs's own six attempts stay out of it."""
    server.statuses = [status]
    with pytest.raises(StrandlineError) as caught:
        storage.put_if_absent("m/1", b"1")
    assert type(caught.value) is kind
    assert server.requests == ["POST"]


def test_a_missing_bucket_is_not_a_missing_object(server: FakeGcs, storage: Storage) -> None:
    """The first is a mistake in the URL, the second is an answer."""
    options = {"token": "anon", "endpoint_url": f"http://127.0.0.1:{server.server_port}"}
    with pytest.raises(StorageFailed, match="bucket") as caught:
        open_storage("gs://other/t", options).read("x")
    assert type(caught.value) is StorageFailed
    with pytest.raises(ObjectMissing):
        storage.read("x")


def test_each_operation_is_one_request(server: FakeGcs, storage: Storage) -> None:
    """An append is one upload per file and one for the manifest."""
    storage.put_if_absent("m/1", b"1", after=[storage.write_new("a", b"2")])
    assert storage.put_if_absent("m/1", b"1") is Put.EXISTS
    storage.read("m/1")
    storage.list("m/", limit=1)
    assert server.requests == ["POST", "POST", "POST", "GET", "GET"]
