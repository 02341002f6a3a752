"""Columns keep their identity while names, order and types change."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import schema as schemas
from strandline.tableformat import types
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.schema import Evolution, Schema, evolve, schema_from
from strandline.tableformat.types import ColumnType

START = schema_from(
    pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("Name", pa.large_string(), metadata={"comment": "who"}),
            pa.field("größe", pa.float32()),
            pa.field("c7_x", pa.date64()),
        ]
    )
)


def changed(schema: Schema = START, *, next_id: int = 5, **change: Any) -> Schema:
    """The schema after one change."""
    return evolve(schema, Evolution(**change), next_column_id=next_id, protected_ids={1: "the key"})


# --- making -----------------------------------------------------------------------------------


def test_first_columns_keep_plain_names_in_their_files() -> None:
    """[M3] A file's column is called as the user called it, if every reader can say that."""
    assert [column.id for column in START.columns] == [1, 2, 3, 4]
    assert [column.physical_name for column in START.columns] == ["id", "Name", "c3_gre", "c4_c7x"]
    assert [str(column.type) for column in START.columns] == ["int32", "string", "float32", "date"]


def test_a_schema_shows_its_columns_to_arrow() -> None:
    """[C12] Scans give logical names and comments, files physical names and field ids."""
    assert START.arrow.names == ["id", "Name", "größe", "c7_x"]
    assert not START.arrow.field("id").nullable
    assert START.arrow.field("Name").metadata == {b"comment": b"who"}
    assert START.physical_arrow.field("c3_gre").metadata == {b"PARQUET:field_id": b"3"}


@pytest.mark.parametrize(
    "source",
    [
        {"a": "int64", "b": "decimal(5,2)"},
        {"a": pa.int64(), "b": pa.decimal128(5, 2)},
        pa.schema([("a", pa.int64()), ("b", pa.decimal128(5, 2))]),
        [pa.field("a", pa.int64()), pa.field("b", pa.decimal128(5, 2))],
        pa.struct([("a", pa.int64()), ("b", pa.decimal128(5, 2))]),
        pl.DataFrame(schema={"a": pl.Int64, "b": pl.Decimal(5, 2)}).to_arrow().schema,
    ],
    ids=lambda source: type(source).__name__,
)
def test_schemas_come_in_several_spellings(source: object) -> None:
    """[C12] Arrow schemas, dicts and lists of fields describe the same table."""
    assert [str(column.type) for column in schema_from(source).columns] == ["int64", "decimal(5,2)"]


@pytest.mark.parametrize(
    "source",
    [
        None,
        "a int64",
        [],
        {},
        ["a"],
        {"a": "int65"},
        {"a": 5},
        {"a": int},
        {5: "int64"},
        {"": "int64"},
        {"_a": "int64"},
        {"a\0": "int64"},
        {"\ud800": "int64"},
        {"ä" * 128: "int64"},
        {"a": "int64", "A": "int64"},
        {"a": pa.uint64()},
        {f"c{n}": "int8" for n in range(schemas.MAX_COLUMNS + 1)},
        pa.int64(),
        pa.schema([pa.field("a", pa.int8(), metadata={"comment": b"\xff"})]),
    ],
    ids=lambda source: type(source).__name__,
)
def test_sources_that_describe_no_table_are_refused(source: object) -> None:
    """[E1] The error is ours and short, whatever was handed in."""
    with pytest.raises(InvalidInput) as caught:
        schema_from(source)

    assert len(str(caught.value)) < 300


def test_names_of_255_bytes_and_any_script_are_allowed() -> None:
    """Only the start `_`, NUL and broken Unicode are reserved."""
    for name in ("ä" * 127, "a b", "a.b", "日本", "a\nb", "C1"):
        assert schema_from({name: "int8"}).columns[0].name == name


@settings(deadline=None)
@given(
    st.lists(
        st.text(
            st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1
        ).filter(lambda name: not name.startswith("_") and len(name.encode()) <= 255)
        | st.sampled_from(["c1_a", "C2_b", "c3_", "a_1", "x" * 70]),
        min_size=1,
        max_size=8,
        unique_by=str.lower,
    )
)
def test_physical_names_are_safe_and_unique_whatever_the_names_are(names: list[str]) -> None:
    """[M3] Spark compares without case, and some readers know ASCII letters only."""
    schema = schema_from(dict.fromkeys(names, "int8"))
    added = tuple(pa.field(f"new, {name}", pa.int8()) for name in ("ä", "c9_x"))
    more = changed(schema, add=added, next_id=len(names) + 1)
    physical = [column.physical_name for column in more.columns]

    assert len({name.lower() for name in physical}) == len(physical)
    assert all(name.isascii() and name[0].isalpha() and len(name) <= 80 for name in physical)
    assert schemas.from_json(orjson.loads(orjson.dumps(schemas.to_json(more)))) == more


def test_an_unknown_column_is_answered_with_the_known_ones() -> None:
    """[E10] The error lists what there is."""
    with pytest.raises(InvalidInput, match="no column 'nam'; the columns are Name, c7_x"):
        START.column("nam")
    with pytest.raises(InvalidInput):
        START.column([])  # type: ignore[arg-type]


# --- changing ---------------------------------------------------------------------------------


def test_a_renamed_column_is_the_same_column() -> None:
    """[M3] [C3] Id, physical name, comment and default stay; a new column gets the old name."""
    before = changed(defaults=(("Name", "nobody"),))
    after = changed(before, rename=(("Name", "who"),), add=(pa.field("Name", pa.int8()),))

    assert after.id == 3
    assert (after.column("who").id, after.column("who").physical_name) == (2, "Name")
    assert (after.column("who").comment, after.column("who").default) == ("who", "nobody")
    assert (after.column("Name").id, after.column("Name").physical_name) == (5, "c5_Name")


def test_names_can_be_swapped_in_one_change() -> None:
    """[C3] Renames go by the names before the change."""
    after = changed(rename=(("Name", "größe"), ("größe", "Name")))

    assert [column.name for column in after.columns] == ["id", "größe", "Name", "c7_x"]


def test_widen_drop_add_comment_default_and_reorder_work_together() -> None:
    """[C3] One commit can do all of it."""
    after = changed(
        widen=(("größe", ColumnType("float64")),),
        drop=("c7_x",),
        add=(pa.field("new", pa.bool_()),),
        comments=(("Name", None), ("new", "fresh")),
        defaults=(("new", True),),
        reorder=("new", "größe"),
    )

    assert [column.name for column in after.columns] == ["new", "größe", "id", "Name"]
    assert str(after.column("größe").type) == "float64"
    assert (after.column("new").comment, after.column("new").default) == ("fresh", 1)
    assert after.column("Name").comment is None


@pytest.mark.parametrize(
    "change",
    [
        {"rename": (("Name", "ID"),)},
        {"rename": (("Name", "_x"),)},
        {"rename": (("nobody", "x"),)},
        {"drop": ("id",)},
        {"drop": ("Name", "Name")},
        {"drop": ("nobody",)},
        {"add": (pa.field("name", pa.int8()),)},
        {"add": (pa.field("x", pa.int8(), nullable=False),)},
        {"add": (pa.field("x", pa.uint64()),)},
        {"widen": (("id", ColumnType("int64")),)},
        {"widen": (("größe", ColumnType("int64")),)},
        {"widen": (("Name", ColumnType("binary")),)},
        {"reorder": ("id", "id")},
        {"reorder": ("nobody",)},
        {"comments": (("Name", 5),)},
        {"comments": (("Name", "\ud800"),)},
        {"comments": (("nobody", "x"),)},
        {"defaults": (("id", "x"),)},
        {"defaults": (("nobody", 1),)},
    ],
    ids=str,
)
def test_changes_that_would_break_readers_are_refused(change: dict[str, Any]) -> None:
    """[C3] Names clash, keys vanish, types narrow: nothing of that happens."""
    with pytest.raises(InvalidInput):
        changed(**change)


def test_the_last_column_cannot_be_dropped() -> None:
    """[C3] A table without columns is none."""
    one = schema_from({"a": "int8", "b": "int8"})
    with pytest.raises(InvalidInput, match="at least one column"):
        evolve(one, Evolution(drop=("a", "b")), next_column_id=3, protected_ids={})


def test_reordering_many_columns_is_quick() -> None:
    """[C3] The widest table can be turned around (comparing all with all would take minutes)."""
    wide = schema_from({f"n{n}": "int8" for n in range(schemas.MAX_COLUMNS)})
    names = tuple(column.name for column in reversed(wide.columns))

    assert tuple(c.name for c in changed(wide, reorder=names).columns) == names


def test_an_empty_change_is_recognised() -> None:
    """`evolve()` without arguments has nothing to do."""
    assert Evolution().is_empty()
    assert not Evolution(drop=("a",)).is_empty()


# --- defaults and single values ---------------------------------------------------------------

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
SINGLE: list[tuple[str, Any, Any]] = [
    ("bool", True, 1),
    ("int8", -128, -128),
    ("int64", 2**63 - 1, 2**63 - 1),
    ("float32", 0.5, 0.5),
    ("float64", math.inf, math.inf),
    ("decimal(38,2)", Decimal("-1.50"), -150),
    ("decimal(38,38)", Decimal("0." + "1" * 38), int("1" * 38)),
    ("decimal(38,0)", 10**38 - 1, 10**38 - 1),
    ("date", date(1970, 1, 2), 1),
    ("timestamp", datetime(1970, 1, 1, 0, 0, 1), 1_000_000),  # noqa: DTZ001
    ("timestamptz", NOON, 1_717_243_200_000_000),
    ("string", "ü", "ü"),
    ("binary", b"\xff", b"\xff"),
]


@pytest.mark.parametrize(("name", "given", "stored"), SINGLE, ids=[case[0] for case in SINGLE])
def test_a_value_is_stored_in_its_domain_and_comes_back(name: str, given: Any, stored: Any) -> None:
    """[M2] Defaults survive metadata and become Arrow values of the exact type again."""
    column = schema_from({"x": name}).columns[0]
    assert schemas.value_of(column, given) == stored
    schema = changed(schema_from({"x": name, "y": "int8"}), defaults=(("x", given),))

    again = schemas.from_json(orjson.loads(orjson.dumps(schemas.to_json(schema))))

    assert again == schema
    array = schemas.from_stat_values(column.type, [again.column("x").default, None])
    assert array.type == types.to_arrow(column.type)
    assert array.to_pylist() == [given, None]
    assert schemas.stat_values(column.type, array) == [stored, None]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("bool", 1),
        ("int8", 128),
        ("int64", True),
        ("int64", 1.0),
        ("float32", 1e39),
        ("float64", 2**53 + 1),
        ("decimal(5,2)", Decimal("0.001")),
        ("decimal(5,2)", 0.5),
        ("date", NOON),
        ("timestamp", NOON),
        ("timestamp", 5),
        ("timestamptz", NOON.replace(tzinfo=None)),
        ("string", b"x"),
        ("string", "\ud800"),
        ("binary", "x"),
    ],
)
def test_values_that_do_not_fit_exactly_are_refused(name: str, given: Any) -> None:
    """[E1] A default is as strict as a row: nothing is rounded, parsed or cut."""
    with pytest.raises(InvalidInput, match="column 'x' has type"):
        changed(schema_from({"x": name}), defaults=(("x", given),))


def test_nested_columns_have_no_default_and_none_removes_one() -> None:
    """A default is a single value."""
    schema = schema_from({"x": pa.list_(pa.int8()), "y": pa.int8()})
    with pytest.raises(InvalidInput, match="cannot have a default"):
        changed(schema, defaults=(("x", [1]),))
    with_one = changed(schema, defaults=(("y", 5),))

    assert changed(with_one, defaults=(("y", None),)).column("y").default is None


# --- metadata ---------------------------------------------------------------------------------


def as_json(**patch: Any) -> dict[str, Any]:
    """The metadata of a schema with one column, with something else in it."""
    document = schemas.to_json(schema_from({"a": "int64"}))
    column = document["columns"][0]
    return document | {"columns": [column | patch]}


def with_second(**patch: Any) -> dict[str, Any]:
    """The same with a second column, which is like the first except for the patch."""
    document = as_json()
    return document | {"columns": [*document["columns"], *as_json(**patch)["columns"]]}


def test_two_columns_are_fine() -> None:
    """The cases below are refused for what they say, not for their shape."""
    document = with_second(id=2, name="b", physical_name="b")
    assert [column.name for column in schemas.from_json(document).columns] == ["a", "b"]


def test_unknown_fields_are_ignored() -> None:
    """[M10] A later version may say more about a column."""
    assert schemas.from_json(as_json(vector_index={"kind": "x"})).columns[0].name == "a"


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"id": 1},
        {"id": 1, "columns": []},
        {"id": 1, "columns": {"a": 1}},
        {"id": 1, "columns": [5]},
        {"id": 1, "columns": 5},
        {**as_json(), "id": 0},
        {**as_json(), "id": "1"},
        {**as_json(), "id": True},
        {**as_json(), "id": 1.5},
        {**as_json(), "columns": as_json()["columns"] * 2},
        with_second(id=1, name="b", physical_name="b"),
        with_second(id=2, name="A", physical_name="b"),
        with_second(id=2, name="b", physical_name="A"),
        as_json(id=0),
        as_json(id=2**31),
        as_json(id=True),
        as_json(id="1"),
        as_json(name=""),
        as_json(name="_a"),
        as_json(name="a\0"),
        as_json(name="x" * 256),
        as_json(name=5),
        as_json(physical_name=""),
        as_json(physical_name="_seq"),
        as_json(physical_name="ü"),
        as_json(physical_name="../a"),
        as_json(physical_name="a\n"),
        as_json(physical_name=5),
        as_json(type="int65"),
        as_json(type=None),
        as_json(nullable=None),
        as_json(nullable=1),
        as_json(comment=5),
        as_json(default=5),
        as_json(default="x"),
        as_json(default=str(2**63)),
        as_json(type={"list": {"type": "int8"}}, default="5"),
    ],
)
def test_malformed_schemas_are_corrupt_tables(document: Any) -> None:
    """[X4] Whatever stands in a manifest, the answer is one clear kind of error."""
    with pytest.raises(CorruptTable):
        schemas.from_json(document)
