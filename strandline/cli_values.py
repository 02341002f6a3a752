"""Values between JSON text and columns, both ways and without loss.

JSON knows neither times nor decimals, bytes or NaN. They travel as text: ISO 8601, digits, base64,
`NaN`. What `strandline scan --format jsonl` prints, `strandline append` reads.
"""

from __future__ import annotations

import base64
import binascii
import math
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.tableformat.errors import InvalidRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from strandline.tableformat.schema import Schema
    from strandline.tableformat.types import ColumnType

_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


# --- out ---------------------------------------------------------------------------------------


def plain_rows(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """Rows of a batch as lists of values that JSON can hold."""
    columns = []
    for array in batch.columns:
        # Python's datetime ends at the year 9999; Arrow's text does not.
        values = array.cast(pa.string()) if pa.types.is_timestamp(array.type) else array
        listed = values.to_pylist()
        if pa.types.is_timestamp(array.type):
            listed = [v if v is None else v.replace(" ", "T", 1) for v in listed]
        columns.append([_plain(value) for value in listed])
    yield from map(list, zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


# --- in ----------------------------------------------------------------------------------------


def typed_rows(rows: Iterable[dict[str, Any]], schema: Schema) -> list[dict[str, Any]]:
    """Rows from JSON with values of the columns' types; numbers must have been read as Decimal.

    A value that cannot be meant for its column is left as it is: the append refuses it by name.
    """
    return [
        {
            name: _typed(value, schema.by_name[name].type, row, name)
            if name in schema.by_name
            else value
            for name, value in fields.items()
        }
        for row, fields in enumerate(rows)
    ]


def _typed(value: Any, kind: ColumnType, row: int, field: str) -> Any:
    if isinstance(value, Decimal) and kind.name != "decimal":
        return float(value)
    if isinstance(value, str) and kind.name in _READERS:
        try:
            return _READERS[kind.name](value)
        except (ValueError, InvalidOperation, binascii.Error):
            raise InvalidRow(row, field, f"{value[:60]!r} cannot be read as {kind}") from None
    if isinstance(value, list) and kind.name == "list":
        return [_typed(inner, kind.children[0].type, row, field) for inner in value]
    if isinstance(value, dict) and kind.name == "struct":
        members = {child.name: child.type for child in kind.children}
        return {
            name: _typed(inner, members[name], row, f"{field}.{name}") if name in members else inner
            for name, inner in value.items()
        }
    if kind.name == "map" and isinstance(value, (dict, list)):
        return _typed_entries(value, kind, row, field)
    return value


def _typed_entries(value: Any, kind: ColumnType, row: int, field: str) -> Any:
    entries = list(value.items()) if isinstance(value, dict) else value
    if not all(
        isinstance(entry, (list, tuple)) and len(entry) == len(kind.children) for entry in entries
    ):
        return value
    types = [child.type for child in kind.children]
    return [
        tuple(_typed(part, of, row, field) for part, of in zip(entry, types, strict=True))
        for entry in entries
    ]


def _float(text: str) -> float | str:
    return float(text) if text in _NOT_FINITE else text


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "date": date.fromisoformat,
    "decimal": Decimal,
    "float32": _float,
    "float64": _float,
    "binary": _bytes,
}
