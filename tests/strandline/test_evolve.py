"""Schema changes touch no data file, and old files read correctly through column ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from tests.tables import Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path


def test_a_renamed_column_keeps_its_data_and_its_stats(place: Place) -> None:
    """[M3, C3] Old segments answer under the new name, and are pruned by it."""
    table = place.create()
    table.append(events(0, 5))
    table.append(events(5, 5))
    table.evolve(rename={"n": "number"})
    table.append(events(10, 5).rename_columns(["ts", "user", "amount", "number"]))

    scan = place.open().scan(columns=["number"], filter="number >= 7 AND number < 11")

    assert scan.to_arrow().column("number").to_pylist() == [7, 8, 9, 10]
    assert scan.plan().report.segments.kept == 2


def test_a_new_column_with_an_old_name_never_sees_the_old_data(place: Place) -> None:
    """[M3, C3] Drop, then add under the same name: the old rows are null."""
    table = place.create()
    table.append(events(0, 2))
    table.evolve(drop=["n"])
    table.evolve(add={"n": "string"})
    table.append(pa.table({"user": ["x"], "n": ["new"]}))

    assert numbers_in(place.open()) == [None, None, "new"]
    assert place.open().scan(filter="n IS NULL").count() == 2


def test_swapped_names_swap_the_data() -> None:
    """[M3] Two columns change names in one step."""
    table = Place(memory_url()).create({"a": "int64", "b": "int64"}, time_column=None)
    table.append({"a": [1], "b": [2]})
    table.evolve(rename={"a": "b", "b": "a"})

    assert table.scan().to_arrow().to_pylist() == [{"b": 1, "a": 2}]


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("int8", "int64", -5),
        ("int32", "int64", 2**31 - 1),
        ("uint8", "uint32", 255),
        ("uint32", "int64", 2**32 - 1),
        ("float32", "float64", 0.5),
        ("decimal(5,2)", "decimal(38,2)", 1),
    ],
)
def test_widened_columns_read_old_and_new_values(old: str, new: str, value: Any) -> None:
    """[C3] Every old value is unchanged in the wider type, filters included."""
    table = Place(memory_url()).create({"v": old}, time_column=None)
    table.append([{"v": value}, {"v": None}])
    table.evolve(widen={"v": new})
    table.append([{"v": value}])

    assert table.scan().to_arrow().column("v").to_pylist() == [value, None, value]
    assert table.scan(filter=strandline.col("v") == value).count() == 2
    assert table.scan(filter=strandline.col("v") > value).count() == 0


def test_columns_can_be_reordered_commented_and_given_defaults() -> None:
    """[C3] A default fills what later appends leave out; old rows stay as they are."""
    table = Place(memory_url()).create({"a": "int64", "b": "string"}, time_column=None)
    table.append({"a": [1]})
    schema = table.evolve(reorder=["b"], comments={"a": "a count"}, defaults={"b": "none"})
    table.append({"a": [2]})

    assert schema.names == ["b", "a"]
    assert schema.field("a").metadata == {b"comment": b"a count"}
    assert table.scan().to_arrow().to_pylist() == [{"b": None, "a": 1}, {"b": "none", "a": 2}]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"add": {"n": "int64"}},
        {"add": {"N": "int64"}},
        {"add": {"_x": "int64"}},
        {"add": {"x": "int65"}},
        {"add": pa.schema([pa.field("x", pa.int64(), nullable=False)])},
        {"rename": {"nope": "x"}},
        {"rename": {"n": "user"}},
        {"drop": ["nope"]},
        {"drop": ["ts"]},
        {"drop": "n"},
        {"drop": ["n", "n"]},
        {"drop": ["n"], "rename": {"n": "x"}},
        {"drop": ["amount"], "widen": {"amount": "float64"}},
        {"widen": {"n": "int32"}},
        {"widen": {"user": "binary"}},
        {"widen": {"ts": "int64"}},
        {"reorder": ["n", "n"]},
        {"defaults": {"n": "text"}},
    ],
)
def test_changes_that_would_lose_meaning_are_refused(change: dict[str, Any]) -> None:
    """[C3] Nothing is committed."""
    table = Place(memory_url()).create()

    with pytest.raises(strandline.InvalidInput):
        table.evolve(**change)

    assert table.refresh().version == 1


def test_an_append_prepared_before_a_schema_change_still_lands(place: Place) -> None:
    """[C1, C3] Another writer renames, drops and adds; the stale handle's rows are right."""
    table, stale = place.create(), place.open()
    table.evolve(rename={"n": "number"}, drop=["amount"], add={"x": "int32"})

    stale.append(events(0, 2))

    rows = place.open().scan(columns=["user", "number", "x"]).to_arrow().to_pylist()
    assert rows == [
        {"user": "user-0", "number": 0, "x": None},
        {"user": "user-1", "number": 1, "x": None},
    ]


def test_a_column_added_elsewhere_is_found_by_a_stale_handle(place: Place) -> None:
    """The handle looks again before it calls a column unknown."""
    table, stale = place.create(), place.open()
    table.evolve(add={"x": "int32"})

    stale.append([{"n": 1, "x": 5}])

    assert table.scan(columns=["x"]).to_arrow().column("x").to_pylist() == [5]


def test_two_writers_change_the_schema_at_once(tmp_path: Path) -> None:
    """[C3] The second change is worked out again on top of the first; ids are never shared."""
    place = Place(str(tmp_path / "t"))
    first, second = place.create(), place.open()
    first.evolve(add={"x": "int64"})
    second.evolve(add={"y": "string"})
    first.append([{"x": 1, "y": "one"}])

    assert place.open().schema.names[-2:] == ["x", "y"]
    assert place.open().scan(columns=["x", "y"]).to_arrow().to_pylist() == [{"x": 1, "y": "one"}]
    with pytest.raises(strandline.InvalidInput, match="twice"):
        second.evolve(add={"x": "string"})


@pytest.mark.parametrize(
    "name", ["add", "rename", "drop", "widen", "reorder", "comments", "defaults"]
)
def test_a_change_of_the_wrong_type_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """[C3] [E1] A clear error, and nothing is changed."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    with pytest.raises(strandline.StrandlineError, match=" not int"):
        table.evolve(**{name: 5})
    assert table.version == 1
