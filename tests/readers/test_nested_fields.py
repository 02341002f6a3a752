"""Filters on fields inside structs: arrays and whole tables, against the oracle and DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.api import create_in, open_in
from strandline.readers.evaluate import evaluate
from strandline.tableformat import rolling
from strandline.tableformat.binding import bind
from strandline.tableformat.expressions import Expression, col
from strandline.tableformat.schema import schema_from
from strandline.tableformat.storage import open_storage
from tests import filter_cases, nested_cases
from tests.tables import memory_url

NAMES = {column.id: column.name for column in nested_cases.SCHEMA.columns}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nested_cases.FILTERS, st.lists(nested_cases.ROWS, max_size=10), st.booleans())
def test_a_field_answers_as_a_column_of_its_own_would(
    expression: Expression,
    rows: list[dict[str, Any]],
    dotted: bool,  # noqa: FBT001
) -> None:
    """[E11] All kinds of predicates, two levels deep; null structs have null fields."""
    expected = [filter_cases.truth(expression, nested_cases.flat(row)) for row in rows]
    bound = bind(nested_cases.inside(expression, dotted=dotted), nested_cases.SCHEMA)

    table = nested_cases.table_of(rows)

    assert evaluate(bound, table, NAMES).to_pylist() == expected
    sliced = pa.concat_tables([table, table]).slice(len(rows))
    assert evaluate(bound, sliced, NAMES).to_pylist() == expected
    for batch in table.to_batches():
        assert evaluate(bound, batch, NAMES).to_pylist() == expected


@pytest.mark.parametrize("paged", [False, True], ids=["inline", "paged"])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_scans_with_filters_on_fields_give_exactly_the_rows_that_match(
    data: st.DataObject,
    paged: bool,  # noqa: FBT001
) -> None:
    """[E11] Whole tables: what stats prune for other columns never takes a field's row away."""
    batches = data.draw(st.lists(st.lists(nested_cases.ROWS, min_size=1, max_size=4), max_size=4))
    filters = data.draw(st.lists(nested_cases.FILTERS, min_size=1, max_size=4))
    storage = open_storage(memory_url())
    with pytest.MonkeyPatch.context() as patch:
        if paged:
            for name, value in {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1}.items():
                patch.setattr(rolling, name, value)
        table = create_in(storage, nested_cases.SCHEMA.arrow, time_column=None)
        for batch in batches:
            table.append(nested_cases.table_of(batch))
    rows = [nested_cases.flat(row) for batch in batches for row in batch]
    for expression in filters:
        wanted = nested_cases.inside(expression, dotted=False)
        expected = [i for i, row in enumerate(rows) if filter_cases.truth(expression, row) is True]
        for given_filter in (wanted, str(wanted)):
            scan = open_in(storage).scan(columns=["_seq"], filter=given_filter)
            assert scan.to_arrow().column("_seq").to_pylist() == expected, str(wanted)


@pytest.mark.parametrize(
    "condition",
    [
        "device.os = 'b'",
        "device.os IS NULL",
        "device.os IS NOT NULL",
        "device.inner IS NULL",
        "NOT device.inner.n IN (1, 2)",
        "device.inner.n BETWEEN 2 AND 3 OR device.os LIKE 'a%'",
        "device.inner.x > 1",
        "device.inner.n > device.inner.x",
        "device.inner.n = n",
    ],
)
def test_filters_on_fields_mean_what_duckdb_says(condition: str) -> None:
    """[E11] [C12] The same text, an engine that is not ours."""
    nan = float("nan")
    rows = [
        {"device": {"os": "ab", "inner": {"n": 1, "x": nan}}, "n": 1},
        {"device": {"os": "b", "inner": {"n": 3, "x": 1.5}}, "n": 1},
        {"device": {"os": None, "inner": {"n": None, "x": None}}, "n": 2},
        {"device": {"os": "b", "inner": None}, "n": 3},
        {"device": None, "n": 4},
        {"device": {"os": "", "inner": {"n": 2, "x": -0.0}}, "n": None},
    ]
    inner = pa.struct([("n", pa.float64()), ("x", pa.float64())])
    kinds = [("device", pa.struct([("os", pa.string()), ("inner", inner)])), ("n", pa.float64())]
    events = pa.Table.from_pylist(rows, schema=pa.schema(kinds)).append_column(
        "row", pa.array(range(len(rows)))
    )
    table = create_in(open_storage(memory_url()), events.schema, time_column=None)
    table.append(events)
    with duckdb.connect() as connection:
        connection.register("events", events)
        expected = connection.execute(f"SELECT row FROM events WHERE {condition} ORDER BY row")
        numbers = [row for (row,) in expected.fetchall()]

    found = table.scan(["row"], condition).to_arrow().column("row").to_pylist()

    assert found == numbers
    assert 0 < len(found) < len(rows)


def test_values_below_a_null_struct_do_not_shine_through() -> None:
    """[E11] Arrow may hold a value where the struct is null; the field is null all the same."""
    child = pa.array([1, 2, 3], pa.int64())
    hidden = pa.StructArray.from_arrays([child], ["n"], mask=pa.array([False, True, False]))
    schema = schema_from({"s": hidden.type})
    names = {schema.column("s").id: "s"}

    found = evaluate(bind(col("s.n") >= 1, schema), pa.table({"s": hidden}), names)

    assert found.to_pylist() == [True, None, True]


def test_a_field_of_a_column_that_a_file_lacks_is_null() -> None:
    """[M3] Rows that are older than the struct column."""
    table = create_in(open_storage(memory_url()), {"n": "int64"}, time_column=None)
    table.append([{"n": 1}])
    table.evolve(add={"device": pa.struct([("os", pa.string())])})
    table.append([{"n": 2, "device": {"os": "x"}}])

    assert table.scan(["n"], "device.os IS NULL").to_arrow().column("n").to_pylist() == [1]
    assert table.scan(["n"], "device.os = 'x'").to_arrow().column("n").to_pylist() == [2]
    table.evolve(rename={"device": "machine"})
    assert table.scan(["n"], "machine.os = 'x'").to_arrow().column("n").to_pylist() == [2]
