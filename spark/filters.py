"""Spark's filters, as the JVM sends them, in our filter language, for choosing files.

Spark asks every row again, so a filter here may let through too much and never too little: what
is not understood is left out.
"""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.binding import bind
from strandline.tableformat.errors import InvalidInput
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.tableformat.column_names import ColumnName
    from strandline.tableformat.schema import Schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPERATORS: Final = {"=": "=", "<=>": "<=>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LITERALS: Final[Mapping[str, Callable[[str], Any]]] = {
    "boolean": lambda text: text == "true",
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "binary": base64.b64decode,
    "date": lambda text: date(1970, 1, 1) + timedelta(days=int(text)),
    "timestamp": lambda text: _EPOCH + timedelta(microseconds=int(text)),
    "timestamp_ntz": lambda text: (_EPOCH + timedelta(microseconds=int(text))).replace(tzinfo=None),
}


class _Unknown(Exception):
    """Part of a filter that has no counterpart here."""


def understood(filters: Sequence[Any], schema: Schema) -> list[Expression]:
    """Filters that hold for every wanted row: files where they hold for none can be left out."""
    names = {column.physical_name: column.name for column in schema.columns}
    found: list[Expression] = []
    for node in filters:
        expression = _weaker(node, names, negated=False)
        if expression is not None:
            found += _that_bind(expression, schema)
    return found


def _that_bind(expression: Expression, schema: Schema) -> list[Expression]:
    parts = expression.parts if isinstance(expression, And) else (expression,)
    kept = []
    for part in parts:
        try:
            bind(part, schema)
        except InvalidInput:
            continue  # for example text compared with a number: Spark knows what it means by that
        kept.append(part)
    return kept


def _weaker(node: Sequence[Any], names: Mapping[str, str], *, negated: bool) -> Expression | None:
    """True wherever the node is, or where its opposite is if negated; None: not understood."""
    kind = node[0]
    if kind == "not":
        return _weaker(node[1], names, negated=not negated)
    if kind in ("and", "or"):
        parts = [_weaker(part, names, negated=negated) for part in node[1:]]
        known = [part for part in parts if part is not None]
        if (kind == "and") != negated:  # all of them hold: each one alone says something
            return None if not known else known[0] if len(known) == 1 else And(tuple(known))
        return Or(tuple(known)) if len(known) == len(parts) else None
    try:
        leaf = _leaf(node, names)
    except (_Unknown, InvalidInput, OverflowError, ValueError):
        return None
    return Not(leaf) if negated else leaf


def _leaf(node: Sequence[Any], names: Mapping[str, str]) -> Expression:
    kind, *parts = node
    match kind:
        case "null":
            return IsNull(_column(parts[0], names))
        case "prefix":
            text = _literal(parts[1])
            if not isinstance(text, str):
                raise _Unknown
            return Like(_column(parts[0], names), _escaped(text) + "%")
        case "in":
            return In(_column(parts[0], names), tuple(_literal(part) for part in parts[1:]))
        case "true":
            if parts[0][0] == "literal":
                return Constant(_literal(parts[0]))
            return Compare(_column(parts[0], names), "=", True)  # noqa: FBT003 - a value
    if kind not in _OPERATORS:
        raise _Unknown
    return _comparison(kind, parts[0], parts[1], names)


def _comparison(kind: str, left: Any, right: Any, names: Mapping[str, str]) -> Expression:
    if left[0] == "literal":
        left, right, kind = right, left, _MIRRORED[kind]
    if right[0] == "literal":
        return Compare(_column(left, names), kind, _literal(right))
    return ComparePair(_column(left, names), kind, _column(right, names))


def _column(node: Sequence[Any], names: Mapping[str, str]) -> ColumnName:
    if node[0] != "column":
        raise _Unknown
    _, physical, *path = node
    if physical in ("_seq", "_ts", "_window"):
        return str(physical)
    if physical not in names:
        raise _Unknown
    return (names[physical], *path) if path else names[physical]


def _literal(node: Sequence[Any]) -> Any:
    if node[0] != "literal" or node[1] not in _LITERALS:
        raise _Unknown
    return None if node[2] is None else _LITERALS[node[1]](node[2])


def _escaped(text: str) -> str:
    """Text that a LIKE pattern takes as it is."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
