"""The closed set of types: metadata, Arrow, widening, and what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import types
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.types import ColumnType, Domain, Field

SCALARS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
    *("float32", "float64", "date", "timestamp", "timestamptz", "string", "binary"),
)
KEY = Field("key", ColumnType("string"), nullable=False)


def list_of(kind: ColumnType, *, nullable: bool = True) -> ColumnType:
    """A list of this type."""
    return ColumnType("list", children=(Field("element", kind, nullable),))


def map_of(kind: ColumnType, *, nullable: bool = True) -> ColumnType:
    """A map from text to this type."""
    return ColumnType("map", children=(KEY, Field("value", kind, nullable)))


def struct_of(*members: tuple[str, ColumnType, bool]) -> ColumnType:
    """A struct of these members."""
    return ColumnType("struct", children=tuple(Field(*member) for member in members))


_members = st.lists(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=5),
    min_size=1,
    max_size=3,
    unique_by=str.lower,
)
scalars = st.sampled_from([ColumnType(name) for name in SCALARS]) | st.integers(1, 38).flatmap(
    lambda precision: st.builds(types.decimal, st.just(precision), st.integers(0, precision))
)
kinds = st.recursive(
    scalars,
    lambda inner: (
        st.builds(lambda kind, nullable: list_of(kind, nullable=nullable), inner, st.booleans())
        | st.builds(lambda kind, nullable: map_of(kind, nullable=nullable), inner, st.booleans())
        | _members.flatmap(
            lambda names: st.tuples(
                *(st.tuples(st.just(name), inner, st.booleans()) for name in names)
            ).map(lambda members: struct_of(*members))
        )
    ),
    max_leaves=5,
)


# --- round trips ------------------------------------------------------------------------------


@settings(deadline=None)
@given(kinds)
def test_a_type_reads_back_from_metadata_and_from_arrow(kind: ColumnType) -> None:
    """[M3] [C12] Names, digits and nullability survive JSON bytes and Arrow, at any depth."""
    assert types.from_json(orjson.loads(orjson.dumps(types.to_json(kind)))) == kind
    assert types.from_arrow(types.to_arrow(kind)) == kind


@pytest.mark.parametrize("name", SCALARS)
def test_each_plain_type_is_its_name(name: str) -> None:
    """Metadata says `"int64"` and nothing more."""
    assert types.to_json(types.from_json(name)) == name == str(ColumnType(name))


def test_nested_types_read_well_in_messages() -> None:
    """A message shows a type as people would write it."""
    kind = struct_of(
        ("a", list_of(ColumnType("int8")), True), ("m", map_of(types.decimal(5, 2)), True)
    )
    assert str(kind) == "struct<a:list<int8>,m:map<string,decimal(5,2)>>"


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.large_string()), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
        (pa.binary(16), "binary"),
        (pa.date64(), "date"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("ms", tz="Europe/Berlin"), "timestamptz"),
        (pa.decimal32(5, 2), "decimal(5,2)"),
        (pa.decimal256(38, 38), "decimal(38,38)"),
        (pa.large_list(pa.int8()), "list<int8>"),
        (pa.list_(pa.int8(), 3), "list<int8>"),
        (pa.list_view(pa.int8()), "list<int8>"),
        (pa.large_list_view(pa.large_string()), "list<string>"),
        (pa.map_(pa.large_string(), pa.date64(), keys_sorted=True), "map<string,date>"),
        (pa.struct([("a", pa.string_view())]), "struct<a:string>"),
    ],
)
def test_other_layouts_of_the_same_values_get_the_plain_type(arrow: pa.DataType, name: str) -> None:
    """[C12] A table is created from any Arrow type whose values fit one of ours exactly."""
    assert str(types.from_arrow(arrow)) == name


# --- what is refused --------------------------------------------------------------------------


class Unhashable(pa.ExtensionType):
    """Someone's type; like any Python class with `__eq__` alone, it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unhashable.types")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def _deep(levels: int) -> pa.DataType:
    kind = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    "arrow",
    [
        pa.null(),
        pa.uint64(),
        pa.float16(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("us"),
        pa.timestamp("ns"),
        pa.timestamp("ns", tz="UTC"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.decimal128(2, 5),
        pa.struct([]),
        pa.struct([("", pa.int8())]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.struct([("a", pa.int8()), ("A", pa.int8())]),
        pa.map_(pa.map_(pa.string(), pa.string()), pa.string()),
        pa.map_(pa.list_(pa.map_(pa.string(), pa.string())), pa.string()),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.list_(pa.timestamp("ns")),
        pa.dictionary(pa.int8(), pa.timestamp("ns")),
        pa.json_(),
        Unhashable(),
        _deep(types.MAX_NESTING + 1),
    ],
    ids=str,
)
def test_types_outside_the_set_are_refused_by_name(arrow: pa.DataType) -> None:
    """Spark, DuckDB and Arrow must read every column alike; what they do not is refused."""
    with pytest.raises(InvalidInput, match=r"^(column 'x'|decimal)"):
        types.from_arrow(arrow, "column 'x'")


def test_the_deepest_allowed_type_is_accepted() -> None:
    """The limit guards the stack, not real data."""
    deepest = types.from_arrow(_deep(types.MAX_NESTING))

    assert types.from_json(types.to_json(deepest)) == deepest


def _deep_json(levels: int) -> Any:
    kind: Any = "int8"
    for _ in range(levels):
        kind = {"list": {"type": kind, "nullable": True}}
    return kind


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "",
        "INT64",
        "int64 ",
        "uint64",
        "list",
        "decimal",
        "decimal(0,0)",
        "decimal(39,0)",
        "decimal(5,6)",
        "decimal(05,2)",
        "decimal(5, 2)",
        "decimal(5,-2)",
        "decimal(\u0665,2)",
        "decimal(5,2)\n",
        [],
        {},
        {"list": "int8"},
        {"list": {"nullable": True}},
        {"list": {"type": "int8", "nullable": "yes"}},
        {"list": {"type": "int8", "nullable": None}},
        {"map": ["string"]},
        {"map": ["string", {"type": "int8"}, 1]},
        {"map": [{"map": ["string", {"type": "int8"}]}, {"type": "int8"}]},
        {"struct": []},
        {"struct": {}},
        {"struct": ["a"]},
        {"struct": [{"name": "", "type": "int8"}]},
        {"struct": [{"name": 5, "type": "int8"}]},
        {"struct": [{"name": "a", "type": "int8"}, {"name": "A", "type": "int8"}]},
        {"list": {"type": "int8"}, "map": []},
        {"tuple": "int8"},
        "x" * 100_000,
        _deep_json(types.MAX_NESTING + 1),
        _deep_json(5000),
        {"list": {"type": "int8", "nullable": _deep_json(5000)}},
        {"tuple": _deep_json(5000)},
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_metadata_outside_the_set_is_corrupt(value: Any) -> None:
    """[X4] Hostile metadata ends in a short clear error, not in a crash."""
    with pytest.raises(CorruptTable) as caught:
        types.from_json(value)

    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_decimals_have_1_to_38_digits(precision: int, scale: int) -> None:
    """More digits would not fit Spark's decimal."""
    with pytest.raises(InvalidInput, match="precision is 1 to 38"):
        types.decimal(precision, scale)


# --- comparing and widening -------------------------------------------------------------------


def test_every_plain_type_has_a_domain_and_nested_types_have_none() -> None:
    """Stats exist for plain columns only."""
    expected = {"float32": Domain.FLOAT, "float64": Domain.FLOAT} | {
        "string": Domain.TEXT,
        "binary": Domain.BYTES,
    }
    for name in SCALARS:
        assert ColumnType(name).domain is expected.get(name, Domain.INT)
    assert types.decimal(5, 2).domain is Domain.INT
    for kind in (list_of(KEY.type), map_of(KEY.type), struct_of(("a", KEY.type, True))):
        assert kind.domain is None
        assert kind.is_nested


def test_widening_is_allowed_exactly_where_no_value_can_change() -> None:
    """[C3] An integer may become any integer that holds its range, a float only a wider float."""
    ranges = types.INTEGER_RANGES
    for old in SCALARS:
        for new in SCALARS:
            if old in ranges and new in ranges:
                wider = ranges[new][0] <= ranges[old][0] and ranges[new][1] >= ranges[old][1]
                allowed = wider and old != new
            else:
                allowed = (old, new) == ("float32", "float64")
            assert types.can_widen(ColumnType(old), ColumnType(new)) == allowed, (old, new)


def test_a_decimal_gains_digits_in_front_only() -> None:
    """[C3] Another scale would change the meaning of stats that are already written."""
    old = types.decimal(5, 2)
    assert types.can_widen(old, types.decimal(6, 2))
    for new in (types.decimal(5, 2), types.decimal(4, 2), types.decimal(6, 3), ColumnType("int64")):
        assert not types.can_widen(old, new)
    assert not types.can_widen(ColumnType("int8"), types.decimal(38, 0))
    assert not types.can_widen(list_of(ColumnType("int8")), list_of(ColumnType("int16")))
