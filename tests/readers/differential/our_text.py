"""A predicate as a person might type it in our filter language: names and values spelled anyhow."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.readers.differential.predicates import (
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

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date
    from random import Random

_SPELLINGS = {"=": ["=", "=="], "!=": ["!=", "<>"]}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KEYWORDS = frozenset("and or not in between is like null true false nan infinity".split())  # noqa: SIM905


class OurText:
    """Writes predicates; chance decides between spellings of the same."""

    def __init__(self, names: Mapping[str, str], random: Random) -> None:
        self.names, self.random = names, random

    def of(self, predicate: Predicate) -> str:
        match predicate:
            case Compare(left, operator, right):
                return self._compare(left, operator, right)
            case Between(column, low, high, negated):
                ends = f"{self._value(column, low)} {self._word('and')} {self._value(column, high)}"
                return f"{self._name(column)} {self._not(negated)}{self._word('between')} {ends}"
            case In(column, values, negated):
                listed = ", ".join(self._value(column, value) for value in values)
                return f"{self._name(column)} {self._not(negated)}{self._word('in')} ({listed})"
            case IsNull(column, negated):
                null = f"{self._not(negated)}{self._word('null')}"
                return f"{self._name(column)} {self._word('is')} {null}"
            case Like(column, pattern, negated):
                like = f"{self._not(negated)}{self._word('like')}"
                return f"{self._name(column)} {like} {_quoted(pattern)}"
            case Bare(what):
                return self._name(what) if isinstance(what, Column) else self._constant(what)
            case Not(inner):
                return f"{self._word('not')} ({self.of(inner)})"
            case Joined(word, parts):
                return f" {self._word(word)} ".join(f"({self.of(part)})" for part in parts)
        raise AssertionError(predicate)

    def _compare(self, left: Column, operator: str, right: Literal | Column) -> str:
        name, sign = self._name(left), self.random.choice(_SPELLINGS.get(operator, [operator]))
        if isinstance(right, Column):
            return f"{name} {sign} {self._name(right)}"
        value = self._value(left, right)
        if self.random.random() < 0.2:
            return f"{value} {_MIRRORED.get(sign, sign)} {name}"
        return f"{name}{sign}{value}" if self.random.random() < 0.2 else f"{name} {sign} {value}"

    # --- words and names ---

    def _word(self, word: str) -> str:
        return self.random.choice([word.upper(), word.upper(), word.lower(), word.title()])

    def _not(self, negated: bool) -> str:  # noqa: FBT001 - the value, not a switch
        return f"{self._word('not')} " if negated else ""

    def _constant(self, value: bool | None) -> str:  # noqa: FBT001
        return self._word("null" if value is None else str(value))

    def _name(self, column: Column) -> str:
        first = self.names.get(column.key, column.key)
        return ".".join(self._part(part) for part in (first, *column.path))

    def _part(self, name: str) -> str:
        plain = name.isidentifier() and name.lower() not in _KEYWORDS
        if plain and self.random.random() < 0.7:
            return name
        quote = self.random.choice('"`')
        return quote + name.replace(quote, quote * 2) + quote

    # --- values ---

    def _value(self, column: Column, value: Literal) -> str:
        match value:
            case None | bool():
                return self._constant(value)
            case int():
                return f"+{value}" if value > 0 and self.random.random() < 0.05 else str(value)
            case float():
                return self._float(column, value)
            case Decimal():
                text = format(value, "f")
                return text if "." in text else f"{text}{self.random.choice(['.', '.0', '.000'])}"
            case str():
                return _quoted(value)
            case bytes():
                return f"{self.random.choice('xX')}'{value.hex()}'"
            case datetime():
                return self._moment(value)
            case _:
                return self._day(value)

    def _float(self, column: Column, value: float) -> str:
        if math.isfinite(value):
            text = repr(value)
            return text if "e" in text else f"{text}e0"
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if pa.types.is_floating(column.kind) and self.random.random() < 0.3:
            return _quoted(text)
        return text

    def _moment(self, value: datetime) -> str:
        if value.tzinfo is not None and 2 < value.year < 9998 and self.random.random() < 0.3:
            minutes = self.random.choice([330, -480, 60])
            value = value.astimezone(timezone(timedelta(minutes=minutes)))
        text = value.isoformat(self.random.choice(["T", " "])).rjust(10, "0")
        if text.endswith("+00:00") and self.random.random() < 0.5:
            text = text.removesuffix("+00:00") + "Z"
        return _quoted(text) if self.random.random() < 0.3 else f"TIMESTAMP {_quoted(text)}"

    def _day(self, value: date) -> str:
        text = value.isoformat()
        return _quoted(text) if self.random.random() < 0.3 else f"DATE {_quoted(text)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
