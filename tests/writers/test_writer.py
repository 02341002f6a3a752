"""A writer takes rows from any thread, commits them in order, and says where they are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from strandline.tableformat import paths
from tests.tables import SCHEMA, Script, events
from tests.writers.rigs import (
    PATIENCE_S,
    Rig,
    ended,
    event,
    in_threads,
    log_names,
    logged,
    numbers,
)

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.writers.receipts import Receipt
    from tests.tables import Place

LATER = {"flush_age": "1h"}
"""Nothing is committed before it is asked for."""


def append_sizes(table: strandline.Table) -> list[int]:
    """Rows of each append, oldest first."""
    return [r.rows for r in reversed(table.refresh().history()) if r.operation == "append"]


# --- receipts ---------------------------------------------------------------------------------


def test_a_receipt_tells_the_exact_sequence_numbers(place: Place, tmp_path: Path) -> None:
    """[E2] [E4] One row, a batch, an Arrow table: each is told where its own rows are."""
    table = place.create()
    table.append(events(100, 2))
    with table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipts = [
            writer.append(event(0)),
            writer.append([event(1), event(2), event(3)]),
            writer.append(events(4, 2)),
        ]
        assert [r.state for r in receipts] == ["pending"] * 3
        done = [receipt.wait(PATIENCE_S) for receipt in receipts]

    assert [(c.first_seq, c.last_seq, c.rows, c.dropped) for c in done] == [
        (2, 2, 1, 0),
        (3, 5, 3, 0),
        (6, 7, 2, 0),
    ]
    assert {c.version for c in done} == {place.open().version}
    assert [r.record for r in receipts] == [1, 2, 3]
    assert [r.state for r in receipts] == ["committed"] * 3
    assert numbers(place.open().scan()) == [100, 101, 0, 1, 2, 3, 4, 5]


def test_receipts_of_many_threads_tell_each_its_own(tmp_path: Path) -> None:
    """[E2] [O9] Rows of four threads interleave; every receipt points at exactly its rows."""
    rig = Rig()
    told: list[tuple[list[int], Receipt]] = []

    def produce(worker: int) -> None:
        for i in range(60):
            first = 1000 * worker + 10 * i
            mine = list(range(first, first + 1 + i % 3))
            rows: Any = event(first) if len(mine) == 1 else [event(n) for n in mine]
            told.append((mine, writer.append(rows)))

    with rig.table.writer("w", wal=tmp_path / "wal", flush_rows=50, **LATER) as writer:
        in_threads(*[lambda w=w: produce(w) for w in range(4)])
        writer.flush(PATIENCE_S)
        stored = numbers(rig.open().scan())
        for mine, receipt in told:
            commit = receipt.wait(PATIENCE_S)
            assert stored[commit.first_seq : commit.last_seq + 1] == mine
            assert commit.rows == len(mine)
    assert len(stored) == sum(len(mine) for mine, _ in told)
    for worker in range(4):
        mine = [n for n in stored if n // 1000 == worker]
        assert mine == sorted(mine)
    assert sum(append_sizes(rig.open())) == len(stored)
    assert sorted(r.record for _, r in told) == list(range(1, 241))


def test_waiting_for_an_old_receipt_does_not_forget_a_newer_one(tmp_path: Path) -> None:
    """[O9] Two threads wait, the second for rows that are on their way already."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", passive_memtables=1, **LATER) as w:
        with rig.gate() as gate:
            on_its_way = w.append(event(0))
            w._buffers.ask_for(on_its_way._memtable)  # noqa: SLF001
            gate.wait()
            filling = w.append(event(1))
            w._buffers.ask_for(filling._memtable)  # noqa: SLF001 - what wait() begins with
            w._buffers.ask_for(on_its_way._memtable)  # noqa: SLF001
        assert filling._memtable.settled.wait(PATIENCE_S)  # noqa: SLF001
    assert numbers(rig.open().scan()) == [0, 1]


def test_appending_nothing_commits_nothing(tmp_path: Path) -> None:
    """[M6] No record, no version, and a receipt that says so."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", ack="committed") as writer:
        version = rig.table.version
        for nothing in ([], events(0, 0), SCHEMA.empty_table()):
            commit = writer.append(nothing).wait(PATIENCE_S)
            assert (commit.rows, commit.first_seq, commit.last_seq) == (0, 0, -1)
        assert writer.stats().records == 0
    assert rig.open().version == version


# --- what an acknowledgement means --------------------------------------------------------------


def test_ack_wal_returns_when_the_record_is_in_the_log(tmp_path: Path) -> None:
    """[E2] The file holds the rows before the append returns; the table does not yet."""
    rig = Rig()
    options: tuple[Any, ...] = (tmp_path, {"buffered": True}, {"fsync": True})
    for index, wal in enumerate(options):
        folder = tmp_path / str(index)
        given = folder if wal is tmp_path else {"dir": folder, **wal}
        with rig.table.writer(f"w{index}", wal=given, **LATER) as writer:
            receipt = writer.append(event(2 * index))
            writer.append([event(2 * index + 1)])
            assert logged(folder) == [2 * index, 2 * index + 1]
            assert not receipt.done
            assert rig.open().tail().next_seq == 2 * index


@pytest.mark.parametrize("wal", [True, False])
def test_ack_committed_returns_when_the_rows_are_in_the_table(tmp_path: Path, *, wal: bool) -> None:
    """[E2] With a log and without one; nobody waits for `flush_age`."""
    rig = Rig()
    log = tmp_path / "wal" if wal else False
    with rig.table.writer("w", wal=log, ack="committed", **LATER) as writer:
        receipt = writer.append(event(0))
        assert receipt.done
        assert numbers(rig.open().scan()) == [0]
        assert writer.append([event(1), event(2)]).wait().last_seq == 2
    assert numbers(rig.open().scan()) == [0, 1, 2]


def test_ack_committed_of_many_threads_shares_commits(tmp_path: Path) -> None:
    """[O9] Those who wait while a commit runs are in the next one together."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", ack="committed", **LATER) as writer:
        with rig.gate() as gate:
            jobs = [threading.Thread(target=writer.append, args=(event(n),)) for n in range(9)]
            jobs[0].start()
            gate.wait()
            for job in jobs[1:]:
                job.start()
            while writer.stats().records < 9:
                assert rig.open().tail().next_seq == 0
        for job in jobs:
            job.join(PATIENCE_S)
    sizes = append_sizes(rig.open())
    assert sizes[0] == 1
    assert sum(sizes) == 9
    assert len(sizes) <= 3


def test_ack_buffered_is_written_soon_and_committed_like_any_other(tmp_path: Path) -> None:
    """[E2] Without further calls, the flusher brings gathered records to the log."""
    rig = Rig()
    wal = {"dir": tmp_path / "wal", "buffered": True}
    with rig.table.writer("w", wal=wal, ack="buffered", **LATER) as writer:
        for n in range(5):
            writer.append(event(n))
        writer.flush(PATIENCE_S)
        assert numbers(rig.open().scan()) == [0, 1, 2, 3, 4]


# --- when rows are committed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"flush_rows": 10}, [10, 10]),
        ({"flush_records": 4}, [4, 4, 4, 4, 4, 4]),
        ({"flush_bytes": 3_000}, None),
    ],
)
def test_a_full_memtable_is_committed_without_being_asked(
    tmp_path: Path, options: dict[str, Any], sizes: list[int] | None
) -> None:
    """[E4] By rows, by records, by bytes; what does not fill one stays for later."""
    rig = Rig()
    with rig.table.writer(
        "w", wal=tmp_path / "wal", passive_memtables=9, **options, **LATER
    ) as writer:
        receipts = [writer.append(event(n)) for n in range(25)]
        full = sum(sizes) if sizes else 20
        assert receipts[full - 1]._memtable.settled.wait(PATIENCE_S)  # noqa: SLF001
        found = append_sizes(rig.open())
        pending = writer.stats().rows_pending
    if sizes is not None:
        assert (found, pending) == (sizes, 25 - full)
    else:
        assert len(found) > 1
        assert 0 < pending < 25
    assert numbers(rig.open().scan()) == list(range(25))


def test_rows_wait_for_others_until_they_are_old_enough(tmp_path: Path) -> None:
    """[E4] [T9] The clock is the runtime's: a test moves it by hand."""
    script = Script()
    rig = Rig(script.runtime())
    committed = threading.Event()
    rig.store.after = lambda name, _: committed.set() if name == "put_if_absent" else None
    with rig.table.writer("w", wal=tmp_path / "wal", flush_age="10s") as writer:

        def look_again() -> None:
            with writer._buffers.changed:  # noqa: SLF001 - the clock does not tick by itself
                writer._buffers.changed.notify_all()  # noqa: SLF001

        writer.append(event(0))
        committed.clear()
        script.now += 9_999
        look_again()
        assert numbers(writer.scan()) == [0]
        assert not committed.is_set()
        script.now += 1
        look_again()
        assert committed.wait(PATIENCE_S)
    assert append_sizes(rig.open()) == [1]


def test_a_flush_is_whole_zones(tmp_path: Path) -> None:
    """[E5] 32,768 rows by default are one commit of one file; the next row waits for the next."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipt = writer.append(event(0))
        for first in range(1, 32_768, 4_681):
            writer.append(events(first, 4_681))
        writer.append(event(32_768))
        assert receipt._memtable.settled.wait(PATIENCE_S)  # noqa: SLF001
        assert append_sizes(rig.open()) == [32_768]
        assert writer.stats().rows_pending == 1
    assert rig.open().files().column("row_count").to_pylist() == [32_768, 1]


def test_too_many_windows_together_become_several_commits(tmp_path: Path) -> None:
    """[E4] Each append is taken; the flush cuts between records, and receipts know where."""
    rig = Rig(ttl="1d")
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipts = [writer.append(events(200 * i, 200, step_ms=3_600_000)) for i in range(3)]
        receipts.append(writer.append(event(0)))
        done = [receipt.wait(PATIENCE_S) for receipt in receipts]
        assert writer.stats().commits == len({c.version for c in done}) == 3
    assert [(c.first_seq, c.last_seq) for c in done] == [
        (0, 199),
        (200, 399),
        (400, 599),
        (600, 600),
    ]
    assert numbers(rig.open().scan()) == [*range(600), 0]


def test_appending_writes_no_manifest_and_a_flush_writes_one(tmp_path: Path) -> None:
    """[M6] Only the flush talks to the store."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        rig.store.names()
        for n in range(50):
            writer.append(event(n))
            writer.append([event(n)])
        assert rig.store.names() == []
        writer.flush(PATIENCE_S)
        manifests = [p for name, p in rig.store.calls if name == "put_if_absent"]
    assert manifests == [paths.manifest_path(3)]


# --- the log follows the memtables ----------------------------------------------------------------


def test_the_log_rotates_with_the_memtable_and_is_pruned_after_the_commit(tmp_path: Path) -> None:
    """[E3] One file per memtable; a file goes when its commit is confirmed, not before."""
    rig = Rig()
    folder = tmp_path / "wal"
    writer = rig.table.writer("w", wal=folder, flush_rows=2, **LATER)
    with rig.gate() as gate:
        for n in range(5):
            writer.append(event(n))
        gate.wait()
        names = log_names(folder)
        assert len(names) == 3
        assert logged(folder) == [0, 1, 2, 3, 4]
    writer.flush(PATIENCE_S)
    assert logged(folder)[-1:] in ([], [4])
    writer.append(event(5))
    writer.flush(PATIENCE_S)  # what follows a commit is done before the next one
    assert not set(names[:2]) & set(log_names(folder))
    assert writer.close().committed
    ended(writer)
    assert log_names(folder) == []
    assert numbers(rig.open().scan()) == list(range(6))


# --- columns that change ------------------------------------------------------------------------


def test_columns_that_somebody_adds_are_known_at_the_first_row_that_needs_them(
    tmp_path: Path,
) -> None:
    """[E1] [E4] Rows of both schemas, in order, in one writer; no restart."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipts = [writer.append(event(0)), writer.append([event(1)])]
        rig.open().evolve(add={"extra": "int64"}, rename={"amount": "price"})
        receipts.append(writer.append({"n": 2, "price": 1.0, "extra": 7, "ts": event(2)["ts"]}))
        receipts.append(
            writer.append({"n": 3, "extra": 8, "price": 2.0, "ts": event(3)["ts"], "user": "x"})
        )
        found = writer.scan(columns=["n", "price", "extra", "_seq"]).to_arrow().to_pylist()
        assert [tuple(row.values()) for row in found] == [
            (0, 0.0, None, 0),
            (1, 0.25, None, 1),
            (2, 1.0, 7, 2),
            (3, 2.0, 8, 3),
        ]
        done = [receipt.wait(PATIENCE_S) for receipt in receipts]
        with pytest.raises(strandline.InvalidRow, match="amount"):
            writer.append(event(4))
    assert [c.first_seq for c in done] == [0, 1, 2, 3]
    stored = rig.open().scan(columns=["n", "price", "extra", "_seq"]).to_arrow().to_pylist()
    assert stored == found


def test_columns_change_while_threads_append(tmp_path: Path) -> None:
    """[E4] Nobody's row ends up under another's column."""
    rig = Rig(schema=pa.schema([("a", pa.int64()), ("b", pa.int64())]), time_column=None)
    with rig.table.writer("w", wal=tmp_path / "wal", flush_rows=64, **LATER) as writer:

        def produce(first: int) -> None:
            for n in range(first, first + 400):
                names = ["a", "b"] + [f"c{k}" for k in range(n % 400 // 100)]
                writer.append({name: 10 * n + i for i, name in enumerate(names)})

        rig.open().evolve(add={"c0": "int64"}, reorder=["c0"])
        rig.open().evolve(add={"c1": "int64"}, reorder=["c1", "b"])
        rig.open().evolve(add={"c2": "int64"}, reorder=["b", "c2"])
        in_threads(*[lambda k=k: produce(1000 * k) for k in range(3)])
    rows = rig.open().scan().to_arrow().to_pylist()
    assert len(rows) == 1200
    for row in rows:
        n = row["a"] // 10
        expected = {"a": 10 * n, "b": 10 * n + 1}
        expected |= {f"c{k}": 10 * n + 2 + k if k < n % 400 // 100 % 10 else None for k in range(3)}
        assert row == expected


# --- leaving ------------------------------------------------------------------------------------


def test_close_commits_and_says_so_and_can_be_repeated(place: Place, tmp_path: Path) -> None:
    """[T9] After it nothing is taken and no log is left."""
    table = place.create()
    with table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(event(0))
        report = writer.close()
        assert report.committed
        assert (report.rows_left, report.records_left, str(report)) == (
            0,
            0,
            "everything is committed",
        )
        assert writer.close() is report
        with pytest.raises(strandline.WriterClosed):
            writer.append(event(1))
        assert writer.sync_state == "in_sync"
    assert log_names(tmp_path / "wal") == []
    assert numbers(place.open().scan()) == [0]


def test_a_writer_without_a_name_is_called_like_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log lies in a folder of the user's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("socket.gethostname", lambda: "sensor-7")
    rig = Rig()
    with rig.table.writer(**LATER) as writer:
        writer.append(event(0))
        assert writer.writer_id == "sensor-7"
        assert "sensor-7" in repr(writer)
        (folder,) = (tmp_path / "state" / "strandline" / "wal" / rig.table.uuid).iterdir()
        assert logged(folder) == [0]


def test_stats_add_up(tmp_path: Path) -> None:
    """[T5] Taken, committed, pending, and what the log did."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", flush_rows=10, **LATER) as writer:
        for n in range(12):
            receipt = writer.append([event(n), event(n)])
            if n == 9:
                receipt.wait(PATIENCE_S)
        stats = writer.stats()
    assert (stats.rows, stats.records, stats.rows_committed, stats.rows_pending) == (24, 12, 20, 4)
    assert stats.commits == len(append_sizes(rig.open())) - 1
    assert stats.sync_state == "pending_write"
    assert (stats.blocked, stats.retries, stats.last_error, stats.recovered_records) == (
        0,
        0,
        None,
        0,
    )
    assert stats.wal_bytes > 12 * 20
    assert stats.to_json()["rows"] == 24
