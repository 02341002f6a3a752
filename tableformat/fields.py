"""Typed access to the fields of a decoded JSON document; every wrong one is named.

Metadata is untrusted: a missing field, a wrong type or a number out of range must become a
`CorruptTable` that says where, never a `KeyError` deep inside.
"""

from __future__ import annotations

import re
from typing import Any, Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.values import decode_int64

_HEX64: Final = re.compile(r"[0-9a-f]{16}")
_HEX128: Final = re.compile(r"[0-9a-f]{32}")
_INT32_MAX: Final = 2**31 - 1
_INT64_DIGITS: Final = 19


def _is_plain(text: str) -> bool:
    return (
        0 < len(text) < _INT64_DIGITS
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
    )


class Fields:
    """A JSON object with a name for its errors."""

    __slots__ = ("value", "where")

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise CorruptTable(f"{where}: expected an object, found {type(value).__name__}")
        self.value: dict[str, Any] = value
        self.where = where

    def _get(self, name: str) -> Any:
        try:
            return self.value[name]
        except KeyError:
            raise CorruptTable(f"{self.where}: field {name!r} is missing") from None

    def int64(self, name: str, *, least: int = 0) -> int:
        value = self._get(name)
        # The common shape, without a regular expression: metadata holds hundreds of these.
        if type(value) is str and _is_plain(value) and (number := int(value)) >= least:
            return number
        return decode_int64(value, f"{self.where}.{name}", least=least)

    def int32(self, name: str, *, least: int = 0) -> int:
        value = self._get(name)
        if type(value) is not int or not least <= value <= _INT32_MAX:
            raise CorruptTable(f"{self.where}.{name}: expected an integer from {least} to 2^31-1")
        return value

    def text(self, name: str) -> str:
        value = self._get(name)
        if type(value) is not str:
            raise CorruptTable(f"{self.where}.{name}: expected text, found {type(value).__name__}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self._get(name)
        if value not in allowed:
            raise CorruptTable(
                f"{self.where}.{name}: {str(value)[:40]!r} is not one of {', '.join(allowed)}"
            )
        return str(value)

    def flag(self, name: str) -> bool:
        value = self._get(name)
        if type(value) is not bool:
            raise CorruptTable(f"{self.where}.{name}: expected true or false")
        return value

    def checksum(self, name: str) -> str:
        value = self._get(name)
        if type(value) is not str or not _HEX64.fullmatch(value):
            raise CorruptTable(f"{self.where}.{name}: expected 16 hex digits")
        return value

    def identity(self, name: str) -> str:
        value = self._get(name)
        if type(value) is not str or not _HEX128.fullmatch(value):
            raise CorruptTable(f"{self.where}.{name}: expected 32 hex digits")
        return value

    def list(self, name: str) -> list[Any]:
        value = self._get(name)
        if type(value) is not list:
            raise CorruptTable(f"{self.where}.{name}: expected a list")
        return value

    def object(self, name: str) -> dict[str, Any]:
        value = self._get(name)
        if type(value) is not dict:
            raise CorruptTable(f"{self.where}.{name}: expected an object")
        return value

    def optional(self, name: str) -> Any:
        """The raw value; None where it is null or left out."""
        return self.value.get(name)
