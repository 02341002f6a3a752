"""The same rows and predicates in DuckDB, which decides what the answer is.

Every comparison is DuckDB's own, in the column's own type. Where the two dialects mean different
things by the same words, the SQL is written so that it means ours:

- A literal that no value of the column's type equals (1.5 for an integer, 2**53 + 1 for a float, a
  number beyond the type) would be rounded or refused by a cast. It lies between two neighbours, and
  the comparison is made with the right one of them; equality with it is false for every value.
- A decimal against a float column means the nearest float, and a float against a decimal column the
  decimal that it prints as.
- `<=>` is IS NOT DISTINCT FROM. LIKE escapes with a backslash, which DuckDB only does when told so.
- `_ts` and `_window` are integers that also compare with moments: as milliseconds, exactly.

What is the same in both, and relied on: NaN equals itself and is above all numbers, -0.0 equals
0.0, texts compare by code point, blobs by byte, and NOT, IN, BETWEEN, AND and OR follow
three-valued logic.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa

from tests.readers.differential.predicates import (
    EPOCH,
    Bare,
    Between,
    Column,
    Compare,
    In,
    IsNull,
    Joined,
    Like,
    Literal,
    Not,
    Predicate,
)
from tests.readers.differential.values import DAY_US, INTEGERS

_TYPES = {
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER",
}  # fmt: skip


_EXACT = Context(prec=80)


class Peer:
    """One DuckDB in this process's memory, with one table at a time."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")

    def load(self, rows: pa.Table) -> None:
        self._connection.register("given", rows)
        self._connection.execute("CREATE OR REPLACE TABLE held AS SELECT * FROM given")
        self._connection.unregister("given")

    def numbers(self, where: str, order: str, limit: int | None) -> tuple[int, ...]:
        """The `_seq` of all rows for which the condition is true, in this order."""
        cut = "" if limit is None else f" LIMIT {limit}"
        query = f"SELECT _seq FROM held WHERE {where} ORDER BY {order}{cut}"
        return tuple(self._connection.execute(query).fetchnumpy()["_seq"].tolist())


def sql_of(predicate: Predicate) -> str:  # noqa: C901 - one case per kind
    """The predicate as a condition."""
    match predicate:
        case Compare(left, operator, Column() as right):
            return f"{_name(left)} {_spelled(operator)} {_name(right)}"
        case Compare(left, operator, right):
            return _compare(left, operator, right)
        case Between(column, low, high, negated):
            ends = f"({_compare(column, '>=', low)} AND {_compare(column, '<=', high)})"
            return f"NOT {ends}" if negated else ends
        case In(column, values, negated):
            return f"NOT ({_is_in(column, values)})" if negated else _is_in(column, values)
        case IsNull(column, negated):
            return f"{_name(column)} IS {'NOT ' if negated else ''}NULL"
        case Like(column, pattern, negated):
            like = "NOT LIKE" if negated else "LIKE"
            return f"{_name(column)} {like} {_text(pattern)} ESCAPE '\\'"
        case Bare(Column() as column):
            return _name(column)
        case Bare(value):
            return "CAST(NULL AS BOOLEAN)" if value is None else str(value)
        case Not(inner):
            return f"NOT ({sql_of(inner)})"
        case Joined(word, parts):
            return f" {word} ".join(f"({sql_of(part)})" for part in parts)
    raise AssertionError(predicate)


def _name(column: Column) -> str:
    return ".".join([column.key, *(f'"{part}"' for part in column.path)])


def _spelled(operator: str) -> str:
    return "IS NOT DISTINCT FROM" if operator == "<=>" else operator


def _compare(column: Column, operator: str, value: Literal) -> str:
    if value is None:
        null_safe = f"{_name(column)} IS NULL"
        return null_safe if operator == "<=>" else "CAST(NULL AS BOOLEAN)"
    below, above = _neighbours(column, value)
    if below is not None and below == above:
        return f"{_name(column)} {_spelled(operator)} {below}"
    if operator == "<=>":
        return "FALSE"
    if operator in ("=", "!="):
        return _known(column, value=operator == "!=")
    if operator in ("<", "<="):
        return _known(column, value=False) if below is None else f"{_name(column)} <= {below}"
    return _known(column, value=False) if above is None else f"{_name(column)} >= {above}"


def _known(column: Column, *, value: bool) -> str:
    return f"CASE WHEN {_name(column)} IS NULL THEN NULL ELSE {value} END"


def _is_in(column: Column, values: tuple[Literal, ...]) -> str:
    if not values:
        return "FALSE"
    listed = []
    for value in values:
        below, above = ("NULL", "NULL") if value is None else _neighbours(column, value)
        if below is not None and below == above:
            listed.append(below)
    return f"{_name(column)} IN ({', '.join(listed)})" if listed else _known(column, value=False)


# --- literals -----------------------------------------------------------------------------------


def _neighbours(column: Column, value: Any) -> tuple[str | None, str | None]:
    """The greatest value of the type that is not above the literal, and the least not below it.

    None where there is none. Both are the same if the literal is a value of the type.
    """
    kind = column.kind
    if pa.types.is_boolean(kind):
        return str(value), str(value)
    if pa.types.is_string(kind):
        return _text(value), _text(value)
    if pa.types.is_binary(kind):
        return f"unhex('{value.hex()}')", f"unhex('{value.hex()}')"
    if pa.types.is_floating(kind):
        return _float_neighbours(value)
    if isinstance(value, float) and not math.isfinite(value):
        # NaN is above all numbers, whatever type they have.
        low, high = _range(kind)
        return (None, _whole(kind, low)) if value < 0 else (_whole(kind, high), None)
    steps = _in_steps(column, value)
    low, high = _range(kind)
    below, above = math.floor(steps), math.ceil(steps)
    return (
        _whole(kind, min(below, high)) if below >= low else None,
        _whole(kind, max(above, low)) if above <= high else None,
    )


def _in_steps(column: Column, value: Any) -> Fraction:
    """Where the literal stands, counted in the type's smallest steps from its zero."""
    kind = column.kind
    if isinstance(value, (date, datetime)):
        micros = Fraction(_micros(value))
        if pa.types.is_date(kind):
            return micros / DAY_US
        return micros / 1_000 if column.is_time else micros
    if pa.types.is_decimal(kind):
        exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
        return exact * 10**kind.scale
    return Fraction(value)


def _micros(value: date | datetime) -> int:
    if not isinstance(value, datetime):
        return (value - EPOCH.date()).days * DAY_US
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return (plain - EPOCH) // timedelta(microseconds=1)


def _range(kind: pa.DataType) -> tuple[int, int]:
    if pa.types.is_decimal(kind):
        return -(10**kind.precision) + 1, 10**kind.precision - 1
    bits = 32 if pa.types.is_date(kind) else INTEGERS.get(kind, 64)
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _whole(kind: pa.DataType, steps: int) -> str:
    """A number of steps as a literal of the type."""
    if pa.types.is_decimal(kind):
        digits = str(Decimal(steps).scaleb(-kind.scale, _EXACT))
        return f"CAST('{Decimal(digits):f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if pa.types.is_date(kind):
        return f"(DATE '1970-01-01' + CAST({steps} AS INTEGER))"
    if pa.types.is_timestamp(kind):
        made = "make_timestamptz" if kind.tz else "make_timestamp"
        return f"{made}(CAST({steps} AS BIGINT))"
    return f"CAST('{steps}' AS {_TYPES[kind]})"


def _float_neighbours(value: Any) -> tuple[str, str]:
    if isinstance(value, Decimal):
        nearest = float(value)
        value = nearest if math.isfinite(nearest) else int(value)
    if isinstance(value, float):
        return _double(value), _double(value)
    below = _as_float(value)
    if below > value:
        below = math.nextafter(below, -math.inf)
    above = below if below == value else math.nextafter(below, math.inf)
    return _double(below), _double(above)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _double(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
