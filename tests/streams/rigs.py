"""Stream tables for tests: a clock that moves when told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.streams.creation import create_stream, open_stream
from strandline.tableformat.storage import open_storage
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from strandline.streams.table import StreamTable
    from strandline.tableformat.storage import Storage

SCHEMA = {"id": "string", "x": "int64", "at": "int64"}
NOW = 1_700_000_040_000
"""A whole minute, so that windows begin and end at round times."""


def new_stream(
    storage: Storage | None = None, script: Script | None = None, **options: Any
) -> StreamTable:
    """A stream table of ids, numbers and times, with a minute to live."""
    storage = storage or open_storage(memory_url())
    script = script or Script(now=NOW)
    settings = {"row_id": "id", "ttl": "60s", "time_column": "at", **options}
    return create_stream(storage, SCHEMA, runtime=script.runtime(), **settings)


def reopened(storage: Storage, script: Script) -> StreamTable:
    """The same table as another process sees it."""
    return open_stream(storage, runtime=script.runtime())


def row(name: str, x: int, at: int = NOW) -> dict[str, Any]:
    """One row, at a time that has not expired."""
    return {"id": name, "x": x, "at": at}


def pairs(rows: Any) -> list[tuple[str, int]]:
    """Ids and numbers in the order of the rows."""
    return [(r["id"], r["x"]) for r in rows.to_pylist()]
