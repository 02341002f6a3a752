"""The distinct values of a column that has few, in order, and the zones that hold each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.arrow_numbers import int64s, integers, validity
from strandline.tableformat.indexes.hashing import canonical_floats
from strandline.tableformat.schema import stat_values
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.values import Value

MAX_DISTINCT: Final = 256
_SAMPLE_ROWS: Final = 4096
_NARROW: Final = 1_024
"""Integers that lie so close together are told apart by their distance from the least."""
_FEW: Final = 16
"""For so many values, a pass over one byte of each row is quicker than to mark pairs."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """At most 256 values."""

    values: Sequence[Value]
    """Ascending; NaN, the greatest, comes last, and a zero is 0.0."""

    zones: NDArray[np.bool_]
    """For each value, and for null behind them, the zones that hold it."""


def distinct_values(column: ColumnZones) -> Distinct | None:
    """None as soon as there are more than 256; most columns show that in their first rows."""
    # A dictionary of floats may hold both zeros and many forms of NaN.
    encoded = None if column.domain is Domain.FLOAT else column.encoded
    if encoded is None:
        values = _comparable(column)
        if len(values.slice(0, _SAMPLE_ROWS).unique()) > MAX_DISTINCT + 1:
            return None
        narrow = _narrow_integers(column)
        if narrow is not None:
            return narrow if len(narrow.values) <= MAX_DISTINCT else None
        encoded = values.dictionary_encode()
    encoded = encoded.combine_chunks()
    if len(encoded.dictionary) > MAX_DISTINCT:
        return None
    held = _domain_values(column, encoded.dictionary)
    order = sorted(range(len(held)), key=lambda i: _sort_key(held[i]))
    codes = integers(encoded.indices)
    if encoded.null_count:
        codes = np.where(validity(encoded.indices), codes, len(held))
    zones = _zones_of(codes, len(held) + 1, column.layout)
    return Distinct([held[i] for i in order], zones[[*order, len(held)]])


def _narrow_integers(column: ColumnZones) -> Distinct | None:
    """Without looking any value up; None if they are no integers, or lie too far apart."""
    numbers, valid = column.numbers, column.valid
    if column.domain is not Domain.INT or numbers is None:
        return None
    real = numbers if valid is None else numbers[valid]
    low, high = (int(real.min()), int(real.max())) if len(real) else (0, 0)
    span = high - low + 1
    if span > _NARROW:
        return None
    codes = numbers - low
    if valid is not None:
        codes[~valid] = span
    zones = _zones_of(codes, span + 1, column.layout)
    held = np.flatnonzero(zones[:span].any(axis=1))
    return Distinct((held + low).tolist(), zones[[*held.tolist(), span]])


def _zones_of(codes: NDArray[Any], count: int, layout: ZoneLayout) -> NDArray[np.bool_]:
    """For each code, all of which are below `count`, the zones in which a row has it."""
    if count > _FEW:
        held = np.zeros(layout.count * count, np.bool_)
        places = np.multiply(layout.zone_of_row, count, dtype=np.int64)
        places += codes
        held[places] = True
        return held.reshape(layout.count, count).T
    held = np.zeros((count, layout.count), np.bool_)
    narrow = codes.astype(np.uint8)
    whole = layout.row_count // layout.zone_rows
    by_zone = narrow[: whole * layout.zone_rows].reshape(whole, layout.zone_rows)
    rest = narrow[whole * layout.zone_rows :]
    for code in range(count):
        held[code, :whole] = (by_zone == code).any(axis=1)
        held[code, whole:] = (rest == code).any()
    return held


def _comparable(column: ColumnZones) -> pa.ChunkedArray:
    """The column so that Arrow finds equal values equal: one zero, one NaN."""
    if column.domain is not Domain.FLOAT:
        return column.values
    assert column.numbers is not None
    valid = column.valid
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    bits = canonical_floats(column.numbers)
    return pa.chunked_array(
        [pa.Array.from_buffers(pa.int64(), len(bits), [nulls, pa.py_buffer(bits)])]
    )


def _domain_values(column: ColumnZones, dictionary: pa.Array) -> list[Any]:
    if column.domain is Domain.FLOAT:
        floats: list[Any] = int64s(dictionary).view(np.float64).tolist()
        return floats
    return stat_values(column.kind, dictionary)


def _sort_key(value: Any) -> tuple[bool, Any]:
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)
