"""A table in memory under a clock that tests turn, for everything that happens with time."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.api import create_in, open_in
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import HOUR_MS
from tests.tables import Script

if TYPE_CHECKING:
    from strandline.table import Table

SCHEMA = {"at": "int64", "n": "int64"}
NOW = 1_800_000_000_000 - 1_800_000_000_000 % HOUR_MS
_names = itertools.count()


class Aging:
    """One store with its clock, and handles on the table in it."""

    def __init__(self, **config: Any) -> None:
        self.script = Script(now=NOW)
        self.skew_ms = 0
        """How far the store's clock is ahead of everybody else's."""
        self.store = MemoryStorage(f"aging-{next(_names)}", clock_ms=self.store_ms)
        self.config = {"time_column": "at", **config}

    def store_ms(self) -> int:
        return self.script.now + self.skew_ms

    def create(self) -> Table:
        return create_in(self.store, SCHEMA, runtime=self.script.runtime(), **self.config)

    def open(self, version: int | str | None = None) -> Table:
        ids = replace(self.script.runtime(), random_hex=self.random_hex)
        return open_in(self.store, version, runtime=ids)

    _ids = itertools.count(1 << 40)

    def random_hex(self, size: int) -> str:
        return f"{next(self._ids):0{2 * size}x}"

    def wait(self, milliseconds: int) -> None:
        self.script.now += milliseconds

    def files(self, prefix: str = "") -> list[str]:
        return sorted(path for path, _ in self.store.walk(prefix))

    def windows(self) -> list[str]:
        return sorted(name for name in self.store.folders("") if name.startswith("w"))


def row(at: int, n: int) -> dict[str, int]:
    """A row."""
    return {"at": at, "n": n}


def numbers(table: Table) -> list[int]:
    """The rows of a table, by their numbers."""
    found: list[int] = table.scan(["n"]).to_arrow().column("n").to_pylist()
    return found


def hourly(world: Aging, hours: int) -> Table:
    """A table with one row in each of the last hours; row n is n hours old."""
    table = world.create()
    for n in range(hours):
        table.append([row(NOW - n * HOUR_MS, n)])
    return table
