"""Segments whose numbers overlap: the order of the rows, whatever memory there is for them."""

# ruff: noqa: SLF001 - a budget is no option of users

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.readers import in_order
from strandline.readers.request import Request
from strandline.readers.scan import Scan
from strandline.readers.sources import ChunkSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 6_000
LEAST_BYTES = 1
"""So little memory that segments are read a row group at a time."""


def rows(first: int, count: int = ROWS) -> pa.Table:
    """Numbered rows of a hundred users, in no order of theirs."""
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "user": [f"u{i}" for i in chance.integers(0, 100, count)],
            "n": np.arange(first, first + count),
            "x": chance.random(count),
        }
    )


def create(place: Path, **config: Any) -> strandline.Table:
    """Three shards with row groups of 1,024 rows; three appends, compacted, and one more."""
    table = strandline.create_table(
        place,
        {"user": "string", "n": "int64", "x": "float64"},
        time_column=None,
        shard_by="user",
        shards=3,
        row_group_rows=1_024,
        zone_rows=64,
        **config,
    )
    for batch in range(3):
        table.append(rows(batch * ROWS))
    table.compact()
    table.append(rows(3 * ROWS))
    return table


def scan(table: strandline.Table, memory_bytes: int, **options: Any) -> Scan:
    """With a budget that users cannot set."""
    request = Request(memory_bytes=memory_bytes, **options)
    return Scan(table._chain.service, table.manifest, request, floor_ts=0, trim_seq=0)


@pytest.fixture(scope="module", params=[None, ["x"]], ids=["by number", "by value"])
def table(tmp_path_factory: pytest.TempPathFactory, request: Any) -> strandline.Table:
    """With rows of a segment in the order of their numbers, or of something else."""
    config = {} if request.param is None else {"sort_by": request.param}
    return create(tmp_path_factory.mktemp("overlapping") / "t", **config)


@pytest.mark.parametrize("text", [None, "x < 0.5", "n % 1 = 0", "user = 'u7'", "n > 9000"])
@pytest.mark.parametrize("limit", [None, 1, 1_500, 7_000])
@pytest.mark.parametrize("columns", [None, ["n"], ["_seq", "user"]])
def test_a_small_budget_gives_the_same_rows_in_the_same_order(
    table: strandline.Table, text: str | None, limit: int | None, columns: list[str] | None
) -> None:
    """[E10] [RD-1] Filters and limits included; pages that an index chose, too."""
    text = None if text == "n % 1 = 0" else text
    options = {"filter": text, "limit": limit, "columns": columns}
    expected = scan(table, 2**30, **options).to_arrow()
    name = "n" if columns is None or "n" in columns else "_seq"
    numbers = expected.column(name).to_numpy()
    assert (np.diff(numbers) > 0).all()
    assert len(numbers) == limit or limit is None or len(numbers) < 4 * ROWS

    assert scan(table, LEAST_BYTES, **options).to_arrow() == expected


def test_what_is_left_of_a_segment_may_come_behind_the_next_one(tmp_path: Path) -> None:
    """[E10] [RD-1] Two windows that overlap, read one after the other, each in several parts."""
    table = strandline.create_table(
        tmp_path / "t",
        {"at": "timestamptz", "n": "int64"},
        time_column="at",
        ttl="10h",
        order="event_time",
        row_group_rows=1_024,
        indexes=False,
    )
    numbers = np.arange(8_000)
    hours = np.random.default_rng(1).integers(0, 2, 8_000)
    now_ms = time.time_ns() // 1_000_000
    times = (now_ms - hours * 3_600_000) * 1_000
    table.append({"at": pa.array(times, pa.timestamp("us", tz="UTC")), "n": numbers})
    whole = scan(table, 2**30)
    readers = [whole._reader_in_sequence(split, sort=True) for split in whole.plan().splits]
    assert len(readers) == 2
    fitting = sum(reader.memory_share for reader in readers)

    assert in_order.read_apart(readers, fitting) == in_order.NONE_APART
    for memory_bytes in (fitting, fitting - 1, LEAST_BYTES):
        found = scan(table, memory_bytes).to_arrow().column("n")
        assert found.to_pylist() == numbers.tolist()


def test_rows_of_segments_in_their_order_are_given_as_they_come(tmp_path: Path) -> None:
    """[E10] Nothing waits for the end of a segment: the first rows need one row group of each."""
    table = create(tmp_path / "t", indexes=False)
    compacted = {entry.path: entry.size_bytes for entry in table.scan().plan().segments[:3]}
    asked: list[tuple[str, int]] = []
    storage = table._chain.storage
    read_ranges = storage.read_ranges

    def counting(requests: Any) -> Any:
        asked.extend((path, length) for path, _, length in requests)
        return read_ranges(requests)

    list(scan(table, LEAST_BYTES).to_batches())  # footers are known from now on
    storage.read_ranges = counting  # type: ignore[method-assign]
    batches = scan(table, LEAST_BYTES).to_batches()
    numbers: list[int] = []
    while len(numbers) < 1_024:
        numbers += next(batches).column("n").to_pylist()

    assert numbers == list(range(len(numbers)))
    assert len(numbers) < 2 * 3 * 1_024
    assert {path for path, _ in asked} == set(compacted)
    assert sum(length for _, length in asked) < sum(compacted.values()) / 2


@pytest.mark.parametrize("found", [lambda least: least, lambda least: [None] * len(least)])
def test_without_statistics_rows_wait_as_long_as_they_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Callable[[list[Any]], list[Any]]
) -> None:
    """[E10] [RD-1] What a footer does not say is taken for the least that is possible."""
    table = create(tmp_path / "t", indexes=False)
    least_of = ChunkSource.least_of
    monkeypatch.setattr(ChunkSource, "least_of", lambda s, name: found(least_of(s, name)))

    numbers = scan(table, LEAST_BYTES).to_arrow().column("n")

    assert numbers.to_pylist() == list(range(4 * ROWS))


def test_wrong_statistics_are_an_error_and_no_wrong_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E10] [RD-1] A footer that promises greater numbers than the rows have is found out."""
    table = create(tmp_path / "t", indexes=False)
    monkeypatch.setattr(
        ChunkSource, "least_of", lambda s, _: [9 * ROWS] * (len(s.group_starts) - 1)
    )

    with pytest.raises(strandline.CorruptTable, match="wrong order"):
        scan(table, LEAST_BYTES).to_arrow()


def test_what_memory_holds_is_read_ahead_as_ever(table: strandline.Table) -> None:
    """[E10] Segments are read side by side only where they would not fit together."""
    whole = scan(table, 2**30)
    readers = [whole._reader_in_sequence(split, sort=True) for split in whole.plan().splits]

    assert in_order.read_apart(readers, 2**30) == in_order.NONE_APART
    share = [reader.memory_share for reader in readers]
    apart = in_order.read_apart(readers, sum(share[:3]) - 1)
    assert apart.segments == {0, 1, 2}
    assert apart.share == 6
