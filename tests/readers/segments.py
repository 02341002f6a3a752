"""Tables whose one segment has everything a file may have, and what its rows are."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.api import create_in
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import page_table, types
from strandline.tableformat.storage import open_storage
from strandline.writers import segment_file
from tests.tables import START_MS, Script, memory_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.page_table import PageTable
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

ROWS = 4_500
ROW_GROUP, ZONE = 1_024, 64
HOUR_MS = 3_600_000

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("small", pa.int16()),
        pa.field("medium", pa.int32()),
        pa.field("tiny", pa.uint8()),
        pa.field("large", pa.uint32()),
        pa.field("flag", pa.bool_()),
        pa.field("f32", pa.float32()),
        pa.field("f64", pa.float64()),
        pa.field("money", pa.decimal128(8, 2)),
        pa.field("huge", pa.decimal128(38, 3)),
        pa.field("day", pa.date32()),
        pa.field("local", pa.timestamp("us")),
        pa.field("city", pa.string()),
        pa.field("note", pa.string()),
        pa.field("blob", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.string()))])),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
        pa.field("deep", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int8()))]))),
        pa.field("gone", pa.int32()),
    ]
)


def make_rows(rows: int = ROWS, seed: int = 5) -> pa.Table:
    """Random rows: every column but `ts` and `n` with nulls, and with long runs of them."""
    random = np.random.default_rng(seed)
    numbers = list(range(rows))

    def integers(low: int, high: int) -> list[int]:
        return [int(x) for x in random.integers(low, high, rows)]

    columns: dict[str, list[Any]] = {
        "ts": [(START_MS + k * 7) * 1000 for k in numbers],
        "n": numbers,
        "small": integers(-300, 300),
        "medium": integers(-(2**31), 2**31),
        "tiny": integers(0, 256),
        "large": integers(0, 2**32),
        "flag": [bool(x) for x in integers(0, 2)],
        "f32": [[0.0, -0.0, float("nan"), 1.5, -2.5, float("inf")][x] for x in integers(0, 6)],
        "f64": [float(x) for x in random.normal(size=rows)],
        "money": [Decimal(x).scaleb(-2) for x in integers(-(10**8) + 1, 10**8)],
        "huge": [Decimal(x) * 10**15 + Decimal("0.125") for x in integers(-(2**62), 2**62)],
        "day": integers(-1000, 20_000),
        "local": integers(-(10**15), 10**16),
        "city": [["", "Oslo", "Lima", "Bern", "Łódź"][x] for x in integers(0, 5)],
        "note": [f"note {x}" if x % 11 else "" for x in integers(0, 10**9)],
        "blob": [x.to_bytes(3, "big")[: x % 4] for x in integers(0, 2**24)],
        "tags": [["x"] * (k % 4) if k % 5 else [None, ""] for k in numbers],
        "place": [{"lat": k / 3, "names": None if k % 3 else ["a", str(k)]} for k in numbers],
        "counts": [[(str(i), k) for i in range(k % 3)] for k in numbers],
        "deep": [[{"a": k, "b": [1, None]}, None, {"a": None, "b": []}][: k % 4] for k in numbers],
        "gone": numbers,
    }
    arrays = []
    for at, field in enumerate(SCHEMA):
        nulls = (random.random(rows) < 0.2) | ((np.arange(rows) // 200) % 4 == at % 4)
        if field.name in ("ts", "n"):
            nulls[:] = False
        kept = [None if null else v for v, null in zip(columns[field.name], nulls, strict=True)]
        arrays.append(pa.array(kept, field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@dataclass(frozen=True)
class Case:
    """One segment, its page table, and its rows by an independent reader."""

    storage: Storage
    manifest: Manifest
    entry: SegmentEntry
    pages: PageTable
    rows: pa.Table
    """All columns of today's schema and the hidden ones, in the order of the file."""


@contextmanager
def writing_pages_of(size: int | None) -> Iterator[None]:
    """Pages cut by their bytes, every column at other rows; None: as the library does."""
    if size is None:
        yield
        return
    writer = partial(pq.ParquetWriter, data_page_size=size)
    pretended = SimpleNamespace(ParquetWriter=writer, FileMetaData=pq.FileMetaData)
    with (
        mock.patch.object(segment_file, "pq", pretended),
        mock.patch.object(segment_file, "_WRITE_BATCH_ROWS", 16),
    ):
        yield


LAYOUTS: dict[str, dict[str, Any]] = {
    "zone_pages": {"zone_pages": True},
    "large_pages": {},
    "uneven_pages": {"page_size": 700},
    "offsets": {"zone_pages": True, "windows": True},
    "stored_ts": {"zone_pages": True, "clamped": True},
    "evolved": {"zone_pages": True, "evolved": True},
    "evolved_uneven": {"page_size": 900, "evolved": True},
}


@cache
def case(name: str) -> Case:
    """The segment of a layout; written once, because reading changes nothing."""
    how = LAYOUTS[name]
    rows = make_rows()
    options: dict[str, Any] = {"ttl": "1d"} if how.get("windows") else {}
    if how.get("clamped"):
        options["order"] = "clamp"
        rows = rows.take(pa.array(np.random.default_rng(1).permutation(rows.num_rows)))
    if how.get("windows"):
        # Rows go back and forth between two windows, so neither file holds a run of them.
        hours = np.where(np.arange(rows.num_rows) % 37 == 0, 2 * HOUR_MS * 1000, 0)
        moved = pa.array(rows.column("ts").cast(pa.int64()).to_numpy() - hours)
        rows = rows.set_column(0, SCHEMA.field("ts"), moved.cast(SCHEMA.field("ts").type))
    table = create_in(
        open_storage(memory_url()),
        SCHEMA,
        runtime=Script().runtime(),
        time_column="ts",
        row_group_rows=ROW_GROUP,
        zone_rows=ZONE,
        zone_pages=bool(how.get("zone_pages")),
        **options,
    )
    with writing_pages_of(how.get("page_size")):
        table.append(rows)
    if how.get("evolved"):
        table.evolve(
            widen={"small": "int64", "tiny": "int32", "f32": "float64", "money": "decimal(20,2)"},
            rename={"city": "town"},
            drop=["gone"],
            add={"gone": "string", "later": "float64"},
        )
    return case_of(table)


def case_of(table: Any) -> Case:
    """The largest segment of a table."""
    manifest = table.manifest
    entry = max(manifest.segments, key=lambda entry: entry.row_count)
    storage = table._chain.storage  # noqa: SLF001 - the reader is handed one as well
    data = storage.read(entry.path)
    blob = page_table.build(data)
    assert blob is not None
    pages = page_table.open(blob, row_count=entry.row_count, size_bytes=entry.size_bytes)
    PAGES.clear()
    return Case(storage, manifest, entry, pages, expected_rows(manifest, entry, data))


def expected_rows(manifest: Manifest, entry: SegmentEntry, data: bytes) -> pa.Table:
    """The rows of a file as plain pyarrow gives them, under today's names and types."""
    held = pq.read_table(pa.BufferReader(data))
    columns: dict[str, Any] = {}
    for column in manifest.schema.columns:
        kind = types.to_arrow(column.type)
        if column.physical_name in held.column_names:
            columns[column.name] = held.column(column.physical_name).cast(kind)
        else:
            columns[column.name] = pa.nulls(held.num_rows, kind)
    numbers = np.arange(entry.min_seq, entry.min_seq + held.num_rows)
    if entry.rows_are == "offset":
        numbers = entry.seq_base + held.column("_off").to_numpy().astype(np.int64)
    columns["_seq"] = pa.array(numbers)
    times = held.column("_ts" if entry.ts_stored else "ts").cast(pa.int64())
    columns["_ts"] = times if entry.ts_stored else pc.divide(times, 1000)
    columns["_window"] = pa.array(np.full(held.num_rows, entry.window.start_ms))
    return pa.table(columns)
