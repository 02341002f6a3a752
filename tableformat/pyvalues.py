"""Python values into Arrow arrays of a column's type, without guessing.

`pa.array(values, type)` is quick but generous: it takes numbers for times, drops time zones and
days' hours, reads bytes as text, splits a string into a list of characters and forgets the keys
of a dict that the struct does not know. So the classes of the values are looked at first. A
column holds few classes, which makes that cheap; only values of unusual classes are touched one
by one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat import types
from strandline.tableformat.conform import conform, offsets32
from strandline.tableformat.errors import InvalidRow
from strandline.tableformat.misfits import (
    NULL_REFUSED,
    RowsOf,
    TooLarge,
    first_failure,
    first_true,
    in_halves,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.tableformat.types import ColumnType, Field

    Convert = Callable[[Any], Any]

_PLAIN: Final[dict[str, frozenset[type]]] = {
    "bool": frozenset({bool}),
    **dict.fromkeys(types.INTEGER_RANGES, frozenset({int})),
    "float32": frozenset(),
    "float64": frozenset({float}),
    "decimal": frozenset({Decimal, int}),
    "date": frozenset({date}),
    "timestamp": frozenset(),
    "timestamptz": frozenset(),
    "string": frozenset({str}),
    "binary": frozenset({bytes}),
}
"""Classes whose values need no second look."""

_PAIR: Final = 2
_FLOAT32: Final = struct.Struct("<f")


def column_from_python(values: list[Any], kind: ColumnType, field: str) -> pa.ChunkedArray:
    """The values as a column, or an error that names the first one that does not fit exactly."""

    def part(start: int, stop: int) -> pa.Array:
        whole = stop - start == len(values)
        array = _build(values if whole else values[start:stop], kind, field)
        return conform(array, kind, field) if kind.is_nested else array  # its nulls are checked

    return pa.chunked_array(in_halves(len(values), part, field), types.to_arrow(kind))


def _build(values: list[Any], kind: ColumnType, field: str) -> pa.Array:
    if kind.is_nested:
        return _NESTED[kind.name](values, kind, field)
    classes = set(map(type, values))
    classes.discard(type(None))
    if not classes <= _PLAIN[kind.name] and not _are_plain_times(values, classes, kind):
        values = _converted(values, classes, kind, field)
    # Arrow rounds an integer to 32 bits without a word; 64 bits first, then with a check.
    arrow = pa.float64() if kind.name == "float32" else types.to_arrow(kind)
    try:
        array = pa.array(values, arrow)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        row = first_failure(len(values), lambda a, b: pa.array(values[a:b], arrow))
        raise InvalidRow(row, field, _misfit(values[row], kind, error)) from None
    if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text
        raise TooLarge
    return conform(array, kind, field) if kind.name == "float32" else array


def _misfit(value: object, kind: ColumnType, error: Exception) -> str:
    if kind.name in types.INTEGER_RANGES:
        low, high = types.INTEGER_RANGES[kind.name]
        return f"{shown(value)} does not fit {kind}: it holds {low} to {high}"
    if kind.name == "decimal":
        return f"{shown(value)} does not fit {kind} without rounding"
    return f"{shown(value)} does not fit {kind}: {error}"


# --- values one by one ------------------------------------------------------------------------


def _converted(
    values: Iterable[Any], classes: set[type], kind: ColumnType, field: str
) -> list[Any]:
    converters = {cls: _converter(cls, kind) for cls in classes}
    converters[type(None)] = _keep
    out: list[Any] = []
    for row, value in enumerate(values):
        convert = converters[type(value)]
        if convert is None:
            reason = f"{shown(value)} is a {type(value).__name__} and the column is {kind}"
            raise InvalidRow(row, field, reason)
        try:
            out.append(convert(value))
        except (ArithmeticError, ValueError) as error:
            raise InvalidRow(row, field, f"{shown(value)} does not fit {kind}: {error}") from None
    return out


def _converter(cls: type, kind: ColumnType) -> Convert | None:
    """How values of this class enter a column of this type; None: they do not."""
    if cls.__name__ in ("NAType", "NaTType") and cls.__module__.startswith("pandas."):
        return _to_none
    for accepted, refused, convert in _CONVERTERS[kind.name]:
        if issubclass(cls, accepted) and not issubclass(cls, refused):
            return convert
    return None


def _keep(value: Any) -> Any:
    return value


def _to_none(_: object) -> None:
    return None


def _exact_float(value: Any) -> float:
    whole = int(value)
    if int(float(whole)) != whole:
        raise ValueError("a float cannot hold it exactly")
    return float(whole)


def _are_plain_times(values: list[Any], classes: set[type], kind: ColumnType) -> bool:
    if classes != {datetime} or not kind.name.startswith("timestamp"):
        return False
    zones = {value.tzinfo for value in values if value is not None}
    return zones == ({None} if kind.name == "timestamp" else {UTC})


def _naive(value: datetime) -> datetime:
    if value.tzinfo is not None:
        raise ValueError("it has a time zone; drop it with .replace(tzinfo=None)")
    return _whole_microseconds(value)


def _in_utc(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise ValueError("it has no time zone; say which with .replace(tzinfo=...)")
    # Arrow would cut an offset's microseconds and run past the year 9999.
    return _whole_microseconds(value).astimezone(UTC)


def _whole_microseconds(value: datetime) -> datetime:
    if getattr(value, "nanosecond", 0):  # pandas' Timestamp is a datetime with more digits
        raise ValueError("it has nanoseconds; round it to microseconds")
    return value


def _from_datetime64(value: np.datetime64) -> datetime | None:
    if np.isnat(value):
        return None
    micros = value.astype("datetime64[us]")
    out = micros.item()
    if micros != value or not isinstance(out, datetime):
        raise ValueError("it has nanoseconds, or lies outside the years 1 to 9999")
    return out


def _nearest_float32(value: float) -> float:
    """Python has no 32-bit float to write 0.1 in, so rounding is what its author asked for."""
    nearest: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]  # too large is an OverflowError
    return nearest


# A bool is an int to Python, a timedelta64 an integer to numpy, a datetime a date: not to us.
_INTS: Final = ((int, np.integer), (bool, np.timedelta64))
_FLOATS: Final = ((float, np.float16, np.float32, np.float64), ())
_FLOAT_RULES: Final = ((*_INTS, _exact_float), (*_FLOATS, float))
_CONVERTERS: Final[dict[str, tuple[tuple[Any, Any, Convert], ...]]] = {
    "bool": (((bool, np.bool_), (), bool),),
    **dict.fromkeys(types.INTEGER_RANGES, ((*_INTS, int),)),
    "float32": ((*_INTS, _exact_float), (*_FLOATS, _nearest_float32)),
    "float64": _FLOAT_RULES,
    "decimal": ((*_INTS, int), (Decimal, (), _keep)),
    "date": ((date, datetime, _keep),),
    "timestamp": ((np.datetime64, (), _from_datetime64), (datetime, (), _naive)),
    "timestamptz": ((datetime, (), _in_utc),),
    "string": ((str, (), _keep),),
    "binary": (((bytes, bytearray, memoryview), (), _keep),),
}
"""Per type: classes that are accepted, subclasses of these that are not, and what happens."""


# --- nested values ----------------------------------------------------------------------------


def _check_classes(
    values: list[Any], allowed: Callable[[type], bool], kind: ColumnType, field: str
) -> bool:
    """Refuse values of other classes; say whether there are nulls."""
    classes = set(map(type, values))
    for cls in classes - {type(None)}:
        if not allowed(cls):
            row = next(row for row, value in enumerate(values) if type(value) is cls)
            raise InvalidRow(
                row, field, f"{shown(values[row])} is a {cls.__name__} and the column is {kind}"
            )
    return type(None) in classes


def _is_list(cls: type) -> bool:
    if issubclass(cls, (str, bytes, bytearray, memoryview)):
        return False
    return issubclass(cls, (Sequence, np.ndarray))


def _list(values: list[Any], kind: ColumnType, field: str) -> pa.Array:
    has_nulls = _check_classes(values, _is_list, kind, field)
    rows = [
        () if value is None else _elements(row, value, field) for row, value in enumerate(values)
    ]
    offsets = _offsets(rows)
    (element,) = kind.children
    with RowsOf(offsets):
        members = _build(list(chain.from_iterable(rows)), element.type, _path(field, element))
    return pa.ListArray.from_arrays(
        offsets32(offsets), members, type=types.to_arrow(kind), mask=_null_mask(values, has_nulls)
    )


def _elements(row: int, value: Any, field: str) -> Sequence[Any]:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise InvalidRow(row, field, f"{shown(value)} is one value and not a list")
    return value if isinstance(value, (list, tuple)) else list(value)


def _map(values: list[Any], kind: ColumnType, field: str) -> pa.Array:
    has_nulls = _check_classes(
        values, lambda cls: issubclass(cls, Mapping) or _is_list(cls), kind, field
    )
    rows = [
        () if value is None else _entries(row, value, field) for row, value in enumerate(values)
    ]
    offsets = _offsets(rows)
    key, item = kind.children
    with RowsOf(offsets):
        entries = list(chain.from_iterable(rows))
        keys = _build([entry[0] for entry in entries], key.type, _path(field, key))
        if keys.null_count:
            raise InvalidRow(first_true(keys.is_null()), _path(field, key), NULL_REFUSED)
        items = _build([entry[1] for entry in entries], item.type, _path(field, item))
    return pa.MapArray.from_arrays(
        offsets32(offsets),
        keys,
        items,
        type=types.to_arrow(kind),
        mask=_null_mask(values, has_nulls),
    )


def _entries(row: int, value: Any, field: str) -> list[Any]:
    entries = list(value.items()) if isinstance(value, Mapping) else list(value)
    if not all(isinstance(entry, (tuple, list)) and len(entry) == _PAIR for entry in entries):
        raise InvalidRow(row, field, f"{shown(value)} is not a mapping or a list of pairs")
    return entries


def _struct(values: list[Any], kind: ColumnType, field: str) -> pa.Array:
    has_nulls = _check_classes(values, lambda cls: issubclass(cls, Mapping), kind, field)
    rows: list[Mapping[str, Any]] = [{} if value is None else value for value in values]
    unknown = unknown_key(rows, frozenset(child.name for child in kind.children))
    if unknown is not None:
        row, name = unknown
        raise InvalidRow(row, f"{field}.{name}", f"it is not a field of {kind}")
    members = [
        _build([row.get(child.name) for row in rows], child.type, _path(field, child))
        for child in kind.children
    ]
    fields = list(types.to_arrow(kind))
    return pa.StructArray.from_arrays(members, fields=fields, mask=_null_mask(values, has_nulls))


def unknown_key(rows: Sequence[Mapping[Any, Any]], known: frozenset[str]) -> tuple[int, Any] | None:
    """The first row that has a key outside `known`, with that key."""
    if known.issuperset(chain.from_iterable(rows)):
        return None
    return next((n, key) for n, row in enumerate(rows) for key in row if key not in known)


def _path(field: str, child: Field) -> str:
    return f"{field}.{child.name}"


def _offsets(rows: Sequence[Sequence[Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return offsets


def _null_mask(values: list[Any], has_nulls: bool) -> pa.Array | None:  # noqa: FBT001 - private
    return pa.array([value is None for value in values], pa.bool_()) if has_nulls else None


_NESTED: Final[dict[str, Callable[[list[Any], ColumnType, str], pa.Array]]] = {
    "list": _list,
    "map": _map,
    "struct": _struct,
}
