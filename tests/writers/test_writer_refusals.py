"""What a writer does not take: rows, options and timeouts, refused before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from tests.edited import commit_by_hand
from tests.tables import START_MS, events
from tests.writers.rigs import (
    PATIENCE_S,
    Rig,
    event,
    logged,
    numbers,
)

if TYPE_CHECKING:
    from pathlib import Path


LATER = {"flush_age": "1h"}
"""Nothing is committed before it is asked for."""


def test_what_is_refused_reaches_neither_log_nor_table(tmp_path: Path) -> None:
    """[E1] Unknown, wrong type, not a row: the error names row and field, the rest goes on."""
    rig = Rig()
    folder = tmp_path / "wal"
    with rig.table.writer("w", wal=folder, **LATER) as writer:
        writer.append(event(0))
        refused: tuple[tuple[Any, str], ...] = (
            (event(1, extra=1), "extra"),
            (event(1, n="one"), "row 0, field 'n'"),
            (event(1, user="\ud800"), "user"),
            (event(1, n=2**63), "n"),
            ([event(1), event(2, amount="x")], "row 1, field 'amount'"),
            (pa.table({"other": [1]}), "other"),
            ("text", "rows are"),
            (None, "rows are"),
            (event(1, ts=event(0)["ts"].replace(year=1969)), "1970"),
        )
        for rows, named in refused:
            with pytest.raises(strandline.InvalidInput, match=named):
                writer.append(rows)
        writer.append(event(1))
        assert logged(folder) == [0, 1]
        assert writer.stats().records == 2
    assert numbers(rig.open().scan()) == [0, 1]


@pytest.mark.parametrize("as_batch", [False, True])
def test_rows_below_the_floor_are_refused_before_they_are_logged(
    tmp_path: Path, *, as_batch: bool
) -> None:
    """[T4] [LATE-3] on_late='error': a single row is looked at like a batch."""
    rig = Rig(url=str(tmp_path / "table"), on_late="error")
    commit_by_hand(rig.open(), floor_ts=START_MS + 5_000)
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        with pytest.raises(strandline.LateRows):
            writer.append([event(4), event(5)] if as_batch else event(4))
        assert logged(tmp_path / "wal") == []
        assert writer.append([event(5)] if as_batch else event(5)).wait(PATIENCE_S).dropped == 0
    assert numbers(rig.open().scan()) == [5]


@pytest.mark.parametrize("rises", ["before", "between"])
def test_rows_below_the_floor_are_dropped_and_counted(tmp_path: Path, rises: str) -> None:
    """[T4] [T5] Whether the floor was there or rises after the rows were acknowledged."""
    rig = Rig(url=str(tmp_path / "table"))
    if rises == "before":
        commit_by_hand(rig.open(), floor_ts=START_MS + 5_000)
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipts = [writer.append(event(n)) for n in (3, 7, 4)]
        receipts.append(writer.append([event(2), event(8)]))
        if rises == "between":
            commit_by_hand(rig.open(), floor_ts=START_MS + 5_000)
        done = [receipt.wait(PATIENCE_S) for receipt in receipts]
        stats = writer.stats()
    assert [(c.rows, c.dropped) for c in done] == [(0, 1), (1, 0), (0, 1), (1, 1)]
    assert [c.first_seq for c in done if c.rows] == [0, 1]
    assert (stats.rows, stats.rows_committed, stats.dropped_late_rows) == (5, 2, 3)
    assert numbers(rig.open().scan()) == [7, 8]


def test_too_many_windows_in_one_append_are_refused(tmp_path: Path) -> None:
    """[E1] No commit could take them; nothing is logged."""
    rig = Rig(ttl="1d")
    rows = events(0, 300, step_ms=3_600_000)
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        with pytest.raises(strandline.TooManyWindows):
            writer.append(rows)
        assert logged(tmp_path / "wal") == []


@pytest.mark.parametrize(
    "options",
    [
        {"ack": "soon"},
        {"wal": False},
        {"wal": 5},
        {"wal": {"no_such": 1}},
        {"wal": {"fsync": "yes"}},
        {"wal": {"fsync_every_n": 0}},
        {"wal": {"buffer_size": -1}},
        {"flush_rows": 0},
        {"flush_bytes": 1.5},
        {"flush_records": 0},
        {"memory_bytes": True},
        {"passive_memtables": 0},
        {"timeout_s": -1},
        {"timeout_s": "1"},
        {"close_timeout_s": float("nan")},
        {"flush_age": "soon"},
        {"flush_age": 5},
        {"no_such": 1},
        {"fence": ""},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    """[E1] By name, before anything is opened or claimed."""
    rig = Rig()
    with pytest.raises(strandline.InvalidInput):
        rig.table.writer("w", **options)
    assert rig.open().version == 1


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True, [2]], ids=str)
def test_a_timeout_that_is_no_time_is_refused(tmp_path: Path, timeout: Any) -> None:
    """[E1] By append, wait, flush and close; the rows before it are committed all the same."""
    rig = Rig()
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        receipt = writer.append(event(1))
        calls = (
            lambda: writer.append(event(2), timeout=timeout),
            lambda: receipt.wait(timeout),
            lambda: writer.flush(timeout),
            lambda: writer.close(timeout),
        )
        for call in calls:
            with pytest.raises(strandline.InvalidInput, match="timeout must be seconds"):
                call()
    assert rig.open().tail().next_seq == 1


def test_a_pinned_table_has_no_writer() -> None:
    """It reads one version."""
    rig = Rig()
    with pytest.raises(strandline.ReadOnlyTable):
        strandline.open_table(rig.url, version=1).writer("w")
