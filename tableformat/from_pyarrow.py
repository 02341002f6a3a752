"""Filters from pyarrow expressions: `(pc.field("amount") > 10) & pc.field("note").is_valid()`.

As a filter of ours, an expression keeps its logic and its treatment of nulls, which pyarrow and we
share; numbers compare by value and NaN is the greatest of them, as in every filter of ours. What
has no exact counterpart is refused.

Another use is to read less before pyarrow itself decides about rows: then a filter is wanted that
is true wherever pyarrow's expression is, in pyarrow's own meaning, where no comparison holds for a
NaN.
"""

from __future__ import annotations

import operator
from functools import reduce
from math import nan
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import (
    Compare,
    ComparePair,
    Constant,
    Expression,
    In,
    IsNull,
    Like,
    Not,
)
from strandline.tableformat.implied import UNKNOWN, Implied
from strandline.tableformat.like import escaped
from strandline.tableformat.literals import Literal, plain
from strandline.tableformat.pyarrow_tree import Field, Options, Value, fold

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.column_names import ColumnName

_OPERATORS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE_FLOAT32: Final = 2**24
"""Up to here every integer is a float of any width."""
_MATCH, _SKIP = 0, 1
"""Of a null in the list of is_in: it finds nulls, or it is not there."""

_Part = Field | Value | Implied


def from_pyarrow(expression: Any) -> Expression:
    """The filter of ours that a pyarrow expression stands for."""
    try:
        made = _Translation(None).of(expression).expression
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}. A filter takes comparisons of fields with values and with each other, isin, "
            "is_null, is_valid, is_nan, match_like, starts_with, ends_with, match_substring, and "
            "&, |, ~ over these; filter the rows after reading for everything else."
        ) from None
    assert made is not None
    return made


def implied_by_pyarrow(expression: Any, schema: pa.Schema) -> Expression | None:
    """A filter that is true wherever pyarrow finds the expression true; None if none is known."""
    return _Translation(schema).of(expression).expression


class _Translation:
    def __init__(self, schema: pa.Schema | None) -> None:
        """With a schema, comparisons mean what pyarrow means by them."""
        self._schema = schema

    def of(self, expression: Any) -> Implied:
        try:
            return _predicate(fold(expression, self._leaf, self._call))
        except InvalidInput:
            if self._schema is None:
                raise
            return UNKNOWN

    def _leaf(self, part: Field | Value) -> _Part:
        return part

    def _call(self, function: str, arguments: list[_Part], options: Options) -> _Part:
        try:
            return self._translated(function, arguments, options)
        except InvalidInput:
            if self._schema is None:
                raise
            return UNKNOWN

    def _translated(self, function: str, arguments: list[_Part], options: Options) -> Implied:
        if function in ("and_kleene", "or_kleene"):
            join = operator.and_ if function == "and_kleene" else operator.or_
            made: Implied = reduce(join, map(_predicate, arguments))
            return made
        if function == "invert":
            return ~_predicate(arguments[0])
        if function == "if_else":
            return _if_else(arguments)
        if function in _OPERATORS:
            return Implied(self._compare(_OPERATORS[function], arguments[0], arguments[1]))
        test = _TESTS.get(function)
        if test is None:
            raise InvalidInput(f"pyarrow's function {function!r} has no counterpart in a filter")
        (column,) = arguments
        if not isinstance(column, Field):
            raise InvalidInput(f"pyarrow's function {function!r} must stand on a field")
        return Implied(test(self, column.name, options))

    # --- comparisons ---

    def _compare(self, symbol: str, left: _Part, right: _Part) -> Expression:
        if isinstance(left, Value):
            left, right, symbol = right, left, _MIRRORED.get(symbol, symbol)
        if not isinstance(left, Field) or not isinstance(right, (Field, Value)):
            raise InvalidInput(
                "a comparison needs a field on one side, a value or field on the other"
            )
        if isinstance(right, Field):
            return self._pair(left.name, symbol, right.name)
        value = _literal(right.scalar)
        made = Compare(left.name, symbol, value)
        if self._schema is None:
            return made
        kind = self._kind(left.name)
        if not _compare_as_they_are(kind, right.scalar.type, value):
            raise InvalidInput("pyarrow converts the value or the column before it compares them")
        if not pa.types.is_floating(kind) or value is None:
            return made
        if value != value:  # noqa: PLR0124 - NaN: not equal to anything, and nothing else holds
            return _known(left.name, value=symbol == "!=")
        return made & Compare(left.name, "!=", nan) if symbol in (">", ">=") else made

    def _pair(self, left: ColumnName, symbol: str, right: ColumnName) -> Expression:
        if self._schema is not None:
            kinds = self._kind(left), self._kind(right)
            if kinds[0] != kinds[1] or pa.types.is_floating(kinds[0]):
                raise InvalidInput("pyarrow compares these columns in a way of its own")
        return ComparePair(left, symbol, right)

    def _kind(self, name: ColumnName) -> pa.DataType:
        assert self._schema is not None
        first, *fields = (name,) if isinstance(name, str) else name
        try:
            kind = self._schema.field(first).type
            for member in fields:
                kind = kind.field(member).type
        except (KeyError, AttributeError, TypeError):
            raise InvalidInput(f"there is no column {name!r}") from None
        return kind

    # --- functions of one column ---

    def is_null(self, name: ColumnName, options: Options) -> Expression:
        null = IsNull(name)
        with_nan = options.get("nan_is_null")
        return null | Compare(name, "=", nan) if with_nan and with_nan.as_py() else null

    def is_valid(self, name: ColumnName, _: Options) -> Expression:
        return Not(IsNull(name))

    def is_nan(self, name: ColumnName, _: Options) -> Expression:
        return Compare(name, "=", nan)

    def is_in(self, name: ColumnName, options: Options) -> Expression:
        """Never null: a null is found, or not, like any other value."""
        nulls = options["null_matching_behavior"].as_py()
        if nulls not in (_MATCH, _SKIP):
            raise InvalidInput("this way of is_in to treat nulls has no counterpart in a filter")
        listed = options["value_set"].values
        if self._schema is not None and (
            listed.type != self._kind(name) or pa.types.is_floating(listed.type)
        ):
            raise InvalidInput("pyarrow looks for these values in a way of its own")
        values = [_literal(value) for value in listed]
        found = In(name, tuple(value for value in values if value is not None))
        if nulls == _MATCH and None in values:
            return IsNull(name) | found
        return Not(IsNull(name)) & found

    def like(self, name: ColumnName, options: Options, pattern: str = "{}") -> Expression:
        if options["ignore_case"].as_py():
            raise InvalidInput("a pattern that ignores case has no counterpart in a filter")
        text = options["pattern"].as_py()
        return Like(name, text if pattern == "{}" else pattern.format(escaped(text)))

    def starts_with(self, name: ColumnName, options: Options) -> Expression:
        return self.like(name, options, "{}%")

    def ends_with(self, name: ColumnName, options: Options) -> Expression:
        return self.like(name, options, "%{}")

    def match_substring(self, name: ColumnName, options: Options) -> Expression:
        return self.like(name, options, "%{}%")


_TESTS: Final[dict[str, Callable[[_Translation, ColumnName, Options], Expression]]] = {
    "is_null": _Translation.is_null,
    "is_valid": _Translation.is_valid,
    "is_nan": _Translation.is_nan,
    "is_in": _Translation.is_in,
    "match_like": _Translation.like,
    "starts_with": _Translation.starts_with,
    "ends_with": _Translation.ends_with,
    "match_substring": _Translation.match_substring,
}


def _predicate(part: _Part) -> Implied:
    if isinstance(part, Implied):
        return part
    if isinstance(part, Field):
        return Implied(Compare(part.name, "=", value=True))
    value = _literal(part.scalar)
    if value is None or isinstance(value, bool):
        return Implied(Constant(value))
    raise InvalidInput(f"the value {value!r} is neither true nor false")


def _literal(scalar: pa.Scalar) -> Literal:
    try:
        return plain(scalar)
    except (ValueError, OverflowError, TypeError, pa.ArrowException) as error:
        raise InvalidInput(f"a value of type {scalar.type} is out of range: {error}") from None


def _compare_as_they_are(column: pa.DataType, literal: pa.DataType, value: Literal) -> bool:
    """Whether pyarrow compares the two without rounding one of them."""
    if column == literal:
        return True
    if not pa.types.is_integer(literal):
        return False
    small = isinstance(value, int) and abs(value) <= _WHOLE_FLOAT32
    return bool(pa.types.is_integer(column) or (small and pa.types.is_floating(column)))


def _known(name: ColumnName, *, value: bool) -> Expression:
    """`value` wherever the column holds anything, NULL where it is null."""
    null = Constant(value=None)
    return Not(IsNull(name)) | null if value else IsNull(name) & null


def _if_else(arguments: list[_Part]) -> Implied:
    """A choice by a test that is never null; by any other it would be null together with it."""
    condition, then, other = map(_predicate, arguments)
    test = condition.expression
    inner = test.inner if isinstance(test, Not) else test
    if not isinstance(inner, IsNull):
        raise InvalidInput("if_else must choose by is_null or is_valid")
    return (condition & then) | (~condition & other)
