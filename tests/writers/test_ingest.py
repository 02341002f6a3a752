"""Data of many shapes becomes one table with the schema's columns, or is refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from strandline.tableformat.errors import InvalidInput, InvalidRow
from strandline.tableformat.schema import Evolution, Schema, evolve, schema_from
from strandline.writers.ingest import to_arrow

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
SCHEMA = schema_from(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("at", pa.timestamp("us", tz="UTC"), metadata={"comment": "when"}),
            pa.field("score", pa.float64()),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "ü", "at": NOON, "score": 0.5, "tags": ["a", None]},
    {"id": 2, "name": None, "at": None, "score": None, "tags": None},
    {"id": 3, "name": "", "at": NOON, "score": -1.0, "tags": []},
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA.arrow)


def with_defaults(schema: Schema, **defaults: Any) -> Schema:
    """The schema with defaults for some columns."""
    change = Evolution(defaults=tuple(defaults.items()))
    return evolve(schema, change, next_column_id=100, protected_ids={})


def refused(data: object, schema: Schema = SCHEMA) -> InvalidRow:
    """The error for this data."""
    with pytest.raises(InvalidRow) as caught:
        to_arrow(data, schema)
    return caught.value


class OnlyStream:
    """Someone else's table, known by the Arrow C stream alone."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    """Someone else's batch, known by the Arrow C array alone."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


class Row(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def _columns() -> dict[str, Any]:
    return {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
        OnlyStream(TABLE),
        OnlyArray(TABLE.to_batches()[0]),
        ROWS,
        tuple(ROWS),
        iter(ROWS),
        [Row(row) for row in ROWS],
        [dict(reversed(row.items())) for row in ROWS],
        [{k: v for k, v in row.items() if v is not None} for row in ROWS],
        _columns(),
        _columns() | {"id": np.array([1, 2, 3], np.int32), "name": TABLE.column("name")},
        _columns() | {"id": range(1, 4), "score": pl.Series([0.5, None, -1.0])},
        _columns() | {"id": pd.Series([1, 2, 3], index=[7, 8, 9]), "tags": TABLE["tags"].chunk(0)},
        _columns() | {"name": np.array(["ü", None, ""], object)},
        pl.DataFrame(ROWS, schema_overrides={"at": pl.Datetime("us", "UTC")}),
        pl.DataFrame(TABLE).lazy().collect(),
        TABLE.select(["tags", "score", "at", "name", "id"]),
        TABLE.replace_schema_metadata({"pandas": "{}"}),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 0), TABLE.slice(1)]),
        TABLE.cast(pa.schema([(f.name, f.type) for f in TABLE.schema])),
    ],
    ids=lambda data: type(data).__module__.split(".")[0] + "." + type(data).__name__,
)
def test_every_shape_of_data_gives_the_same_table(data: object) -> None:
    """[E1] [C12] Arrow, pandas, Polars, DuckDB, rows and columns all arrive as the same rows."""
    out = to_arrow(data, SCHEMA)

    assert out.schema.equals(SCHEMA.arrow, check_metadata=True)
    out.validate(full=True)
    assert out.to_pylist() == TABLE.to_pylist()


def test_duckdb_relations_are_taken_in() -> None:
    """[C12] A query's result is appended as it is, with no rows too."""
    with duckdb.connect() as connection:
        relation = connection.from_arrow(TABLE)

        assert to_arrow(relation, SCHEMA).to_pylist() == TABLE.to_pylist()
        assert to_arrow(relation.filter("id = 2"), SCHEMA).to_pylist() == TABLE.to_pylist()[1:2]
        assert to_arrow(relation.filter("false"), SCHEMA).num_rows == 0
        assert refused(connection.sql("select 1 as id, 5 as name")).field == "name"


def test_pandas_frames_keep_their_values_and_lose_their_index() -> None:
    """[C12] What pandas calls missing is null; the index is not a column."""
    frame = TABLE.to_pandas().set_index(pd.Index([5, 6, 7], name="elsewhere"))
    frame["id"] = frame["id"].astype("int32")
    frame["at"] = frame["at"].dt.tz_convert("Europe/Berlin")

    assert to_arrow(frame, SCHEMA).to_pylist() == TABLE.to_pylist()

    class Old(pd.DataFrame):  # as in the days before the Arrow C stream, and as in geopandas
        @property
        def __arrow_c_stream__(self) -> Any:
            raise AssertionError("not needed")

    assert to_arrow(Old(frame), SCHEMA).to_pylist() == TABLE.to_pylist()
    assert to_arrow(frame.convert_dtypes(), SCHEMA).to_pylist() == TABLE.to_pylist()


def test_integers_with_gaps_come_back_from_pandas_as_integers() -> None:
    """[C12] pandas turns them into floats; whole ones are taken back, others are refused."""
    schema = schema_from({"n": "int32"})
    table = pa.table({"n": pa.array([1, None, 3], pa.int32())})
    assert table.to_pandas()["n"].dtype == np.float64

    assert to_arrow(table.to_pandas(), schema).to_pylist() == table.to_pylist()
    assert refused(pd.DataFrame({"n": [1.5, None]}), schema).row == 0
    assert refused(pd.DataFrame({"n": [1.0, 2.0]}), schema).row == 0
    assert refused(pd.DataFrame({"n": [2.0**31, None]}), schema).row == 0
    wide = schema_from({"n": "int64"})
    assert refused(pd.DataFrame({"n": [2.0**53 + 2, None]}), wide).row == 0


def test_pandas_objects_are_looked_at_one_by_one() -> None:
    """[E1] [C12] An object column is what its values are, not what Arrow would guess."""
    schema = schema_from(
        {"d": pa.decimal128(5, 2), "s": pa.struct([("a", pa.int64())]), "b": pa.bool_()}
    )
    frame = pd.DataFrame(
        {"d": [Decimal("1.5"), None], "s": [{"a": 1}, np.nan], "b": [True, None]}, dtype=object
    )

    assert to_arrow(frame, schema).to_pylist() == [
        {"d": Decimal("1.50"), "s": {"a": 1}, "b": True},
        {"d": None, "s": None, "b": None},
    ]
    frame["b"] = pd.Series([True, 1], dtype=object)
    assert (refused(frame, schema).row, refused(frame, schema).field) == (1, "b")


def test_pandas_columns_that_arrow_does_not_know_are_refused() -> None:
    """[E1] Periods, several levels of names and numbers as names end in our error."""
    schema = schema_from({"n": "int64"})
    assert refused(pd.DataFrame({"n": pd.period_range("2024", periods=2, freq="D")}), schema)
    assert refused(pd.DataFrame({"n": pd.Series([1 + 2j])}), schema).field == "n"
    assert refused(pd.DataFrame({0: [1]}), schema).field == "0"
    with pytest.raises(InvalidInput, match="two columns named 'n'"):
        to_arrow(pd.DataFrame([[1, 2]], columns=["n", "n"]), schema)


def test_data_of_the_right_types_is_passed_on_without_a_copy() -> None:
    """[C12] Every buffer of the result is a buffer of the input, chunk by chunk."""
    chunked = pa.concat_tables([TABLE, TABLE.slice(1)])

    out = to_arrow(chunked, SCHEMA)

    for given, taken in zip(chunked.columns, out.columns, strict=True):
        assert taken.num_chunks == 2
        for old, new in zip(given.chunks, taken.chunks, strict=True):
            assert [b and b.address for b in old.buffers()] == [
                b and b.address for b in new.buffers()
            ]


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        (),
        iter(()),
        {"id": []},
        TABLE.slice(0, 0),
        pa.table({}),
        pa.table({"id": pa.array([], pa.string())}),
        pd.DataFrame(),
        pd.DataFrame({"id": []}),
        pl.DataFrame(),
        pl.DataFrame({"name": []}),
    ],
    ids=lambda data: type(data).__module__.split(".")[0] + "." + type(data).__name__,
)
def test_no_rows_are_an_empty_table(data: object) -> None:
    """[E1] Without rows nothing can be missing or wrong."""
    out = to_arrow(data, SCHEMA)

    assert out.num_rows == 0
    assert out.schema.equals(SCHEMA.arrow, check_metadata=True)


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [{"id": [1], "nmae": ["x"]}, pa.table({"id": [1], "nmae": ["x"]})])
def test_an_unknown_column_is_named_with_a_near_match(data: object) -> None:
    """[E1] A typo is answered with the name that was meant."""
    error = refused(data)

    assert (error.row, error.field) == (None, "nmae")
    assert "did you mean 'name'?" in error.reason


def test_an_unknown_field_is_found_in_its_row() -> None:
    """[E1] Rows may leave out fields, but not bring new ones."""
    error = refused([{"id": 1}, {"id": 2, "name": "x"}, {"id": 3, "NAME": "x", "zz": 1}])

    assert (error.row, error.field) == (2, "NAME")
    assert "did you mean 'name'?" in error.reason


@pytest.mark.parametrize("data", [[{"id": 1, "_seq": 5}], pa.table({"id": [1], "_seq": [5]})])
def test_reserved_names_are_refused(data: object) -> None:
    """[E1] What a scan adds is not taken back in as data."""
    error = refused(data)

    assert error.field == "_seq"
    assert "leave this column out" in error.reason


def test_a_column_given_twice_is_refused() -> None:
    """[E1] Arrow allows two columns of one name; which one counts would be a guess."""
    with pytest.raises(InvalidInput, match="two columns named 'id'"):
        to_arrow(pa.table([[1], [2]], names=["id", "id"]), SCHEMA)


def test_names_that_are_not_text_are_refused() -> None:
    """[E1] A dict may have any keys, a row may not."""
    assert refused([{"id": 1}, {"id": 2, 5: 1}]).row == 1
    assert refused({"id": [1], None: [1]}).field == "None"


# --- missing values and defaults --------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 1}, {"id": 2}, {"id": None}],
        [{"id": 1}, {"id": 2}, {"name": "x"}],
        pa.table({"id": pa.chunked_array([[1, 2], [None, None]])}),
        pd.DataFrame({"id": pd.array([1, 2, None], "Int64")}),
        pl.DataFrame({"id": [1, 2, None]}),
        pa.table({"id": pa.array([1, 2, None]).dictionary_encode()}),
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_null_in_a_required_column_names_its_row(data: object) -> None:
    """[E1] Null or left out: a required column has a value in every row."""
    error = refused(data)

    assert (error.row, error.field) == (2, "id")
    assert "null or missing" in error.reason


@pytest.mark.parametrize("data", [[{"name": "x"}], {"name": ["x"]}, pa.table({"id": pa.nulls(1)})])
def test_a_required_column_that_is_left_out_is_refused(data: object) -> None:
    """[E1] The whole column may be missing too."""
    assert (refused(data).row, refused(data).field) == (0, "id")


DEFAULTS: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "int8": (pa.int8(), -5),
    "float32": (pa.float32(), 0.5),
    "float64": (pa.float64(), float("inf")),
    "decimal": (pa.decimal128(38, 3), Decimal("12345678901234567890123456789012345.678")),
    "date": (pa.date32(), date(1969, 12, 31)),
    "timestamp": (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    "timestamptz": (pa.timestamp("us", tz="UTC"), NOON),
    "string": (pa.string(), "ü"),
    "binary": (pa.binary(), b"\xff\x00"),
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_left_out_field_gets_its_default_and_a_null_stays_null(kind: str) -> None:
    """[E1] A default stands for what is missing, not for what was given as null."""
    arrow, default = DEFAULTS[kind]
    schema = with_defaults(schema_from({"id": pa.int64(), "x": arrow}), x=default)

    mixed = to_arrow([{"id": 1}, {"id": 2, "x": None}, {"x": default}], schema)

    assert mixed["x"].to_pylist() == [default, None, default]
    for data in ([{"id": 1}, {"id": 2}], {"id": [1, 2]}, pd.DataFrame({"id": [1, 2]})):
        out = to_arrow(data, schema)
        assert out["x"].to_pylist() == [default, default]
        assert out.schema == schema.arrow


def test_a_required_column_may_lean_on_its_default() -> None:
    """[E1] Left out it has a value; given as null it does not."""
    required = schema_from(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    schema = with_defaults(required, x=7)

    assert to_arrow([{}, {"x": 1}], schema)["x"].to_pylist() == [7, 1]
    assert refused([{}, {"x": None}], schema).row == 1


# --- the error that is raised -----------------------------------------------------------------


def test_the_earliest_bad_row_is_named_whatever_its_column() -> None:
    """[E1] Fixing errors one after the other goes down the rows."""
    error = refused(
        [
            {"id": 1},
            {"id": 2, "score": "high"},
            {"id": True},
            {"id": 4, "name": 5},
        ]
    )

    assert (error.row, error.field) == (1, "score")
    assert str(error) == (
        "row 1, field 'score': 'high' is a str and the column is float64. Nothing was written."
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "id",
        b"id",
        [5],
        [{"id": 1}, "id"],
        [{"id": 1}, None],
        ["id"],
        {"id": 5},
        {"id": "abc"},
        {"id": {"a": 1}},
        {"id": [1, 2], "name": ["x"]},
        {"id": np.zeros((2, 2))},
        pl.Series("id", [1]),
        pd.Series([1], name="id"),
        pa.array([1]),
        SCHEMA.arrow,
        [[{"id": 1}]],
        [pa.table({"id": [1]})],
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_that_is_no_table_is_refused(data: object) -> None:
    """[E1] One of our errors, never one of Arrow's, says what is expected."""
    with pytest.raises(InvalidInput):
        to_arrow(data, SCHEMA)


def test_one_row_as_a_dict_is_answered_with_the_right_spelling() -> None:
    """[E1] `append({"id": 1})` is a natural mistake."""
    with pytest.raises(InvalidInput, match=r"single row is given as \[row\]"):
        to_arrow({"id": 1}, SCHEMA)


def test_a_reader_that_fails_half_way_is_our_error() -> None:
    """[E1] An Arrow stream may break while it is read."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise pa.ArrowInvalid("the source broke")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())

    with pytest.raises(InvalidInput, match="the source broke"):
        to_arrow(reader, SCHEMA)


def test_damaged_text_is_refused_before_it_is_written() -> None:
    """[E1] Bytes that are no UTF-8 would break every reader of the column."""
    damaged = pa.array([b"fine", b"\xff"]).view(pa.string())

    error = refused(pa.table({"id": [1, 2], "name": damaged}))

    assert (error.row, error.field) == (1, "name")
    assert "damaged" in error.reason


def test_types_for_which_arrow_has_no_conversion_are_our_error() -> None:
    """[E1] The field is named, whatever Arrow cannot do."""
    runs = pa.RunEndEncodedArray.from_arrays([2], pa.array(["a"]).dictionary_encode())

    assert refused(pa.table({"id": [1, 2], "name": runs})).field == "name"


def test_taking_in_arrow_does_not_load_pandas() -> None:
    """[C12] A producer that hands in Arrow does not pay for pandas."""
    code = (
        "import sys, numpy as np, pyarrow as pa\n"
        "from strandline.tableformat.schema import schema_from\n"
        "from strandline.writers.ingest import to_arrow\n"
        "raw = pa.py_buffer(np.zeros(9, np.int64))\n"
        "text = pa.Array.from_buffers(pa.large_string(), 4, [None, raw, pa.py_buffer(b'')])\n"
        "number = pa.Array.from_buffers(pa.int64(), 4, [None, raw])\n"
        "table = pa.Table.from_arrays([number, text, number], names=['a', 'b', 'c'])\n"
        "out = to_arrow(table, schema_from({'a': 'int64', 'b': 'string', 'c': 'int8'}))\n"
        "assert out.num_rows == 4\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
