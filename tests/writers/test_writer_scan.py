"""A writer's own scan: what is committed and, behind it, what it has taken and not committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat.errors import StorageFailed
from tests.tables import START_MS, Script, events
from tests.writers.rigs import PATIENCE_S, Rig, ended, event, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.writers.writer import Writer

LATER = {"flush_age": "1h"}


@pytest.fixture
def rig() -> Rig:
    """A table in memory."""
    return Rig()


@pytest.fixture
def writer(rig: Rig, tmp_path: Path) -> Iterator[Writer]:
    """Ten rows committed by somebody, five unflushed in two memtables of ours."""
    rig.table.append(events(0, 10))
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        for n in range(10, 13):
            writer.append(event(n))
        writer.append(events(13, 2))
        yield writer


def test_unflushed_rows_come_behind_committed_ones(rig: Rig, writer: Writer) -> None:
    """[E4] In order, also after more of both; the table itself sees only what is committed."""
    assert numbers(writer.scan()) == list(range(15))
    assert numbers(rig.open().scan()) == list(range(10))
    rig.open().append(events(100, 1))
    assert numbers(writer.scan()) == [*range(10), 100, *range(10, 15)]
    writer.flush(PATIENCE_S)
    assert numbers(writer.scan()) == numbers(rig.open().scan()) == [*range(10), 100, *range(10, 15)]


@pytest.mark.parametrize(
    "request_",
    [
        {"filter": "n >= 8 AND n < 14"},
        {"filter": "user = 'user-3'"},
        {"filter": "amount IS NULL"},
        {"filter": "_seq > 11"},
        {"columns": ["n"]},
        {"columns": ["n", "_seq", "_ts", "_window"]},
        {"columns": ["_ts", "n"], "filter": "user != 'user-0'"},
        {"columns": ["n"], "limit": 12},
        {"columns": ["n"], "limit": 3},
        {"columns": ["n"], "limit": 0},
        {"columns": ["n"], "start_seq": 9, "end_seq": 12},
        {"columns": ["n"], "start_ts": START_MS + 9_000, "end_ts": START_MS + 13_000},
        {"columns": ["n"], "filter": "n > 12", "limit": 1},
    ],
    ids=str,
)
def test_every_request_answers_as_if_the_rows_were_committed(
    rig: Rig, writer: Writer, request_: dict[str, Any]
) -> None:
    """[E4] Filters, columns, hidden columns, bounds and limits see unflushed rows like others."""
    before = writer.scan(**request_).to_arrow()
    writer.flush(PATIENCE_S)

    after = rig.open().scan(**request_).to_arrow()

    assert before.schema == after.schema
    assert before.to_pylist() == after.to_pylist()
    assert writer.scan(**request_).to_arrow().to_pylist() == after.to_pylist()


def test_batches_give_the_same_rows(writer: Writer) -> None:
    """[E4] A scan can be read piece by piece."""
    batches = list(writer.scan(columns=["n"]).to_batches())
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(15))
    assert "unflushed: 5 rows" in writer.scan().explain()


def test_rows_are_seen_once_while_their_commit_is_on_its_way(rig: Rig, writer: Writer) -> None:
    """[E4] Before the commit lands, after it landed and before we know, and afterwards."""
    with rig.gate() as gate:
        writer._buffers.ask_for(writer._buffers.active)  # noqa: SLF001 - as a receipt does
        gate.wait()
        writer.append(event(15))
        assert numbers(writer.scan()) == list(range(16))
        assert numbers(rig.open().scan()) == list(range(10))
    writer.flush(PATIENCE_S)
    assert numbers(writer.scan()) == list(range(16))


def test_rows_are_seen_once_when_the_commit_has_landed_and_nobody_told_us(
    rig: Rig, writer: Writer
) -> None:
    """[E4] The table's own position of this writer decides, not what the writer believes."""
    with rig.gate("never") as gate:
        landed = type(gate)("put_if_absent")
        rig.store.after = landed
        writer._buffers.ask_for(writer._buffers.active)  # noqa: SLF001
        landed.wait()
        assert numbers(rig.open().scan()) == list(range(15))
        assert numbers(writer.scan()) == list(range(15))
        rig.store.after = lambda *_: None
        landed.opened.set()
    writer.flush(PATIENCE_S)
    assert numbers(writer.scan()) == list(range(15))


def test_a_memtable_that_is_half_committed_is_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E4] Its rows need two commits, and the second one fails for a while."""
    monkeypatch.setattr("strandline.writers.flusher.FIRST_PAUSE_S", 0.001)
    rig = Rig(ttl="1d")
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        for i in range(2):
            writer.append(events(200 * i, 200, step_ms=3_600_000))
        with rig.gate() as gate:
            first_commit = rig.store.before
            commits = 0

            def second_fails(name: str, path: str) -> None:
                nonlocal commits
                if name == "put_if_absent":
                    commits += 1
                    if commits == 2:
                        raise StorageFailed("down for a moment")
                    if commits == 3:
                        first_commit(name, path)

            rig.store.before = second_fails
            writer._buffers.ask_for(writer._buffers.active)  # noqa: SLF001
            gate.wait()
            assert numbers(rig.open().scan()) == list(range(200))
            assert numbers(writer.scan()) == list(range(400))
            assert writer.scan(columns=["n", "_seq"]).to_arrow().column("_seq").to_pylist() == list(
                range(400)
            )
        writer.flush(PATIENCE_S)
    assert numbers(rig.open().scan()) == list(range(400))


def test_a_clamped_table_shows_the_times_that_rows_will_get(tmp_path: Path) -> None:
    """[E4] `_ts` never goes back, among unflushed rows and behind the tail."""
    script = Script()
    rig = Rig(script.runtime(), order="clamp")
    rig.table.append(events(10, 1))
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        for n in (5, 20, 7):
            writer.append(event(n))
        before = writer.scan(columns=["n", "_ts"]).to_arrow().to_pylist()
        writer.flush(PATIENCE_S)
    assert [row["_ts"] - START_MS for row in before] == [10_000, 10_000, 20_000, 20_000]
    assert rig.open().scan(columns=["n", "_ts"]).to_arrow().to_pylist() == before


def test_a_writer_that_was_replaced_shows_what_is_committed(rig: Rig, writer: Writer) -> None:
    """[E4] [O8] Its rows are in its log; nobody knows where they will land."""
    other = rig.open().writer("w", wal=False, ack="committed")
    other.append(event(50))
    with pytest.raises(strandline.WriterFenced):
        writer.flush(PATIENCE_S)
    ended(writer)
    assert numbers(writer.scan()) == [*range(10), 50]
    assert writer.stats().rows_pending == 5
    other.close()


def test_a_scan_is_one_moment(rig: Rig, writer: Writer) -> None:
    """[E4] Rows that come after it was made do not appear in it."""
    scan = writer.scan()
    writer.append(event(15))
    rig.open().append(events(200, 3))
    writer.flush(PATIENCE_S)
    assert numbers(scan) == list(range(15))
