"""Pruning by column bounds: never a row lost, and what can be skipped is skipped."""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.tableformat.binding import bind
from strandline.tableformat.expressions import Compare, Expression, col
from strandline.tableformat.like import after_prefix
from strandline.tableformat.pruning import Bounds, may_match, must_match
from strandline.tableformat.schema import Column, stat_values
from strandline.tableformat.types import Domain
from tests.filter_cases import NAMES, SCHEMA, TYPES, filters, rows_of, table_of, truth, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN = math.nan


@dataclass(frozen=True)
class Stats:
    """Bounds per column id; a column that is not there has none."""

    count: int
    columns: dict[int, Bounds]

    def bounds(self, column_id: int) -> Bounds | None:
        return self.columns.get(column_id)


def one_bounds(column: Column, values: Sequence[Any], loss: str = "") -> dict[str, Any]:
    """The true stats of one segment's domain values, or what a poorer writer keeps of them."""
    held = [v for v in values if v is not None]
    has_nan = any(v != v for v in held if isinstance(v, float))  # noqa: PLR0124
    held = [v for v in held if v == v]  # noqa: PLR0124
    out = {
        "least": min(held) if held else None,
        "most": max(held) if held else None,
        "nulls": sum(v is None for v in values),
        "rows": len(values),
        "has_nan": has_nan,
        "exact": True,
    }
    if loss == "all":
        return out | {"least": None, "most": None, "nulls": -1, "has_nan": True, "exact": False}
    if loss == "bounds":
        return out | {"least": None, "most": None}
    if loss == "counts":
        return out | {"nulls": -1, "has_nan": True, "exact": False}
    if loss == "short" and column.type.domain is Domain.TEXT and held:
        most = out["most"]
        bumped = after_prefix(most[:1]) if len(most) > 1 else most
        if bumped is None:
            return out | {"least": None, "most": None, "exact": False}
        return out | {"least": out["least"][:1], "most": bumped, "exact": False}
    return out


def gathered(column: Column, parts: list[dict[str, Any]]) -> Bounds:
    """Many segments' stats as arrays."""

    def array(key: str) -> np.ndarray[Any, Any]:
        values = [part[key] for part in parts]
        if column.type.domain is Domain.FLOAT:
            return np.array([0.0 if v is None else v for v in values], np.float64)
        if column.type.domain is Domain.INT and column.type.name != "decimal":
            return np.array([0 if v is None else v for v in values], np.int64)
        objects = np.empty(len(values), object)
        objects[:] = values
        return objects

    return Bounds(
        mins=array("least"),
        maxs=array("most"),
        known=np.array([part["least"] is not None for part in parts], np.bool_),
        null_count=np.array([part["nulls"] for part in parts], np.int64),
        value_count=np.array([part["rows"] for part in parts], np.int64),
        has_nan=np.array([part["has_nan"] for part in parts], np.bool_),
        exact=np.array([part["exact"] for part in parts], np.bool_),
    )


def stats_of(
    names: Sequence[str], segments: list[list[dict[str, Any]]], losses: Sequence[str] = ()
) -> Stats:
    """The stats of these columns, each segment with its own loss."""
    tables = [table_of(rows) for rows in segments]
    columns = {}
    for column in map(SCHEMA.column, names):
        parts = [
            one_bounds(column, stat_values(column.type, table.column(column.name)), loss)
            for table, loss in zip(tables, losses or [""] * len(tables), strict=True)
        ]
        columns[column.id] = gathered(column, parts)
    return Stats(len(segments), columns)


def pruned(name: str, segments: list[list[Any]], expression: Expression) -> list[bool]:
    """The mask for segments that each hold these values of one column."""
    column = SCHEMA.column(name)
    rows = [[dict.fromkeys(NAMES.values()) | {name: v} for v in values] for values in segments]
    tables = [table_of(one).column(name) for one in rows]
    parts = [one_bounds(column, stat_values(column.type, t)) for t in tables]
    stats = Stats(len(segments), {column.id: gathered(column, parts)})
    found: list[bool] = may_match(bind(expression, SCHEMA), stats).tolist()
    return found


LOSSES = st.sampled_from(["", "", "", "short", "short", "bounds", "counts", "all"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=2, unique=True))
def test_pruning_never_skips_a_segment_with_a_wanted_row(
    data: st.DataObject, names: list[str]
) -> None:
    """[E11, M3] Full, shortened, missing or half-known stats: a TRUE row is never skipped.

    Few columns at a time, so that filter and segments meet.
    """
    over = tuple(names)
    expression = data.draw(filters(over))
    segment = st.tuples(st.lists(rows_of(over), max_size=3), LOSSES)
    segments = data.draw(st.lists(segment, min_size=1, max_size=4))
    stats = stats_of(over, [rows for rows, _ in segments], [loss for _, loss in segments])
    if data.draw(st.integers(0, 9)) == 0:
        del stats.columns[SCHEMA.column(names[0]).id]

    mask = may_match(bind(expression, SCHEMA), stats)

    assert mask.dtype == np.bool_
    for (rows, _), kept in zip(segments, mask, strict=True):
        if not kept:
            assert not any(truth(expression, row) is True for row in rows)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=2, unique=True))
def test_a_filter_is_dropped_only_where_every_row_satisfies_it(
    data: st.DataObject, names: list[str]
) -> None:
    """[E11] Where stats are said to prove a filter, no row is FALSE or NULL."""
    over = tuple(names)
    expression = data.draw(filters(over))
    segment = st.tuples(st.lists(rows_of(over), min_size=1, max_size=3), LOSSES)
    segments = data.draw(st.lists(segment, min_size=1, max_size=4))
    stats = stats_of(over, [rows for rows, _ in segments], [loss for _, loss in segments])

    mask = must_match(bind(expression, SCHEMA), stats)

    assert mask.dtype == np.bool_
    for (rows, _), proven in zip(segments, mask, strict=True):
        if proven:
            assert all(truth(expression, row) is True for row in rows)


PROVEN = [
    ("i64", [[1, 5], [6, 9], [1, None]], col("i64") <= 5, [True, False, False]),
    ("i64", [[1, 5], [6, 9]], col("i64") != 7, [True, False]),
    ("i64", [[3, 3], [3, 4]], col("i64").is_in([3, 9]), [True, False]),
    ("f64", [[1.0], [NAN], [1.0, NAN]], col("f64") >= 0.5, [True, False, True]),
    ("f64", [[1.0], [1.0, NAN]], col("f64") < 2.0, [True, False]),
    ("i64", [[1], [None]], col("i64").is_not_null(), [True, False]),
    ("i64", [[1], [None]], col("i64").is_null(), [False, True]),
    ("name", [["ab", "abc"], ["ab", "b"]], col("name").like("ab%"), [True, False]),
]


@pytest.mark.parametrize(("name", "segments", "expression", "expected"), PROVEN)
def test_stats_prove_what_they_can(
    name: str, segments: list[list[Any]], expression: Expression, expected: list[bool]
) -> None:
    """[E10] A segment that lies inside a filter is not asked again, so its columns stay unread."""
    column = SCHEMA.column(name)
    rows = [[dict.fromkeys(NAMES.values()) | {name: v} for v in values] for values in segments]
    tables = [table_of(one).column(name) for one in rows]
    parts = [one_bounds(column, stat_values(column.type, t)) for t in tables]
    stats = Stats(len(segments), {column.id: gathered(column, parts)})

    assert must_match(bind(expression, SCHEMA), stats).tolist() == expected


ORDERED = ["i8", "i64", "u32", "money", "huge", "day", "local", "moment", "name", "blob"]


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(ORDERED), st.sampled_from(["=", "<", "<=", ">", ">="]))
def test_pruning_skips_all_that_exact_bounds_rule_out(
    data: st.DataObject, name: str, operator: str
) -> None:
    """With exact bounds a segment stays only if its range reaches the literal."""
    values = st.lists(values_of(name), min_size=1, max_size=3)
    segments = data.draw(st.lists(values, min_size=1, max_size=4))
    literal = data.draw(values_of(name))

    def reaches(held: list[Any]) -> bool:
        key = (lambda v: v.encode()) if name == "name" else (lambda v: v)
        low, high, wanted = min(map(key, held)), max(map(key, held)), key(literal)
        return {
            "=": low <= wanted <= high, "<": low < wanted, "<=": low <= wanted,
            ">": high > wanted, ">=": high >= wanted,
        }[operator]  # fmt: skip

    expected = [reaches(held) for held in segments]

    assert pruned(name, segments, Compare(name, operator, literal)) == expected


BIG = 2**53
NOON = datetime(1970, 1, 1, 12)
CASES = [
    ("i64", [[1, 5], [6, 9]], col("i64") == 5, [True, False]),
    ("i64", [[1, 5], [6, 9]], col("i64") != 5, [True, True]),
    ("i64", [[5, 5], [5, 6], [5, None]], col("i64") != 5, [False, True, False]),
    ("i64", [[1, 5], [6, 9]], ~(col("i64") > 5), [True, False]),
    ("i64", [[1, 5], [7, 9]], col("i64").is_in([6, 0, 10]), [False, False]),
    ("i64", [[1, 5], [7, 9]], col("i64").is_in([8, 0]), [False, True]),
    ("i64", [[5, 5], [5, 6]], ~col("i64").is_in([4, 5]), [False, True]),
    ("i64", [[1], [5]], col("i64").is_in([1, None]), [True, False]),
    ("i64", [[1], [5]], ~col("i64").is_in([1, None]), [False, False]),
    ("i64", [[1], [None], []], col("i64") > 0, [True, False, False]),
    ("i64", [[1], [None], [1, None]], col("i64").is_null(), [False, True, True]),
    ("i64", [[1], [None], [1, None]], col("i64").is_not_null(), [True, False, True]),
    ("i64", [[1], [None]], col("i64").eq_null_safe(None), [False, True]),
    ("i64", [[1], [None], [2]], col("i64").eq_null_safe(1), [True, False, False]),
    ("i64", [[1], [None], [2]], ~col("i64").eq_null_safe(1), [False, True, True]),
    ("i64", [[1]], col("i64") == None, [False]),  # noqa: E711 - a comparison with NULL
    ("i64", [[BIG], [BIG + 1]], col("i64") == BIG + 1, [False, True]),
    ("i64", [[BIG], [BIG + 1]], col("i64") > float(BIG), [False, True]),
    ("i64", [[-(2**63)], [2**63 - 1]], col("i64") < 2**63, [True, True]),
    ("i64", [[-(2**63)], [2**63 - 1]], col("i64") > 2**70, [False, False]),
    ("i64", [[1], [2]], col("i64") > 1.5, [False, True]),
    ("i64", [[1], [2]], col("i64") == 1.5, [False, False]),
    ("huge", [[1], [Decimal("9" * 35)]], col("huge") > 2**80, [False, True]),
    ("f64", [[1.0], [1.0, NAN], [NAN]], col("f64") > 2, [False, True, True]),
    ("f64", [[1.0], [1.0, NAN]], col("f64") == NAN, [False, True]),
    ("f64", [[1.0], [1.0, NAN]], col("f64") != 1, [False, True]),
    ("f64", [[1.0], [1.0, NAN]], ~col("f64").is_in([1, NAN]), [False, False]),
    ("f64", [[1.0], [1.0, NAN]], col("f64").is_in([2, NAN]), [False, True]),
    ("f64", [[1.0], [1.0, NAN]], ~col("f64").is_in([1]), [False, True]),
    ("f64", [[-0.0], [1.0]], col("f64") == 0, [True, False]),
    ("f64", [[float(BIG)], [BIG + 2.0]], col("f64") > BIG + 1, [False, True]),
    ("f64", [[1.0], [math.inf]], col("f64") > 10**400, [False, True]),
    ("name", [["a", "az"], ["b", "c"]], col("name").like("b%"), [False, True]),
    ("name", [["a", "az"], ["b", "c"]], ~col("name").like("a%"), [False, True]),
    ("name", [["a", "az"], ["b", "c"]], col("name").like("b%x_"), [False, True]),
    ("name", [["a", "az"], ["b", "c"]], col("name").like("%b"), [True, True]),
    ("name", [["a", "b"], ["0", "a"]], ~col("name").like("a%"), [True, True]),
    ("name", [["a"], ["a\0"]], col("name") > "a", [False, True]),
    ("name", [["a"], ["a\0"]], col("name") == "a\0", [False, True]),
    ("name", [["\uffff"], ["\U0001f600"]], col("name") > "\uffff", [False, True]),
    ("blob", [[b"a"], [b"a\0"]], col("blob").is_in([b"a\0", b"z"]), [False, True]),
    ("day", [[date(1970, 1, 1)], [date(1970, 1, 2)]], col("day") > NOON, [False, True]),
    ("flag", [[False], [True], [False, True]], col("flag") == True, [False, True, True]),  # noqa: E712
    ("i64", [[1], [9]], (col("i64") > 5) | (col("i64") < 0), [False, True]),
    ("i64", [[1], [9]], (col("i64") > 5) & (col("name") == "x"), [False, True]),
    ("i64", [[1], [9]], (col("i64") > 5) | (col("name") == "x"), [True, True]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "segments", "expression", "expected"), CASES, ids=lambda v: str(v)[:40]
)
def test_pruning_skips_what_it_can(
    name: str, segments: list[list[Any]], expression: Expression, expected: list[bool]
) -> None:
    """[E11] The obvious cases are skipped, and the nearly obvious ones are not."""
    assert pruned(name, segments, expression) == expected


def test_columns_compare_by_their_ranges() -> None:
    """A segment stays if the two ranges allow the comparison and neither is all null."""
    rows = [[{"i8": 1, "i64": 5}], [{"i8": 9, "i64": 5}], [{"i8": None, "i64": 5}]]
    full = [[dict.fromkeys(NAMES.values()) | row for row in segment] for segment in rows]
    stats = stats_of(("i8", "i64"), full)

    def mask(expression: Expression) -> list[bool]:
        found: list[bool] = may_match(bind(expression, SCHEMA), stats).tolist()
        return found

    assert mask(col("i8") < col("i64")) == [True, False, False]
    assert mask(col("i8") >= col("i64")) == [False, True, False]
    assert mask(col("i8") == col("i64")) == [False, False, False]
    assert mask(col("i8") != col("i64")) == [True, True, False]


def test_shortened_bounds_never_rule_out_a_different_value() -> None:
    """A min and max of 'aa' may stand for longer texts unless they are known to be exact."""
    column = SCHEMA.column("name")
    part = {"least": "aa", "most": "aa", "nulls": 0, "rows": 5, "has_nan": False, "exact": True}
    exact = gathered(column, [part])
    unknown = Bounds(
        exact.mins, exact.maxs, exact.known, exact.null_count, exact.value_count, exact.has_nan
    )
    bound = bind(col("name") != "aa", SCHEMA)

    assert may_match(bound, Stats(1, {column.id: exact})).tolist() == [False]
    assert may_match(bound, Stats(1, {column.id: unknown})).tolist() == [True]


def test_a_nan_among_the_bounds_bounds_nothing() -> None:
    """Stats written against the rules cost a read, not a row."""
    column = SCHEMA.column("f64")
    part = {"least": NAN, "most": NAN, "nulls": 0, "rows": 5, "has_nan": False, "exact": True}
    stats = Stats(1, {column.id: gathered(column, [part])})

    assert may_match(bind(col("f64") == 5, SCHEMA), stats).tolist() == [True]


def test_small_bounds_meet_large_literals_without_rounding() -> None:
    """A decimal's bounds may come as int64 while its literals exceed it."""
    column = SCHEMA.column("huge")
    one = np.array([1_000, BIG * 1_000], np.int64)
    no = np.zeros(2, np.bool_)
    stats = Stats(2, {column.id: Bounds(one, one, ~no, one * 0, one * 0 + 1, no, ~no)})

    def mask(expression: Expression) -> list[bool]:
        found: list[bool] = may_match(bind(expression, SCHEMA), stats).tolist()
        return found

    assert mask(col("huge") < 2**80) == [True, True]
    assert mask(col("huge").is_in([1, 2**80])) == [True, False]
    assert mask(col("huge").is_in([Decimal(f"{BIG}.001"), 2**80])) == [False, False]


def test_no_segments_and_no_stats() -> None:
    """The two ends: nothing to prune, and nothing to prune by."""
    bound = bind(col("f64") > 1, SCHEMA)

    assert may_match(bound, Stats(0, {})).tolist() == []
    assert may_match(bound, Stats(2, {})).tolist() == [True, True]


@pytest.mark.parametrize("prefix", ["a", "az", "\ud7ff", "a\U0010ffff", "é"])
def test_after_a_prefix_comes_the_next_text(prefix: str) -> None:
    """The upper end of a LIKE prefix is above all its matches and skips the surrogates."""
    beyond = after_prefix(prefix)

    assert beyond is not None
    assert beyond.encode() > (prefix + "\U0010ffff" * 3).encode()
    assert after_prefix("\U0010ffff") is None
    assert after_prefix("") is None


def test_planning_stays_clear_of_pandas() -> None:
    """Parsing, binding and pruning load no pandas: it costs every process 150 ms at its start."""
    code = """
import sys
import numpy as np
from strandline.tableformat.binding import bind
from strandline.tableformat.filter_parser import parse_filter
from strandline.tableformat.pruning import Bounds, may_match, must_match
from strandline.tableformat.schema import schema_from
schema = schema_from({"a": "int64", "m": "decimal(10,2)", "t": "timestamptz"})
class Stats:
    count = 1
    def bounds(self, column_id):
        one = np.ones(1, np.int64)
        return Bounds(one, one, one == 1, one - 1, one, one != 1)
bound = bind(parse_filter("a > 5 AND m IN (1.5, 2) OR t < TIMESTAMP '2024-01-01 00:00Z'"), schema)
may_match(bound, Stats())
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
