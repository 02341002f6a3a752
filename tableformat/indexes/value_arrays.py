"""Lists of domain values as bytes: bounds of zones, the distinct values of a column.

| form | bytes |
|---|---|
| int64 | 8 each, little-endian, two's complement |
| int128 | 16 each, likewise; for decimals that do not fit into 8 |
| float64 | 8 each, IEEE 754 |
| bytes | count + 1 offsets of 4 bytes from 0 on, then text in UTF-8 or bytes |
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.types import Domain
from strandline.tableformat.values import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.indexes.blob import BlobReader

FORMS: Final[dict[Domain, frozenset[str]]] = {
    Domain.INT: frozenset({"int64", "int128"}),
    Domain.FLOAT: frozenset({"float64"}),
    Domain.TEXT: frozenset({"bytes"}),
    Domain.BYTES: frozenset({"bytes"}),
}


def form_of(values: NDArray[Any] | Sequence[Any], domain: Domain) -> str:
    """The form in which these values are stored; None among objects stands for nothing."""
    if domain is Domain.FLOAT:
        return "float64"
    if domain is not Domain.INT:
        return "bytes"
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return "int64"
    fits = all(value is None or INT64_MIN <= value <= INT64_MAX for value in values)
    return "int64" if fits else "int128"


def encode(values: NDArray[Any] | Sequence[Any], form: str) -> bytes:
    """The values in that form; None becomes 0 or nothing."""
    if form == "bytes":
        return _encode_bytes(values)
    if form == "int128":
        return b"".join(int(v or 0).to_bytes(16, "little", signed=True) for v in values)
    held = values if isinstance(values, np.ndarray) else np.array(list(values), object)
    if held.dtype.kind == "O":
        held = np.array([v or 0 for v in held.tolist()])
    return held.astype("<i8" if form == "int64" else "<f8").tobytes()


def _encode_bytes(values: NDArray[Any] | Sequence[Any]) -> bytes:
    parts = [v.encode() if isinstance(v, str) else v or b"" for v in values]
    offsets = np.zeros(len(parts) + 1, "<u4")
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return b"".join([offsets.tobytes(), *parts])


def decode(blob: BlobReader, form: str, count: int, domain: Domain) -> NDArray[Any]:
    """The next `count` values: int64, float64, or objects (large integers, text, bytes)."""
    if form == "int64":
        return blob.array("<i8", count)
    if form == "float64":
        return blob.array("<f8", count)
    if form == "int128":
        words = blob.array("<u8", 2 * count).reshape(-1, 2)
        return objects(wide_integers(words[:, 1].view("<i8"), words[:, 0]))
    return objects(_decode_bytes(blob, count, domain))


def wide_integers(high: NDArray[np.int64], low: NDArray[np.uint64]) -> list[int]:
    """Numbers of 128 bits from their words."""
    return [h << 64 | w for h, w in zip(high.tolist(), low.tolist(), strict=True)]


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """An array of just these objects; numpy would take some for numbers or cut NULs off."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _decode_bytes(blob: BlobReader, count: int, domain: Domain) -> list[Any]:
    offsets = blob.array("<u4", count + 1)
    if offsets[0] or (offsets[1:] < offsets[:-1]).any():
        blob.fail("the offsets of its values do not ascend from 0")
    data = blob.raw(int(offsets[-1]))
    edges = offsets.tolist()
    parts: list[Any] = [data[a:b] for a, b in pairwise(edges)]
    if domain is Domain.TEXT:
        try:
            parts = [part.decode() for part in parts]
        except UnicodeDecodeError:
            blob.fail("a text in it is not UTF-8")
    return parts
