"""Rows spread over shards, windows and late files: the layout is kept, the answer is the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in, open_in
from strandline.catalog.commit import commit
from strandline.tableformat.actions import WalKey
from strandline.tableformat.errors import LateRows
from strandline.tableformat.lateness import marks_of
from strandline.tableformat.sharding import shards_of
from strandline.tableformat.storage import open_storage
from strandline.writers import layout
from strandline.writers.append import AppendChange, Conditions
from tests.parquet_pages import rows_per_page
from tests.tables import START_MS, Script, memory_url

if TYPE_CHECKING:
    from strandline.table import Table

SCHEMA = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
HOUR_MS = 3_600_000
START = START_MS - START_MS % HOUR_MS
KEYS = ["a", "b", "c", None]


def rows_of(rows: list[tuple[int, str | None]], first: int = 0) -> pa.Table:
    """Rows of (milliseconds after the start, key), numbered in column `n`."""
    return pa.table(
        {
            "ts": [START + ts for ts, _ in rows],
            "key": [key for _, key in rows],
            "n": list(range(first, first + len(rows))),
        },
        SCHEMA,
    )


def make(**options: Any) -> Table:
    """A table with windows of an hour."""
    options = {"time_column": "ts", "ttl": "1d", **options}
    return create_in(open_storage(memory_url()), SCHEMA, runtime=Script().runtime(), **options)


def change_of(table: Table, rows: pa.Table, **more: Any) -> AppendChange:
    """An append that is laid out and uploaded, but not committed."""
    chain = table._chain  # noqa: SLF001 - the writer holds one as well
    head = more.pop("head", table.manifest)
    marks, key = more.pop("marks", None), more.pop("key", None)
    return AppendChange(
        chain.storage,
        chain.runtime,
        head,
        rows=rows,
        schema=head.schema,
        conditions=Conditions(key=key),
        marks=marks,
    )


def files_of(table: Table) -> dict[str, list[dict[str, Any]]]:
    """The rows of every file, as they stand in it."""
    storage = table._chain.storage  # noqa: SLF001
    return {
        entry.path: pq.read_table(pa.BufferReader(storage.read(entry.path))).to_pylist()
        for entry in table.refresh().manifest.segments
    }


batches = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3 * HOUR_MS), st.sampled_from(KEYS)), min_size=1, max_size=12
    ),
    min_size=1,
    max_size=4,
)


@given(
    batches=batches,
    shards=st.sampled_from([1, 2, 8]),
    sort_by=st.sampled_from([[], ["key"], ["key", "ts"], ["ts"]]),
    jitter_ms=st.sampled_from([None, 0, 1000, HOUR_MS]),
)
@settings(deadline=None)
def test_routing_decides_the_file_and_never_the_answer(
    batches: list[list[tuple[int, str | None]]],
    shards: int,
    sort_by: list[str],
    jitter_ms: int | None,
) -> None:
    """[T3] [T6] [SHA-1] [SHA-4] [LATE-2] A scan gives the rows of all appends in their order."""
    table = make(shard_by="key", shards=shards, sort_by=sort_by, jitter_ms=jitter_ms)
    expected: list[dict[str, Any]] = []
    marks: dict[int, int] = {}
    for batch in batches:
        rows = rows_of(batch, len(expected))
        before, known = dict(marks), len(table.refresh().manifest.segments)
        table.append(rows)
        expected += rows.to_pylist()
        of_rows = shards_of(
            rows.column("key"), table.manifest.schema.by_id[2].type, shards, "xxh64"
        )
        for entry in table.manifest.segments[known:]:
            held = files_of(table)[entry.path]
            places = [row["n"] - rows.column("n")[0].as_py() for row in held]
            assert {of_rows[i] for i in places} == {entry.shard}
            is_late = entry.path.split("/")[-1].startswith("late-")
            limit = 0 if jitter_ms is None else before.get(entry.shard, 0) - jitter_ms
            assert all((row["ts"] < limit) is is_late for row in held)
            order = [tuple((row[c] is None, row[c]) for c in sort_by) for row in held]
            assert order == sorted(order, key=lambda key: [(a, b or "") for a, b in key])
            for key in KEYS:
                numbers = [row["n"] for row in held if row["key"] == key]
                if sort_by != ["ts"] and sort_by[1:] != ["ts"]:
                    assert numbers == sorted(numbers)
            marks[entry.shard] = max(marks.get(entry.shard, 0), entry.max_ts)
        assert table.manifest.shard_marks == marks

    scan = open_in(table._chain.storage).scan()  # noqa: SLF001
    assert scan.to_arrow().to_pylist() == expected
    seqs = open_in(table._chain.storage).scan(columns=["_seq", "n"]).to_arrow()  # noqa: SLF001
    assert seqs.column("_seq").to_pylist() == seqs.column("n").to_pylist()


def test_sorted_rows_come_back_in_the_order_of_the_append() -> None:
    """[SHA-4] [RD-1] One sorted file alone: a scan sorts it, and a limit takes the first rows."""
    table = make(sort_by=["key"])
    table.append(rows_of([(0, "c"), (1, None), (2, "a"), (3, "b"), (4, "a")]))

    (held,) = files_of(table).values()

    assert [row["key"] for row in held] == ["a", "a", "b", "c", None]
    assert [row["n"] for row in held] == [2, 4, 3, 0, 1]
    assert [row["_off"] for row in held] == [2, 4, 3, 0, 1]
    assert table.scan(columns=["n"]).to_arrow().column("n").to_pylist() == [0, 1, 2, 3, 4]
    assert table.scan(limit=2, columns=["n"]).to_arrow().column("n").to_pylist() == [0, 1]
    assert table.scan(filter="key = 'a'").to_arrow().column("n").to_pylist() == [2, 4]


def test_rows_that_are_sorted_already_need_no_place() -> None:
    """[ROW-8] A file that is a run of the batch stays dense."""
    table = make(sort_by=["key"])
    table.append(rows_of([(0, "a"), (1, "b"), (2, "b")]))

    assert [entry.rows_are for entry in table.manifest.segments] == ["dense"]


def test_a_late_row_goes_to_a_late_file_of_its_own_window() -> None:
    """[T3] [LATE-2] Beyond the jitter of its key; at its boundary it travels with the rest."""
    table = make(shard_by="key", jitter_ms=1000)
    table.append(rows_of([(5000, "a"), (2 * HOUR_MS, "b")]))

    table.append(rows_of([(2 * HOUR_MS - 1000, "a"), (2 * HOUR_MS - 1001, "a"), (7, "c")], 2))

    names = [entry.path.split("/") for entry in table.manifest.segments[2:]]
    found = [(int(w[1:].split("-")[0]) - START, name.split("-")[0]) for w, _, name in names]
    assert sorted(found) == [(0, "late"), (HOUR_MS, "batch"), (HOUR_MS, "late")]
    assert table.scan(columns=["n"]).to_arrow().column("n").to_pylist() == [0, 1, 2, 3, 4]


def test_an_unsorted_import_writes_one_file_per_window() -> None:
    """[LATE-2] Rows out of order inside one batch are counted as late and travel together."""
    table = make(jitter_ms=0)
    change = change_of(table, rows_of([(9, "a"), (3, "a"), (HOUR_MS, "a"), (1, "a")]))

    assert [entry.path.split("/")[-1][:6] for entry in change.actions[0].segments] == [
        "batch-",
        "batch-",
    ]
    assert (change.late_rows, change.jitter_rows) == (2, 0)


def test_a_writer_remembers_keys_that_the_manifest_does_not() -> None:
    """[T3] With marks of its own, each key is measured by itself; a result is adopted or not."""
    table = make(shard_by="key", jitter_ms=0)
    marks = marks_of({}, 1)
    first = change_of(table, rows_of([(9000, "a"), (10, "b")]), marks=marks)
    assert (first.late_rows, len(marks.keys)) == (0, 0)

    second = change_of(table, rows_of([(11, "b"), (8999, "a")]), marks=first.marks_after)

    assert second.late_rows == 1
    assert [e.row_count for e in second.actions[0].segments if "/late-" in e.path] == [1]
    commit(table._chain, table._head, second, operation="append")  # noqa: SLF001
    fresh = change_of(open_in(table._chain.storage), rows_of([(12, "b")]))  # noqa: SLF001
    assert fresh.late_rows == 1, "after a restart a key is measured by its shard's mark"


# --- the retention floor ---


def test_rows_below_the_floor_are_dropped_and_counted() -> None:
    """[T4] [LATE-3] The floor's own boundary is kept; the others keep their order, densely."""
    table = make()
    head = replace(table.manifest, floor_ts=START + 100)

    change = change_of(table, rows_of([(100, "a"), (99, "b"), (101, "c"), (0, "d")]), head=head)

    (added,) = change.actions
    assert change.kept is not None
    assert change.kept.tolist() == [True, False, True, False]
    assert (change.dropped_late, added.rows, added.last_ts) == (2, 2, START + 101)
    assert [(e.min_seq, e.max_seq, e.rows_are) for e in added.segments] == [(0, 1, "dense")]
    assert not change.is_empty


def test_rows_below_the_floor_can_be_an_error() -> None:
    """[T4] [LATE-3] on_late='error': nothing is written, and the error counts them."""
    table = make(on_late="error")
    head = replace(table.manifest, floor_ts=START + 100)

    with pytest.raises(LateRows) as caught:
        change_of(table, rows_of([(100, "a"), (99, "b")]), head=head)

    assert (caught.value.rows, caught.value.floor_ms) == (1, START + 100)
    assert change_of(table, rows_of([(100, "a")]), head=head).kept is None


@pytest.mark.parametrize("order", ["event_time", "clamp"])
def test_a_batch_without_a_row_left_commits_its_key(order: str) -> None:
    """[T4] [POS-1] Its records are settled, or they would be replayed for ever."""
    table = make(order=order)
    head = replace(table.manifest, floor_ts=START + 100)
    rows = rows_of([(1, "a"), (2, "b")])

    without = change_of(table, rows, head=head)
    assert without.is_empty
    assert without.pending == ()
    change = change_of(table, rows, head=head, key=WalKey("w", "a" * 32, 1, 2))
    assert not change.is_empty
    done = commit(table._chain, table._head, change, operation="append")  # noqa: SLF001

    made = done.snapshot.manifest
    assert (made.positions["w"].number, made.positions["w"].rows) == (2, 0)
    assert (made.next_seq, made.segments, made.commit.first_seq) == (0, (), None)


def test_a_floor_that_rises_before_the_commit_drops_rows_then() -> None:
    """[COM-9] [T4] The change itself says what became of its rows in the attempt that landed."""
    table = make()
    change = change_of(table, rows_of([(1, "a"), (200, "b")]))
    assert change.dropped_late == 0

    again = change.rewrite(replace(table.manifest, floor_ts=START + 100))

    assert again is change
    assert change.dropped_late == 1
    assert change.actions[0].rows == 1


# --- limits and sizes ---


def test_more_files_than_a_manifest_could_list_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """[SHA-5] Before anything is uploaded."""
    monkeypatch.setattr(layout, "MAX_FILES_PER_COMMIT", 3)
    table = make(shard_by="n", shards=4, shard_hash="mask")

    with pytest.raises(strandline.InvalidInput, match="4 files"):
        table.append(rows_of([(i, "a") for i in range(8)]))

    assert table.append(rows_of([(i, "a") for i in range(3)])).rows == 3


def test_shards_are_sorted_before_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """[SHA-4] So that one key's rows lie in one file, or in neighbouring ones."""
    monkeypatch.setattr(layout, "MAX_SEGMENT_ROWS", 4)
    table = make(sort_by=["key"])

    table.append(rows_of([(i, "abcdefgh"[i % 8]) for i in range(16)]))

    ranges = [
        (min(r["key"] for r in f), max(r["key"] for r in f)) for f in files_of(table).values()
    ]
    assert ranges == [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    assert table.scan(columns=["n"]).to_arrow().column("n").to_pylist() == list(range(16))


def test_a_flush_of_32768_rows_has_16_zones() -> None:
    """[E5] [ZON-1] Pages of zone_rows rows in every column; a short last one is fine."""
    for rest, last in ((0, []), (1, [1])):
        table = make(zone_pages=True)
        rows = rows_of([(i, f"key-{i % 50}") for i in range(32_768 + rest)])
        table.append(rows)
        storage = table._chain.storage  # noqa: SLF001
        data = bytes(storage.read(table.manifest.segments[-1].path))
        assert rows_per_page(data) == [[2048] * 16 + last] * 3


def test_marks_of_an_older_table_begin_with_nothing() -> None:
    """[LATE-1] A manifest without shard_marks knows of no newer row."""
    table = make()
    table.append(rows_of([(5000, "a")]))
    old = replace(table.manifest, shard_marks={})

    assert change_of(table, rows_of([(1, "a")]), head=old).late_rows == 0
    now = change_of(table, rows_of([(1, "a")]))
    assert now.late_rows == 1
    assert "/batch-" in now.actions[0].segments[0].path, "without jitter_ms it is only counted"


def test_a_batch_keeps_its_stored_times_in_every_piece() -> None:
    """[TIM-5] Times that a reader cannot derive follow their rows through shards and sorting."""
    table = make(shard_by="key", shards=4, sort_by=["n"], timestamping="client-prefer")
    times = [None if i % 3 == 0 else START + 1000 - i for i in range(20)]
    rows = pa.table(
        {"ts": times, "key": [KEYS[i % 3] for i in range(20)], "n": [-i for i in range(20)]}, SCHEMA
    )

    table.append(rows)

    now = Script().now
    found = table.scan(columns=["_ts", "n"]).to_arrow()
    assert found.column("n").to_pylist() == [-i for i in range(20)]
    assert found.column("_ts").to_pylist() == [now if t is None else t for t in times]
    assert np.all(np.diff(table.scan(columns=["_seq"]).to_arrow().column("_seq").to_numpy()) == 1)


def test_sorting_puts_nan_behind_numbers_and_null_last() -> None:
    """[SHA-4] The order of SPEC.md 4.4; the two zeros are equal and stay as they came."""
    storage = open_storage(memory_url())
    table = create_in(storage, {"x": "float64", "n": "int32"}, time_column=None, sort_by=["x"])
    values = [None, float("nan"), 0.0, -0.0, float("inf"), -1.0, float("-inf"), 0.0]

    table.append([{"x": x, "n": i} for i, x in enumerate(values)])

    (held,) = files_of(table).values()
    assert [row["n"] for row in held] == [6, 5, 2, 3, 7, 4, 1, 0]
