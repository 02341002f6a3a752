"""Filters bound to a schema: the form that pruning, indexes and row filters share.

Binding finds the columns by id, moves NOT into the leaves and casts every literal exactly into
its column's stats domain. What is left is AND and OR over leaves that are each TRUE, FALSE or
NULL by one value, so each consumer implements a handful of cases, and none of them has to
negate a set of rows or segments (where a NULL or a "may match" would turn into a wrong answer).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.tableformat.column_lookup import ColumnLookup, stored_column
from strandline.tableformat.errors import InvalidFilter, InvalidInput
from strandline.tableformat.expressions import (
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
)
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS
from strandline.tableformat.like import LikePattern, parse_like
from strandline.tableformat.placement import check_comparable, place
from strandline.tableformat.types import INTEGER_RANGES, ColumnType, Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from strandline.tableformat.column_names import ColumnName, Place
    from strandline.tableformat.literals import Literal
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.values import Value

_T = TypeVar("_T")
_NEGATED: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class BoundConstant:
    """The same for every row; None is NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class BoundKnown:
    """`value` wherever the column holds anything, NULL where it is null: `int8 < 1000`."""

    column: Column
    value: bool


@dataclass(frozen=True, slots=True)
class BoundCompare:
    """A column against a value of its stats domain. A NaN value comes with = and != only."""

    column: Column
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class BoundIn:
    """A column against a set of values of its domain; NULL for a null, never otherwise."""

    column: Column
    values: tuple[Value, ...]
    """Sorted, without repetition and NaN; may be empty if `with_nan`."""
    with_nan: bool
    negated: bool
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What pruning makes of a long list once, and not for every page again."""


@dataclass(frozen=True, slots=True)
class BoundLike:
    """A text column against a pattern with at least one wildcard."""

    column: Column
    pattern: LikePattern
    negated: bool


@dataclass(frozen=True, slots=True)
class BoundNull:
    """IS NULL, or IS NOT NULL when negated."""

    column: Column
    negated: bool


@dataclass(frozen=True, slots=True)
class BoundPair:
    """Two columns whose domains mean the same."""

    left: Column
    operator: str
    right: Column


@dataclass(frozen=True, slots=True)
class BoundAnd:
    """Kleene AND."""

    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class BoundOr:
    """Kleene OR."""

    parts: tuple[Bound, ...]


Leaf = BoundConstant | BoundKnown | BoundCompare | BoundIn | BoundLike | BoundNull | BoundPair
Bound = Leaf | BoundAnd | BoundOr


def bind(
    expression: Expression, schema: Schema, hidden: Mapping[str, Column] = HIDDEN_COLUMNS
) -> Bound:
    """Check the filter against the schema and give its exact, negation-free form.

    What does not fit a filter that was read from text is `InvalidFilter`, with the column's place.
    """
    return _bind(expression, ColumnLookup(schema, hidden), negated=False)


def opposite(leaf: Leaf) -> Leaf:
    """The leaf that is TRUE where this one is FALSE, and NULL where it is NULL."""
    match leaf:
        case BoundConstant(value):
            return BoundConstant(None if value is None else not value)
        case BoundCompare(column, operator, value):
            return BoundCompare(column, _NEGATED[operator], value)
        case BoundPair(left, operator, right):
            return BoundPair(left, _NEGATED[operator], right)
        case BoundKnown(column, known):
            return BoundKnown(column, not known)
        case _:
            return replace(leaf, negated=not leaf.negated)


def conjuncts(bound: Bound) -> tuple[Bound, ...]:
    """What must be TRUE at once for the filter to be."""
    if isinstance(bound, BoundAnd):
        return tuple(inner for part in bound.parts for inner in conjuncts(part))
    return (bound,)


def all_true(parts: Iterable[Bound | None]) -> Bound | None:
    """One filter of several that must hold together; None has nothing to say."""
    given = tuple(part for part in parts if part is not None)
    return given[0] if len(given) == 1 else BoundAnd(given) if given else None


def columns_of(bound: Bound) -> frozenset[int]:
    """The ids of the columns that the filter looks at."""
    match bound:
        case BoundAnd(parts) | BoundOr(parts):
            return frozenset().union(*map(columns_of, parts))
        case BoundConstant():
            return frozenset()
        case BoundPair(left, _, right):
            return frozenset((stored_column(left).id, stored_column(right).id))
        case _:
            return frozenset((stored_column(bound.column).id,))


def _pointed(place: Place | None, make: Callable[..., _T], *parts: object) -> _T:
    """What `make` gives; what it refuses is an error at the place in the filter's text."""
    try:
        return make(*parts)
    except InvalidFilter:
        raise
    except InvalidInput as error:
        if place is None:
            raise
        raise InvalidFilter(place.text, place.position, str(error)) from None


def _bind(expression: Expression, columns: ColumnLookup, *, negated: bool) -> Bound:
    match expression:
        case And(parts) | Or(parts):
            bound = tuple(_bind(part, columns, negated=negated) for part in parts)
            return BoundAnd(bound) if isinstance(expression, And) != negated else BoundOr(bound)
        case Not(inner):
            return _bind(inner, columns, negated=not negated)
        case Constant(value):
            return BoundConstant(value if value is None else value != negated)
        case ComparePair() | Compare() | In() | IsNull() | Like():
            return _pointed(expression.place, _bind_leaf, expression, columns, negated)
    raise InvalidInput(f"{expression!r} is not a filter expression")


def _bind_leaf(
    leaf: Compare | ComparePair | In | IsNull | Like,
    columns: ColumnLookup,
    negated: bool,  # noqa: FBT001 - passed on by _pointed
) -> Bound:
    if isinstance(leaf, ComparePair):
        left = _comparable(columns, leaf.left)
        right = _pointed(leaf.right_place, _comparable, columns, leaf.right)
        return _bind_pair(left, right, leaf.operator, negated=negated)
    if isinstance(leaf, IsNull):
        return BoundNull(columns.find(leaf.column), negated=negated)
    column = _comparable(columns, leaf.column)
    if isinstance(leaf, Compare):
        return _bind_compare(column, leaf.operator, leaf.value, negated=negated)
    if isinstance(leaf, In):
        return _bind_in(column, leaf.values, negated=negated)
    return _bind_like(column, leaf.pattern, negated=negated)


def _comparable(columns: ColumnLookup, name: ColumnName) -> Column:
    column = columns.find(name)
    check_comparable(column)
    return column


def _bind_compare(column: Column, operator: str, value: Literal, *, negated: bool) -> Bound:
    if operator == "<=>":
        if value is None:
            return BoundNull(column, negated=negated)
        equal = _compare(column, "!=" if negated else "=", value)
        null = BoundNull(column, negated=not negated)
        return BoundOr((null, equal)) if negated else BoundAnd((null, equal))
    if value is None:
        return BoundConstant(None)
    return _compare(column, _NEGATED[operator] if negated else operator, value)


def _compare(column: Column, operator: str, value: Literal) -> Leaf:
    """The comparison in the column's own domain, exactly.

    A literal between two neighbours equals nothing, and is passed exactly where the next
    neighbour is reached.
    """
    placed = place(column, value)
    if placed.exact is not None:
        return _compare_exact(column, operator, placed.exact)
    if operator in ("=", "!="):
        return BoundKnown(column, value=operator == "!=")
    if placed.below is None or placed.above is None:
        return BoundKnown(column, value=(operator in ("<", "<=")) == (placed.above is None))
    if operator in ("<", "<="):
        return BoundCompare(column, "<=", placed.below)
    return BoundCompare(column, ">=", placed.above)


def _compare_exact(column: Column, operator: str, value: Value) -> Leaf:
    if not (isinstance(value, float) and math.isnan(value)):
        return BoundCompare(column, operator, value)
    # NaN is the greatest value: nothing is above it, everything else is below.
    if operator in (">", "<="):
        return BoundKnown(column, value=operator == "<=")
    return BoundCompare(column, "=" if operator in ("=", ">=") else "!=", value)


def _bind_in(column: Column, values: tuple[Literal, ...], *, negated: bool) -> Bound:
    if not values:
        return BoundConstant(negated)
    found: set[Value] = set()
    with_nan = False
    for value in values:
        exact = None if value is None else place(column, value).exact
        if isinstance(exact, float) and math.isnan(exact):
            with_nan = True
        elif exact is not None:
            found.add(exact)
    bound: Bound
    if found or with_nan:
        bound = BoundIn(column, tuple(sorted(found)), with_nan, negated)
    else:
        bound = BoundKnown(column, negated)
    if any(value is None for value in values):
        # A miss may or may not equal the NULL: `x IN (1, NULL)` is `x IN (1) OR NULL`.
        parts = (bound, BoundConstant(None))
        return BoundAnd(parts) if negated else BoundOr(parts)
    return bound


def _bind_like(column: Column, pattern: str, *, negated: bool) -> Leaf:
    if column.type.domain is not Domain.TEXT:
        raise InvalidInput(
            f"column {column.name!r} has type {column.type}; LIKE needs a string column"
        )
    parsed = parse_like(pattern)
    if parsed.is_exact:
        return BoundCompare(column, "!=" if negated else "=", parsed.prefix)
    return BoundLike(column, parsed, negated)


def _bind_pair(left: Column, right: Column, operator: str, *, negated: bool) -> Bound:
    if _family(left.type) != _family(right.type):
        raise InvalidInput(
            f"columns {left.name!r} ({left.type}) and {right.name!r} ({right.type}) cannot be "
            "compared with each other: their types differ"
        )
    if operator != "<=>":
        return BoundPair(left, _NEGATED[operator] if negated else operator, right)
    equal = BoundPair(left, "!=" if negated else "=", right)
    left_null, right_null = (BoundNull(c, negated=negated) for c in (left, right))
    left_held, right_held = (BoundNull(c, negated=not negated) for c in (left, right))
    if not negated:  # both null, or both held and equal
        return BoundOr(
            (BoundAnd((left_null, right_null)), BoundAnd((left_held, right_held, equal)))
        )
    # one held, and one null or both different
    return BoundAnd((BoundOr((left_null, right_null)), BoundOr((left_held, right_held, equal))))


def _family(kind: ColumnType) -> tuple[str, int]:
    """Types that compare by their domain values as they are."""
    if kind.name in INTEGER_RANGES:
        return "int", 0
    if kind.domain is Domain.FLOAT:
        return "float", 0
    return kind.name, kind.scale
