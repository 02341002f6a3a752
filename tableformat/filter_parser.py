"""Filters from text: `country = 'US' AND amount > 10 OR ts >= TIMESTAMP '2024-01-31 00:00:00Z'`.

The WHERE language that Spark and DuckDB share, without functions and arithmetic. AND, OR, NOT and
parentheses are resolved with explicit stacks, so hostile text cannot exhaust Python's; every
error points at the place in the text.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import inf, isinf, nan
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.tableformat.column_names import KEYWORDS, ColumnName, Place
from strandline.tableformat.errors import InvalidFilter, InvalidInput
from strandline.tableformat.expressions import (
    MAX_DEPTH,
    MAX_TERMS,
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
    as_expression,
)
from strandline.tableformat.literals import MAX_DIGITS, Literal, parse_date, parse_moment

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<bytes>[xX]'[^']*')
  | (?P<string>'[^']*(?:''[^']*)*')
  | (?P<quoted>"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`)
  | (?P<word>[^\W\d]\w*)
  | (?P<symbol><=>|<=|>=|<>|!=|==|[=<>(),+.-])
    """,
    re.VERBOSE,
)
_MISPLACED: Final = {
    "'": "this text has no closing quote",
    '"': "this name has no closing quote",
    "`": "this name has no closing quote",
    "[": "'[' has no meaning in a filter, which cannot look into lists and maps",
}
_OPERATOR_OF: Final = {
    "=": "=", "==": "=", "<>": "!=", "!=": "!=",
    "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>",
}  # fmt: skip
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BINDS: Final = {"(": 0, "OR": 1, "AND": 2, "NOT": 3}
_WORD_VALUES: Final[dict[str, Literal]] = {
    "TRUE": True,
    "FALSE": False,
    "NULL": None,
    "NAN": nan,
    "INFINITY": inf,
}


def parse_filter(text: str) -> Expression:
    """The expression that the text stands for, or `InvalidFilter` with the place and the reason."""
    if not isinstance(text, str):
        raise InvalidInput(f"a filter is text or an expression, not {type(text).__name__}")
    return _Parser(text).parse()


def filter_from(source: Any) -> Expression:
    """What callers may give as `filter=`: text, an expression of ours or one of pyarrow's."""
    if isinstance(source, str):
        return parse_filter(source)
    # Who holds such an expression has loaded the module; nobody else pays for it.
    compute = sys.modules.get("pyarrow.compute")
    if compute is not None and isinstance(source, compute.Expression):
        from strandline.tableformat.from_pyarrow import from_pyarrow  # noqa: PLC0415

        return from_pyarrow(source)
    return as_expression(source)


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def word(self) -> str:
        """A keyword or symbol in its one spelling; empty for names, values and quoted things."""
        if self.kind == "symbol":
            return self.text
        upper = self.text.upper() if self.kind == "word" else ""
        return upper if upper in KEYWORDS else ""


@dataclass(frozen=True, slots=True)
class _Name:
    """A column where a value could stand."""

    name: ColumnName
    place: Place


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.index = 0
        self.open = 0
        """Parentheses and NOTs that are not done yet."""

    # --- moving through the tokens ---

    @property
    def next(self) -> _Token:
        return self.tokens[self.index]

    def advance(self) -> _Token:
        token = self.next
        self.index += 1
        return token

    def accept(self, *words: str) -> _Token | None:
        return self.advance() if self.next.word in words else None

    def expect(self, word: str, why: str) -> None:
        if not self.accept(word):
            raise self.error(f"expected {word} {why}, found {self.found()}")

    def found(self) -> str:
        return "the end" if self.next.kind == "end" else repr(self.next.text[:40])

    def error(self, reason: str, position: int | None = None) -> InvalidFilter:
        at = self.next.position if position is None else position
        return InvalidFilter(self.text, at, reason)

    def build(
        self, position: int, make: Callable[..., Expression], *parts: object, **places: Place
    ) -> Expression:
        """Make a node; what it refuses is an error at this place."""
        try:
            return make(*parts, **places)
        except InvalidInput as error:
            raise self.error(str(error), position) from None

    # --- AND, OR, NOT and parentheses ---

    def parse(self) -> Expression:
        operands: list[Expression] = []
        operators: list[_Token] = []
        while True:
            while opener := self.accept("(", "NOT"):
                self.open += 1
                if self.open > MAX_DEPTH:
                    raise self.error(f"nested deeper than {MAX_DEPTH} levels", opener.position)
                operators.append(opener)
            operands.append(self.predicate())
            while self.next.word == ")":
                self.reduce(operands, operators, binds=_BINDS["("])
                if not operators:
                    raise self.error("this parenthesis closes nothing")
                operators.pop()
                self.open -= 1
                self.advance()
            joint = self.accept("AND", "OR")
            self.reduce(operands, operators, binds=_BINDS[joint.word] if joint else 0)
            if joint is None:
                break
            operators.append(joint)
        if operators:
            raise self.error("this parenthesis is not closed", operators[-1].position)
        if self.next.kind != "end":
            raise self.error(f"expected AND, OR or the end, found {self.found()}")
        return operands[0]

    def reduce(self, operands: list[Expression], operators: list[_Token], *, binds: int) -> None:
        """Apply the operators on top that bind tighter than the one to come."""
        while operators and _BINDS[operators[-1].word] > binds:
            top = operators.pop()
            if top.word == "NOT":
                self.open -= 1
                operands.append(self.build(top.position, Not, operands.pop()))
                continue
            count = 2
            while operators and operators[-1].word == top.word:  # a run becomes one node
                operators.pop()
                count += 1
            parts = tuple(operands[-count:])
            del operands[-count:]
            kind = And if top.word == "AND" else Or
            operands.append(self.build(top.position, kind, parts))

    # --- one predicate ---

    def predicate(self) -> Expression:
        position = self.next.position
        left = self.operand("a column or a value")
        if not isinstance(left, _Name):
            return self.value_first(left, position)
        if self.next.word in _OPERATOR_OF:
            operator = _OPERATOR_OF[self.advance().word]
            return self.compare(left, operator)
        if self.accept("IS"):
            negated = self.accept("NOT") is not None
            self.expect("NULL", "after IS")
            made = self.build(position, IsNull, left.name, place=left.place)
            return self.build(position, Not, made) if negated else made
        negated = self.accept("NOT") is not None
        if self.accept("IN"):
            made = self.in_list(left)
        elif self.accept("LIKE"):
            made = self.like(left)
        elif self.accept("BETWEEN"):
            made = self.between(left)
        elif negated:
            raise self.error(f"expected IN, LIKE or BETWEEN after NOT, found {self.found()}")
        elif self.next.word == "(":
            raise self.error("expected AND, OR or the end: a filter calls no functions")
        else:
            is_true: Literal = True
            return self.build(position, Compare, left.name, "=", is_true, place=left.place)
        return self.build(position, Not, made) if negated else made

    def value_first(self, value: Literal, position: int) -> Expression:
        """`10 < amount`, or TRUE, FALSE and NULL on their own."""
        if self.next.word in _OPERATOR_OF:
            operator = _OPERATOR_OF[self.advance().word]
            right = self.operand("a column")
            if not isinstance(right, _Name):
                raise self.error("one side of a comparison must be a column", position)
            operator = _MIRRORED.get(operator, operator)
            return self.build(position, Compare, right.name, operator, value, place=right.place)
        if value is None or isinstance(value, bool):
            return Constant(value)
        raise self.error(f"expected a comparison after the value, found {self.found()}")

    def compare(self, left: _Name, operator: str) -> Expression:
        right = self.operand("a value or a column")
        at, place = left.place.position, left.place
        if isinstance(right, _Name):
            sides = (left.name, operator, right.name)
            return self.build(at, ComparePair, *sides, place=place, right_place=right.place)
        return self.build(at, Compare, left.name, operator, right, place=place)

    def between(self, left: _Name) -> Expression:
        least = self.compare(left, ">=")
        self.expect("AND", "between the two ends of BETWEEN")
        most = self.compare(left, "<=")
        return And((least, most))

    def like(self, left: _Name) -> Expression:
        pattern = self.next
        if pattern.kind != "string":
            raise self.error(f"expected a pattern in quotes after LIKE, found {self.found()}")
        self.advance()
        text = _unquoted(pattern.text)
        return self.build(pattern.position, Like, left.name, text, place=left.place)

    def in_list(self, left: _Name) -> Expression:
        self.expect("(", "after IN")
        values: list[Literal] = []
        while not (not values and self.next.word == ")"):
            at = self.next.position
            value = self.operand("a value")
            if isinstance(value, _Name):
                raise self.error(
                    "a list after IN holds values only; text stands in single quotes", at
                )
            values.append(value)
            if len(values) > MAX_TERMS:
                raise self.error(f"the list holds more than {MAX_TERMS:,} values", at)
            if not self.accept(","):
                break
        self.expect(")", "or a comma after a value of the list")
        return self.build(left.place.position, In, left.name, tuple(values), place=left.place)

    # --- values and names ---

    def operand(self, wanted: str) -> Literal | _Name:
        token = self.next
        if token.word in ("+", "-"):
            return self.signed()
        if token.kind not in ("number", "string", "bytes", "quoted", "word") or (
            token.word and token.word not in _WORD_VALUES
        ):
            hint = "; a column of that name stands in double quotes" if token.kind == "word" else ""
            raise self.error(f"expected {wanted}, found {self.found()}{hint}")
        self.advance()
        if token.kind == "number":
            return self.number(token, "")
        if token.kind == "string":
            return _unquoted(token.text)
        if token.kind == "bytes":
            return self.hex_bytes(token)
        if token.word:
            return _WORD_VALUES[token.word]
        if token.text.upper() in ("DATE", "TIMESTAMP") and self.next.kind == "string":
            return self.moment(token)
        return self.name(token)

    def name(self, first: _Token) -> _Name:
        """A column, or with dots a field inside a struct: `device.os`."""
        parts = [self.name_part(first)]
        while self.accept("."):
            if self.next.kind not in ("word", "quoted"):
                raise self.error(
                    f"expected the name of a field after the dot, found {self.found()}"
                )
            parts.append(self.name_part(self.advance()))
        name = parts[0] if len(parts) == 1 else tuple(parts)
        return _Name(name, Place(self.text, first.position))

    def name_part(self, token: _Token) -> str:
        if token.kind == "word":
            return token.text
        name = _unquoted(token.text)
        if not name:
            raise self.error("a name cannot be empty", token.position)
        return name

    def signed(self) -> Literal:
        sign = self.advance().text
        if self.next.kind == "number":
            return self.number(self.advance(), sign)
        if self.next.word == "INFINITY":
            self.advance()
            return -inf if sign == "-" else inf
        raise self.error(f"expected a number after {sign}, found {self.found()}")

    def number(self, token: _Token, sign: str) -> Literal:
        text = token.text
        if len(text) > MAX_DIGITS:
            raise self.error(f"a number has more than {MAX_DIGITS} digits", token.position)
        if "e" in text.lower():
            value = float(sign + text)
            if isinf(value):
                raise self.error("this number is too large for a float", token.position)
            return value
        return Decimal(sign + text) if "." in text else int(sign + text)

    def hex_bytes(self, token: _Token) -> bytes:
        try:
            return bytes.fromhex(token.text[2:-1])
        except ValueError:
            raise self.error(
                "bytes are written as pairs of hex digits: X'00ff'", token.position
            ) from None

    def moment(self, kind: _Token) -> Literal:
        token = self.advance()
        text = _unquoted(token.text)
        try:
            return parse_date(text) if kind.text.upper() == "DATE" else _with_time(text)
        except (ValueError, InvalidInput) as error:
            raise self.error(str(error), token.position) from None


def _with_time(text: str) -> Literal:
    moment = parse_moment(text)
    return moment if isinstance(moment, datetime) else parse_moment(f"{text} 00:00")


def _unquoted(text: str) -> str:
    quote = text[0]
    return text[1:-1].replace(quote * 2, quote)


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            reason = _MISPLACED.get(character, f"{character!r} has no meaning in a filter")
            raise InvalidFilter(text, position, reason)
        kind = str(match.lastgroup)
        following = text[match.end() : match.end() + 1]
        if kind == "number" and (following.isalnum() or following in tuple("_.")):
            raise InvalidFilter(text, position, "this is not a number")
        if kind != "space":
            tokens.append(_Token(kind, match[0], position))
        position = match.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens
