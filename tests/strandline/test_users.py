"""Tables with `scope="user"`: chains of their own, one schema and one retention for all."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from strandline import cli
from strandline.api import create_in, open_in
from strandline.catalog.page_cache import PAGES
from strandline.tableformat import codec
from strandline.tableformat.storage import open_storage
from tests.format_spec.places import validator
from tests.hostile_names import HOSTILE, REFUSED
from tests.stores import WatchedStorage
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables import Place

COLUMNS = {"n": "int64"}


def test_users_have_rows_numbers_and_versions_of_their_own(place: Place) -> None:
    """[M9] [USR-1] [USR-3] [USR-7] Appends of one never show at another; all are read at once."""
    table = strandline.create_table(
        place.url, COLUMNS, scope="user", storage_options=place.storage_options
    )
    first = table.user("alice").append([{"n": 1}, {"n": 2}])
    other = table.user("bob").append([{"n": 3}])

    assert (first.version, first.first_seq, other.version, other.first_seq) == (1, 0, 1, 0)
    again = place.open()
    assert isinstance(again, strandline.UsersTable)
    assert again.user("alice").scan(["n", "_seq"]).to_arrow().to_pylist() == [
        {"n": 1, "_seq": 0},
        {"n": 2, "_seq": 1},
    ]
    assert again.user("carol").scan().count() == 0
    assert again.users() == ["alice", "bob"]
    assert again.users("b", limit=5) == again.users(after="alice") == ["bob"]
    assert again.scan_users().to_arrow().to_pylist() == [
        {"_user": "alice", "n": 1},
        {"_user": "alice", "n": 2},
        {"_user": "bob", "n": 3},
    ]
    assert again.scan_users(filter="n > 1").count() == 2
    assert again.scan_users(["carol"]).to_arrow().schema.names == ["_user", "n"]


def test_the_table_speaks_for_all_users() -> None:
    """[M9] [USR-2] [USR-6] Schema, fence and drop reach handles that users opened before."""
    url = memory_url()
    table = strandline.create_table(url, COLUMNS, scope="user")
    alice = table.user("alice")
    alice.append([{"n": 1}])
    table.evolve(add={"more": "string"}, rename={"n": "number"})
    assert alice.scan().to_arrow().to_pylist() == [{"number": 1, "more": None}]
    alice.append([{"number": 2, "more": "x"}])
    table.fence("token")
    with pytest.raises(strandline.Fenced):
        alice.append([{"number": 3}])
    alice.append([{"number": 3}], fence="token")
    table.mark_dropped()
    with pytest.raises(strandline.TableDropped):
        alice.append([{"number": 4}], fence="token")
    with pytest.raises(strandline.TableDropped):
        alice.scan()


def test_one_commit_expires_the_rows_of_all_users(tmp_path: Path) -> None:
    """[M9] [X1] The table's floor hides and removes the windows of every user."""
    table = strandline.create_table(
        tmp_path / "t", {"ts": "int64", "n": "int64"}, time_column="ts", ttl="1d", scope="user"
    )
    day = 86_400_000
    for name in ("alice", "bob"):
        table.user(name).append([{"ts": day, "n": 1}, {"ts": 9 * day, "n": 2}])
    assert len(list((tmp_path / "t").glob("w*"))) == 2
    bob = table.user("bob")

    report = table.expire(now=10 * day, grace=0)

    assert len(report.prefixes_removed) == 1
    assert table.scan_users().to_arrow().column("n").to_pylist() == [2, 2]
    assert bob.scan().to_arrow().column("n").to_pylist() == [2]
    assert bob.append([{"ts": day, "n": 3}]).dropped == 1
    for verb in ("vacuum", "maintain", "purge", "expire_versions"):
        with pytest.raises(strandline.InvalidInput, match="own handle"):
            getattr(bob, verb)()


def test_what_does_not_fit_the_scope_is_refused() -> None:
    """[M9] The error says where to go, and nothing has changed."""
    table = strandline.create_table(memory_url(), COLUMNS, scope="user")
    with pytest.raises(strandline.InvalidInput, match=r"table\.user"):
        table.append([{"n": 1}])
    with pytest.raises(strandline.InvalidInput, match="scan_users"):
        table.scan()
    for one in ("alice", b"alice"):
        with pytest.raises(strandline.InvalidInput, match="list of names"):
            table.scan_users(one)  # type: ignore[arg-type]  # bytes are no list of names
    with pytest.raises(strandline.InvalidInput, match="own handle"):
        table.user("a").evolve(add={"x": "int64"})
    with pytest.raises(strandline.InvalidInput, match="own handle"):
        table.user("a").user("b")
    for verb in ("writer", "async_writer", "recover"):
        with pytest.raises(strandline.InvalidInput, match=r"table\.user"):
            getattr(table, verb)()
    with pytest.raises(strandline.InvalidInput, match="scope"):
        strandline.create_table(memory_url(), COLUMNS, scope="planet")
    with pytest.raises(strandline.InvalidInput, match="shared"):
        strandline.create_table(memory_url(), COLUMNS).user("a")
    for bad in REFUSED:
        with pytest.raises(strandline.InvalidInput):
            table.user(bad)


def test_older_versions_of_a_user_are_read(place: Place) -> None:
    """[M9] [C2] [C9] By number, tag and time; they are each user's own, and read only."""
    clock = Script(now=1_000_000)
    table = create_in(
        open_storage(place.url, place.storage_options),
        pa.schema({"n": pa.int64()}),
        time_column=None,
        scope="user",
        runtime=clock.runtime(),
    )
    for n in range(3):
        clock.now += 1_000
        table.user("ann").append([{"n": n}])
    table.user("ann").tag("two", 2)

    def rows(**which: Any) -> list[int]:
        found = table.user("ann", **which).scan().to_arrow().column("n").to_pylist()
        assert isinstance(found, list)
        return found

    assert rows(version=1) == [0]
    assert rows(version="two") == rows(as_of=1_002_500) == [0, 1]
    assert rows() == [0, 1, 2]
    assert place.open().user("ann", "two").version == 2
    with pytest.raises(strandline.ReadOnlyTable):
        table.user("ann", 1).append([{"n": 9}])
    for wrong in ({"version": 9}, {"version": "none"}, {"as_of": 5}):
        with pytest.raises(strandline.VersionNotFound):
            table.user("ann", **wrong)
    with pytest.raises(strandline.VersionNotFound):
        table.user("bob", 1)
    with pytest.raises(strandline.InvalidInput, match="not both"):
        table.user("ann", 1, as_of=5)
    with pytest.raises(strandline.InvalidInput, match=r"table\.user\(name, version\)"):
        strandline.open_table(place.url, 1, storage_options=place.storage_options).user("ann")


def test_commands_work_on_one_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[M9] [O6] Rows go to the user who is named; users are listed by pages."""
    url = str(tmp_path / "t")

    def run(*command: str) -> str:
        assert cli.main(list(command)) == 0
        return capsys.readouterr().out

    run("create", url, "--schema", "n:int64", "--scope", "user")
    rows = tmp_path / "rows.jsonl"
    for n, name in enumerate(("ann", "bob", "bo/b")):
        rows.write_text(json.dumps({"n": n}))
        run("append", url, str(rows), "--user", name)
    run("delete", url, "--user", "bob", "--filter", "n = 1")
    run("tag", url, "--user", "ann", "first")
    run("overwrite", url, str(rows), "--user", "ann")

    assert json.loads(run("scan", url, "--user", "ann", "--json")) == [{"n": 2}]
    assert json.loads(run("scan", url, "--user", "ann", "--version", "first", "--json")) == [
        {"n": 0}
    ]
    assert json.loads(run("scan", url, "--user", "bob", "--count", "--json")) == {"rows": 0}
    listed = json.loads(run("users", url, "--prefix", "bo", "--limit", "1", "--json"))
    assert listed == [{"name": "bo/b"}]
    assert json.loads(run("tail", url, "--user", "ann", "--json"))["next_seq"] == 2
    facts = json.loads(run("describe", url, "--json"))
    assert (facts["users"], facts["scope"]) == (3, "user")
    assert json.loads(run("describe", url, "--user", "ann", "--json"))["rows"] == 1
    for command in (["append", url, str(rows)], ["scan", url], ["tail", url]):
        assert cli.main(command) == 1
        assert "--user" in capsys.readouterr().err
    run("create", url + "2", "--schema", "n:int64")
    for command in (["users", url + "2"], ["scan", url + "2", "--user", "ann"]):
        assert cli.main(command) == 1
        assert "shared" in capsys.readouterr().err


def test_users_have_keys_of_their_own(place: Place) -> None:
    """[M9] [C4] [M8] [USR-10] [USR-11] The newest row per key within each user, for one and all."""
    table = strandline.create_table(
        place.url,
        {"id": "int64", "v": "string"},
        scope="user",
        primary_key="id",
        storage_options=place.storage_options,
    )
    ann, bob = table.user("ann"), table.user("bob")
    ann.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    bob.append([{"id": 1, "v": "other"}, {"id": 3, "v": "c"}])
    ann.upsert([{"id": 1, "v": "newer"}])
    ann.delete(keys=[2, 7])
    assert bob.delete(filter="v = 'c'").rows == 1

    again = place.open()
    assert isinstance(again, strandline.UsersTable)
    assert again.scan_users().to_arrow().to_pylist() == [
        {"_user": "ann", "id": 1, "v": "newer"},
        {"_user": "bob", "id": 1, "v": "other"},
    ]
    assert again.scan_users().count() == 2
    assert again.scan_users(all_rows=True, columns=["id"]).count() == 5
    assert again.user("ann").exists([1, 2, 3]).tolist() == [True, False, False]
    assert again.user("bob").get([1, 3]).to_pylist() == [{"id": 1, "v": "other"}]
    assert again.user("carol").exists([1]).tolist() == [False]
    with pytest.raises(strandline.InvalidRow, match="id"):
        ann.upsert([{"id": None, "v": "x"}])
    for call in (again.upsert, again.get, again.exists, lambda keys: again.delete(keys=keys)):
        with pytest.raises(strandline.InvalidInput, match=r"table\.user"):
            call([{"id": 1}])
    with again.user("bob").writer("w", wal=False, ack="committed") as writer:
        writer.append({"id": 1, "v": "log"})
    assert bob.get([1], ["v"]).to_pylist() == [{"v": "log"}]


def test_hostile_users_live_side_by_side(tmp_path: Path) -> None:
    """[O5] [USR-4] [USR-5] Any name is a user; listings know all; documents fit their schema."""
    table = strandline.create_table(tmp_path / "t", COLUMNS, scope="user")
    for number, name in enumerate(HOSTILE):
        table.user(name).append([{"n": number}])
    assert table.users() == sorted(HOSTILE, key=str.encode)
    rows = table.scan_users().to_arrow().to_pylist()
    assert {row["_user"]: row["n"] for row in rows} == {n: i for i, n in enumerate(HOSTILE)}
    for file in (tmp_path / "t/_strandline/users").rglob("*.json.lz4"):
        document = codec.decode_document(file.read_bytes(), file.name)
        validator("user_manifest", strict=True).validate(document)
        assert document["root_version"] == "1"
    assert len(list((tmp_path / "t").rglob("batch-1-*.parquet"))) == len(HOSTILE)


def test_reading_one_user_costs_the_same_however_many_there_are() -> None:
    """[M9] A user's rows take a few requests, and none for other users."""
    costs = []
    for others in (0, 40):
        url = memory_url()
        table = create_in(
            open_storage(url), pa.schema({"n": pa.int64()}), time_column=None, scope="user"
        )
        for i in range(others):
            table.user(f"other-{i}").append([{"n": i}])
        table.user("me").append([{"n": 1}])
        watched = WatchedStorage(open_storage(url))
        assert open_in(watched).user("me").scan().count() == 1
        costs.append(len(watched.names()))
    assert costs[0] == costs[1] <= 10


@pytest.mark.parametrize("users", [60, pytest.param(10_000, marks=pytest.mark.proof)])
def test_users_leave_nothing_in_memory(users: int) -> None:
    """[M4] [M9] Neither handles nor footers are kept: all of them scanned, the same memory."""
    table = strandline.create_table(memory_url(), COLUMNS, scope="user")
    for i in range(users):
        table.user(f"u{i}").append([{"n": i}])

    def read(numbers: range) -> None:
        for i in numbers:
            handle = table.user(f"u{i % users}")
            assert handle.tail().next_seq == 1
            assert handle.scan().to_arrow().num_rows == 1

    read(range(10))
    kept = len(PAGES._pages)  # noqa: SLF001
    tracemalloc.start()
    read(range(10))
    few = tracemalloc.get_traced_memory()[0]
    read(range(10, max(250, users)))
    many = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert many - few < 200_000
    table.compact()
    assert len(PAGES._pages) == kept  # noqa: SLF001


PRODUCER = """
import sys, strandline
url, process, users, appends, processes = sys.argv[1], *map(int, sys.argv[2:])
table = strandline.open_table(url)
for n in range(appends):
    for user in range(users):
        if n % processes == process:
            table.user(f"user-{user}").append([{"n": n}], writer_id=f"w{process}", batch=n)
"""


@pytest.mark.parametrize(
    ("users", "appends", "processes"),
    [(5, 12, 3), pytest.param(1000, 100, 8, marks=pytest.mark.proof)],
)
def test_many_processes_lose_no_users_append(
    tmp_path: Path, users: int, appends: int, processes: int
) -> None:
    """[M9] [C1] Every append of every process to every user is there once."""
    url = str(tmp_path / "t")
    table = strandline.create_table(url, COLUMNS, scope="user")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER, url, *map(str, (p, users, appends, processes))]
        )
        for p in range(processes)
    ]
    assert [process.wait() for process in running] == [0] * processes
    assert len(table.users()) == users
    for name in table.users():
        rows = table.user(name).scan(["n", "_seq"]).to_arrow()
        assert sorted(rows.column("n").to_pylist()) == list(range(appends))
        assert rows.column("_seq").to_pylist() == list(range(appends))
