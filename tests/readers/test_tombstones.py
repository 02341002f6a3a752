"""Deleted keys: hidden wherever rows are read, and told where the stream of changes is read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline
from strandline.api import create_in, open_in
from strandline.tableformat import codec, rolling
from strandline.tableformat.errors import (
    CorruptTable,
    Fenced,
    InvalidInput,
    SeqMismatch,
    UnsupportedFormat,
)
from strandline.tableformat.manifest import check_readable
from strandline.tableformat.storage import open_storage
from tests.edited import commit_by_hand
from tests.stores import WatchedStorage
from tests.tables import START_MS, Script, memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table
    from strandline.tableformat.segments import SegmentEntry
    from tests.tables import Place

SCHEMA = pa.schema(
    [("at", pa.int64()), ("id", pa.int64()), pa.field("v", pa.string(), nullable=False)]
)
DAY = 86_400_000


def row(at: int, key: int, v: str) -> dict[str, Any]:
    """One row, at a time counted from a day before the clock's beginning."""
    return {"at": START_MS - DAY + at, "id": key, "v": v}


def make(place: str | Path | None = None, **config: Any) -> Table:
    """A table keyed by `id`, with a clock that does not move by itself."""
    config = {"time_column": "at", "primary_key": "id", "uncapped": True, **config}
    return create_in(
        open_storage(place or memory_url()),
        SCHEMA,
        runtime=Script(now=START_MS).runtime(),
        **config,
    )


def values(found: pa.Table) -> list[str]:
    """Column `v`."""
    return found.column("v").to_pylist()  # type: ignore[no-any-return]


def test_deleted_keys_are_gone_until_they_are_written_again(place: Place) -> None:
    """[C4] [KEY-3] [KEY-10] On disk, in memory and on S3; by values, and a key nobody has seen."""
    table = place.create(
        {"at": "int64", "id": "int64", "v": "string"}, time_column="at", primary_key="id"
    )
    table.upsert([{"at": 1, "id": i, "v": "abc"[i]} for i in range(3)])
    done = table.delete(keys=[2, 0, 9, 2])
    assert (done.rows, done.first_seq, done.last_seq) == (3, 3, 5)

    assert values(table.scan().to_arrow()) == ["b"]
    assert table.exists([0, 1, 2, 9]).tolist() == [False, True, False, False]
    assert values(place.open(version=2).scan().to_arrow()) == ["a", "b", "c"]
    now = table.scan(["_ts"], all_rows=True, filter="id = 1").to_arrow()
    table.upsert([{"at": 2, "id": 0, "v": "too old"}, {"at": None, "id": 2, "v": "again"}])
    assert values(table.scan().to_arrow()) == ["b", "again"]
    assert now.num_rows == 1


def test_every_road_to_rows_knows_deletes(tmp_path: Path) -> None:
    """[C4] [KEY-9] Scans hide the keys; streams tell of deletes if `_deleted` is asked for."""
    table = make(tmp_path / "t")
    table.upsert([row(1, 1, "a"), row(1, 2, "b"), row(2, 3, "c")])
    table.delete(keys=[1, 3])
    table.upsert([row(2 * DAY, 3, "d")])
    left, every = ["b", "d"], ["a", "b", "c", "d"]

    assert values(table.scan().to_arrow()) == left
    assert table.scan().count() == 2
    assert values(table.scan(order_by="v", descending=True).to_arrow()) == left[::-1]
    assert values(table.scan(limit=1).to_arrow()) == ["b"]
    assert values(table.by_key(by="id")) == left
    assert values(table.get([3, 1, 2])) == ["d", "b"]
    assert table.scan().to_polars()["v"].to_list() == left
    assert table.scan().to_pandas()["v"].tolist() == left
    assert len(table.scan().to_duckdb().filter("v >= 'a'")) == 2
    assert table.scan().to_pyarrow_dataset().count_rows() == 2
    assert "deletes by key: 2 tombstones in 1 files" in table.scan().explain()
    assert values(table.scan(all_rows=True).to_arrow()) == every
    assert values(table.read().rows) == every
    assert values(table.changes(2).to_arrow()) == ["d"]
    with table.follow(0) as followed:
        assert [v for _ in range(2) for v in next(followed).column("v").to_pylist()] == every
    assert table.verify(deep=True).ok

    told = table.scan(["id", "v", "_deleted", "_seq"], all_rows=True)
    assert [field.nullable for field in told.schema] == [False, True, False, False]
    assert [tuple(r.values()) for r in told.to_arrow().to_pylist()] == [
        (1, "a", False, 0),
        (2, "b", False, 1),
        (3, "c", False, 2),
        (1, None, True, 3),
        (3, None, True, 4),
        (3, "d", False, 5),
    ]
    assert told.count() == 6
    assert len(told.to_duckdb().project("id")) == 6
    assert table.read(["id", "_deleted"], from_seq=3).rows.to_pylist() == [
        {"id": 1, "_deleted": True},
        {"id": 3, "_deleted": True},
        {"id": 3, "_deleted": False},
    ]
    assert values(table.changes(2, ["_deleted", "v"], filter="id = 3").to_arrow()) == [None, "d"]
    with table.follow(3, ["id", "_deleted"]) as followed:
        assert next(followed).column("_deleted").to_pylist() == [True, True]
    with pytest.raises(InvalidInput, match="all_rows=True"):
        table.scan(["_deleted"])
    with pytest.raises(InvalidInput, match="no column '_deleted'"):
        strandline.create_table(memory_url(), {"n": "int64"}).scan(["_deleted"], all_rows=True)


def test_a_writer_sees_what_is_deleted(tmp_path: Path) -> None:
    """[E4] [C4] Rows in memory lose to tombstones that are newer, and win over older ones."""
    table = make(tmp_path / "t")
    table.upsert([row(1, 1, "a"), row(1, 2, "b")])
    table.delete(keys=[1, 2, 3])
    with table.writer("w", wal=False, ack="buffered", flush_age="1h") as writer:
        writer.append([row(5, 1, "old"), row(2 * DAY, 2, "new"), row(5, 4, "other")])
        assert values(writer.scan().to_arrow()) == ["new", "other"]
        told = writer.scan(["id", "_deleted"], all_rows=True).to_arrow()
        assert told.column("_deleted").to_pylist() == [False] * 2 + [True] * 3 + [False] * 3
    assert values(table.scan().to_arrow()) == ["new", "other"]


def test_a_delete_is_stamped_now_or_later_for_each_key_alone() -> None:
    """[C4] [KEY-10] A key from the future is deleted there; others can be written from now on."""
    table = make()
    table.upsert([row(1, 1, "past"), row(9 * DAY, 2, "future")])
    table.delete(keys=[1, 2, 3])
    told = table.scan(["id", "_ts", "_deleted"], all_rows=True).to_arrow().to_pylist()
    stamps = {r["id"]: r["_ts"] - START_MS for r in told if r["_deleted"]}
    assert stamps[2] == 8 * DAY
    assert stamps[1] == stamps[3] < 60_000

    table.upsert([row(2 * DAY, 1, "new"), row(2 * DAY, 2, "still old")])
    assert values(table.scan().to_arrow()) == ["new"]
    # A filter is about what it saw: the tombstone has the time of the row.
    table.delete(filter="v = 'new'")
    table.upsert([row(2 * DAY + 1, 1, "newer")])
    assert values(table.scan().to_arrow()) == ["newer"]


def test_a_delete_by_filter_leaves_alone_what_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[C4] [KEY-10] Nobody has asked the filter about a row that lands in between."""
    from strandline.writers import deleting_keys  # noqa: PLC0415

    commit = deleting_keys.commit
    for order in ("event_time", "clamp"):
        table = make(order=order)
        table.upsert([row(1, 1, "bad"), row(1, 2, "bad")])
        other = open_in(table._chain.storage)  # noqa: SLF001
        calls: list[int] = []

        def slow(*given: Any, _calls: list[int] = calls, _other: Table = other, **more: Any) -> Any:
            if not _calls:
                _other.upsert([row(2, 1, "good")])
            _calls.append(1)
            return commit(*given, **more)

        monkeypatch.setattr(deleting_keys, "commit", slow)
        table.delete(filter="v = 'bad'")
        assert values(table.scan().to_arrow()) == ["good"], order
        assert len(calls) == (1 if order == "event_time" else 2)


def test_deletes_come_once_and_only_from_those_who_may(tmp_path: Path) -> None:
    """[C4] [POS-1] Batch numbers, fence, match_seq; bad input changes nothing."""
    table = make(tmp_path / "t")
    table.upsert([row(1, 1, "a"), row(1, 2, "b")])
    first = table.delete(keys=[1], writer_id="w", batch=1, match_seq=2, properties={"job": "x"})
    again = open_in(open_storage(tmp_path / "t")).delete(keys=[1], writer_id="w", batch=1)
    assert (again.version, again.first_seq, again.rows, again.duplicate) == (
        first.version,
        2,
        1,
        True,
    )
    record = table.history()[0]
    assert (record.operation, record.rows, dict(record.properties)) == ("delete", 1, {"job": "x"})
    with pytest.raises(SeqMismatch):
        table.delete(keys=[2], match_seq=2)
    table.fence("token")
    with pytest.raises(Fenced):
        table.delete(keys=[2])
    with pytest.raises(Fenced):
        table.delete(filter="v = 'b'")
    version = table.version
    assert table.delete(keys=[], fence="token").rows == 0
    plain = strandline.create_table(memory_url(), {"n": "int64"})
    for call, said in (
        (lambda: table.delete(keys=[None]), "never null"),
        (lambda: table.delete(keys="a"), "list of keys"),
        (table.delete, "needs a filter"),
        (lambda: table.delete(keys=[1], filter="id = 1"), "not both"),
        (lambda: table.delete(filter="id = 1", match_seq=3), "fence and nothing else"),
        (lambda: plain.delete(keys=[1]), "no primary key"),
        (lambda: plain.upsert([{"n": 1}]), "no primary key"),
    ):
        with pytest.raises(InvalidInput, match=said):
            call()
    assert table.refresh().version == version
    assert plain.refresh().version == 1
    table.delete(keys=[2], fence="token")
    assert table.scan().count() == 0


def test_a_delete_writes_one_small_file_and_looks_at_none() -> None:
    """[KEY-6] [C4] One file, one manifest; data is read only where it reaches into the future."""
    storage = WatchedStorage(open_storage(memory_url()))
    options: dict[str, Any] = {"time_column": "at", "primary_key": "id", "uncapped": True}
    table = create_in(
        storage,
        {"at": "int64", "id": "int64", "v": "string"},
        runtime=Script(now=START_MS).runtime(),
        **options,
    )
    for n in range(5):
        table.upsert([row(n, n, "x"), row(n, n + 1, "y")])
    storage.calls.clear()
    table.delete(keys=[1, 2, 3])
    assert [kind for kind, path in storage.calls if "shard-" in path] == ["write_new"]
    table.upsert([row(5 * DAY, 1, "future"), row(5 * DAY, 7, "future")])
    storage.calls.clear()
    table.delete(keys=[1, 2, 3])
    kinds = sorted(kind for kind, path in storage.calls if "shard-" in path)
    assert kinds == ["read_range", "write_new"]
    entry = table.manifest.segments[-1]
    assert entry.tombstones
    assert entry.index is None


def test_tombstones_are_stored_as_the_specification_says(tmp_path: Path) -> None:
    """[KEY-6] [KEY-7] [PAR-6] Key, time and `_deleted`, nothing else; a feature from then on."""
    table = make(tmp_path / "t", shard_by="id", shards=4, sort_by=["v"])
    table.upsert([row(1, i, "x") for i in range(8)])
    assert table.manifest.reader_features == ("keyed",)
    table.delete(keys=range(8))
    assert table.manifest.reader_features == ("keyed", "tombstones")
    entries = [entry for entry in table.manifest.segments if entry.tombstones]
    assert len(entries) > 1
    for entry in entries:
        file = pq.read_table(tmp_path / "t" / entry.path)
        hidden = ["_ts", "_deleted"] if entry.rows_are == "dense" else ["_off", "_ts", "_deleted"]
        assert file.column_names == ["id", *hidden]
        assert file.column("_deleted").unique().to_pylist() == [True]
        assert file.schema.field("_deleted").type == pa.bool_()
    plain = make(shard_by="v", shards=4)
    plain.upsert([row(1, i, str(i)) for i in range(8)])
    plain.delete(keys=range(8))
    assert [entry.shard for entry in plain.manifest.segments if entry.tombstones] == [0]
    assert plain.scan().count() == 0
    document = codec.decode_document(
        max(
            (tmp_path / "t/_strandline/manifests").iterdir(), key=lambda f: -int(f.name[:20])
        ).read_bytes(),
        "",
    )
    with pytest.raises(UnsupportedFormat, match="tombstones"):
        check_readable(document, frozenset({"keyed"}))


def test_files_that_are_not_what_their_entries_say_are_refused(tmp_path: Path) -> None:
    """[KEY-7] [KEY-8] Otherwise deleted keys would come back, or rows would vanish."""
    table = make(tmp_path / "t")
    table.upsert([row(1, 1, "a")])
    table.delete(keys=[1])
    data, deleted = table.manifest.segments
    features = table.manifest.reader_features
    for segments, named in (
        ((data, edited(deleted, tombstones=False)), features),
        ((edited(data, tombstones=True), deleted), features),
        ((data, deleted), ("keyed",)),
    ):
        commit_by_hand(table, segments=segments, reader_features=named)
        with pytest.raises(CorruptTable, match="tombstones"):
            open_in(open_storage(tmp_path / "t")).scan().to_arrow()


def edited(entry: SegmentEntry, **fields: Any) -> SegmentEntry:
    """An entry that says something else."""
    return replace(entry, encoded=b"", **fields)


def test_tombstones_in_pages_still_hide_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """[KEY-7] [VER-3] Rolled, merged, folded: what an entry says goes with it, stats as well."""
    for name, value in {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1, "TIER_FACTOR": 2}.items():
        monkeypatch.setattr(rolling, name, value)
    table = make(ttl="15m")
    for n in range(12):
        table.upsert([row(n * 40_000, n, f"v{n}"), row(n * 40_000, n + 100, "x")])
        if n % 3 == 0:
            table.delete(keys=[n])
            table.delete(filter=f"id = {n + 100} AND v = 'x'")
    assert table.manifest.windows
    left = [f"v{n}" for n in range(12) if n % 3]
    assert [v for v in values(table.scan().to_arrow()) if v != "x"] == left
    assert table.scan().count() == 16
    assert table.exists([0, 1, 3, 100, 101]).tolist() == [False, True, False, False, True]
    assert open_in(table._chain.storage).scan().count() == 16  # noqa: SLF001
    assert table.verify(deep=True).ok
    plan = table.scan(filter="v = 'a'", all_rows=True).plan()
    assert plan.report.pages.considered
    assert plan.report.pages.kept == 0


def test_copies_and_earlier_versions_are_of_what_counts(tmp_path: Path) -> None:
    """[C4] [E12] An export carries winners; versions, tags and rollbacks know no later delete."""
    table = make(tmp_path / "t")
    table.upsert([row(1, i, f"v{i}") for i in range(4)])
    table.tag("before")
    table.delete(keys=[1, 2])
    table.upsert([row(2, 3, "newer")])
    info = table.export(tmp_path / "copy.snap")
    assert info.ranges.rows == 2
    copy = make(tmp_path / "u")
    copy.upsert([row(0, 3, "older"), row(0, 7, "own")])
    assert strandline.replay(tmp_path / "copy.snap", copy).rows == 2
    assert values(copy.scan().to_arrow()) == ["own", "v0", "newer"]
    with_tag = open_in(open_storage(tmp_path / "t"), "before")
    assert with_tag.exists([1, 2, 3]).tolist() == [True, True, True]
    assert values(with_tag.scan().to_arrow()) == ["v0", "v1", "v2", "v3"]
    table.rollback("before")
    assert values(table.scan().to_arrow()) == ["v0", "v1", "v2", "v3"]
    assert table.manifest.reader_features == ("keyed", "tombstones")
    table.delete(keys=[0])
    assert table.exists([0, 1]).tolist() == [False, True]


def test_keys_may_be_rows(tmp_path: Path) -> None:
    """[M8] [E1] Dicts by the key's names; one without the key is named by its place."""
    table = make(tmp_path / "t", primary_key=["id", "at"])
    table.upsert([row(1, 1, "a"), row(2, 1, "b")])
    held = table.scan(["id", "at"]).to_arrow().to_pylist()
    assert table.exists([*held, {"id": 9, "at": 1}]).tolist() == [True, True, False]
    table.delete(keys=held[:1])
    assert values(table.scan().to_arrow()) == ["b"]
    with pytest.raises(InvalidInput, match=r"keys\[1\] has no 'at'"):
        table.delete(keys=[held[0], {"id": 1}])
