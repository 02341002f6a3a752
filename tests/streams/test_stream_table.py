"""What stream tables promise, on disk, in memory and on S3."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pytest

import strandline
from strandline.streams import log_files, open_logs
from strandline.streams.creation import create_stream
from strandline.tableformat import codec
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stream_frames import read_frames
from strandline.tableformat.windows import DAY_MS, HOUR_MS, MINUTE_MS, MONTH_MS, WEEK_MS
from tests.stores import WatchedStorage
from tests.streams.rigs import NOW, SCHEMA, new_stream, pairs, reopened, row
from tests.tables import Place, Script, memory_url

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_of_a_user_are_put_replaced_deleted_and_read(place: Place) -> None:
    """[K5] [K6] Newest per row id, deletes applied, then the limit; other users see nothing."""
    storage, script = open_storage(place.url, place.storage_options), Script(now=NOW)
    table = new_stream(storage, script)
    table.put("alice", [row("a", 1), row("b", 2), row("c", 3)])
    table.put("alice", [row("a", 4, NOW + 0)], flush=True)
    table.put("bob", [row("a", 9)])

    assert table.delete("alice", ["b", "unknown"]) == 1
    table.flush()

    for handle in (table, reopened(storage, script)):
        assert pairs(handle.latest("alice")) == [("a", 4), ("c", 3)]
        assert pairs(handle.latest("alice", limit=1)) == [("a", 4)]
        assert pairs(handle.latest("alice", limit=0)) == []
        assert pairs(handle.range("alice")) == [("c", 3), ("a", 4)]
        assert pairs(handle.latest("nobody")) == []
        assert handle.users() == ["alice", "bob"]
    table.put("alice", [row("b", 7)])
    assert ("b", 7) in pairs(table.latest("alice"))


@pytest.mark.parametrize(
    ("ttl", "length"),
    [
        ("15m", MINUTE_MS),
        ("900001ms", HOUR_MS),
        ("1d", HOUR_MS),
        ("86400001ms", DAY_MS),
        ("7d", DAY_MS),
        ("604800001ms", WEEK_MS),
        ("30d", WEEK_MS),
        ("2592000001ms", MONTH_MS),
    ],
)
def test_logs_lie_in_windows_whose_length_the_ttl_decides(ttl: str, length: int) -> None:
    """[K1] [STR-1] [STR-2] The five steps, to the millisecond, in the names of the folders."""
    storage = open_storage(memory_url())
    table = new_stream(storage, ttl=ttl)

    table.put("alice", [row("a", 1, NOW)], flush=True)

    shard = table._layout.shard_of("alice")  # noqa: SLF001 - SPEC.md names the hash
    (path,) = [path for path, _ in storage.walk("") if path.startswith("w")]
    start = NOW - NOW % length
    assert path == f"w{start}-{length}/shard-{shard}/alice.log/{0:012d}-{0:012d}"


def test_a_log_on_a_disk_is_one_file_per_user_and_window(tmp_path: Path) -> None:
    """[K1] [STR-1] Rows on both sides of a window's edge go to two files, and no manifest grows."""
    storage = open_storage(tmp_path)
    table = new_stream(storage)

    table.put("alice", [row("a", 1, NOW - 1), row("b", 2, NOW)], flush=True)
    table.put("alice", [row("c", 3, NOW)], flush=True)

    found = sorted(path for path, _ in storage.walk(""))
    assert [path.partition("/")[0] for path in found if path.startswith("w")] == [
        f"w{NOW - MINUTE_MS}-60000",
        f"w{NOW}-60000",
    ]
    assert sum(path.endswith("/alice.log") for path in found) == 2
    assert sum(path.startswith("_strandline/manifests/") for path in found) == 1


def test_expired_rows_are_hidden_at_once_and_removed_by_window_names() -> None:
    """[K2] [K7] [STR-8] [STR-9] The clock hides rows; expiry removes folders, and reads no log."""
    storage, script = WatchedStorage(open_storage(memory_url())), Script(now=NOW)
    table = new_stream(storage, script)
    table.put("alice", [row("a", 1, NOW - 1000), row("b", 2, NOW)], flush=True)
    table.put("alice", [row("c", 3, NOW)])

    script.now = NOW + MINUTE_MS
    assert pairs(table.range("alice")) == [("b", 2), ("c", 3)]
    script.now += 1
    assert pairs(table.range("alice")) == []
    assert table.put("alice", [row("d", 1, NOW)]) == strandline.PutResult(0, 1)

    assert not table.has_logs_before(NOW - 1)
    assert table.has_logs_before(NOW)
    storage.names()
    done = table.expire()
    assert done.windows == (f"w{NOW - MINUTE_MS}-60000",)
    assert "read" not in storage.names()
    script.now = NOW + 2 * MINUTE_MS
    done = table.expire()
    assert (done.windows, done.closed_logs) == ((f"w{NOW}-60000",), 1)
    assert [path for path, _ in storage.inner.walk("w")] == []
    table.flush()
    assert [name for name in storage.folders("") if name.startswith("w")] == []


def test_looking_for_old_logs_stops_at_the_first_hit() -> None:
    """[K2] [STR-9] Of a hundred windows one name is looked at."""
    storage = WatchedStorage(open_storage(memory_url()))
    table = new_stream(storage, ttl="15m")
    for minute in range(10):
        table.put("alice", [row("a", 1, NOW - minute * MINUTE_MS)], flush=True)
    storage.names()

    assert table.has_logs_before(NOW)

    assert len([name for name in storage.names() if name == "folder"]) <= 2


def test_buffers_are_bounded_and_the_coldest_log_is_closed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[K3] 64 KiB for each open log, at most 256 of them; who is closed is stored first."""
    assert (open_logs.BUFFER_BYTES, open_logs.MAX_OPEN) == (65_536, 256)
    monkeypatch.setattr(open_logs, "MAX_OPEN", 3)
    storage = WatchedStorage(open_storage(memory_url()))
    table = new_stream(storage)
    logs = table._logs  # noqa: SLF001 - what is open
    for user in ("a", "b", "c", "a", "d"):
        table.put(user, [row("x", 1)])

    assert len(logs) == 3
    assert [path.split("/")[-1] for path in logs.paths()] == ["c.log", "a.log", "d.log"]
    stored = [path for name, path in storage.calls if name == "put_if_absent" and ".log" in path]
    assert len(stored) == 1
    assert "/b.log/" in stored[0]

    for n in range(3_000):
        table.put("a", [row(f"row-{n:08d}", n)])
        assert len(logs.waiting(logs.paths()[-1])) < open_logs.BUFFER_BYTES + 200
    assert sum("/a.log/" in path for name, path in storage.calls if name == "put_if_absent") >= 2


def test_rows_that_are_put_one_by_one_share_a_frame(tmp_path: Path) -> None:
    """[K3] [K4] A flush, a read or a delete closes a frame; what was put together stays so."""
    table = new_stream(open_storage(tmp_path / "t"))
    for n in range(5):
        table.put("alice", [row(f"row-{n}", n)])
    table.put("alice", [row("row-5", 5), row("row-6", 6)])
    table.delete("alice", ["row-1"])
    table.put("alice", [row("row-7", 7)])
    table.flush()

    (log,) = (tmp_path / "t").rglob("alice.log")
    frames = list(read_frames(log.read_bytes(), "log"))

    assert [(frame.kind, len(frame.ts_ms)) for frame in frames] == [(1, 7), (3, 1), (1, 1)]
    assert [x for _, x in pairs(table.range("alice"))] == [0, 2, 3, 4, 5, 6, 7]


def test_half_a_character_is_refused_for_its_row() -> None:
    """[E1] Rows are encoded when they are put: what cannot be stored is said at once."""
    table = new_stream()
    with pytest.raises(strandline.StrandlineError):
        table.put("alice", [row("ok", 1), row("\ud800", 2)])
    assert pairs(table.range("alice")) == []


def test_objects_of_a_log_stay_few_where_a_store_cannot_append(place: Place) -> None:
    """[K6] [STR-6] A hundred flushes leave a bounded number of objects, and lose no row."""
    storage, script = open_storage(place.url, place.storage_options), Script(now=NOW)
    table = new_stream(storage, script)
    flushes = 40 if place.storage_options else 100
    for n in range(flushes):
        table.put("alice", [row(f"row-{n}", n)], flush=True)
        logs = [path for path, _ in storage.walk("") if "alice.log" in path]
        assert len(logs) <= (1 if storage.can_append else log_files.MAX_OBJECTS)

    assert pairs(reopened(storage, script).range("alice")) == [
        (f"row-{n}", n) for n in range(flushes)
    ]


def test_a_writer_that_slept_through_a_merge_loses_nothing() -> None:
    """[K6] [STR-7] Its number was merged and removed meanwhile; its rows are stored again."""
    inner, script = open_storage(memory_url()), Script(now=NOW)
    storage = WatchedStorage(inner)
    slow, quick = new_stream(storage, script), reopened(inner, script)
    slow.put("alice", [row("slow-0", 0)], flush=True)

    def meanwhile(name: str, path: str) -> None:
        if name == "put_if_absent" and "alice.log" in path:
            storage.before = lambda *_: None
            for n in range(60):
                quick.put("alice", [row(f"quick-{n}", n)], flush=True)

    storage.before = meanwhile
    slow.put("alice", [row("slow-1", 1)], flush=True)

    found = [name for name, _ in pairs(quick.range("alice"))]
    assert sorted(found) == sorted([f"quick-{n}" for n in range(60)] + ["slow-0", "slow-1"])


def test_arrow_and_unusual_rows_take_the_long_road_to_the_same_place() -> None:
    """[K5] A big batch, NaN, nested values and nulls come back as they were put."""
    schema = {"id": "int64", "v": "float64", "tags": pa.list_(pa.string())}
    storage = open_storage(memory_url())
    script = Script(now=NOW)
    table = create_stream(storage, schema, row_id="id", ttl="1h", runtime=script.runtime())
    table.put("u", pa.table({"id": pa.array(range(1000)), "v": pa.array([0.5] * 1000)}))
    table.put("u", [{"id": 1, "v": float("nan"), "tags": ["x", None]}])

    rows = {r["id"]: r for r in table.latest("u").to_pylist()}

    assert len(rows) == 1000
    assert rows[1]["tags"] == ["x", None]
    assert rows[1]["v"] != rows[1]["v"]
    assert rows[7] == {"id": 7, "v": 0.5, "tags": None}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda t: t.put("", [row("a", 1)]), "1 to 512 bytes"),
        (lambda t: t.put("..", [row("a", 1)]), "cannot be '..'"),
        (lambda t: t.put("u" * 513, [row("a", 1)]), "not 513"),
        (lambda t: t.put(7, [row("a", 1)]), "text"),
        (lambda t: t.put("u", [{"x": 1}]), "has to name the row"),
        (lambda t: t.put("u", [row("a", 1), {"id": "b", "y": 1}]), "no such column"),
        (lambda t: t.put("u", [{"id": "a", "x": "one"}]), "field 'x'"),
        (lambda t: t.delete("u", "a"), "a list of row ids"),
        (lambda t: t.delete("u", [None]), "None"),
        (lambda t: t.delete("u", [object()]), "field 'id'"),
        (lambda t: t.latest("u", limit=-1), "limit"),
        (lambda t: t.latest("u", columns=["y"]), "no column 'y'"),
        (lambda t: t.range("u", start_ts="yesterday"), "start_ts"),
        (lambda t: t.expire(now="later"), "now"),
    ],
)
def test_what_cannot_be_accepted_is_said_and_changes_nothing(call: Any, reason: str) -> None:
    """[E1] Row, field and reason; nothing was stored."""
    storage = open_storage(memory_url())
    table = new_stream(storage)

    with pytest.raises(strandline.InvalidInput, match=reason):
        call(table)

    table.flush()
    assert [path for path, _ in storage.walk("") if path.startswith("w")] == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ttl": None}, "needs a ttl"),
        ({"row_id": None}, "needs row_id"),
        ({"row_id": "nope"}, "nope"),
        ({"shards": 0}, "shards"),
        ({"order": "clamp"}, r"no option 'order'\. It has"),
        ({"kind": "streams"}, "kind is"),
    ],
)
def test_a_wrong_creation_is_refused(options: dict[str, Any], reason: str) -> None:
    """[K1] What a stream table needs is named."""
    given = {"kind": "stream", "ttl": "60s", "row_id": "id", **options}
    with pytest.raises(strandline.InvalidInput, match=reason):
        strandline.create_table(memory_url(), SCHEMA, **given)


def test_other_readers_refuse_a_stream_table_by_its_feature(tmp_path: Path) -> None:
    """[STR-1] [VER-1] A plain reader would find no segments and call the table empty."""
    strandline.create_table(tmp_path / "s", SCHEMA, kind="stream", ttl="60s", row_id="id")
    strandline.create_table(tmp_path / "t", SCHEMA)

    with pytest.raises(strandline.UnsupportedFormat, match="kind='stream'"):
        strandline.open_table(tmp_path / "s")
    with pytest.raises(strandline.InvalidInput, match="no stream table"):
        strandline.open_table(tmp_path / "t", kind="stream")
    with pytest.raises(strandline.TableExists):
        strandline.create_table(tmp_path / "s", SCHEMA, kind="stream", ttl="60s", row_id="id")
    again = strandline.create_table(
        tmp_path / "s", SCHEMA, kind="stream", ttl="60s", row_id="id", exist_ok=True
    )
    assert again.uuid == strandline.open_table(tmp_path / "s", kind="stream").uuid


def test_rows_reach_other_processes_when_the_table_is_closed(tmp_path: Path) -> None:
    """[K3] Leaving the block stores what waited; afterwards the handle refuses."""
    url = tmp_path / "s"
    with strandline.create_table(url, SCHEMA, kind="stream", ttl="60s", row_id="id") as table:
        table.put("alice", [{"id": "a", "x": 1, "at": int(time.time() * 1000)}])

    with pytest.raises(strandline.InvalidInput, match="closed"):
        table.put("alice", [{"id": "b"}])
    assert strandline.open_table(url, kind="stream").latest("alice").num_rows == 1


def test_an_unknown_writer_feature_lets_read_and_refuses_to_write(tmp_path: Path) -> None:
    """[VER-2] [X4] Nothing is put, deleted or removed that another writer may count on."""
    options: dict[str, Any] = {"kind": "stream", "ttl": "1d", "row_id": "id"}
    with strandline.create_table(tmp_path / "t", {"id": "string"}, **options) as table:
        table.put("alice", [{"id": "a"}])
    (file,) = (tmp_path / "t/_strandline/manifests").iterdir()
    document = codec.decode_document(file.read_bytes(), "manifest")
    document["writer_features"] += ["from-the-future"]
    file.write_bytes(codec.encode_document(orjson.dumps(document)))
    later = strandline.open_table(tmp_path / "t", kind="stream")

    for change in (
        lambda: later.put("alice", [{"id": "b"}]),
        lambda: later.delete("alice", ["a"]),
        lambda: later.expire(now=NOW + 10**12),
    ):
        with pytest.raises(strandline.UnsupportedFormat, match="from-the-future"):
            change()
    assert later.latest("alice").to_pylist() == [{"id": "a"}]
