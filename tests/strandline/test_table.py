"""A table as users meet it: create, append, scan, look around, on every store."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import strandline
from strandline.versions import milliseconds
from tests.tables import SCHEMA, START_MS, Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_appended_is_what_is_scanned(place: Place) -> None:
    """[M1, C1] Rows come back in the order of their appends, with exactly their values."""
    table = place.create()
    first = table.append(events(0, 10))
    second = table.append(events(10, 5))

    scanned = place.open().scan().to_arrow()

    assert scanned.equals(pa.concat_tables([events(0, 10), events(10, 5)]))
    assert (first.first_seq, first.last_seq, first.rows) == (0, 9, 10)
    assert (second.first_seq, second.last_seq, second.version) == (10, 14, 3)


def test_a_moment_means_its_millisecond() -> None:
    """[C2] Also where seconds as a float lie a little below it: before 2004, and from 2038 on."""
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert milliseconds("2004-02-20T17:09:57.791") == 1_077_296_997_791
    for given in (*range(0, 10**9, 999_983), *range(2**41, 2**41 + 5_000)):
        moment = start + timedelta(milliseconds=given)
        assert milliseconds(moment) == milliseconds(moment.isoformat()) == given


def test_a_file_that_no_manifest_lists_is_invisible(tmp_path: Path) -> None:
    """[M1] A data file in the right folder adds no row: only the manifest decides."""
    table = Place(str(tmp_path / "t")).create()
    table.append(events(0, 3))
    (listed,) = (tmp_path / "t").rglob("batch-*.parquet")
    (listed.parent / "batch-1-00000000000000aa.parquet").write_bytes(listed.read_bytes())

    assert numbers_in(table) == [0, 1, 2]


def test_creating_is_version_one_and_cannot_be_done_twice(place: Place) -> None:
    """[C2] A second create is refused and changes nothing."""
    assert place.create().version == 1
    place.open().append(events(0, 3))

    with pytest.raises(strandline.TableExists, match="nothing was changed"):
        place.create()

    assert numbers_in(place.create(exist_ok=True)) == [0, 1, 2]


def test_opening_what_is_not_there_says_so(place: Place) -> None:
    """The error names the place and what to do."""
    with pytest.raises(strandline.TableNotFound, match="create_table"):
        place.open()


def test_appending_no_rows_commits_nothing(place: Place) -> None:
    """The version stays, and the result says where the next row would go."""
    table = place.create()
    table.append(events(0, 4))

    done = table.append(events(0, 0))

    assert (done.version, done.first_seq, done.rows) == (2, 4, 0)
    assert place.open().version == 2


def test_a_handle_is_live_and_a_scan_is_pinned(place: Place) -> None:
    """[C2] A scan made before a commit does not see it; the next scan does."""
    table, other = place.create(), place.open()
    table.append(events(0, 2))
    pinned = other.scan(columns=["n"])
    table.append(events(2, 2))

    assert pinned.to_arrow().column("n").to_pylist() == [0, 1]
    assert numbers_in(other) == [0, 1, 2, 3]


def test_time_travel_by_version_and_by_time(place: Place) -> None:
    """[C2] Each version gives the rows it had; a time gives the version that was newest then."""
    table = place.create()
    for batch in range(4):
        table.append(events(batch, 1))
    records = table.history()

    assert [r.version for r in records] == [5, 4, 3, 2, 1]
    for record in records:
        rows = list(range(record.version - 1))
        assert numbers_in(place.open(version=record.version)) == rows
        assert numbers_in(place.open(as_of=record.committed_at)) == rows
        moment = datetime.fromtimestamp(record.committed_at / 1000, UTC)
        assert numbers_in(place.open(as_of=moment.isoformat())) == rows
    with pytest.raises(strandline.VersionNotFound):
        place.open(as_of=records[-1].committed_at - 1)
    for version in (0, 6, -1, 2**70):
        with pytest.raises(strandline.VersionNotFound):
            place.open(version=version)


def test_time_travel_reaches_behind_the_history_in_the_manifest(tmp_path: Path) -> None:
    """[C2, C6] Old versions are found by halving, and history walks back to the first commit."""
    place = Place(str(tmp_path / "t"))
    table = place.create()
    for batch in range(80):
        table.append(events(batch, 1))
    records = table.history()

    assert records[-1].operation == "create"
    assert [r.version for r in records] == list(range(records[0].version, 0, -1))
    for record in (records[-1], records[-3], records[40], records[2]):
        if record.operation == "append":
            rows = [r.rows for r in records if r.version <= record.version]
            assert len(numbers_in(place.open(as_of=record.committed_at))) == sum(rows)
    assert len(table.history(limit=3)) == 3


def test_a_pinned_handle_cannot_write(place: Place) -> None:
    """The error says how to get a handle that can."""
    place.create().append(events(0, 1))

    with pytest.raises(strandline.ReadOnlyTable, match="without version"):
        place.open(version=1).append(events(0, 1))


def test_the_tail_is_the_next_sequence_number_and_the_newest_time(place: Place) -> None:
    """[O3] An empty table has tail 0."""
    table = place.create()
    assert (table.tail().next_seq, table.tail().last_ts) == (0, 0)

    table.append(events(0, 5))

    tail = place.open().tail()
    assert (tail.next_seq, tail.last_ts, tail.version) == (5, START_MS + 4000, 2)


def test_files_lists_every_data_file_with_its_numbers(place: Place) -> None:
    """[M2, C6] Paths, sequence numbers, rows, sizes and schema version of each segment."""
    table = place.create()
    table.append(events(0, 5))
    table.evolve(add={"extra": "int32"})
    table.append(events(5, 2))

    files = table.files()

    assert files.column("min_seq").to_pylist() == [0, 5]
    assert files.column("max_seq").to_pylist() == [4, 6]
    assert files.column("row_count").to_pylist() == [5, 2]
    assert files.column("schema_version").to_pylist() == [1, 2]
    assert all(p.startswith("w") and "/shard-0/batch-" in p for p in files["path"].to_pylist())


def test_scans_take_columns_filters_bounds_and_limits(place: Place) -> None:
    """[M1, E10] Each part of a request alone and together, hidden columns on demand."""
    table = place.create()
    for batch in range(3):
        table.append(events(batch * 10, 10))

    assert numbers_in(table, filter="n >= 5 AND n < 8") == [5, 6, 7]
    assert numbers_in(table, filter=strandline.col("user") == "user-3") == [3, 10, 17, 24]
    assert numbers_in(table, start_seq=27) == [27, 28, 29]
    assert numbers_in(table, end_seq=2) == [0, 1]
    assert numbers_in(table, start_ts=START_MS + 28_000) == [28, 29]
    assert numbers_in(table, end_ts=START_MS + 1000) == [0, 1]
    assert numbers_in(table, limit=4) == [0, 1, 2, 3]
    assert numbers_in(table, filter="n > 8", limit=3) == [9, 10, 11]
    assert numbers_in(table, limit=0) == []
    hidden = table.scan(columns=["_seq", "n", "_ts", "_window"], start_seq=11, end_seq=12)
    assert hidden.to_arrow().to_pylist() == [
        {"_seq": 11, "n": 11, "_ts": START_MS + 11_000, "_window": 1_697_760_000_000}
    ]


@pytest.mark.parametrize(
    "request_",
    [
        {"columns": ["nope"]},
        {"columns": "n"},
        {"columns": []},
        {"columns": ["n", "n"]},
        {"columns": 5},
        {"columns": [["n"]]},
        {"order_by": ["n"]},
        {"limit": 2**63},
        {"filter": "nope > 1"},
        {"filter": "n >"},
        {"filter": "user > 5"},
        {"filter": 5},
        {"limit": -1},
        {"start_seq": "3"},
        {"end_ts": True},
    ],
)
def test_bad_requests_are_refused_clearly(request_: dict[str, Any]) -> None:
    """A scan that cannot be meant is an error, never an empty answer."""
    table = Place(memory_url()).create()
    table.append(events(0, 1))

    with pytest.raises(strandline.InvalidInput):
        table.scan(**request_).to_arrow()


def test_rows_are_taken_from_every_kind_of_source() -> None:
    """[C12] Arrow, batches, readers, pandas, Polars, dicts and Arrow C streams give the same."""
    table = Place(memory_url()).create()
    rows = events(0, 3)
    sources = [
        rows,
        rows.to_batches()[0],
        rows.to_reader(),
        rows.to_pandas(),
        pl.from_arrow(rows),
        rows.to_pylist(),
        rows.to_pydict(),
    ]
    for source in sources:
        table.append(source)

    expected = pa.concat_tables([rows] * len(sources))
    assert table.scan().to_arrow().equals(expected)
    assert table.scan().to_polars().equals(pl.from_arrow(expected))
    pd.testing.assert_frame_equal(table.scan().to_pandas(), expected.to_pandas())
    assert pa.table(table.scan(limit=2)).equals(expected.slice(0, 2))


def test_bad_rows_write_nothing(place: Place) -> None:
    """[E1] The error names row and field; version and rows are as before."""
    table = place.create()
    table.append(events(0, 1))
    bad = [{"ts": datetime(2023, 1, 1, tzinfo=UTC), "n": 1}, {"ts": None, "n": "two"}]

    with pytest.raises(strandline.InvalidRow, match=r"row 1, field 'n'"):
        table.append(bad)
    with pytest.raises(strandline.InvalidInput, match="nope"):
        table.append([{"nope": 1}])

    assert place.open().version == 2
    assert numbers_in(table) == [0]


def test_unusual_values_survive() -> None:
    """NaN, both zeros, infinities, empty text, NUL and far-away dates come back unchanged."""
    table = Place(memory_url()).create(
        {"f": "float64", "s": "string", "d": "date"}, time_column=None
    )
    floats = [math.nan, 0.0, -0.0, math.inf, -math.inf, None, 5e-324]
    texts = ["", "\0", "é", "\U0010ffff", None, "x" * 5000, " "]
    days = pa.array([0, -719162, 2932896, None, 1, 2, 3], pa.int32()).cast(pa.date32())
    table.append(pa.table({"f": floats, "s": texts, "d": days}))

    back = table.scan().to_arrow()

    assert [repr(v) for v in back.column("f").to_pylist()] == [repr(v) for v in floats]
    assert back.column("s").to_pylist() == texts
    assert back.column("d").equals(pa.chunked_array([days]))
    assert table.scan(filter="f > 1e300").count() == 2
    assert table.scan(filter="f = 0").count() == 2


def test_a_thousand_columns_work(tmp_path: Path) -> None:
    """Wide tables append, scan and filter; stats are kept for the first 32 columns."""
    schema = {f"c{i}": "int64" for i in range(1000)}
    table = Place(str(tmp_path / "t")).create(schema, time_column=None)
    table.append({f"c{i}": [i, i + 1] for i in range(1000)})
    table.append({f"c{i}": [-i - 5] for i in range(1000)})

    rows = strandline.open_table(tmp_path / "t").scan(filter="c999 = 1000 AND c3 > 0").to_arrow()

    assert rows.num_rows == 1
    assert rows.num_columns == 1000
    assert rows.column("c500").to_pylist() == [501]


def test_rows_spread_over_windows_come_back_in_order(place: Place) -> None:
    """[O1] A batch that is split by time keeps the order it was given in."""
    table = place.create(ttl="1d")
    order = [5, 0, 9, 3, 7, 1, 8, 2, 6, 4]
    shuffled = events(0, 10, step_ms=1_800_000).take(pa.array(order))
    table.append(shuffled)
    table.append(events(10, 2))

    scanned = table.scan(columns=["_seq", "n"]).to_arrow()

    assert scanned.column("n").to_pylist() == [*order, 10, 11]
    assert scanned.column("_seq").to_pylist() == list(range(12))
    assert len(set(table.files().column("window_start").to_pylist())) > 3


def test_too_many_windows_is_refused_with_the_extremes() -> None:
    """One wrong timestamp cannot create hundreds of prefixes."""
    table = Place(memory_url()).create(ttl="10m")

    with pytest.raises(strandline.TooManyWindows, match=str(START_MS)):
        table.append(events(0, 300, step_ms=60_000))

    assert table.version == 1


@pytest.mark.parametrize(
    "moment",
    [datetime(1969, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
)
def test_times_before_1970_are_refused(moment: datetime) -> None:
    """Hostile timestamps name their row; nothing is written."""
    table = Place(memory_url()).create()

    with pytest.raises(strandline.InvalidRow, match="field 'ts'"):
        table.append([{"ts": datetime(2023, 1, 1, tzinfo=UTC)}, {"ts": moment}])

    assert table.version == 1


def test_the_future_is_capped_in_ts_but_not_in_the_column() -> None:
    """[O2] The user's column is never changed; `_ts` is at most the writer's clock."""
    table = Place(memory_url()).create()
    far = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    table.append([{"ts": far, "n": 1}, {"ts": None, "n": 2}])

    row, without_time = table.scan(columns=["ts", "_ts"]).to_arrow().to_pylist()

    assert row["ts"] == far
    assert row["_ts"] == without_time["_ts"]
    assert row["_ts"] < far.timestamp() * 1000
    assert without_time["ts"] is None


def test_a_clamped_table_never_goes_back() -> None:
    """[O2] An earlier time is raised to the tail's; the column keeps what was given."""
    table = Place(memory_url()).create(order="clamp")
    table.append(events(10, 2))
    table.append(events(0, 3))

    rows = table.scan(columns=["n", "_ts"]).to_arrow().to_pylist()

    assert [r["n"] for r in rows] == [10, 11, 0, 1, 2]
    assert [r["_ts"] - START_MS for r in rows] == [10_000, 11_000, 11_000, 11_000, 11_000]


@pytest.mark.parametrize(
    "options",
    [
        {"time_column": "nope"},
        {"time_column": "user"},
        {"ttl": "soon"},
        {"ttl": -1},
        {"order": "sideways"},
        {"timestamping": "client"},
        {"stats_columns": "n"},
        {"stats_columns": ["nope"]},
        {"row_group_rows": 0},
        {"shards": 4},
        {"uncapped": 1},
        {"shard": 4},
        {"stats_columns": 5},
    ],
)
def test_bad_table_options_are_refused(options: dict[str, Any]) -> None:
    """Nothing is created, and the message names the option or the column."""
    place = Place(memory_url())

    with pytest.raises(strandline.InvalidInput):
        place.create(**options)

    with pytest.raises(strandline.TableNotFound):
        place.open()


@pytest.mark.parametrize(
    "schema", [{}, [], {"_x": "int64"}, {"a": "int65"}, {"A": "int64", "a": "int64"}, 5, None]
)
def test_bad_schemas_are_refused(schema: object) -> None:
    """Reserved names, unknown types and names that differ by case only."""
    with pytest.raises(strandline.InvalidInput):
        strandline.create_table(memory_url(), schema)


def test_the_schema_of_a_scan_is_the_schema_of_the_table(place: Place) -> None:
    """Empty answers have it too."""
    table = place.create()

    assert table.schema.equals(SCHEMA)
    assert table.scan().to_arrow().schema.equals(SCHEMA)
    assert table.scan(filter="n > 5").to_arrow().num_rows == 0
