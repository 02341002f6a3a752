"""Random tables: written through Strandline, and kept beside it as plain rows.

The rows beside it are what the table should hold by SPEC.md, worked out with Arrow and numpy alone:
numbered in the order of appends, older rows null in columns that came later, values as they were in
columns that were widened or renamed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.api import create_in
from strandline.tableformat import rolling
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.storage import open_storage
from strandline.writers import append
from strandline.writers.segment_file import encode_segment
from tests.readers.differential import values
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.table import Table
    from strandline.tableformat.storage import Storage
    from strandline.writers.segment_file import SegmentFile

ROW_GROUP = 1_024
"""The least there is: segments of a few thousand rows have several row groups and an index."""
HIDDEN = ("_seq", "_ts", "_window")
TIME = "t"
_ROLL_SOON = {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1}
_WINDOWS_MS = {None: 2_592_000_000, "20d": 604_800_000, "3d": 86_400_000, "10h": 3_600_000}
"""TTL and the length of windows that SPEC.md 7.1 gives it."""
_NAMES = [
    "amount",
    "User ID",
    "naïve",
    "and",
    "NaN",
    'quo"te',
    "back`tick",
    "a.b",
    "Δ",
    "date",
    "x" * 60,
]
_FOR_ALL = ["zone_map", "membership", "zone_membership", "postings", "enum_bitmap"]
_FOR_NUMBERS = ["range", "rank"]
_FOR_TIMES = ["temporal", "calendar"]


@dataclass
class Column:
    """A column as it is now, and all its values so far."""

    key: str
    """What it is called outside the table, whatever the table calls it."""
    name: str
    kind: pa.DataType
    pool: pa.Array
    nulls: float
    shape: str
    local: bool = False
    """Whether each append holds a few neighbouring values only, so that files differ."""
    nullable: bool = True
    chunks: list[pa.Array] = field(default_factory=list)

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.kind, nullable=self.nullable)


@dataclass(frozen=True)
class World:
    """A table, and the rows that are in it."""

    seed: int
    storage: Storage
    columns: tuple[Column, ...]
    """In the order of the table's schema."""
    rows: pa.Table
    """By key, with the hidden columns."""
    story: tuple[str, ...]
    """What was done, for whoever has to understand a failure."""

    @property
    def schema(self) -> pa.Schema:
        """What scans of the whole table should have."""
        hidden = [pa.field(name, pa.int64(), nullable=False) for name in HIDDEN]
        return pa.schema([*(c.field for c in self.columns), *hidden])


def _encode_in_haste(*rows: Any, **options: Any) -> SegmentFile:
    return encode_segment(*rows, **{**options, "in_haste": True})


def build(seed: int, kinds: Sequence[pa.DataType] = ()) -> World:
    """The table of a seed, always the same; `kinds`: only columns of these types."""
    return _Builder(seed, kinds).build()


class _Builder:
    def __init__(self, seed: int, kinds: Sequence[pa.DataType]) -> None:
        self.seed, self.kinds = seed, kinds
        self.random, self.numbers = Random(seed), np.random.default_rng(seed)
        # Chance of its own, so that a seed has the same rows whatever is done to their files.
        self.upkeep = Random(f"upkeep {seed}")
        self.script = Script()
        self.story: list[str] = []
        self.keys = 0
        self.names = self.random.sample(_NAMES, len(_NAMES))
        self.ts: list[np.ndarray[Any, Any]] = []

    def build(self) -> World:
        random = self.random
        storage = open_storage(memory_url())
        self.columns = [self.column() for _ in range(random.randint(2, 6))]
        self.choose_time()
        with self.maybe_rolling():
            table = self.create(storage)
            appends = random.randint(1, 4)
            hasty = self.upkeep.randrange(2 * appends)
            for number in range(appends):
                if number and random.random() < 0.6:
                    self.evolve(table)
                with self.maybe_in_haste(yes=number == hasty):
                    self.append(table)
                if number and self.upkeep.random() < 0.4:
                    self.compact(table)
        # Readers take other roads on a disk than in an object store.
        storage.is_local = bool(self.seed % 2)
        return World(self.seed, storage, tuple(self.columns), self.rows(), tuple(self.story))

    # --- the table ---

    def column(self, *, added: bool = False) -> Column:
        random = self.random
        kind = random.choice(self.kinds) if self.kinds else values.kind_for(random)
        size = random.choice([1, 2, 5, 30, 300, 3_000])
        self.keys += 1
        name = self.names.pop() if self.names and random.random() < 0.3 else f"c{self.keys}"
        nulls = random.choice([0, 0, 0, 0, 0.1, 0.1, 0.5, 0.95, 1])
        shape = random.choice(["even", "skewed", "sorted", "runs", "backwards"])
        pool = values.pool(kind, size, random, self.numbers)
        nullable = added or nulls > 0 or random.random() < 0.7
        local = random.random() < 0.6
        return Column(f"k{self.keys}", name, kind, pool, nulls, shape, local, nullable)

    def choose_time(self) -> None:
        random = self.random
        self.time: Column | None = None
        if random.random() < 0.85:
            kind = random.choice([pa.int64(), *values.TIMES, values.TIMES[1]])
            nulls = random.choice([0, 0, 0, 0.2])
            self.time = Column("time", TIME, kind, pa.array([], kind), nulls, "")
            self.columns.insert(random.randint(0, len(self.columns)), self.time)

    def create(self, storage: Storage) -> Table:
        random = self.random
        ttl = random.choice(list(_WINDOWS_MS))
        self.window_ms = _WINDOWS_MS[ttl]
        self.uncapped = random.random() < 0.5
        self.order = random.choice(["event_time", "event_time", "clamp"])
        options: dict[str, Any] = {
            "time_column": None if self.time is None else TIME,
            "ttl": ttl,
            "uncapped": self.uncapped,
            "order": self.order,
            "row_group_rows": ROW_GROUP,
            "zone_rows": random.choice([32, 64, 128, 256, 1024]),
            "zone_pages": random.random() < 0.5,
            **self.layout(),
        }
        self.story.append(f"create {options}")
        schema = pa.schema([column.field for column in self.columns])
        return create_in(storage, schema, runtime=self.script.runtime(), **options)

    def layout(self) -> dict[str, Any]:
        """Shards, order, late rows, and which columns have stats and indexes."""
        random, out = self.random, {}
        plain = [c for c in self.columns if not pa.types.is_nested(c.kind)]
        keyed = [c for c in plain if not pa.types.is_floating(c.kind)]
        self.protected = {TIME}
        if keyed and random.random() < 0.3:
            key = random.choice(keyed)
            out |= {"shard_by": key.name, "shards": random.choice([1, 2, 3])}
            self.protected.add(key.key)
        if plain and random.random() < 0.35:
            order = random.sample(plain, random.randint(1, min(2, len(plain))))
            out["sort_by"] = [c.name for c in order]
            self.protected |= {c.key for c in order}
        if random.random() < 0.3:
            out["jitter_ms"] = random.choice([0, 5_000])
        if plain and random.random() < 0.3:
            out["stats_columns"] = [c.name for c in plain if random.random() < 0.5]
        if random.random() < 0.05:
            out["indexes"] = False
        elif random.random() < 0.75:
            chosen = [c for c in plain if random.random() < 0.8]
            out["indexes"] = {c.name: self.index_kinds(c) for c in chosen}
        return out

    def index_kinds(self, column: Column) -> list[str]:
        """Some of the kinds that a column can have."""
        is_time = column is self.time or pa.types.is_temporal(column.kind)
        numeric = not any(
            check(column.kind)
            for check in (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal)
        )
        able = _FOR_ALL + _FOR_NUMBERS * numeric + _FOR_TIMES * is_time
        return self.random.sample(able, self.random.choice([0, 1, 1, 1, 2, 4]))

    @contextmanager
    def maybe_rolling(self) -> Iterator[None]:
        """Let some tables move their segments into pages after every append."""
        with pytest.MonkeyPatch.context() as patch:
            if self.random.random() < 0.4:
                self.story.append("rolls early")
                for name, value in _ROLL_SOON.items():
                    patch.setattr(rolling, name, value)
            # Postings here are small; in part they are read all the same.
            patch.setattr(postings_blocks, "LEAST_BYTES", 1)
            yield

    @contextmanager
    def maybe_in_haste(self, *, yes: bool) -> Iterator[None]:
        """An append as by a writer under pressure, which leaves the work for indexes to others."""
        with pytest.MonkeyPatch.context() as patch:
            if yes:
                self.story.append("in haste:")
                patch.setattr(append, "encode_segment", _encode_in_haste)
            yield

    def compact(self, table: Table) -> None:
        """Put what there is into other files; the rows stay as they are."""
        options: dict[str, Any] = {}
        if self.upkeep.random() < 0.3:
            options["target_rows"] = 3 * ROW_GROUP
        table.compact(min_segments=2, **options)
        self.story.append(f"compact {options}")

    # --- appends ---

    def append(self, table: Table) -> None:
        random = self.random
        large = random.random() < 0.7
        count = random.randint(ROW_GROUP + 1, 4 * ROW_GROUP) if large else random.randint(1, 80)
        self.script.now += random.choice([1, 1_000, 3_600_000])
        arrays: dict[str, pa.Array] = {}
        for column in self.columns:
            made = self.times(count) if column is self.time else self.values(column, count)
            # A nullable column may be left out, which is the same as sending nulls.
            if column.nullable and column is not self.time and random.random() < 0.05:
                made = pa.nulls(count, column.kind)
            else:
                arrays[column.name] = made
            column.chunks.append(made)
        if not arrays:
            column = self.columns[0]
            arrays[column.name] = column.chunks[-1]
        self.stamp(count)
        schema = pa.schema([c.field for c in self.columns if c.name in arrays])
        table.append(pa.table(arrays, schema=schema))
        self.story.append(f"append {count} rows, {len(arrays)} columns")

    def values(self, column: Column, count: int) -> pa.Array:
        pool, numbers = self.near(column) if column.local else column.pool, self.numbers
        at = numbers.integers(0, len(pool), count)
        if column.shape == "skewed":
            at = np.minimum(numbers.zipf(1.6, count) - 1, len(pool) - 1)
        elif column.shape == "runs":
            at = at[np.arange(count) // 50 * 50]
        picked = pool.take(pa.array(at))
        if column.shape in ("sorted", "backwards") and not pa.types.is_nested(column.kind):
            order = "ascending" if column.shape == "sorted" else "descending"
            picked = picked.take(pc.array_sort_indices(picked, order=order))
        return values.with_nulls(picked, column.nulls, numbers)

    def near(self, column: Column) -> pa.Array:
        """A few neighbours of the pool, and now and then one from elsewhere."""
        random, pool = self.random, column.pool
        if not pa.types.is_nested(column.kind):
            pool = pool.take(pc.array_sort_indices(pool))
        size = min(len(pool), random.choice([1, 1, 2, 4, 40]))
        first = random.randint(0, len(pool) - size)
        picked = list(range(first, first + size))
        if random.random() < 0.4:
            # The last of floats is a NaN, if there is one.
            picked.append(random.choice([random.randrange(len(pool)), len(pool) - 1]))
        return pool.take(pa.array(picked))

    def times(self, count: int) -> pa.Array:
        """Times around the clock's, over a few windows; in order, nearly, or not at all."""
        assert self.time is not None
        random, numbers = self.random, self.numbers
        span = random.choice([1_000, self.window_ms, 3 * self.window_ms])
        ms = self.script.now - span + numbers.integers(0, span + span // 10, count)
        shape = random.choice(["order", "order", "nearly", "any"])
        if shape == "order":
            ms.sort()
        elif shape == "nearly":
            ms.sort()
            ms += numbers.integers(-3_000, 3_000, count)
        if self.time.kind == pa.int64():
            made = pa.array(ms)
        else:
            fine = numbers.integers(0, 1_000, count) if random.random() < 0.5 else 0
            made = pa.array(ms * 1_000 + fine).cast(self.time.kind)
        self.time.pool = pa.concat_arrays([self.time.pool, made.slice(0, 200)])
        return values.with_nulls(made, self.time.nulls, numbers)

    def stamp(self, count: int) -> None:
        """`_ts` by SPEC.md 10.2."""
        now = self.script.now
        if self.time is None:
            ts = np.full(count, now, np.int64)
        else:
            held = self.time.chunks[-1]
            raw = held.cast(pa.int64()).fill_null(0).to_numpy()
            ms = raw if self.time.kind == pa.int64() else raw // 1_000
            ts = np.where(held.is_null().to_numpy(zero_copy_only=False), now, ms)
        if not self.uncapped:
            ts = np.minimum(ts, now)
        if self.order == "clamp":
            ts = np.maximum.accumulate(ts)
            ts = np.maximum(ts, self.ts[-1][-1]) if self.ts else ts
        self.ts.append(ts)

    # --- changes of the schema ---

    def evolve(self, table: Table) -> None:
        change = self.random.choice([self.add, self.add, self.rename, self.drop, self.widen])
        done = change(table)
        self.story.append(done)

    def add(self, table: Table) -> str:
        column = self.column(added=True)
        table.evolve(add=[column.field])
        column.chunks = [pa.nulls(len(ts), column.kind) for ts in self.ts]
        self.columns.append(column)
        return f"add {column.key} {column.name!r} {column.kind}"

    def rename(self, table: Table) -> str:
        column = self.random.choice(self.columns)
        old, column.name = column.name, f"renamed{len(self.story)}"
        table.evolve(rename={old: column.name})
        return f"rename {column.key} {old!r} to {column.name!r}"

    def drop(self, table: Table) -> str:
        free = [c for c in self.columns if c.key not in self.protected and c is not self.time]
        if not free or len(self.columns) < 2:
            return self.add(table)
        column = self.random.choice(free)
        table.evolve(drop=[column.name])
        self.columns.remove(column)
        if self.random.random() < 0.5:
            # The old name for a new column: none of the old values may appear in it.
            self.names.append(column.name)
        return f"drop {column.key} {column.name!r}"

    def widen(self, table: Table) -> str:
        free = [c for c in self.columns if c.key not in self.protected and c.kind in values.WIDER]
        if not free:
            return self.add(table)
        column = self.random.choice(free)
        narrow, column.kind = column.kind, self.random.choice(values.WIDER[column.kind])
        table.evolve(widen={column.name: column.kind})
        column.chunks = [chunk.cast(column.kind) for chunk in column.chunks]
        more = values.pool(column.kind, len(column.pool), self.random, self.numbers)
        column.pool = pa.concat_arrays([column.pool.cast(column.kind), more])
        return f"widen {column.key} {narrow} to {column.kind}"

    # --- what should be there ---

    def rows(self) -> pa.Table:
        ts = np.concatenate(self.ts)
        arrays = {c.key: pa.chunked_array(c.chunks, c.kind) for c in self.columns}
        arrays["_seq"] = pa.chunked_array([pa.array(np.arange(len(ts)))])
        arrays["_ts"] = pa.chunked_array([pa.array(ts)])
        arrays["_window"] = pa.chunked_array([pa.array(ts - ts % self.window_ms)])
        return pa.table(arrays).combine_chunks()
