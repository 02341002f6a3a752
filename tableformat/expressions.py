"""Filters as values: `(col("amount") > 10) & col("country").is_in(["US", "CA"])`.

An expression is immutable and knows columns by name only; `binding.bind` checks it against a
schema. `str()` gives text that `filter_parser.parse_filter` reads back as an equal expression,
which is how filters travel in options and metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from strandline.tableformat.column_names import ColumnName, Place, check_column, name_text
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.like import parse_like
from strandline.tableformat.literals import Literal, plain, to_text

MAX_DEPTH: Final = 128
"""Deeper nesting is refused, so that no filter can exhaust the stack."""

MAX_TERMS: Final = 1_000_000
"""Comparisons and IN values in one filter."""

OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=", "<=>")
_MAX_REPR: Final = 500


class Expression:
    """A predicate over the columns of a row: TRUE, FALSE or NULL.

    Leaves that were read from text know their `place` in it, which is no part of what they mean:
    equality, hash and text leave it out.
    """

    __slots__ = ()

    @property
    def depth(self) -> int:
        return 1

    @property
    def terms(self) -> int:
        return 1

    def to_pyarrow(self, schema: Any) -> Any:
        """The filter as a `pyarrow.compute.Expression` with the same meaning, for a `pa.Schema`."""
        # Needs binding, which needs this module, and kernels that planning does without.
        from strandline.tableformat.to_pyarrow import to_pyarrow  # noqa: PLC0415

        return to_pyarrow(self, schema)

    def __and__(self, other: object) -> Expression:
        return _join(And, self, as_expression(other))

    def __rand__(self, other: object) -> Expression:
        return _join(And, as_expression(other), self)

    def __or__(self, other: object) -> Expression:
        return _join(Or, self, as_expression(other))

    def __ror__(self, other: object) -> Expression:
        return _join(Or, as_expression(other), self)

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise _no_truth()

    def __eq__(self, other: object) -> bool:
        # By text: it tells 1, 1.0 and TRUE apart, and a NaN equals itself.
        return isinstance(other, Expression) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        text = str(self)
        return f"Expression({text if len(text) <= _MAX_REPR else text[:_MAX_REPR] + '…'})"


def _no_truth() -> InvalidInput:
    return InvalidInput(
        "a filter has no truth value of its own: write & for and, | for or, ~ for not, with "
        'parentheses around each comparison, as in (col("a") > 1) & (col("b") == 2); and '
        'col("a").between(1, 5) instead of 1 <= col("a") <= 5'
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expression):
    """TRUE, FALSE or NULL for every row."""

    value: bool | None

    def __str__(self) -> str:
        return to_text(self.value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Expression):
    """A column against a value. `<=>` is equality that takes NULL as a value."""

    column: ColumnName
    operator: str
    value: Literal
    place: Place | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_operator(self.operator)
        check_column(self.column)
        object.__setattr__(self, "value", plain(self.value))

    def __str__(self) -> str:
        return f"{name_text(self.column)} {self.operator} {to_text(self.value)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComparePair(Expression):
    """A column against another column of the same row."""

    left: ColumnName
    operator: str
    right: ColumnName
    place: Place | None = field(default=None, kw_only=True)
    right_place: Place | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_operator(self.operator)
        check_column(self.left)
        check_column(self.right)

    def __str__(self) -> str:
        return f"{name_text(self.left)} {self.operator} {name_text(self.right)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class In(Expression):
    """A column against a list. As in SQL, a NULL in the list makes every miss unknown."""

    column: ColumnName
    values: tuple[Literal, ...]
    place: Place | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_column(self.column)
        given: object = self.values
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InvalidInput(
                f"column {name_text(self.column)!r}: IN takes a list of values, not {given!r}"
            )
        values = tuple(plain(value) for value in given)
        object.__setattr__(self, "values", values)
        _check_size(1, len(values))

    @property
    def terms(self) -> int:
        return max(1, len(self.values))

    def __str__(self) -> str:
        return f"{name_text(self.column)} IN ({', '.join(map(to_text, self.values))})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IsNull(Expression):
    """Whether a column holds no value; never NULL itself."""

    column: ColumnName
    place: Place | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_column(self.column)

    def __str__(self) -> str:
        return f"{name_text(self.column)} IS NULL"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Like(Expression):
    """A text column against a pattern; see `like.py`."""

    column: ColumnName
    pattern: str
    place: Place | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_column(self.column)
        pattern = plain(self.pattern)
        if not isinstance(pattern, str):
            raise InvalidInput(
                f"column {name_text(self.column)!r}: a LIKE pattern is text, not {self.pattern!r}"
            )
        parse_like(pattern)
        object.__setattr__(self, "pattern", pattern)

    def __str__(self) -> str:
        return f"{name_text(self.column)} LIKE {to_text(self.pattern)}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expression):
    """TRUE where the inner predicate is FALSE; NULL stays NULL."""

    inner: Expression
    depth: int = field(init=False)
    terms: int = field(init=False)

    def __post_init__(self) -> None:
        inner = as_expression(self.inner)
        _check_size(inner.depth + 1, inner.terms)
        object.__setattr__(self, "inner", inner)
        object.__setattr__(self, "depth", inner.depth + 1)
        object.__setattr__(self, "terms", inner.terms)

    def __str__(self) -> str:
        return f"NOT {_grouped(self.inner, (And, Or))}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Junction(Expression):
    parts: tuple[Expression, ...]
    """Two or more, none of the same kind: nested ones are flattened."""

    depth: int = field(init=False)
    terms: int = field(init=False)
    word: ClassVar[str]

    def __post_init__(self) -> None:
        parts: list[Expression] = []
        for part in map(as_expression, self.parts):
            parts.extend(part.parts if type(part) is type(self) else (part,))
        if len(parts) < 2:  # noqa: PLR2004 - what "several" means
            raise InvalidInput(f"{self.word} joins two or more predicates, not {len(parts)}")
        _fill(self, tuple(parts), max(p.depth for p in parts) + 1, sum(p.terms for p in parts))


class And(_Junction):
    """TRUE where all parts are."""

    __slots__ = ()
    word = "AND"

    def __str__(self) -> str:
        return " AND ".join(_grouped(part, (Or,)) for part in self.parts)


class Or(_Junction):
    """TRUE where one part is."""

    __slots__ = ()
    word = "OR"

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


_J = TypeVar("_J", bound=_Junction)


def _join(kind: type[_J], left: Expression, right: Expression) -> _J:
    # Chains of thousands of `|` are common, so a link must not look at all earlier parts again.
    depth = 2
    parts: tuple[Expression, ...] = ()
    for side in (left, right):
        if isinstance(side, kind):
            depth, parts = max(depth, side.depth), parts + side.parts
        else:
            depth, parts = max(depth, side.depth + 1), (*parts, side)
    joined = object.__new__(kind)
    _fill(joined, parts, depth, left.terms + right.terms)
    return joined


def _fill(node: _Junction, parts: tuple[Expression, ...], depth: int, terms: int) -> None:
    _check_size(depth, terms)
    object.__setattr__(node, "parts", parts)
    object.__setattr__(node, "depth", depth)
    object.__setattr__(node, "terms", terms)


def _check_size(depth: int, terms: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidInput(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if terms > MAX_TERMS:
        raise InvalidInput(f"the filter holds more than {MAX_TERMS:,} comparisons and values")


def _check_operator(operator: object) -> None:
    if operator not in OPERATORS:
        raise InvalidInput(f"{operator!r} is not one of {', '.join(OPERATORS)}")


def _grouped(expression: Expression, kinds: tuple[type[Expression], ...]) -> str:
    return f"({expression})" if isinstance(expression, kinds) else str(expression)


def as_expression(value: object) -> Expression:
    """An expression as it is; a column as "is TRUE"; a bool as a constant."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, Col):
        return Compare(value.name, "=", value=True)
    if isinstance(value, bool):
        return Constant(value)
    raise InvalidInput(
        f"{value!r} is not a filter expression; comparisons bind weaker than & and |, so write "
        'parentheses around each: (col("a") > 1) & (col("b") == 2)'
    )


def all_of(expressions: Iterable[Expression]) -> Expression:
    """AND over any number of expressions; over none it is TRUE."""
    parts = tuple(expressions)
    return And(parts) if len(parts) > 1 else (parts[0] if parts else Constant(value=True))


def any_of(expressions: Iterable[Expression]) -> Expression:
    """OR over any number of expressions; over none it is FALSE."""
    parts = tuple(expressions)
    return Or(parts) if len(parts) > 1 else (parts[0] if parts else Constant(value=False))


class Col:
    """A column that comparisons can start from; see `col`."""

    __slots__ = ("name",)

    def __init__(self, name: ColumnName) -> None:
        check_column(name)
        self.name = name

    def __getitem__(self, field_name: str) -> Col:
        """A field of a struct: `col("device")["os"]`."""
        outer = (self.name,) if isinstance(self.name, str) else self.name
        return Col((*outer, field_name))

    def _compare(self, operator: str, other: object) -> Expression:
        if isinstance(other, Col):
            return ComparePair(self.name, operator, other.name)
        return Compare(self.name, operator, other)  # type: ignore[arg-type] # checked inside

    def __eq__(self, other: object) -> Expression:  # type: ignore[override] # builds a filter
        return self._compare("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override] # builds a filter
        return self._compare("!=", other)

    def __lt__(self, other: object) -> Expression:
        return self._compare("<", other)

    def __le__(self, other: object) -> Expression:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Expression:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Expression:
        return self._compare(">=", other)

    def eq_null_safe(self, other: object) -> Expression:
        """`<=>`: equal, or both NULL; never NULL itself."""
        return self._compare("<=>", other)

    def is_in(self, values: Iterable[Any]) -> Expression:
        return In(self.name, values)  # type: ignore[arg-type] # made a tuple inside

    def is_null(self) -> Expression:
        return IsNull(self.name)

    def is_not_null(self) -> Expression:
        return Not(IsNull(self.name))

    def between(self, least: object, most: object) -> Expression:
        """Both ends included."""
        return (self >= least) & (self <= most)

    def like(self, pattern: str) -> Expression:
        return Like(self.name, pattern)

    def __and__(self, other: object) -> Expression:
        return as_expression(self) & other

    def __or__(self, other: object) -> Expression:
        return as_expression(self) | other

    def __invert__(self) -> Expression:
        return Not(as_expression(self))

    def __bool__(self) -> bool:
        raise _no_truth()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        first, *fields = (self.name,) if isinstance(self.name, str) else self.name
        return f"col({first!r})" + "".join(f"[{name!r}]" for name in fields)


def col(name: str) -> Col:
    """A column by name, to build a filter from: `col("amount") > 10`.

    A field of a struct is `col("device.os")` or `col("device")["os"]`, at any depth.
    """
    return Col(name)
