"""Groups of rows as states that can be put together in any order, exactly.

Sums are kept as whole numbers (floats in units of 2^-1130), so that a kept state plus what was
appended since gives the very number that a query over everything gives.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat import types
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.hyperloglog import estimate, registers
from strandline.tableformat.indexes.hashing import column_hashes
from strandline.tableformat.remembered_query import BUCKET
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from strandline.tableformat.remembered_query import Aggregate, RememberedQuery
    from strandline.tableformat.schema import Schema

    Int64s = np.ndarray[Any, np.dtype[np.int64]]

SCALE: Final = 1130
_LOW: Final = 26
Key = tuple[Any, ...]
States = dict[Key, list[Any]]
"""For each group the state of each aggregate: count → n; sum, avg → [n, total, nan, +inf, -inf];
min, max → value or None; approx_distinct → registers."""


def group_rows(query: RememberedQuery, schema: Schema, rows: pa.Table) -> States:
    """The states of a batch of rows that has `_ts`."""
    if not rows.num_rows:
        return {}
    keys = [rows.column(name) for name in query.columns]
    if query.bucket_ms is not None:
        ts_ms = rows.column("_ts").to_numpy()
        keys.append(pa.chunked_array([pa.array(ts_ms - ts_ms % query.bucket_ms)]))
    codes, firsts = _codes(keys, rows.num_rows)
    names = list(zip(*(key.take(pa.array(firsts)).to_pylist() for key in keys), strict=True))
    groups: list[Key] = names if keys else [()]
    parts = [_states(a, schema, rows, codes, len(groups)) for a in query.aggregates]
    return {key: [part[n] for part in parts] for n, key in enumerate(groups)}


def _codes(keys: list[Any], rows: int) -> tuple[Int64s, Int64s]:
    """Which group each row belongs to, and one row of each group."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = key.combine_chunks().dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + own, return_inverse=True)[1]
    _, firsts = np.unique(codes, return_index=True)
    return codes, firsts


def _states(
    aggregate: Aggregate, schema: Schema, rows: pa.Table, codes: Int64s, groups: int
) -> list[Any]:
    if aggregate.column is None:
        return [int(n) for n in np.bincount(codes, minlength=groups)]
    values, kind = rows.column(aggregate.column), schema.column(aggregate.column).type
    if values.null_count:
        known = values.is_valid().to_numpy()
        codes, values = codes[known], values.drop_null()
    counts = [int(n) for n in np.bincount(codes, minlength=groups)]
    if aggregate.function == "count":
        return counts
    if aggregate.function == "approx_distinct":
        hashes = column_hashes(values, kind) if len(values) else np.empty(0, np.uint64)
        ends = np.cumsum(np.bincount(codes, minlength=groups))[:-1]
        return [registers(part) for part in np.split(hashes[np.argsort(codes)], ends)]
    if aggregate.function in ("min", "max"):
        return _extremes(aggregate.function, kind.name, values, codes, groups)
    if kind.name.startswith("float"):
        return _float_sums(values.to_numpy().astype(np.float64), codes, counts)
    numbers = values.to_numpy().astype(np.int64)
    high = _sum_by(numbers >> 32, codes, groups)
    low = _sum_by(numbers & 0xFFFFFFFF, codes, groups)
    return [
        [n, (int(h) << 32) + int(w), 0, 0, 0] for n, h, w in zip(counts, high, low, strict=True)
    ]


def _sum_by(numbers: Int64s, codes: Int64s, groups: int) -> Int64s:
    out = np.zeros(groups, np.int64)
    np.add.at(out, codes, numbers)
    return out


def _float_sums(values: Any, codes: Int64s, counts: list[int]) -> list[Any]:
    groups = len(counts)
    odd = [
        np.bincount(codes[mask], minlength=groups)
        for mask in (np.isnan(values), values == np.inf, values == -np.inf)
    ]
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(values[finite])
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = exponent.astype(np.int64) - 53 + SCALE
    pairs, at = np.unique(codes[finite] * 4096 + shift, return_inverse=True)
    high = _sum_by(whole >> _LOW, at, len(pairs))
    low = _sum_by(whole & ((1 << _LOW) - 1), at, len(pairs))
    totals = [0] * groups
    for pair, h, w in zip(pairs.tolist(), high.tolist(), low.tolist(), strict=True):
        totals[pair // 4096] += ((h << _LOW) + w) << (pair % 4096)
    return [[n, totals[g], *(int(part[g]) for part in odd)] for g, n in enumerate(counts)]


def _extremes(function: str, kind: str, values: Any, codes: Int64s, groups: int) -> list[Any]:
    out: list[Any] = [None] * groups
    table = pa.table({"g": pa.array(codes), "v": values})
    if kind.startswith("float"):
        numbers = values.to_numpy().astype(np.float64) + 0.0  # one zero
        found = np.full(groups, -np.inf if function == "max" else np.nan)
        # NaN is greater than all numbers: `maximum` keeps it, `fmin` prefers any other.
        with np.errstate(invalid="ignore"):
            (np.maximum if function == "max" else np.fmin).at(found, codes, numbers)
        for group in np.unique(codes).tolist():
            out[group] = float(found[group])
        return out
    best = table.group_by("g").aggregate([("v", function)])
    groups_found, extremes = best.column("g").to_pylist(), best.column(f"v_{function}").to_pylist()
    for group, value in zip(groups_found, extremes, strict=True):
        out[group] = value
    return out


def merge(query: RememberedQuery, into: States, other: States) -> None:
    """Put the states of other rows into these."""
    for key, states in other.items():
        known = into.get(key)
        into[key] = (
            states
            if known is None
            else [
                _joined(a.function, one, two)
                for a, one, two in zip(query.aggregates, known, states, strict=True)
            ]
        )


def _joined(function: str, one: Any, two: Any) -> Any:
    if function == "count":
        return one + two
    if function in ("sum", "avg"):
        return [a + b for a, b in zip(one, two, strict=True)]
    if function == "approx_distinct":
        return np.maximum(one, two)
    if one is None or two is None:
        return two if one is None else one
    return (max if function == "max" else min)(one, two, key=_nan_last)


def _nan_last(value: Any) -> tuple[bool, Any]:
    """NaN is greater than all numbers."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


def answer(query: RememberedQuery, schema: Schema, states: States) -> pa.Table:
    """The groups in the order of their keys, nulls first, with a column for each aggregate."""
    keys = sorted(
        states, key=lambda key: [(v is not None, v) if v is not None else (False,) for v in key]
    )
    columns: dict[str, pa.Array] = {}
    for n, name in enumerate(query.columns):
        columns[name] = pa.array([k[n] for k in keys], types.to_arrow(schema.column(name).type))
    if query.bucket_ms is not None:
        columns[BUCKET] = pa.array([k[-1] for k in keys], pa.int64())
    for n, aggregate in enumerate(query.aggregates):
        values = [states[key][n] for key in keys]
        columns[aggregate.name] = _results(aggregate, schema, values)
    return pa.table(columns)


def _results(aggregate: Aggregate, schema: Schema, values: list[Any]) -> pa.Array:
    if aggregate.function == "count":
        return pa.array(values, pa.int64())
    if aggregate.function == "approx_distinct":
        return pa.array([estimate(found) for found in values], pa.int64())
    assert aggregate.column is not None
    kind = schema.column(aggregate.column).type
    if aggregate.function in ("min", "max"):
        return pa.array(values, types.to_arrow(kind))
    is_float = kind.name.startswith("float")
    if aggregate.function == "avg" or is_float:
        of_avg = aggregate.function == "avg"
        return pa.array([_real(v, is_float=is_float, of_avg=of_avg) for v in values], pa.float64())
    if any(abs(v[1]) > INT64_MAX for v in values):
        raise InvalidInput(f"the sum {aggregate.name!r} does not fit 64 bits")
    return pa.array([v[1] if v[0] else None for v in values], pa.int64())


def _real(state: list[int], *, is_float: bool, of_avg: bool) -> float | None:
    n, total, nans, plus, minus = state
    if not n:
        return None
    if nans or (plus and minus):
        return math.nan
    if plus or minus:
        return math.inf if plus else -math.inf
    exact = Fraction(total, (1 << SCALE if is_float else 1) * (n if of_avg else 1))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


# --- states as a table, to be stored -----------------------------------------------------------


def to_table(query: RememberedQuery, schema: Schema, states: States) -> pa.Table:
    """Typed columns: keys, then for each aggregate what its state is made of."""
    keys = list(states)
    columns: list[pa.Array] = [
        pa.array([k[n] for k in keys], field.type)
        for n, field in enumerate(_key_fields(query, schema))
    ]
    for n, aggregate in enumerate(query.aggregates):
        values = [states[key][n] for key in keys]
        if aggregate.function in ("sum", "avg"):
            values = [" ".join(map(str, v)) for v in values]
        elif aggregate.function == "approx_distinct":
            values = [v.tobytes() for v in values]
        columns.append(pa.array(values, _state_type(aggregate, schema)))
    return pa.Table.from_arrays(columns, schema=state_schema(query, schema))


def from_table(query: RememberedQuery, table: pa.Table) -> States:
    """The states that `to_table` wrote."""
    lists = [column.to_pylist() for column in table.columns]
    width = len(lists) - len(query.aggregates)
    for n, aggregate in enumerate(query.aggregates, width):
        if aggregate.function in ("sum", "avg"):
            lists[n] = [[int(part) for part in text.split()] for text in lists[n]]
        elif aggregate.function == "approx_distinct":
            lists[n] = [np.frombuffer(data, np.uint8) for data in lists[n]]
    return {row[:width]: list(row[width:]) for row in zip(*lists, strict=True)}


def _key_fields(query: RememberedQuery, schema: Schema) -> list[pa.Field]:
    fields = [pa.field(n, types.to_arrow(schema.column(n).type)) for n in query.columns]
    return [*fields, pa.field(BUCKET, pa.int64())] if query.bucket_ms is not None else fields


def _state_type(aggregate: Aggregate, schema: Schema) -> pa.DataType:
    if aggregate.function == "count":
        return pa.int64()
    if aggregate.function in ("sum", "avg"):
        return pa.string()
    if aggregate.function == "approx_distinct":
        return pa.binary()
    assert aggregate.column is not None
    return types.to_arrow(schema.column(aggregate.column).type)


def state_schema(query: RememberedQuery, schema: Schema) -> pa.Schema:
    """The columns of stored states."""
    states = [pa.field(a.name, _state_type(a, schema)) for a in query.aggregates]
    return pa.schema([*_key_fields(query, schema), *states])
