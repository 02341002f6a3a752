"""Names of fields inside structs: what they find, and what errors point at."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.tableformat.binding import BoundCompare, BoundNull, BoundPair, bind, columns_of
from strandline.tableformat.column_lookup import NO_STATS_ID, NestedField
from strandline.tableformat.errors import InvalidFilter, InvalidInput
from strandline.tableformat.expressions import Expression, col
from strandline.tableformat.filter_parser import parse_filter
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS
from strandline.tableformat.pruning import Bounds, certain, may_match
from strandline.tableformat.schema import MAX_ID, schema_from

if TYPE_CHECKING:
    from strandline.tableformat.pruning import StatsSource

SCHEMA = schema_from(
    pa.schema(
        [
            pa.field("device", pa.struct([("os", "string"), ("a.b", pa.struct([("c", "int8")]))])),
            pa.field("x.y", pa.int64()),
            pa.field("a", pa.struct([("b.c", pa.int64()), ("b", pa.struct([("c", pa.string())]))])),
            pa.field("tags", pa.list_(pa.struct([("k", pa.string())]))),
            pa.field("notes", pa.map_(pa.string(), pa.string())),
            pa.field("n", pa.int64()),
            pa.field("both", pa.struct([("z", pa.int64())])),
            pa.field("both.z", pa.string()),
        ]
    )
)  # fmt: skip


def field_of(expression: Expression) -> NestedField:
    """The field that a comparison is bound to."""
    bound = bind(expression, SCHEMA)
    assert isinstance(bound, (BoundCompare, BoundNull))
    assert isinstance(bound.column, NestedField)
    return bound.column


@pytest.mark.parametrize(
    ("expression", "root", "path"),
    [
        (col("device.os") == "x", "device", ("os",)),
        (col("device")["os"] == "x", "device", ("os",)),
        (col("device.a.b.c") == 1, "device", ("a.b", "c")),
        (col("device")["a.b"]["c"] == 1, "device", ("a.b", "c")),
        (col("device.a.b").is_null(), "device", ("a.b",)),
        (col("a")["b.c"] == 1, "a", ("b.c",)),
        (col("a")["b"]["c"] == "x", "a", ("b", "c")),
        (col("both")["z"] == 1, "both", ("z",)),
    ],
)
def test_a_field_is_found_by_text_with_dots_and_by_path(
    expression: Expression, root: str, path: tuple[str, ...]
) -> None:
    """[C12] At any depth, also where names hold dots themselves; text reads back as the same."""
    found = field_of(expression)

    assert (found.root, found.path) == (SCHEMA.column(root), path)
    assert found == field_of(parse_filter(str(expression)))


def test_a_column_of_that_very_name_comes_before_a_field() -> None:
    """[M3] A table that had a column with a dot in its name keeps it."""
    assert bind(col("x.y") == 1, SCHEMA) == BoundCompare(SCHEMA.column("x.y"), "=", 1)
    assert bind(col("both.z") == "x", SCHEMA) == BoundCompare(SCHEMA.column("both.z"), "=", "x")
    assert bind(parse_filter("\"both.z\" = 'x'"), SCHEMA) == bind(col("both.z") == "x", SCHEMA)
    assert field_of(parse_filter("both.z = 1")).path == ("z",)


def test_the_column_around_a_field_is_what_is_read() -> None:
    """[E10] Filters on two fields of a struct and on a plain column read two columns."""
    bound = bind(
        (col("device.os") == "x") & col("device")["a.b"].is_null() | (col("n") > 1), SCHEMA
    )

    assert columns_of(bound) == {SCHEMA.column("device").id, SCHEMA.column("n").id}
    pair = bind(col("device")["a.b"]["c"] < col("n"), SCHEMA)
    assert isinstance(pair, BoundPair)
    assert columns_of(pair) == {SCHEMA.column("device").id, SCHEMA.column("n").id}
    assert pickle.loads(pickle.dumps(bound)) == bound


def test_fields_are_told_apart_although_none_has_an_id() -> None:
    """Two fields of one struct are different columns to everyone who compares them."""
    one, other = field_of(col("a")["b.c"] == 1), field_of(col("a")["b"]["c"] == "x")

    assert one != other
    assert one.id == other.id == NO_STATS_ID
    assert NO_STATS_ID not in {column.id for column in HIDDEN_COLUMNS.values()}
    assert not 1 <= NO_STATS_ID <= MAX_ID  # what columns of users can have


class EverythingKnown:
    """Stats that would prune whatever they are asked about."""

    count = 2

    def bounds(self, column_id: int) -> Bounds | None:
        if column_id == NO_STATS_ID:
            raise AssertionError("a field has no stats")
        return certain(np.array([100, 200]), np.array([100, 200]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("both.z = 5", [True, True]),
        ("both.z IN (5, 6) AND both.z < 3", [True, True]),
        ("both.z IS NULL", [True, True]),
        ("NOT device.os LIKE 'a%'", [True, True]),
        ("both.z < n", [True, True]),
        ("n = 100 AND both.z = 5", [True, False]),
        ("n = 5 AND both.z = 5", [False, False]),
        ("n = 5 OR both.z = 5", [True, True]),
    ],
)
def test_no_stats_prune_a_field(text: str, expected: list[bool]) -> None:
    """[E11] What nothing is known of may match; other columns of the filter still prune."""
    stats: StatsSource = EverythingKnown()

    assert may_match(bind(parse_filter(text), SCHEMA), stats).tolist() == expected


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("n = 1 AND nope = 2", "nope", "there is no column 'nope'; the columns are"),
        ("n = 1 AND 5 < nope", "nope", "there is no column 'nope'"),
        ("n = 'x'", "n", "column 'n' has type int64 and cannot be compared with 'x'"),
        ("'x' = n", "n", "cannot be compared with 'x'"),
        ("n = 1 OR NOT n IN (1, 'x')", "n IN", "cannot be compared with 'x'"),
        ("NOT n BETWEEN 1 AND 'x'", "n B", "cannot be compared with 'x'"),
        ("n LIKE 'x%'", "n", "LIKE needs a string column"),
        ("_seq = 1 AND n", "n", "cannot be compared with TRUE"),
        ("n < device.os", "n", "'n' (int64) and 'device.os' (string)"),
        ("n < device.nope", "device", "no field 'nope' in device; its fields are os, a.b"),
        ("n < 5 AND tags = 'x'", "tags", "IS NULL and IS NOT NULL"),
        ("device = 'x'", "device", "IS NULL and IS NOT NULL"),
        ("device.os = 5", "device", "column 'device.os' has type string"),
        ("n > 5 AND device.oz = 'x'", "device", "no field 'oz' in device"),
        ('device."a.b".d = 5', "device", 'no field \'d\' in device."a.b"; its fields are c'),
        ("n = 1\n AND tags.k = 'x'", "tags", "tags has type list<struct<k:string>>"),
        ("notes.k = 'x'", "notes", "a filter can look into structs only"),
        ("n.x = 1", "n", "n has type int64, which has no field 'x'"),
        ("_seq.x = 1", "_seq", "_seq has type int64"),
        ("x.y = 1", "x", "write it in double quotes"),
        ("nope.y IS NULL", "nope", "there is no column 'nope'"),
        ("device.os.x IS NULL", "device", "device.os has type string"),
    ],
)  # fmt: skip
def test_an_error_points_at_the_column(text: str, column: str, words: str) -> None:
    """[E10] Names and types that do not fit are shown where they stand in the filter."""
    expected = text.index(column)

    with pytest.raises(InvalidFilter) as caught:
        bind(parse_filter(text), SCHEMA)

    assert words in caught.value.reason
    assert (caught.value.text, caught.value.position) == (text, expected)
    shown, caret = str(caught.value).splitlines()[-2:]
    assert shown[caret.index("^") :].startswith(column)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (col("device.oz") == 1, "there is no field 'oz' in device; its fields are os, a.b"),
        (col("nope.oz") == 1, "there is no column 'nope.oz'"),
        (col("a.b.c") == 1, "'a.b.c' may mean a.\"b.c\" or a.b.c"),
        (col("device..os") == 1, "there is no column 'device..os'"),
        (col("tags.k") == 1, "structs only"),
        (col("n") == "x", "cannot be compared"),
    ],
)
def test_without_text_the_error_names_the_column(expression: Expression, words: str) -> None:
    """[E10] A filter built in Python has no place to point at."""
    with pytest.raises(InvalidInput) as caught:
        bind(expression, SCHEMA)

    assert words in str(caught.value)
    assert not isinstance(caught.value, InvalidFilter)


@pytest.mark.parametrize(
    "make",
    [
        lambda: col("a")[""],
        lambda: col("a")[0],
        lambda: list(col("a")),  # type: ignore[call-overload]
        lambda: "x" in col("a"),  # type: ignore[operator]
        lambda: col(("a",)),  # type: ignore[arg-type]
        lambda: col("a")[("b", "c")],
    ],
)
def test_what_cannot_name_a_field_is_refused_at_once(make: Any) -> None:
    """Lists have no names, and a column is nothing to iterate over."""
    with pytest.raises(InvalidInput):
        make()


def test_the_place_of_a_column_is_no_part_of_its_meaning() -> None:
    """Equal filters are equal wherever their columns stood, also after pickling."""
    spaced, tight = (
        parse_filter("  n =  1   AND device.os='x'"),
        parse_filter("n=1 AND device.os='x'"),
    )

    assert spaced == tight == ((col("n") == 1) & (col("device")["os"] == "x"))
    assert hash(spaced) == hash(tight)
    assert repr(spaced) == repr(tight) == "Expression(n = 1 AND device.os = 'x')"
    assert pickle.loads(pickle.dumps(spaced)) == tight
    assert repr(col("device")["os"]) == "col('device')['os']"
