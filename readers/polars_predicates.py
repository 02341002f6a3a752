"""What a Polars predicate implies, as a filter of ours.

Polars shows a predicate's parts in its JSON form, which is its own business and may change. So
what does not look exactly as known is passed over, and Polars filters the rows again in any case:
a part that is not understood costs reading, never rows.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import Compare, Expression, In, IsNull, Like, Not
from strandline.tableformat.implied import UNKNOWN, Implied
from strandline.tableformat.like import escaped
from strandline.tableformat.literals import plain

if TYPE_CHECKING:
    from strandline.tableformat.column_names import ColumnName
    from strandline.tableformat.literals import Literal

_OPERATORS: Final = {
    "Eq": "=",
    "NotEq": "!=",
    "EqValidity": "<=>",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
}
_CLOSED: Final = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times without zone count from here too


class _NotUnderstood(Exception):
    """No error: this part of the predicate is left to Polars."""


def implied_by_polars(predicate: Any, schema: pa.Schema) -> Expression | None:
    """A filter that is true wherever the predicate is; None if none is known."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
        return _Reading(schema).predicate(tree).expression
    except Exception:  # noqa: BLE001 - whatever Polars hands over, it can filter by it itself
        return None


class _Reading:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def predicate(self, node: Any) -> Implied:
        try:
            return self._predicate(node)
        except (_NotUnderstood, InvalidInput, LookupError, TypeError, ValueError):
            return UNKNOWN

    def _predicate(self, node: Any) -> Implied:
        (kind, inner) = _only(node)
        if kind == "BinaryExpr" and inner["op"] in ("And", "Or"):
            sides = self.predicate(inner["left"]), self.predicate(inner["right"])
            return sides[0] & sides[1] if inner["op"] == "And" else sides[0] | sides[1]
        if kind == "BinaryExpr":
            return Implied(self._compare(_OPERATORS[inner["op"]], inner["left"], inner["right"]))
        if kind == "Function" and inner["function"] == {"Boolean": "Not"}:
            return ~self.predicate(inner["input"][0])
        if kind == "Function":
            (family, function) = _only(inner["function"])
            if family == "Boolean":
                return Implied(self._test(function, inner["input"]))
            if family == "StringExpr":
                return Implied(self._text(function, inner["input"]))
        name = self._name(node)
        if self._kind(name) != pa.bool_():
            raise _NotUnderstood
        return Implied(Compare(name, "=", value=True))

    def _compare(self, operator: str, left: Any, right: Any) -> Expression:
        name = self._name(left)
        return Compare(name, operator, self._value(right, self._kind(name)))

    def _test(self, function: Any, inputs: list[Any]) -> Expression:
        name = self._name(inputs[0])
        if function in ("IsNull", "IsNotNull"):
            return IsNull(name) if function == "IsNull" else Not(IsNull(name))
        if function in ("IsNan", "IsNotNan"):
            return Compare(name, "=" if function == "IsNan" else "!=", float("nan"))
        (kind, options) = _only(function)
        if kind == "IsBetween":
            operators = _CLOSED[options["closed"]]
            ends = [
                self._compare(operator, inputs[0], end)
                for operator, end in zip(operators, inputs[1:], strict=True)
            ]
            return reduce(lambda low, high: low & high, ends)
        if kind == "IsIn" and options == {"nulls_equal": False}:
            return In(name, self._listed(inputs[1], self._kind(name)))
        raise _NotUnderstood

    def _text(self, function: Any, inputs: list[Any]) -> Expression:
        name = self._name(inputs[0])
        text = self._value(inputs[1], pa.string())
        if not isinstance(text, str) or self._kind(name) != pa.string():
            raise _NotUnderstood
        if function == "StartsWith":
            return Like(name, escaped(text) + "%")
        if function == "EndsWith":
            return Like(name, "%" + escaped(text))
        (kind, options) = _only(function)
        if kind == "Contains" and options["literal"] is True:
            return Like(name, f"%{escaped(text)}%")
        raise _NotUnderstood

    # --- columns and values ---

    def _name(self, node: Any) -> ColumnName:
        (kind, inner) = _only(node)
        if kind == "Column" and isinstance(inner, str):
            return inner
        (family, function) = _only(inner["function"])
        (step, field) = _only(function)
        (outer,) = inner["input"]
        if (kind, family, step) != ("Function", "StructExpr", "FieldByName"):
            raise _NotUnderstood
        around = self._name(outer)
        return (*((around,) if isinstance(around, str) else around), str(field))

    def _kind(self, name: ColumnName) -> pa.DataType:
        first, *fields = (name,) if isinstance(name, str) else name
        kind = self._schema.field(first).type
        for field in fields:
            kind = kind.field(field).type
        return kind

    def _value(self, node: Any, kind: pa.DataType) -> Literal:
        """A literal, which must be of the column's own type: Polars has made it so."""
        (what, inner) = _only(node)
        (form, scalar) = _only(inner)
        if (what, form) != ("Literal", "Scalar"):
            raise _NotUnderstood
        (tag, value) = _only(scalar)
        made = _LITERALS[tag](value, kind)
        if made is None:
            raise _NotUnderstood
        return plain(made)

    def _listed(self, node: Any, kind: pa.DataType) -> tuple[Literal, ...]:
        """The values of a list but nulls, which find nothing; floats have zeros of two kinds."""
        (what, inner) = _only(node)
        (form, scalar) = _only(inner)
        (tag, stored) = _only(scalar)
        if (what, form, tag) != ("Literal", "Scalar", "List") or pa.types.is_floating(kind):
            raise _NotUnderstood
        held = pa.ipc.open_stream(bytes(stored)).read_all().column(0)
        if pa.types.is_string_view(held.type) or pa.types.is_large_string(held.type):
            held = held.cast(pa.string())
        if pa.types.is_binary_view(held.type) or pa.types.is_large_binary(held.type):
            held = held.cast(pa.binary())
        values = tuple(plain(value) for value in held.drop_null())
        if held.type != kind or not values:
            raise _NotUnderstood
        return values


def _only(node: Any) -> tuple[str, Any]:
    """The name and the content of a node that has one name."""
    if not isinstance(node, dict):
        raise _NotUnderstood
    ((name, inner),) = node.items()
    return name, inner


# --- literals by the tag that Polars gives them; None: not of the column's type ----------------


def _integer(value: Any, kind: pa.DataType) -> Any:
    return value if type(value) is int and pa.types.is_integer(kind) else None


def _float64(value: Any, kind: pa.DataType) -> Any:
    return value if type(value) is float and kind == pa.float64() else None


def _float32(value: Any, kind: pa.DataType) -> Any:
    # Written as the shortest text that leads back to the float32.
    return float(np.float32(value)) if type(value) is float and kind == pa.float32() else None


def _datetime(value: Any, kind: pa.DataType) -> Any:
    number, unit, zone = value
    if unit != "Microseconds" or not pa.types.is_timestamp(kind):
        return None
    if (zone is not None) != (kind.tz is not None):
        return None
    moment = _EPOCH + timedelta(microseconds=number)
    return moment if zone is None else moment.replace(tzinfo=UTC)


def _decimal(value: Any, kind: pa.DataType) -> Any:
    number, _, scale = value
    if not pa.types.is_decimal(kind):
        return None
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -scale))


_INTEGERS: Final = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
_LITERALS: Final[dict[str, Any]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "Float64": _float64,
    "Float32": _float32,
    "Datetime": _datetime,
    "Decimal": _decimal,
    "Boolean": lambda value, kind: value if kind == pa.bool_() else None,
    "String": lambda value, kind: value if kind == pa.string() else None,
    "Binary": lambda value, kind: bytes(value) if kind == pa.binary() else None,
    "Date": lambda value, kind: (
        (_EPOCH + timedelta(days=value)).date() if kind == pa.date32() else None
    ),
}
