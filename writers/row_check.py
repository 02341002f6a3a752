"""The quick look at a single row: plain values of the right classes need no more than that.

A producer sends the same shape of row again and again. So the classes of a row's values, as one
tuple, are looked up among those seen before; only numbers and times are then compared with their
bounds. Whatever is unusual in any way takes the careful road, which gives the right error too.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.tableformat.timestamps import TS_LIMIT_MS
from strandline.tableformat.types import INTEGER_RANGES

if TYPE_CHECKING:
    from strandline.tableformat.config import Config
    from strandline.tableformat.schema import Column, Schema

_NONE: Final = type(None)
_FINITE: Final = (-sys.float_info.max, sys.float_info.max)
_MOST_SIGNATURES: Final = 256
_FIRST_YEAR: Final = 1970

_FREE: Final = frozenset({(str, "string"), (bytes, "binary"), (bool, "bool"), (date, "date")})
"""Classes of which every value fits."""


class _Checks(NamedTuple):
    """What is to be compared in each row of one signature."""

    bounds: list[tuple[int, Any, Any]]
    times: list[tuple[int, Any]]
    decimals: list[tuple[int, tuple[int, int]]]


class RowCheck:
    """Knows one schema; gives the values of a row that is certainly valid."""

    def __init__(self, schema: Schema, config: Config) -> None:
        self.schema = schema
        self._columns, self._config = schema.columns, config
        self._names = tuple(column.name for column in schema.columns)
        self._all = frozenset(self._names)
        # With one name, itemgetter gives a value and not a tuple.
        self._take = itemgetter(*self._names, self._names[0])
        self._known: dict[tuple[type, ...], _Checks | None] = {}
        self._has_defaults = any(column.default is not None for column in schema.columns)

    def values(self, row: Any) -> tuple[Any, ...] | None:
        """The values in the order of the columns; None: have a careful look."""
        if type(row) is not dict:
            return None
        try:
            values = self._take(row)[:-1]
            if len(row) != len(values):
                return None
        except KeyError:
            if self._has_defaults or not row.keys() <= self._all:
                return None
            values = tuple(map(row.get, self._names))
        return values if self._are_plain(values) else None

    def _are_plain(self, values: tuple[Any, ...]) -> bool:
        signature = tuple(map(type, values))
        try:
            checks = self._known[signature]
        except KeyError:
            checks = self._learn(signature)
        if checks is None:
            return False
        for index, low, high in checks[0]:
            if not low <= values[index] <= high:
                return False
        for index, zone in checks[1]:
            if values[index].tzinfo is not zone or values[index].year < _FIRST_YEAR:
                return False
        return all(fits_decimal(values[index], *room) for index, room in checks[2])

    def _learn(self, signature: tuple[type, ...]) -> _Checks | None:
        checks = _Checks([], [], [])
        plain = True
        for index, (column, cls) in enumerate(zip(self._columns, signature, strict=True)):
            plain &= self._learn_column(index, column, cls, checks)
        if len(self._known) >= _MOST_SIGNATURES:
            self._known.clear()
        found = self._known[signature] = checks if plain else None
        return found

    def _learn_column(
        self,
        index: int,
        column: Column,
        cls: type,
        checks: _Checks,
    ) -> bool:
        """Whether values of this class may enter, with the checks that each of them needs."""
        kind = column.type.name
        is_time = column.id == self._config.time_column
        if cls is _NONE:
            required = is_time and self._config.timestamping == "client-require"
            return column.nullable and not required
        if cls is int and kind in INTEGER_RANGES:
            low, high = INTEGER_RANGES[kind]
            checks.bounds.append((index, 0, TS_LIMIT_MS - 1) if is_time else (index, low, high))
            return True
        if cls is float and kind == "float64":
            checks.bounds.append((index, *_FINITE))
            return True
        if cls is datetime and kind in ("timestamp", "timestamptz"):
            checks.times.append((index, UTC if kind == "timestamptz" else None))
            return True
        if cls is Decimal and kind == "decimal":
            checks.decimals.append((index, (column.type.precision, column.type.scale)))
            return True
        return (cls, kind) in _FREE


def fits_decimal(value: Decimal, precision: int, scale: int) -> bool:
    """Whether a column of this precision and scale holds the value without rounding."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # NaN or infinity
        return False
    return exponent >= -scale and len(digits) + exponent <= precision - scale
