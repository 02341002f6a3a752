"""Just enough of Thrift's compact protocol to read and write the structures of Parquet files.

A structure is read as a dict of field ids, because nobody here needs names. Bytes may come from
strangers: whatever does not fit is a `CorruptTable`, and nothing is reserved before it is there.
"""

# ruff: noqa: PLR2004 - 0x7F and 0x80 split a varint's byte: seven bits, and whether more follows

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from strandline.tableformat.errors import CorruptTable

STOP, TRUE, FALSE, BYTE, I16, I32, I64 = 0, 1, 2, 3, 4, 5, 6
DOUBLE, BINARY, LIST, SET, STRUCT = 7, 8, 9, 10, 12
_DOUBLE_BYTES: Final = 8
_LONG_LIST: Final = 15
_MAX_DEPTH: Final = 32
_MAX_BITS: Final = 70
"""What ten bytes of a varint hold; no number of 64 bits takes more."""

Wanted: TypeAlias = Mapping[int, "Wanted | None"]
"""Fields to read, and which fields of theirs; None is all. Lists pass it on to their elements."""


class CompactReader:
    """Reads values one after the other from `at` on."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        data, at = self.data, self.at
        try:
            byte = data[at]
            at += 1
            value, shift = byte & 0x7F, 7
            while byte > 0x7F:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _MAX_BITS:
                    raise _too_long()
        except IndexError:
            raise _ends_early() from None
        self.at = at
        return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        """The next bytes as they are."""
        end = self.at + size
        if end > len(self.data):
            raise _ends_early()
        found = bytes(self.data[self.at : end])
        self.at = end
        return found

    def field(self, last: int) -> tuple[int, int]:
        """Number and kind of the next field, behind the field numbered `last`; kind 0: none."""
        head = self.take(1)[0]
        if head == STOP:
            return 0, STOP
        return (last + (head >> 4) if head >> 4 else self.zigzag()), head & 0x0F

    def list_header(self) -> tuple[int, int]:
        """How many elements a list has, and of which kind; called where the list begins."""
        head = self.take(1)[0]
        size = self.varint() if head >> 4 == _LONG_LIST else head >> 4
        if size > len(self.data) - self.at:
            raise _ends_early()  # every element takes a byte at least
        return size, head & 0x0F

    def structure(self, wanted: Wanted | None = None, depth: int = 0) -> dict[int, Any]:
        """The wanted fields of the structure that begins here."""
        if depth > _MAX_DEPTH:
            raise _too_deep()
        found: dict[int, Any] = {}
        number, data = 0, self.data
        try:
            while head := data[self.at]:
                self.at += 1
                number = number + (head >> 4) if head >> 4 else self.zigzag()
                kind = head & 0x0F
                if wanted is not None and number not in wanted:
                    if kind > FALSE:
                        self.at = _behind(data, self.at, kind, depth)
                elif kind <= FALSE:
                    found[number] = kind == TRUE
                else:
                    inner = None if wanted is None else wanted[number]
                    found[number] = self.value(kind, inner, depth)
        except IndexError:
            raise _ends_early() from None
        self.at += 1
        return found

    def value(self, kind: int, wanted: Wanted | None = None, depth: int = 0) -> Any:
        """A value of a field, or of an element: in lists, booleans take a byte."""
        if kind in (I32, I64, I16):
            return self.zigzag()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.structure(wanted, depth + 1)
        if kind in (LIST, SET):
            if depth > _MAX_DEPTH:
                raise _too_deep()
            size, inner = self.list_header()
            return [self.value(inner, wanted, depth + 1) for _ in range(size)]
        if kind in (TRUE, FALSE, BYTE):
            return self.take(1)[0]
        if kind == DOUBLE:
            return self.take(_DOUBLE_BYTES)
        raise CorruptTable(f"Thrift has no kind {kind} of values here")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a field of this kind; most of a footer is nobody's business here."""
        if kind in (TRUE, FALSE):
            return
        try:
            self.at = _behind(self.data, self.at, kind, depth)
        except IndexError:
            raise _ends_early() from None
        if self.at > len(self.data):
            raise _ends_early()


# Passing over values costs a quarter of reading them, with the position in a local name.


def _behind(data: bytes | memoryview, at: int, kind: int, depth: int) -> int:
    """Where a value that begins at `at` ends."""
    if kind == STRUCT:
        return _behind_structure(data, at, depth + 1)
    if kind == BINARY:
        size, at = _varint_at(data, at)
        return at + size
    if kind in (I32, I64, I16):
        return _varint_at(data, at)[1]
    if kind in (LIST, SET):
        return _behind_list(data, at, depth + 1)
    if kind in (TRUE, FALSE, BYTE):
        return at + 1
    if kind == DOUBLE:
        return at + _DOUBLE_BYTES
    raise CorruptTable(f"Thrift has no kind {kind} of values here")


def _behind_structure(data: bytes | memoryview, at: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _too_deep()
    while head := data[at]:
        at += 1
        kind = head & 0x0F
        if not head >> 4:
            at = _varint_at(data, at)[1]
        if I16 <= kind <= I64:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind > FALSE:
            at = _behind(data, at, kind, depth)
    return at + 1


def _behind_list(data: bytes | memoryview, at: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _too_deep()
    head = data[at]
    size, at = _varint_at(data, at + 1) if head >> 4 == _LONG_LIST else (head >> 4, at + 1)
    if size > len(data) - at:
        raise _ends_early()  # every element takes a byte at least
    for _ in range(size):
        at = _behind(data, at, head & 0x0F, depth)
    return at


def _varint_at(data: bytes | memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MAX_BITS:
            raise _too_long()
    return value, at


def _ends_early() -> CorruptTable:
    return CorruptTable("a Thrift structure ends early")


def _too_long() -> CorruptTable:
    return CorruptTable("a Thrift number takes more than 64 bits")


def _too_deep() -> CorruptTable:
    return CorruptTable("a Thrift structure is nested too deeply")


# --- writing -----------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return value.to_bytes(1, "little")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(value: int) -> bytes:
    """A signed number of any width that is not negative."""
    return varint(value << 1)


def binary(value: bytes) -> bytes:
    """Bytes behind their length."""
    return varint(len(value)) + value


def list_of(kind: int, items: list[bytes]) -> bytes:
    """A list of encoded elements."""
    size = len(items)
    short = size < _LONG_LIST
    head = bytes([size << 4 | kind]) if short else bytes([_LONG_LIST << 4 | kind]) + varint(size)
    return head + b"".join(items)
