"""Columns with identities that outlive their names, and the rules by which a schema changes.

A column's id and physical name are given once and never reused. Data files and stats know a
column by these alone, so a rename touches no file and a new column with an old name never sees
the old column's data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.tableformat import codec, types, values
from strandline.tableformat.errors import CorruptTable, InvalidInput, InvalidRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.tableformat.types import ColumnType

MAX_COLUMNS: Final = 10_000
MAX_NAME_BYTES: Final = 255
MAX_ID: Final = 2**31 - 1
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_NUMBERED_NAME: Final = re.compile(r"c[0-9]+_", re.IGNORECASE)
_PHYSICAL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
_EXACT: Final = Context(prec=2 * types.MAX_DECIMAL_PRECISION)
FIELD_ID_KEY: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    id: int
    """Given once; also the Parquet field id. Never reused."""

    name: str
    """What users write. It may change."""

    physical_name: str
    """The column's name inside data files. Never changes, never reused, unique ignoring case."""

    type: ColumnType
    nullable: bool = True
    comment: str | None = None
    default: values.Value | bool | None = None
    """What an append stores where the field is left out. None stores null."""


@dataclass(frozen=True)
class Schema:
    """The columns of a table as of one schema version."""

    id: int
    columns: tuple[Column, ...]

    @cached_property
    def by_id(self) -> dict[int, Column]:
        return {column.id: column for column in self.columns}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def requiring(self, ids: Iterable[int]) -> Schema:
        """The same columns, those of `ids` without nulls."""
        wanted = set(ids)
        return Schema(
            self.id,
            tuple(replace(c, nullable=False) if c.id in wanted else c for c in self.columns),
        )

    @cached_property
    def arrow(self) -> pa.Schema:
        """What scans return: names, types and nullability, with comments as field metadata."""
        return pa.schema([_arrow_field(column, column.name) for column in self.columns])

    @cached_property
    def json_text(self) -> bytes:
        """The schema as it stands in the manifest: every commit writes it again."""
        return codec.to_text(to_json(self), "the schema")

    @cached_property
    def physical_arrow(self) -> pa.Schema:
        """What data files hold: physical names, with the column id as Parquet field id."""
        return pa.schema([physical_field(column) for column in self.columns])

    def column(self, name: str) -> Column:
        try:
            return self.by_name[name]
        except (KeyError, TypeError):
            raise InvalidInput(
                f"there is no column {name!r}; the columns are {_names(self.by_name)}"
            ) from None


def physical_field(column: Column) -> pa.Field:
    """The column as a field of a data file."""
    return pa.field(
        column.physical_name,
        types.to_arrow(column.type),
        nullable=column.nullable,
        metadata={FIELD_ID_KEY: str(column.id).encode()},
    )


def _arrow_field(column: Column, name: str) -> pa.Field:
    metadata = {b"comment": column.comment.encode()} if column.comment else None
    return pa.field(name, types.to_arrow(column.type), nullable=column.nullable, metadata=metadata)


def _names(names: Iterable[str], most: int = 20) -> str:
    shown = sorted(names)
    more = f", and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


# --- making a schema --------------------------------------------------------------------------


def check_name(name: object) -> str:
    """A column name users may give: 1 to 255 bytes of text that does not start with `_`."""
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a column name must be a non-empty string, not {name!r}")
    if name.startswith("_"):
        raise InvalidInput(f"column name {name!r}: names that start with '_' are reserved")
    if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise InvalidInput(f"column name {name[:40]!r} is longer than 255 bytes or holds NUL")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"column name {name!r} is not valid Unicode") from None
    return name


def _check_comment(comment: object, name: str) -> str | None:
    try:
        text = comment.decode() if isinstance(comment, bytes) else comment
        if text is None or (isinstance(text, str) and text.encode() is not None):
            return text
    except UnicodeError:
        pass
    raise InvalidInput(f"column {name!r}: the comment must be text in valid Unicode")


def schema_from(source: object) -> Schema:
    """The first schema of a table, from an Arrow schema or a mapping of names to types."""
    columns = _add_columns((), 1, fields_from(source))
    plain = [
        replace(column, physical_name=column.name)
        if _PLAIN_NAME.fullmatch(column.name) and not _NUMBERED_NAME.match(column.name)
        else column
        for column in columns
    ]
    return Schema(1, tuple(plain))


def fields_from(source: object) -> list[pa.Field]:
    """Arrow fields from an Arrow schema, a mapping name → type, or a list of Arrow fields."""
    if isinstance(source, pa.Schema):
        return list(source)
    if hasattr(source, "__arrow_c_schema__"):
        try:
            return list(pa.schema(source))
        except (pa.ArrowException, TypeError) as error:
            raise InvalidInput(
                f"{type(source).__name__} does not describe columns: {error}"
            ) from None
    if isinstance(source, dict):
        return [_field_of(name, kind) for name, kind in source.items()]
    if isinstance(source, (list, tuple)) and all(isinstance(f, pa.Field) for f in source):
        return list(source)
    raise InvalidInput(
        "a schema is a pyarrow.Schema, a dict of column names to types, or a list of "
        f"pyarrow fields, not {type(source).__name__}"
    )


def _field_of(name: object, kind: object) -> pa.Field:
    if isinstance(kind, pa.DataType):
        return pa.field(check_name(name), kind)
    if isinstance(kind, str):
        try:
            return pa.field(check_name(name), types.to_arrow(types.from_json(kind)))
        except CorruptTable:
            pass
    raise InvalidInput(
        f"column {name!r}: {kind!r} is not a type; give a pyarrow type, or a name such as "
        "'int64', 'string', 'timestamptz' or 'decimal(10,2)'"
    )


def _add_columns(
    existing: Sequence[Column], next_id: int, fields: Iterable[pa.Field]
) -> list[Column]:
    """Existing columns and new ones behind them.

    A physical name carries the column's id, so it can never meet one that was used before, and
    nobody has to remember dropped columns. Only the columns of a table's first schema keep their
    own names, unless these look like a numbered one.
    """
    columns = list(existing)
    taken = {column.name.lower() for column in columns}
    for column_id, field in enumerate(fields, next_id):
        name = check_name(field.name)
        if name.lower() in taken:
            raise InvalidInput(
                f"column {name!r} is named twice (names must differ by more than case)"
            )
        taken.add(name.lower())
        metadata = field.metadata or {}
        columns.append(
            Column(
                id=column_id,
                name=name,
                physical_name=f"c{column_id}_{re.sub('[^A-Za-z0-9]', '', name)[:40]}",
                type=types.from_arrow(field.type, f"column {name!r}"),
                nullable=field.nullable,
                comment=_check_comment(metadata.get(b"comment"), name),
            )
        )
    if not columns:
        raise InvalidInput("a table needs at least one column")
    if len(columns) > MAX_COLUMNS:
        raise InvalidInput(f"a table may have {MAX_COLUMNS} columns, not {len(columns)}")
    return columns


# --- changing a schema ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """One change of a schema: what `table.evolve(...)` was asked to do."""

    add: tuple[pa.Field, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    widen: tuple[tuple[str, ColumnType], ...] = ()
    reorder: tuple[str, ...] = ()
    comments: tuple[tuple[str, str | None], ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()

    def is_empty(self) -> bool:
        return self == Evolution()


def evolve(
    schema: Schema, change: Evolution, *, next_column_id: int, protected_ids: Mapping[int, str]
) -> Schema:
    """The next schema. Order: widen, rename, drop, add, comments, defaults, reorder.

    Widen, rename and drop go by the names before the change, the rest by those after it.
    `protected_ids` are columns the table's configuration stands on, with the reason.
    """
    columns = {column.id: column for column in schema.columns}
    changed = {name for name, _ in (*change.widen, *change.rename)}
    for name in changed.intersection(change.drop):
        raise InvalidInput(f"column {name!r} is to be dropped and kept at once; choose one")
    for name, wider in change.widen:
        column = schema.column(name)
        columns[column.id] = _widened(column, wider, protected_ids)
    for old, new in change.rename:
        column = schema.column(old)
        columns[column.id] = replace(columns[column.id], name=check_name(new))
    for name in change.drop:
        column = schema.column(name)
        if column.id in protected_ids:
            raise InvalidInput(f"column {name!r} cannot be dropped: {protected_ids[column.id]}")
        if columns.pop(column.id, None) is None:
            raise InvalidInput(f"column {name!r} is dropped twice")
    _check_addable(tuple(columns.values()), change.add)
    kept = _add_columns(tuple(columns.values()), next_column_id, change.add)
    evolved = Schema(schema.id + 1, tuple(kept))
    for name, comment in change.comments:
        text = _check_comment(comment, name)
        evolved = _with(evolved, replace(evolved.column(name), comment=text))
    for name, default in change.defaults:
        evolved = _with(evolved, _with_default(evolved.column(name), default))
    return _reordered(evolved, change.reorder) if change.reorder else evolved


def _check_addable(kept: Sequence[Column], added: Sequence[pa.Field]) -> None:
    seen: set[str] = set()
    for column in kept:
        if column.name.lower() in seen:
            raise InvalidInput(f"column {column.name!r} would exist twice (ignoring case)")
        seen.add(column.name.lower())
    for field in added:
        if not field.nullable:
            raise InvalidInput(
                f"column {field.name!r} is added to a table that may hold rows, which have no "
                "value for it: it must be nullable"
            )


def _widened(column: Column, wider: ColumnType, protected_ids: Mapping[int, str]) -> Column:
    if column.id in protected_ids:
        raise InvalidInput(f"column {column.name!r} cannot change type: {protected_ids[column.id]}")
    if not types.can_widen(column.type, wider):
        raise InvalidInput(
            f"column {column.name!r} cannot change from {column.type} to {wider}: only a type that "
            "holds every old value unchanged is allowed (for example int32 to int64)"
        )
    return replace(column, type=wider)


def _with(schema: Schema, changed: Column) -> Schema:
    return Schema(schema.id, tuple(changed if c.id == changed.id else c for c in schema.columns))


def _with_default(column: Column, default: object) -> Column:
    if default is None:
        return replace(column, default=None)
    if column.type.domain is None:
        raise InvalidInput(f"column {column.name!r}: a {column.type} column cannot have a default")
    return replace(column, default=value_of(column, default))


def value_of(column: Column, given: object) -> values.Value:
    """A Python value in the column's stats domain, exactly, or an error that names both."""
    # It brings pyarrow's kernels along, which opening a table does without.
    from strandline.tableformat.pyvalues import column_from_python  # noqa: PLC0415

    try:
        array = column_from_python([given], column.type, column.name)
    except InvalidRow as error:
        raise InvalidInput(
            f"column {column.name!r} has type {column.type}: {error.reason}"
        ) from None
    value: values.Value = stat_values(column.type, array.chunk(0))[0]
    return value


def stat_values(kind: ColumnType, array: pa.Array) -> list[Any]:
    """An Arrow array of this type as Python values in its stats domain."""
    if kind.name in ("timestamp", "timestamptz"):
        array = array.cast(pa.int64())
    elif kind.name == "date":
        array = array.cast(pa.int32())
    elif kind.name == "decimal":
        wide = array.cast(pa.decimal128(38, kind.scale))
        return [None if v is None else _unscaled(v, kind.scale) for v in wide.to_pylist()]
    out = array.to_pylist()
    return [int(v) if isinstance(v, bool) else v for v in out] if kind.name == "bool" else out


def from_stat_values(kind: ColumnType, given: Sequence[values.Value | bool | None]) -> pa.Array:
    """Python values of a type's stats domain as an Arrow array of that type."""
    if kind.name in ("timestamp", "timestamptz"):
        return pa.array(given, pa.int64()).cast(types.to_arrow(kind))
    if kind.name == "date":
        return pa.array(given, pa.int32()).cast(pa.date32())
    plain: list[Any] = list(given)
    if kind.name == "decimal":
        plain = [None if v is None else Decimal(v).scaleb(-kind.scale, _EXACT) for v in plain]
    elif kind.name == "bool":
        plain = [None if v is None else bool(v) for v in plain]
    return pa.array(plain, types.to_arrow(kind))


def _unscaled(value: Decimal, scale: int) -> int:
    # scaleb rounds to the context's precision, and the default one holds fewer than 38 digits.
    return int(value.scaleb(scale, context=_EXACT))


def _reordered(schema: Schema, order: Sequence[str]) -> Schema:
    ordered = [schema.column(name) for name in order]
    if len(set(order)) != len(ordered):
        raise InvalidInput("reorder names a column twice")
    named = {column.id for column in ordered}
    rest = [column for column in schema.columns if column.id not in named]
    return Schema(schema.id, (*ordered, *rest))


# --- metadata ---------------------------------------------------------------------------------


def to_json(schema: Schema) -> dict[str, Any]:
    """The schema as it stands in the manifest."""
    return {"id": schema.id, "columns": [_column_json(column) for column in schema.columns]}


def _column_json(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {
        "id": column.id,
        "name": column.name,
        "physical_name": column.physical_name,
        "type": types.to_json(column.type),
        "nullable": column.nullable,
    }
    if column.comment is not None:
        out["comment"] = column.comment
    if column.default is not None:
        out["default"] = values.encode(column.type, column.default)
    return out


def from_json(value: Any) -> Schema:
    """Decode and check a schema from the manifest."""
    try:
        columns = tuple(_column_from_json(column) for column in value["columns"])
        schema = Schema(_check_id(value["id"], "schema"), columns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptTable(f"a schema in the manifest is malformed: {error!r}") from None
    if not 1 <= len(schema.columns) <= MAX_COLUMNS:
        raise CorruptTable(f"schema {schema.id} has {len(schema.columns)} columns")
    for what, seen in (
        ("ids", [c.id for c in schema.columns]),
        ("names", [c.name.lower() for c in schema.columns]),
        ("physical names", [c.physical_name.lower() for c in schema.columns]),
    ):
        if len(set(seen)) != len(seen):
            raise CorruptTable(f"schema {schema.id} repeats column {what}")
    return schema


def _check_id(value: object, what: str) -> int:
    if type(value) is not int or not 1 <= value <= MAX_ID:
        raise CorruptTable(f"{what} id {str(value)[:40]!r} is not a positive 32-bit integer")
    return value


def _column_from_json(value: dict[str, Any]) -> Column:
    kind = types.from_json(value["type"])
    name, physical = value["name"], value["physical_name"]
    try:
        check_name(name)
    except InvalidInput as error:
        raise CorruptTable(f"a schema in the manifest: {error}") from None
    if not isinstance(physical, str) or not _PHYSICAL_NAME.fullmatch(physical):
        raise CorruptTable(f"physical column name {physical!r} is not allowed by SPEC.md")
    if type(value["nullable"]) is not bool:
        raise CorruptTable(f"column {name!r}: nullable must be true or false")
    comment = value.get("comment")
    if comment is not None and not isinstance(comment, str):
        raise CorruptTable(f"column {name!r}: the comment must be text")
    default = value.get("default")
    return Column(
        id=_check_id(value["id"], "column"),
        name=name,
        physical_name=physical,
        type=kind,
        nullable=value["nullable"],
        comment=comment,
        default=None if default is None else values.decode(kind, default, f"default of {name!r}"),
    )
