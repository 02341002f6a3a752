"""Compaction and deletes on real tables: every row stays what it was, or goes as asked."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.catalog.commit import commit
from strandline.place import TablePlace
from strandline.readers.segment_reader import read_segment
from strandline.tableformat.errors import CorruptTable, InvalidInput, MissingFile
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.segments import DENSE
from strandline.tableformat.storage import open_storage
from strandline.writers import compacting, deleting, rewriting
from strandline.writers.append import Acknowledged, AppendChange, Conditions
from tests.tables import SCHEMA, START_MS, Script, events, memory_url, small_limits
from tests.writers.rigs import PATIENCE_S, close_now, event, flush_once, without_threads

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

NAMES = [*SCHEMA.names, "_seq", "_ts", "_window"]


def make_table(script: Script | None = None, **config: Any) -> Table:
    """A table with hourly windows in memory."""
    runtime = (script or Script()).runtime()
    settings_: dict[str, Any] = {"time_column": "ts", "ttl": "1d", **config}
    return create_in(open_storage(memory_url()), SCHEMA, runtime=runtime, **settings_)


def rows_of(table: Table) -> pa.Table:
    """Everything a reader sees of each row."""
    return table.scan(NAMES).to_arrow()


def stored_files(table: Table) -> set[str]:
    """Data files in the store, listed or not."""
    found = {path for path, _ in TablePlace(table).chain.storage.walk("")}
    return {path for path in found if path.startswith("w") and path.endswith(".parquet")}


def listed_files(table: Table) -> set[str]:
    """Data files that the newest version lists."""
    return set(table.files().column("path").to_pylist())


# --- compaction --------------------------------------------------------------------------------


def test_many_small_segments_become_few() -> None:
    """[M7] [C5] [O1] Rows, numbers and times stay; old versions stay readable."""
    table = make_table()
    for first in range(0, 5000, 50):
        table.append(events(first, 50))
    before, version = rows_of(table), table.version

    report = table.compact()

    assert rows_of(table).equals(before)
    assert (report.segments_before, report.segments_after) == (100, 2)
    assert report.rows == 5000
    assert table.files().num_rows == 2
    assert rows_of(strandline.open_table(table.url, version=version)).equals(before)
    assert table.verify(deep=True).ok
    assert table.compact().runs == 0


def test_who_keeps_to_a_rate_works_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] [C5] Writers keep the other cores; rows and indexes come out the same."""
    table = make_table(row_group_rows=2048, zone_rows=1024)
    for first in range(0, 6000, 500):
        table.append(events(first, 500))
    before = rows_of(table)
    monkeypatch.setattr(rewriting, "_threads", lambda: pytest.fail("a thread is asked for"))

    report = table.compact(bytes_per_s=10**9)

    assert report.segments_after < report.segments_before
    assert rows_of(table).equals(before)
    assert any(entry.index is not None for entry in table.manifest.segments)
    assert table.verify(deep=True).ok


def test_a_run_of_one_window_needs_no_stored_numbers() -> None:
    """[ROW-8] Consecutive rows stay dense."""
    table = make_table()
    for number in range(5):
        table.append(events(number * 10, 10))

    table.compact()

    (entry,) = table.manifest.segments
    assert (entry.rows_are, entry.min_seq, entry.max_seq) == (DENSE, 0, 49)


def test_rows_can_be_sorted_on_the_way() -> None:
    """[C5] Files are sorted by the columns; scans still answer by `_seq`."""
    table = make_table()
    for number in range(5):
        table.append(events(number * 10, 10))
    before = rows_of(table)

    table.compact(["user", "n"])

    assert rows_of(table).equals(before)
    (entry,) = table.manifest.segments
    place = TablePlace(table)
    found = read_segment(place.chain.storage, table.manifest, entry, {2, 4, -1})
    users = found.column("user").to_pylist()
    assert users == sorted(users)
    with pytest.raises(InvalidInput, match="list of names"):
        table.compact("user")
    with pytest.raises(InvalidInput, match="twice"):
        table.compact(["user", "user"])


def test_a_table_that_is_sorted_stays_sorted() -> None:
    """[SHA-4] [C5] The table's own order holds for new segments too."""
    table = make_table(sort_by=["user"])
    for number in range(3):
        table.append(events(number * 10, 10))
    with pytest.raises(InvalidInput, match="sorted by user"):
        table.compact(["n"])

    table.compact()

    (entry,) = table.manifest.segments
    found = read_segment(TablePlace(table).chain.storage, table.manifest, entry, {2})
    assert found.column("user").to_pylist() == sorted(found.column("user").to_pylist())


def test_times_that_were_stored_stay_stored() -> None:
    """[TIM-5] [COM-16] Capped and missing times are no longer in the column."""
    table = make_table()
    now = Script().now
    for number in range(4):
        times = [None, (now + 10**7) * 1000, (START_MS + number) * 1000]
        rows = pa.table({"ts": pa.array(times, SCHEMA.field("ts").type), "n": [1, 2, 3]})
        table.append(rows)
    before = rows_of(table)

    table.compact()

    assert rows_of(table).equals(before)
    assert table.verify(deep=True).ok


def test_segments_of_an_older_schema_are_read_through_column_ids() -> None:
    """[C3] [EVO-5] Renamed, widened and dropped columns come out as they read before."""
    table = make_table()
    for number in range(3):
        table.append(events(number * 10, 10))
    table.evolve(rename={"user": "who"}, drop=["amount"], add={"extra": "int32"})
    for number in range(3):
        table.append([{"ts": None, "who": "x", "n": number, "extra": number}])
    names = ["ts", "who", "n", "extra", "_seq", "_ts"]
    before = table.scan(names).to_arrow()

    table.compact()

    assert table.scan(names).to_arrow().equals(before)
    assert table.files().num_rows == 2
    assert table.verify(deep=True).ok


def test_debts_are_paid_and_filters_are_the_smallest() -> None:
    """[E6] [T1] What a flush in haste left out is there after compaction, with xor8 filters."""
    table = make_table(row_group_rows=4096, zone_rows=512, indexes={"n": ["membership"]})
    place = TablePlace(table)
    for number in range(2):
        rows = events(number * 5000, 5000, step_ms=1)
        change = AppendChange(
            place.chain.storage,
            place.chain.runtime,
            table.manifest,
            rows=rows,
            schema=table.manifest.schema,
            conditions=Conditions(),
            acknowledged=Acknowledged(np.full(5000, START_MS), in_haste=True),
        )
        place.see(commit(place.chain, place.head, change, operation="append").snapshot)
    assert all(entry.index_debt and entry.index is None for entry in table.manifest.segments)
    before = rows_of(table)

    table.compact()

    (entry,) = table.manifest.segments
    assert entry.index is not None
    assert not entry.index_debt
    data = place.chain.storage.read(path_of(entry.path))
    catalog = decode_catalog(data[-entry.index.catalog_bytes :], entry.index, entry.path)
    algorithms = {b.params["algorithm"] for b in catalog.blobs if b.kind == "membership"}
    assert algorithms == {"xor8"}
    assert rows_of(table).equals(before)
    assert table.scan(filter="n = 7777").to_arrow().num_rows == 1
    assert table.verify(deep=True).ok


def test_compaction_keeps_to_its_rate() -> None:
    """[E14] Reading and writing wait for one another, on the clock of the table."""
    script = Script()
    table = make_table(script)
    for number in range(10):
        table.append(events(number * 10, 10))
    script.slept.clear()

    report = table.compact(bytes_per_s=1000)

    moved = report.bytes_before + report.bytes_after
    assert sum(script.slept) >= (moved - report.bytes_after) / 1000 * 0.8
    with pytest.raises(InvalidInput, match="bytes_per_s"):
        table.compact(bytes_per_s=0)


def test_a_dry_run_changes_nothing() -> None:
    """[M7] It tells what would be done."""
    table = make_table()
    for number in range(4):
        table.append(events(number * 10, 10))
    version, stored = table.version, stored_files(table)

    report = table.compact(dry_run=True)

    assert (report.runs, report.segments_before, report.rows) == (1, 4, 40)
    assert (table.refresh().version, stored_files(table)) == (version, stored)


_CHILD = """
import sys
import strandline
table = strandline.open_table(sys.argv[1])
report = table.compact(["user"] if sys.argv[2] else None, target_rows=2000)
assert (report.segments_before, report.runs) == (80, 2), report
assert all(entry.index is not None for entry in table.manifest.segments)
assert "pandas" not in sys.modules
"""


@pytest.mark.parametrize("sort_by", ["", "user"])
def test_compaction_loads_no_pandas(tmp_path: Path, sort_by: str) -> None:
    """[M7] pyarrow would import it with the first array from numpy: more work than the rest."""
    table = strandline.create_table(
        tmp_path / "t", SCHEMA, time_column="ts", row_group_rows=1024, zone_rows=256
    )
    for number in range(80):
        *rows, last = events(number, 50, step_ms=1).to_pylist()
        table.append([*rows, {**last, "user": None}])
    assert table.manifest.windows[0].pages  # of which some segments go and some stay

    command = [sys.executable, "-c", _CHILD, str(table.url), sort_by]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


# --- races -------------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, module: Any, action: Any) -> None:
    """Do something else once, after the first rewrite and before its commit."""
    real, done = rewriting.rewrite, []

    def rewrite(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        if not done:
            done.append(True)
            action()
        return made

    monkeypatch.setattr(module, "rewrite", rewrite)


def test_a_run_that_another_has_compacted_is_thrown_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] No row comes twice, and the loser leaves no file behind."""
    table = make_table()
    for number in range(4):
        table.append(events(number * 10, 10))
    before = rows_of(table)
    other = strandline.open_table(table.url)
    meanwhile(monkeypatch, compacting, other.compact)

    report = table.compact()

    assert (report.runs, report.lost_runs) == (0, 1)
    assert rows_of(table).equals(before)
    compacted = {path for path in stored_files(table) if "/compact-" in path}
    assert compacted == listed_files(table)
    assert table.verify(deep=True).ok


def test_appends_go_on_while_a_run_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] Appends in between, and the rolling of pages, do not stop a compaction."""
    table = make_table()
    for number in range(4):
        table.append(events(number * 10, 10))

    def append() -> None:
        with small_limits():
            for number in range(4, 10):
                table.append(events(number * 10, 10))

    meanwhile(monkeypatch, compacting, append)

    report = table.compact()

    assert (report.runs, report.lost_runs) == (1, 0)
    assert rows_of(table).column("n").to_pylist() == list(range(100))
    assert table.verify(deep=True).ok


def test_an_overwrite_wins_over_a_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] [COM-13] What was overwritten does not come back."""
    table = make_table()
    for number in range(4):
        table.append(events(number * 10, 10))
    other = strandline.open_table(table.url)
    meanwhile(monkeypatch, compacting, lambda: other.overwrite(events(100, 1)))

    assert table.compact().lost_runs == 1
    assert rows_of(table).column("n").to_pylist() == [100]


def test_a_delete_looks_again_at_what_was_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """[C4] [COM-14] It covers the rows it read, wherever they are by now, and no newer ones."""
    table = make_table()
    for number in range(4):
        table.append(events(number * 10, 10))
    other = strandline.open_table(table.url)

    def change() -> None:
        other.compact()
        other.append(events(5, 1))

    meanwhile(monkeypatch, deleting, change)

    done = table.delete(filter="n IN (5, 15, 25, 35)")

    assert done.rows == 4
    expected = [n for n in range(40) if n % 10 != 5] + [5]
    assert rows_of(table).column("n").to_pylist() == expected
    compacted = {p for p in stored_files(table) if "/compact-" in p}
    assert listed_files(table) <= stored_files(table)
    assert len(compacted - listed_files(table)) <= 1
    assert table.verify(deep=True).ok


def test_compactors_and_appenders_at_once(tmp_path: Path) -> None:
    """[M7] [C1] [O1] Two compactors, two appenders, one disk: every row once, in order."""
    url = str(tmp_path / "table")
    strandline.create_table(url, SCHEMA, time_column="ts", ttl="1d")
    errors: list[BaseException] = []
    busy = threading.Event()

    def append(start: int) -> None:
        table = strandline.open_table(url)
        for number in range(40):
            table.append(events(start + number * 5, 5))

    def compact() -> None:
        table = strandline.open_table(url)
        while not busy.is_set():
            table.compact()

    def guarded(work: Any, *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - told to the main thread
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    appenders = [guarded(append, start) for start in (0, 1000)]
    compactors = [guarded(compact) for _ in range(2)]
    for thread in appenders:
        thread.join()
    busy.set()
    for thread in compactors:
        thread.join()

    assert not errors
    table = strandline.open_table(url)
    table.compact()
    rows = rows_of(table)
    assert rows.column("_seq").to_pylist() == list(range(400))
    assert sorted(rows.column("n").to_pylist()) == [*range(200), *range(1000, 1200)]
    assert table.files().num_rows == 1
    assert table.verify(deep=True).ok


# --- deletes -----------------------------------------------------------------------------------


def test_a_delete_takes_matching_rows_and_no_others() -> None:
    """[C4] The rows that stay keep their numbers; null is not a match; old versions stay."""
    table = make_table()
    table.append(events(0, 100))
    table.append([{"ts": None, "user": None, "n": None}, {"ts": None, "user": "user-1", "n": 100}])
    version, before = table.version, rows_of(table)

    done = table.delete(filter="user = 'user-1' OR n < 10")

    kept = [i for i in range(102) if not (i % 7 == 1 and i < 100) and i >= 10 and i != 101]
    assert rows_of(table).equals(before.take(kept))
    assert (done.version, done.rows) == (version + 1, 102 - len(kept))
    assert table.manifest.deleted_rows == done.rows
    assert rows_of(strandline.open_table(table.url, version=version)).equals(before)
    assert table.history(1)[0].operation == "delete"
    assert table.verify(deep=True).ok
    assert table.delete(filter="user = 'user-1' OR n < 10").rows == 0
    assert table.version == version + 1


def test_segments_that_match_as_a_whole_are_not_read() -> None:
    """[C4] Stats prove it: the data may even be gone."""
    table = make_table()
    table.append(events(0, 10))
    table.append(events(10, 10))
    first = table.manifest.segments[0]
    TablePlace(table).chain.storage.delete([first.path])

    done = table.delete(filter="n < 10")

    assert (done.rows, done.segments_dropped, done.segments_rewritten) == (10, 1, 0)
    assert rows_of(table).column("n").to_pylist() == list(range(10, 20))


@pytest.mark.parametrize("bad", [{}, {"filter": "nothing = 1"}, {"filter": "n = 'x'"}])
def test_a_delete_that_makes_no_sense_changes_nothing(bad: dict[str, Any]) -> None:
    """[E1] The filter is checked before anything else."""
    table = make_table()
    table.append(events(0, 10))

    with pytest.raises(InvalidInput):
        table.delete(**bad)

    assert table.refresh().version == 2


def test_output_that_differs_from_the_input_is_never_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[M7] [X4] Row count and content hash are compared before the commit."""
    table = make_table()
    for number in range(3):
        table.append(events(number * 10, 10))
    version = table.version
    real = rewriting._sorted  # noqa: SLF001 - the step that goes wrong

    def damaged(rows: pa.Table, *args: Any) -> pa.Table:
        rows = real(rows, *args)
        return rows.set_column(3, "n", pa.array([*range(29), 99]))

    monkeypatch.setattr(rewriting, "_sorted", damaged)

    with pytest.raises(CorruptTable, match="does not hold the rows"):
        table.compact()

    assert table.refresh().version == version
    assert rows_of(table).column("n").to_pylist() == list(range(30))


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_segment_that_cannot_be_read_does_not_stop_the_others(*, is_gone: bool) -> None:
    """[M7] [X4] The other windows are compacted, and then the damage is told."""
    table = make_table()
    for first in range(0, 12000, 1200):
        table.append(events(first, 1200))
    storage = TablePlace(table).chain.storage
    path = min(listed_files(table))
    damaged = bytearray(storage.read(path))
    damaged[len(damaged) // 2] ^= 1
    storage.delete([path])
    if not is_gone:
        storage.write_new(path, damaged).wait()
    windows = len({file.split("/")[0] for file in listed_files(table)})

    with pytest.raises(MissingFile if is_gone else CorruptTable, match=path):
        table.compact()

    left = [file for file in listed_files(table) if "compact-" not in file]
    assert {file.split("/")[0] for file in left} == {path.split("/")[0]}
    assert len(listed_files(table)) == len(left) + windows - 1


# --- against a model ---------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 11), st.integers(1, 5)),
        st.tuples(st.just("compact"), st.sampled_from([None, ["user"], ["n"]]), st.integers(5, 50)),
        st.tuples(st.just("delete"), st.integers(0, 40), st.integers(0, 10)),
        st.tuples(st.just("overwrite"), st.integers(0, 3), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.booleans())
def test_any_sequence_of_changes_gives_the_rows_of_a_list(
    steps: list[tuple[str, Any, int]],
    small: bool,  # noqa: FBT001 - drawn
) -> None:
    """[C1] [C4] [M7] [O1] Appends, compactions, deletes and overwrites against a list of rows."""
    table, model, given_numbers = make_table(), [], 0

    def apply(kind: str, what: Any, size: int) -> None:
        nonlocal model, given_numbers
        if kind == "append":
            first = what * 3600 + given_numbers
            table.append(events(first, size))
            model += [(first + i, given_numbers + i) for i in range(size)]
            given_numbers += size
        elif kind == "compact":
            table.compact(what, target_rows=size)
        elif kind == "delete":
            done = table.delete(filter=f"_seq >= {what} AND _seq < {what + size}")
            left = [row for row in model if not what <= row[1] < what + size]
            assert done.rows == len(model) - len(left)
            model = left
        else:
            table.overwrite(events(what, what) if what else [])
            model = [(what + i, given_numbers + i) for i in range(what)]
            given_numbers += what

    for step in steps:
        if small:
            with small_limits():
                apply(*step)
        else:
            apply(*step)
        rows = table.scan(["n", "_seq"]).to_arrow()
        found = zip(rows.column("n").to_pylist(), rows.column("_seq").to_pylist(), strict=True)
        assert list(found) == model
    assert table.tail().next_seq == given_numbers
    assert table.verify(deep=True).problems == ()


# --- writers that compact behind themselves ----------------------------------------------------


@pytest.mark.parametrize("auto_compact", [False, 4])
def test_a_writer_compacts_behind_itself_if_asked_to(auto_compact: Any) -> None:
    """[M7] [T1] Off by default; with it, small flushes do not pile up, and no row is lost."""
    table = make_table()
    with table.writer("w", wal=False, ack="committed", auto_compact=auto_compact) as writer:
        for number in range(12):
            writer.append(events(number, 1)).wait()

    assert rows_of(table).column("n").to_pylist() == list(range(12))
    files = table.files().num_rows
    assert files == 12 if not auto_compact else files < 6
    assert table.verify(deep=True).ok


def test_a_compaction_that_fails_does_not_fail_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E4] The rows are committed; the segments stay as they are."""

    def broken(*_: Any, **__: Any) -> Any:
        raise CorruptTable("planted")

    monkeypatch.setattr(compacting, "rewrite", broken)
    table = make_table()
    with table.writer("w", wal=False, ack="committed", auto_compact=2) as writer:
        for number in range(4):
            writer.append(events(number, 1)).wait()

    assert rows_of(table).column("n").to_pylist() == list(range(4))
    assert table.files().num_rows == 4


def test_nobody_waits_for_the_compaction_behind_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """[T1] [E4] The rows are in the table, and their receipt says so, before it begins."""
    begun, go_on = threading.Event(), threading.Event()
    compact_newest = compacting.compact_newest

    def held(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return compact_newest(*given)

    monkeypatch.setattr(compacting, "compact_newest", held)
    table = make_table()
    with table.writer("w", wal=False, ack="committed", auto_compact=2) as writer:
        try:
            writer.append(events(0, 1))
            writer.append(events(1, 1)).wait(PATIENCE_S)
            assert begun.wait(PATIENCE_S)
            assert writer.stats().sync_state == "in_sync"
        finally:
            go_on.set()
    assert rows_of(table).column("n").to_pylist() == [0, 1]
    assert table.files().num_rows == 1


def test_compaction_waits_while_rows_wait_for_their_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E14] [T1] A queue that is a quarter full is emptied first; then segments are compacted."""
    found: list[int] = []

    def note(place: Any, _: int) -> None:
        found.append(len(place.head.manifest.segments))

    monkeypatch.setattr(compacting, "compact_newest", note)
    with without_threads():
        writer = make_table().writer(
            "w",
            wal=False,
            ack="buffered",
            auto_compact=2,
            flush_age="1h",
            memory_bytes=2_000,
            flush_rows=2,
        )
        for n in range(6):
            writer.append(event(n))
        for _ in range(3):
            flush_once(writer)
        close_now(writer)

    assert found == [3]


@pytest.mark.parametrize("bad", [-1, 0.5, "yes"])
def test_auto_compact_is_a_switch_or_a_number(bad: Any) -> None:
    """[E1] The error names the option."""
    with pytest.raises(InvalidInput, match="auto_compact"):
        make_table().writer("w", wal=False, ack="committed", auto_compact=bad)
