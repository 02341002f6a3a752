"""Keyed tables: whatever is asked, the newest row of each key answers."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in, open_in
from strandline.catalog.page_cache import PAGES
from strandline.readers import keyed
from strandline.readers.request import Request
from strandline.readers.scan import Scan
from strandline.readers.split_reader import SplitReader
from strandline.tableformat import paths, rolling
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import And, Compare, Expression, Not, Or
from strandline.tableformat.storage import open_storage
from tests import filter_cases
from tests.edited import commit_by_hand
from tests.stores import WatchedStorage
from tests.tables import memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table
    from tests.tables import Place

KEY_NAMES = tuple(name for name in filter_cases.TYPES if name not in ("f32", "f64"))
OTHER_NAMES = ("i64", "name", "f64", "flag")
PAGED = {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1}
STEP_MS = 25_000
"""Rows are this far apart, in windows of a minute."""


# --- an oracle ----------------------------------------------------------------------------------


def newest(rows: list[dict[str, Any]], key: tuple[str, ...]) -> list[dict[str, Any]]:
    """By hand, row by row."""
    best: dict[Any, dict[str, Any]] = {}
    for row in rows:
        which = tuple(row[name] for name in key)
        if which not in best or (row["_ts"], row["_seq"]) > (
            best[which]["_ts"],
            best[which]["_seq"],
        ):
            best[which] = row
    return sorted(best.values(), key=lambda row: row["_seq"])


def truth(expression: Expression, row: dict[str, Any]) -> bool | None:
    """As `filter_cases.truth`, for filters on hidden columns too."""
    match expression:
        case Not(inner):
            found = truth(inner, row)
            return None if found is None else not found
        case And(parts) | Or(parts):
            found_all = [truth(part, row) for part in parts]
            first = isinstance(expression, Or)
            return first if first in found_all else (None if None in found_all else not first)
        case Compare(name, operator, value) if name.startswith("_"):
            return filter_cases._compared(operator, row[name], value)  # noqa: SLF001
        case _:
            return filter_cases.truth(expression, row)


@cache  # building a strategy costs more than drawing from it
def filters(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    """Leaves on user columns and on hidden ones, under AND, OR and NOT."""
    hidden = st.builds(
        Compare,
        st.sampled_from(["_seq", "_ts", "_window"]),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.integers(0, 6).map(lambda n: n * STEP_MS) | st.integers(0, 12),
    )
    return st.recursive(
        st.one_of(filter_cases.leaves(names, foreign=False), hidden),
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=4,
    )


class Drawn:
    """A random keyed table, with its rows in plain Python beside it."""

    def __init__(self, data: st.DataObject) -> None:
        draw = data.draw
        self.key = tuple(
            draw(st.lists(st.sampled_from(KEY_NAMES), min_size=1, max_size=2, unique=True))
        )
        self.names = tuple(dict.fromkeys([*self.key, draw(st.sampled_from(OTHER_NAMES))]))
        # Few values, so that equal keys meet.
        self.values = {name: filter_cases.VALUES[name][:3] for name in self.key}
        row = st.tuples(
            filter_cases.rows_of(self.names),
            st.tuples(*(st.sampled_from(self.values[name]) for name in self.key)),
            st.integers(0, 6),
        )
        batches = draw(st.lists(st.lists(row, min_size=1, max_size=4), max_size=5))
        sharded = draw(st.sampled_from([None, *self.key]))
        self.rows: list[dict[str, Any]] = []
        kinds = {name: filter_cases.TYPES[name] for name in self.names}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in PAGED.items() if draw(st.booleans()) else ():
                patch.setattr(rolling, name, value)
            self.table = create_in(
                open_storage(memory_url()),
                {**kinds, "at": "int64"},
                time_column="at",
                ttl="10m",
                primary_key=list(self.key),
                shard_by=sharded,
                shards=1 if sharded is None else 3,
            )
            for batch in batches:
                self._append(batch)

    def _append(self, batch: list[Any]) -> None:
        made = []
        for row, key, step in batch:
            values = {**row, **dict(zip(self.key, key, strict=True))}
            at = step * STEP_MS
            window = at - at % 60_000
            hidden = {"_seq": len(self.rows) + len(made), "_ts": at, "_window": window}
            made.append({**values, "at": at, **hidden})
        rows = filter_cases.table_of([{n: r[n] for n in filter_cases.TYPES} for r in made])
        times = pa.array([row["at"] for row in made], pa.int64())
        self.table.append(rows.select(list(self.names)).append_column("at", times))
        self.rows += made

    def scan(self, floor_ts: int, trim_seq: int, **request: Any) -> list[int]:
        """The sequence numbers that a scan gives, with a floor and a trim point."""
        table = self.table
        found = Scan(
            table.manifest_service,
            table.manifest,
            Request(columns=["_seq"], **request),
            floor_ts=floor_ts,
            trim_seq=trim_seq,
        )
        numbers: list[int] = found.to_arrow().column("_seq").to_pylist()
        return numbers


BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "start_seq": st.integers(0, 12),
        "end_seq": st.integers(0, 12),
        "start_ts": st.integers(0, 6).map(lambda n: n * STEP_MS),
        "end_ts": st.integers(0, 6).map(lambda n: n * STEP_MS),
        "limit": st.integers(0, 4),
    },
)


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "read again"])
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_scans_give_the_newest_row_of_each_key_if_it_matches(
    data: st.DataObject,
    keep: bool,  # noqa: FBT001
) -> None:
    """[KEY-3] [KEY-4] [KEY-5] [E11] Random keys, filters, bounds, floors and trim points."""
    drawn = Drawn(data)
    floor_ts = data.draw(st.sampled_from([0, 0, 0, STEP_MS, 3 * STEP_MS]))
    trim_seq = data.draw(st.sampled_from([0, 0, 0, 1, 4]))
    visible = [r for r in drawn.rows if r["_seq"] >= trim_seq and r["_ts"] >= floor_ts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.readers.scan.KEEP_BYTES", 2**30 if keep else -1)
        for _ in range(3):
            expression = data.draw(st.none() | filters(drawn.names))
            bounds = data.draw(BOUNDS)
            for all_rows in (False, True):
                candidates = visible if all_rows else newest(visible, drawn.key)
                expected = [
                    row["_seq"]
                    for row in candidates
                    if (expression is None or truth(expression, row) is True)
                    and bounds.get("start_seq", 0) <= row["_seq"] < bounds.get("end_seq", 99)
                    and bounds.get("start_ts", 0) <= row["_ts"] <= bounds.get("end_ts", 10**9)
                ][: bounds.get("limit")]
                found = drawn.scan(
                    floor_ts, trim_seq, filter=expression, all_rows=all_rows, **bounds
                )
                assert found == expected, (str(expression), bounds, all_rows)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_keys_are_found_whatever_their_type(data: st.DataObject) -> None:
    """[M8] `exists` and `get` against a look at every row, as Python values and as Arrow."""
    drawn = Drawn(data)
    wanted = data.draw(
        st.lists(
            st.tuples(*(st.sampled_from(filter_cases.VALUES[name][:5]) for name in drawn.key)),
            max_size=6,
        )
    )
    held = {tuple(row[n] for n in drawn.key): row["_seq"] for row in newest(drawn.rows, drawn.key)}
    given_keys: list[Any] = [key[0] for key in wanted] if len(drawn.key) == 1 else wanted
    arrow = pa.table(
        {
            name: pa.array([key[i] for key in wanted], drawn.table.schema.field(name).type)
            for i, name in enumerate(drawn.key)
        }
    )
    forms = [given_keys, arrow, arrow.to_struct_array()]
    if len(drawn.key) == 1:
        forms += [arrow.column(0), arrow.column(0).combine_chunks()]

    for form in forms:
        assert drawn.table.exists(form).tolist() == [key in held for key in wanted]
        found = drawn.table.get(form, columns=["_seq"])
        assert found.column("_seq").to_pylist() == [held[key] for key in wanted if key in held]


def test_duckdb_gives_the_same_winners(tmp_path: Path) -> None:
    """[M8] [E11] An engine that is not ours, over 30,000 rows in late and repeated batches."""
    chance = np.random.default_rng(4)
    table = strandline.create_table(
        tmp_path / "t",
        {"at": "int64", "shop": "string", "item": "int32", "x": "float64"},
        time_column="at",
        ttl="1h",
        primary_key=["shop", "item"],
        shard_by="shop",
        shards=4,
        sort_by=["item"],
    )
    for _ in range(10):
        table.append(
            pa.table(
                {
                    "at": chance.integers(0, 50, 3_000) * 10_000,
                    "shop": pa.array([f"s{n}" for n in chance.integers(0, 20, 3_000)]),
                    "item": pa.array(chance.integers(0, 60, 3_000), pa.int32()),
                    "x": chance.random(3_000),
                }
            )
        )
    stored = table.scan([*table.schema.names, "_seq", "_ts"], all_rows=True).to_arrow()
    assert stored.num_rows == 30_000
    engine = duckdb.connect()
    engine.register("stored", stored)
    best = (
        "SELECT * FROM stored QUALIFY "
        "row_number() OVER (PARTITION BY shop, item ORDER BY _ts DESC, _seq DESC) = 1"
    )
    for condition in (
        "true",
        "x > 0.5",
        "shop = 's3' AND x < 0.9",
        "item IN (1, 2, 3) OR shop >= 's7'",
        "_ts >= 400000",
        "_ts < 400000",
        "_seq > 20000 AND item < 30",
    ):
        query = f"SELECT shop, item, x FROM ({best}) WHERE {condition} ORDER BY _seq"
        expected = engine.sql(query).to_arrow_table()
        found = table.scan(["shop", "item", "x"], filter=condition).to_arrow()
        assert found.to_pylist() == expected.to_pylist(), condition
        assert found.num_rows


# --- by example -----------------------------------------------------------------------------------


SCHEMA = {"at": "int64", "id": "int64", "v": "string"}


def make(place: str | Path, **config: Any) -> Table:
    """A table keyed by `id`."""
    config = {"time_column": "at", "primary_key": "id", **config}
    return strandline.create_table(place, SCHEMA, **config)


def row(at: int, key: int, v: str) -> dict[str, Any]:
    """One row."""
    return {"at": at, "id": key, "v": v}


def values(found: pa.Table) -> list[str]:
    """Column `v`."""
    return found.column("v").to_pylist()  # type: ignore[no-any-return]


def test_an_append_replaces_rows_by_key(place: Place) -> None:
    """[KEY-3] [M8] On disk, in memory and on S3; the later of two equal times wins."""
    table = place.create(SCHEMA, time_column="at", primary_key="id")
    table.append([row(1, 1, "a"), row(1, 2, "b"), row(1, 1, "c")])
    table.append([row(0, 2, "too late"), row(2, 3, "d"), row(1, 1, "e")])

    assert values(table.scan().to_arrow()) == ["b", "d", "e"]
    assert values(table.scan(all_rows=True).to_arrow()) == ["a", "b", "c", "too late", "d", "e"]
    assert table.scan().count() == 3
    assert values(table.get([3, 9, 1])) == ["d", "e"]
    assert table.exists([3, 9, 1]).tolist() == [True, False, True]
    assert values(place.open(version=2).scan().to_arrow()) == ["b", "c"]
    assert place.open(version=2).exists([1, 3]).tolist() == [True, False]


def test_every_road_to_rows_knows_keys(tmp_path: Path) -> None:
    """[KEY-5] Scans give winners; a stream gives every change, so that followers can apply it."""
    table = make(tmp_path / "t")
    table.append([row(1, 1, "a"), row(1, 2, "b")])
    table.append([row(2, 1, "c")])
    table.append([row(1, 2, "d")])
    every = ["a", "b", "c", "d"]

    assert values(table.by_key(by="id")) == ["c", "d"]
    assert values(table.by_key([1], by="id", all_rows=True)) == ["a", "c"]
    assert values(table.by_key([1], by="id", end_ts=1)) == []
    assert table.scan().to_pandas()["v"].tolist() == ["c", "d"]
    assert table.scan().to_polars()["v"].to_list() == ["c", "d"]
    assert values(table.scan().to_reader().read_all()) == ["c", "d"]
    assert values(table.read().rows) == every
    assert values(table.read(["v"], from_seq=1, count=2).rows) == ["b", "c"]
    assert values(table.read(from_ts=1).rows) == every
    assert values(table.changes(1).to_arrow()) == every
    assert values(table.changes(2, filter="v = 'c'").to_arrow()) == ["c"]
    with table.follow(0) as followed:
        batches = [next(followed), next(followed), next(followed)]
    assert [v for batch in batches for v in batch.column("v").to_pylist()] == every
    assert table.files().column("row_count").to_pylist() == [2, 1, 1]
    assert table.verify(deep=True).ok
    assert "newest row of each key (id)" in table.scan().explain()
    assert "newest" not in table.scan(all_rows=True).explain()


def test_a_writer_sees_what_its_own_rows_replace(tmp_path: Path) -> None:
    """[E4] Rows in memory win over committed ones, and lose to them, by the same rule."""
    table = make(tmp_path / "t")
    table.append([row(5, 1, "a"), row(5, 2, "b"), row(5, 3, "c")])
    with table.writer("w", wal=False, ack="buffered", flush_age="1h") as writer:
        writer.append([row(6, 1, "newer"), row(4, 2, "older"), row(1, 4, "first")])
        writer.append(row(2, 4, "second"))
        assert values(writer.scan().to_arrow()) == ["b", "c", "newer", "second"]
        assert values(writer.scan(filter="v = 'older'").to_arrow()) == []
        assert len(values(writer.scan(all_rows=True).to_arrow())) == 7
        with pytest.raises(strandline.InvalidRow, match="row 0, field 'id'"):
            writer.append({"at": 7, "v": "no key"})
    assert values(table.scan().to_arrow()) == ["b", "c", "newer", "second"]


def test_what_is_trimmed_no_longer_counts_and_what_expires_takes_its_losers_along(
    tmp_path: Path,
) -> None:
    """[KEY-3] [VIS-1] [O4] Only visible rows compete, also in older versions."""
    table = make(tmp_path / "t")
    table.append([row(9, 1, "winner"), row(5, 2, "b")])
    table.append([row(3, 1, "loser"), row(4, 2, "late")])
    commit_by_hand(table, trim_seq=1)
    assert values(table.scan().to_arrow()) == ["b", "loser"]
    assert values(table.get([1, 2])) == ["loser", "b"]
    assert values(strandline.open_table(table.url, version=3).scan().to_arrow()) == ["b", "loser"]
    assert values(strandline.open_table(table.url, version=2).scan().to_arrow()) == ["b"]
    assert strandline.open_table(table.url, version=2).exists([1, 2]).tolist() == [False, True]

    commit_by_hand(table, floor_ts=4)
    assert values(table.scan().to_arrow()) == ["b"]
    commit_by_hand(table, floor_ts=6)
    assert table.scan().count() == 0
    assert table.exists([1, 2]).tolist() == [False, False]


def test_renamed_and_added_columns_do_not_disturb_keys(tmp_path: Path) -> None:
    """[M3] [EVO-6] The key is known by its ids; old files have the old names."""
    table = make(tmp_path / "t")
    table.append([row(1, 1, "a"), row(1, 2, "b")])
    table.evolve(rename={"id": "key", "v": "id"}, add={"more": "int64"}, reorder=["more"])
    table.append([{"at": 2, "key": 1, "id": "c", "more": 7}])

    found = table.scan(["key", "id", "more"]).to_arrow().to_pylist()
    assert found == [{"key": 2, "id": "b", "more": None}, {"key": 1, "id": "c", "more": 7}]
    assert table.get([2, 1], ["id"]).column(0).to_pylist() == ["b", "c"]
    for change in ({"drop": ["key"]}, {"widen": {"key": "decimal(20,0)"}}):
        with pytest.raises(InvalidInput, match="key"):
            table.evolve(**change)


# --- requests and memory --------------------------------------------------------------------------


def stored(rows_each: int, **config: Any) -> tuple[str, WatchedStorage, Table]:
    """Twenty appends of ascending ids, rolled into pages; a handle that notes its requests."""
    url = memory_url()
    table = make(url, **config)
    for n in range(20):
        ids = np.arange(n * rows_each, (n + 1) * rows_each)
        table.append({"at": ids, "id": ids, "v": [f"v{i}" for i in ids]})
    PAGES.clear()
    store = WatchedStorage(open_storage(url))
    return url, store, open_in(store)


OPENED: list[str] = []
"""Data files that were opened since the last look."""


@pytest.fixture(autouse=True)
def _watch_files(monkeypatch: pytest.MonkeyPatch) -> None:
    open_file = SplitReader.open

    def watched(reader: SplitReader) -> Any:
        OPENED.append(reader._split.entry.path)  # noqa: SLF001
        return open_file(reader)

    monkeypatch.setattr(SplitReader, "open", watched)


def data_reads(store: WatchedStorage) -> int:
    """How many data files were read since the last look; a second pass counts again."""
    found = len(OPENED)
    OPENED.clear()
    store.calls.clear()
    return found


def test_existence_checks_read_few_files_and_no_metadata_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[M8] Pruned by stats in the manifest service; asking again asks for the head only."""
    for name, value in {"ROLL_AT": 4, "ROLL_STEP": 2, "LEAST_PAGE": 2}.items():
        monkeypatch.setattr(rolling, name, value)
    _, store, table = stored(10)
    OPENED.clear()
    assert table.manifest.windows

    assert table.exists([5, 55, 155, 1_000]).tolist() == [True, True, True, False]
    pages = [path for _, path in store.calls if path.startswith(paths.PAGES)]
    assert pages
    assert data_reads(store) == 3
    head = paths.manifest_path(table.version + 1)
    for keys in ([5, 55, 155, 1_000], [7, 51], [12_345]):
        table.exists(keys)
        assert store.calls == [("read", head)]
        store.calls.clear()
    assert table.get([5, 55], ["v"]).column(0).to_pylist() == ["v5", "v55"]
    assert data_reads(store) == 2


def test_a_small_scan_reads_each_file_once_and_a_large_one_keeps_only_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[E10] Two passes over what does not fit; the second leaves out files without a winner."""
    _, store, table = stored(10)
    OPENED.clear()
    table.append([row(10_000 + i, i, "new") for i in range(25)])
    assert len(values(table.scan().to_arrow())) == 200
    assert data_reads(store) == 21
    monkeypatch.setattr("strandline.readers.scan.KEEP_BYTES", 0)
    assert len(values(table.scan().to_arrow())) == 200
    assert data_reads(store) == 21 + 19
    assert len(values(table.scan(filter="id < 30").to_arrow())) == 30
    assert data_reads(store) == 4 + 2


def test_existence_checks_stop_when_all_keys_are_found() -> None:
    """[M8] Newest files first: what is asked for was most often written lately."""
    _, store, table = stored(10)
    OPENED.clear()
    for n in range(8):
        table.append([row(10_000 + n, i, "again") for i in range(200)])
    data_reads(store)

    assert table.exists(range(200)).all()
    assert data_reads(store) <= 3


def test_a_shard_key_in_the_primary_key_resolves_shard_by_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[T6] Less memory, the same rows; not where the shard is decided by another column."""
    made: list[keyed.Newest] = []

    class Counted(keyed.Newest):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(keyed, "Newest", Counted)
    for shard_by, groups in (("id", 4), ("v", 1)):
        table = make(memory_url(), shard_by=shard_by, shards=4)
        for n in range(3):
            table.append([row(n, i, f"{i}-{n}") for i in range(40)])
        made.clear()
        assert values(table.scan().to_arrow()) == [f"{i}-2" for i in range(40)]
        assert len(made) == groups


# --- what callers give --------------------------------------------------------------------------


def test_keys_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """[E1] Each with its place and a reason; nothing is looked up."""
    table = make(tmp_path / "t")
    pair = make(tmp_path / "p", primary_key=["id", "v"])
    plain = strandline.create_table(tmp_path / "u", SCHEMA)
    for keys, said in (
        (5, "list of keys"),
        ("abc", "list of keys"),
        ([1, None], r"keys\[1\], 'id': a key is never null"),
        ([1, "x"], r"keys\[1\], 'id'"),
        (pa.array([1, None]), r"keys\[1\], 'id': a key is never null"),
        (pa.table({"v": ["a"]}), "no column 'id'"),
    ):
        for ask in (table.exists, table.get):
            with pytest.raises(InvalidInput, match=said):
                ask(keys)
    with pytest.raises(InvalidInput, match=r"keys\[0\] must be a tuple of id, v"):
        pair.exists([1])
    with pytest.raises(InvalidInput, match="no primary key"):
        plain.get([1])
    with pytest.raises(InvalidInput, match="all_rows"):
        table.scan(all_rows=1)  # type: ignore[arg-type]
    assert table.exists([]).tolist() == []
    assert table.get([]).schema == table.schema


@pytest.mark.parametrize(
    ("schema", "key", "said"),
    [
        ({"id": "float64"}, "id", "canonical bytes"),
        ({"id": pa.list_(pa.int64())}, "id", "canonical bytes"),
        ({"id": "int64"}, "other", "other"),
        ({"id": "int64"}, ["id", "id"], "twice"),
        ({"id": "int64"}, 5, "column name"),
        ({"id": "int64"}, [5], "column name"),
    ],
)
def test_columns_that_cannot_be_a_key_are_refused(schema: Any, key: Any, said: str) -> None:
    """[KEY-2] Before anything is written."""
    url = memory_url()
    with pytest.raises(InvalidInput, match=said):
        strandline.create_table(url, schema, primary_key=key)
    with pytest.raises(strandline.TableNotFound):
        strandline.open_table(url)


def test_a_row_without_a_key_is_refused_with_row_and_field(tmp_path: Path) -> None:
    """[KEY-2] [E1] Also where the caller's schema would allow it."""
    table = make(tmp_path / "t", primary_key=["id", "v"])
    for rows, said in (
        ([row(1, 1, "a"), {"at": 1, "v": "b"}], "row 1, field 'id'"),
        (pa.table({"id": [1], "v": pa.array([None], pa.string())}), "row 0, field 'v'"),
    ):
        with pytest.raises(strandline.InvalidRow, match=said):
            table.append(rows)
    assert table.version == 1
    assert not table.schema.field("id").nullable
    assert table.schema.field("at").nullable


def test_a_pair_of_values_is_found_only_together(tmp_path: Path) -> None:
    """[M8] Rows with one half of a wanted key, in every combination."""
    table = make(tmp_path / "t", primary_key=["id", "v"])
    held = [(i, v) for i in range(4) for v in "pqr" if (i, v) != (1, "q")]
    table.append([row(n, i, v) for n, (i, v) in enumerate(held)])

    for wanted in (
        [(1, "q"), (2, "r")],
        [(1, "p"), (1, "q"), (2, "p")],
        [(9, "p"), (3, "z"), (3, "r")],
    ):
        assert table.exists(wanted).tolist() == [key in held for key in wanted]
        found = table.get(wanted, ["id", "v"]).to_pylist()
        assert [(r["id"], r["v"]) for r in found] == [key for key in wanted if key in held]


def test_keys_of_a_decimal_are_compared_exactly(tmp_path: Path) -> None:
    """[M8] Thirty-eight digits, as Python values of any scale that fits."""
    table = strandline.create_table(
        tmp_path / "t", {"id": "decimal(38,1)", "v": "string"}, primary_key="id"
    )
    wide = Decimal("9" * 37 + ".9")
    table.append([{"id": wide, "v": "a"}, {"id": Decimal("1.0"), "v": "b"}])

    assert values(table.get([Decimal(1), wide])) == ["b", "a"]
    assert table.exists([Decimal("9" * 36 + "8.9"), Decimal("1.1"), wide]).tolist() == [
        False,
        False,
        True,
    ]


def test_a_delete_by_filter_asks_the_newest_row_of_each_key(tmp_path: Path) -> None:
    """[KEY-4] [C4] What a deleted row had replaced does not come back."""
    table = make(tmp_path / "t")
    table.append([row(1, 1, "old"), row(1, 2, "b"), row(1, 3, "old")])
    table.append([row(2, 1, "new")])
    assert table.delete(filter="v = 'old'").rows == 1
    assert values(table.scan().to_arrow()) == ["b", "new"]
    assert table.delete(filter="v = 'new'").rows == 1
    assert values(table.scan().to_arrow()) == ["b"]
    assert table.delete(filter="v = 'none'").rows == 0

    table.delete(filter="id = 2")
    assert table.scan().count() == 0
    assert table.exists([1, 2, 3]).tolist() == [False, False, False]
    assert table.scan(all_rows=True).count() == 3
