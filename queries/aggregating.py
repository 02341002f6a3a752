"""Groups of rows as states that can be put together in any order, exactly.

Sums are kept as whole numbers (floats in units of 2^-1130, decimals unscaled), so that a kept state
plus what was appended since gives the very number that a query over everything gives. A state is a
few arrays with an element for each group; putting states together is grouping their groups again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat import hyperloglog, types
from strandline.tableformat.indexes.hashing import column_hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.remembered_query import Aggregate, RememberedQuery
    from strandline.tableformat.schema import Schema

    Int64s = np.ndarray[Any, np.dtype[np.int64]]
    Objects = np.ndarray[Any, np.dtype[np.object_]]

SCALE: Final = 1130
_LOW: Final = 26
_MANY_GROUPS: Final = 50_000
_MANY_REGISTERS: Final = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """For each group: how many values are known, their exact sum, and what has no exact one."""

    known: Int64s
    totals: Objects
    """Python's integers: they have no greatest one."""
    odd: Int64s
    """Three rows: how many are NaN, +infinity, -infinity."""


Part = Any
"""The state of one aggregate: count → int64s; sum, avg → `Sums`; min, max → an Arrow array with
nulls; approx_distinct → a row of registers for each group."""


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The keys of the groups, column by column, and a part for each aggregate."""

    keys: list[pa.Array]
    parts: list[Part]
    groups: int

    def take(self, places: Int64s) -> States:
        """Some of the groups, in this order."""
        index = pa.array(places, pa.int64())
        parts = [_taken(part, places) for part in self.parts]
        return States([key.take(index) for key in self.keys], parts, len(places))


def _taken(part: Part, places: Int64s) -> Part:
    if isinstance(part, Sums):
        return Sums(part.known[places], part.totals[places], part.odd[:, places])
    return part.take(pa.array(places, pa.int64())) if isinstance(part, pa.Array) else part[places]


class Collected:
    """Puts states together as they come, many at a time."""

    def __init__(self, query: RememberedQuery, schema: Schema) -> None:
        self._query, self._schema = query, schema
        self._waiting: list[States] = []
        self._groups = self._combined = 0
        distinct = any(a.function == "approx_distinct" for a in query.aggregates)
        self._most = _MANY_REGISTERS if distinct else _MANY_GROUPS

    def add(self, states: States) -> None:
        self._waiting.append(states)
        self._groups += states.groups
        if self._groups > 2 * self._combined + self._most:
            self.result()

    def result(self) -> States:
        """Everything so far as one state."""
        if len(self._waiting) != 1:
            self._waiting = [combine(self._query, self._schema, self._waiting)]
        self._groups = self._combined = self._waiting[0].groups
        return self._waiting[0]


# --- grouping -----------------------------------------------------------------------------------


def group_rows(query: RememberedQuery, schema: Schema, rows: pa.Table) -> States:
    """The states of a batch of rows that has `_ts`."""
    keys = [_whole(rows.column(name)) for name in query.columns]
    if query.bucket_ms is not None:
        ts_ms = rows.column("_ts").to_numpy()
        keys.append(pa.array(ts_ms - ts_ms % query.bucket_ms, pa.int64()))
    codes, firsts = _codes(keys, rows.num_rows)
    parts = [_part(a, schema, rows, codes, len(firsts)) for a in query.aggregates]
    return States([key.take(pa.array(firsts)) for key in keys], parts, len(firsts))


def combine(query: RememberedQuery, schema: Schema, states: Sequence[States]) -> States:
    """Many states as one."""
    if not states:
        return _no_groups(query, schema)
    columns = zip(*(state.keys for state in states), strict=True)
    keys = [pa.concat_arrays(list(column)) for column in columns]
    codes, firsts = _codes(keys, sum(state.groups for state in states))
    parts = []
    for aggregate, of_all in zip(
        query.aggregates, zip(*(state.parts for state in states), strict=True), strict=True
    ):
        parts.append(_joined(aggregate, schema, list(of_all), codes, len(firsts)))
    return States([key.take(pa.array(firsts)) for key in keys], parts, len(firsts))


def _no_groups(query: RememberedQuery, schema: Schema) -> States:
    columns = list(dict.fromkeys([*query.reads, "_ts"]))
    fields = [
        pa.field(n, pa.int64() if n == "_ts" else types.to_arrow(schema.column(n).type))
        for n in columns
    ]
    return group_rows(query, schema, pa.schema(fields).empty_table())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _codes(keys: list[pa.Array], rows: int) -> tuple[Int64s, Int64s]:
    """Which group each row belongs to, and one row of each group."""
    codes, groups = np.zeros(rows, np.int64), min(rows, 1)
    for number, key in enumerate(keys):
        encoded = key.dictionary_encode(null_encoding="encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        width = len(encoded.dictionary)
        if number == 0:
            codes, groups = own, width
        elif width > 1:
            found, codes = np.unique(codes * width + own, return_inverse=True)
            groups = len(found)
    firsts = np.zeros(groups, np.int64)
    firsts[codes[::-1]] = np.arange(rows - 1, -1, -1)  # of several, the last one written stays
    return codes, firsts


def _sum_by(numbers: Int64s, codes: Int64s, groups: int) -> Int64s:
    out = np.zeros(groups, np.int64)
    np.add.at(out, codes, numbers)
    return out


def _count_by(codes: Int64s, groups: int) -> Int64s:
    return np.bincount(codes, minlength=groups).astype(np.int64)


# --- the parts ----------------------------------------------------------------------------------


def _part(aggregate: Aggregate, schema: Schema, rows: pa.Table, codes: Int64s, groups: int) -> Part:
    """The state of one aggregate over rows."""
    if aggregate.column is None:
        return _count_by(codes, groups)
    values, kind = rows.column(aggregate.column), schema.column(aggregate.column).type
    if values.null_count:
        known = values.is_valid().to_numpy()
        codes, values = codes[known], values.drop_null()
    if aggregate.function == "count":
        return _count_by(codes, groups)
    if aggregate.function == "approx_distinct":
        hashes = column_hashes(values, kind) if len(values) else np.empty(0, np.uint64)
        return hyperloglog.registers(hashes, codes, groups)
    if aggregate.function in ("min", "max"):
        return _extremes(aggregate.function, _whole(values), codes, groups)
    if kind.name.startswith("float"):
        return _float_sums(values.to_numpy().astype(np.float64), codes, groups)
    totals = _whole_sums(_pieces(_whole(values)), codes, groups)
    return Sums(_count_by(codes, groups), totals, np.zeros((3, groups), np.int64))


def _pieces(values: pa.Array) -> list[Int64s]:
    """Whole numbers in pieces of 32 bits, the lowest first; only the last one has a sign.

    So many fewer bits than a sum has room for, that 2^31 of them add up without overflow.
    """
    if not pa.types.is_decimal(values.type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.int64)
        return [numbers & 0xFFFFFFFF, numbers >> 32]
    words = np.frombuffer(values.buffers()[1] or b"", np.uint32).reshape(-1, 4)
    words = words[values.offset : values.offset + len(values)]
    lower = [words[:, place].astype(np.int64) for place in range(3)]
    return [*lower, words[:, 3].view(np.int32).astype(np.int64)]


def _whole_sums(pieces: list[Int64s], codes: Int64s, groups: int) -> Objects:
    totals = np.zeros(groups, object)
    for place, piece in enumerate(pieces):
        totals += _sum_by(piece, codes, groups).astype(object) << 32 * place
    return totals


def _float_sums(values: Any, codes: Int64s, groups: int) -> Sums:
    odd = np.stack(
        [
            _count_by(codes[mask], groups)
            for mask in (np.isnan(values), values == np.inf, values == -np.inf)
        ]
    )
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(values[finite])
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    shift = exponent.astype(np.int64) - 53 + SCALE
    # Numbers of one group and one exponent are added as integers; of these sums there are few.
    pairs, at = np.unique(codes[finite] * 4096 + shift, return_inverse=True)
    high = _sum_by(whole >> _LOW, at, len(pairs)).astype(object)
    low = _sum_by(whole & ((1 << _LOW) - 1), at, len(pairs)).astype(object)
    totals = np.zeros(groups, object)
    np.add.at(totals, pairs // 4096, ((high << _LOW) + low) << (pairs % 4096).astype(object))
    return Sums(_count_by(codes, groups), totals, odd)


def _extremes(function: str, values: pa.Array, codes: Int64s, groups: int) -> pa.Array:
    """The least or greatest value of each group; null where there is none."""
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0  # one zero
        found = np.full(groups, -np.inf if function == "max" else np.nan)
        # NaN is greater than all numbers: `maximum` keeps it, `fmin` prefers any other.
        with np.errstate(invalid="ignore"):
            (np.maximum if function == "max" else np.fmin).at(found, codes, numbers)
        missing = np.bincount(codes, minlength=groups) == 0
        return pa.array(found, pa.float64(), mask=missing).cast(values.type)
    table = pa.table({"g": pa.array(codes, pa.int64()), "v": values})
    best = table.group_by("g").aggregate([("v", function)])
    places = np.full(groups, -1, np.int64)
    places[best.column("g").to_numpy()] = np.arange(best.num_rows)
    index = pa.array(places, pa.int64(), mask=places < 0)
    return _whole(best.column(f"v_{function}")).take(index)


def _joined(
    aggregate: Aggregate, schema: Schema, parts: list[Part], codes: Int64s, groups: int
) -> Part:
    """The parts of one aggregate as one."""
    if aggregate.function == "count":
        return _sum_by(np.concatenate(parts), codes, groups)
    if aggregate.function == "approx_distinct":
        stacked = np.concatenate(parts)
        if not len(stacked):
            return stacked
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(groups))
        return np.maximum.reduceat(stacked[order], starts, axis=0)
    if aggregate.function in ("min", "max"):
        assert aggregate.column is not None
        values = pa.concat_arrays(parts).cast(types.to_arrow(schema.column(aggregate.column).type))
        known = values.is_valid().to_numpy(zero_copy_only=False)
        return _extremes(aggregate.function, values.drop_null(), codes[known], groups)
    totals = np.zeros(groups, object)
    np.add.at(totals, codes, np.concatenate([part.totals for part in parts]))
    odd = np.concatenate([part.odd for part in parts], axis=1)
    return Sums(
        _sum_by(np.concatenate([part.known for part in parts]), codes, groups),
        totals,
        np.stack([_sum_by(kind, codes, groups) for kind in odd]),
    )
