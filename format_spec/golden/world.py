"""A scripted world to write tables in: time and chance are counted, so bytes come out the same."""

# ruff: noqa: INP001 - a module beside the scripts that use it
from __future__ import annotations

import hashlib
import itertools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import lz4.frame
import orjson

from strandline.api import create_in, open_in
from strandline.catalog.runtime import Runtime
from strandline.tableformat import codec, paths, rolling
from strandline.tableformat.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.table import Table

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: what the clock shows first."""
SMALL_LIMITS: Final = {
    "ROLL_AT": 4,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 5,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 2,
    "FOLD_WINDOWS_ABOVE": 2,
    "KEEP_WINDOWS": 1,
    "FOLD_POSITIONS_ABOVE": 2,
    "KEEP_POSITIONS": 1,
    "MERGE_DOCUMENTS_AT": 2,
}


@contextmanager
def small_limits() -> Iterator[None]:
    """Roll, merge and fold as early as can be, so that small tables have every kind of page."""
    with ExitStack() as stack:
        for name, value in SMALL_LIMITS.items():
            stack.enter_context(mock.patch.object(rolling, name, value))
        yield


@dataclass
class World:
    """A folder for one table, with a clock that ticks one second per look and counted chance."""

    folder: Path
    clock: itertools.count[int] = field(default_factory=lambda: itertools.count(START_MS, 1000))
    drawn: itertools.count[int] = field(default_factory=itertools.count)

    def _hex(self, size: int) -> str:
        seed = f"{self.folder.parent.name} {next(self.drawn)}".encode()
        return hashlib.sha256(seed).hexdigest()[: 2 * size]

    @property
    def runtime(self) -> Runtime:
        return Runtime(
            now_ms=lambda: next(self.clock),
            sleep=lambda _: None,
            random_hex=self._hex,
            fraction=lambda: 0.0,
        )

    def create(self, schema: Any, **config: Any) -> Table:
        self.folder.mkdir(parents=True)
        options = {"time_column": None, **config}
        return create_in(open_storage(self.folder), schema, runtime=self.runtime, **options)

    def open(self) -> Table:
        return open_in(open_storage(self.folder), runtime=self.runtime)

    # --- by hand, for what no command does yet ---

    def manifest_file(self, version: int) -> Path:
        return self.folder / paths.manifest_path(version)

    def head(self) -> int:
        return open_in(open_storage(self.folder)).version

    def document(self, version: int) -> dict[str, Any]:
        found = codec.decode_document(self.manifest_file(version).read_bytes(), "manifest")
        return dict(found)

    def put(self, version: int, document: dict[str, Any], **options: Any) -> None:
        text = orjson.dumps(document)
        data = codec.encode_document(text) if not options else frame(text, **options)
        self.manifest_file(version).write_bytes(data)

    def commit_by_hand(self, operation: str, **fields: Any) -> None:
        """The next version with some fields changed, as a later command will commit it."""
        version = self.head()
        parent = self.manifest_file(version).read_bytes()
        document = {**self.document(version), **fields}
        record = {
            "version": str(version + 1),
            "commit_id": self._hex(16),
            "committed_at": str(next(self.clock)),
            "operation": operation,
            "rows": "0",
        }
        document["version"], document["commit"] = record["version"], record
        document["parent_xxh64"] = codec.checksum(parent)
        document["history"] = [record, *document["history"][:31]]
        self.put(version + 1, document)


def frame(text: bytes, **options: Any) -> bytes:
    """A text in an LZ4 frame, with some settings other than ours."""
    settings = {
        "block_linked": False,
        "content_checksum": True,
        "block_checksum": False,
        "store_size": True,
        **options,
    }
    return bytes(lz4.frame.compress(text, **settings))


def at(hours: float, micros: int = 0) -> datetime:
    """A time before the clock's beginning, counted from the last day of 2025."""
    return datetime(2025, 12, 31, tzinfo=UTC) + timedelta(hours=hours, microseconds=micros)
