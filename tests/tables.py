"""Small tables for tests: rows, a scripted clock, and the places a table may lie in."""

from __future__ import annotations

import itertools
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa

import strandline
from strandline.catalog.runtime import Runtime
from strandline.tableformat import rolling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.table import Table

START_MS = 1_700_000_000_000
"""14 November 2023: in the past, so that no row is capped."""

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("user", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("n", pa.int64()),
    ]
)


def events(first: int, count: int, *, step_ms: int = 1000) -> pa.Table:
    """Rows numbered from `first` in column `n`, one every `step_ms`."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "ts": pa.array((START_MS + numbers * step_ms) * 1000, SCHEMA.field("ts").type),
            "user": pa.array([f"user-{n % 7}" for n in numbers]),
            "amount": pa.array(numbers / 4),
            "n": pa.array(numbers),
        },
        schema=SCHEMA,
    )


@dataclass
class Script:
    """A clock that moves when told, and chance that repeats."""

    now: int = START_MS + 10**9
    slept: list[float] = field(default_factory=list)
    ids: Any = field(default_factory=lambda: itertools.count(1))

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += max(1, int(seconds * 1000))

    def runtime(self) -> Runtime:
        """Time and chance as the library takes them."""
        return Runtime(
            now_ms=lambda: self.now,
            monotonic=lambda: self.now / 1000,
            sleep=self.sleep,
            random_hex=lambda size: f"{next(self.ids):0{2 * size}x}",
            fraction=lambda: 0.5,
        )


@dataclass(frozen=True)
class Place:
    """Somewhere a table can be created."""

    url: str
    storage_options: dict[str, Any] | None = None

    def create(self, schema: Any = SCHEMA, **options: Any) -> Table:
        options = {"time_column": "ts", **options}
        return strandline.create_table(
            self.url, schema, storage_options=self.storage_options, **options
        )

    def open(self, **options: Any) -> Table:
        return strandline.open_table(self.url, storage_options=self.storage_options, **options)


def memory_url() -> str:
    """A place in memory that no other test uses."""
    return f"memory://{uuid.uuid4().hex}"


def numbers_in(table: Table, **request: Any) -> list[int]:
    """Column `n` of a scan."""
    found: list[int] = table.scan(columns=["n"], **request).to_arrow().column("n").to_pylist()
    return found


SMALL_LIMITS = {
    "ROLL_AT": 4,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 5,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 2,
    "FOLD_WINDOWS_ABOVE": 2,
    "KEEP_WINDOWS": 1,
}


@contextmanager
def small_limits() -> Iterator[None]:
    """Roll, merge and fold as early as can be, so that small tables have every kind of page."""
    with ExitStack() as stack:
        for name, value in SMALL_LIMITS.items():
            stack.enter_context(mock.patch.object(rolling, name, value))
        yield
