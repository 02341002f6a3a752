"""Random rows with structs, and filters that look into them.

A filter is drawn over plain columns and then moved into a struct of the same types, so that the
oracle of `filter_cases` answers for both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from strandline.tableformat.expressions import (
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
from tests import filter_cases

if TYPE_CHECKING:
    from strandline.tableformat.column_names import ColumnName

PATHS: dict[str, tuple[str, ...]] = {
    "name": ("device", "os"),
    "i8": ("device", "inner", "small"),
    "i64": ("device", "inner", "n"),
    "f64": ("device", "inner", "x"),
}
"""Where in the struct the values of a plain column are."""

INNER = pa.struct([("small", pa.int8()), ("n", pa.int64()), ("x", pa.float64())])
DEVICE = pa.struct([("os", pa.string()), ("inner", INNER)])
SCHEMA: Schema = schema_from({"device": DEVICE, "money": "decimal(10,2)"})
FILTERS = filter_cases.filters((*PATHS, "money"))

_inner = st.fixed_dictionaries(
    {
        "small": st.none() | filter_cases.values_of("i8"),
        "n": st.none() | filter_cases.values_of("i64"),
        "x": st.none() | filter_cases.values_of("f64"),
    }
)
_device = st.fixed_dictionaries(
    {"os": st.none() | filter_cases.values_of("name"), "inner": st.none() | _inner}
)
ROWS = st.fixed_dictionaries(
    {"device": st.none() | _device, "money": st.none() | filter_cases.values_of("money")}
)


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """The row as the plain columns that a filter was drawn over."""
    device = row["device"] or {"os": None, "inner": None}
    inner = device["inner"] or {"small": None, "n": None, "x": None}
    held = {"name": device["os"], "i8": inner["small"], "i64": inner["n"], "f64": inner["x"]}
    return dict.fromkeys(filter_cases.TYPES) | held | {"money": row["money"]}


def inside(expression: Expression, *, dotted: bool) -> Expression:
    """The filter over the fields of the struct, named by path or by text with dots."""

    def moved(name: ColumnName) -> ColumnName:
        path = PATHS.get(str(name))
        return name if path is None else ".".join(path) if dotted else path

    match expression:
        case Not(inner):
            return Not(inside(inner, dotted=dotted))
        case And(parts) | Or(parts):
            return type(expression)(tuple(inside(part, dotted=dotted) for part in parts))
        case ComparePair(left, operator, right):
            return ComparePair(moved(left), operator, moved(right))
        case Compare() | In() | IsNull() | Like():
            return replace(expression, column=moved(expression.column))
        case Constant():
            return expression
    raise AssertionError(expression)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as a scan gives them."""
    return pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
