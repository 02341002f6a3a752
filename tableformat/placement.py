"""Where a literal stands among the values a column can hold.

A literal is either exactly one of them or falls between two neighbours (1.5 between the integers
1 and 2, 2**53 + 1 between two floats, 1000 above every int8). Knowing the neighbours is enough to
rewrite any comparison without rounding, so that stats, rows and indexes all see the same
predicate in the column's own domain.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.hidden_columns import MILLISECOND_IDS
from strandline.tableformat.literals import Literal, parse_moment, to_text
from strandline.tableformat.types import INTEGER_RANGES, Domain
from strandline.tableformat.values import INT64_MAX, INT64_MIN, Value

if TYPE_CHECKING:
    from strandline.tableformat.schema import Column

Position = int | Fraction | float
"""A point on the number line in a column's own unit; float only for the infinities."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times without zone count from here too
_EPOCH_DAY: Final = _EPOCH.toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_US: Final = 86_400_000_000
_INT_RANGES: Final[dict[str, tuple[int, int]]] = {
    **INTEGER_RANGES,
    "bool": (0, 1),
    "date": INTEGER_RANGES["int32"],
    "timestamp": (INT64_MIN, INT64_MAX),
    "timestamptz": (INT64_MIN, INT64_MAX),
}
_FLOAT_NAMES: Final = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
}
_HINTS: Final = {
    "bool": "TRUE or FALSE",
    "date": "a date, or a time without a zone",
    "timestamp": "a time without a zone, such as TIMESTAMP '2024-01-31 12:30:00'",
    "timestamptz": "a time with a zone, such as TIMESTAMP '2024-01-31 12:30:00Z'",
    "string": "text",
    "binary": "bytes, such as X'00ff'",
}


@dataclass(frozen=True, slots=True)
class Placed:
    """Either `exact`, or strictly between `below` and `above`; None where no value is further."""

    exact: Value | None = None
    below: Value | None = None
    above: Value | None = None


def place(column: Column, value: Literal) -> Placed:
    """Find the literal among the column's values; an error where the two cannot be compared."""
    domain = column.type.domain
    if domain is Domain.FLOAT:
        return _among_floats(column, value)
    if domain is Domain.INT:
        return _among_integers(column, _position(column, value))
    if (domain is Domain.TEXT and isinstance(value, str)) or (
        domain is Domain.BYTES and isinstance(value, bytes)
    ):
        return Placed(exact=value)
    raise _mismatch(column, value)


def check_comparable(column: Column) -> None:
    """Refuse comparisons of nested columns."""
    if column.type.is_nested:
        raise InvalidInput(
            f"column {column.name!r} has type {column.type}, which a filter can only test with "
            "IS NULL and IS NOT NULL"
        )


def _mismatch(column: Column, value: Literal) -> InvalidInput:
    text = to_text(value)
    shown = text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - fits one line
    return InvalidInput(
        f"column {column.name!r} has type {column.type} and cannot be compared with {shown}; "
        f"give {_HINTS.get(column.type.name, 'a number')}"
    )


# --- integers, and what is stored as one ------------------------------------------------------


def _among_integers(column: Column, position: Position) -> Placed:
    least, most = _int_range(column)
    if position > most:
        return Placed(below=most)
    if position < least:
        return Placed(above=least)
    floor = math.floor(position)
    return Placed(exact=floor) if floor == position else Placed(below=floor, above=floor + 1)


def _int_range(column: Column) -> tuple[int, int]:
    if column.type.name == "decimal":
        most = 10**column.type.precision - 1
        return -most, most
    return _INT_RANGES[column.type.name]


def _position(column: Column, value: Literal) -> Position:
    name = column.type.name
    if name in ("date", "timestamp", "timestamptz"):
        return _time_position(column, value)
    if isinstance(value, bool):
        if name == "bool":
            return int(value)
        raise _mismatch(column, value)
    if column.id in MILLISECOND_IDS and isinstance(value, (str, date)):
        return Fraction(_microseconds(column, value, zoned=True), 1000)
    if name == "bool" or not isinstance(value, (int, float, Decimal)):
        raise _mismatch(column, value)
    if isinstance(value, float) and not math.isfinite(value):
        return -math.inf if value < 0 else math.inf  # NaN is greater than all numbers
    if name != "decimal":
        return value if isinstance(value, int) else Fraction(value)
    # A float against a decimal column stands for the decimal it prints as: 0.1 finds 0.10, which
    # the binary fraction behind it never would.
    number = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    return number * Fraction(10) ** column.type.scale


def _time_position(column: Column, value: Literal) -> Position:
    name = column.type.name
    microseconds = _microseconds(column, value, zoned=name == "timestamptz")
    return Fraction(microseconds, _DAY_US) if name == "date" else microseconds


def _microseconds(column: Column, value: Literal, *, zoned: bool) -> int:
    """Since the epoch. A missing or surplus zone is refused: guessing one shifts the answer."""
    if isinstance(value, str):
        try:
            value = parse_moment(value)
        except ValueError as error:
            raise InvalidInput(f"column {column.name!r} ({column.type}): {error}") from None
    if isinstance(value, datetime):
        if (value.tzinfo is not None) != zoned:
            raise _mismatch(column, value)
        return (value - (_EPOCH.replace(tzinfo=UTC) if zoned else _EPOCH)) // _MICROSECOND
    if isinstance(value, date) and not zoned:
        return (value.toordinal() - _EPOCH_DAY) * _DAY_US
    raise _mismatch(column, value)


# --- floats -----------------------------------------------------------------------------------


def _among_floats(column: Column, value: Literal) -> Placed:
    if isinstance(value, str) and value.lower() in _FLOAT_NAMES:
        return Placed(exact=_FLOAT_NAMES[value.lower()])
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _mismatch(column, value)
    if isinstance(value, Decimal):
        # As in SQL, a decimal against a float column means the nearest float: exactly, 0.1 is
        # between two floats and `x = 0.1` would never be true.
        nearest = float(value)
        if math.isfinite(nearest):
            return Placed(exact=nearest + 0.0)
        value = int(value)
    if isinstance(value, int):
        return _int_among_floats(value)
    return Placed(exact=value + 0.0)  # -0.0 becomes 0.0, its equal


def _int_among_floats(value: int) -> Placed:
    try:
        nearest = float(value)
    except OverflowError:
        if value > 0:
            return Placed(below=sys.float_info.max, above=math.inf)
        return Placed(below=-math.inf, above=-sys.float_info.max)
    if nearest == value:
        return Placed(exact=nearest)
    if nearest < value:
        return Placed(below=nearest, above=math.nextafter(nearest, math.inf))
    return Placed(below=math.nextafter(nearest, -math.inf), above=nearest)
