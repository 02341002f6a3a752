"""Row filters against an oracle written by hand, and against DuckDB."""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline.readers.evaluate import evaluate, filter_table
from strandline.tableformat.binding import bind
from strandline.tableformat.expressions import (
    OPERATORS,
    And,
    Compare,
    ComparePair,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    Or,
    col,
)
from strandline.tableformat.schema import schema_from
from tests.filter_cases import NAMES, ROWS, SCHEMA, TYPES, filters, table_of, truth

if TYPE_CHECKING:
    from collections.abc import Iterator

NAN = math.nan


def answer(expression: Expression, table: Any) -> list[bool | None]:
    """The filter's value for each row."""
    found: list[bool | None] = evaluate(bind(expression, SCHEMA), table, NAMES).to_pylist()
    return found


def row(**given_values: Any) -> dict[str, Any]:
    """A row that is null except for these columns."""
    return dict.fromkeys(TYPES) | given_values


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(filters(), st.lists(ROWS, max_size=12))
@example(col("i64") == 2.0**53, [row(i64=2**53), row(i64=2**53 + 1)])
@example(col("f64") > 2**53, [row(f64=NAN), row(f64=2.0**53), row(f64=2.0**53 + 2)])
@example(col("f64").is_in([0.0, NAN]), [row(f64=-0.0), row(f64=NAN), row()])
@example(~col("f32").between(0.1, NAN), [row(f32=0.10000000149011612), row(f32=NAN), row()])
@example(~col("i8").is_in([1, None]), [row(i8=1), row(i8=2), row()])
def test_a_filter_is_true_for_exactly_the_rows_that_logic_says(
    expression: Expression, rows: list[dict[str, Any]]
) -> None:
    """[E11] Literals of any exactness, all types: the answer that fractions give by hand."""
    expected = [truth(expression, one) for one in rows]

    table = table_of(rows)

    assert answer(expression, table) == expected
    kept = filter_table(bind(expression, SCHEMA), table, NAMES)
    assert kept.num_rows == expected.count(True)


# --- DuckDB -----------------------------------------------------------------------------------

_SQL_TYPES = {
    "flag": "BOOLEAN",
    "i8": "BIGINT",
    "i64": "BIGINT",
    "u32": "BIGINT",
    "f32": "DOUBLE",
    "f64": "DOUBLE",
    "money": "DECIMAL(38,2)",
    "huge": "DECIMAL(38,3)",
    "day": "DATE",
    "local": "TIMESTAMP",
    "moment": "TIMESTAMPTZ",
    "name": "VARCHAR",
    "blob": "BLOB",
}


def to_sql(expression: Expression, parameters: list[Any]) -> str:  # noqa: C901 - one case each
    """The filter for DuckDB, every literal cast to the type of its column."""

    def value(name: str, literal: Any) -> str:
        if isinstance(literal, datetime) and literal.tzinfo:
            literal = literal.isoformat()
        parameters.append(literal)
        return f"CAST(? AS {_SQL_TYPES[name]})"

    match expression:
        case Constant(constant):
            return f"CAST({constant if constant is not None else 'NULL'} AS BOOLEAN)"
        case Not(inner):
            return f"(NOT {to_sql(inner, parameters)})"
        case And(parts):
            return "(" + " AND ".join(to_sql(part, parameters) for part in parts) + ")"
        case Or(parts):
            return "(" + " OR ".join(to_sql(part, parameters) for part in parts) + ")"
        case IsNull(name):
            return f"({name} IS NULL)"
        case In(name, ()):
            return "FALSE"
        case In(name, values):
            return f"({name} IN ({', '.join(value(name, v) for v in values)}))"
        case Like(name, pattern):
            return f"({name} LIKE {value(name, pattern)} ESCAPE '\\')"
        case ComparePair(left, operator, right):
            return f"({left} {operator.replace('<=>', 'IS NOT DISTINCT FROM')} {right})"
        case Compare(name, operator, literal):
            sql = operator.replace("<=>", "IS NOT DISTINCT FROM")
            return f"({name} {sql} {value(name, literal)})"
    raise AssertionError(expression)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in UTC, like the columns."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(expression=filters(foreign=False), rows=st.lists(ROWS, min_size=1, max_size=12))
def test_a_filter_gives_the_same_answer_as_duckdb(
    database: duckdb.DuckDBPyConnection, expression: Expression, rows: list[dict[str, Any]]
) -> None:
    """[E11] NULL, NaN, signed zeros, infinities, empty text, 38 digits: one meaning everywhere."""
    table = table_of(rows)
    parameters: list[Any] = []
    sql = to_sql(expression, parameters)
    database.register("t", table.append_column("row_number", pa.array(range(len(rows)))))

    found = database.execute(f"SELECT {sql} FROM t ORDER BY row_number", parameters).fetchall()

    assert answer(expression, table) == [one for (one,) in found]


# --- by hand ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("f64") == NAN, [True, False, False, None]),
        (col("f64") != NAN, [False, True, True, None]),
        (col("f64") > 1e308, [True, False, True, None]),
        (col("f64") < NAN, [False, True, True, None]),
        (col("f64") <= NAN, [True, True, True, None]),
        (col("f64") > NAN, [False, False, False, None]),
        (col("f64") == 0, [False, True, False, None]),
        (col("f64").is_in([0, NAN]), [True, True, False, None]),
        (~col("f64").is_in([0, NAN]), [False, False, True, None]),
        (col("f64").between(5, NAN), [True, False, True, None]),
        (col("f64").is_in([5, None]), [None, None, None, None]),
    ],
)
def test_nan_is_the_greatest_number_and_zero_has_no_sign(
    expression: Expression, expected: list[bool | None]
) -> None:
    """[E11] NaN equals itself and is above infinity; -0.0 equals 0.0."""
    table = table_of([row(f64=NAN), row(f64=-0.0), row(f64=math.inf), row()])

    assert answer(expression, table) == expected


@pytest.mark.parametrize("operator", OPERATORS)
def test_float_columns_compare_with_each_other_in_the_same_order(operator: str) -> None:
    """[E11] Every pair of NaN, infinity, zeros and null, of two widths."""
    values = [None, NAN, math.inf, 1.5, 0.0, -0.0, -math.inf]
    rows = [row(f32=left, f64=right) for left in values for right in values]
    expression = ComparePair("f32", operator, "f64")

    assert answer(expression, table_of(rows)) == [truth(expression, one) for one in rows]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a%", ["a", "a\nb", "a.b", "a%b", "axb"]),
        ("%b", ["a\nb", "a.b", "a%b", "axb"]),
        ("a%b", ["a\nb", "a.b", "a%b", "axb"]),
        ("a_b", ["a\nb", "a.b", "a%b", "axb"]),
        ("a.b", ["a.b"]),
        (r"a\%b", ["a%b"]),
        (r"a\%_", ["a%b"]),
        ("%.%", ["a.b"]),
        ("_", ["a", "\U0001f600"]),
        ("%", ["", "a", "a\nb", "a.b", "a%b", "axb", "\U0001f600"]),
        ("", [""]),
        ("A%", []),
    ],
)
def test_like_matches_whole_texts(pattern: str, expected: list[str]) -> None:
    """`%` and `_` pass line ends, `_` is one character, not one byte; dots are dots."""
    rows = [row(name=text) for text in ("", "a", "a\nb", "a.b", "a%b", "axb", "\U0001f600")]
    table = table_of([*rows, row()])

    found = filter_table(bind(col("name").like(pattern), SCHEMA), table, NAMES)

    assert found.column("name").to_pylist() == expected
    missed = filter_table(bind(~col("name").like(pattern), SCHEMA), table, NAMES)
    assert missed.num_rows == len(rows) - len(expected)


def test_a_hundred_thousand_values_are_fine() -> None:
    """A very long IN list works, with NULL for a miss when it holds a NULL."""
    table = table_of([row(i64=5), row(i64=-5), row()])

    assert answer(col("i64").is_in(range(100_000)), table) == [True, False, None]
    assert answer(~col("i64").is_in(range(100_000)), table) == [False, True, None]
    assert answer(col("i64").is_in([*range(100_000), None]), table) == [True, None, None]


def test_a_column_that_the_table_lacks_is_null() -> None:
    """[M3] A segment older than a column reads as null there."""
    table = table_of([row(i8=1), row(i8=2)]).drop_columns(["i64"])

    assert answer(col("i64") == 1, table) == [None, None]
    assert answer(col("i64").is_null(), table) == [True, True]
    assert answer((col("i64") == 1) | (col("i8") == 1), table) == [True, None]
    assert evaluate(bind(col("i64") > 1, SCHEMA), table, {}).to_pylist() == [None, None]


def test_columns_are_found_by_id_under_any_name() -> None:
    """[M3] A renamed column keeps its data: the id decides, the name is looked up."""
    table = pa.table({"older_name": pa.array([1, 5], pa.int64())})
    bound = bind(col("i64") > 2, SCHEMA)

    assert filter_table(bound, table, {SCHEMA.column("i64").id: "older_name"}).num_rows == 1


@pytest.mark.parametrize("chunks", [1, 3])
def test_tables_batches_and_dictionaries_give_the_same(chunks: int) -> None:
    """A filter looks at each distinct value of a dictionary once, and answers alike."""
    texts = ["a", None, "ab", "b", "a", ""]
    rows = [row(name=text) for text in texts]
    plain = pa.concat_tables([table_of(rows)] * chunks)
    at = plain.schema.get_field_index("name")
    coded = plain.set_column(at, "name", plain.column("name").dictionary_encode())
    checks = [
        col("name") == "a",
        col("name").is_null(),
        ~col("name").is_in(["a", "b"]),
        ~col("name").like("a%"),
        col("name") < col("name"),
        Constant(value=None) | (col("name") >= "ab"),
    ]
    for expression in checks:
        expected = [truth(expression, one) for one in rows]
        assert answer(expression, plain) == expected * chunks
        assert answer(expression, coded) == expected * chunks
        batch = table_of(rows).to_batches()[0]
        found = evaluate(bind(expression, SCHEMA), batch, NAMES)
        assert isinstance(found, pa.Array)
        assert found.to_pylist() == expected
        assert filter_table(bind(expression, SCHEMA), batch, NAMES).num_rows == expected.count(True)


def test_an_empty_table_gives_an_empty_answer() -> None:
    """No rows, no surprise: also for tables without chunks and filters without columns."""
    empty = SCHEMA.arrow.empty_table()
    for expression in (col("f64") > 1, col("name").like("%a_"), Constant(value=True)):
        assert answer(expression, empty) == []
        assert filter_table(bind(expression, SCHEMA), empty, NAMES).num_rows == 0


def test_nested_columns_can_be_tested_for_null() -> None:
    """Lists, structs and maps know IS NULL and IS NOT NULL."""
    schema = schema_from({"tags": pa.list_(pa.string())})
    table = pa.table({"tags": pa.array([["a"], None, []], pa.list_(pa.string()))})
    names = {schema.column("tags").id: "tags"}

    assert evaluate(bind(col("tags").is_null(), schema), table, names).to_pylist() == [
        False,
        True,
        False,
    ]


def test_hidden_columns_filter_like_any_other() -> None:
    """`_seq` and `_ts` take numbers; `_ts` takes a time with a zone, too, exactly."""
    table = pa.table({"_seq": [1, 2, 3], "_ts": [999, 1000, 1001]})
    names = {-1: "_seq", -2: "_ts"}
    after = datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)

    def hits(expression: Expression) -> list[bool]:
        found: list[bool] = evaluate(bind(expression, SCHEMA), table, names).to_pylist()
        return found

    assert hits(col("_seq") >= 2) == [False, True, True]
    assert hits(col("_ts") >= 1000) == [False, True, True]
    assert hits(col("_ts") >= after) == [False, False, True]
    assert hits(col("_ts") == after) == [False, False, False]


def test_decimals_of_38_digits_compare_to_the_last_digit() -> None:
    """No literal passes through a float or a rounding context on its way."""
    value = Decimal("12345678901234567890123456789.001")
    table = table_of([row(huge=value), row(huge=value + 0)])

    assert answer(col("huge") == value, table)[0] is True
    assert answer(col("huge") == Decimal("12345678901234567890123456789.002"), table)[0] is False
    assert answer(col("huge").is_in([value, 1]), table)[0] is True
    assert answer(col("money") > Decimal("1.005"), table_of([row(money=Decimal("1.01"))])) == [True]
    assert answer(col("day") > datetime(2024, 1, 1, 12), table_of([row(day=date(2024, 1, 2))])) == [
        True
    ]
