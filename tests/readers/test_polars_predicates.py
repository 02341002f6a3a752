"""Which parts of a Polars predicate reach the scan."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.io.plugins import register_io_source

from strandline.readers.polars_predicates import implied_by_polars
from strandline.tableformat.expressions import Expression, col

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("name", pa.string()),
        ("blob", pa.binary()),
        ("flag", pa.bool_()),
        ("money", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("device", pa.struct([("os", pa.string()), ("inner", pa.struct([("n", pa.int64())]))])),
    ]
)
C, NAN = pl.col, math.nan
NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


def pushed(predicate: pl.Expr) -> Expression | None:
    """What is made of a predicate in the form in which Polars hands it to a source."""
    given: list[Any] = []

    def source(_: Any, asked: Any, __: Any, ___: Any) -> Any:
        given.append(asked)
        yield pl.DataFrame(pl.from_arrow(SCHEMA.empty_table()))

    frame = pl.from_arrow(SCHEMA.empty_table())
    assert isinstance(frame, pl.DataFrame)
    register_io_source(io_source=source, schema=frame.schema).filter(predicate).collect()
    return implied_by_polars(given[0], SCHEMA)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (C("n") > 5, col("n") > 5),
        (C("n") == 2**60 + 1, col("n") == 2**60 + 1),
        (pl.lit(5) > C("n"), col("n") < 5),
        (C("small") != 5, col("small") != 5),
        (C("f") >= 1.5, col("f") >= 1.5),
        (C("f") > 1, col("f") > 1.0),
        (C("g") > 0.1, col("g") > 0.10000000149011612),
        (C("name") == "it's", col("name") == "it's"),
        (C("blob") == b"\xff", col("blob") == b"\xff"),
        (C("flag"), col("flag") == True),  # noqa: E712
        (~C("flag"), ~(col("flag") == True)),  # noqa: E712
        (C("money") > Decimal("1.5"), col("money") > Decimal("1.5")),
        (C("day") <= date(2024, 1, 31), col("day") <= date(2024, 1, 31)),
        (C("moment") >= NOON, col("moment") >= NOON),
        (C("local") < NOON.replace(tzinfo=None), col("local") < NOON.replace(tzinfo=None)),
        (C("n").is_null(), col("n").is_null()),
        (C("n").is_not_null(), col("n").is_not_null()),
        (C("f").is_nan(), col("f") == NAN),
        (C("f").is_not_nan(), col("f") != NAN),
        (C("n").eq_missing(5), col("n").eq_null_safe(5)),
        (C("n").is_between(1, 5), col("n").between(1, 5)),
        (C("n").is_between(1, 5, closed="none"), (col("n") > 1) & (col("n") < 5)),
        (C("n").is_in([3, 1, None]), col("n").is_in([3, 1])),
        (C("name").is_in(["a", "b"]), col("name").is_in(["a", "b"])),
        (C("day").is_in([date(2024, 1, 31)]), col("day").is_in([date(2024, 1, 31)])),
        (C("name").str.starts_with("5%"), col("name").like(r"5\%%")),
        (C("name").str.ends_with("_"), col("name").like(r"%\_")),
        (C("name").str.contains("a.b", literal=True), col("name").like("%a.b%")),
        (C("device").struct.field("os") == "ios", col("device")["os"] == "ios"),
        (C("device").struct["inner"].struct["n"] > 1, col("device")["inner"]["n"] > 1),
        ((C("n") > 5) | (C("name") == "a"), (col("n") > 5) | (col("name") == "a")),
        ((C("n") > 5) & (C("n") % 2 == 0), col("n") > 5),
        (~((C("n") > 5) & (C("name") == "a")), ~((col("n") > 5) & (col("name") == "a"))),
    ],
    ids=str,
)  # fmt: skip
def test_what_both_understand_is_pushed(predicate: pl.Expr, expected: Expression) -> None:
    """[C12] In the very form that Polars gives it, whose change would cost speed and no rows."""
    found = pushed(predicate)

    # Polars may turn NOT over a comparison into the opposite one, and order the parts of AND.
    assert found in (expected, *_variants(expected))


def _variants(expected: Expression) -> list[Expression]:
    if str(expected) == "NOT (n > 5 AND name = 'a')":
        return [(col("n") <= 5) | (col("name") != "a")]
    return []


@pytest.mark.parametrize(
    "predicate",
    [
        C("n") % 2 == 0,
        ~((C("n") > 5) & (C("n") % 2 == 0)),
        (C("n") > 5) | (C("n") % 2 == 0),
        C("n") > 1.5,
        C("f") == NAN,
        C("f") > math.inf,
        C("f").is_in([1.0]),
        C("n").is_in([]),
        C("n").is_in([1, None], nulls_equal=True),
        C("name").str.contains("a.b"),
        C("n") == C("small"),
        C("flag") ^ (C("n") > 5),
        C("moment").dt.hour() == 5,
        C("n").ne_missing(5),
        C("n").cast(pl.String) == "5",
        C("n").map_batches(lambda values: values > 5, return_dtype=pl.Boolean),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_is_left_to_polars(predicate: pl.Expr) -> None:
    """[C12] No filter rather than a wrong one."""
    assert pushed(predicate) is None


class Strange:
    """A predicate that says something else than any version of Polars."""

    def __init__(self, tree: Any) -> None:
        self.meta = self
        self.text = json.dumps(tree)

    def serialize(self, format: str) -> str:  # noqa: A002 - the name of Polars
        assert format == "json"
        return self.text


def greater(name: str, kind: str, value: Any) -> Any:
    """A comparison as Polars writes it."""
    literal = {"Literal": {"Scalar": {kind: value}}}
    return {"BinaryExpr": {"left": {"Column": name}, "op": "Gt", "right": literal}}


def call(family: str, function: Any, *more: Any) -> Any:
    """A function of the text column as Polars writes it."""
    return {"Function": {"input": [{"Column": "name"}, *more], "function": {family: function}}}


STRANGE = [
    None,
    [],
    "Column",
    {},
    {"Column": 5},
    {"Column": "nope"},
    {"Column": "n", "Literal": 5},
    {"BinaryExpr": {"left": {"Column": "n"}, "op": "Gt"}},
    greater("n", "Int64", "5"),
    greater("n", "Int512", 5),
    greater("f", "Int64", 5),
    greater("day", "Date", 10**9),
    greater("moment", "Datetime", [5, "Nanoseconds", {"inner": "UTC"}]),
    greater("moment", "Datetime", [5, "Microseconds", None]),
    greater("local", "Datetime", [5, "Microseconds", {"inner": "UTC"}]),
    call("Boolean", "IsPrime"),
    call("StringExpr", "SoundsLike", {"Literal": {"Scalar": {"String": "a"}}}),
    call("Boolean", {"IsIn": {"nulls_equal": False}}, {"Literal": {"Scalar": {"List": [1, 2]}}}),
]


def test_the_strange_forms_are_near_to_those_that_are_known() -> None:
    """[C12] Or the next test would pass for reasons that mean nothing."""
    assert implied_by_polars(Strange(greater("n", "Int64", 5)), SCHEMA) == (col("n") > 5)
    starts = call("StringExpr", "StartsWith", {"Literal": {"Scalar": {"String": "a"}}})
    assert implied_by_polars(Strange(starts), SCHEMA) == col("name").like("a%")


@pytest.mark.parametrize("tree", STRANGE, ids=lambda tree: str(tree)[:60])
def test_forms_that_no_version_writes_are_passed_over(tree: Any) -> None:
    """[C12] Another version of Polars may write anything."""
    assert implied_by_polars(Strange(tree), SCHEMA) is None
