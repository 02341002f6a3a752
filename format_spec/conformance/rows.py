"""Rows as the lines of JSON that readers print and golden tables record.

One encoding for all types, taken from SPEC.md 4.4: text for single values, so that no JSON library
can lose a 64-bit integer, a NaN or the sign of a zero on the way.
"""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import pyarrow as pa


def encode_table(table: pa.Table) -> list[dict[str, Any]]:
    """Each row as a JSON object of column names and encoded values."""
    columns = [_encode(table.column(i).combine_chunks()) for i in range(table.num_columns)]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _encode(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in _encode(chunk)]
    kind = array.type
    if pa.types.is_map(kind):
        return [_pairs(value) for value in array]
    if pa.types.is_list(kind):
        return [_encode(value.values) if value.is_valid else None for value in array]
    if pa.types.is_struct(kind):
        return [_members(value, kind) for value in array]
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        # Cast from a scale to none would divide; taking the digits does not.
        return [None if v is None else _unscaled(v, kind.scale) for v in array.to_pylist()]
    return [None if v is None else _text(v) for v in array.to_pylist()]


def _pairs(value: pa.MapScalar) -> list[list[Any]] | None:
    if not value.is_valid:
        return None
    keys, values = (_encode(part) for part in value.values.flatten())
    return [[k, v] for k, v in zip(keys, values, strict=True)]


def _members(value: pa.StructScalar, kind: pa.DataType) -> dict[str, Any] | None:
    if not value.is_valid:
        return None
    return {
        field.name: _encode(pa.array([value[i].as_py()], field.type))[0]
        for i, field in enumerate(kind)
    }


def _unscaled(value: Any, scale: int) -> str:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(str(digit) for digit in digits)) * 10 ** (exponent + scale)
    return str(-number if sign else number)


def _text(value: Any) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value if isinstance(value, str) else str(int(value))


def canonical(kind: Any, value: Any) -> Any:
    """A printed value in one form: floats by their bits, since the shortest text is only advice."""
    if value is None:
        return None
    if isinstance(kind, dict):
        ((name, inner),) = kind.items()
        if name == "list":
            return [canonical(inner["type"], element) for element in value]
        if name == "map":
            return [[canonical(inner[0], k), canonical(inner[1]["type"], v)] for k, v in value]
        return {field["name"]: canonical(field["type"], value[field["name"]]) for field in inner}
    if kind in ("float32", "float64"):
        return _float_bits(kind, value)
    return value


def _float_bits(kind: str, text: str) -> str:
    number = float(text)
    if math.isnan(number):
        return "NaN"
    return struct.pack(">f" if kind == "float32" else ">d", number).hex()
