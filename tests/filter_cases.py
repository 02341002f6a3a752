"""Random rows, literals and filters over all column types, and an oracle that answers by hand.

The oracle evaluates one row of plain Python values at a time, on the unbound expression, with
exact fractions. It shares no code with binding, pruning or evaluation.
"""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from strandline.tableformat.expressions import (
    OPERATORS,
    And,
    Compare,
    ComparePair,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
)
from strandline.tableformat.schema import Schema, schema_from

TYPES = {
    "flag": "bool",
    "i8": "int8",
    "i64": "int64",
    "u32": "uint32",
    "f32": "float32",
    "f64": "float64",
    "money": "decimal(10,2)",
    "huge": "decimal(38,3)",
    "day": "date",
    "local": "timestamp",
    "moment": "timestamptz",
    "name": "string",
    "blob": "binary",
}
SCHEMA: Schema = schema_from(TYPES)
NAMES = {column.id: column.name for column in SCHEMA.columns}

_FLOATS = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.5, -2.0, 0.1,
    2.0**53, 2.0**53 + 2, 5e-324, 1.7976931348623157e308,
]  # fmt: skip
_FLOATS_32 = [float(np.float32(v)) for v in (*_FLOATS[:-1], 3.4028234663852886e38)]
_DAYS = [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 1, 31), date(9999, 12, 31)]
_TIMES = [
    datetime(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(2024, 1, 31),
    datetime(2024, 1, 31, 12, 30, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999_999),
]
_TEXTS = ["", "a", "ab", "abc", "b", "A", "é", "\uffff", "\U0010ffff", "\U0001f600x", "a\0", "a%b"]
_TEXTS += ["a_b", "a\\b", "ab\n", "a'b", "a.c", "\U0010ffff\U0010ffff"]
_BLOBS = [b"", b"\0", b"a", b"a\0", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]

VALUES: dict[str, list[Any]] = {
    "flag": [False, True],
    "i8": [-128, -1, 0, 1, 2, 3, 127],
    "i64": [-(2**63), -1, 0, 1, 2, 5, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1],
    "u32": [0, 1, 2, 5, 2**32 - 1],
    "f32": _FLOATS_32,
    "f64": _FLOATS,
    "money": [Decimal(v) for v in ("-99999999.99", "-0.01", "0.00", "0.10", "1.00", "99999999.99")],
    "huge": [Decimal(v) for v in ("0.000", "1.500", "9" * 35 + ".999", "-" + "9" * 35 + ".999")]
    + [Decimal("12345678901234567890123456789.001"), Decimal("12345678901234567890123456789.002")],
    "day": _DAYS,
    "local": _TIMES,
    "moment": [moment.replace(tzinfo=UTC) for moment in _TIMES],
    "name": _TEXTS,
    "blob": _BLOBS,
}
_NUMBERS: list[Any] = [0, 1, 2, 1.5, Decimal("1.5"), -0.5, 1000, -1000, 2**53 + 1, 2**70, -(2**70)]
_NUMBERS += [math.nan, math.inf, -math.inf, 1e300, Decimal("0.105"), 0.1, Decimal("-1e-30")]
_NUMBERS += [10**400, Decimal("1E+400"), Decimal("9" * 36), 2.0**63]
FOREIGN: dict[str, list[Any]] = {
    **dict.fromkeys(("i8", "i64", "u32", "money", "huge"), _NUMBERS),
    "f32": [*_NUMBERS, *_FLOATS, "NaN", "-Infinity"],
    "f64": [*_NUMBERS, *_FLOATS_32, "NaN", "-Infinity"],
    "flag": [],
    "day": [*_TIMES, "1970-01-01", "2024-01-31 00:00:01"],
    "local": [*_DAYS, "1970-01-01", "2024-01-31T12:30:00.000001"],
    "moment": ["1970-01-01T02:00:00+02:00", "2024-01-31 12:30:00.000001Z"],
    "name": [],
    "blob": [],
}

_drawn: dict[str, st.SearchStrategy[Any]] = {
    "i8": st.integers(-128, 127),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(),
    "f32": st.floats(width=32),
    "name": st.text("ab%_\\é\U0001f600", max_size=4),
    "blob": st.binary(max_size=3),
    "money": st.decimals(-1000, 1000, places=2),
    "local": st.datetimes(),
}


_PAIRS = [("i8", "i64"), ("u32", "i8"), ("f32", "f64"), ("name", "name")]


def values_of(name: str) -> st.SearchStrategy[Any]:
    """A value that a column may hold: mostly an awkward one, so that equal ones meet."""
    awkward = st.sampled_from(VALUES[name])
    return st.one_of(awkward, awkward, _drawn[name]) if name in _drawn else awkward


@cache
def rows_of(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """A row that is null outside these columns."""
    held = st.fixed_dictionaries({name: st.none() | values_of(name) for name in names})
    return held.map(lambda values: dict.fromkeys(TYPES) | values)


ROWS = rows_of(tuple(TYPES))


def literals_for(name: str, *, foreign: bool) -> st.SearchStrategy[Any]:
    """A literal that compares with the column: one of its values, or a `foreign` one."""
    kinds = [values_of(name), values_of(name)]
    if foreign and FOREIGN[name]:
        kinds.append(st.sampled_from(FOREIGN[name]))
    return st.one_of(*kinds)


def leaves(names: tuple[str, ...], *, foreign: bool) -> st.SearchStrategy[Expression]:
    """One predicate over one of these columns, or over two of the same kind."""

    def over(name: str) -> st.SearchStrategy[Expression]:
        literal = st.none() | literals_for(name, foreign=foreign)
        compare = st.builds(Compare, st.just(name), st.sampled_from(OPERATORS), literal)
        choices = [
            compare,
            compare,
            st.builds(In, st.just(name), st.lists(literal, max_size=4)),
            st.builds(IsNull, st.just(name)),
        ]
        if name == "name":
            choices.append(st.builds(Like, st.just(name), like_patterns()))
        return st.one_of(*choices)

    pairs = st.sampled_from([pair for pair in _PAIRS if set(pair) <= set(names)] or [names[:1] * 2])
    pair = st.builds(
        lambda sides, operator: ComparePair(sides[0], operator, sides[1]),
        pairs,
        st.sampled_from(OPERATORS),
    )
    one = st.sampled_from(names).flatmap(over)
    return st.one_of(
        one, one, one, one, one, pair, st.builds(Constant, st.sampled_from([True, False, None]))
    )


def like_patterns() -> st.SearchStrategy[str]:
    """Patterns that often match: wildcards, escapes and the letters of the values."""
    piece = st.sampled_from(
        ["%", "_", "a", "b", "ab", "é", "\U0001f600", r"\%", r"\_", r"\\", ".", "\n"]
    )
    return st.lists(piece, max_size=4).map("".join)


@cache  # building a strategy costs more than drawing from it
def filters(
    names: tuple[str, ...] = tuple(TYPES), *, foreign: bool = True
) -> st.SearchStrategy[Expression]:
    """Any filter: leaves under AND, OR and NOT."""
    return st.recursive(
        leaves(names, foreign=foreign),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=5,
    )


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as a scan gives them."""
    return pa.Table.from_pylist(rows, schema=SCHEMA.arrow)


# --- the oracle -------------------------------------------------------------------------------


def truth(expression: Expression, row: dict[str, Any]) -> bool | None:
    """What the filter is for this row."""
    match expression:
        case Constant(value):
            return value
        case Not(inner):
            found = truth(inner, row)
            return None if found is None else not found
        case And(parts):
            found_all = [truth(part, row) for part in parts]
            return False if False in found_all else (None if None in found_all else True)
        case Or(parts):
            found_all = [truth(part, row) for part in parts]
            return True if True in found_all else (None if None in found_all else False)
        case IsNull(name):
            return row[name] is None
        case In(name, values):
            return truth(
                Or(
                    (
                        Constant(value=False),
                        Constant(value=False),
                        *(Compare(name, "=", v) for v in values),
                    )
                ),
                row,
            )
        case Like(name, pattern):
            return None if row[name] is None else bool(_like_regex(pattern).fullmatch(row[name]))
        case ComparePair(left, operator, right):
            return _compared(operator, _own(left, row[left]), _own(right, row[right]))
        case Compare(name, operator, value):
            return _compared(operator, _own(name, row[name]), _literal(name, value))
    raise AssertionError(expression)


def _compared(operator: str, left: Any, right: Any) -> bool | None:
    if operator == "<=>":
        return bool(left == right)
    if left is None or right is None:
        return None
    return {
        "=": left == right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right,
    }[operator]  # fmt: skip


def _own(name: str, value: Any) -> Any:
    """A value of the column on a line where all its literals have their place, too."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return _own(name, datetime(value.year, value.month, value.day))
    return _number(value)


def _number(value: Any) -> tuple[int, Fraction]:
    if isinstance(value, float) and not math.isfinite(value):
        return (2 if math.isnan(value) else 1 if value > 0 else -1), Fraction(0)
    return 0, Fraction(value)


def _literal(name: str, value: Any) -> Any:
    kind = TYPES[name]
    if isinstance(value, str) and kind in ("date", "timestamp", "timestamptz"):
        value = datetime.fromisoformat(value)
        value = value.astimezone(UTC) if value.tzinfo else value
    elif kind.startswith("float") and isinstance(value, str):
        value = float(value)
    elif kind.startswith("float") and isinstance(value, Decimal):
        value = float(value) if abs(value) < Decimal("1e308") else value
    elif kind.startswith("decimal") and isinstance(value, float) and math.isfinite(value):
        value = Decimal(repr(value))
    return _own(name, value)


def _like_regex(pattern: str) -> re.Pattern[str]:
    out = re.sub(
        r"\\(.)|(%)|(_)|(.)",
        lambda m: ".*" if m[2] else "." if m[3] else re.escape(m[1] or m[4]),
        pattern,
        flags=re.DOTALL,
    )
    return re.compile(out, re.DOTALL)
