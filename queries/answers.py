"""States of groups as what they are for: the answer that is shown, and a table that is stored."""

from __future__ import annotations

import math
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.queries.aggregating import SCALE, States, Sums
from strandline.tableformat import hyperloglog, types
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.remembered_query import BUCKET
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from strandline.queries.aggregating import Part
    from strandline.tableformat.remembered_query import Aggregate, RememberedQuery
    from strandline.tableformat.schema import Schema

_DIGITS: Final = Context(prec=types.MAX_DECIMAL_PRECISION)


def answer(query: RememberedQuery, schema: Schema, states: States) -> pa.Table:
    """The groups in the order of their keys, nulls first, with a column for each aggregate."""
    ordered = states.take(_order(states))
    fields = _key_fields(query, schema)
    columns = {
        field.name: key.cast(field.type) for field, key in zip(fields, ordered.keys, strict=True)
    }
    for aggregate, part in zip(query.aggregates, ordered.parts, strict=True):
        columns[aggregate.name] = _results(aggregate, schema, part)
    return pa.table(columns)


def _order(states: States) -> Any:
    if not states.keys:
        return np.arange(states.groups)
    columns: dict[str, pa.Array] = {}
    for number, key in enumerate(states.keys):
        # Nulls first: how Arrow is told so has changed between its versions.
        columns[f"known {number}"] = key.is_valid().cast(pa.int8())
        columns[str(number)] = key.cast(pa.int8()) if pa.types.is_boolean(key.type) else key
    by = [(name, "ascending") for name in columns]
    return pc.sort_indices(pa.table(columns), sort_keys=by).to_numpy()


def _results(aggregate: Aggregate, schema: Schema, part: Part) -> pa.Array:
    if aggregate.function == "count":
        return pa.array(part, pa.int64())
    if aggregate.function == "approx_distinct":
        return pa.array(hyperloglog.estimates(part), pa.int64())
    assert aggregate.column is not None
    kind = schema.column(aggregate.column).type
    if aggregate.function in ("min", "max"):
        return part.cast(types.to_arrow(kind))
    of_avg, is_float = aggregate.function == "avg", kind.name.startswith("float")
    if of_avg or is_float:
        return _reals(part, 1 << SCALE if is_float else 10**kind.scale, of_avg=of_avg)
    if kind.name == "decimal":
        return _decimals(aggregate, part, kind.scale)
    if any(abs(total) > INT64_MAX for total in part.totals):
        raise InvalidInput(f"the sum {aggregate.name!r} does not fit 64 bits")
    return pa.array(part.totals.astype(np.int64), pa.int64(), mask=part.known == 0)


def _decimals(aggregate: Aggregate, sums: Sums, scale: int) -> pa.Array:
    if any(abs(total) >= 10**types.MAX_DECIMAL_PRECISION for total in sums.totals):
        raise InvalidInput(
            f"the sum {aggregate.name!r} does not fit {types.MAX_DECIMAL_PRECISION} digits"
        )
    found = [Decimal(total).scaleb(-scale, _DIGITS) for total in sums.totals.tolist()]
    return pa.array(found, pa.decimal128(types.MAX_DECIMAL_PRECISION, scale), mask=sums.known == 0)


def _reals(sums: Sums, unit: int, *, of_avg: bool) -> pa.Array:
    """Exact sums, or means, rounded once: a division of Python's integers rounds rightly."""
    counts = sums.known.tolist() if of_avg else [1] * len(sums.known)
    pairs = zip(sums.totals.tolist(), counts, strict=True)
    found = np.array([_ratio(total, unit * max(1, n)) for total, n in pairs], np.float64)
    nan, plus, minus = (kind > 0 for kind in sums.odd)
    found[plus] = math.inf
    found[minus] = -math.inf
    found[nan | (plus & minus)] = math.nan
    return pa.array(found, pa.float64(), mask=sums.known == 0)


def _ratio(total: int, unit: int) -> float:
    try:
        return total / unit
    except OverflowError:
        return math.inf if total > 0 else -math.inf


# --- states as a table, to be stored -----------------------------------------------------------


def to_table(query: RememberedQuery, schema: Schema, states: States) -> pa.Table:
    """Typed columns: keys, then for each aggregate what its state is made of."""
    stored = state_schema(query, schema)
    columns = [*states.keys, *(_stored(part) for part in states.parts)]
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(columns, stored, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=stored)


def _stored(part: Part) -> pa.Array:
    if isinstance(part, Sums):
        rows = zip(part.known.tolist(), part.totals.tolist(), *part.odd.tolist(), strict=True)
        return pa.array([" ".join(map(str, row)) for row in rows], pa.string())
    if isinstance(part, pa.Array):
        return part
    if part.dtype == np.uint8:
        return pa.array([row.tobytes() for row in part], pa.binary())
    return pa.array(part, pa.int64())


def from_table(query: RememberedQuery, table: pa.Table) -> States:
    """The states that `to_table` wrote."""
    columns = [pa.concat_arrays(c.chunks) if c.num_chunks else c.combine_chunks() for c in table]
    width = len(columns) - len(query.aggregates)
    pairs = zip(query.aggregates, columns[width:], strict=True)
    parts = [_loaded(aggregate, column) for aggregate, column in pairs]
    return States(columns[:width], parts, table.num_rows)


def _loaded(aggregate: Aggregate, column: pa.Array) -> Part:
    if aggregate.function == "count":
        return column.to_numpy()
    if aggregate.function == "approx_distinct":
        rows = [np.frombuffer(data, np.uint8) for data in column.to_pylist()]
        return np.stack(rows) if rows else np.zeros((0, hyperloglog.REGISTERS), np.uint8)
    if aggregate.function in ("min", "max"):
        return column
    numbers = [[int(part) for part in text.split()] for text in column.to_pylist()]
    known, totals, *odd = zip(*numbers, strict=True) if numbers else ((),) * 5
    exact = np.fromiter(totals, object, len(totals))
    return Sums(np.array(known, np.int64), exact, np.array(odd, np.int64).reshape(3, -1))


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
