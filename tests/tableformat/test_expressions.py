"""The builder, and the exact, negation-free form that binding gives."""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import functools
import math
import operator
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings

from strandline.tableformat.binding import (
    Bound,
    BoundAnd,
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundKnown,
    BoundNull,
    BoundOr,
    bind,
    columns_of,
)
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import (
    MAX_DEPTH,
    And,
    Compare,
    Constant,
    Expression,
    In,
    Like,
    Not,
    Or,
    all_of,
    any_of,
    as_expression,
    col,
)
from strandline.tableformat.hidden_columns import SEQ_ID, TS_ID, WINDOW_ID
from strandline.tableformat.schema import Evolution, evolve, schema_from
from tests.filter_cases import SCHEMA, filters

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = math.nan
TWO_30 = timezone(timedelta(hours=2, minutes=30))
B = col("i8") == 2
C = {column.name: column for column in SCHEMA.columns}


def bound(expression: Expression) -> Bound:
    """Bound to the schema that has a column of each type."""
    return bind(expression, SCHEMA)


# --- building ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("amount") > 10, "amount > 10"),
        (10 > col("amount"), "amount < 10"),  # noqa: SIM300 - the other way round is the point
        (col("a").is_in(["x", None]), "a IN ('x', NULL)"),
        (col("a").is_not_null(), "NOT a IS NULL"),
        (col("a").between(1, 2), "a >= 1 AND a <= 2"),
        (col("a").like("it's%"), "a LIKE 'it''s%'"),
        (col("a").eq_null_safe(None), "a <=> NULL"),
        (col("a") != col("b"), "a != b"),
        (col("a") & ~col("b") | True, "a = TRUE AND NOT b = TRUE OR TRUE"),
        ((col("a") == 1) & ((col("b") == 2) | (col("c") == 3)), "a = 1 AND (b = 2 OR c = 3)"),
        (~((col("a") == 1) | (col("b") == 2)), "NOT (a = 1 OR b = 2)"),
        (col("and") == 1.5, '"and" = 1.5e0'),
        (col('a "b"') == Decimal("1.50"), '"a ""b""" = 1.50'),
        (col("a") == b"\x00\xff", "a = X'00ff'"),
        (col("a") == date(2024, 1, 31), "a = DATE '2024-01-31'"),
        (col("a") == datetime(2024, 1, 31, 5), "a = TIMESTAMP '2024-01-31 05:00:00'"),
        (col("a") == NAN, "a = NaN"),
        (col("a") == -math.inf, "a = -Infinity"),
    ],
)
def test_the_builder_reads_as_text(expression: Expression, text: str) -> None:
    """What Python operators build prints as the filter a person would write."""
    assert str(expression) == text
    assert repr(expression) == f"Expression({text})"


@pytest.mark.parametrize(
    "use",
    [
        lambda: (col("a") > 1) and (col("b") > 2),
        lambda: 1 < col("a") < 5,
        lambda: not (col("a") == 1),  # noqa: SIM201
        lambda: bool(col("a")),
        lambda: col("a") in [col("b")],  # noqa: FURB171
    ],
)
def test_truth_of_a_filter_is_refused_with_advice(use: Any) -> None:
    """`and`, `or`, `not` and chains would silently drop a half, so they say what to write."""
    with pytest.raises(InvalidInput, match="write & for and"):
        use()


def test_equality_and_hash_tell_types_apart() -> None:
    """1, 1.0, TRUE and '1' are different filters; a NaN equals itself; order of parts counts."""
    different = [col("a") == v for v in (1, 1.0, True, "1", b"1", Decimal(1), None, 0.0, -0.0)]
    assert len(set(different)) == len(different)
    assert (col("a") == NAN) == (col("a") == float("nan"))  # noqa: PLW0177
    assert And((col("a") == 1, And((col("b") == 2, col("c") == 3)))) == (
        (col("a") == 1) & (col("b") == 2) & (col("c") == 3)
    )
    assert (col("a") == 1) != "a = 1"


def test_expressions_survive_pickling() -> None:
    """A filter travels to a worker process."""
    expression = (col("a") == 1) & ~col("b").is_in([1, NAN]) | col("c").like("x%")

    assert pickle.loads(pickle.dumps(expression)) == expression
    assert pickle.loads(pickle.dumps(bound(col("i8") > 1))) == bound(col("i8") > 1)


class Colour(str, Enum):  # noqa: UP042 - the older way, whose str() is its label
    """Text in an enum."""

    RED = "red"


class Level(IntEnum):
    """A number in an enum."""

    HIGH = 3


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        (np.int64(5), 5),
        (np.float32(0.5), 0.5),
        (np.bool_(1), True),
        (np.str_("x"), "x"),
        (np.datetime64("2024-01-31"), date(2024, 1, 31)),
        (np.datetime64("2024-01-31T01:00:00", "ns"), datetime(2024, 1, 31, 1)),
        (np.datetime64("NaT"), None),
        (pd.Timestamp("2024-01-31T01:00:00Z"), datetime(2024, 1, 31, 1, tzinfo=UTC)),
        (pd.NaT, None),
        (pa.scalar(5), 5),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (bytearray(b"x"), b"x"),
        (Decimal("NaN"), NAN),
        (datetime(2024, 1, 1, 2, 30, tzinfo=TWO_30), datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_values_of_other_libraries_become_plain(given_value: Any, expected: Any) -> None:
    """Numpy, pandas, Arrow and enum values are taken for what they hold."""
    expression = Compare("a", "=", given_value)

    assert type(expression.value) is type(expected)
    assert expression == Compare("a", "=", expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: col("a") == object(),
        lambda: col("a") == [1],
        lambda: col("a") == "\ud800",
        lambda: col("a") == 10**2000,
        lambda: col("a") == Decimal("1E+5000"),
        lambda: col("a") == pd.Timestamp("2024-01-31T00:00:00.000000001"),
        lambda: col("a") == np.datetime64(1, "ns"),
        lambda: col("a") == datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))),
        lambda: col("a").is_in("abc"),
        lambda: col("a").is_in(5),
        lambda: col("a").like("a\\b"),
        lambda: col("a").like("a\\"),
        lambda: col("a").like(5),
        lambda: col(""),
        lambda: col(5),
        lambda: Compare("a", "~", 5),
        lambda: And((col("a") == 1,)),
        lambda: as_expression("a = 1"),
        lambda: (col("a") == 1) & 5,
    ],
)
def test_what_cannot_be_a_filter_is_refused_at_once(make: Any) -> None:
    """The error comes where the mistake is, not when the scan runs."""
    with pytest.raises(InvalidInput):
        make()


def test_depth_is_bounded_and_width_is_not() -> None:
    """Nesting stops with a clear error before the stack does; long chains and lists are fine."""

    def nest(wrap: Callable[[Expression], Expression]) -> None:
        deep: Expression = col("i8") == 1
        for depth in range(1, 10_000):
            assert deep.depth == depth <= MAX_DEPTH
            deep = wrap(deep)

    with pytest.raises(InvalidInput, match="nested deeper than 128 levels"):
        nest(operator.inv)
    with pytest.raises(InvalidInput, match="nested deeper than 128 levels"):
        nest(lambda inner: (inner | B) if isinstance(inner, And) else (inner & B))
    wide = functools.reduce(operator.or_, [col("i64") == n for n in range(5_000)])
    assert len(bound(wide).parts) == 5_000  # type: ignore[union-attr]
    listed = bound(col("i64").is_in(range(100_000)))
    assert isinstance(listed, BoundIn)
    assert len(listed.values) == 100_000


def test_the_size_is_bounded() -> None:
    """A filter of more than a million values is refused."""
    with pytest.raises(InvalidInput, match="more than 1,000,000"):
        col("a").is_in(range(1_000_001))


def test_joining_any_number() -> None:
    """`all_of` and `any_of` take none, one or more."""
    one, two = col("a") == 1, col("b") == 2
    assert all_of([]) == Constant(value=True)
    assert any_of([]) == Constant(value=False)
    assert all_of([one]) is one
    assert any_of([one, two]) == one | two


# --- binding ----------------------------------------------------------------------------------

BIG = 2**53
KNOWN, COMPARE = BoundKnown, BoundCompare
CASTS = [
    (col("i64") > 1.5, COMPARE(C["i64"], ">=", 2)),
    (col("i64") >= Decimal("1.5"), COMPARE(C["i64"], ">=", 2)),
    (col("i64") < 1.5, COMPARE(C["i64"], "<=", 1)),
    (col("i64") <= -1.5, COMPARE(C["i64"], "<=", -2)),
    (col("i64") == 1.5, KNOWN(C["i64"], value=False)),
    (col("i64") != 1.5, KNOWN(C["i64"], value=True)),
    (~(col("i64") == 1.5), KNOWN(C["i64"], value=True)),
    (col("i64") == 2.0, COMPARE(C["i64"], "=", 2)),
    (col("i8") > 1000, KNOWN(C["i8"], value=False)),
    (col("i8") < 1000, KNOWN(C["i8"], value=True)),
    (col("i8") < -1000, KNOWN(C["i8"], value=False)),
    (col("i8") >= -1000, KNOWN(C["i8"], value=True)),
    (col("u32") > -1, KNOWN(C["u32"], value=True)),
    (col("i64") < NAN, KNOWN(C["i64"], value=True)),
    (col("i64") > math.inf, KNOWN(C["i64"], value=False)),
    (col("i64") > -math.inf, KNOWN(C["i64"], value=True)),
    (col("i64") <= 2.0**63, KNOWN(C["i64"], value=True)),
    (col("money") > Decimal("1.005"), COMPARE(C["money"], ">=", 101)),
    (col("money") == 0.1, COMPARE(C["money"], "=", 10)),
    (col("money") == 5, COMPARE(C["money"], "=", 500)),
    (col("money") < 10**8, KNOWN(C["money"], value=True)),
    (col("f64") == BIG + 1, KNOWN(C["f64"], value=False)),
    (col("f64") > BIG + 1, COMPARE(C["f64"], ">=", BIG + 2.0)),
    (col("f64") < BIG + 1, COMPARE(C["f64"], "<=", float(BIG))),
    (col("f64") > 10**400, COMPARE(C["f64"], ">=", math.inf)),
    (col("f64") == Decimal("0.1"), COMPARE(C["f64"], "=", 0.1)),
    (col("f32") == 0.1, COMPARE(C["f32"], "=", 0.1)),
    (col("f64") == -0.0, COMPARE(C["f64"], "=", 0.0)),
    (col("f64") == Decimal("-0.0"), COMPARE(C["f64"], "=", 0.0)),
    (col("f64") == "-Infinity", COMPARE(C["f64"], "=", -math.inf)),
    (col("f64") <= NAN, KNOWN(C["f64"], value=True)),
    (col("f64") > NAN, KNOWN(C["f64"], value=False)),
    (col("day") > datetime(1970, 1, 2, 12), COMPARE(C["day"], ">=", 2)),
    (col("day") == date(1970, 1, 2), COMPARE(C["day"], "=", 1)),
    (col("day") == "1970-01-02", COMPARE(C["day"], "=", 1)),
    (col("local") == date(1970, 1, 2), COMPARE(C["local"], "=", 86_400_000_000)),
    (col("local") == "1970-01-01 00:00:01.5", COMPARE(C["local"], "=", 1_500_000)),
    (col("moment") == "1970-01-01T00:00:01Z", COMPARE(C["moment"], "=", 1_000_000)),
    (col("moment") == datetime(1970, 1, 1, 2, 30, tzinfo=TWO_30), COMPARE(C["moment"], "=", 0)),
    (col("flag") == False, COMPARE(C["flag"], "=", 0)),  # noqa: E712
    (col("name").like("a\\%"), COMPARE(C["name"], "=", "a%")),
    (col("i64") == None, BoundConstant(None)),  # noqa: E711
    (col("i64").is_in([]), BoundConstant(value=False)),
    (col("i64").is_in([1.5]), KNOWN(C["i64"], value=False)),
    (~col("i64").is_in([1.5]), KNOWN(C["i64"], value=True)),
    (col("i64").is_in([3, 1, 1.0, 2.5]), BoundIn(C["i64"], (1, 3), with_nan=False, negated=False)),
    (col("f64").is_in([NAN, -0.0]), BoundIn(C["f64"], (0.0,), with_nan=True, negated=False)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), CASTS, ids=lambda v: str(v)[:50])
def test_literals_are_cast_exactly(expression: Expression, expected: Bound) -> None:
    """[E11] No literal is rounded: what a column cannot hold becomes the next thing it can."""
    found = bound(expression)

    assert found == expected
    if isinstance(found, BoundCompare):
        assert repr(found.value) == repr(expected.value)  # type: ignore[union-attr] # 0.0 is not -0.0


def test_negation_reaches_the_leaves() -> None:
    """NOT never stands over a set: De Morgan, flipped comparisons, NULL kept apart."""
    listed = BoundIn(C["i64"], (1,), with_nan=False, negated=False)

    found = bound(~((col("i8") > 1) & (col("name").is_null() | ~col("i64").is_in([1, None]))))

    assert found == BoundOr(
        (
            COMPARE(C["i8"], "<=", 1),
            BoundAnd(
                (
                    BoundNull(C["name"], negated=True),
                    BoundOr((listed, BoundConstant(None))),
                )
            ),
        )
    )  # fmt: skip
    assert bound(Not(Constant(value=None))) == BoundConstant(None)
    assert bound(Not(Constant(value=True))) == BoundConstant(value=False)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (col("name") > 5, "'name' has type string and cannot be compared with 5"),
        (col("name") == b"x", "string"),
        (col("i64") == "5", "'i64' has type int64 and cannot be compared with '5'"),
        (col("i64") == True, "int64"),  # noqa: E712
        (col("flag") == 1, "TRUE or FALSE"),
        (col("f64") == "five", "float64"),
        (col("blob") == "x", "X'00ff'"),
        (col("moment") > datetime(2024, 1, 1), "a time with a zone"),
        (col("moment") > "2024-01-01", "a time with a zone"),
        (col("local") > datetime(2024, 1, 1, tzinfo=UTC), "a time without a zone"),
        (col("day") == "yesterday", "is not a time like"),
        (col("local") == "2024-01-01 00:00:00.1234567", "is not a time like"),
        (col("day") == 5, "date"),
        (col("i64").like("a%"), "LIKE needs a string column"),
        (col("i64").is_in([1, "x"]), "int64"),
        (col("i64") < col("name"), "their types differ"),
        (col("nope") == 1, "no column 'nope'; the columns are blob, day"),
        (col("_nope") == 1, "no column '_nope'"),
    ],
)
def test_what_cannot_be_compared_is_an_error_that_names_it(
    expression: Expression, words: str
) -> None:
    """[E10] Column, type and advice stand in the error; unknown columns list the known ones."""
    with pytest.raises(InvalidInput) as caught:
        bound(expression)
    assert words in str(caught.value)


def test_nested_columns_know_only_null() -> None:
    """Comparing a list has no meaning that all engines share."""
    schema = schema_from({"tags": pa.list_(pa.string())})

    assert bind(col("tags").is_null(), schema) == BoundNull(schema.column("tags"), negated=False)
    for expression in (col("tags") == 1, col("tags").is_in([]), col("tags").like("a%")):
        with pytest.raises(InvalidInput, match="IS NULL"):
            bind(expression, schema)


def test_columns_are_known_by_id() -> None:
    """[M3] A filter follows a rename; hidden columns have negative ids."""
    renamed = evolve(
        SCHEMA, Evolution(rename=(("i8", "small"),)), next_column_id=99, protected_ids={}
    )
    wanted = (col("small") > 1) & ((col("_seq") > 5) | (col("_ts") > 5) | (col("_window") > 5))

    assert columns_of(bind(wanted, renamed)) == {C["i8"].id, SEQ_ID, TS_ID, WINDOW_ID}
    assert (SEQ_ID, TS_ID, WINDOW_ID) == (-1, -2, -3)
    assert columns_of(bound(col("i8") < col("i64"))) == {C["i8"].id, C["i64"].id}
    assert columns_of(bound(Constant(value=True))) == frozenset()


@settings(max_examples=50, deadline=None)
@given(filters())
def test_every_filter_binds_and_hashes(expression: Expression) -> None:
    """Binding is a pure function of the expression; equal expressions have equal hashes."""
    assert bound(expression) == bound(expression) or "nan" in repr(bound(expression))
    assert hash(expression) == hash(pickle.loads(pickle.dumps(expression)))


def test_parts_of_the_tree_are_what_they_were_built_from() -> None:
    """The tree is plain data that other planners may walk."""
    expression = col("a").is_in([1]) & (col("b").like("x%") | ~col("c"))

    assert isinstance(expression, And)
    assert expression.parts[0] == In("a", (1,))
    assert expression.parts[1] == Or((Like("b", "x%"), Not(Compare("c", "=", value=True))))
    assert (expression.depth, expression.terms) == (4, 3)
