"""Fixtures that more than one package's tests share."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.tables import Place, memory_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# No deadlines: machines differ. The same examples every time, so that a change is what fails; set
# HYPOTHESIS_PROFILE=search to look for new ones.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))

# Requests are counted here: a cache that the developer uses would answer some of them.
os.environ.pop("STRANDLINE_CACHE", None)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, whose hook looks for the marks of groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let workers share the tests by files, and one of them have all that need Spark.

    These come first, since they take longest; and among them those of the Python data source,
    which cannot be registered any more in a Java machine where `enable` was called.
    """
    items.sort(key=_turn)
    for item in items:
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.split("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("spark") is None:
        return 2
    return 0 if "/test_source_" in item.nodeid else 1


@dataclass(frozen=True)
class S3Bucket:
    """A fresh bucket on moto's server, and how to reach it."""

    url: str
    storage_options: dict[str, Any]
    name: str
    endpoint: str


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Start moto's S3 server once, on a free port of this machine.

    moto looks whether the key exists and then writes it; S3 does both in one step. A lock around
    its PUT makes it as strict as the original, so that a race tests our code and not moto.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # or a failure shows every request
    responses = pytest.importorskip("moto.s3.responses").S3Response
    unlocked, lock = responses.put_object, threading.Lock()

    def put_object(self: Any) -> Any:
        with lock:
            return unlocked(self)

    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        "127.0.0.1", port=0, verbose=False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "put_object", put_object)
        server.start()
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
        server.stop()


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> S3Bucket:
    """Make an empty bucket: its URL and the `storage_options` that open it."""
    s3fs = pytest.importorskip("s3fs")
    options = {
        "key": "test-access-key",
        "secret": "test-secret-key",
        "endpoint_url": s3_endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    fs = s3fs.S3FileSystem(**options, use_listings_cache=False)
    fs.call_s3("create_bucket", Bucket=name)
    return S3Bucket(f"s3://{name}/table", options, name, s3_endpoint)


@pytest.fixture(
    params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3)],
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Somewhere to create a table: on disk, in memory, on S3."""
    if request.param == "local":
        return Place(str(tmp_path / "table"))
    if request.param == "memory":
        return Place(memory_url())
    bucket = request.getfixturevalue("s3_bucket")
    return Place(bucket.url, bucket.storage_options)
