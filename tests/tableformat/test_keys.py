"""The newest row of each key, and what may be left out before it is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import keys
from strandline.tableformat.binding import bind
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.keys import Newest, before_winners
from strandline.tableformat.schema import schema_from

SCHEMA = schema_from({"a": "int64", "b": "string", "x": "int64"})
KEY = (1, 2)


def winners(rows: list[tuple[Any, int, int]]) -> list[int]:
    """By hand: of each key the greatest time, then the greatest number."""
    best: dict[Any, tuple[int, int]] = {}
    for key, ts_ms, seq in rows:
        best[key] = max(best.get(key, (-1, -1)), (ts_ms, seq))
    return sorted(seq for _, seq in best.values())


@pytest.mark.parametrize("compact_rows", [1, 7, 2**20])
@given(
    parts=st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=8)),
    far=st.sampled_from([(0, 0), (2**47, 0), (0, 2**62), (2**47, 2**62)]),
)
@settings(max_examples=60)
def test_the_newest_row_of_each_key_wins(
    parts: list[list[tuple[int, int]]], far: tuple[int, int], compact_rows: int
) -> None:
    """[KEY-3] In parts of any size, with equal times, and over the whole range of both numbers."""
    rows: list[tuple[int, int, int]] = []
    newest = Newest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_COMPACT_ROWS", compact_rows)
        for part in parts:
            made = [
                (key, ts_ms + far[0] * (key % 2), len(rows) + i + far[1] * (len(rows) > 3))
                for i, (key, ts_ms) in enumerate(part)
            ]
            rows += made
            column = pa.chunked_array([pa.array([row[0] for row in made], pa.int64())])
            times, seqs = (np.array([row[i] for row in made], np.int64) for i in (1, 2))
            newest.add([column], times, seqs)

        assert newest.seqs().tolist() == winners(rows)


def test_keys_of_several_columns_and_types_are_told_apart() -> None:
    """[KEY-2] [KEY-3] Exactly: no pair of values runs into another, text and bytes included."""
    pairs = [("a", b"bc"), ("ab", b"c"), ("", b""), ("a", b"bc\0"), ("a", b"bc"), ("", b"")]
    rows = [(pair, 5, seq) for seq, pair in enumerate(pairs)]
    newest = Newest()
    columns = [
        pa.chunked_array([pa.array([pair[i] for pair in pairs], kind)])
        for i, kind in enumerate((pa.string(), pa.binary()))
    ]
    newest.add(columns, np.full(6, 5, np.int64), np.arange(6))

    assert newest.seqs().tolist() == winners(rows) == [1, 3, 4, 5]


def test_no_rows_have_no_winners() -> None:
    """A table may be empty, and a filter may leave nothing."""
    newest = Newest()
    newest.add([pa.chunked_array([], pa.int64())], np.zeros(0, np.int64), np.zeros(0, np.int64))

    assert newest.seqs().tolist() == []


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ("a = 1", "a = 1"),
        ("a = 1 AND x = 2", "a = 1"),
        ("a = 1 OR x = 2", None),
        ("NOT (a = 1 OR x = 2)", "a != 1"),
        ("(a = 1 AND x = 2) OR (b = 'q' AND x = 3)", "a = 1 OR b = 'q'"),
        ("a = 1 AND b IN ('p', 'q') AND a < 9", "a = 1 AND b IN ('p', 'q') AND a < 9"),
        ("_ts >= 7 AND x = 2", "_ts >= 7"),
        ("_ts > 7 OR a = 1", "_ts > 7 OR a = 1"),
        ("_ts <= 7", None),
        ("_ts < 7 AND a = 1", "a = 1"),
        ("_ts = 7", None),
        ("_ts != 7", None),
        ("NOT (_ts < 7)", "_ts >= 7"),
        ("_seq >= 7", None),
        ("_seq < 7 AND b = 'q'", "b = 'q'"),
        ("_window >= 7", None),
        ("x IS NULL", None),
        ("a IS NOT NULL AND x IS NULL", "a IS NOT NULL"),
        ("a = x", None),
    ],
)
def test_what_may_be_left_out_before_winners_are_known(text: str, early: str | None) -> None:
    """[KEY-4] Conditions on the key and lower bounds of `_ts`; a loser cannot win by a filter."""
    expected = None if early is None else bind(filter_from(early), SCHEMA)

    assert before_winners(bind(filter_from(text), SCHEMA), KEY) == expected
