"""ORDER BY with LIMIT: the right rows, and only the parts of a table that can hold them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.readers.index_reader import CACHE
from strandline.tableformat.storage import open_storage
from tests.tables import memory_url

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {"ts": "timestamptz", "x": "float64", "name": "string", "n": "int64"}
NAN = math.nan


def _key(value: Any) -> tuple[Any, ...]:
    """Our order: NaN above all numbers, the two zeros equal."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def expected(
    rows: list[dict[str, Any]], name: str, *, descending: bool, limit: int | None
) -> list[int]:
    """Row numbers by a plain sort: equal values by number, in the same direction, nulls last."""
    held = [i for i, row in enumerate(rows) if row[name] is not None]
    held.sort(key=lambda i: (_key(rows[i][name]), i), reverse=descending)
    nulls = [i for i, row in enumerate(rows) if row[name] is None]
    return (held + (nulls[::-1] if descending else nulls))[:limit]


ROW = st.fixed_dictionaries(
    {
        "ts": st.none(),
        "x": st.sampled_from([None, NAN, 0.0, -0.0, 1.5, -2.0, math.inf, -math.inf]),
        "name": st.sampled_from([None, "", "a", "ab", "b", "\U0001f600", "\ud7ff"]),
        "n": st.sampled_from([None, -(2**63), 0, 5, 2**53, 2**53 + 1]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from(["x", "name", "n", "_seq"]),
    st.booleans(),
    st.sampled_from([None, 1, 2, 5, 100]),
)
def test_rows_come_in_the_order_of_a_column(
    batches: list[list[dict[str, Any]]],
    name: str,
    descending: bool,  # noqa: FBT001
    limit: int | None,
) -> None:
    """[E6] The same rows in the same order as a plain sort of everything."""
    table = create_in(open_storage(memory_url()), KINDS, time_column="ts")
    for batch in batches:
        table.append(batch)
    rows = [{**row, "_seq": i} for i, row in enumerate(row for batch in batches for row in batch)]

    scan = table.scan(["_seq"], order_by=name, descending=descending, limit=limit)

    found = scan.to_arrow().column("_seq").to_pylist()
    assert found == expected(rows, name, descending=descending, limit=limit)


ROWS = 8_192


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> strandline.Table:
    """Three segments with zones of 64 rows, times nearly in order, values in none."""
    table = strandline.create_table(
        tmp_path_factory.mktemp("ordered") / "t",
        {"ts": "timestamptz", "v": "float64", "n": "int64"},
        time_column="ts",
        row_group_rows=1_024,
        zone_rows=64,
        zone_pages=True,
        indexes={"v": ["rank"], "n": []},
    )
    chance = np.random.default_rng(3)
    for batch in range(3):
        numbers = np.arange(batch * ROWS, (batch + 1) * ROWS)
        times = 1_767_225_600_000 + numbers * 100 + chance.integers(0, 5_000, ROWS)
        values = np.sort(chance.normal(size=ROWS)) if batch else chance.normal(size=ROWS)
        values[chance.integers(0, ROWS, 3)] = NAN
        table.append(
            pa.table(
                {
                    "ts": pa.array(times * 1000, pa.timestamp("us", tz="UTC")),
                    "v": pa.array(values, mask=chance.random(ROWS) < 0.01),
                    "n": numbers,
                }
            )
        )
    return table


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", ["_ts", "_seq", "v", "ts", "n"])
@pytest.mark.parametrize("text", [None, "n % 1 = 0", "n > 3000 AND v > 0"])
def test_indexed_segments_give_the_same_rows(
    indexed: strandline.Table,
    name: str,
    text: str | None,
    descending: bool,  # noqa: FBT001
) -> None:
    """[E6, E11] With and without rank, with and without a filter."""
    text = None if text == "n % 1 = 0" else text
    rows = indexed.scan(["ts", "v", "n", "_seq", "_ts"], text, indexes=False).to_arrow()
    values = rows.column(name).to_pylist()
    held = [{name: value} for value in values]
    order = expected(held, name, descending=descending, limit=70)

    scan = indexed.scan(["n"], text, order_by=name, descending=descending, limit=70)

    assert scan.to_arrow().column("n").to_pylist() == [rows.column("n")[i].as_py() for i in order]


def test_the_newest_rows_are_read_from_the_last_zones(
    indexed: strandline.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E6, E10] Ten rows out of 24,576: one segment, a few zones, a small part of its bytes."""
    storage = indexed._chain.storage  # noqa: SLF001
    asked: list[tuple[str, int, int]] = []
    read_ranges = storage.read_ranges

    def counting(requests: Any) -> Any:
        asked.extend(requests)
        return read_ranges(requests)

    monkeypatch.setattr(storage, "read_ranges", counting)
    scan = indexed.scan(["n"], order_by="_ts", descending=True, limit=10)

    assert scan.to_arrow().num_rows == 10

    data = [one for one in asked if one[0].endswith(".parquet")]
    newest = indexed.scan().plan().segments[-1]
    assert {path for path, _, _ in data} == {newest.path}
    assert sum(length for _, _, length in data) < newest.size_bytes / 10


def test_explain_shows_the_order_and_what_its_indexes_saved(indexed: strandline.Table) -> None:
    """[E9, E11] Before anything is read, how many files have `rank`; afterwards, what it saved."""
    CACHE.clear()
    scan = indexed.scan(["n"], order_by="v", descending=True, limit=5)

    planned = scan.explain()
    assert "order: by v, descending\nlimit: 5\n" in planned
    assert "v by rank: says in 3 of 3 files which zones to read first" in planned
    assert "index rank" not in planned

    assert scan.to_arrow().num_rows == 5
    report = scan.plan().report
    zones = 3 * ROWS // 64
    use = report.indexes_used["rank"]
    assert use.segments == 3
    assert zones - 30 < use.zones_removed < zones
    assert report.index_bytes > 0
    assert f"index rank: asked in 3 segments, ruled out {use.zones_removed} zones" in scan.explain()

    scan.to_arrow()  # once more: the same segments are not counted again
    assert report.indexes_used["rank"].segments == 3


def test_explain_shows_other_orders_as_they_are(indexed: strandline.Table) -> None:
    """[E9] By number, without an index, without a limit, and with indexes left alone."""
    said = indexed.scan(descending=True, limit=5).explain()
    assert "order: by _seq, descending\nlimit: 5\n" in said
    assert "_seq by rows: says in 3 of 3 files which zones to read first" in said
    said = indexed.scan(order_by="n", limit=5).explain()
    assert "order: by n, ascending\nlimit: 5\n" in said
    assert "read first" not in said
    said = indexed.scan(order_by="v").explain()
    assert "order: by v, ascending" in said
    assert "limit" not in said
    assert "read first" not in said
    assert "read first" not in indexed.scan(order_by="v", limit=5, indexes=False).explain()
    said = indexed.scan(limit=5).explain()
    assert "limit: 5\n" in said
    assert "order:" not in said


@pytest.mark.parametrize("text", [None, "n >= 0 AND v < 9"])
def test_a_lost_rank_index_is_reported(tmp_path: Path, text: str | None) -> None:
    """[T8, E9] [IDX-4] The rows are right without it, and the report names each lost file once."""
    table = strandline.create_table(
        tmp_path / "t",
        {"v": "float64", "n": "int64"},
        time_column=None,
        row_group_rows=1_024,
        zone_rows=64,
        indexes={"v": ["rank", "zone_map"], "n": []},
    )
    for seed in range(2):
        values = np.random.default_rng(seed).normal(size=2_048)
        table.append(pa.table({"v": values, "n": np.arange(2_048)}))
    expected = table.scan(["n"], text, order_by="v", limit=5, indexes=False).to_arrow()
    lost = list((tmp_path / "t").rglob("*.icx"))
    for path in lost:
        path.unlink()
    CACHE.clear()

    scan = table.scan(["n"], text, order_by="v", limit=5)
    for _ in range(2):
        assert scan.to_arrow().equals(expected)

    failures = scan.plan().report.index_failures
    assert len(failures) == len(lost) == 2
    assert all(any(path.name in failure for failure in failures) for path in lost)
    assert "rank" not in scan.plan().report.indexes_used
    assert "index not usable, its rows are read" in scan.explain()


@pytest.mark.parametrize("wrong", ["nobody", "tags"])
def test_an_order_that_does_not_exist_is_refused(tmp_path: Path, wrong: str) -> None:
    """[E10] Unknown and nested columns are named in the error."""
    table = strandline.create_table(tmp_path / "t", {"tags": pa.list_(pa.string()), "n": "int64"})

    with pytest.raises(strandline.InvalidInput, match=wrong):
        table.scan(order_by=wrong)


@pytest.mark.parametrize("name", ["descending", "indexes", "all_rows"])
@pytest.mark.parametrize("wrong", ["no", "yes", 1, None])
def test_a_word_is_not_taken_for_true(tmp_path: Path, name: str, wrong: Any) -> None:
    """[E10] `indexes="no"` would be the contrary of what it says."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})

    with pytest.raises(strandline.InvalidInput, match=f"{name} must be True or False, not"):
        table.scan(**{name: wrong})
