"""Which rows of an Arrow table satisfy a bound filter.

pyarrow's kernels follow IEEE for floats and hash -0.0 apart from 0.0; here NaN equals itself and
is greater than all numbers, as in Spark and DuckDB, so that a filter means the same whoever runs
it. All logic is Kleene's: NULL is neither TRUE nor FALSE, and only TRUE rows pass.
"""

from __future__ import annotations

import math
import re
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.readers.arrow_arrays import (
    binary_array,
    bool_array,
    decimal_array,
    number_array,
)
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
)
from strandline.tableformat.column_lookup import NestedField
from strandline.tableformat.like import ANY, LikePattern
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.tableformat.schema import Column

_NULL: Final = pa.nulls(1, pa.bool_())[0]
_ZERO: Final = number_array([0.0], pa.float64())[0]
_NO, _YES = bool_array(np.array([False, True]))
_KERNELS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def filter_table(bound: Bound, table: Any, names: Mapping[int, str]) -> Any:
    """The rows of a Table or RecordBatch for which the filter is TRUE."""
    return table.filter(evaluate(bound, table, names), null_selection_behavior="drop")


def evaluate(bound: Bound, table: Any, names: Mapping[int, str]) -> Any:
    """TRUE, FALSE or null for each row of a Table (ChunkedArray) or RecordBatch (Array).

    `names` maps column ids to names in the table; a column that is not there is all null, as in
    a segment older than the column.
    """
    result = _evaluate(bound, _Rows(table, names))
    if isinstance(table, pa.Table) and isinstance(result, pa.Array):
        return pa.chunked_array([result])
    return result


class _Rows:
    """The table's columns by id, in the current schema's types."""

    def __init__(self, table: Any, names: Mapping[int, str]) -> None:
        self.table, self.names = table, names
        self.present = set(table.schema.names)

    def constant(self, value: bool | None) -> pa.Array:  # noqa: FBT001 - the value, not a switch
        if value is None:
            return pa.nulls(len(self), pa.bool_())
        return pa.repeat(_YES if value else _NO, len(self))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, column: Column) -> Any:
        """As stored: of the column's type, or dictionary-encoded."""
        if isinstance(column, NestedField):
            # A struct that is null makes its fields null, whatever lies below it.
            return pc.struct_field(self.column(column.root), list(column.path))
        name = self.names.get(column.id)
        kind = types.to_arrow(column.type)
        if name is None or name not in self.present:
            return pa.nulls(len(self), kind)
        array = self.table.column(name)
        if pa.types.is_dictionary(array.type) and array.type.value_type == kind:
            return array
        return array if array.type == kind else array.cast(kind)


def _evaluate(bound: Bound, rows: _Rows) -> Any:
    match bound:
        case BoundConstant(value):
            return rows.constant(value)
        case BoundAnd(parts):
            return reduce(pc.and_kleene, (_evaluate(part, rows) for part in parts))
        case BoundOr(parts):
            return reduce(pc.or_kleene, (_evaluate(part, rows) for part in parts))
        case BoundPair():
            return _pair(bound, rows)
        case BoundNull(column, negated):
            array = _decoded(rows.column(column))
            return pc.is_valid(array) if negated else pc.is_null(array)
        case BoundKnown(column, value):
            return _known(_decoded(rows.column(column)), value=value)
        case _:
            return _on_values(rows.column(bound.column), bound)


def _known(array: Any, *, value: bool) -> Any:
    return pc.if_else(pc.is_valid(array), _YES if value else _NO, _NULL)


def _decoded(array: Any) -> Any:
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _on_values(array: Any, bound: BoundCompare | BoundIn | BoundLike) -> Any:
    """A leaf over a column; over a dictionary it looks at each distinct value once."""
    if not pa.types.is_dictionary(array.type):
        return _leaf(array, bound)
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_on_values(chunk, bound) for chunk in array.chunks], pa.bool_())
    return _leaf(array.dictionary, bound).take(array.indices)


def _leaf(array: Any, bound: BoundCompare | BoundIn | BoundLike) -> Any:
    match bound:
        case BoundCompare(column, operator, value):
            return _compare(_in_domain(column, array), column, operator, value)
        case BoundIn(column, values, with_nan, negated):
            found = _is_in(_in_domain(column, array), column, values, with_nan=with_nan)
        case BoundLike(_, pattern, negated):
            found = _like(array, pattern)
    return pc.invert(found) if negated else found


# --- values in their domain -------------------------------------------------------------------


def _in_domain(column: Column, array: Any) -> Any:
    """The column as the type in which its literals are given."""
    name = column.type.name
    if column.type.domain is Domain.FLOAT:
        return array.cast(pa.float64())
    if name in ("timestamp", "timestamptz"):
        return array.cast(pa.int64())
    if name == "date":
        return array.cast(pa.int32())
    if name == "bool":
        return array.cast(pa.int8())
    return array


def _literals(array: Any, column: Column, values: tuple[Any, ...]) -> pa.Array:
    """Domain values in the array's type."""
    if column.type.name == "decimal":
        return decimal_array(values, array.type)
    if column.type.domain in (Domain.INT, Domain.FLOAT):
        return number_array(values, array.type)
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    return binary_array(raw, array.type)


# --- leaves -----------------------------------------------------------------------------------


def _compare(array: Any, column: Column, operator: str, value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        is_nan = pc.is_nan(array)
        return is_nan if operator == "=" else pc.invert(is_nan)
    literal = _literals(array, column, (value,))[0]
    if column.type.domain is Domain.FLOAT and operator in (">", ">="):
        # Every IEEE comparison with NaN is false, so the opposite one puts it above all numbers.
        opposite = pc.less_equal if operator == ">" else pc.less
        return pc.invert(opposite(array, literal))
    return _KERNELS[operator](array, literal)


def _is_in(array: Any, column: Column, values: tuple[Any, ...], *, with_nan: bool) -> Any:
    is_float = column.type.domain is Domain.FLOAT
    if is_float:
        array = pc.add(array, _ZERO)  # -0.0 becomes 0.0: is_in looks at bits
    found = pc.is_in(array, value_set=_literals(array, column, values))
    if is_float and with_nan:
        found = pc.or_kleene(found, pc.is_nan(array))
    return pc.if_else(pc.is_valid(array), found, _NULL)


def _like(array: Any, pattern: LikePattern) -> Any:
    literals, wildcards = pattern.literals, pattern.wildcards
    if wildcards == (ANY,):
        first, last = literals
        if not last:
            return pc.starts_with(array, first)
        if not first:
            return pc.ends_with(array, last)
    if wildcards == (ANY, ANY) and not literals[0] and not literals[2]:
        return pc.match_substring(array, literals[1])
    return pc.match_substring_regex(array, _regex(pattern))


def _regex(pattern: LikePattern) -> str:
    pieces = [_escaped(pattern.literals[0])]
    for wildcard, literal in zip(pattern.wildcards, pattern.literals[1:], strict=True):
        pieces.append(".*" if wildcard == ANY else ".")
        pieces.append(_escaped(literal))
    return r"(?s)\A" + "".join(pieces) + r"\z"


def _escaped(literal: str) -> str:
    return re.sub(r"[^\w]", lambda found: rf"\x{{{ord(found[0]):x}}}", literal)


def _pair(bound: BoundPair, rows: _Rows) -> Any:
    left, right = (_decoded(rows.column(c)) for c in (bound.left, bound.right))
    if bound.left.type.domain is not Domain.FLOAT:
        return _KERNELS[bound.operator](left, right)
    if bound.operator in ("=", "!="):
        equal = pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
        return equal if bound.operator == "=" else pc.invert(equal)
    if bound.operator in (">", "<="):  # a > b is b < a; a <= b is not that
        left, right = right, left
    less = pc.or_(pc.less(left, right), pc.and_not(pc.is_nan(right), pc.is_nan(left)))
    return less if bound.operator in ("<", ">") else pc.invert(less)
