"""Filters as pyarrow expressions that mean the same, also for NaN, -0.0, nulls and float32.

pyarrow compares floats by IEEE, where nothing holds for a NaN, and it believes Parquet's bounds,
which leave NaN out. So each comparison of floats says for itself what becomes of a NaN: then rows
are right, and so is what pyarrow skips in files of its own. One gap is pyarrow's: where a row
group holds one number and NaN, and no null, it takes all rows for that number.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat import types
from strandline.tableformat.binding import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundKnown,
    BoundLike,
    BoundNull,
    BoundOr,
    BoundPair,
    bind,
)
from strandline.tableformat.column_lookup import NestedField
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS
from strandline.tableformat.like import pattern_text
from strandline.tableformat.schema import Column, Schema, from_stat_values
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.values import Value

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LAST_DAY: Final = (date.max - date(1970, 1, 1)).days


def to_pyarrow(expression: Expression, schema: pa.Schema) -> Any:
    """The filter over the columns of an Arrow schema, such as that of a table or of a scan."""
    return _expression(bind(expression, *_columns_of(schema)))


def _columns_of(schema: pa.Schema) -> tuple[Schema, dict[str, Column]]:
    """The schema's columns as ours, and the hidden ones that are among them."""
    columns = []
    for number, field in enumerate(schema, 1):
        if field.name in HIDDEN_COLUMNS:
            continue
        kind = types.from_arrow(field.type, f"column {field.name!r}")
        if types.to_arrow(kind) != field.type:
            raise InvalidInput(
                f"column {field.name!r} has Arrow type {field.type}; cast it to "
                f"{types.to_arrow(kind)}, the type that scans give it"
            )
        columns.append(Column(id=number, name=field.name, physical_name=field.name, type=kind))
    hidden = {name: HIDDEN_COLUMNS[name] for name in schema.names if name in HIDDEN_COLUMNS}
    return Schema(1, tuple(columns)), hidden


def _expression(bound: Bound) -> Any:
    match bound:
        case BoundConstant(value):
            return _truth(value)
        case BoundAnd(parts):
            return reduce(operator.and_, map(_expression, parts))
        case BoundOr(parts):
            return reduce(operator.or_, map(_expression, parts))
        case BoundNull(column, negated):
            field = _field(column)
            return field.is_valid() if negated else field.is_null()
        case BoundKnown(column, value):
            return _unless_null(_field(column), _truth(value))
        case BoundCompare(column, symbol, value):
            return _compare(column, symbol, value)
        case BoundIn():
            return _is_in(bound)
        case BoundLike(column, pattern, negated):
            found = pc.match_like(_field(column), pattern_text(pattern))
            return ~found if negated else found
        case BoundPair(left, symbol, right):
            return _pair(left, symbol, right)


def _field(column: Column) -> Any:
    if isinstance(column, NestedField):
        return pc.field(column.root.name, *column.path)
    return pc.field(column.name)


def _truth(value: bool | None) -> Any:  # noqa: FBT001 - the value, not a switch
    return pc.scalar(pa.scalar(value, pa.bool_()))


def _unless_null(field: Any, answer: Any) -> Any:
    return pc.if_else(field.is_valid(), answer, _truth(None))


def _literal(column: Column, value: Value) -> pa.Scalar:
    return from_stat_values(column.type, [value])[0]


# --- a column against values ------------------------------------------------------------------


def _compare(column: Column, symbol: str, value: Value) -> Any:
    field = _field(column)
    if isinstance(value, float):
        return _compare_float(column, symbol, value)
    if column.type.name == "date" and symbol == ">=" and value == _LAST_DAY + 1:
        symbol, value = ">", _LAST_DAY  # what begins behind the last day that Python knows
    return _COMPARE[symbol](field, _literal(column, value))


def _compare_float(column: Column, symbol: str, value: float) -> Any:
    field = _field(column)
    is_nan = field.is_nan()
    if math.isnan(value):
        return is_nan if symbol == "=" else ~is_nan
    placed = _among_float32(symbol, value) if column.type.name == "float32" else (symbol, value)
    if isinstance(placed, bool):
        return _unless_null(field, _truth(placed))
    found = _COMPARE[placed[0]](field, _literal(column, placed[1]))
    return found | is_nan if symbol in ("!=", ">", ">=") else found & ~is_nan


def _among_float32(symbol: str, value: float) -> tuple[str, float] | bool:
    """The comparison with the next float32, because pyarrow would round the value to one."""
    below, above = _float32_around(value)
    if below == above:
        return symbol, below
    if symbol in ("=", "!="):
        return symbol == "!="
    return ("<=", below) if symbol in ("<", "<=") else (">=", above)


def _float32_around(value: float) -> tuple[float, float]:
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    if float(nearest) == value:
        return value, value
    if float(nearest) < value:
        return float(nearest), float(np.nextafter(nearest, np.float32(np.inf)))
    return float(np.nextafter(nearest, np.float32(-np.inf))), float(nearest)


def _is_in(bound: BoundIn) -> Any:
    column, field = bound.column, _field(bound.column)
    is_float = column.type.domain is Domain.FLOAT
    values = _set_of_floats(bound) if is_float else list(bound.values)
    found = field.isin(from_stat_values(column.type, values))
    if is_float and bound.with_nan:
        found = found | field.is_nan()
    if bound.negated:
        found = ~found | field.is_nan() if is_float and not bound.with_nan else ~found
    return _unless_null(field, found)


def _set_of_floats(bound: BoundIn) -> list[Any]:
    """The values that the column can hold; isin tells -0.0 from 0.0, so both are named."""
    held: list[Any] = list(bound.values)
    if bound.column.type.name == "float32":
        held = [value for value in held if len(set(_float32_around(value))) == 1]
    return [*held, -0.0] if 0.0 in held else held


# --- two columns ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Floats:
    """Two float columns in the order where NaN is the greatest and equals itself."""

    left: Any
    right: Any

    def equal(self) -> Any:
        return (self.left == self.right) | (self.left.is_nan() & self.right.is_nan())

    def less(self) -> Any:
        return (self.left < self.right) | (self.right.is_nan() & ~self.left.is_nan())


def _pair(left: Column, symbol: str, right: Column) -> Any:
    sides = _field(left), _field(right)
    if left.type.domain is not Domain.FLOAT:
        return _COMPARE[symbol](*sides)
    if symbol in ("=", "!="):
        equal = _Floats(*sides).equal()
        return equal if symbol == "=" else ~equal
    if symbol in (">", "<="):  # a > b is b < a; a <= b is not that
        sides = sides[1], sides[0]
    less = _Floats(*sides).less()
    return less if symbol in ("<", ">") else ~less
