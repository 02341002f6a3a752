"""Late rows through a writer: measured by key, over many flushes, other writers and restarts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from tests.edited import commit_by_hand
from tests.tables import START_MS
from tests.writers.rigs import PATIENCE_S, Rig, event, log_names, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

LATER = {"flush_age": "1h"}
JITTER_MS = 2_000


def row(n: int, ms: int, user: str = "ann") -> dict[str, Any]:
    """Row `n`, so many milliseconds behind the start."""
    return event(0, n=n, user=user) | {"ts": event(0)["ts"] + timedelta(milliseconds=ms)}


def files(table: Table) -> dict[str, list[int]]:
    """Kinds of data files, with the rows that each holds, as counts."""
    found: dict[str, list[int]] = {}
    for file in table.files().to_pylist():
        kind = file["path"].rpartition("/")[2].partition("-")[0]
        found.setdefault(kind, []).append(file["row_count"])
    return found


def test_each_key_has_its_own_mark_and_exact_boundaries(tmp_path: Path) -> None:
    """[T3] [T5] Equal is normal, the jitter's boundary is jitter, one millisecond more is late."""
    rig = Rig(ttl="7d", shard_by="user", shards=4, jitter_ms=JITTER_MS)
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append([row(0, 10_000), row(1, 500_000, "bob")]).wait(PATIENCE_S)
        for n, ms in ((2, 10_000), (3, 10_000 - JITTER_MS), (4, 9_999)):
            writer.append(row(n, ms)).wait(PATIENCE_S)
        stats = writer.stats()
        assert (stats.late_rows, stats.jitter_rows) == (0, 2)
        assert "late" not in files(rig.open())

        writer.append(row(5, 10_000 - JITTER_MS - 1)).wait(PATIENCE_S)
        writer.append(row(6, 400_000, "bob")).wait(PATIENCE_S)
        writer.append(row(7, 10_001)).wait(PATIENCE_S)
        stats = writer.stats()

    assert (stats.late_rows, stats.jitter_rows, stats.dropped_late_rows) == (2, 2, 0)
    assert files(rig.open())["late"] == [1, 1]
    assert numbers(rig.open().scan()) == list(range(8))


def test_the_table_is_the_key_where_there_is_none(tmp_path: Path) -> None:
    """[T3] Its newest row may be another writer's, whose commits this one has seen."""
    rig = Rig(ttl="7d", jitter_ms=JITTER_MS)
    with (
        rig.table.writer("a", wal=tmp_path / "a", **LATER) as writer,
        rig.open().writer("b", wal=tmp_path / "b", **LATER) as other,
    ):
        writer.append(row(0, 10_000)).wait(PATIENCE_S)
        other.append(row(1, 60_000)).wait(PATIENCE_S)
        writer.append(row(2, 60_000)).wait(PATIENCE_S)
        other.append(row(3, 90_000)).wait(PATIENCE_S)
        assert numbers(writer.scan()) == [0, 1, 2, 3]  # it looks at the table
        writer.append(row(4, 90_000 - JITTER_MS - 1)).wait(PATIENCE_S)
        assert writer.stats().late_rows == 1
    assert files(rig.open())["late"] == [1]


def test_marks_survive_a_restart(tmp_path: Path) -> None:
    """[T3] One per shard is in the manifest: late rows are late for the next process too."""
    rig = Rig(ttl="7d", shard_by="user", jitter_ms=JITTER_MS)
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(row(0, 10_000)).wait(PATIENCE_S)

    with rig.open().writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(row(1, 10_000 - JITTER_MS)).wait(PATIENCE_S)
        writer.append(row(2, 10_000 - JITTER_MS - 1, "new")).wait(PATIENCE_S)
        stats = writer.stats()

    assert (stats.late_rows, stats.jitter_rows) == (1, 1)
    assert files(rig.open())["late"] == [1]
    assert numbers(rig.open().scan()) == [0, 1, 2]


@pytest.mark.parametrize("as_batch", [False, True])
def test_a_table_that_begins_to_refuse_late_rows_is_heard(
    tmp_path: Path, *, as_batch: bool
) -> None:
    """[T4] `on_late` and the floor are those of the newest version that the writer knows."""
    rig = Rig(url=str(tmp_path / "table"), ttl="7d")
    with rig.table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(event(10)).wait(PATIENCE_S)
        rig.open().set(on_late="error")
        commit_by_hand(rig.open(), floor_ts=START_MS + 5_000)
        writer.append(event(11)).wait(PATIENCE_S)
        before = writer.stats().records

        with pytest.raises(strandline.LateRows):
            writer.append([event(4)] if as_batch else event(4))

        assert writer.stats().records == before
        writer.append([event(5)] if as_batch else event(5)).wait(PATIENCE_S)
    assert numbers(rig.open().scan()) == [10, 11, 5]
    assert log_names(tmp_path / "wal") == []
