"""Namespaces that end, and catalogs that maintain their tables."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline
from strandline.cli import main
from strandline.tableformat import names
from strandline.tableformat.storage import open_storage
from tests.hostile_names import HOSTILE, NESTING, REFUSED
from tests.strandline.test_catalog import COLUMNS
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.tableformat.storage import Storage
    from tests.tables import Place


def test_a_namespace_is_dropped_when_it_is_empty_and_can_come_back(place: Place) -> None:
    """[O6] [CAT-10] With tables it stays; dropped tables in it are purged or brought back."""
    catalog = strandline.Catalog(place.url, place.storage_options)
    catalog.create_namespace("shop", ttl="7d")
    catalog.create_table("shop.a", COLUMNS).append([{"n": 1}])
    with pytest.raises(strandline.InvalidInput, match="'a'"):
        catalog.drop_namespace("shop")
    assert catalog.open_table("shop.a").scan().count() == 1
    catalog.drop_table("shop.a")

    catalog.drop_namespace("shop")

    assert catalog.list_namespaces() == []
    with pytest.raises(strandline.NamespaceNotFound):
        catalog.describe_namespace("shop")
    with pytest.raises(strandline.NamespaceNotFound):
        catalog.drop_namespace("shop")
    with pytest.raises(strandline.TableNotFound):
        catalog.open_table("shop.a")
    with pytest.raises(strandline.NamespaceNotFound):
        catalog.undrop_table("shop.a")
    again = catalog.create_namespace("shop")
    assert again.defaults == {}
    assert catalog.undrop_table("shop.a").scan().count() == 1
    catalog.drop_table("shop.a")
    catalog.drop_namespace("shop")
    assert [t.name for t in catalog.purge("shop", older_than=0, force=True)] == ["a"]


@pytest.mark.parametrize(
    ("defaults", "reason"),
    [
        ({"timestamping": "bogus"}, "timestamping"),
        ({"order": 5}, "order"),
        ({"uncapped": "yes"}, "uncapped"),
        ({"schema": {"a": "nonsense"}}, "nonsense"),
        ({"schema": {"a": "int64"}, "time_column": "b"}, "'b'"),
        ({"schema": {"a": "string"}, "time_column": "a"}, "'a'"),
        ({"schema": {"a": "int64", "A": 5}}, "type names"),
        ({"time_column": ["a"]}, "name of a column"),
        ({"ttl": 7}, "ttl"),
        ({"create_on_append": True, "timestamping": "client-require"}, "needs a time_column"),
        ({"create_on_read": True}, "default schema"),
    ],
)
def test_defaults_that_no_table_could_have_are_refused(
    defaults: dict[str, Any], reason: str
) -> None:
    """[O6] When they are given, and not when the first table is created; nothing is stored."""
    catalog = strandline.Catalog(memory_url())
    with pytest.raises(strandline.InvalidInput, match=reason):
        catalog.create_namespace("n", **defaults)
    assert catalog.list_namespaces() == []
    catalog.create_namespace("n", ttl="1d")
    with pytest.raises(strandline.InvalidInput, match=reason):
        catalog.set_namespace("n", **defaults)
    assert catalog.describe_namespace("n").defaults == {"ttl": "1d"}


def test_defaults_are_taken_as_create_table_takes_them() -> None:
    """[O6] A timedelta is a ttl; a time column may be left to each table."""
    catalog = strandline.Catalog(memory_url())
    catalog.create_namespace("n", ttl=timedelta(hours=36), timestamping="client-require")
    assert catalog.describe_namespace("n").defaults["ttl"] == "36h"

    table = catalog.create_table("n.a", {"at": "int64"}, time_column="at")

    assert table.config.ttl_ms == 36 * 3_600_000
    catalog.set_namespace("n", ttl=timedelta(days=2), order=None)
    assert catalog.create_table("n.b", {"at": "int64"}, time_column="at").config.ttl_ms == (
        48 * 3_600_000
    )


def test_a_table_that_arrives_while_its_namespace_is_dropped_keeps_it(place: Place) -> None:
    """[O6] [CAT-10] Threads create, rename and drop at once; no table is left in no namespace."""
    catalog = strandline.Catalog(place.url, place.storage_options)
    made: list[str] = []

    def create(i: int) -> None:
        mine = strandline.Catalog(place.url, place.storage_options)
        made.append(mine.create_table(f"n.t{i}", COLUMNS).uuid)

    def rename(i: int) -> None:
        mine = strandline.Catalog(place.url, place.storage_options)
        made.append(mine.create_table(f"other.t{i}", COLUMNS).uuid)
        with suppress(strandline.NamespaceNotFound):
            mine.rename_table(f"other.t{i}", f"n.r{i}")

    def drop(_: int) -> None:
        mine = strandline.Catalog(place.url, place.storage_options)
        for _ in range(5):
            with suppress(strandline.NamespaceNotFound, strandline.InvalidInput):
                mine.drop_namespace("n")

    work = [create, rename, drop, create, rename, drop]
    threads = [threading.Thread(target=act, args=(i,)) for i, act in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    listed = [t.uuid for n in catalog.list_namespaces() for t in catalog.list_tables(n.name)]
    assert sorted(listed) == sorted(made)


def test_hostile_namespaces_live_side_by_side(tmp_path: Path) -> None:
    """[O5] [CAT-1] [CAT-3] Each has its own defaults and tables; dropping one leaves the others."""
    catalog = strandline.Catalog(tmp_path)
    for number, name in enumerate(HOSTILE, 1):
        catalog.create_namespace(name, ttl=f"{number}d")
        catalog.create_table((name, "t"), {"n": "int64"})
    for name in REFUSED:
        with pytest.raises(strandline.InvalidInput):
            catalog.create_namespace(name)
    in_order = sorted(HOSTILE, key=str.encode)
    assert [info.name for info in catalog.list_namespaces()] == in_order
    for number, name in enumerate(HOSTILE, 1):
        assert catalog.open_table((name, "t")).config.ttl_ms == number * 86_400_000

    catalog.drop_table((NESTING[0], "t"))
    catalog.drop_namespace(NESTING[0])

    in_order.remove(NESTING[0])
    assert [info.name for info in catalog.list_namespaces()] == in_order
    assert [len(catalog.list_tables(name)) for name in in_order] == [1] * len(in_order)


def test_a_folder_tells_its_namespace() -> None:
    """[CAT-3] [CAT-4] Any name is read back from the folder that was made for it."""
    for name in HOSTILE:
        assert names.name_of_data_folder(names.data_folder(name, "0123456789abcdef")) == name
    with pytest.raises(strandline.CorruptTable):
        names.name_of_data_folder("../x-0123456789abcdef")


@given(st.text(min_size=1, max_size=200))
def test_every_folder_tells_its_name(name: str) -> None:
    """[CAT-3] For any text that may be a name."""
    with suppress(strandline.InvalidInput):
        checked = names.check_name(name)
        assert names.name_of_data_folder(names.data_folder(checked, "0" * 16)) == checked


def test_a_catalog_maintains_its_tables_and_drops_what_is_empty() -> None:
    """[O7] What its settings end leaves the catalog too, also if a crash came in between."""
    url, script = memory_url(), Script()

    def open_at(path: str) -> Storage:
        storage = open_storage(f"{url}/{path}" if path else url)
        storage.clock_ms = lambda: script.now  # type: ignore[method-assign]  # the store's time
        return storage

    catalog = strandline.Catalog(url, runtime=script.runtime(), open_at=open_at)
    for name in ("kept", "empty", "ended"):
        catalog.create_table(f"n.{name}", COLUMNS)
    catalog.open_table("n.kept").append([{"n": 1}])
    catalog.open_table("n.empty").set(delete_on_empty_secs=60)
    catalog.open_table("n.ended").mark_dropped()
    assert [info.deleted_at for info, _ in catalog.maintain("n")] == [None] * 3
    script.now += 61_000

    done = {info.name: (info, report) for info, report in catalog.maintain()}

    assert done["empty"][0].deleted_at is not None
    assert done["empty"][1] is not None
    assert done["empty"][1].dropped
    assert done["ended"][0].deleted_at is not None
    assert done["kept"][0].deleted_at is None
    assert [t.name for t in catalog.list_tables("n")] == ["kept"]
    catalog.create_table("n.empty", COLUMNS)


def test_the_command_maintains_a_catalog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """[O6] [O7] From a shell, with JSON for programs."""
    root = str(tmp_path)
    assert main(["catalog", "create", root, "n.a", "--schema", "n:int64"]) == 0
    capsys.readouterr()
    assert main(["catalog", "maintain", root, "--json"]) == 0
    assert "compact expire" in capsys.readouterr().out
    assert main(["catalog", "drop-namespace", root, "n"]) == 1
    assert main(["catalog", "drop", root, "n.a"]) == 0
    assert main(["catalog", "drop-namespace", root, "n", "--json"]) == 0


def test_the_command_keeps_namespaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[O6] Created, changed and described from a shell, with every default that there is."""
    root = str(tmp_path)

    def run(action: str, *more: str) -> dict[str, Any]:
        assert main(["catalog", action, root, "logs", *more, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    made = run(
        "create-namespace", "--ttl", "7d", "--timestamping", "client-prefer", "--create-on-append"
    )
    assert made["defaults"] == {
        "ttl": "7d", "timestamping": "client-prefer", "create_on_append": True,
    }  # fmt: skip
    columns = ("--schema", "at:timestamptz,price:decimal(10,2)", "--time-column", "at")
    changed = run(
        "set-namespace", *columns, "--create-on-read", "--no-create-on-append", "--unset", "ttl"
    )
    assert changed["defaults"] == {
        "timestamping": "client-prefer", "create_on_append": False, "create_on_read": True,
        "schema": {"at": "timestamptz", "price": "decimal(10,2)"}, "time_column": "at",
    }  # fmt: skip
    assert run("describe-namespace") == changed
    assert strandline.Catalog(root).open_table("logs.x").schema.names == ["at", "price"]

    for wrong in (["--ttl", "x"], ["--unset", "colour"], ["--ttl", "1d", "--unset", "ttl"]):
        assert main(["catalog", "set-namespace", root, "logs", *wrong]) == 1
    assert main(["catalog", "describe-namespace", root, "none"]) == 1
    assert main(["catalog", "create-namespace", root, "logs"]) == 1
    assert run("describe-namespace") == changed
