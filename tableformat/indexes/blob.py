"""Reading a blob piece by piece, never beyond its end; packing bits.

A blob may come from a stranger. Every count is compared with the bytes that are there before
anything is allocated for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from strandline.tableformat.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray


class BlobReader:
    """Takes arrays from the front of a blob, without copying them."""

    def __init__(self, kind: str, data: bytes) -> None:
        self.kind, self._data, self._at = kind, data, 0

    def fail(self, reason: str) -> NoReturn:
        raise corrupt(self.kind, reason)

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        """The next `count` numbers."""
        size = np.dtype(dtype).itemsize * count
        if count < 0 or size > self.remaining:
            self.fail(f"{count} numbers of type {dtype} do not fit into the blob")
        found = np.frombuffer(self._data, dtype, count, self._at) if count else np.zeros(0, dtype)
        self._at += size
        return found

    def number(self, dtype: str) -> int:
        return int(self.array(dtype, 1)[0])

    def raw(self, size: int) -> bytes:
        """The next `size` bytes."""
        return self.array("u1", size).tobytes()

    def finish(self) -> None:
        """Nothing may follow."""
        if self.remaining:
            self.fail(f"{self.remaining} bytes follow its end")


def corrupt(kind: str, reason: str) -> CorruptTable:
    """The one way to say that an index cannot be used."""
    return CorruptTable(
        f"a {kind} index is damaged: {reason}. The rows are not affected: a scan without the "
        "index reads them, and rewriting the segment makes a new index."
    )


def choice(kind: str, params: Mapping[str, Any], name: str, known: Collection[str]) -> str:
    """A catalog parameter that is one of these words."""
    value = params.get(name)
    if not isinstance(value, str) or value not in known:
        raise corrupt(kind, f"its parameter {name!r} is none of {', '.join(sorted(known))}")
    return value


def packed(flags: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bits along the last axis, the first flag in the lowest bit of the first byte."""
    return np.packbits(flags, axis=-1, bitorder="little")


def unpacked(bits: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    """The first `count` flags along the last axis."""
    return np.unpackbits(bits, axis=-1, count=count, bitorder="little").view(np.bool_)


def bytes_of_bits(count: int) -> int:
    """How many bytes hold so many flags."""
    return (count + 7) // 8


def smallest_unsigned(most: int) -> str:
    """The narrowest little-endian type that holds numbers up to `most`."""
    if most <= np.iinfo(np.uint8).max:
        return "u1"
    return "<u2" if most <= np.iinfo(np.uint16).max else "<u4"
