"""Records that fit one commit, and memtables that need several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from strandline.tableformat.errors import InvalidInput, TooManyWindows
from tests.tables import START_MS

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

HOUR_MS = 3_600_000


def make(tmp_path: Path, **config: Any) -> Table:
    """A table with windows of an hour."""
    return strandline.create_table(
        tmp_path / "t", {"ts": "int64", "k": "int64"}, time_column="ts", ttl="1d", **config
    )


def spread(windows: int, keys: int) -> pa.Table:
    """One row for every window and key."""
    return pa.table(
        {
            "ts": [START_MS + w * HOUR_MS for w in range(windows) for _ in range(keys)],
            "k": [k for _ in range(windows) for k in range(keys)],
        }
    )


def test_a_record_of_too_many_windows_is_refused_at_once(tmp_path: Path) -> None:
    """[E1] Once acknowledged it could never be committed."""
    table = make(tmp_path)
    with table.writer("p", wal=tmp_path / "wal") as writer:
        with pytest.raises(TooManyWindows):
            writer.append(spread(257, 1))
        assert writer.append(spread(256, 1)).wait().rows == 256

    assert table.scan().count() == 256


@pytest.mark.parametrize("jitter_ms", [None, 0])
def test_a_record_of_too_many_files_is_refused_at_once(
    tmp_path: Path, jitter_ms: int | None
) -> None:
    """[E1] [T6] Windows times shards count, and late rows may double them."""
    table = make(tmp_path, shard_by="k", shards=64, shard_hash="mask", jitter_ms=jitter_ms)
    with table.writer("p", wal=tmp_path / "wal") as writer:
        with pytest.raises(InvalidInput, match="files"):
            writer.append(spread(65 if jitter_ms is None else 33, 64))
        assert writer.stats().records == 0


def test_a_memtable_of_many_windows_and_shards_takes_several_commits(tmp_path: Path) -> None:
    """[E4] [T6] Each record is whole in one of them, and every receipt knows its rows."""
    table = make(tmp_path, shard_by="k", shards=64, shard_hash="mask", jitter_ms=0)
    rows = spread(40, 64).to_pylist()
    with table.writer("p", wal=tmp_path / "wal", flush_age="1h") as writer:
        receipts = [writer.append(rows[i : i + 100]) for i in range(0, len(rows), 100)]
        before = table.refresh().version
        writer.flush()

    commits = [receipt.wait() for receipt in receipts]
    assert table.refresh().version - before > 1
    assert [(c.first_seq, c.rows) for c in commits] == [
        (i, min(100, len(rows) - i)) for i in range(0, len(rows), 100)
    ]
    assert table.scan().to_arrow().to_pylist() == rows
