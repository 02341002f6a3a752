"""Index files end to end: planned when rows are written, chosen when they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.readers import index_reader
from strandline.readers.index_reader import CACHE
from strandline.tableformat import rolling
from strandline.tableformat.indexes import postings_blocks, strategy
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.postings import Postings
from strandline.tableformat.indexes.reference import path_of
from tests.edited import commit_by_hand, flip

if TYPE_CHECKING:
    from strandline.tableformat.indexes.contract import Built
    from strandline.tableformat.segments import SegmentEntry

SCHEMA = {
    "ts": "timestamptz",
    "user": "string",
    "n": "int64",
    "kind": "string",
    "x": "float64",
    "tags": pa.list_(pa.string()),
}
START_US = 1_767_225_600_000_000
ROWS = 4_096


def rows(first: int = 0, count: int = ROWS, *, users: int = 500) -> pa.Table:
    """Events a second apart, users in no order, kinds that change slowly."""
    chance = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "ts": pa.array(START_US + numbers * 1_000_000, pa.timestamp("us", tz="UTC")),
            "user": pa.array([f"u{i}" for i in chance.integers(0, users, count)]),
            "n": numbers,
            "kind": pa.array([f"k{i // 1000}" for i in numbers.tolist()]),
            "x": chance.random(count),
            "tags": pa.array([["a"]] * count),
        }
    )


def create(place: Path, **config: Any) -> strandline.Table:
    """A table whose row groups and zones are small."""
    settings: dict[str, Any] = {"row_group_rows": 1_024, "zone_rows": 64, "ttl": "3650d"}
    return strandline.create_table(place, SCHEMA, time_column="ts", **{**settings, **config})


def entries(table: strandline.Table) -> tuple[SegmentEntry, ...]:
    """The segments of the newest version."""
    return table.scan().plan().segments


def kinds(table: strandline.Table) -> dict[str, tuple[str, ...]]:
    """The kinds of index that the first segment has, by column name."""
    names = {c.id: c.name for c in table.manifest.schema.columns} | {0: "", -2: "_ts"}
    (entry, *_) = entries(table)
    assert entry.index is not None
    return {names[column]: held for column, held in entry.index.kinds.items()}


def test_a_segment_gets_the_planned_indexes_and_no_others(tmp_path: Path) -> None:
    """[E8] The plan follows type, cardinality and settings; what it does not name is not built."""
    table = create(tmp_path / "t", shard_by="user", sort_by=["n"])
    table.append(rows())

    assert {name: set(held) for name, held in kinds(table).items()} == {
        "": {PAGES},
        "_ts": {"temporal", "rank"},
        "ts": {"temporal"},
        "user": {"zone_map", "postings"},
        "n": {"zone_map", "postings"},
        "kind": {"enum_bitmap"},
        "x": {"zone_map"},
    }


def test_the_plan_of_a_column_can_be_overridden(tmp_path: Path) -> None:
    """[E8] What a table's owner names is built instead of the default; an empty list is nothing."""
    chosen = {"user": ["zone_membership", "zone_map"], "x": [], "ts": ["calendar"]}
    table = create(tmp_path / "t", indexes=chosen)
    table.append(rows())

    held = kinds(table)
    assert set(held["user"]) == {"zone_membership", "zone_map"}
    assert held["ts"] == ("calendar",)
    assert "x" not in held
    assert strandline.open_table(tmp_path / "t").config.indexes == table.config.indexes


def test_a_table_without_indexes_writes_none(tmp_path: Path) -> None:
    """[E8] [ICX-1] `indexes=False`: no index files, and the same answers."""
    table = create(tmp_path / "t", indexes=False)
    table.append(rows())

    assert not list((tmp_path / "t").rglob("*.icx"))
    assert entries(table)[0].index is None
    assert table.scan(filter="n = 70").count() == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"user": ["btree"]}, "there is no index kind 'btree'"),
        ({"nobody": ["postings"]}, "nobody"),
        ({"user": "postings"}, "lists of index kinds"),
        ({"user": ["calendar"]}, "for dates and times"),
        ({"user": ["range"]}, "for numbers"),
        ({"tags": ["postings"]}, "nested"),
        ("user", "lists of index kinds"),
    ],
)
def test_a_wrong_plan_is_refused_and_nothing_is_created(
    tmp_path: Path, wrong: Any, said: str
) -> None:
    """[E8] The error names the column and what it can have."""
    with pytest.raises(strandline.InvalidInput, match=said):
        create(tmp_path / "t", indexes=wrong)
    assert not (tmp_path / "t").exists()


def test_small_segments_have_no_index_file(tmp_path: Path) -> None:
    """[E7] Below one row group everything is read at once; nobody looks for an index either."""
    table = create(tmp_path / "t")
    table.append(rows(0, 1_023))
    table.append(rows(1_023, 1_024))

    small, large = entries(table)
    assert small.index is None
    assert large.index is not None
    assert [path.name for path in (tmp_path / "t").rglob("*.icx")] == [
        Path(path_of(large.path)).name
    ]


def test_a_flush_of_32768_rows_has_16_zones(tmp_path: Path) -> None:
    """[E5] Zones are whole; a short last one is fine."""
    table = create(tmp_path / "t", zone_rows=2_048, row_group_rows=8_192)
    table.append(rows(0, 32_768))
    table.append(rows(32_768, 8_193))

    report = table.scan(filter="n = 5").plan().report
    assert (report.zones.considered, report.zones.kept) == (16, 1)
    report = table.scan(filter="n = 5 OR n = 40960").plan().report
    assert (report.zones.considered, report.zones.kept) == (16 + 5, 2)


FILTERS = {
    "user = 'u17'": "user by zone_map",
    "kind = 'k3'": "kind by enum_bitmap: rules out",
    "kind <> 'k0'": "kind by enum_bitmap: rules out",
    "n BETWEEN 100 AND 200": "n by zone_map: rules out",
    "ts < TIMESTAMP '2026-01-01 00:01:00Z'": "ts by temporal: rules out",
    "_ts >= 1767229000000": "_ts by temporal: rules out",
    "_seq IN (5, 4000)": "_seq by rows: rules out",
}


@pytest.mark.parametrize("text", FILTERS)
def test_each_filter_has_one_strategy_and_explain_shows_it(tmp_path: Path, text: str) -> None:
    """[E9] For every kind of filter, on every time column too."""
    table = create(tmp_path / "t", indexes={"user": ["zone_map"]})
    table.append(rows())

    scan = table.scan(filter=text)

    assert FILTERS[text] in scan.explain()
    assert scan.plan().report.zones.kept < 64 or "user" in text
    assert scan.to_arrow().equals(table.scan(filter=text, indexes=False).to_arrow())


def test_a_plan_says_what_each_step_removed(tmp_path: Path) -> None:
    """[E9] Segments by stats, zones by indexes, bytes planned against bytes in the table."""
    table = create(tmp_path / "t", indexes={"user": ["postings", "zone_map"]})
    for batch in range(3):
        table.append(rows(batch * ROWS))
    scan = table.scan(filter="user = 'u17' AND n < 5000")

    report = scan.plan().report

    assert (report.segments.considered, report.segments.kept) == (3, 2)
    assert report.zones.considered == 2 * 64
    assert 0 < report.zones.kept < 32
    assert report.indexes_used["postings"].segments == 2
    assert report.indexes_used["postings"].zones_removed > 64
    assert report.indexes_unused == {"zone_map": 2}
    assert 0 < report.bytes_planned < report.bytes_total / 4
    assert f"zones: {report.zones.kept} of 128 may match" in scan.explain()


def test_what_stats_prove_is_not_asked(tmp_path: Path) -> None:
    """[E9] A segment inside the wanted range needs no index, and its rows are not filtered."""
    table = create(tmp_path / "t")
    table.append(rows())

    plan = table.scan(filter="n >= 0 AND n < 10000").plan()

    assert plan.splits[0].bound is None
    assert plan.report.indexes_used == {}


@pytest.mark.parametrize("paged", [False, True], ids=["inline", "paged"])
def test_indexes_are_known_from_metadata_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    paged: bool,  # noqa: FBT001
) -> None:
    """[E7] An entry keeps its reference when it moves into a page."""
    if paged:
        for name, value in {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1}.items():
            monkeypatch.setattr(rolling, name, value)
    table = create(tmp_path / "t")
    for batch in range(3):
        table.append(rows(batch * ROWS))

    opened = strandline.open_table(tmp_path / "t")
    assert bool(opened.manifest.windows) == paged
    assert all(entry.index is not None for entry in entries(opened))
    assert opened.scan(filter="kind = 'k3'").plan().report.zones.kept == 17


def test_index_debt_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[E14, T1] Under pressure rows are stored without indexes, and the entry says what it owes."""
    from strandline.writers.tuning import Tuning  # noqa: PLC0415

    monkeypatch.setattr(Tuning, "degraded", property(lambda _: True))
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    with table.writer("w", wal=False, ack="committed") as writer:
        writer.append(rows())

    (entry,) = entries(table.refresh())
    assert entry.index is None
    assert entry.index_debt[2] == ("postings",)
    assert not list((tmp_path / "t").rglob("*.icx"))
    assert table.scan(filter="n = 70").count() == 1


def test_other_engines_find_the_indexes_of_parquet(tmp_path: Path) -> None:
    """[E8] Bloom filters where a column has postings, page indexes everywhere; DuckDB uses them."""
    table = create(tmp_path / "t", indexes={"user": ["postings"], "kind": [], "x": ["postings"]})
    table.append(rows())
    path = str(tmp_path / "t" / entries(table)[0].path)
    names = {column.name: column.physical_name for column in table.manifest.schema.columns}

    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT path_in_schema, row_group_id FROM parquet_metadata(?) "
            "WHERE bloom_filter_offset IS NOT NULL AND bloom_filter_length > 0",
            [path],
        ).fetchall()
        excluded = {
            value: connection.execute(
                "SELECT list(bloom_filter_excludes) FROM parquet_bloom_probe(?, ?, ?)",
                [path, names["user"], value],
            ).fetchall()
            for value in ("u17", "nobody")
        }

    footer = pq.read_metadata(path)
    groups = range(footer.num_row_groups)
    assert len(groups) == 4
    filtered = {name for name, _ in found}
    assert {(names["user"], group) for group in groups} <= set(found)
    assert len(found) == 4 * len(filtered)
    # Engines hash the bits of a float, and those of 0.0 and -0.0 differ.
    assert not filtered & {names["x"], names["kind"]}
    assert excluded == {"u17": [([False] * 4,)], "nobody": [([True] * 4,)]}
    chunks = [footer.row_group(g).column(leaf) for g in groups for leaf in range(len(names))]
    assert all(chunk.has_offset_index for chunk in chunks)
    assert all(chunk.has_column_index for chunk in chunks if chunk.is_stats_set)
    assert sum(chunk.has_column_index for chunk in chunks) >= 4 * 5


def _damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        places = {"blob": 3, "catalog": path.stat().st_size - 20}
        flip(path, places[how])


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "blob", "catalog"])
def test_a_damaged_index_costs_time_and_no_rows(tmp_path: Path, how: str) -> None:
    """[T8, X4] [ICX-2] [ICX-3] It is left out, the report names it, and the rows are right."""
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    for batch in range(2):
        table.append(rows(batch * ROWS))
    expected = table.scan(filter="user = 'u17'", indexes=False).to_arrow()
    damaged = tmp_path / "t" / path_of(entries(table)[0].path)
    _damage(damaged, how)
    CACHE.clear()

    scan = table.scan(filter="user = 'u17'")

    assert scan.to_arrow().equals(expected)
    failures = scan.plan().report.index_failures
    assert failures
    assert all(damaged.name in failure for failure in failures)
    assert "index not usable, its rows are read" in scan.explain()


def test_a_first_lookup_reads_a_part_of_large_postings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E7] [BLK-1] A few blocks of them, and all of them once for whoever comes again and again."""
    monkeypatch.setattr(index_reader, "FIRST_READ_BYTES", 0)
    table = create(tmp_path / "t", indexes={"user": ["postings"]}, zone_rows=8)
    table.append(rows(count=60_000, users=20_000))
    (entry,) = entries(table)
    assert entry.index is not None
    assert entry.index.kinds[2] == ("postings",)
    expected = table.scan(filter="user = 'u17'", indexes=False).to_arrow()
    CACHE.clear()

    read = []
    for _ in range(index_reader.MOST_PARTS + 2):
        scan = table.scan(filter="user = 'u17'")
        assert scan.to_arrow().equals(expected)
        report = scan.plan().report
        assert report.index_failures == []
        assert "postings" in report.indexes_used
        assert "postings_blocks" not in report.indexes_unused
        read.append(report.index_bytes)

    (*parts, whole, nothing) = read[1:]
    assert max(parts) < whole / 6
    assert nothing == 0


@pytest.mark.parametrize("where", ["a block", "the checksums"])
def test_damage_in_postings_that_are_read_in_part_costs_no_rows(tmp_path: Path, where: str) -> None:
    """[T8, X4] [BLK-2] [ICX-3] Neither a block nor what vouches for it is believed unchecked."""
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    table.append(rows(count=60_000, users=20_000))
    expected = table.scan(filter="user = 'u17'", indexes=False).to_arrow()
    (entry,) = entries(table)
    assert entry.index is not None
    file = tmp_path / "t" / path_of(entry.path)
    data = bytearray(file.read_bytes())
    catalog = decode_catalog(bytes(data[-entry.index.catalog_bytes :]), entry.index, "x")
    blob = catalog.find(2, "postings" if where == "a block" else "postings_blocks")
    assert blob is not None
    data[blob.offset : blob.offset + blob.size] = bytes(
        byte ^ 64 for byte in data[blob.offset : blob.offset + blob.size]
    )
    file.write_bytes(data)
    CACHE.clear()

    scan = table.scan(filter="user = 'u17'")

    assert scan.to_arrow().equals(expected)
    (failure,) = scan.plan().report.index_failures
    assert "postings" in failure
    assert not table.verify(deep=True).ok


def test_blocks_of_other_postings_cost_no_rows_and_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X4, T8] [BLK-2] Their own checksum is right, but they speak of other bytes."""
    build = postings_blocks.build
    monkeypatch.setattr(index_reader, "FIRST_READ_BYTES", 0)
    monkeypatch.setattr(postings_blocks, "LEAST_BYTES", 1)
    monkeypatch.setattr(postings_blocks, "build", lambda data: build(data)[:-4] + b"\1\2\3\4")
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    table.append(rows())
    monkeypatch.setattr(postings_blocks, "build", build)
    CACHE.clear()

    scan = table.scan(filter="user = 'u17'")

    assert scan.to_arrow().equals(table.scan(filter="user = 'u17'", indexes=False).to_arrow())
    (failure,) = scan.plan().report.index_failures
    assert "a block of the postings does not have its checksum" in failure
    assert table.verify().ok
    (problem,) = table.verify(deep=True).problems
    assert "not of the postings beside it" in str(problem)


@pytest.mark.parametrize("part", ["groups", "zones"])
def test_an_index_that_breaks_a_rule_is_left_out_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """[T8, X4] [IDX-4] Its checksum is right, but its lists lead nowhere: nothing it says counts.

    Of an OR, its answer about the other side does not count either.
    """
    build = Postings.build

    def broken(self: Postings, column: Any) -> Built:
        made = build(self, column)
        assert made is not None
        hashes, pairs = np.frombuffer(made.data, "<u4", 2).tolist()
        start, count = {
            "groups": (16 + 4 * hashes, 4 * -(-hashes // 64)),
            "zones": (len(made.data) - pairs, pairs // 2),
        }[part]
        return replace(made, data=made.data[:start] + b"\xff" * count + made.data[start + count :])

    monkeypatch.setattr(Postings, "build", broken)
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    table.append(rows())
    (entry,) = entries(table)
    wanted = " OR ".join(f"user = 'u{i}' AND n < 4000" for i in range(8))
    expected = table.scan(filter=wanted, indexes=False).to_arrow()
    assert expected.num_rows > 20

    scan = table.scan(filter=wanted)

    assert scan.to_arrow().equals(expected)
    (failure,) = scan.plan().report.index_failures
    assert failure.startswith(f"{path_of(entry.path)}: postings of column")
    assert "postings" not in scan.plan().report.indexes_used
    assert "index not usable, its rows are read" in scan.explain()


def test_a_key_is_looked_for_in_its_own_shard(tmp_path: Path) -> None:
    """[T6, E9] Files of other shards are not opened."""
    table = create(tmp_path / "t", shard_by="user", shards=8)
    table.append(rows())
    scan = table.scan(["user", "n"], "user = 'u17'")

    report = scan.plan().report

    assert (report.shards.considered, report.shards.kept) == (8, 1)
    assert scan.to_arrow().equals(table.scan(["user", "n"], indexes=False).to_arrow().filter(
        pa.compute.equal(rows().column("user"), "u17")
    ))  # fmt: skip
    two = table.scan(filter="user IN ('u17', 'u18') OR user = 'u19' AND n > 3").plan().report
    assert two.shards.kept <= 3
    every = table.scan(filter="user = 'u17' OR n = 3").plan().report
    assert every.shards.considered == 0


def test_an_index_file_is_stored_before_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E7] [ICX-4] Nobody ever sees a reference to an index file that is not there."""
    table = create(tmp_path / "t")
    storage = table._chain.storage  # noqa: SLF001
    put = storage.put_if_absent
    seen: list[int] = []

    def noting(path: str, data: bytes, *, after: Any = ()) -> Any:
        for write in after:
            write.wait()
        seen.append(len(list((tmp_path / "t").rglob("*.icx"))))
        return put(path, data, after=after)

    monkeypatch.setattr(storage, "put_if_absent", noting)
    table.append(rows())

    assert seen == [1]


def test_kinds_of_the_future_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[E7] [ICX-8] A reader uses what it knows, and reads the rows where it knows nothing."""
    table = create(tmp_path / "t", indexes={"user": ["postings"]})
    table.append(rows())
    expected = table.scan(filter="user = 'u17' AND n < 4000").to_arrow()
    known = {name: kind for name, kind in strategy.KINDS.items() if name != "postings"}
    monkeypatch.setattr(strategy, "KINDS", known)

    scan = table.scan(filter="user = 'u17' AND n < 4000")

    assert set(scan.plan().report.indexes_used) == {"zone_map"}
    assert scan.to_arrow().equals(expected)


def test_a_catalog_of_other_rows_is_not_used(tmp_path: Path) -> None:
    """[X4] [ICX-7] A catalog that speaks of another number of rows says nothing about these."""
    table = create(tmp_path / "t")
    table.append(rows())
    table.append(rows(ROWS, ROWS - 64))
    first, second = entries(table)
    assert second.index is not None
    swapped = replace(first, index=second.index, encoded=b"")
    source = tmp_path / "t" / path_of(second.path)
    (tmp_path / "t" / path_of(first.path)).write_bytes(source.read_bytes())
    commit_by_hand(table, segments=(swapped, second))

    scan = table.scan(filter="n = 70")

    assert scan.count() == 1
    assert "rows" in scan.plan().report.index_failures[0]
