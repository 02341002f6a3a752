"""Filter text: what it means, how it prints back, and where its mistakes are."""

# ruff: noqa: DTZ001 - times without a zone are a column type of their own

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strandline.tableformat.errors import InvalidFilter, InvalidInput
from strandline.tableformat.expressions import And, Compare, Constant, Expression, In, Not, Or, col
from strandline.tableformat.filter_parser import filter_from, parse_filter
from tests.filter_cases import filters

WORDS = ["a", "AND", "OR", "NOT", "(", ")", "=", "5", "'x'", "IN", ",", "NULL", "-", "IS"]
A, B, D = col("a") == 1, col("b") == 2, col("d") == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", A),
        ("a==1", A),
        (" ( a = 1 ) ", A),
        ("1 = a", A),
        ("1 < a", col("a") > 1),
        ("1 >= a", col("a") <= 1),
        ("a <> 1", col("a") != 1),
        ("a != 1", col("a") != 1),
        ("a <=> NULL", col("a").eq_null_safe(None)),
        ("a = 1 OR b = 2 AND d = 4", A | (B & D)),
        ("(a = 1 OR b = 2) AND d = 4", (A | B) & D),
        ("not a = 1 and b = 2", ~A & B),
        ("NOT (a = 1 AND b = 2)", ~(A & B)),
        ("NOT NOT a = 1", ~~A),
        ("a IN (1, 2.5, 'x', NULL)", col("a").is_in([1, Decimal("2.5"), "x", None])),
        ("a IN ()", col("a").is_in([])),
        ("a not in (1)", ~col("a").is_in([1])),
        ("a BETWEEN 1 AND 5 AND b = 2", (col("a") >= 1) & (col("a") <= 5) & B),
        ("a NOT BETWEEN 1 AND 5", ~col("a").between(1, 5)),
        ("a BETWEEN b AND 5", (col("a") >= col("b")) & (col("a") <= 5)),
        ("a is null", col("a").is_null()),
        ("a IS NOT NULL", col("a").is_not_null()),
        ("a LIKE 'x%'", col("a").like("x%")),
        (r"a NOT LIKE '\%_'", ~col("a").like(r"\%_")),
        ("TRUE", Constant(value=True)),
        ("a = 1 OR null", A | Constant(value=None)),
        ("flag AND NOT other", col("flag") & ~col("other")),
        ("flag = true", col("flag") == True),  # noqa: E712
        ("a < b", col("a") < col("b")),
        ('"a b" = 1', col("a b") == 1),
        ("`a ``b` = 1", col("a `b") == 1),
        ('"IN" = 1', col("IN") == 1),
        ("größe > 5", col("größe") > 5),
        ("date >= date '2024-01-31'", col("date") >= date(2024, 1, 31)),
        ("timestamp < 5", col("timestamp") < 5),
        ("x = X'00fF'", col("x") == b"\x00\xff"),
        ("device.os = 'x'", col("device")["os"] == "x"),
        ('device . "o""s" . `a.b` IS NULL', col("device")['o"s']["a.b"].is_null()),
        ('"a.b".c IN (1)', col("a.b")["c"].is_in([1])),
        ('"a.b" = 1', col("a.b") == 1),
        ("5 < device.in", col("device")["in"] > 5),
        ("a.x LIKE 'x%' AND a.y", col("a")["x"].like("x%") & col("a")["y"]),
        ("a.x BETWEEN b.y AND 5", (col("a")["x"] >= col("b")["y"]) & (col("a")["x"] <= 5)),
        ("date.timestamp = date '2024-01-31'", col("date")["timestamp"] == date(2024, 1, 31)),
    ],
)
def test_text_means_what_the_builder_builds(text: str, expected: Expression) -> None:
    """Precedence, spelling variants, quoting and keywords in any case."""
    assert parse_filter(text) == expected
    assert filter_from(text) == filter_from(expected) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5),
        ("-5", -5),
        ("+ 5", 5),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("1.50", Decimal("1.50")),
        (".5", Decimal("0.5")),
        ("-5.", Decimal(-5)),
        ("1e3", 1000.0),
        ("-0.0e0", -0.0),
        ("NaN", math.nan),
        ("-Infinity", -math.inf),
        ("infinity", math.inf),
        ("'it''s'", "it's"),
        ("''", ""),
        ("'\n\0;--'", "\n\0;--"),
        ("X''", b""),
        ("TIMESTAMP '2024-01-31'", datetime(2024, 1, 31)),
        ("TIMESTAMP '2024-01-31 12:30'", datetime(2024, 1, 31, 12, 30)),
        ("TIMESTAMP '2024-01-31T12:30:00.5'", datetime(2024, 1, 31, 12, 30, 0, 500_000)),
        ("TIMESTAMP '2024-01-31 12:30:00Z'", datetime(2024, 1, 31, 12, 30, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-31 12:30:00 -02:30'", datetime(2024, 1, 31, 15, tzinfo=UTC)),
        ("TIMESTAMP '2024-01-31 12:30:00+02'", datetime(2024, 1, 31, 10, 30, tzinfo=UTC)),
    ],
)
def test_values(text: str, expected: object) -> None:
    """Each kind of value, with its type: integers of any size, decimals, floats, text, bytes."""
    assert parse_filter(f"a = {text}") == Compare("a", "=", expected)  # type: ignore[arg-type]
    assert parse_filter(f"a IN (0, {text})") == In("a", (0, expected))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "expected a column or a value, found the end"),
        ("a = 1 AND", 9, "found the end"),
        ("a >", 3, "expected a value or a column"),
        ("a = = 1", 4, "found '='"),
        ("a = 'x", 4, "no closing quote"),
        ('"a = 1', 0, "no closing quote"),
        ("`a = 1", 0, "no closing quote"),
        ("(a = 1", 0, "not closed"),
        ("a = 1)", 5, "closes nothing"),
        ("a = 1 b = 2", 6, "expected AND, OR or the end"),
        ("a = 5x", 4, "not a number"),
        ("a = 1.2.3", 4, "not a number"),
        ("a = 1e999", 4, "too large for a float"),
        ("a = " + "9" * 2000, 4, "more than 1000 digits"),
        ("a IN 5", 5, "expected ( after IN"),
        ("a IN (1", 7, "expected )"),
        ("a IN (1,)", 8, "expected a value"),
        ("a IN (b)", 6, "single quotes"),
        ("a BETWEEN 1 OR 2", 12, "expected AND"),
        ("a NOT 5", 6, "expected IN, LIKE or BETWEEN"),
        ("a IS 5", 5, "expected NULL"),
        ("a LIKE 5", 7, "pattern in quotes"),
        (r"a LIKE 'x\y'", 7, "backslash"),
        ("a ~ 5", 2, "no meaning"),
        ("a = X'0'", 4, "pairs of hex digits"),
        ("a = DATE '2024-13-01'", 9, "month"),
        ("a = DATE '20240101'", 9, "not a date"),
        ("a = TIMESTAMP 'now'", 14, "not a time"),
        ("a = TIMESTAMP '0001-01-01 00:00+02'", 14, "years 1 to 9999"),
        ("5 = 6", 0, "one side of a comparison must be a column"),
        ("5", 1, "expected a comparison"),
        ("in = 5", 0, "double quotes"),
        ('"" = 5', 0, "cannot be empty"),
        ("a = - b", 6, "expected a number after -"),
        ("upper(a) = 5", 5, "calls no functions"),
        ("a.b.c(d) = 5", 5, "calls no functions"),
        ("tags[0] = 5", 4, "cannot look into lists and maps"),
        ("a. = 5", 3, "name of a field after the dot, found '='"),
        ("a.5 = 5", 1, "expected AND, OR or the end"),
        ("a.b. ", 5, "name of a field after the dot, found the end"),
        ("a.'b' = 5", 2, "name of a field after the dot"),
        (".a = 5", 0, "expected a column or a value, found '.'"),
        ('a."" = 5', 2, "cannot be empty"),
        ("NOT " * 10_000 + "a", 128 * 4, "nested deeper than 128"),
        ("(" * 10_000 + "a" + ")" * 10_000, 128, "nested deeper than 128"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_mistakes_are_pointed_at(text: str, position: int, words: str) -> None:
    """The error carries the text, the place and the reason."""
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text)
    assert caught.value.position == position
    assert words in caught.value.reason
    assert caught.value.text == text


def test_a_filter_is_text_or_an_expression() -> None:
    """Other things are named."""
    with pytest.raises(InvalidInput, match="not int"):
        parse_filter(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="not a filter expression"):
        filter_from(5)  # type: ignore[arg-type]


def test_long_filters_are_fine() -> None:
    """100,000 values, and thousands of terms in parentheses, are no nesting."""
    values = parse_filter(f"a IN ({', '.join(map(str, range(100_000)))})")
    assert isinstance(values, In)
    assert len(values.values) == 100_000
    terms = parse_filter(" OR ".join(f"(a = {n} AND NOT b = {n})" for n in range(3_000)))
    assert terms.terms == 6_000


def test_an_expression_as_deep_as_allowed_reads_back() -> None:
    """The parser's bound on nesting is not tighter than the expression's."""
    deep: Expression = A
    for n in range(63):
        deep = Not(deep | (col("b") == n))

    assert parse_filter(str(deep)) == deep


def shape(expression: Expression) -> object:
    """The tree with its values' types, for which equal text is not enough."""
    if isinstance(expression, (And, Or)):
        return type(expression), [shape(part) for part in expression.parts]
    if isinstance(expression, Not):
        return Not, shape(expression.inner)
    held = [
        getattr(expression, f.name)
        for f in fields(expression)  # type: ignore[arg-type]
        if not f.kw_only  # the place in the text is no part of the tree
    ]
    # 1E+400 and its plain digits are one decimal; equality has compared the value already.
    return type(expression), repr([type(v) if isinstance(v, Decimal) else v for v in held])


@settings(max_examples=200, deadline=None)
@given(filters())
@example(col("a").is_in([]))
@example(~~(col('weird "name"') == "'"))
@example(col("device")["os"].is_in(["x"]) & (col("a.b")["null"]["c d"] > col("x")["y"]))
@example(col("a") == 1.5)
@example(col("a") == 1e300)
@example(col("a") == Decimal("1E+400"))
def test_text_reads_back_as_an_equal_expression(expression: Expression) -> None:
    """What `str` prints, the parser reads: filters can travel as text without loss."""
    again = parse_filter(str(expression))

    assert again == expression
    assert shape(again) == shape(expression)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(),
        st.lists(
            st.sampled_from(WORDS)
        ).map(" ".join),
    )
)  # fmt: skip
def test_any_text_is_a_filter_or_a_clear_error(text: str) -> None:
    """No input makes the parser fail in another way; a pointed place lies within the text."""
    try:
        parsed = parse_filter(text)
    except InvalidFilter as error:
        place, message = error.position, str(error)
    else:
        assert parse_filter(str(parsed)) == parsed
        return
    assert 0 <= place <= len(text)
    assert message.endswith("^")
