"""The quick look at a row accepts nothing that the careful one refuses, and changes no value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat.config import Config, make_config
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.schema import Schema, schema_from
from strandline.tableformat.timestamps import TS_LIMIT_MS
from strandline.writers.committing import times_of
from strandline.writers.ingest import to_arrow
from strandline.writers.memtable import Memtable
from strandline.writers.row_check import RowCheck
from strandline.writers.wal_frames import JSON_ROWS, Record, json_payload

KINDS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("float32", "float64", "string", "binary", "date", "timestamp", "timestamptz"),
    "decimal(9,2)",
)
NOW_MS = 1_800_000_000_000


class Level(IntEnum):
    """An int that is not only an int."""

    LOW = 1
    HIGH = 300


class Text(str):
    """Text that is not only text."""

    __slots__ = ()


class Moment(datetime):
    """A datetime that is not only one."""


EAST = timezone(timedelta(hours=3))
naive_times = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001
near_1970 = st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2))  # noqa: DTZ001
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.sampled_from([2**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, 0, 1)]),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]),
    st.text(max_size=5),
    st.sampled_from(["\ud800", "\udfff x", "\0", ""]),
    st.binary(max_size=3),
    st.dates(),
    naive_times,
    naive_times.map(lambda t: t.replace(tzinfo=UTC)),
    naive_times.map(lambda t: t.replace(tzinfo=EAST) if t.year > 1900 else t),
    st.sampled_from(
        [
            Level.LOW,
            Level.HIGH,
            Text("sub"),
            Moment(2024, 1, 1, tzinfo=UTC),
            Decimal("1.25"),
            pd.Timestamp(1_700_000_000_123_456_789, tz="UTC"),
            pd.Timestamp(1_700_000_000_123_456_000),
            pd.NaT,
            [1],
            {"a": 1},
            (),
            b"",
        ]
    ),
)
FITTING = {
    "bool": st.booleans(),
    "float32": st.floats(width=32),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=5),
    "binary": st.binary(max_size=3),
    "date": st.dates(),
    "timestamp": near_1970 | naive_times,
    "timestamptz": (near_1970 | naive_times).map(lambda t: t.replace(tzinfo=UTC)),
    "decimal(9,2)": st.decimals(-(10**7), 10**7, places=2)
    | st.sampled_from([Decimal(text) for text in ("1e5", "1.0e6", "-0", "0.001", "9e6", "NaN")]),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Config]:
    """Columns of random types, some without nulls, with a time column or none."""
    names = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    fields = []
    for index, kind in enumerate(names):
        (column,) = schema_from({"c": kind}).columns
        field = schema_from({"c": kind}).arrow.field("c")
        assert column.nullable
        fields.append(pa.field(f"c{index}", field.type, nullable=draw(st.booleans())))
    times = [
        f"c{i}" for i, kind in enumerate(names) if kind in ("int64", "timestamp", "timestamptz")
    ]
    time = draw(st.sampled_from([None, *times]))
    modes = ["client-prefer", "arrival"] + (["client-require"] if time else [])
    schema = schema_from(pa.schema(fields))
    config = make_config(
        schema,
        time_column=time,
        ttl=None,
        timestamping=draw(st.sampled_from(modes)),
        uncapped=draw(st.booleans()),
    )
    return schema, config


@st.composite
def rows_for(draw: st.DrawFn, schema: Schema, config: Config) -> dict[Any, Any]:
    """A row that mostly fits, with something odd about it now and then."""
    row: dict[Any, Any] = {}
    for column in schema.columns:
        if draw(st.integers(0, 9)) == 0:
            continue  # left out
        fitting = FITTING.get(str(column.type), st.integers(0, 127))
        if column.id == config.time_column and column.type.name == "int64":
            fitting = st.sampled_from([0, 1, TS_LIMIT_MS - 1, TS_LIMIT_MS, -1, NOW_MS])
        row[column.name] = draw(VALUES if draw(st.integers(0, 3)) == 0 else fitting)
    if draw(st.integers(0, 19)) == 0:
        row[draw(st.sampled_from(["extra", "_seq", 5, None, "C0"]))] = draw(VALUES)
    return row


def careful(row: Any, schema: Schema, config: Config) -> pa.Table:
    """What the long way makes of a row; it raises where the row is refused."""
    table = to_arrow([row], schema)
    times_of(table, schema, config, NOW_MS)
    return table


def shown(table: pa.Table) -> Any:
    """Something that differs wherever two tables do: also the sign of zero, and types."""
    return table.schema, repr(table.to_pylist())


def agree(row: Any, schema: Schema, config: Config) -> bool:
    """Compare both looks at a row; whether the quick one took it."""
    values = RowCheck(schema, config).values(row)
    if values is None:
        return False
    try:
        payload = json_payload((values,))
    except TypeError:
        return False  # the writer then takes the careful road
    expected = careful(row, schema, config)  # raises if the quick look was too kind
    memtable = Memtable(schema, 1)
    memtable.add_row(values, NOW_MS, 1)
    assert shown(memtable.table()) == shown(expected)
    assert shown(Record(1, NOW_MS, JSON_ROWS, payload).rows(schema)) == shown(expected)
    return True


@settings(max_examples=1500)
@given(st.data())
def test_the_quick_look_agrees_with_the_careful_one(data: st.DataObject) -> None:
    """[E1] In memory and out of the log: exactly the values of the careful road, or none."""
    schema, config = data.draw(tables())
    check = RowCheck(schema, config)
    for _ in range(3):  # the second row meets what was learnt from the first
        row = data.draw(rows_for(schema, config))
        values = check.values(row)
        assert (values is None) == (RowCheck(schema, config).values(row) is None)
        agree(row, schema, config)


PLAIN = schema_from(
    {
        "at": "timestamptz",
        "n": "int32",
        "big": "int64",
        "share": "float64",
        "text": "string",
        "ok": "bool",
        "day": "date",
        "local": "timestamp",
        "raw": "binary",
        "price": "decimal(9,2)",
    }
)
PLAIN_CONFIG = make_config(PLAIN, time_column="at", ttl=None)
ROW: dict[str, Any] = {
    "at": datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
    "n": 5,
    "big": 2**62,
    "share": -0.0,
    "text": "x",
    "ok": True,
    "day": date(1900, 1, 1),
    "local": datetime(1970, 1, 1),  # noqa: DTZ001 - a timestamp without a zone
    "raw": b"\x00\xff",
    "price": Decimal("1234567.89"),
}


def test_ordinary_rows_take_the_quick_road() -> None:
    """[E1] Otherwise the property above would hold for a look that accepts nothing."""
    assert agree(ROW, PLAIN, PLAIN_CONFIG)
    assert agree(dict(reversed(ROW.items())), PLAIN, PLAIN_CONFIG)
    assert agree({}, PLAIN, PLAIN_CONFIG)
    for name in ROW:
        assert agree({**ROW, name: None}, PLAIN, PLAIN_CONFIG)
        assert agree({k: v for k, v in ROW.items() if k != name}, PLAIN, PLAIN_CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2**31),
        ("n", True),
        ("n", 1.0),
        ("n", Level.LOW),
        ("big", 2**63),
        ("big", -(2**63) - 1),
        ("share", math.nan),
        ("share", math.inf),
        ("share", 1),
        ("text", b"x"),
        ("text", Text("x")),
        ("ok", 1),
        ("price", Decimal("0.001")),
        ("price", Decimal("NaN")),
        ("price", 1.5),
        ("raw", bytearray(b"x")),
        ("day", datetime(2024, 1, 1, tzinfo=UTC)),
        ("day", pd.Timestamp("2024-01-01")),
        ("at", datetime(2024, 1, 1)),  # noqa: DTZ001
        ("at", datetime(2024, 1, 1, tzinfo=EAST)),
        ("at", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("at", pd.Timestamp("2024-01-01", tz="UTC")),
        ("local", datetime(2024, 1, 1, tzinfo=UTC)),
        ("local", datetime(1969, 1, 1)),  # noqa: DTZ001
        ("extra", 1),
    ],
)
def test_unusual_values_are_left_to_the_careful_look(name: str, value: Any) -> None:
    """[E1] Whether they are right or wrong is not for the quick one to say."""
    assert RowCheck(PLAIN, PLAIN_CONFIG).values({**ROW, name: value}) is None


@pytest.mark.parametrize(
    "row", [None, 5, "text", [ROW], [("n", 1)], {1, 2}, type("D", (dict,), {})(ROW)]
)
def test_what_is_no_plain_dict_is_left_to_the_careful_look(row: Any) -> None:
    """[E1] A subclass may compute its values; a list is a batch."""
    assert RowCheck(PLAIN, PLAIN_CONFIG).values(row) is None


def test_a_default_is_filled_in_by_the_careful_look() -> None:
    """[E1] A field that is left out is not the same as a null where a default stands."""
    from dataclasses import replace  # noqa: PLC0415 - only here

    columns = tuple(replace(c, default=7) if c.name == "n" else c for c in PLAIN.columns)
    schema = replace(PLAIN, columns=columns)
    without = {k: v for k, v in ROW.items() if k != "n"}

    assert RowCheck(schema, PLAIN_CONFIG).values(without) is None
    assert RowCheck(schema, PLAIN_CONFIG).values({**ROW, "n": None}) is not None


def test_a_required_time_is_not_waved_through() -> None:
    """[E1] `client-require`: a null time is refused, with its row and field."""
    config = make_config(PLAIN, time_column="at", ttl=None, timestamping="client-require")

    assert RowCheck(PLAIN, config).values({**ROW, "at": None}) is None
    assert RowCheck(PLAIN, config).values(ROW) is not None
    with pytest.raises(InvalidInput, match="at"):
        careful({**ROW, "at": None}, PLAIN, config)


def test_shapes_of_rows_do_not_pile_up() -> None:
    """A producer whose rows have ever new shapes does not fill the memory."""
    schema = schema_from({f"c{i}": "int64" for i in range(12)})
    check = RowCheck(schema, make_config(schema, time_column=None, ttl=None))
    for bits in range(2**12):
        row = {f"c{i}": 1 if bits >> i & 1 else None for i in range(12)}
        assert check.values(row) == tuple(row.values())
    assert len(check._known) <= 256  # noqa: SLF001 - what must stay small
