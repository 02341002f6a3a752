"""Requirements of SPEC.md that no golden table and no other package's test speaks of."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.api import create_in, open_in
from strandline.catalog.documents import segment_pages
from strandline.catalog.manifest_service import ManifestService
from strandline.tableformat import actions, codec, pages, paths, rolling, stats, types, values
from strandline.tableformat import schema as schemas
from strandline.tableformat.actions import AddSegments, AlreadyCommitted, ExternalKey, Stamp, apply
from strandline.tableformat.errors import (
    CommitConflict,
    CorruptTable,
    Fenced,
    InvalidInput,
    SeqMismatch,
    UnsupportedFormat,
)
from strandline.tableformat.segments import PageRef, SegmentEntry, WindowEntry
from strandline.tableformat.storage import open_storage
from strandline.tableformat.windows import Window
from tests.stores import WatchedStorage
from tests.tables import START_MS, Script, events, memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table
    from tests.conftest import S3Bucket


def watched(**config: Any) -> tuple[WatchedStorage, Table]:
    """A table in memory whose store notes every operation."""
    storage = WatchedStorage(open_storage(memory_url()))
    schema = events(0, 1).schema
    table = create_in(storage, schema, runtime=Script().runtime(), time_column="ts", **config)
    return storage, table


# --- objects ------------------------------------------------------------------------------------


def test_no_object_is_written_twice() -> None:
    """[STO-4] [LAY-4] [M6] Appends and metadata commits create objects and overwrite none."""
    storage, table = watched(ttl="1d")
    for i in range(70):
        table.append(events(i * 10, 3, step_ms=10**6), writer_id="w", batch=i)
    table.evolve(add={"more": "int32"})

    written = Counter(p for name, p in storage.calls if name in ("write_new", "put_if_absent"))
    probes = {path for path in written if path.startswith("_strandline/probe/")}
    assert {path: n for path, n in written.items() if n > 1 and path not in probes} == {}
    kinds = {path.split("/")[1] for name, path in storage.calls if name == "write_new"}
    assert "manifests" not in kinds


def test_names_carry_the_version_their_writer_had_seen() -> None:
    """[LAY-4] `<n>` of a segment is the head its writer began with."""
    _, table = watched()
    table.append(events(0, 1))
    table.append(events(1, 1))

    found = [paths.parse_segment_path(e.path).base_version for e in table.manifest.segments]

    assert found == [1, 2]


def test_no_key_stands_twice_in_an_object() -> None:
    """[JSON-1] Unknown fields that are kept never double a known one."""
    _, table = watched()
    table.append(events(0, 1), writer_id="w", batch=1)
    spoiled = replace(table.manifest, extra={"version": "9", "later": 1})

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        assert len(set(keys)) == len(keys), keys
        return dict(items)

    found = json.loads(spoiled.to_json(), object_pairs_hook=pairs)

    assert found["version"] == "2"
    assert found["later"] == 1


@pytest.mark.parametrize("depth", [248, 100_000])
def test_documents_nest_250_levels(depth: int) -> None:
    """[JSON-8] What a writer may nest is kept; what nobody may is an error and nothing else."""
    storage, table = watched()
    document = json.loads(table.manifest.to_json())
    text = json.dumps({**document, "later": 0}).encode()
    data = codec.encode_document(
        text.replace(b'"later": 0', b'"later": ' + b"[" * depth + b"]" * depth)
    )
    storage.inner.delete([paths.manifest_path(1)])
    storage.inner.put_if_absent(paths.manifest_path(1), data)

    if depth < 250:
        later = open_in(storage)
        later.append(events(0, 1))
        assert later.scan().count() == 1
    else:
        with pytest.raises(CorruptTable):
            open_in(storage).append(events(0, 1))


@pytest.mark.s3
def test_credentials_are_not_in_any_object(s3_bucket: S3Bucket) -> None:
    """[SEC-1] [C10] What opened the store is nowhere in the table."""
    storage = open_storage(s3_bucket.url, s3_bucket.storage_options)
    table = create_in(storage, events(0, 1).schema, time_column="ts")
    table.append(events(0, 5), properties={"job": "x"})

    stored = {path: storage.read(path) for path, _ in storage.walk("")}

    assert len(stored) == 3
    for path, data in stored.items():
        text = codec.decompress(data, path) if path.endswith(".lz4") else data
        assert s3_bucket.storage_options["secret"].encode() not in text
        assert s3_bucket.storage_options["key"].encode() not in text


# --- values and stats ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int8", "128"),
        ("uint32", "-1"),
        ("bool", "2"),
        ("date", str(2**31)),
        ("decimal(3,1)", "1000"),
        ("int64", "-0"),
        ("int64", "01"),
        ("float64", "1e999"),
        ("float64", "inf"),
        ("binary", "%%"),
    ],
)
def test_values_outside_their_type_are_refused(kind: str, text: str) -> None:
    """[JSON-7] A bound that its column cannot hold is a corrupt table."""
    with pytest.raises(CorruptTable):
        values.decode(types.from_json(kind), text, "here")


def test_nan_bounds_and_half_a_pair_are_no_bounds() -> None:
    """[STA-5] [STA-8] Whoever wrote them: such stats prune nothing."""
    storage, table = watched()
    table.append(events(0, 4))
    kind = types.from_json("float64")
    half = stats.from_json(kind, {"min": "1.0", "null_count": "0", "has_nan": False}, "x")
    assert (half.min, half.max) == (None, None)
    (entry,) = table.manifest.segments
    bad = {**entry.column_stats, "3": {"min": "NaN", "max": "NaN", "null_count": "0"}}
    _put_next(storage, table, segments=[{**_json(entry), "column_stats": bad}])

    rows = open_in(storage).scan(filter="amount = 0.25").to_arrow()

    assert rows.column("n").to_pylist() == [1]


def _json(entry: SegmentEntry) -> dict[str, Any]:
    return dict(json.loads(entry.to_json()))


def _put_next(storage: WatchedStorage, table: Table, **fields: Any) -> None:
    """Commit the next version by hand, with some fields of the document changed."""
    document = json.loads(table.refresh().manifest.to_json())
    version = int(document["version"]) + 1
    record = {**document["commit"], "version": str(version), "commit_id": "f" * 32}
    document |= {"version": str(version), "commit": record, "parent_xxh64": "0" * 16, **fields}
    document["history"] = [record, *document["history"]]
    data = codec.encode_document(json.dumps(document).encode())
    storage.inner.put_if_absent(paths.manifest_path(version), data)


def test_stats_follow_the_column_through_rename_and_widening() -> None:
    """[STA-7] [STA-9] [M3] Bounds are kept by id and read in the type of today."""
    storage = open_storage(memory_url())
    table = create_in(storage, {"a": "int8", "b": "int8"}, time_column=None)
    table.append([{"a": 1, "b": 100}])
    table.append([{"a": 2, "b": 101}])
    table.evolve(rename={"a": "b", "b": "a"}, widen={"a": "int64"})

    plan = table.scan(filter="b > 1").plan()

    assert len(plan.segments) == 1
    assert table.scan(filter="b > 1 AND a = 101").count() == 1
    table.evolve(drop=["a"])
    table.evolve(add={"a": "int64"})
    assert table.scan(filter="a IS NULL").count() == 2


# --- pages and files ----------------------------------------------------------------------------


def _ref(entries: int, number: int) -> PageRef:
    return PageRef(
        path=f"_strandline/pages/1-{number:016x}.parquet",
        object_bytes=1,
        xxh64="0" * 16,
        entries=entries,
        row_count=1,
        size_bytes=1,
        min_seq=number,
        max_seq=number,
        min_ts=0,
        max_ts=0,
        column_stats={},
    )


def test_a_merged_page_has_at_most_32768_rows() -> None:
    """[PAG-7] Pages are merged only while the result stays a page."""
    _, table = watched()
    listed = tuple(_ref(4_095, i) for i in range(20))
    crowded = replace(
        table.manifest, windows=(WindowEntry(window=Window(0, 60_000), pages=listed),)
    )

    due = rolling.pages_to_merge(crowded)

    assert due is not None
    assert sum(page.entries for page in due[1]) <= 32_768


def test_a_page_that_unfolds_too_far_is_refused() -> None:
    """[PAG-7] [PAG-14] Bounded memory: rows and uncompressed bytes are looked at before reading."""
    _, table = watched()
    table.append(events(0, 1))
    entries = table.manifest.segments
    data = pages.encode_page(entries, table.manifest.schema)
    ref = replace(_ref(1, 1), object_bytes=len(data))
    assert pages.SegmentPage(ref, data).count == 1

    for limit in ("MAX_UNFOLDED_BYTES", "MAX_PAGE_ENTRIES"):
        with mock.patch.object(pages, limit, 0), pytest.raises(CorruptTable, match="at most"):
            pages.SegmentPage(ref, data)


def test_files_carry_the_column_id_as_field_id() -> None:
    """[PAR-2] [PAR-1] Ids and physical names, also of columns that were added later."""
    storage, table = watched()
    table.evolve(add={"later": "string"}, rename={"user": "who"})
    table.append([{"later": "x", "n": 1}])
    (entry,) = table.manifest.segments
    arrow = pq.read_schema(pa.BufferReader(storage.read(entry.path)))

    found = {
        field.name: int(field.metadata[b"PARQUET:field_id"])
        for field in arrow
        if field.name[0] != "_"
    }

    assert found == {"ts": 1, "user": 2, "amount": 3, "n": 4, "c5_later": 5}


def test_offsets_outside_the_entry_are_refused() -> None:
    """[ROW-2] A row whose number leaves [min_seq, max_seq] is a corrupt table."""
    storage, table = watched(ttl="10m")
    rows = events(0, 9, step_ms=40_000).take([0, 5, 1, 6, 2, 7, 3, 8, 4])
    table.append(rows)
    entries = [_json(entry) for entry in table.manifest.segments]
    moved = [{**e, "seq_base": "1"} if e["rows_are"] == "offset" else e for e in entries]
    assert moved != entries
    _put_next(storage, table, segments=moved)

    with pytest.raises(CorruptTable, match="outside the segment's sequence numbers"):
        open_in(storage).scan(columns=["_seq"]).to_arrow()


def test_only_a_run_of_the_batch_goes_without_offsets() -> None:
    """[ROW-8] [O1] Rows that lie together need no `_off`, scattered ones have it."""
    storage, table = watched(ttl="10m")
    table.append(events(0, 6, step_ms=30_000))
    table.append(events(0, 6, step_ms=30_000).take([0, 2, 1, 3, 5, 4]))

    found = [
        (entry.rows_are, "_off" in pq.read_schema(pa.BufferReader(storage.read(entry.path))).names)
        for entry in table.manifest.segments
    ]

    assert {kind for kind, _ in found} == {"dense", "offset"}
    assert all((kind == "offset") == has for kind, has in found)
    numbers = table.scan(columns=["_seq"]).to_arrow().column("_seq").to_pylist()
    assert numbers == list(range(12))


# --- commits ------------------------------------------------------------------------------------


def test_all_attempts_share_one_commit_id() -> None:
    """[COM-3] [C1] After a lost race, what is created carries the id of the first attempt."""
    storage, table = watched()
    other = open_in(storage.inner)
    seen: list[str] = []

    def race(name: str, path: str) -> None:
        if name == "put_if_absent" and "manifests" in path:
            if len(seen) < 2:
                other.append(events(100 + len(seen), 1))
            seen.append(path)

    storage.before = race
    made = table.append(events(0, 1))
    storage.before = lambda *_: None

    assert len(seen) == 3
    assert made.version == 4
    ids = [record.commit_id for record in table.history()]
    assert len(set(ids)) == 4


def test_unknown_writer_features_stop_every_commit() -> None:
    """[COM-7] [VER-2] Such a table can be read, and nothing in it is changed."""
    storage, table = watched()
    table.append(events(0, 2))
    _put_next(storage, table, writer_features=["from-the-future"])
    later = open_in(storage)

    assert later.scan().count() == 2
    for change in (
        lambda: later.append(events(2, 1)),
        lambda: later.fence("x"),
        lambda: later.evolve(add={"more": "int32"}),
    ):
        with pytest.raises(UnsupportedFormat, match="from-the-future"):
            change()
    assert later.refresh().version == 3


def _stamp() -> Stamp:
    return Stamp(commit_id="a" * 32, now_ms=START_MS, operation="append")


def _apply(head: Any, action: Any) -> Any:
    return apply(head, "0" * 16, [action], _stamp(), {})


def test_the_checks_of_an_append_stand_in_order() -> None:
    """[COM-8] [O8] Key, fence, match_seq, clamp, floors: the first that fails decides."""
    _, table = watched(order="clamp")
    table.append(events(5, 3), writer_id="w", batch=7)
    head = replace(table.manifest, fence="new", files_floor=99, floor_ts=table.manifest.last_ts)
    wrong = AddSegments(
        segments=head.segments,
        rows=3,
        last_ts=0,
        key=ExternalKey("w", 7),
        fence="old",
        match_seq=0,
        clamped_to=0,
    )

    assert isinstance(_apply(head, wrong), AlreadyCommitted)
    wrong = replace(wrong, key=ExternalKey("w", 8))
    with pytest.raises(Fenced):
        _apply(head, wrong)
    wrong = replace(wrong, fence="new")
    with pytest.raises(SeqMismatch):
        _apply(head, wrong)
    wrong = replace(wrong, match_seq=3)
    with pytest.raises(actions.MustRewrite, match="timestamp"):
        _apply(head, wrong)
    wrong = replace(wrong, clamped_to=head.last_ts)
    with pytest.raises(actions.MustRewrite, match="floor"):
        _apply(head, wrong)
    head = replace(head, floor_ts=0)
    with pytest.raises(actions.MustRewrite, match="vacuum"):
        _apply(head, wrong)
    made = _apply(replace(head, files_floor=0), replace(wrong, segments=()))
    assert made.next_seq == 6


def test_a_fence_that_nobody_set_is_refused() -> None:
    """[COM-8] A token for a table without one is a mistake, not a permission."""
    _, table = watched()

    with pytest.raises(CommitConflict, match="carries none"):
        table.append(events(0, 1), fence="x")


def test_files_below_the_files_floor_are_written_again() -> None:
    """[COM-9] The rows land once, in files that vacuum cannot have removed."""
    storage, table = watched()
    table.append(events(0, 1))
    _put_next(storage, table, files_floor="3")

    table.append(events(1, 2))

    newest = table.manifest.segments[-1]
    assert paths.parse_segment_path(newest.path).base_version >= 3
    assert table.scan(columns=["n"]).to_arrow().column("n").to_pylist() == [0, 1, 2]


def test_a_schema_change_is_worked_out_anew_on_the_head() -> None:
    """[COM-10] What no longer fits fails and changes nothing; what fits is added to the other's."""
    storage, table = watched()
    stale = open_in(storage)
    table.evolve(add={"a": "int32"}, drop=["amount"])

    stale.evolve(add={"b": "int32"})
    with pytest.raises(InvalidInput, match="amount"):
        open_in(storage, version=None).evolve(rename={"amount": "price"})

    assert stale.schema.names == ["ts", "user", "n", "a", "b"]
    ids = [column.id for column in stale.manifest.schema.columns]
    assert ids == [1, 2, 4, 5, 6]


def test_numbers_below_the_stored_one_get_no_other_batch_s_result() -> None:
    """[POS-2] Gaps are allowed; going back writes nothing and says which batch is the newest."""
    _, table = watched()
    first = table.append(events(0, 2), writer_id="w", batch=10)
    second = table.append(events(2, 3), writer_id="w", batch=20)

    again = table.append(events(0, 2), writer_id="w", batch=10)
    between = table.append(events(0, 2), writer_id="w", batch=15)

    assert (first.version, second.version) == (2, 3)
    newest = table.append(events(2, 3), writer_id="w", batch=20)
    for older in (again, between):
        assert (older.duplicate, older.superseded_by, older.rows) == (True, 20, 0)
        assert older.last_seq < older.first_seq
    assert newest == replace(second, duplicate=True)
    assert table.tail().next_seq == 5


def test_unknown_top_level_config_and_entry_fields_are_kept() -> None:
    """[VER-3] [M10] A commit by this library loses none of them."""
    storage, table = watched()
    table.append(events(0, 1))
    (entry,) = table.manifest.segments
    document = json.loads(table.manifest.to_json())
    _put_next(
        storage,
        table,
        files={"a": 1},
        vector_indexes=[1],
        config={**document["config"], "later": "x"},
        segments=[{**_json(entry), "vector_indexes": {"4": "hnsw"}}],
    )
    later = open_in(storage)
    later.append(events(1, 1))
    later.fence("token")

    stored = json.loads(open_in(storage).manifest.to_json())

    assert stored["files"] == {"a": 1}
    assert stored["vector_indexes"] == [1]
    assert stored["config"]["later"] == "x"
    assert stored["segments"][0]["vector_indexes"] == {"4": "hnsw"}


def test_unknown_entry_fields_move_with_the_entry_from_page_to_page() -> None:
    """[VER-3] [M10] Rolling an entry into a page, and merging pages, loses none of its fields."""
    storage, table = watched()
    table.append(events(0, 1))
    (entry,) = table.manifest.segments
    _put_next(storage, table, segments=[{**_json(entry), "vector_indexes": {"4": "hnsw"}}])
    later = open_in(storage)
    small = {"ROLL_AT": 2, "ROLL_STEP": 1, "LEAST_PAGE": 1, "TIER_FACTOR": 2}
    merged = 0
    with mock.patch.multiple(rolling, **small):
        for i in range(1, 6):
            later.append(events(i, 1))
            merged += bool(later.manifest.removed_files)

    found = [
        entry.extra
        for window in later.manifest.windows
        for page in segment_pages(ManifestService(storage), window.pages)
        for entry in page.entries(np.arange(page.count))
        if entry.extra
    ]

    assert merged
    assert found == [{"vector_indexes": {"4": "hnsw"}}]


def test_physical_names_are_never_used_again(tmp_path: Path) -> None:
    """[SCH-6] [M3] Whatever is dropped and added, no physical name comes back."""
    table = create_in(
        open_storage(tmp_path / "t"), {"a": "int32", "c2_a": "int32"}, time_column=None
    )
    seen = {column.physical_name.lower() for column in table.manifest.schema.columns}
    for _ in range(4):
        table.evolve(drop=["a"])
        table.evolve(add={"a": "int32"})
        added = table.manifest.schema.column("a").physical_name.lower()
        assert added not in seen
        assert re.fullmatch(r"c\d+_a", added)
        seen.add(added)
    assert schemas.schema_from({"C7_x": "int8"}).columns[0].physical_name == "c1_C7x"
