"""Single values in metadata: column bounds, defaults, positions.

JSON numbers lose 64-bit integers, NaN, the infinities and the sign of zero in many readers, so
every value that could be touched by this stands as a string, decoded by the column's type.
"""

from __future__ import annotations

import base64
import math
import re
import reprlib
from typing import Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.types import INTEGER_RANGES, ColumnType, Domain

Value = int | float | str | bytes
"""A value in its stats domain: see `types.Domain`."""

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,39}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(e[+-]?[0-9]{1,3})?")


def encode(kind: ColumnType, value: Value) -> str:
    """The value as metadata text; `decode` gives the same value back, bit for bit."""
    domain = kind.domain
    if domain is Domain.INT:
        return str(int(value))
    if domain is Domain.FLOAT:
        return encode_float(float(value))
    if domain is Domain.BYTES:
        assert isinstance(value, bytes)
        return base64.b64encode(value).decode("ascii")
    assert isinstance(value, str)
    return value


def decode(kind: ColumnType, text: object, where: str) -> Value:
    """A value from metadata text; anything else is a corrupt table, named by `where`."""
    if not isinstance(text, str):
        raise CorruptTable(f"{where}: a value must be a string, not {type(text).__name__}")
    domain = kind.domain
    if domain is Domain.INT:
        if not _INTEGER.fullmatch(text):
            raise CorruptTable(f"{where}: {text[:60]!r} is not an integer")
        value = int(text)
        low, high = _int_range(kind)
        if not low <= value <= high:
            raise CorruptTable(f"{where}: {value} is outside {low} to {high}, so it is no {kind}")
        return value
    if domain is Domain.FLOAT:
        return decode_float(text, where)
    if domain is Domain.BYTES:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:  # binascii's own, or characters outside ASCII
            raise CorruptTable(f"{where}: {text[:60]!r} is not base64") from None
    if domain is Domain.TEXT:
        return text
    raise CorruptTable(f"{where}: a {kind} column has no single values")


def _int_range(kind: ColumnType) -> tuple[int, int]:
    if kind.name == "bool":
        return 0, 1
    if kind.name == "decimal":
        return 1 - 10**kind.precision, 10**kind.precision - 1
    stored_as = {"date": "int32", "timestamp": "int64", "timestamptz": "int64"}
    return INTEGER_RANGES[stored_as.get(kind.name, kind.name)]


def encode_float(value: float) -> str:
    """Shortest text that reads back as the same float; NaN, Infinity, -Infinity, -0.0 by name."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def decode_float(text: str, where: str) -> float:
    """A float from its metadata text."""
    if text == "NaN":
        return math.nan
    if text in ("Infinity", "-Infinity"):
        return math.inf if text == "Infinity" else -math.inf
    if not _FLOAT.fullmatch(text):
        raise CorruptTable(f"{where}: {text[:60]!r} is not a float")
    value = float(text)
    if math.isinf(value):
        raise CorruptTable(f"{where}: {text[:60]!r} is beyond the largest float")
    return value


def decode_int64(text: object, where: str, *, least: int = 0) -> int:
    """A 64-bit integer field; `least` is 0 for the counts, times and versions we store."""
    if not isinstance(text, str) or not _INTEGER.fullmatch(text):
        raise CorruptTable(f"{where}: expected an integer in a string, found {reprlib.repr(text)}")
    value = int(text)
    if not least <= value <= INT64_MAX:
        raise CorruptTable(f"{where}: {value} is outside {least} to 2^63-1")
    return value
