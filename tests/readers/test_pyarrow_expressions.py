"""Filters to and from pyarrow expressions: one meaning, whoever runs them."""

# ruff: noqa: DTZ001, SIM300 - times without a zone are a column type; A is a field, no constant

from __future__ import annotations

import functools
import math
import operator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from strandline.api import create_in
from strandline.readers.evaluate import evaluate
from strandline.tableformat.binding import bind
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import (
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
    col,
)
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.from_pyarrow import from_pyarrow, implied_by_pyarrow
from strandline.tableformat.storage import open_storage
from tests import filter_cases, nested_cases
from tests.filter_cases import NAMES, ROWS, SCHEMA, TYPES, filters, table_of, truth
from tests.tables import memory_url

if TYPE_CHECKING:
    from pathlib import Path

NAN = math.nan
A, F = pc.field("a"), pc.field("f64")


def row(**held: Any) -> dict[str, Any]:
    """A row that is null except for these columns."""
    return dict.fromkeys(TYPES) | held


def by_pyarrow(expression: Any, table: pa.Table) -> list[bool | None]:
    """The value of a pyarrow expression for each row."""
    found = ds.dataset(table).to_table(columns={"found": expression})
    values: list[bool | None] = found.column("found").to_pylist()
    return values


def by_us(expression: Expression, table: pa.Table) -> list[bool | None]:
    """The value of a filter of ours for each row."""
    values: list[bool | None] = evaluate(bind(expression, SCHEMA), table, NAMES).to_pylist()
    return values


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(filters(), st.lists(ROWS, min_size=1, max_size=12))
@example(col("f32") == 0.1, [row(f32=0.10000000149011612)])
@example(col("f32") >= 0.1, [row(f32=0.10000000149011612), row(f32=0.09999999403953552)])
@example(col("f32") < 1e300, [row(f32=math.inf), row(f32=3e38), row(f32=NAN)])
@example(~col("f32").is_in([0.1, 0.0]), [row(f32=-0.0), row(f32=NAN), row()])
@example(col("f64").is_in([0]), [row(f64=-0.0), row(f64=0.0), row()])
@example(col("day") > datetime(9999, 12, 31, 12), [row(day=date(9999, 12, 31))])
@example(col("name").like("%a\\%b_"), [row(name="xa%bé"), row(name="xa%b"), row()])
def test_a_filter_means_the_same_to_pyarrow(
    expression: Expression, rows: list[dict[str, Any]]
) -> None:
    """[C12] TRUE, FALSE and NULL, for all types; and what comes back means the same again."""
    expected = [truth(expression, one) for one in rows]
    table = table_of(rows)

    made = expression.to_pyarrow(table.schema)

    assert by_pyarrow(made, table) == expected
    assert ds.dataset(table).to_table(filter=made).num_rows == expected.count(True)
    assert by_us(from_pyarrow(made), table) == expected


def takes_nan_for_a_number(rows: list[dict[str, Any]]) -> bool:
    """Whether Parquet's bounds make pyarrow believe that a column with a NaN holds one number.

    It then puts that number in the column's place, before any filter can ask for NaN.
    """
    return any(
        NAN in held and None not in held and len(set(held)) == 2
        for name in ("f32", "f64")
        if (held := [NAN if one[name] != one[name] else one[name] for one in rows])
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    filters(("f64", "f32", "i64", "name"), foreign=True),
    st.lists(filter_cases.rows_of(("f64", "f32", "i64", "name")), min_size=1, max_size=9),
)
@example(col("f64") != 5, [row(f64=5.0), row(f64=NAN), row()])
@example(~col("f64").is_in([5]), [row(f64=5.0), row(f64=NAN), row()])
@example(col("f64") > 7, [row(f64=5.0), row(f64=NAN), row(f64=6.0)])
@example(col("f64") <= 7, [row(f64=5.0), row(f64=NAN), row(f64=6.0)])
def test_pyarrow_skips_no_wanted_row_of_a_file(
    expression: Expression, rows: list[dict[str, Any]]
) -> None:
    """[C12] [E11] Parquet's bounds leave NaN out; row groups with one are read all the same."""
    groups = [rows[at : at + 3] for at in range(0, len(rows), 3)]
    assume(not any(map(takes_nan_for_a_number, groups)))
    table = table_of(rows)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=3)
    fragment = ds.ParquetFileFormat().make_fragment(pa.BufferReader(sink.getvalue()))

    made = expression.to_pyarrow(table.schema)

    expected = [truth(expression, one) for one in rows]
    assert fragment.to_table(filter=made, schema=table.schema).num_rows == expected.count(True)
    assert fragment.to_table(filter=~made, schema=table.schema).num_rows == expected.count(False)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nested_cases.FILTERS, st.lists(nested_cases.ROWS, min_size=1, max_size=8))
def test_fields_of_structs_travel_to_pyarrow_and_back(
    expression: Expression, rows: list[dict[str, Any]]
) -> None:
    """[C12] Null structs have null fields on both sides."""
    expected = [truth(expression, nested_cases.flat(one)) for one in rows]
    table = nested_cases.table_of(rows)

    made = nested_cases.inside(expression, dotted=True).to_pyarrow(table.schema)

    assert by_pyarrow(made, table) == expected
    back = bind(from_pyarrow(made), nested_cases.SCHEMA)
    names = {column.id: column.name for column in nested_cases.SCHEMA.columns}
    assert evaluate(back, table, names).to_pylist() == expected


# --- from pyarrow -----------------------------------------------------------------------------

FROM = [
    (A > 5, col("a") > 5),
    (pc.scalar(5) > A, col("a") < 5),
    (A == 1.0, col("a") == 1.0),
    (A == "x", col("a") == "x"),
    (A == b"\0x", col("a") == b"\0x"),
    (A != Decimal("1.50"), col("a") != Decimal("1.50")),
    (A <= date(2024, 1, 31), col("a") <= date(2024, 1, 31)),
    (A >= datetime(2024, 1, 31, 5), col("a") >= datetime(2024, 1, 31, 5)),
    (A < datetime(2024, 1, 31, tzinfo=UTC), col("a") < datetime(2024, 1, 31, tzinfo=UTC)),
    (A == pa.scalar(7, pa.timestamp("s")), col("a") == datetime(1970, 1, 1, 0, 0, 7)),
    (A == pa.scalar(None, pa.int8()), col("a") == None),  # noqa: E711
    (A == pc.field("b"), col("a") == col("b")),
    (pc.field("d", "os") == "x", col("d")["os"] == "x"),
    (pc.field("d.os") == "x", col("d.os") == "x"),
    (pc.field("it's\n'odd' call: ") == 1, col("it's\n'odd' call: ") == 1),
    (A, col("a") & True & True),
    (~A, ~(col("a") == True)),  # noqa: E712
    (pc.scalar(True), Constant(value=True)),  # noqa: FBT003
    (A.is_null(), col("a").is_null()),
    (A.is_valid(), col("a").is_not_null()),
    (A.is_null(nan_is_null=True), col("a").is_null() | (col("a") == NAN)),
    (A.is_nan(), col("a") == NAN),
    (A.isin([1, 2]), Not(IsNull("a")) & In("a", (1, 2))),
    (A.isin([1, None]), IsNull("a") | In("a", (1,))),
    (A.isin(pa.array([], pa.int64())), Not(IsNull("a")) & In("a", ())),
    (pc.match_like(A, r"a\%%"), Like("a", r"a\%%")),
    (pc.starts_with(A, "50%_"), Like("a", r"50\%\_%")),
    (pc.ends_with(A, "x"), Like("a", "%x")),
    (pc.match_substring(A, "\\"), Like("a", r"%\\%")),
    ((A > 1) & (A < 5) & (A != 3), (col("a") > 1) & (col("a") < 5) & (col("a") != 3)),
    ((A > 1) | ~(A < 5), (col("a") > 1) | ~(col("a") < 5)),
]  # fmt: skip


@pytest.mark.parametrize(("given_filter", "expected"), FROM[:15] + FROM[16:], ids=str)
def test_a_pyarrow_expression_is_taken_apart_exactly(
    given_filter: Any, expected: Expression
) -> None:
    """[C12] Names, values with their types, and logic; 1 stays an integer, 1.0 a float."""
    assert filter_from(given_filter) == expected


def test_a_bare_field_is_a_flag() -> None:
    """[C12] As in filters of ours."""
    assert filter_from(A) == Compare("a", "=", value=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (A + 1 > 5, "'add"),
        (A.cast(pa.int64()) > 5, "'cast'"),
        (pc.and_(A > 1, A < 5), "'and_'"),
        (pc.utf8_lower(A) == "x", "'utf8_lower'"),
        (pc.match_like(A, "x%", ignore_case=True), "ignores case"),
        (pc.match_like(A, "x\\y"), "backslash"),
        (pc.match_substring_regex(A, "x.*"), "'match_substring_regex'"),
        (pc.if_else(A > 5, A < 7, pc.scalar(False)), "is_null or is_valid"),  # noqa: FBT003
        (pc.field(0) > 5, "cannot be taken apart"),
        (pc.scalar(5), "neither true nor false"),
        (pc.scalar(5) == 6, "a field on one side"),
        (A == pa.scalar(2**62, pa.timestamp("us")), "out of range"),
        (A == pa.scalar(1, pa.timestamp("ns")), "finer than a microsecond"),
        (A == pa.scalar(5, pa.time32("s")), "cannot compare with"),
        ((A > 5).is_null(), "must stand on a field"),
        ((A > 5).isin([True]), "must stand on a field"),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_counterpart_is_refused(wrong: Any, words: str) -> None:
    """[C12] Never a guess; the error says what a filter can do."""
    with pytest.raises(InvalidInput) as caught:
        filter_from(wrong)
    assert words in str(caught.value)


def test_long_chains_are_no_nesting() -> None:
    """[C12] pyarrow builds them left-deep, one level for each link."""
    chain = functools.reduce(operator.or_, [A == n for n in range(3_000)])

    assert filter_from(chain).terms == 3_000
    listed = filter_from(A.isin(list(range(100_000))))
    assert listed.terms == 100_001


def test_scans_take_pyarrow_expressions_and_nan_stays_the_greatest() -> None:
    """[C12] [E11] Whoever writes the filter, a scan answers as it always does."""
    table = create_in(open_storage(memory_url()), {"x": "float64"}, time_column=None)
    table.append({"x": [1.0, NAN, None, 9.0]})

    found = table.scan(filter=pc.field("x") > 5).to_arrow().column("x").to_pylist()

    assert [str(value) for value in found] == ["nan", "9.0"]
    assert table.scan(filter=~pc.field("x").isin([1.0])).count() == 3  # a null is not in the list
    assert "filter: x > 5" in table.scan(filter=pc.field("x") > 5).explain()
    with pytest.raises(InvalidInput, match="no column 'y'"):
        table.scan(filter=pc.field("y") > 5)


# --- what pyarrow's own meaning implies -------------------------------------------------------


def arrow_leaves() -> st.SearchStrategy[Any]:
    """Predicates of pyarrow over awkward columns, with values of the column's type or not."""

    def over(name: str) -> st.SearchStrategy[Any]:
        field, kind = pc.field(name), SCHEMA.arrow.field(name).type
        typed = filter_cases.values_of(name).map(lambda value: pa.scalar(value, kind))
        foreign = [0.1, 1, 2**40, NAN] if name in ("f32", "f64", "i8", "i64") else ["ab"]
        value = st.one_of(typed, typed, st.sampled_from(foreign).map(pa.scalar))
        compared = st.builds(
            lambda op, v: op(field, v),
            st.sampled_from(
                [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
            ),
            value,
        )
        listed = st.lists(st.none() | filter_cases.values_of(name), max_size=3).map(
            lambda values: field.isin(pa.array(values, kind))
        )
        nulls = st.sampled_from([field.is_null(), field.is_valid()])
        return st.one_of(compared, compared, compared, listed, nulls)

    names = ["f64", "f64", "f32", "i8", "i64", "name"]
    unknown = st.sampled_from([pc.field("i64") + 1 > 5, pc.field("f64") < pc.field("f32")])
    return st.one_of(*(over(name) for name in names), unknown)


ARROW_FILTERS = st.recursive(
    arrow_leaves(),
    lambda inner: st.one_of(
        st.builds(operator.inv, inner),
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ARROW_FILTERS, st.lists(filter_cases.rows_of(("f64", "f32", "i8", "i64", "name")), max_size=9)
)
@example(~(F > 5), [row(f64=NAN), row(f64=7.0)])
@example(~(F < NAN), [row(f64=NAN), row(f64=7.0)])
@example(~F.isin([0.0]), [row(f64=-0.0), row(f64=0.0)])
@example(~((F > 5) & (pc.field("i64") + 1 > 5)), [row(f64=7.0, i64=1)])
@example(pc.field("f32") == 0.1, [row(f32=0.10000000149011612)])
def test_what_is_read_for_pyarrow_holds_every_row_it_wants(
    expression: Any, rows: list[dict[str, Any]]
) -> None:
    """[C12] The filter pushed down is true wherever pyarrow's is, also under NOT and for NaN."""
    table = table_of(rows)
    try:
        wanted = by_pyarrow(expression, table)
    except pa.ArrowException:
        return  # pyarrow itself cannot compare these

    pushed = implied_by_pyarrow(expression, table.schema)

    if pushed is not None:
        found = by_us(pushed, table)
        missed = [
            i for i, (want, got) in enumerate(zip(wanted, found, strict=True)) if want and not got
        ]
        assert missed == [], str(pushed)


@pytest.mark.parametrize(
    ("expression", "pushed"),
    [
        ((F > 5) & (pc.field("i64") + 1 > 5), (col("f64") > 5) & (col("f64") != NAN)),
        ((F > 5) | (pc.field("i64") + 1 > 5), None),
        (~(pc.field("i64") + 1 > 5), None),
        ((pc.field("i64") > 5) & ~(pc.field("i8") == 1), (col("i64") > 5) & ~(col("i8") == 1)),
        (pc.field("i64") > 5.5, None),
        (pc.field("nope") > 5, None),
        (pc.field(0) > 5, None),
    ],
    ids=str,
)  # fmt: skip
def test_parts_that_are_understood_are_pushed(expression: Any, pushed: Expression | None) -> None:
    """[C12] One unknown part of an AND does not cost the pruning of the others."""
    made = implied_by_pyarrow(expression, SCHEMA.arrow)

    assert made == pushed or (pushed is not None and str(made) == str(pushed))


# --- to pyarrow -------------------------------------------------------------------------------


def test_names_that_look_like_syntax_reach_their_columns(tmp_path: Path) -> None:
    """[C12] Dots, brackets and quotes in names are part of the name."""
    names = ["a.b", ".a", "a[0]", 'q"', "s"]
    inner = pa.array([{"x.y": 1, ".z": 2}, None])
    table = pa.table({n: [1, 2] for n in names[:-1]} | {"s": inner})
    pq.write_table(table, tmp_path / "t.parquet")
    for name in names[:-1]:
        made = (col(name) == 2).to_pyarrow(table.schema)
        for source in (table, tmp_path / "t.parquet"):
            assert ds.dataset(source).to_table(filter=made).num_rows == 1
    for name in ("x.y", ".z"):
        made = col("s")[name].is_null().to_pyarrow(table.schema)
        assert ds.dataset(table).to_table(filter=made).num_rows == 1


def test_hidden_columns_are_known_where_the_schema_has_them() -> None:
    """[C12] `_seq` of a scan that gives it."""
    schema = pa.schema([("_seq", pa.int64()), ("n", pa.int64())])
    table = pa.table({"_seq": [0, 1, 2], "n": [5, 6, 7]}, schema=schema)

    made = ((col("_seq") > 0) & (col("n") < 7)).to_pyarrow(schema)

    assert ds.dataset(table).to_table(filter=made).column("n").to_pylist() == [6]
    with pytest.raises(InvalidInput, match="no column '_ts'"):
        (col("_ts") > 0).to_pyarrow(schema)


def test_a_schema_of_other_types_is_refused() -> None:
    """[C12] A value would be made for the wrong type."""
    with pytest.raises(InvalidInput, match="cast it to string"):
        (col("a") == "x").to_pyarrow(pa.schema([("a", pa.large_string())]))
    with pytest.raises(InvalidInput, match="not supported"):
        (col("a") == "x").to_pyarrow(pa.schema([("a", pa.duration("s"))]))
    with pytest.raises(InvalidInput, match="cannot be compared"):
        (col("a") == "x").to_pyarrow(pa.schema([("a", pa.int64())]))
