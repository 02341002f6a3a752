"""The distinct values of a column that has few, in order, and the one that each row holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.arrow_numbers import int64s, validity
from strandline.tableformat.indexes.hashing import canonical_floats
from strandline.tableformat.schema import stat_values
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.tableformat.indexes.zones import ColumnZones
    from strandline.tableformat.values import Value

MAX_DISTINCT: Final = 256
_SAMPLE_ROWS: Final = 4096


@dataclass(frozen=True, eq=False)
class Distinct:
    """At most 256 values."""

    values: list[Value]
    """Ascending; NaN, the greatest, comes last, and a zero is 0.0."""

    codes: NDArray[np.int64]
    """For each row the place of its value in `values`; their number for null."""


def distinct_values(column: ColumnZones) -> Distinct | None:
    """None as soon as there are more than 256; most columns show that in their first rows."""
    # A dictionary of floats may hold both zeros and many forms of NaN.
    encoded = None if column.domain is Domain.FLOAT else column.encoded
    if encoded is None:
        values = _comparable(column)
        if len(values.slice(0, _SAMPLE_ROWS).unique()) > MAX_DISTINCT + 1:
            return None
        encoded = values.dictionary_encode()
    encoded = encoded.combine_chunks()
    if len(encoded.dictionary) > MAX_DISTINCT:
        return None
    held = _domain_values(column, encoded.dictionary)
    order = sorted(range(len(held)), key=lambda i: _sort_key(held[i]))
    place = np.empty(len(held) + 1, np.int64)
    place[order] = np.arange(len(held))
    place[-1] = len(held)
    indices = int64s(encoded.indices)
    if encoded.null_count:
        indices = np.where(validity(encoded.indices), indices, len(held))
    return Distinct([held[i] for i in order], place[indices])


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
