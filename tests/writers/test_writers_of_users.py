"""Writers with a log in tables with `scope="user"`: a log, a claim and a position for each user."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline import cli
from strandline.tableformat.errors import Fenced, InvalidInput, LogInUse, WriterFenced
from strandline.writers.log import read_log
from strandline.writers.log_places import find_place
from strandline.writers.options import log_options
from tests.hostile_names import HOSTILE
from tests.tables import memory_url
from tests.writers.rigs import crash, without_threads

if TYPE_CHECKING:
    from tests.tables import Place

COLUMNS = {"n": "int64"}


def created(url: Any, **config: Any) -> strandline.UsersTable:
    """A table of users."""
    table = strandline.create_table(url, COLUMNS, scope="user", **config)
    assert isinstance(table, strandline.UsersTable)
    return table


def numbers(table: strandline.UsersTable) -> dict[str, list[int]]:
    """Every user's rows, in their order."""
    return {name: scan.to_arrow().column("n").to_pylist() for name, scan in table.scan_users()}


def left_behind(table: strandline.UsersTable, user: str, wal: Any, *rows: int) -> None:
    """A user's writer that takes rows and ends as its process would end, before any commit."""
    with without_threads():
        writer = table.user(user).writer("p", wal=wal, flush_records=2)
        for n in rows:
            writer.append({"n": n})
        if writer._log is not None and writer._log.must_sync:  # noqa: SLF001 - objects: stored now
            writer._log.flush()  # noqa: SLF001
            writer._log.sync_until(len(rows))  # noqa: SLF001
        crash(writer)


def test_writers_of_many_users_write_at_once(place: Place) -> None:
    """[M9] [E2] [E3] [C1] One id and one folder for all: rows, numbers, claims are each one's."""
    table = created(place.url, storage_options=place.storage_options)
    names = ["ann", "bob", "ann/b", "Ünal"]
    writers = [table.user(name).writer("p", flush_rows=3) for name in names]
    for n in range(10):
        for writer in writers:
            writer.append({"n": n})
    with pytest.raises(LogInUse):
        table.user("ann").writer("p")
    assert [writer.scan().count() for writer in writers] == [10] * len(names)
    assert "user 'bob'" in repr(writers[1])
    for writer in writers:
        assert writer.close().committed

    assert numbers(table) == {name: list(range(10)) for name in names}
    for name in names:
        positions = table.user(name).manifest.positions
        assert [(key, position.number) for key, position in positions.items()] == [("p", 10)]
    assert not table.manifest.positions


@pytest.mark.parametrize("kind", ["default", "folder", "objects"])
def test_what_writers_of_users_left_is_recovered_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """[M9] [E2] [E15] [WAL-5] [WAL-9] Each user's rows come back once, at that user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    wal = {"default": None, "folder": tmp_path / "wal", "objects": memory_url()}[kind]
    table = created(tmp_path / "t")
    names = ["ann", "bob", "a/../b"]
    for i, name in enumerate(names):
        left_behind(table, name, wal, *range(10 * i, 10 * i + 5))
    assert numbers(table) == {name: [] for name in names}

    found = [table.user(name).recover("p", wal, dry_run=True).rows for name in names]
    assert found == [5, 5, 5]
    with table.user("bob").writer("p", wal=wal) as writer:
        assert writer.recovered.rows == 5
        writer.append({"n": 99})
    for name in names:
        table.user(name).recover("p", wal)

    assert numbers(table) == {
        "a/../b": [20, 21, 22, 23, 24],
        "ann": [0, 1, 2, 3, 4],
        "bob": [10, 11, 12, 13, 14, 99],
    }
    assert table.user("nobody").recover("p", wal) == strandline.Recovered()
    assert table.users() == ["a/../b", "ann", "bob"]


def test_the_command_recovers_a_users_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[M9] [E2] `strandline recover --user`; without it the table says whom to ask."""
    table = created(tmp_path / "t")
    left_behind(table, "ann", tmp_path / "wal", 1, 2)
    command = ["recover", table.url, "--writer-id", "p", "--wal", str(tmp_path / "wal"), "--json"]

    assert cli.main(command) == 1
    assert "--user" in capsys.readouterr().err
    assert cli.main([*command, "--user", "bob"]) == 0
    assert json.loads(capsys.readouterr().out)["log"] is None
    assert cli.main([*command, "--user", "ann"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2

    assert numbers(table) == {"ann": [1, 2]}


def test_every_file_of_a_log_says_whose_it_is(tmp_path: Path) -> None:
    """[WAL-9] [E2] Also behind a full memtable and a new column; another user's is refused."""
    table = created(tmp_path / "t")
    with without_threads():
        writer = table.user("ann").writer("p", wal=tmp_path / "wal", flush_records=2)
        for n in range(3):
            writer.append({"n": n})
        table.evolve(add={"more": "string"})
        writer.append({"n": 3, "more": "x"})
        crash(writer)
    files = sorted((tmp_path / "wal" / "ann").iterdir())

    assert len(files) >= 3
    headers = [read_log([(f.name, f.read_bytes())])[0].header for f in files]
    assert {header.user for header in headers} == {"ann"}
    shutil.copytree(tmp_path / "wal" / "ann", tmp_path / "wal" / "bob")
    for call in (table.user("bob").recover, table.user("bob").writer):
        with pytest.raises(InvalidInput, match="user 'ann', not to user 'bob'"):
            call("p", wal=tmp_path / "wal")
    shared = strandline.create_table(tmp_path / "shared", COLUMNS)
    with pytest.raises(InvalidInput, match="another table"):
        shared.recover("p", tmp_path / "wal" / "ann")
    assert numbers(table) == {"ann": []}
    assert table.user("ann").recover("p", tmp_path / "wal").rows == 4
    assert table.user("ann").scan().to_arrow().to_pylist()[3] == {"n": 3, "more": "x"}


def test_a_users_writer_is_fenced_by_the_next_one_and_by_the_table(tmp_path: Path) -> None:
    """[O8] [M9] [USR-6] A claim counts within one user; the token is the table's."""
    table = created(tmp_path / "t")
    old = table.user("ann").writer("p", wal=tmp_path / "old")
    other = table.user("bob").writer("p", wal=tmp_path / "old")
    new = table.user("ann").writer("p", wal=tmp_path / "new")
    with pytest.raises(WriterFenced):
        old.append({"n": 1}).wait()
    new.append({"n": 2}).wait()
    other.append({"n": 3}).wait()
    table.fence("token")
    for writer in (new, other):
        with pytest.raises(Fenced):
            writer.append({"n": 4}).wait()
    for writer in (old, new, other):
        writer.close()

    assert numbers(table) == {"ann": [2], "bob": [3]}
    # What was acknowledged and fenced out is in the logs, for who has the token.
    assert table.user("bob").recover("p", tmp_path / "old", fence="token").rows == 1


def test_an_asyncio_writer_of_a_user(tmp_path: Path) -> None:
    """[M9] [E2] The same handle as any table's."""
    table = created(tmp_path / "t")

    async def produce() -> None:
        async with table.user("ann").async_writer("p", wal=tmp_path / "wal") as writer:
            receipt = await writer.append([{"n": 1}, {"n": 2}])
            await receipt

    asyncio.run(produce())

    assert numbers(table) == {"ann": [1, 2]}


@pytest.mark.parametrize("url", [None, "memory://logs/here"])
def test_no_users_log_lies_in_another_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    """[O5] [WAL-9] Whatever users are called: a folder each, all of them below the one named."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    base = url or str(tmp_path / "wal")
    options = log_options(None if url else base)
    folders = []
    for name in HOSTILE:
        Path(base).mkdir(exist_ok=True) if url is None else None
        place = _place_of(options if url is None else log_options(url), name)
        folders.append(place.rstrip("/") + "/")
    assert len(set(folders)) == len(HOSTILE)
    assert all(folder.startswith(base) and len(folder) > len(base) + 1 for folder in folders)
    ordered = sorted(folders)
    assert not any(b.startswith(a) for a, b in itertools.pairwise(ordered))


def _place_of(options: Any, user: str) -> str:
    from strandline.writers.log_places import open_place  # noqa: PLC0415

    place = open_place(options, "0" * 32, "w", user)
    place.release()
    assert find_place(options, "0" * 32, "w", user) is not None
    return place.where
