"""Keyed tables against plain dictionaries: whatever happens, the newest row of each key answers.

The model keeps every row that was ever stored. Compaction may forget rows; from what it leaves,
the same winners must follow, now and after every later trim point and floor.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.api import create_in, open_in
from strandline.tableformat import config, keys
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.storage import open_storage
from strandline.tableformat.windows import HOUR_MS
from strandline.writers import forgetting
from tests.tables import START_MS, Script, memory_url, small_limits

if TYPE_CHECKING:
    from strandline.table import Table

KEYS = range(5)
NAME = "ann/../é"
STEP_MS = 20_000
"""Three rows to a window of a minute."""
ROW = st.tuples(st.sampled_from(KEYS), st.integers(-5, 3), st.sampled_from("ab"))
OPERATION = st.one_of(
    st.tuples(st.just("upsert"), st.lists(ROW, min_size=1, max_size=4)),
    st.tuples(st.just("upsert"), st.lists(ROW, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)),
    st.tuples(st.just("delete_where"), st.sampled_from(["v = 'a'", "v = 'b' AND id > 1"])),
    st.tuples(st.just("delete_keys_where"), st.sampled_from(["id = 2", "id < 2"])),
    st.tuples(st.just("compact"), st.sampled_from([None, "v"])),
    st.tuples(st.just("compact"), st.sampled_from([None, "v"])),
    st.tuples(st.just("trim"), st.integers(0, 3)),
    st.tuples(st.just("expire"), st.integers(0, 2)),
    st.tuples(st.just("rollback"), st.integers(1, 4)),
)


@dataclass(frozen=True)
class Row:
    """One stored row."""

    seq: int
    ts: int
    key: int
    v: str | None
    deleted: bool = False


def winners(rows: list[Row], floor: int, trim: int) -> dict[int, Row]:
    """By hand, row by row."""
    best: dict[int, Row] = {}
    for row in rows:
        if row.ts < floor or row.seq < trim:
            continue
        known = best.get(row.key)
        if known is None or (row.ts, row.seq) > (known.ts, known.seq):
            best[row.key] = row
    return {key: row for key, row in best.items() if not row.deleted}


@dataclass
class Model:
    """A table and what it must hold."""

    table: Table
    """Whose rows they are: the table, or one of its users."""
    clock: Script
    root: Table
    neighbour: Table | None = None
    rows: list[Row] = field(default_factory=list)
    next_seq: int = 0
    floor: int = 0
    trim_seq: int = 0
    at_version: dict[int, list[Row]] = field(default_factory=dict)

    def do(self, name: str, what: Any) -> None:
        self.clock.now += 7_000
        getattr(self, name)(what)
        self.at_version[self.table.version] = list(self.rows)

    def _take(self, made: list[Row]) -> None:
        kept = [row for row in made if row.ts >= self.floor]
        self.rows += [replace(r, seq=self.next_seq + i) for i, r in enumerate(kept)]
        self.next_seq += len(kept)

    def newest(self) -> dict[int, Row]:
        return winners(self.rows, self.floor, self.trim_seq)

    def upsert(self, batch: list[tuple[int, int, str]]) -> None:
        made = [Row(0, self.clock.now + step * STEP_MS, key, v) for key, step, v in batch]
        self.table.upsert([{"at": row.ts, "id": row.key, "v": row.v} for row in made])
        self._take(made)

    def delete(self, named: list[int]) -> None:
        now, seen = max(self.clock.now, self.floor), self.newest()
        self.table.delete(keys=named)
        times = {key: max(now, seen[key].ts if key in seen else 0) for key in named}
        self._take([Row(0, ts, key, None, deleted=True) for key, ts in times.items()])

    def delete_where(self, condition: str) -> None:
        v, least = ("a", 0) if "AND" not in condition else ("b", 2)
        hit = [r for r in self.newest().values() if r.v == v and r.key >= least]
        assert self.table.delete(filter=condition).rows == len(hit)
        hit.sort(key=lambda row: row.seq)
        self._take([replace(row, v=None, deleted=True) for row in hit])

    def delete_keys_where(self, condition: str) -> None:
        hit = [2] if "=" in condition else [0, 1]
        self.table.delete(filter=condition)
        shown = (row.deleted or row.seq < self.trim_seq or row.ts < self.floor for row in self.rows)
        self.rows = [
            r for r, stays in zip(self.rows, shown, strict=True) if stays or r.key not in hit
        ]

    def compact(self, sort_by: str | None) -> None:
        self.table.compact(None if sort_by is None else [sort_by])
        left = stored(self.table)
        assert set(left) <= set(self.rows)
        for trim in range(self.trim_seq, self.next_seq + 1):
            for floor in {self.floor, *(row.ts for row in self.rows if row.ts > self.floor)}:
                assert winners(left, floor, trim) == winners(self.rows, floor, trim), (floor, trim)
        self.rows = left

    def trim(self, step: int) -> None:
        self.trim_seq = self.table.trim(min(self.trim_seq + step, self.next_seq))

    def expire(self, steps: int) -> None:
        self.root.expire(now=self.clock.now + 2 * steps * STEP_MS, force=True)
        self.floor = self.root.manifest.floor_ts

    def rollback(self, back: int) -> None:
        versions = sorted(v for v in self.at_version if v < self.table.version)
        if versions:
            version = versions[-min(back, len(versions))]
            self.table.rollback(version)
            self.rows = list(self.at_version[version])

    def check(self) -> None:
        table, expected = self.table, self.newest()
        rows = sorted(expected.values(), key=lambda row: row.seq)
        for indexes in (True, False):
            found = table.scan(["id", "v", "_seq", "_ts"], indexes=indexes).to_arrow().to_pylist()
            assert [(r["_seq"], r["_ts"], r["id"], r["v"]) for r in found] == [
                (row.seq, row.ts, row.key, row.v) for row in rows
            ]
        assert table.scan().count() == len(rows)
        few = table.scan(["id"], filter="v = 'a' AND id >= 1").to_arrow().column(0).to_pylist()
        assert few == [row.key for row in rows if row.v == "a" and row.key >= 1]
        assert table.exists(list(KEYS)).tolist() == [key in expected for key in KEYS]
        held = table.get(list(KEYS), ["id", "_seq"]).to_pylist()
        assert [(r["id"], r["_seq"]) for r in held] == [
            (key, expected[key].seq) for key in KEYS if key in expected
        ]

    def check_past(self) -> None:
        for version, rows in list(self.at_version.items())[-3:]:
            expected = winners(rows, self.floor, self.trim_seq)
            assert self._at(version).scan(["_seq"]).to_arrow().column(0).to_pylist() == sorted(
                row.seq for row in expected.values()
            )

    def _at(self, version: int) -> Table:
        if self.neighbour is None:
            return open_in(self.root._chain.storage, version)  # noqa: SLF001
        return self.root.user(NAME, version)

    def check_neighbour(self) -> None:
        """The rows of another user with the same keys are where they were."""
        if self.neighbour is not None:
            assert self.neighbour.scan(["id"]).to_arrow().column(0).to_pylist() == [0, 2, 3, 4]
            assert self.neighbour.exists(list(KEYS)).tolist() == [key != 1 for key in KEYS]


def stored(table: Table) -> list[Row]:
    """Every row that is visible, tombstones among them."""
    names = ["_seq", "_ts", "id", "v", "_deleted"]
    found = table.scan(names, all_rows=True).to_arrow().to_pylist()
    return [Row(*(row[name] for name in names)) for row in found]


def make(**options: Any) -> Model:
    """An empty table and its model."""
    clock = Script(now=START_MS + 3_000)
    root = create_in(
        open_storage(memory_url()),
        {"at": "int64", "id": "int64", "v": "string"},
        runtime=clock.runtime(),
        time_column="at",
        ttl="5m",
        primary_key="id",
        uncapped=True,
        **options,
    )
    if options.get("scope") != "user":
        return Model(root, clock, root, at_version={1: []})
    neighbour = root.user("bob")
    neighbour.upsert([{"at": START_MS + 9 * HOUR_MS, "id": key, "v": "b"} for key in KEYS])
    neighbour.delete(keys=[1])
    return Model(root.user(NAME), clock, root, neighbour)


def play(operations: list[tuple[str, Any]], **options: Any) -> None:
    """Do all of it, and compare after each step."""
    with pytest.MonkeyPatch.context() as patch, small_limits():
        # Segments of two rows have row groups, and so indexes.
        patch.setattr(config, "MIN_ROW_GROUP", 1)
        model = make(row_group_rows=2, zone_rows=1, **options)
        for operation in operations:
            model.do(*operation)
            model.check()
        model.check_past()
        model.check_neighbour()
        assert model.root.verify(deep=True).ok


OPTIONS = st.sampled_from(
    [
        *({}, {"indexes": False}, {"scope": "user"}, {"scope": "user"}),
        *({"shard_by": "id", "shards": 2}, {"shard_by": "v", "shards": 2}),
    ]
)


@given(operations=st.lists(OPERATION, max_size=12), options=OPTIONS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_keyed_table_is_a_dictionary(
    operations: list[tuple[str, Any]], options: dict[str, Any]
) -> None:
    """[C4] [M7] [M8] [M9] [KEY-3] [KEY-10] [KEY-11] [KEY-12] Whatever is done to it, in any order.

    Upserts, deletes, late rows, compactions, trims, expiries, rollbacks; indexes or none.
    """
    play(operations, **options)


@pytest.mark.proof
@given(operations=st.lists(OPERATION, min_size=8, max_size=40), options=OPTIONS)
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_keyed_table_is_a_dictionary_for_long(
    operations: list[tuple[str, Any]], options: dict[str, Any]
) -> None:
    """[C4] [M7] [M8] [KEY-11] [KEY-12] The same, longer."""
    play(operations, **options)


# --- planted bugs ---------------------------------------------------------------------------------

STORIES: dict[str, list[tuple[str, Any]]] = {
    "a deleted key stays deleted while an older file has it": [
        ("upsert", [(1, -5, "a")]),
        ("delete", [1]),
        ("delete", [3]),
        ("compact", None),
    ],
    "the last row of a key stays": [
        ("upsert", [(1, 0, "a"), (1, 0, "b")]),
        ("upsert", [(1, 0, "b")]),
        ("compact", None),
    ],
    "what had lost counts after a trim": [
        ("upsert", [(1, 0, "a"), (2, 0, "a")]),
        ("upsert", [(1, -1, "b")]),
        ("compact", None),
        ("trim", 2),
    ],
    "a filter on other columns is about winners": [
        ("upsert", [(1, 0, "a")]),
        ("upsert", [(1, 0, "b")]),
    ],
}


def _as_if_none_hid(*given: Any) -> Any:
    return np.zeros(len(given[3]), np.bool_)


def _first_instead_of_last(places: Any, ranks: Any, seqs: Any) -> Any:
    return OUTDONE(places, -ranks, -seqs)


def _by_time_alone(places: Any, ranks: Any, seqs: Any) -> Any:
    order = np.argsort(np.lexsort((seqs, ranks)))
    return OUTDONE(places, order, order)


OUTDONE = keys._outdone  # noqa: SLF001
BUGS: dict[str, tuple[str, Any]] = {
    "a deleted key stays deleted while an older file has it": (
        "strandline.tableformat.keys._hides_some",
        _as_if_none_hid,
    ),
    "the last row of a key stays": (
        "strandline.tableformat.keys._outdone",
        _first_instead_of_last,
    ),
    "what had lost counts after a trim": ("strandline.tableformat.keys._outdone", _by_time_alone),
    "a filter on other columns is about winners": (
        "strandline.readers.scan.before_winners",
        lambda bound, _: bound,
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_planted_bugs_are_found(story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[KEY-4] [KEY-11] [KEY-12] The story holds, and with the bug in it the model says so."""
    play(STORIES[story])
    monkeypatch.setattr(forgetting, "_check", lambda *_: None)
    monkeypatch.setattr(*BUGS[story])
    with pytest.raises(AssertionError):
        play(STORIES[story])


@pytest.mark.parametrize(
    "story", [story for story in STORIES if "keys." in BUGS[story][0] and "trim" not in story]
)
def test_a_rewrite_that_would_change_winners_is_not_committed(
    story: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M7] Winners are found once more by another road before anybody may commit."""
    monkeypatch.setattr(*BUGS[story])
    with pytest.raises(CorruptTable, match="which rows of a keyed table count"):
        play(STORIES[story])
