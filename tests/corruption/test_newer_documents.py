"""Catalogs, users, remembered queries, stream tables, snapshots: damage is refused or harmless."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest

import strandline
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable, StrandlineError
from tests.tables import memory_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = {"ts": "int64", "u": "string", "x": "float64"}
LONG = "L" * 400
"""A user whose name does not fit into a file's name, so it is read from the file."""
FOLDERS = {
    "names": "_catalog/tables/*/*.lz4",
    "namespaces": "_catalog/namespaces/*.lz4",
    "users": "**/users/**/manifests/*.lz4",
    "user names": "**/user_names/*/*",
    "queries": "**/materializations/*/*.lz4",
    "frames": "**/materializations/*/frames/*",
    "streams": "stream/_strandline/manifests/*.lz4",
    "snapshots": "*.snap",
}
VALUES = [None, [], {}, "x", "", -1, True, "9" * 20, [None], {"a": 1}, 1.5, "../../x", ["x"]]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind."""
    root: Path = tmp_path_factory.mktemp("lake")
    catalog = strandline.Catalog(root)
    events = catalog.create_table("ns.first", SCHEMA, time_column="ts")
    events.append([{"ts": i, "u": f"u{i % 3}", "x": i / 2} for i in range(30)])
    events.remember("sums", {"aggregates": {"s": "sum(x)", "n": "count(*)"}, "columns": ["u"]})
    events.remember("rows", {"columns": ["x"], "filter": "u = 'u1'"})
    events.export(root / "all.snap")
    catalog.rename_table("ns.first", "ns.events")
    catalog.create_table("ns.gone", {"n": "int64"})
    catalog.drop_table("ns.gone")
    users = catalog.create_table("ns.users", {"n": "int64"}, scope="user")
    for number, name in enumerate(("alice", "Bob/1", LONG)):
        users.user(name).append([{"n": number}])
    stream = strandline.create_table(
        root / "stream", {"id": "string"}, kind="stream", ttl="100d", row_id="id"
    )
    stream.put("alice", [{"id": "a"}, {"id": "b"}])
    stream.close()
    return root


def _catalog(root: Path) -> object:
    catalog = strandline.Catalog(root)
    tables = catalog.list_tables("ns", include_dropped=True)
    names = [space.name for space in catalog.list_namespaces()]
    return names, [(t.name, t.uuid) for t in tables], catalog.open_table("ns.events").uuid


def _users(root: Path) -> object:
    table = strandline.Catalog(root).open_table("ns.users")
    assert isinstance(table, strandline.UsersTable)
    return table.users(), table.scan_users().to_arrow().to_pylist()


def _queries(root: Path) -> object:
    table = strandline.Catalog(root).open_table("ns.events")
    answers = [table.show(alias).to_pylist() for alias in ("sums", "rows")]
    return table.remembered(), [sorted(map(str, answer)) for answer in answers]


def _stream(root: Path) -> object:
    return strandline.open_table(root / "stream", kind="stream").latest("alice").to_pylist()


def _snapshot(root: Path) -> object:
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    strandline.replay(root / "all.snap", table)
    return table.scan().to_arrow().to_pylist()


READERS: dict[str, Callable[[Path], object]] = {
    "names": _catalog,
    "namespaces": _catalog,
    "users": _users,
    "user names": _users,
    "queries": _queries,
    "frames": _queries,
    "streams": _stream,
    "snapshots": _snapshot,
}


def _files(root: Path, kind: str) -> list[Path]:
    found = sorted(file for file in root.glob(FOLDERS[kind]) if file.is_file())
    assert found
    return found


@pytest.mark.parametrize("kind", FOLDERS)
def test_flips_and_truncations_give_an_error_or_the_right_answer(kind: str, lake: Path) -> None:
    """[X4] Whatever the bytes are, a reader never tells something else."""
    chance = random.Random(kind)
    right = READERS[kind](lake)
    refused = 0
    for file in _files(lake, kind):
        data = file.read_bytes()
        for case in range(12):
            bad = bytearray(data)
            if case % 2:
                bit = chance.randrange(8 * len(bad))
                bad[bit // 8] ^= 1 << bit % 8
            else:
                del bad[chance.randrange(len(bad)) :]
            file.write_bytes(bad)
            try:
                assert READERS[kind](lake) == right, (file.name, case)
            except StrandlineError:
                refused += 1
        file.write_bytes(data)
    assert READERS[kind](lake) == right
    assert refused


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a document that holds something."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        yield (*at, key)
        if isinstance(part, dict | list):
            yield from _places(part, (*at, key))


def _changed(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    part = made
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return made


@pytest.mark.parametrize("kind", ["names", "namespaces", "users", "queries", "streams"])
def test_values_that_no_writer_writes_are_survived(kind: str, lake: Path) -> None:
    """[X4] With right checksums and wrong words: an error of ours, or an answer; nothing else."""
    chance = random.Random(kind)
    refused = 0
    for file in _files(lake, kind):
        data = file.read_bytes()
        document = codec.decode_document(data, file.name)
        places = list(_places(document))
        for place in chance.sample(places, min(25, len(places))):
            for value in chance.sample(VALUES, 2):
                hostile = _changed(document, place, value)
                file.write_bytes(codec.encode_document(orjson.dumps(hostile)))
                try:
                    READERS[kind](lake)
                except StrandlineError:
                    refused += 1
        file.write_bytes(data)
    assert refused > 10


@pytest.mark.parametrize("path", ["../../x", "frames/../../../manifests/x", "frames/1-x.frame"])
def test_a_frame_outside_its_folder_is_not_opened(path: str, lake: Path) -> None:
    """[LAY-3] A path in a remembered query's document fits its grammar, or nothing is read."""
    (file, *_) = sorted(lake.glob("**/materializations/rows/*.lz4"))
    data = file.read_bytes()
    document = codec.decode_document(data, file.name)
    folder = document["frames"][0]["path"].rpartition("frames/")[0]
    file.write_bytes(
        codec.encode_document(
            orjson.dumps(_changed(document, ("frames", 0, "path"), folder + path))
        )
    )
    try:
        with pytest.raises(CorruptTable, match="does not belong to 'rows'"):
            _queries(lake)
    finally:
        file.write_bytes(data)
