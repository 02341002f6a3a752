"""The closed set of column types, and their exact Arrow counterparts.

A type is written in metadata as a short name (`"int64"`, `"decimal(10,2)"`) or, when nested, as a
JSON object. The set is closed on purpose: every type in it reads the same in Arrow, Spark and
DuckDB. What is not in it is either converted without loss when a table is created (dictionary,
large and view types, date64, coarser timestamps) or refused by name.
"""

from __future__ import annotations

import re
import reprlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.tableformat.errors import CorruptTable, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DECIMAL_PRECISION: Final = 38
MAX_NESTING: Final = 32
"""Deeper types are refused, so that hostile metadata cannot exhaust the stack."""


class Domain(Enum):
    """How the values of a type are compared: the Python type that its stats use."""

    INT = "int"
    """bool as 0 and 1, integers, date as days, timestamps as microseconds, decimals unscaled."""
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Field:
    """A named member of a struct."""

    name: str
    type: ColumnType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type of the closed set. `name` is the kind; the rest only where the kind needs it."""

    name: str
    precision: int = 0
    scale: int = 0
    children: tuple[Field, ...] = ()
    """list: one field `element`; map: `key` and `value`; struct: its fields."""

    @property
    def is_nested(self) -> bool:
        return self.name in ("list", "struct", "map")

    @property
    def domain(self) -> Domain | None:
        """How stats and comparisons treat it; None for nested types, which have neither."""
        return _DOMAINS.get(self.name)

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.name == "list":
            return f"list<{self.children[0].type}>"
        if self.name == "map":
            return f"map<{self.children[0].type},{self.children[1].type}>"
        if self.name == "struct":
            return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.children)}>"
        return self.name


_ARROW: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_NAME_OF_ARROW: Final = {arrow: name for name, arrow in _ARROW.items()}
_INT_NAMES: Final = frozenset(
    name for name in _ARROW if name not in ("float32", "float64", "string", "binary")
)
_DOMAINS: Final[dict[str, Domain]] = {
    **dict.fromkeys(_INT_NAMES | {"decimal"}, Domain.INT),
    "float32": Domain.FLOAT,
    "float64": Domain.FLOAT,
    "string": Domain.TEXT,
    "binary": Domain.BYTES,
}
_DECIMAL: Final = re.compile(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)")
INTEGER_RANGES: Final[dict[str, tuple[int, int]]] = {
    **{f"int{bits}": (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, (1 << bits) - 1) for bits in (8, 16, 32)},
}


def decimal(precision: int, scale: int) -> ColumnType:
    """A decimal of up to 38 digits, `scale` of them behind the point."""
    if not (1 <= precision <= MAX_DECIMAL_PRECISION and 0 <= scale <= precision):
        raise InvalidInput(
            f"decimal({precision},{scale}) is not supported: precision is 1 to "
            f"{MAX_DECIMAL_PRECISION} and scale is 0 to precision"
        )
    return ColumnType("decimal", precision=precision, scale=scale)


# --- metadata ---------------------------------------------------------------------------------


def to_json(kind: ColumnType) -> Any:
    """The type as it stands in metadata (SPEC.md, column types)."""
    if kind.name == "list":
        return {"list": _field_json(kind.children[0])}
    if kind.name == "map":
        return {"map": [to_json(kind.children[0].type), _field_json(kind.children[1])]}
    if kind.name == "struct":
        return {"struct": [{"name": f.name, **_field_json(f)} for f in kind.children]}
    return str(kind)


def _field_json(field: Field) -> dict[str, Any]:
    return {"type": to_json(field.type), "nullable": field.nullable}


def from_json(value: object, depth: int = 0) -> ColumnType:
    """Decode a type from metadata; anything outside the closed set is a clear error."""
    if depth > MAX_NESTING:
        raise CorruptTable(f"a column type is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, str):
        return _scalar_from_name(value)
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind == "list":
            return ColumnType("list", children=(_field_from_json("element", inner, depth),))
        if kind == "map" and isinstance(inner, list) and len(inner) == 2:  # noqa: PLR2004
            key = Field("key", from_json(inner[0], depth + 1), nullable=False)
            if _holds_map(key.type):
                raise CorruptTable(f"{key.type} cannot be the key of a map")
            return ColumnType("map", children=(key, _field_from_json("value", inner[1], depth)))
        if kind == "struct" and isinstance(inner, list) and inner:
            return ColumnType("struct", children=_struct_fields(inner, depth))
    raise CorruptTable(f"{_brief(value)} is not a column type of this format")


def _scalar_from_name(name: str) -> ColumnType:
    if name in _ARROW:
        return ColumnType(name)
    match = _DECIMAL.fullmatch(name)
    if match:
        try:
            return decimal(int(match[1]), int(match[2]))
        except InvalidInput as error:
            raise CorruptTable(str(error)) from None
    raise CorruptTable(f"{_brief(name)} is not a column type of this format")


def _field_from_json(name: str, value: object, depth: int) -> Field:
    if not isinstance(value, dict) or not isinstance(value.get("nullable", True), bool):
        raise CorruptTable(f"{_brief(value)} is not a type with a nullable flag")
    return Field(name, from_json(value.get("type"), depth + 1), value.get("nullable", True))


def _struct_fields(members: list[Any], depth: int) -> tuple[Field, ...]:
    fields = []
    for member in members:
        name = member.get("name") if isinstance(member, dict) else None
        if not isinstance(name, str) or not name:
            raise CorruptTable(f"{_brief(member)} is not a struct field with a name")
        fields.append(_field_from_json(name, member, depth))
    if _names_clash(fields):
        raise CorruptTable("a struct type names a field twice (ignoring case)")
    return tuple(fields)


def _names_clash(fields: Sequence[Field]) -> bool:
    """Whether two fields differ by case alone: Spark and DuckDB could not tell them apart."""
    return len({field.name.lower() for field in fields}) != len(fields)


def _holds_map(kind: ColumnType) -> bool:
    """Whether there is a map inside: Spark refuses that in the keys of a map."""
    return kind.name == "map" or any(_holds_map(child.type) for child in kind.children)


def _brief(value: object) -> str:
    text = reprlib.repr(value)  # a plain repr of hostile nesting would exhaust the stack
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - one line of an error


# --- Arrow ------------------------------------------------------------------------------------


def to_arrow(kind: ColumnType) -> pa.DataType:
    """The one Arrow type that scans give and segments hold for this type."""
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "list":
        return pa.list_(_arrow_field(kind.children[0]))
    if kind.name == "map":
        return pa.map_(to_arrow(kind.children[0].type), _arrow_field(kind.children[1]))
    if kind.name == "struct":
        return pa.struct([_arrow_field(f) for f in kind.children])
    return _ARROW[kind.name]


def _arrow_field(field: Field) -> pa.Field:
    return pa.field(field.name, to_arrow(field.type), nullable=field.nullable)


def from_arrow(arrow: pa.DataType, where: str = "column", depth: int = 0) -> ColumnType:
    """The type a column of this Arrow type gets, converting only where nothing can be lost."""
    if depth > MAX_NESTING:
        raise InvalidInput(f"{where}: the type is nested deeper than {MAX_NESTING} levels")
    # Extension types need not be hashable; they are refused below, like others we do not know.
    if not isinstance(arrow, pa.BaseExtensionType) and arrow in _NAME_OF_ARROW:
        return ColumnType(_NAME_OF_ARROW[arrow])
    if pa.types.is_dictionary(arrow):
        return from_arrow(arrow.value_type, where, depth + 1)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return ColumnType("string")
    if (
        pa.types.is_large_binary(arrow)
        or pa.types.is_binary_view(arrow)
        or pa.types.is_fixed_size_binary(arrow)
    ):
        return ColumnType("binary")
    if pa.types.is_date64(arrow):
        return ColumnType("date")
    if pa.types.is_timestamp(arrow) and arrow.unit != "ns":
        return ColumnType("timestamptz" if arrow.tz else "timestamp")
    if pa.types.is_decimal(arrow) and arrow.precision <= MAX_DECIMAL_PRECISION:
        if arrow.scale < 0:
            raise InvalidInput(f"{where}: {arrow} has a negative scale, which is not supported")
        return decimal(arrow.precision, arrow.scale)
    return _nested_from_arrow(arrow, where, depth)


def _nested_from_arrow(arrow: pa.DataType, where: str, depth: int) -> ColumnType:
    def field(name: str, member: pa.Field) -> Field:
        return Field(name, from_arrow(member.type, f"{where}.{name}", depth + 1), member.nullable)

    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
        or pa.types.is_list_view(arrow)
        or pa.types.is_large_list_view(arrow)
    ):
        return ColumnType("list", children=(field("element", arrow.value_field),))
    if pa.types.is_map(arrow):
        key = Field("key", from_arrow(arrow.key_type, f"{where}.key", depth + 1), nullable=False)
        if _holds_map(key.type):
            raise InvalidInput(f"{where}: {key.type} cannot be the key of a map")
        return ColumnType("map", children=(key, field("value", arrow.item_field)))
    if pa.types.is_struct(arrow) and arrow.num_fields:
        members = tuple(field(arrow.field(i).name, arrow.field(i)) for i in range(arrow.num_fields))
        if any(not m.name for m in members) or _names_clash(members):
            raise InvalidInput(
                f"{where}: struct field names must not be empty, and differ by more than case"
            )
        return ColumnType("struct", children=members)
    raise InvalidInput(
        f"{where}: Arrow type {arrow} is not supported. Supported: bool, int8 to int64, uint8 to "
        "uint32, float32, float64, decimal up to 38 digits, date, timestamp in s, ms or us, "
        "string, binary, list, struct, map."
    )


# --- widening ---------------------------------------------------------------------------------

_WIDER: Final[dict[str, frozenset[str]]] = {
    "int8": frozenset({"int16", "int32", "int64"}),
    "int16": frozenset({"int32", "int64"}),
    "int32": frozenset({"int64"}),
    "uint8": frozenset({"uint16", "uint32", "int16", "int32", "int64"}),
    "uint16": frozenset({"uint32", "int32", "int64"}),
    "uint32": frozenset({"int64"}),
    "float32": frozenset({"float64"}),
}


def can_widen(old: ColumnType, new: ColumnType) -> bool:
    """Whether every value of `old` is a value of `new`, with the same meaning and order.

    A decimal may gain digits in front of the point only: another scale would change the meaning
    of the unscaled numbers in stats that are already written.
    """
    if old.name == "decimal" == new.name:
        return old.scale == new.scale and old.precision < new.precision
    return new.name in _WIDER.get(old.name, frozenset())
