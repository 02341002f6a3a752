"""moto's S3 server in a process of its own, counting every request that reaches it.

GET `/__requests__` gives the counts by method since the last time, and sets them to zero.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from moto.s3.responses import S3Response
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class _Counting:
    """Count, then pass on."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/__requests__":
            with self._lock:
                told, self._counts = json.dumps(self._counts).encode(), Counter()
            start_response("200 OK", [("Content-Length", str(len(told)))])
            return [told]
        with self._lock:
            self._counts[_kind(environ)] += 1
        return self._app(environ, start_response)


def _kind(environ: dict[str, Any]) -> str:
    is_list = environ["REQUEST_METHOD"] == "GET" and "list-type" in environ.get("QUERY_STRING", "")
    return "LIST" if is_list else str(environ["REQUEST_METHOD"])


def main() -> None:
    """Serve on a free port and print it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # moto looks whether a key exists and then writes it; S3 does both in one step.
    unlocked, lock = S3Response.put_object, threading.Lock()

    def put_object(self: Any) -> Any:
        with lock:
            return unlocked(self)

    S3Response.put_object = put_object
    # S3 keeps connections open; without this, every request would pay for a new one.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    app = _Counting(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
