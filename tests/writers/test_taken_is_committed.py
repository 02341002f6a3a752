"""What a writer has taken is what is committed, whatever the caller and the table do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import strandline
from strandline.tableformat.windows import MINUTE_MS
from tests.tables import START_MS
from tests.writers.rigs import crash

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

LATER: dict[str, Any] = {"flush_age": "1h"}


def arrays(numbers: np.ndarray[Any, Any], how: str) -> Any:
    """Rows that borrow the caller's memory."""
    if how == "pandas":
        return pd.DataFrame({"x": numbers}, copy=False)
    if how == "numpy":
        return pa.table({"x": pa.array(numbers)})
    return pa.table({"x": pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(numbers)])})


@pytest.mark.parametrize("how", ["pandas", "numpy", "buffer"])
@pytest.mark.parametrize("wal", [True, False])
def test_a_caller_may_fill_its_arrays_anew(tmp_path: Path, how: str, *, wal: bool) -> None:
    """[E2] [E3] The rows are those of the moment of the append, in the log and in the table."""
    table = strandline.create_table(tmp_path / "t", {"x": "int64"})
    options = {"wal": tmp_path / "wal"} if wal else {"wal": False, "ack": "buffered"}
    with table.writer("w", **options, **LATER) as writer:
        numbers = np.array([1, 2, 3])
        writer.append(arrays(numbers, how))
        numbers[:] = 99
        assert writer.scan().to_arrow().column("x").to_pylist() == [1, 2, 3]

    assert table.refresh().scan().to_arrow().column("x").to_pylist() == [1, 2, 3]


def timed(tmp_path: Path) -> tuple[Table, pa.Table]:
    """A table with long windows, and rows of 2,000 minutes."""
    table = strandline.create_table(tmp_path / "t", {"ts": "int64"}, time_column="ts")
    return table, pa.table({"ts": START_MS + np.arange(2_000) * MINUTE_MS})


def test_rows_that_were_taken_fit_into_a_commit_after_windows_became_short(tmp_path: Path) -> None:
    """[E2] [E15] [M1] A ttl of minutes asks for windows of a minute; these get longer ones."""
    table, rows = timed(tmp_path)
    with table.writer("w", wal=tmp_path / "wal", **LATER) as writer:
        writer.append(rows)
        strandline.open_table(table.url).set(ttl="10m")
        writer.scan()  # the writer has heard of it
        receipt = writer.append([{"ts": START_MS}])
    assert receipt.wait().rows == 1
    assert table.refresh().scan().count() == 2_001
    assert table.verify(deep=True).ok


def test_so_they_do_when_a_log_is_replayed(tmp_path: Path) -> None:
    """[E14] [E15] The setting changed while nobody had the log open."""
    table, rows = timed(tmp_path)
    writer = table.writer("w", wal=tmp_path / "wal", **LATER)
    writer.append(rows)
    crash(writer)
    strandline.open_table(table.url).set(ttl="10m")

    assert table.recover("w", tmp_path / "wal").rows == 2_000
    assert table.refresh().scan().count() == 2_000
