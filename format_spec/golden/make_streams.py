# ruff: noqa: INP001 - a script of the golden tables, no package
"""Writes the golden stream tables, once; see README.md."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from strandline.streams import log_files
from strandline.streams.creation import create_stream
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.local import LocalStorage
from tests.tables import Script

FOLDER = Path(__file__).parent / "streams"
NOW = 1_769_860_800_000
USER = "Zoë/1"
SCHEMA = {"id": "string", "x": "int64", "at": "int64"}


class ObjectsOnly(LocalStorage):
    """A disk that is used like an object store."""

    can_append = False


def make(name: str) -> str:
    """Write one table; the path of its log."""
    root = FOLDER / name
    storage = open_storage(root) if name == "appended" else ObjectsOnly(root)
    runtime = Script(now=NOW).runtime()
    table = create_stream(
        storage, SCHEMA, row_id="id", ttl="60s", time_column="at", runtime=runtime
    )
    table.put(USER, [{"id": "a", "x": 1, "at": NOW}, {"id": "b", "x": 2, "at": NOW}], flush=True)
    table.put(USER, [{"id": "c", "x": 3, "at": NOW}], flush=True)
    (log,) = table._logs.paths()  # noqa: SLF001 - where it lies
    part = root / log / f"{1:012d}-{1:012d}"
    covered = part.read_bytes() if name == "chunked" else b""
    log_files.MAX_OBJECTS = 2  # type: ignore[misc] # so that a small log is merged
    table.delete(USER, ["b"], flush=True)
    log_files.MAX_OBJECTS = 16  # type: ignore[misc]
    many = {"id": [f"row-{n:02d}" for n in range(70)], "x": range(70), "at": [NOW] * 70}
    table.put(USER, pa.table({key: pa.array(values) for key, values in many.items()}), flush=True)
    if covered:
        part.write_bytes(covered)  # as a merge leaves it that ended before it removed the parts
    rows = {user: table.latest(user).to_pylist() for user in table.users()}
    expected = {"now_ms": NOW, "log": log, "rows": rows}
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
    return log


if __name__ == "__main__":
    for kind in ("appended", "chunked"):
        if not (FOLDER / kind).exists():
            make(kind)
