"""The values a filter may hold, and their text form.

Every value becomes one of a few plain Python types when an expression is built, so that the rest
of the filter language never meets numpy scalars, pandas timestamps or enums. The text form tells
all of them apart (5 is an integer, 5.0 a decimal, 5e0 a float), so text equality is equality.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

Literal = bool | int | float | Decimal | str | bytes | date | datetime | None
"""datetime either has no zone or is in UTC; Decimal is finite; no subclasses of these."""

MAX_DIGITS: Final = 1_000
"""No column holds more than 38; the bound keeps a number's text and arithmetic cheap."""

_MAX_BITS: Final = 3_300
_DATE_TEXT: Final = r"(\d{4})-(\d\d)-(\d\d)"
_TIME_TEXT: Final = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)? ?(Z|z|[+-]\d\d(?::?\d\d)?)?"
_DATE: Final = re.compile(_DATE_TEXT, re.ASCII)
_MOMENT: Final = re.compile(rf"{_DATE_TEXT}(?:[Tt ]{_TIME_TEXT})?", re.ASCII)


def plain(value: object) -> Literal:
    """The value as one of the plain types, or an error that names what was given."""
    if isinstance(value, np.generic):
        value = _from_numpy(value)
    elif hasattr(value, "as_py"):
        value = value.as_py()  # a pyarrow scalar
    if value is None:
        return None
    for kind, convert in _PLAIN:
        if isinstance(value, kind):
            return convert(value)
    raise InvalidInput(
        f"a filter cannot compare with {_brief(value)} of type {type(value).__name__}; give a "
        "bool, int, float, Decimal, str, bytes, date, datetime or None"
    )


def _plain_int(value: int) -> int:
    value = int(value)
    if value.bit_length() > _MAX_BITS:
        raise InvalidInput(f"an integer in a filter has more than {MAX_DIGITS} digits")
    return value


def _plain_text(value: str) -> str:
    value = str.__str__(value)  # an enum's own str() gives its label
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{_brief(value)} is not valid Unicode text") from None
    return value


def _plain_decimal(value: Decimal) -> Decimal | float:
    if value.is_nan():
        return math.nan
    if value.is_infinite():
        return math.copysign(math.inf, value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) > MAX_DIGITS or abs(exponent) > MAX_DIGITS:
        raise InvalidInput(f"a decimal in a filter has more than {MAX_DIGITS} digits")
    return Decimal((sign, digits, exponent))


def _plain_datetime(value: datetime) -> datetime | None:
    if value != value:  # noqa: PLR0124 - pandas.NaT claims to be a datetime; it is a missing one
        return None
    if getattr(value, "nanosecond", 0):
        raise InvalidInput(f"{_brief(value)} is finer than a microsecond, which no column holds")
    if value.tzinfo is not None and value.utcoffset() is not None:
        try:
            value = value.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(f"{_brief(value)} falls outside the years 1 to 9999") from None
    # Built anew: drops subclasses, `fold`, and zone objects that are only equal to UTC.
    return datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
        tzinfo=None if value.tzinfo is None else UTC,
    )


def _plain_date(value: date) -> date:
    return date(value.year, value.month, value.day)


_PLAIN: Final[tuple[tuple[Any, Callable[[Any], Literal]], ...]] = (
    (bool, bool),  # before int, as datetime is before date: these are subclasses
    (int, _plain_int),
    (float, float),
    (str, _plain_text),
    (Decimal, _plain_decimal),
    ((bytes, bytearray, memoryview), bytes),
    (datetime, _plain_datetime),
    (date, _plain_date),
)


def _from_numpy(value: np.generic) -> Any:
    if not isinstance(value, np.datetime64):
        return value.item()
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] == "D":
        return value.item()
    microseconds = value.astype("datetime64[us]")
    if microseconds != value:
        raise InvalidInput(f"{_brief(value)} is finer than a microsecond, which no column holds")
    return microseconds.item()


def to_text(value: Literal) -> str:
    """The value as the filter parser reads it back, with its type."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text if "." in text else f"{text}.0"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    return f"DATE '{value.isoformat()}'"


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def parse_date(text: str) -> date:
    """A date from `2024-01-31`; ValueError for anything else."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{_brief(text)} is not a date like 2024-01-31")
    return date(int(match[1]), int(match[2]), int(match[3]))


def parse_moment(text: str) -> date | datetime:
    """A date, or a time with or without zone, from ISO text; ValueError for anything else.

    Stricter than `datetime.fromisoformat`, which silently cuts digits behind the microseconds.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{_brief(text)} is not a time like 2024-01-31 12:30:00.000001 or 2024-01-31T12:30Z"
        )
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if hour is None:
        return date(int(year), int(month), int(day))
    moment = datetime(
        int(year),
        int(month),
        int(day),
        int(hour),
        int(minute),
        int(second or 0),
        int((fraction or "").ljust(6, "0")),
        tzinfo=_zone(zone) if zone else None,
    )
    plain_moment = _plain_datetime(moment)
    assert plain_moment is not None
    return plain_moment


def _zone(text: str) -> timezone:
    if text in ("Z", "z"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - fits one line
