"""Each contestant as the same four verbs: create, open, append, count.

A contestant writes with its library's defaults. Only `raw` and Strandline sync to the disk.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

import bench_data
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Contestant(Protocol):
    """A table of events at a folder."""

    name: str
    durable: bool
    """Whether an append is on the medium when it returns."""

    def create(self, root: Path) -> None: ...
    def open(self, root: Path) -> Callable[[pa.Table], object]:
        """Give the function that appends rows in one commit."""

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        """The `event_id` of every row, for checking that none was lost or doubled."""


class Raw:
    """The floor: one Parquet file per append, synced with its folder, and no table at all."""

    name, durable = "raw pyarrow + fsync", True

    def create(self, root: Path) -> None:
        root.mkdir(parents=True)

    def open(self, root: Path) -> Callable[[pa.Table], object]:
        numbers = iter(range(2**31))

        def append(rows: pa.Table) -> None:
            path = root / f"{next(numbers):08d}.parquet"
            pq.write_table(rows, path)
            _sync(path, os.O_RDONLY)
            _sync(root, os.O_RDONLY | os.O_DIRECTORY)

        return append

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        return pq.read_table(root, columns=["event_id"]).column(0)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Strandline:
    """Ours, with defaults."""

    name, durable = "strandline", True

    def create(self, root: Path) -> None:
        import strandline

        strandline.create_table(root, bench_data.SCHEMA, time_column="ts")

    def open(self, root: Path) -> Callable[[pa.Table], object]:
        import strandline

        return strandline.open_table(root).append

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        import strandline

        return strandline.open_table(root).scan(["event_id"]).to_arrow().column(0)


class Lance:
    """pylance."""

    name, durable = "lance", False

    def create(self, root: Path) -> None:
        import lance

        lance.write_dataset(bench_data.SCHEMA.empty_table(), str(root), mode="create")

    def open(self, root: Path) -> Callable[[pa.Table], object]:
        import lance

        def append(rows: pa.Table) -> None:
            lance.write_dataset(rows, str(root), mode="append")

        return append

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        import lance

        return lance.dataset(str(root)).to_table(["event_id"]).column(0)


class Delta:
    """deltalake."""

    name, durable = "deltalake", False

    def create(self, root: Path) -> None:
        import deltalake

        deltalake.DeltaTable.create(str(root), bench_data.SCHEMA)

    def open(self, root: Path) -> Callable[[pa.Table], object]:
        import deltalake

        table = deltalake.DeltaTable(str(root))

        def append(rows: pa.Table) -> None:
            deltalake.write_deltalake(table, rows, mode="append")

        return append

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        import deltalake

        return deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["event_id"]).column(0)


class Iceberg:
    """pyiceberg with a SQLite catalog."""

    name, durable = "pyiceberg", False

    def _catalog(self, root: Path) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        # It tells of every retry; the report counts them in time.
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        return SqlCatalog("b", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/w")

    def create(self, root: Path) -> None:
        root.mkdir(parents=True)
        catalog = self._catalog(root)
        catalog.create_namespace("n")
        catalog.create_table("n.t", bench_data.SCHEMA)

    def open(self, root: Path) -> Callable[[pa.Table], object]:
        table = self._catalog(root).load_table("n.t")

        def append(rows: pa.Table) -> None:
            try:
                table.append(rows)
            except Exception:
                table.refresh()
                raise

        return append

    def event_ids(self, root: Path) -> pa.ChunkedArray:
        table = self._catalog(root).load_table("n.t")
        return table.scan(selected_fields=("event_id",)).to_arrow().column(0)


RAW, OURS = Raw(), Strandline()
PEERS: list[Contestant] = [Lance(), Delta(), Iceberg()]
ALL: dict[str, Contestant] = {c.name: c for c in [RAW, OURS, *PEERS]}


def versions() -> str:
    """The libraries in this run."""
    names = ["strandline", "pyarrow", "pylance", "deltalake", "pyiceberg"]
    return ", ".join(f"{name} {_version(name)}" for name in names)


def _version(name: str) -> str:
    """Some benchmarks have no peers, and run where none is installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def check_rows(contestant: Contestant, root: Path, expected: int) -> tuple[int, int]:
    """How many of `event_id` 0…expected-1 are missing, and how many rows are there too often."""
    import numpy as np

    ids = contestant.event_ids(root).to_numpy()
    counts = np.bincount(ids, minlength=expected)
    return int((counts[:expected] == 0).sum()), int(len(ids) - (counts > 0).sum())
