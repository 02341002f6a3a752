"""Random tables of all types survive ingestion, and a single bad value is always found."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.errors import InvalidRow
from strandline.tableformat.schema import Schema, schema_from
from strandline.tableformat.types import ColumnType, Field
from strandline.writers.ingest import to_arrow

SCALARS = [
    *(ColumnType(name) for name in types.INTEGER_RANGES),
    *(ColumnType(name) for name in ("bool", "float32", "float64", "date", "timestamp")),
    *(ColumnType(name) for name in ("timestamptz", "string", "binary")),
    types.decimal(38, 0),
    types.decimal(9, 4),
    types.decimal(38, 38),
]


def _list_of(kind: ColumnType) -> st.SearchStrategy[ColumnType]:
    return st.booleans().map(lambda n: ColumnType("list", children=(Field("element", kind, n),)))


def _map_of(kind: ColumnType) -> st.SearchStrategy[ColumnType]:
    key = Field("key", ColumnType("string"), nullable=False)
    return st.booleans().map(lambda n: ColumnType("map", children=(key, Field("value", kind, n))))


def _struct_of(kinds: list[ColumnType]) -> st.SearchStrategy[ColumnType]:
    return st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)).map(
        lambda nullable: ColumnType(
            "struct",
            children=tuple(
                Field(f"f{i}", kind, n)
                for i, (kind, n) in enumerate(zip(kinds, nullable, strict=True))
            ),
        )
    )


kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        inner.flatmap(_list_of)
        | inner.flatmap(_map_of)
        | st.lists(inner, min_size=1, max_size=3).flatmap(_struct_of)
    ),
    max_leaves=4,
)


def values_of(kind: ColumnType) -> st.SearchStrategy[Any]:
    """Python values of a type, extremes included."""
    if kind.name in types.INTEGER_RANGES:
        return st.integers(*types.INTEGER_RANGES[kind.name])
    if kind.name == "decimal":
        digits = 10**kind.precision - 1
        return st.integers(-digits, digits).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -kind.scale))
        )
    if kind.name == "list":
        return st.lists(_member_of(kind.children[0]), max_size=3)
    if kind.name == "map":
        return st.lists(st.tuples(st.text(max_size=3), _member_of(kind.children[1])), max_size=3)
    if kind.name == "struct":
        return st.fixed_dictionaries({f.name: _member_of(f) for f in kind.children})
    return _VALUES[kind.name]


def _member_of(field: Field) -> st.SearchStrategy[Any]:
    values = values_of(field.type)
    return st.none() | values if field.nullable else values


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
    "string": st.text(max_size=20),
    "binary": st.binary(max_size=20),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    """A schema of random types with rows for it."""
    columns = {f"c{i}": draw(kinds) for i in range(draw(st.integers(1, 3)))}
    schema = schema_from({name: types.to_arrow(kind) for name, kind in columns.items()})
    row = st.fixed_dictionaries(
        {name: st.none() | values_of(kind) for name, kind in columns.items()}
    )
    return schema, draw(st.lists(row, max_size=6))


def same(left: Any, right: Any) -> bool:
    """Equality with NaN equal to itself, and zero unequal to minus zero."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@settings(deadline=None, max_examples=80)
@given(tables(), st.integers(0, 3))
def test_random_tables_come_through_unchanged(
    drawn: tuple[Schema, list[dict[str, Any]]], cut: int
) -> None:
    """[E1] [C12] As rows, columns, Arrow, chunks and slices: the same values, the exact types."""
    schema, rows = drawn

    table = to_arrow(rows, schema)

    table.validate(full=True)
    assert table.schema.equals(schema.arrow, check_metadata=True)
    assert same(table.to_pylist(), rows)
    names = schema.arrow.names
    columns = {name: [row[name] for row in rows] for name in names}
    chunks = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    for again in (columns, table, chunks):
        assert same(to_arrow(again, schema).to_pylist(), rows)


def disguised(kind: pa.DataType) -> pa.DataType:
    """Another Arrow type that holds the same values."""
    if pa.types.is_list(kind):
        return pa.large_list(disguised(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(disguised(kind.key_type), disguised(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([(f.name, disguised(f.type)) for f in reversed(fields)])
    return _DISGUISES.get(kind, kind)


_DISGUISES = {
    pa.string(): pa.string_view(),
    pa.binary(): pa.large_binary(),
    pa.float32(): pa.float64(),
    pa.timestamp("us", tz="UTC"): pa.timestamp("us", tz="Asia/Tokyo"),
    pa.date32(): pa.date64(),
    pa.uint32(): pa.uint64(),
    pa.int8(): pa.int64(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int64(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int64(),
}


@settings(deadline=None, max_examples=80)
@given(tables(), st.integers(0, 3))
def test_random_tables_in_other_layouts_come_through_unchanged(
    drawn: tuple[Schema, list[dict[str, Any]]], skipped: int
) -> None:
    """[E1] [C12] Wider, larger, reordered and zoned: nothing is lost on the way in."""
    schema, rows = drawn
    arrays = [
        pa.array([row[f.name] for row in rows], disguised(f.type)).slice(skipped)
        for f in schema.arrow
    ]

    out = to_arrow(pa.table(arrays, names=schema.arrow.names), schema)

    out.validate(full=True)
    assert out.schema.equals(schema.arrow, check_metadata=True)
    assert same(out.to_pylist(), rows[skipped:])


# --- one bad value ----------------------------------------------------------------------------


BAD: dict[str, list[Any]] = {
    "bool": [1, "x"],
    "float32": [1e39, 2**24 + 1, True, "x"],
    "float64": [2**53 + 1, True, "x", Decimal(1)],
    "decimal": [0.5, "x", True, Decimal("1E-39"), Decimal("1E+39")],
    "date": [datetime(2024, 1, 1, tzinfo=UTC), 5, "x"],
    "timestamp": [datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), 5],
    "timestamptz": [datetime(2024, 1, 1), date(2024, 1, 1), 5],  # noqa: DTZ001
    "string": [b"x", 5, "\udfff"],
    "binary": ["x", 5],
    "list": ["x", 5, {1: 2}],
    "map": ["x", 5, [1]],
    "struct": ["x", 5, [1], {"unknown": 1}],
}
BAD_INTEGERS = [True, 1.0, "x", 2**63, -(2**63) - 1, Decimal(1)]


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_a_single_bad_value_is_found_in_its_row(data: st.DataObject) -> None:
    """[E1] Whatever the type, wherever the row: the error names both, and no other field."""
    schema, rows = data.draw(tables().filter(lambda drawn: bool(drawn[1])))
    row = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(schema.columns))
    rows[row][column.name] = data.draw(st.sampled_from(BAD.get(column.type.name, BAD_INTEGERS)))

    with pytest.raises(InvalidRow) as caught:
        to_arrow(rows, schema)

    assert caught.value.row == row
    assert caught.value.field.split(".")[0] == column.name


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(
        [
            (pa.int64(), pa.int16(), 5, 1 << 15),
            (pa.timestamp("ns"), pa.timestamp("us"), 1000, 1001),
            (pa.float64(), pa.float32(), 0.5, 0.1),
            (pa.int64(), pa.float64(), 7, (1 << 53) + 1),
            (pa.decimal128(9, 3), pa.decimal128(9, 2), Decimal("1.120"), Decimal("1.121")),
            (pa.large_list(pa.int64()), pa.list_(pa.int8()), [1, 2], [1, 200]),
            (pa.list_(pa.int64(), 1), pa.list_(pa.int8()), [1], [200]),
            (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int8())]), {"a": 1}, {"a": 999}),
        ]
    ),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.integers(0, 1000),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_a_single_bad_arrow_value_is_found_in_its_row(
    case: tuple[pa.DataType, pa.DataType, Any, Any],
    present: list[bool],
    place: int,
    chunk: int,
    skipped: int,
) -> None:
    """[E1] Nulls before it, slices and chunks do not shift the row that is named."""
    source, target, good, bad = case
    values = [good if there else None for there in present]
    row = place % len(values)
    values[row] = bad
    if pa.types.is_timestamp(source):
        whole = pa.array([None] * skipped + values, pa.int64()).cast(source)
    else:
        whole = pa.array([None] * skipped + values, source)
    parts = [whole.slice(skipped + i, chunk) for i in range(0, len(values), chunk)]

    with pytest.raises(InvalidRow) as caught:
        to_arrow(pa.table({"x": pa.chunked_array(parts)}), schema_from({"x": target}))

    assert caught.value.row == row


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=30), st.integers(0, 1000))
def test_bytes_that_are_no_text_are_found_in_their_row(values: list[bytes], place: int) -> None:
    """[E1] A lone continuation byte in any value is named, whatever surrounds it."""
    texts = [value.decode("latin1").encode() for value in values]
    row = place % len(texts)
    texts[row] += b"\x80"
    array = pa.array(texts, pa.binary()).view(pa.string())

    with pytest.raises(InvalidRow) as caught:
        to_arrow(pa.table({"x": array}), schema_from({"x": "string"}))

    assert caught.value.row == row
    texts[row] = b""
    good = pa.array(texts, pa.binary()).view(pa.string())
    assert np.array_equal(
        to_arrow(pa.table({"x": good}), schema_from({"x": "string"}))["x"].to_pylist(),
        [text.decode() for text in texts],
    )
