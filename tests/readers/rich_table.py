"""A table with everything that makes reading it hard, and its rows as plain Python values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import strandline
from tests.edited import commit_by_hand

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

START = datetime(2023, 11, 14, tzinfo=UTC)
NAN = float("nan")
TRIM_SEQ = 3
"""Rows before it are gone, and so are all older than `START` + 5 s."""

SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("n", pa.int32()),
        pa.field("gone", pa.string()),
        pa.field("f", pa.float64()),
        pa.field("g", pa.float32()),
        pa.field("name", pa.string()),
        pa.field("x.y", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("u", pa.uint32()),
        pa.field("money", pa.decimal128(10, 2)),
        pa.field("huge", pa.decimal128(38, 3)),
        pa.field("day", pa.date32()),
        pa.field("local", pa.timestamp("us")),
        pa.field("blob", pa.binary()),
        pa.field("device", pa.struct([("os", "string"), ("inner", pa.struct([("n", "int64")]))])),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("notes", pa.map_(pa.string(), pa.float64())),
    ]
)  # fmt: skip


def row(number: int) -> dict[str, Any]:
    """A row whose values repeat in cycles of different lengths, with nulls and NaN among them."""
    floats = [NAN, None, -0.0, 0.0, 1.5, float("inf"), float("-inf"), 1.5]
    return {
        "ts": START + timedelta(seconds=number),
        "n": None if number % 11 == 7 else number,
        "gone": "x",
        "f": floats[number % 8],
        "g": floats[(number + 3) % 8],
        "name": [None, "", "a", "ab", "é%_", "b"][number % 6],
        "x.y": number % 4,
        "flag": [True, False, None][number % 3],
        "u": None if number % 5 == 1 else 2**32 - 1 - number,
        "money": None if number % 7 == 3 else Decimal(number) / 4,
        "huge": Decimal("12345678901234567890123456789012345.001") + number,
        "day": None if number % 9 == 4 else date(2023, 1, 1) + timedelta(days=number % 3),
        "local": datetime(1969, 12, 31) + timedelta(hours=number % 5),  # noqa: DTZ001
        "blob": [b"", b"\xff", None, b"a\0"][number % 4],
        "device": _device(number),
        "tags": [None, [], ["a", None], ["b"]][number % 4],
        "notes": [None, [], [("k", float(number))], [("k", None)]][number % 4],
    }


def _device(number: int) -> dict[str, Any] | None:
    if number % 5 == 0:
        return None
    inner = None if number % 4 == 1 else {"n": number % 3 or None}
    return {"os": [None, "ios", "linux"][number % 3], "inner": inner}


def make(place: Path) -> Table:
    """Six appends; columns renamed, widened, dropped, added and reordered on the way."""
    table = strandline.create_table(place, SCHEMA, time_column="ts")
    for first in (0, 10, 20):
        table.append(pa.Table.from_pylist([row(n) for n in range(first, first + 10)], SCHEMA))
    table.evolve(
        rename={"g": "single"},
        widen={"n": "int64", "money": "decimal(12,2)"},
        drop=["gone"],
        add={"later": "float64", "g": "string"},
        reorder=["name"],
    )
    for first in (30, 40, 50):
        table.append([_evolved(n) for n in range(first, first + 10)])
    commit_by_hand(
        table,
        trim_seq=TRIM_SEQ,
        floor_ts=int((START + timedelta(seconds=5)).timestamp() * 1000),
    )
    return table


def _evolved(number: int) -> dict[str, Any]:
    held = row(number)
    del held["gone"]
    held["single"] = held.pop("g")
    held["n"] = None if held["n"] is None else held["n"] + 2**40
    later = [NAN, 2.5, None][number % 3]
    return held | {"later": later, "g": f"new-{number}"}


def expected() -> list[dict[str, Any]]:
    """The rows that are visible, under their current names."""
    rows = []
    for number in range(5, 60):
        if number < 30:
            held = row(number)
            del held["gone"]
            held["single"] = held.pop("g")
            held |= {"later": None, "g": None}
        else:
            held = _evolved(number)
        rows.append(held)
    return rows


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN and zeros by their text, times in UTC, maps as pairs."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    return value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an Arrow table, comparable."""
    return [comparable(one) for one in table.to_pylist()]
