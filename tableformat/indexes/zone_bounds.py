"""The least and greatest value of each zone, of any column type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from strandline.tableformat.indexes.value_arrays import objects, wide_integers
from strandline.tableformat.pruning import Bounds
from strandline.tableformat.stats import bounded
from strandline.tableformat.types import Domain
from strandline.tableformat.values import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.tableformat.indexes.zones import ColumnZones


def zone_bounds(column: ColumnZones) -> Bounds:
    """Bounds over the zones; text and bytes are cut as segment stats are."""
    if column.domain is Domain.FLOAT:
        return _of_floats(column)
    if column.domain is not Domain.INT:
        return _of_bytes(column)
    mins, maxs = _of_wide(column) if column.numbers is None else _of_integers(column)
    return _bounds(column, mins, maxs, column.null_counts < column.layout.rows)


def _bounds(
    column: ColumnZones,
    mins: NDArray[Any],
    maxs: NDArray[Any],
    known: NDArray[np.bool_],
    *,
    has_nan: NDArray[np.bool_] | None = None,
    exact: NDArray[np.bool_] | None = None,
) -> Bounds:
    count = column.layout.count
    return Bounds(
        mins=mins,
        maxs=maxs,
        known=known,
        null_count=column.null_counts,
        value_count=column.layout.rows,
        has_nan=np.zeros(count, np.bool_) if has_nan is None else has_nan,
        exact=np.ones(count, np.bool_) if exact is None else exact,
    )


def _of_integers(column: ColumnZones) -> tuple[NDArray[Any], NDArray[Any]]:
    numbers, valid, starts = column.numbers, column.valid, column.layout.starts
    assert numbers is not None
    low = numbers if valid is None else np.where(valid, numbers, INT64_MAX)
    high = numbers if valid is None else np.where(valid, numbers, INT64_MIN)
    mins, maxs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    empty = column.null_counts == column.layout.rows
    mins[empty], maxs[empty] = 0, 0
    return mins, maxs


def _of_wide(column: ColumnZones) -> tuple[NDArray[Any], NDArray[Any]]:
    """Numbers of 128 bits: by the high word first, then by the low one among equals."""
    assert column.words is not None
    low, high = column.words[:, 0], column.words[:, 1].view(np.int64)
    starts, rows = column.layout.starts, column.layout.rows
    valid = np.ones(len(low), np.bool_) if column.valid is None else column.valid
    ends = []
    for reduce, worst in (
        (np.minimum.reduceat, (INT64_MAX, np.iinfo(np.uint64).max)),
        (np.maximum.reduceat, (INT64_MIN, 0)),
    ):
        best = reduce(np.where(valid, high, np.int64(worst[0])), starts)
        tied = valid & (high == np.repeat(best, rows))
        ends.append((best, reduce(np.where(tied, low, np.uint64(worst[1])), starts)))
    empty = column.null_counts == rows
    found = [objects(wide_integers(*end)) for end in ends]
    for one in found:
        one[empty] = 0
    return found[0], found[1]


def _of_floats(column: ColumnZones) -> Bounds:
    numbers, valid, starts = column.numbers, column.valid, column.layout.starts
    assert numbers is not None
    is_nan = np.isnan(numbers)
    has_nan = is_nan if valid is None else is_nan & valid
    # fmin and fmax pass over NaN, so a null becomes one.
    held = numbers if valid is None else np.where(valid, numbers, np.nan)
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        mins, maxs = np.fmin.reduceat(held, starts), np.fmax.reduceat(held, starts)
    known = ~np.isnan(mins)
    mins[~known], maxs[~known] = 0.0, 0.0
    return _bounds(column, mins, maxs, known, has_nan=np.logical_or.reduceat(has_nan, starts))


def _of_bytes(column: ColumnZones) -> Bounds:
    values: Any = column.values
    if values.num_chunks == 1:
        values = values.chunk(0)
    mins, maxs, exact = [], [], []
    for start, rows in zip(column.layout.starts.tolist(), column.layout.rows.tolist(), strict=True):
        ends = pc.min_max(values.slice(start, rows))
        low, high, whole = bounded(ends["min"].as_py(), ends["max"].as_py())
        mins.append(low)
        maxs.append(high)
        exact.append(whole)
    known = np.array([low is not None for low in mins], np.bool_)
    return _bounds(column, objects(mins), objects(maxs), known, exact=np.array(exact, np.bool_))
