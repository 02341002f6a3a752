"""Rows by key, against sorting by hand, and what reading them costs."""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.readers import by_key
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.storage import open_storage
from tests.edited import commit_by_hand
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, START_MS, events, memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

START = datetime.fromtimestamp(START_MS // 1000, UTC)
KEYS: dict[str, list[Any]] = {
    "string": ["", "a", "ab", "é"],
    "int64": [-(2**63), 0, 7],
    "uint32": [0, 2**32 - 1],
    "bool": [False, True],
    "float64": [-math.inf, -1.5, -0.0, 0.0, math.inf, math.nan],
    "decimal(38,3)": [Decimal("-1.500"), Decimal("0.000"), Decimal("9" * 35 + ".999")],
    "date": [date(1, 1, 1), date(2024, 1, 31)],
    "timestamp": [datetime(1969, 12, 31), datetime(2024, 1, 31)],
    "binary": [b"", b"\0", b"\xff"],
}


def rank(key: Any) -> tuple[Any, ...]:
    """Where a key stands: by value, NaN behind all numbers, no key last; zeros are one key."""
    if key is None:
        return (2, 0)
    if isinstance(key, float) and math.isnan(key):
        return (1, 0)
    return (
        0,
        key.encode() if isinstance(key, str) else key + 0.0 if isinstance(key, float) else key,
    )


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), gathered=st.sampled_from([1, 3, 10**6]))
def test_rows_come_by_key_and_time_as_sorting_by_hand_gives_them(
    data: st.DataObject, gathered: int
) -> None:
    """[T2] Any type of key, some keys or all, inclusive bounds, a limit from either end."""
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    keys = st.none() | st.sampled_from(KEYS[kind])
    row = st.tuples(keys, st.integers(0, 9))
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=6), min_size=1, max_size=5))
    wanted = data.draw(st.none() | st.lists(keys, max_size=3))
    least, most = data.draw(st.none() | st.integers(0, 9)), data.draw(st.none() | st.integers(0, 9))
    limit, latest = data.draw(st.integers(0, 3)), data.draw(st.booleans())
    table = create_in(
        open_storage(memory_url()), {"at": "timestamptz", "key": kind}, time_column="at"
    )
    rows: list[tuple[Any, int, int]] = []
    for batch in batches:
        table.append([{"key": key, "at": START + timedelta(milliseconds=at)} for key, at in batch])
        rows += [(key, at, len(rows) + i) for i, (key, at) in enumerate(batch)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_key, "_GATHERED_ROWS", gathered)
        found = table.by_key(
            wanted,
            by="key",
            columns=["_seq"],
            start_ts=None if least is None else START_MS + least,
            end_ts=None if most is None else START_MS + most,
            limit=limit,
            latest=latest,
        )

    among = None if wanted is None else {rank(key) for key in wanted}
    kept = sorted(
        (
            (rank(key), at, seq)
            for key, at, seq in rows
            if (among is None or rank(key) in among)
            and (least is None or at >= least)
            and (most is None or at <= most)
        ),
    )
    groups: dict[Any, list[int]] = {}
    for key, _, seq in kept:
        groups.setdefault(key, []).append(seq)
    of_each = (g if not limit else g[-limit:] if latest else g[:limit] for g in groups.values())
    assert found.column("_seq").to_pylist() == [seq for group in of_each for seq in group]


def test_zero_is_one_key_with_either_sign() -> None:
    """[T2] As in filters, where -0.0 equals 0.0."""
    table = create_in(open_storage(memory_url()), {"key": "float64"}, time_column=None)
    table.append({"key": [0.0, -0.0, 0.0, -0.0, math.nan, math.nan]})

    assert table.by_key(by="key", columns=["_seq"], limit=1).column(0).to_pylist() == [0, 4]
    assert table.by_key([-0.0], by="key", limit=3, latest=True, columns=["_seq"]).column(
        0
    ).to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    "as_given",
    [
        list,
        iter,
        pa.array,
        lambda keys: pa.chunked_array([keys[:1], keys[1:]], pa.string()),
        lambda keys: pa.array(keys).dictionary_encode(),
        pl.Series,
        pd.Series,
        pd.Index,
        lambda keys: pd.Series(keys, dtype=object),
        lambda keys: pd.Series(keys, dtype="category"),
    ],
)
def test_a_null_among_the_keys_finds_rows_without_one(as_given: Any) -> None:
    """[T2] Whatever holds the keys: a list, Arrow, Polars or pandas."""
    table = create_in(open_storage(memory_url()), {"key": "string"}, time_column=None)
    table.append({"key": ["u1", None, "u2", None, "u1"]})

    found = table.by_key(as_given(["u1", None]), by="key", columns=["_seq"])

    assert found.column(0).to_pylist() == [0, 4, 1, 3]


def test_what_pandas_calls_missing_is_no_key(tmp_path: Path) -> None:
    """[T2] NaN in a Series is a missing value, as where rows are appended; in Arrow it is NaN."""
    table = strandline.create_table(
        tmp_path / "t", {"n": "int64", "x": "float64", "at": "timestamp"}, time_column=None
    )
    moment = datetime(2024, 1, 31)
    table.append({"n": [1, None], "x": [math.nan, None], "at": [moment, None]})

    def seqs(keys: Any, by: str) -> list[int]:
        found: list[int] = table.by_key(keys, by=by, columns=["_seq"]).column(0).to_pylist()
        return found

    assert seqs(pd.Series([1, None]), "n") == [0, 1]
    assert seqs(pd.Series([None, moment]), "at") == [0, 1]
    assert seqs(pd.Series([None, math.nan]), "x") == [1]
    assert seqs(pa.array([None, math.nan]), "x") == [0, 1]


def test_any_number_of_keys_costs_one_pass() -> None:
    """[T2] Each file is read once, whether for one key or for a hundred."""
    storage = WatchedStorage(open_storage(memory_url()))
    table = create_in(storage, SCHEMA, time_column="ts")
    for first in (0, 10, 20):
        table.append(events(first, 10))

    def reads(keys: list[str] | None) -> list[str]:
        storage.calls.clear()
        table.by_key(keys, by="user", limit=1)
        return [path for name, path in storage.calls if name == "read_range"]

    reads(None)  # what is kept in memory from now on, such as footers, is there
    seven = reads([f"user-{n}" for n in range(7)])
    hundred = reads([f"user-{n}" for n in range(100)])
    assert {path for path in hundred if path.endswith(".parquet")} == set(
        table.files().column(0).to_pylist()
    )
    assert len(hundred) <= len(seven)


def test_a_limit_holds_no_more_rows_than_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """[T2] The newest row of each key of a large table needs little memory."""
    monkeypatch.setattr(by_key, "_GATHERED_ROWS", 100)
    table = create_in(open_storage(memory_url()), SCHEMA, time_column="ts")
    for first in range(0, 2_000, 50):
        table.append(events(first, 50))
    sorted_rows: list[int] = []
    best_rows = by_key.best_rows

    def watched(rows: pa.Table, *limits: Any, **options: Any) -> pa.Table:
        sorted_rows.append(rows.num_rows)
        return best_rows(rows, *limits, **options)

    monkeypatch.setattr(by_key, "best_rows", watched)

    found = table.by_key(by="user", limit=2, latest=True)

    assert found.num_rows == 14
    assert found.column("n").to_pylist()[:2] == [1988, 1995]
    assert max(sorted_rows) <= 100 + 50 + 14
    assert sum(sorted_rows) < 3 * 2_000


def test_rows_that_have_expired_are_no_ones_latest(tmp_path: Path) -> None:
    """[T2] [T4] The floor and the trim point hold for keys, too."""
    table = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    table.append(events(0, 20))
    commit_by_hand(table, floor_ts=START_MS + 5_000, trim_seq=7)

    assert table.by_key(["user-0"], by="user").column("n").to_pylist() == [7, 14]
    assert table.by_key(["user-6"], by="user", limit=1).column("n").to_pylist() == [13]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"keys": 5, "by": "n"}, "a list of values, not one value such as 5"),
        ({"keys": b"x", "by": "n"}, "a list of values"),
        ({"keys": ["x"], "by": "n"}, "cannot be compared"),
        ({"by": "nope"}, "no column 'nope'"),
        ({"by": "tags"}, "cannot be a key"),
        ({"keys": [["a"]], "by": "tags"}, "cannot be a key"),
        ({"by": "n", "limit": -1}, "limit must be"),
        ({"by": "n", "limit": True}, "limit must be"),
        ({"by": "n", "limit": 1, "latest": "no"}, "latest must be True or False, not 'no'"),
        ({"by": "n", "start_ts": "now"}, "start_ts must be"),
        ({"by": "n", "columns": ["nope"]}, "no column 'nope'"),
    ],
)
def test_wrong_requests_are_refused(wrong: dict[str, Any], words: str) -> None:
    """[T2] With an error of ours that names what is wrong."""
    table: Table = create_in(
        open_storage(memory_url()),
        pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))]),
        time_column=None,
    )
    with pytest.raises(InvalidInput, match=words):
        table.by_key(**wrong)
