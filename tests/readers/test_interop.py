"""Scans in pandas, Polars, DuckDB and pyarrow: exactly the rows of the scan, read sparingly."""

from __future__ import annotations

import functools
import operator
import pickle
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.catalog.page_cache import PAGES
from strandline.readers import arrow_dataset
from strandline.tableformat.errors import InvalidInput, StrandlineError
from strandline.tableformat.storage import open_storage
from tests.edited import flip
from tests.readers import rich_table
from tests.readers.rich_table import NAN, START, comparable, rows_of
from tests.stores import WatchedStorage
from tests.tables import SCHEMA as EVENTS
from tests.tables import events, memory_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.readers.scan import Scan
    from strandline.table import Table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """All types, evolved columns, trimmed and expired rows."""
    return rich_table.make(tmp_path_factory.mktemp("rich") / "t")


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in UTC, like the columns."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def duck_arrow(relation: Any) -> pa.Table:
    """A DuckDB answer in Arrow's types."""
    return relation.to_arrow_table()


# --- whole scans ------------------------------------------------------------------------------

SCANS: dict[str, dict[str, Any]] = {
    "all": {},
    "columns": {"columns": ["x.y", "_seq", "f", "_ts", "device", "_window"]},
    "filter": {"filter": "f > 1 AND (device.os = 'ios' OR later IS NULL)"},
    "between": {"start_seq": 17, "end_seq": 41, "columns": ["n", "single", "ts"]},
    "limit": {"filter": '"x.y" > 0', "limit": 13},
    "ordered": {"order_by": "f", "descending": True, "columns": ["n", "_seq"]},
    "newest": {"order_by": "ts", "descending": True, "limit": 7},
    "no indexes": {"filter": "name = 'ab' AND f > 1", "indexes": False},
    "nothing": {"filter": "name = 'nobody'"},
    "none at all": {"limit": 0},
}
ROADS: dict[str, Callable[[Scan], pa.Table]] = {
    "pyarrow stream": lambda scan: pa.RecordBatchReader.from_stream(scan).read_all(),
    "pyarrow table": pa.table,
    "dataset": lambda scan: scan.to_pyarrow_dataset().to_table(),
    "dataset batches": lambda scan: pa.Table.from_batches(
        scan.to_pyarrow_dataset().to_batches(), scan.schema
    ),
    "dataset in C++": lambda scan: ds.Scanner.from_dataset(scan.to_pyarrow_dataset()).to_table(),
    "polars stream": lambda scan: pl.DataFrame(scan).to_arrow(),
    "polars": lambda scan: scan.to_polars().to_arrow(),
    "polars lazy": lambda scan: scan.scan_polars().collect().to_arrow(),
    "polars streaming": lambda scan: scan.scan_polars().collect(engine="streaming").to_arrow(),
    "duckdb": lambda scan: duck_arrow(scan.to_duckdb(_database())),
    "duckdb stream": lambda scan: duck_arrow(_database().from_arrow(scan)),
}


@functools.cache
def _database() -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("request_name", SCANS)
def test_every_library_gets_exactly_the_rows_of_the_scan(
    table: Table, request_name: str, road: str
) -> None:
    """[C12] [C3] [O4] All types, NaN, nulls, zones; renamed, widened, hidden; nothing expired."""
    scan = table.scan(**SCANS[request_name])
    expected = rows_of(scan.to_arrow())

    found = ROADS[road](scan)

    assert found.column_names == scan.schema.names
    assert [_as_scanned(one) for one in rows_of(found)] == [_as_scanned(one) for one in expected]


def _as_scanned(row: dict[str, Any]) -> dict[str, Any]:
    # Polars gives a map as a list of structs, DuckDB as pairs; what is in it must be the same.
    notes = row.get("notes")
    if notes is None:
        return row
    pairs = [list(one.values()) if isinstance(one, dict) else one for one in notes]
    return row | {"notes": pairs}


def test_the_rows_of_the_scan_are_those_that_were_appended(table: Table) -> None:
    """[C12] The table of these tests by hand, so that all of them compare with the truth."""
    expected = [comparable(one) for one in rich_table.expected()]

    found = rows_of(table.scan().to_arrow())

    assert found == [{name: one[name] for name in found[0]} for one in expected]
    assert [one["_seq"] for one in rows_of(table.scan(["_seq"]).to_arrow())] == list(range(5, 60))


def test_pandas_takes_the_options_of_pyarrow(table: Table) -> None:
    """[C12] Such as Arrow's own types, which keep nulls apart from NaN."""
    import pandas as pd  # noqa: PLC0415 - so that other tests see it loaded by nobody else

    scan = table.scan(["n", "f", "ts", "name"])

    plain = scan.to_pandas()
    arrow = scan.to_pandas(types_mapper=pd.ArrowDtype)

    assert list(plain.columns) == ["n", "f", "ts", "name"]
    assert len(plain) == 55
    assert str(plain["ts"].dtype) == "datetime64[us, UTC]"
    assert arrow["n"].dtype == pd.ArrowDtype(pa.int64())
    assert rows_of(pa.Table.from_pandas(arrow, scan.schema)) == rows_of(scan.to_arrow())


def test_schemas_survive(table: Table) -> None:
    """[C12] Arrow types as the scan gives them; Polars' and DuckDB's own where they differ."""
    scan = table.scan()

    assert scan.to_pyarrow_dataset().schema == scan.schema
    assert scan.to_pyarrow_dataset().to_table().schema == scan.schema
    assert scan.scan_polars().collect_schema() == scan.to_polars().schema
    kinds = dict(zip(scan.to_duckdb().columns, map(str, scan.to_duckdb().types), strict=True))
    assert (kinds["ts"], kinds["huge"]) == ("TIMESTAMP WITH TIME ZONE", "DECIMAL(38,3)")
    assert kinds["device"].startswith("STRUCT(os VARCHAR, ")


# --- queries ----------------------------------------------------------------------------------

C = pl.col
POLARS = {
    "int": C("n") > 2**40,
    "int range": C("n").is_between(12, 2**40 + 45, closed="left"),
    "int and float": C("n") > 12.5,
    "nan is greatest": C("f") > 1,
    "not greater": ~(C("f") > 1),
    "nan": C("f") == NAN,
    "not nan": C("f").is_not_nan() & (C("f") < float("inf")),
    "zero": C("f") == 0,
    "float32": C("single") >= pl.lit(1.5, pl.Float32),
    "float32 and double": C("single") > 0.1,
    "float list": ~C("f").is_in([0.0, NAN]),
    "text": C("name") == "é%_",
    "text order": C("name") < "b",
    "begins": C("name").str.starts_with("a"),
    "ends": ~C("name").str.ends_with("_"),
    "holds": C("name").str.contains("%", literal=True),
    "regex": C("name").str.contains("^a.$"),
    "list": C("name").is_in(["a", "b"]),
    "list with null": ~C("name").is_in(["a", None]),
    "list of nothing": ~C("name").is_in([]),
    "missing": C("name").eq_missing(None) | C("n").eq_missing(13),
    "flag": C("flag"),
    "no flag": ~C("flag"),
    "unsigned": C("u") > 2**32 - 20,
    "unsigned and more": C("u") < 2**40,
    "decimal": C("money") > Decimal("3.5"),
    "huge": C("huge") > Decimal("12345678901234567890123456789012345.001") + 30,
    "day": C("day") == datetime(2023, 1, 2, tzinfo=UTC).date(),
    "days": C("day").is_in([datetime(2023, 1, 2, tzinfo=UTC).date()]),
    "moment": C("ts") >= START + timedelta(seconds=42),
    "other zone": C("ts").dt.convert_time_zone("Asia/Kolkata").dt.hour() == 5,
    "local": C("local") < datetime(1970, 1, 1),  # noqa: DTZ001
    "bytes": C("blob") == b"\xff",
    "field": C("device").struct.field("os") == "ios",
    "inner field": C("device").struct.field("inner").struct.field("n") > 1,
    "no inner": C("device").struct.field("inner").is_null(),
    "no struct": C("device").is_null(),
    "added": C("later").is_null(),
    "two columns": C("f") == C("later"),
    "unknown and known": (C("n") % 2 == 0) & (C("ts") < START + timedelta(seconds=20)),
    "unknown or known": (C("n") % 2 == 0) | (C("ts") < START + timedelta(seconds=20)),
    "not both": ~((C("n") % 2 == 0) & (C("ts") < START + timedelta(seconds=20))),
    "xor": C("flag") ^ (C("n") > 20),
    "window": C("n") > C("n").mean(),
    "constant": pl.lit(True) & (C("n") > 50),  # noqa: FBT003
}  # fmt: skip


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("name", POLARS)
def test_lazy_polars_answers_as_polars_does_on_all_rows(
    table: Table, name: str, engine: Any
) -> None:
    """[C12] What is pushed into the scan, and what Polars keeps for itself, give one answer."""
    predicate = POLARS[name]
    scan = table.scan(["n", "ts", "f", "single", "name", "flag", "u", "money", "huge", "day",
                       "local", "blob", "device", "later", "_seq"])  # fmt: skip
    expected = scan.to_polars().filter(predicate)

    found = scan.scan_polars().filter(predicate).collect(engine=engine)

    assert rows_of(found.to_arrow()) == rows_of(expected.to_arrow())
    narrow = scan.scan_polars().filter(predicate).select("_seq").collect(engine=engine)
    assert narrow["_seq"].to_list() == expected["_seq"].to_list()
    counted = scan.scan_polars().filter(predicate).select(pl.len()).collect(engine=engine)
    assert counted.item() == len(expected)


LAZY: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "head then filter": lambda f: f.head(10).filter(C("n") > 9),
    "filter then head": lambda f: f.filter(C("n") > 9).head(10),
    "tail": lambda f: f.tail(3),
    "slice": lambda f: f.slice(4, 3).filter(C("n") > 10),
    "row index": lambda f: f.with_row_index().filter(C("n") > 9).head(5),
    "self join": lambda f: f.join(f, on="n").filter(C("n") < 20).sort("n"),
    "group": lambda f: f.group_by("name").agg(C("f").count(), C("n").sum()).sort("name"),
    "twice": lambda f: pl.concat([f.filter(C("n") < 9), f.filter(C("n") > 50)]),
    "length": lambda f: f.head(7).select(pl.len()),
    "first": lambda f: f.head(3).select("name"),
}


@pytest.mark.parametrize(
    "request_", [{}, {"limit": 30}, {"order_by": "n", "descending": True}], ids=str
)
@pytest.mark.parametrize("name", LAZY)
def test_lazy_frames_of_polars_mean_what_eager_ones_do(
    table: Table, name: str, request_: dict[str, Any]
) -> None:
    """[C12] Rows are counted before they are filtered where the query says so."""
    scan = table.scan(["n", "name", "f"], **request_)

    found = LAZY[name](scan.scan_polars()).collect()

    assert rows_of(found.to_arrow()) == rows_of(
        LAZY[name](scan.to_polars().lazy()).collect().to_arrow()
    )


F, N = pc.field("f"), pc.field("n")
ARROW = {
    "int": N > 2**40,
    "int and float": pc.field("x.y") > 1.5,
    "ieee": F > 1,
    "not greater": ~(F > 1),
    "not equal": F != 1.5,
    "nan": F.is_nan(),
    "zeros": ~F.isin([0.0]),
    "list": pc.field("name").isin(["a", None]),
    "field": pc.field("device", "inner", "n") > 1,
    "computed": N + 1 > 2**40,
    "computed and known": (N + 1 > 2**40) & (pc.field("ts") > START + timedelta(seconds=50)),
    "not both": ~((N + 1 > 2**40) & (pc.field("ts") > START + timedelta(seconds=50))),
    "like": pc.match_like(pc.field("name"), r"%\%%"),
    "regex": pc.match_substring_regex(pc.field("name"), "^a"),
    "dots": pc.field("x.y") == 2,
    "two columns": pc.field("later") > F,
    "flag": ~pc.field("flag"),
    "decimal": pc.field("money") > Decimal("3.50"),
    "by place": pc.field(2) > 12,
}  # fmt: skip


@pytest.mark.parametrize("limit", [None, 30], ids=["whole", "limited"])
@pytest.mark.parametrize("name", ARROW)
def test_a_dataset_answers_as_pyarrow_does_on_all_rows(
    table: Table, name: str, limit: int | None
) -> None:
    """[C12] pyarrow's filters keep pyarrow's meaning, also for NaN, and none loses a row."""
    scan, wanted = table.scan(limit=limit), ARROW[name]
    truth = ds.dataset(scan.to_arrow())
    dataset = scan.to_pyarrow_dataset()

    assert rows_of(dataset.to_table(filter=wanted)) == rows_of(truth.to_table(filter=wanted))
    columns = ["later", "x.y", "n"]
    expected = rows_of(truth.to_table(columns=columns, filter=wanted))
    assert rows_of(dataset.to_table(columns=columns, filter=wanted)) == expected
    computed = {"twice": F * 2, "os": pc.field("device", "os")}
    assert rows_of(dataset.to_table(columns=computed, filter=wanted)) == rows_of(
        truth.to_table(columns=computed, filter=wanted)
    )
    assert dataset.count_rows(filter=wanted) == len(expected)
    assert rows_of(dataset.filter(wanted).to_table(columns=columns)) == expected
    assert dataset.filter(wanted).filter(N < 2**40).count_rows() == sum(
        one["n"] is not None and one["n"] < 2**40 for one in expected
    )


DUCK = [
    "n > 1099511627776",
    "f > 1",
    "NOT f > 1",
    "f <> 1.5",
    "f = 'nan'::DOUBLE",
    "f < 'nan'::DOUBLE",
    "f IN (0.0, 'nan'::DOUBLE)",
    "f NOT IN (0.0, 1.5)",
    "single > 0.1",
    "single = 1.5::FLOAT",
    "name IN ('a', 'b')",
    "name NOT IN ('a', 'b')",
    "name LIKE 'a%'",
    "name > 'a' AND name < 'c'",
    "name IS NULL",
    "flag",
    "NOT flag",
    "u > 4294967280",
    "money > 3.5",
    "huge = 12345678901234567890123456789012345.001 + 33",
    "day = DATE '2023-01-02'",
    "ts >= TIMESTAMPTZ '2023-11-14 00:00:42Z'",
    "ts BETWEEN TIMESTAMPTZ '2023-11-14 05:30:42+05:30' AND TIMESTAMPTZ '2023-11-14 00:00:50Z'",
    "local < TIMESTAMP '1970-01-01'",
    "blob = '\\xFF'::BLOB",
    "device.os = 'ios'",
    'device."inner".n > 1',
    'device."inner" IS NULL',
    "device IS NULL",
    "later IS NULL",
    '"x.y" = 2 AND f > 1',
    '"x.y" = 2 OR f > 1',
    "n % 2 = 0 AND f >= 1.5",
    "len(tags) > 0",
    "f > later",
    "f IS DISTINCT FROM 1.5",
    "n IN (SELECT n FROM truth WHERE n % 7 = 0)",
]


@pytest.mark.parametrize("limit", [None, 30], ids=["whole", "limited"])
@pytest.mark.parametrize("condition", DUCK)
def test_a_relation_answers_as_duckdb_does_on_all_rows(
    table: Table, database: duckdb.DuckDBPyConnection, condition: str, limit: int | None
) -> None:
    """[C12] The scan of a pushed filter against a table of DuckDB's own."""
    scan = table.scan([*table.scan().schema.names, "_seq"], limit=limit)
    copied = scan.to_arrow()
    database.execute("CREATE OR REPLACE TABLE truth AS SELECT * FROM copied")
    relation = scan.to_duckdb(database)

    sql = "SELECT _seq FROM {} WHERE " + condition + " ORDER BY _seq"
    found = database.sql(sql.format("relation")).fetchall()

    assert copied.num_rows
    assert found == database.sql(sql.format("truth")).fetchall()
    assert relation.filter(condition).count("*").fetchall() == [(len(found),)]
    streamed = database.from_arrow(scan)
    assert streamed.filter(condition).count("*").fetchall() == [(len(found),)]


ROWWISE = [predicate for name, predicate in POLARS.items() if name != "window"]
"""A mean over all rows is no predicate of one row; Polars keeps it from being pushed alone."""


def combined(leaves: list[Any]) -> st.SearchStrategy[Any]:
    """Predicates of a library under its own AND, OR and NOT."""
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: st.one_of(
            st.builds(operator.inv, inner),
            st.builds(operator.and_, inner, inner),
            st.builds(operator.or_, inner, inner),
        ),
        max_leaves=6,
    )


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(combined(ROWWISE))
def test_any_predicate_of_polars_keeps_its_meaning(table: Table, predicate: pl.Expr) -> None:
    """[C12] Known and unknown parts under AND, OR and NOT."""
    scan = table.scan(["_seq", *table.scan().schema.names])

    found = scan.scan_polars().filter(predicate).select("_seq").collect()

    assert found["_seq"].to_list() == scan.to_polars().filter(predicate)["_seq"].to_list()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(combined(list(ARROW.values())))
def test_any_expression_of_pyarrow_keeps_its_meaning(table: Table, wanted: Any) -> None:
    """[C12] Known and unknown parts under AND, OR and NOT."""
    scan = table.scan([*table.scan().schema.names, "_seq"])

    found = scan.to_pyarrow_dataset().to_table(columns=["_seq"], filter=wanted)

    truth = ds.dataset(scan.to_arrow()).to_table(columns=["_seq"], filter=wanted)
    assert found.column("_seq").to_pylist() == truth.column("_seq").to_pylist()


CONDITIONS = st.recursive(
    st.sampled_from(DUCK[:-1]),
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(parts)})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})"),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CONDITIONS)
def test_any_condition_of_duckdb_keeps_its_meaning(
    table: Table, database: duckdb.DuckDBPyConnection, condition: str
) -> None:
    """[C12] [E11] The scan of a pushed filter against a table of DuckDB's own."""
    scan = table.scan([*table.scan().schema.names, "_seq"])
    database.register("copied", scan.to_arrow())
    database.execute("CREATE TABLE IF NOT EXISTS own AS SELECT * FROM copied")
    database.register("ours", scan.to_duckdb(database))

    sql = "SELECT _seq FROM {} WHERE " + condition + " ORDER BY _seq"

    assert database.sql(sql.format("ours")).fetchall() == database.sql(sql.format("own")).fetchall()


def test_relations_are_joined_grouped_and_read_again(
    table: Table, database: duckdb.DuckDBPyConnection
) -> None:
    """[C12] Each query reads the scan anew, several times if it must."""
    database.register("visits", table.scan(["n", "name", "later"]).to_duckdb(database))

    joined = database.sql("SELECT count(*) FROM visits a JOIN visits b USING (n) WHERE b.n < 20")
    assert joined.fetchall() == [(13,)]
    grouped = "SELECT name, count(*) FROM visits GROUP BY name ORDER BY name NULLS LAST"
    first, again = database.sql(grouped).fetchall(), database.sql(grouped).fetchall()
    assert first == again
    assert sum(count for _, count in first) == 55
    assert database.sql("SELECT n FROM visits ORDER BY n LIMIT 2").fetchall() == [(5,), (6,)]


# --- what is read -----------------------------------------------------------------------------


@pytest.fixture
def watched() -> tuple[Table, WatchedStorage]:
    """Ten files of ten rows, and a store that notes what is read."""
    storage = WatchedStorage(open_storage(memory_url()))
    made = create_in(storage, EVENTS, time_column="ts")
    for first in range(0, 100, 10):
        made.append(events(first, 10))
    return made, storage


def files_read(storage: WatchedStorage, read: Callable[[], Any]) -> int:
    """How many data files an action reads."""
    storage.calls.clear()
    read()
    return len({path for name, path in storage.calls if name == "read_range" and "/shard-" in path})


def test_filters_of_all_libraries_prune(watched: tuple[Table, WatchedStorage]) -> None:
    """[C12] [E9] Nine of ten files are not touched; what cannot be pushed reads them all."""
    made, storage = watched
    scan = made.scan()
    relation = scan.to_duckdb(duckdb.connect())
    lazy, dataset = scan.scan_polars(), scan.to_pyarrow_dataset()

    asked: dict[str, Callable[[], int]] = {
        "polars": lambda: len(lazy.filter(C("n") >= 95).collect()),
        "polars, partly": lambda: len(lazy.filter((C("n") >= 95) & (C("n") % 1 == 0)).collect()),
        "dataset": lambda: dataset.to_table(filter=pc.field("n") >= 95).num_rows,
        "dataset, filtered": lambda: dataset.filter(pc.field("n") >= 95).count_rows(),
        "dataset, partly": lambda: dataset.count_rows(filter=(N >= 95) & (N + 0 >= 95)),
        "duckdb": lambda: duck_arrow(relation.filter("n >= 95")).num_rows,
        "duckdb, partly": lambda: duck_arrow(relation.filter("n >= 95 AND n % 1 = 0")).num_rows,
    }  # fmt: skip
    for name, count in asked.items():
        found: list[int] = []
        assert files_read(storage, lambda c=count, f=found: f.append(c())) == 1, name  # type: ignore[misc]
        assert found == [5], name
    assert files_read(storage, lambda: lazy.filter(C("n") % 2 == 0).collect()) == 10
    assert files_read(storage, lambda: dataset.count_rows(filter=N + 1 > 5)) == 10


def test_heads_stop_early(watched: tuple[Table, WatchedStorage]) -> None:
    """[C12] [O10] The first rows of a LazyFrame do not read the last files."""
    made, storage = watched
    lazy = made.scan_polars()

    assert files_read(storage, lambda: lazy.head(3).collect()) < 10
    assert lazy.head(3).collect()["n"].to_list() == [0, 1, 2]
    assert made.scan_polars(["n"], "n >= 50").head(1).collect()["n"].to_list() == [50]


def test_a_lazy_frame_and_a_relation_stay_at_their_version(tmp_path: Path) -> None:
    """[C2] [C12] Rows that come later are in a new scan."""
    made = strandline.create_table(tmp_path / "t", EVENTS, time_column="ts")
    made.append(events(0, 5))
    lazy, relation = made.scan_polars(), made.scan().to_duckdb()
    dataset = made.scan().to_pyarrow_dataset()

    made.append(events(5, 5))

    assert (len(lazy.collect()), duck_arrow(relation).num_rows, dataset.count_rows()) == (5, 5, 5)
    assert len(made.scan_polars().collect()) == 10


def test_rows_that_a_writer_has_not_flushed_are_there_too(tmp_path: Path) -> None:
    """[E4] [C12] A writer's scan in every library."""
    made = strandline.create_table(tmp_path / "t", EVENTS, time_column="ts")
    made.append(events(0, 5))
    with made.writer(wal=False, ack="buffered") as writer:
        writer.append(events(5, 5))
        scan = writer.scan()
        counts = (
            len(scan.scan_polars().filter(C("n") >= 3).collect()),
            scan.to_pyarrow_dataset().count_rows(filter=pc.field("n") >= 3),
            ds.Scanner.from_dataset(scan.to_pyarrow_dataset(), filter=N >= 3).count_rows(),
            duck_arrow(scan.to_duckdb().filter("n >= 3")).num_rows,
        )

    assert counts == (7, 7, 7, 7)


@pytest.mark.parametrize(
    "read",
    [
        lambda scan: scan.scan_polars().collect(),
        lambda scan: scan.to_pyarrow_dataset().to_table(),
        lambda scan: ds.Scanner.from_dataset(scan.to_pyarrow_dataset()).to_table(),
        lambda scan: duck_arrow(scan.to_duckdb()),
        pl.DataFrame,
        lambda scan: scan.to_pandas(),
    ],
    ids=["polars", "dataset", "dataset in C++", "duckdb", "stream", "pandas"],
)
def test_damaged_bytes_are_an_error_in_every_library(
    tmp_path: Path, read: Callable[[Scan], Any]
) -> None:
    """[X4] [C12] Pages and footers are checked on every road; no road returns other rows."""
    made = strandline.create_table(tmp_path / "t", EVENTS, time_column="ts")
    made.append(events(0, 50))
    file = Path(made.url, made.files().column("path")[0].as_py())
    intact = file.read_bytes()
    chunk = pq.read_metadata(file).row_group(0).column(0)
    in_page = chunk.data_page_offset + chunk.total_compressed_size - 5
    for position in (in_page, len(intact) - 60):
        flip(file, position)
        PAGES.clear()  # a footer that was verified before would still be right
        # DuckDB and Polars raise errors of their own, with our words in them.
        with pytest.raises(Exception, match="damaged"):
            read(made.scan())
        file.write_bytes(intact)


# --- pyarrow's C++ parts ----------------------------------------------------------------------


@pytest.mark.parametrize("piece_rows", [1, 15, 10**6])
@pytest.mark.parametrize(
    "request_",
    [{}, {"start_seq": 17, "end_seq": 41}, {"filter": "f > 1"}, {"limit": 12}, {"end_seq": 0},
     {"order_by": "n", "descending": True}, {"descending": True},
     {"filter": "name = 'nobody'"}],
    ids=str,
)  # fmt: skip
def test_joins_writes_and_unions_see_the_same_rows(
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_: dict[str, Any],
    piece_rows: int,
) -> None:
    """[C12] What pyarrow does without asking a Python class, in one piece or in many."""
    monkeypatch.setattr(arrow_dataset, "_PIECE_ROWS", piece_rows)
    scan = table.scan(["_seq", "n", "f", "name"], **request_)
    truth = scan.to_arrow()
    dataset = scan.to_pyarrow_dataset()

    assert rows_of(ds.Scanner.from_dataset(dataset).to_table()) == rows_of(truth)
    pieces = [fragment.to_table() for fragment in dataset.get_fragments()]
    assert rows_of(pa.concat_tables([truth.slice(0, 0), *pieces])) == rows_of(truth)
    assert ds.dataset([dataset, dataset]).count_rows() == 2 * truth.num_rows
    ordered = dataset.sort_by([("_seq", "descending")]).to_table()
    assert rows_of(ordered) == sorted(rows_of(truth), key=lambda one: -int(one["_seq"]))
    kept = dataset.filter(pc.field("_seq") >= 20)
    joined = kept.join(dataset, "_seq", join_type="inner", right_suffix="_again")
    assert joined.count_rows() == sum(one["_seq"] >= 20 for one in rows_of(truth))
    (tmp_path / "out").mkdir()
    ds.write_dataset(dataset, tmp_path / "out", format="feather")
    assert ds.dataset(tmp_path / "out", format="feather").count_rows() == truth.num_rows


@pytest.mark.parametrize("start_seq", [0, 17, 33])
def test_pieces_of_files_whose_numbers_interleave_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_seq: int
) -> None:
    """[C12] [T6] Each shard has a file with numbers from the whole batch."""
    monkeypatch.setattr(arrow_dataset, "_PIECE_ROWS", 1)
    made = strandline.create_table(
        tmp_path / "t", EVENTS, time_column="ts", shard_by="user", shards=4
    )
    made.append(events(0, 30))
    made.append(events(30, 30))
    scan = made.scan(["_seq"], start_seq=start_seq, end_seq=50)
    dataset = scan.to_pyarrow_dataset()

    found = ds.Scanner.from_dataset(dataset).to_table().column("_seq").to_pylist()

    assert found == list(range(start_seq, 50))
    assert len(dataset.files) > (2 if start_seq < 30 else 0)


def test_a_dataset_is_read_only_and_stays_in_its_process(table: Table) -> None:
    """[C12] Clear errors instead of surprises."""
    dataset = table.scan().to_pyarrow_dataset()

    with pytest.raises(InvalidInput, match="cannot be pickled"):
        pickle.dumps(dataset)
    with pytest.raises(InvalidInput, match="read, not changed"):
        dataset.filesystem.delete_file(dataset.files[0])
    with pytest.raises((InvalidInput, pa.ArrowInvalid, KeyError), match="nope"):
        dataset.to_table(columns=["nope"])
    assert dataset.head(3, columns=["n"]).column("n").to_pylist() == [5, 6, None]
    assert dataset.take([0, 2], columns=["x.y"]).num_rows == 2


# --- optional packages ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("pandas", lambda scan: scan.to_pandas()),
        ("polars", lambda scan: scan.to_polars()),
        ("polars", lambda scan: scan.scan_polars()),
        ("duckdb", lambda scan: scan.to_duckdb()),
    ],
)
def test_a_missing_package_is_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, package: str, use: Callable[[Scan], Any]
) -> None:
    """[C12] With the command that installs it."""
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(StrandlineError, match=f"pip install {package}"):
        use(table.scan())
