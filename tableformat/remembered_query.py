"""What a remembered query asks, as a record that checks itself and stands in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.arguments import check_names
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.fields import Fields
from strandline.tableformat.windows import parse_duration

if TYPE_CHECKING:
    from strandline.tableformat.schema import Schema

FUNCTIONS: Final = ("count", "sum", "min", "max", "avg", "approx_distinct")
BUCKET: Final = "bucket"
_CALL: Final = re.compile(r"\s*([a-z_]+)\s*\(\s*(\*|[^()*]+?)\s*\)\s*")
_WORDS: Final = {"filter", "columns", "bucket", "aggregates", "retention"}
_INTEGERS: Final = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])
_FLOATS: Final = frozenset({"float32", "float64"})
_NUMBERS: Final = _INTEGERS | _FLOATS | {"decimal"}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One number of a group; `column` is None for `count(*)`."""

    name: str
    function: str
    column: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedQuery:
    """Rows that fit a filter, as they are, or counted up by columns and time buckets."""

    filter: str | None
    columns: tuple[str, ...]
    bucket_ms: int | None
    aggregates: tuple[Aggregate, ...]
    max_rows: int | None
    max_age_ms: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "filter": self.filter,
            "columns": list(self.columns),
            "bucket_ms": None if self.bucket_ms is None else str(self.bucket_ms),
            "aggregates": [
                {"name": a.name, "function": a.function, "column": a.column}
                for a in self.aggregates
            ],
            "max_rows": None if self.max_rows is None else str(self.max_rows),
            "max_age_ms": None if self.max_age_ms is None else str(self.max_age_ms),
        }

    @property
    def reads(self) -> list[str]:
        """The columns that the answer is made of."""
        named = [a.column for a in self.aggregates if a.column is not None]
        return list(dict.fromkeys([*self.columns, *named]))


def query_from_json(value: Any, where: str) -> RememberedQuery:
    """The query of a stored document."""
    fields = Fields(value, f"{where}.query")
    asked = fields.optional("filter")
    columns = fields.list("columns")
    if not all(isinstance(text, str) for text in columns) or not isinstance(asked, str | None):
        raise CorruptTable(f"{where}.query: filter and columns must be text")
    aggregates = [Fields(a, f"{where}.query.aggregates") for a in fields.list("aggregates")]
    return RememberedQuery(
        filter=asked,
        columns=tuple(columns),
        aggregates=tuple(_aggregate_from(a) for a in aggregates),
        bucket_ms=_count_from(fields, "bucket_ms"),
        max_rows=_count_from(fields, "max_rows"),
        max_age_ms=_count_from(fields, "max_age_ms"),
    )


def _count_from(fields: Fields, name: str) -> int | None:
    return None if fields.optional(name) is None else fields.int64(name, least=1)


def _aggregate_from(fields: Fields) -> Aggregate:
    function = fields.choice("function", FUNCTIONS)
    column = None if fields.optional("column") is None else fields.text("column")
    if column is None and function != "count":
        raise CorruptTable(f"{fields.where}: {function} needs a column")
    return Aggregate(fields.text("name"), function, column)


def query_from(given: object, schema: Schema) -> RememberedQuery:
    """A query from what a user writes, or an error that says what is wrong with it."""
    if not isinstance(given, Mapping) or not set(given) <= _WORDS:
        raise InvalidInput(f"a query is a dict with some of {', '.join(sorted(_WORDS))}")
    text = given.get("filter")
    if text is not None and not isinstance(text, str):
        raise InvalidInput("the filter of a remembered query is text, because it is stored")
    if text is not None:
        _check_storable("the filter", text)
    aggregates = _aggregates(given.get("aggregates"))
    bucket = given.get("bucket")
    named = given.get("columns")
    if named is None:
        named = () if aggregates else schema.arrow.names
    columns = check_names("columns", named)
    retention = given.get("retention") or {}
    if not isinstance(retention, Mapping) or not set(retention) <= {"rows", "age"}:
        raise InvalidInput("retention is a dict with 'rows', 'age' or both")
    rows, age = retention.get("rows"), retention.get("age")
    if rows is not None and (type(rows) is not int or rows < 1):
        raise InvalidInput(f"retention of rows is an integer of 1 or more, not {rows!r}")
    if retention and aggregates and bucket is None:
        raise InvalidInput("retention of groups needs a bucket: it drops the oldest ones")
    if bucket is not None and not aggregates:
        raise InvalidInput("a bucket needs aggregates")
    query = RememberedQuery(
        filter=text,
        columns=tuple(dict.fromkeys(columns)),
        bucket_ms=None if bucket is None else parse_duration(bucket, "bucket"),
        aggregates=aggregates,
        max_rows=rows,
        max_age_ms=None if age is None else parse_duration(age, "retention age"),
    )
    check_columns(query, schema)
    return query


def _aggregates(given: object) -> tuple[Aggregate, ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidInput("aggregates is a dict such as {'n': 'count(*)', 'total': 'sum(x)'}")
    found = []
    for name, call in given.items():
        match = _CALL.fullmatch(call) if isinstance(call, str) else None
        if match is None or match[1] not in FUNCTIONS or not isinstance(name, str) or not name:
            raise InvalidInput(
                f"aggregate {name!r} is {call!r}; it must be one of {', '.join(FUNCTIONS)} of a "
                "column, such as 'sum(amount)', or 'count(*)'"
            )
        _check_storable("the name of an aggregate", name)
        column = None if match[2] == "*" else match[2]
        if column is None and match[1] != "count":
            raise InvalidInput(f"aggregate {name!r}: only count takes *")
        found.append(Aggregate(name, match[1], column))
    return tuple(found)


def _check_storable(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{what} must be valid Unicode text, not {ascii(text)[:120]}. Nothing was changed."
        ) from None


def check_columns(query: RememberedQuery, schema: Schema) -> None:
    """Every column is there and of a type that the query can use."""
    for name in query.columns:
        kind = schema.column(name).type
        if query.aggregates and (kind.is_nested or kind.name in _FLOATS):
            raise InvalidInput(f"column {name!r} of type {kind} cannot be grouped by")
    for aggregate in query.aggregates:
        if aggregate.column is None:
            continue
        kind = schema.column(aggregate.column).type
        if aggregate.function in ("sum", "avg") and kind.name not in _NUMBERS:
            raise InvalidInput(f"{aggregate.name!r}: a {kind} cannot be summed up")
        if kind.is_nested:
            raise InvalidInput(f"{aggregate.name!r}: a {kind} has no order and no hash")
    names = [
        *query.columns,
        *([BUCKET] if query.bucket_ms else []),
        *(a.name for a in query.aggregates),
    ]
    if len(set(names)) != len(names):
        raise InvalidInput(f"two columns of the answer have the same name: {', '.join(names)}")
