"""Tables by name: created, listed, renamed, dropped, brought back and purged under one root."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline
from strandline.cli import main
from strandline.tableformat import codec, names
from strandline.tableformat.storage import open_storage
from tests.format_spec.places import validator
from tests.hostile_names import HOSTILE, REFUSED
from tests.stores import WatchedStorage
from tests.tables import Script, memory_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from strandline.tableformat.storage import Storage
    from tests.tables import Place

COLUMNS = {"n": "int64"}


@pytest.fixture
def catalog(place: Place) -> strandline.Catalog:
    """An empty catalog on disk, in memory, on S3."""
    return strandline.Catalog(place.url, place.storage_options)


def test_a_table_is_created_opened_listed_and_dropped_by_name(catalog: strandline.Catalog) -> None:
    """[O6] [CAT-5] [CAT-8] [COM-17] The whole life of a name, with its times."""
    made = catalog.create_table("shop.events", COLUMNS)
    made.append([{"n": 1}])
    assert catalog.open_table("shop.events").scan().count() == 1
    with pytest.raises(strandline.TableExists):
        catalog.create_table("shop.events", COLUMNS)
    assert catalog.create_table("shop.events", COLUMNS, exist_ok=True).uuid == made.uuid
    (listed,) = catalog.list_tables("shop")
    assert (listed.name, listed.uuid, listed.deleted_at) == ("events", made.uuid, None)

    dropped = catalog.drop_table("shop.events")

    assert dropped.deleted_at is not None
    assert dropped.deleted_at > dropped.created_at
    assert catalog.list_tables("shop") == []
    assert catalog.list_tables("shop", include_dropped=True) == [dropped]
    assert catalog.describe_table("shop.events") == dropped
    with pytest.raises(strandline.TableNotFound):
        catalog.open_table("shop.events")
    with pytest.raises(strandline.TableDropped, match="undrop"):
        made.append([{"n": 2}])
    with pytest.raises(strandline.TableDropped):
        made.scan()
    assert catalog.undrop_table("shop.events").scan().count() == 1
    assert made.append([{"n": 2}]).first_seq == 1


def test_a_new_table_takes_a_dropped_ones_name_and_never_its_folder(
    catalog: strandline.Catalog,
) -> None:
    """[CAT-4] [CAT-9] Old rows neither come back nor are in the way; a purge takes only them."""
    first = catalog.create_table("t", COLUMNS)
    first.append([{"n": 1}])
    catalog.drop_table("t")
    second = catalog.create_table("t", COLUMNS)
    assert second.url != first.url
    with pytest.raises(strandline.TableExists):
        catalog.undrop_table("t")
    with pytest.raises(strandline.InvalidInput, match="hour"):
        catalog.purge("default", older_than="1m")
    assert catalog.purge("default") == []

    (purged,) = catalog.purge("default", older_than=0, force=True)

    assert purged.uuid == first.uuid
    assert catalog.open_table("t").uuid == second.uuid
    assert len(catalog.list_tables(include_dropped=True)) == 1
    with pytest.raises(strandline.TableDropped):
        first.append([{"n": 2}])


def test_pages_with_dropped_tables_leave_none_out() -> None:
    """[O6] [CAT-5] `after` is a name: all tables of one name are on one page."""
    catalog = strandline.Catalog(memory_url())
    made = []
    for name in ("n.a", "n.b", "n.b", "n.b", "n.c"):
        made.append(catalog.create_table(name, COLUMNS).uuid)
        if name == "n.b":
            catalog.drop_table(name)

    paged: list[strandline.TableInfo] = []
    while page := catalog.list_tables(
        "n", after=paged[-1].name if paged else None, limit=2, include_dropped=True
    ):
        assert len(page) == (4 if not paged else 1)
        paged += page

    assert sorted(info.uuid for info in paged) == sorted(made)
    assert [info.name for info in catalog.list_tables("n", limit=1)] == ["a"]
    assert [info.name for info in catalog.list_tables("n", limit=2)] == ["a", "c"]


def test_a_rename_moves_the_name_alone(catalog: strandline.Catalog) -> None:
    """[O6] [CAT-7] Rows stay; the old name is free; a name in use is refused."""
    made = catalog.create_table("a.x", COLUMNS)
    other = catalog.create_table("b.y", COLUMNS)
    with pytest.raises(strandline.TableExists):
        catalog.rename_table("a.x", "b.y")
    assert catalog.open_table("a.x").uuid == made.uuid

    catalog.rename_table("a.x", "b.z/1")

    assert catalog.open_table("b.z/1").uuid == made.uuid
    assert [t.name for t in catalog.list_tables("b")] == ["y", "z/1"]
    assert catalog.list_tables("a") == []
    assert catalog.create_table("a.x", COLUMNS).uuid not in {made.uuid, other.uuid}


def test_hostile_names_live_side_by_side(catalog: strandline.Catalog) -> None:
    """[O5] [CAT-1] [CAT-2] Each name has its own table, listed by bytes, prefix and pages."""
    made = {name: catalog.create_table(("ns", name), COLUMNS).uuid for name in HOSTILE}
    in_order = sorted(HOSTILE, key=str.encode)

    assert {name: catalog.open_table(("ns", name)).uuid for name in HOSTILE} == made
    assert [t.name for t in catalog.list_tables("ns")] == in_order
    for prefix in ("a", "x", "e", "y" * 100, "\u65e5"):
        listed = [t.name for t in catalog.list_tables("ns", prefix)]
        assert listed == [name for name in in_order if name.startswith(prefix)]
    paged: list[str] = []
    while page := catalog.list_tables("ns", after=paged[-1] if paged else None, limit=7):
        paged += [t.name for t in page]
    assert paged == in_order
    for bad in REFUSED:
        with pytest.raises(strandline.InvalidInput):
            catalog.create_table(("ns", bad), COLUMNS)


@given(st.lists(st.text(min_size=1, max_size=140), min_size=2, max_size=2, unique=True))
def test_names_never_collide_escape_or_nest(pair: list[str]) -> None:
    """[O5] [CAT-2] [CAT-3] Two names, even in one case, are two places, neither in the other."""
    try:
        one, two = (names.check_name(name) for name in pair)
    except strandline.InvalidInput:
        return
    for form in (names.flat_name, names.folder_name):
        first, second = form(one).casefold(), form(two).casefold()
        assert first != second
        assert not f"{first}/".startswith(f"{second}/")
        assert not f"{second}/".startswith(f"{first}/")
        assert all(0 < len(part) <= 200 for part in first.split("/"))
        assert form(one).isascii()
        assert not {".", ".."} & set(form(one).split("/"))
    assert names.is_data_folder(names.data_folder(one, "0" * 16))
    assert names.plain_or_decoded(names.flat_name(one)) in {one, None}


def test_namespaces_carry_defaults(catalog: strandline.Catalog) -> None:
    """[O6] Tables are created on append or read where their namespace says so, only there."""
    with pytest.raises(strandline.NamespaceNotFound):
        catalog.describe_namespace("logs")
    catalog.create_namespace("logs", create_on_append=True, ttl="7d")
    with pytest.raises(strandline.TableNotFound):
        catalog.append("other.t", [{"n": 1}])

    catalog.append("logs.t", [{"n": 1}])

    assert catalog.open_table("logs.t").config.ttl_ms == 7 * 86_400_000
    with pytest.raises(strandline.TableNotFound):
        catalog.open_table("logs.u")
    catalog.set_namespace("logs", create_on_read=True, schema=COLUMNS, ttl=None)
    assert catalog.open_table("logs.u").config.ttl_ms is None
    assert [n.name for n in catalog.list_namespaces()] == ["logs"]
    with pytest.raises(strandline.InvalidInput, match="colour"):
        catalog.create_namespace("x", colour="red")


@pytest.mark.parametrize(
    "data",
    [
        [1, 2],
        [{"a": 1}, {"a": "x"}],
        {"a": [1], "b": [1, 2]},
        {"a": 5},
        [{"a": object()}],
        [{"a": 2**70}],
        [{"\ud800": 1}],
        [{1: 2}],
        7,
    ],
)
def test_rows_that_tell_no_columns_create_no_table(data: object) -> None:
    """[O6] An error of ours says why; nothing was created."""
    catalog = strandline.Catalog(memory_url())
    catalog.create_namespace("n", create_on_append=True)

    with pytest.raises(strandline.InvalidInput, match="Nothing was changed") as caught:
        catalog.append("n.t", data)

    assert str(caught.value).encode()
    assert catalog.list_tables("n") == []


def test_options_that_a_catalog_does_not_have_are_refused() -> None:
    """[O6] Stream tables by name, with the way to them; others with those there are."""
    catalog = strandline.Catalog(memory_url())
    catalog.create_table("n.t", COLUMNS)
    for verb in (catalog.open_table, lambda *a, **o: catalog.create_table(*a, COLUMNS, **o)):
        with pytest.raises(strandline.InvalidInput, match="no stream tables"):
            verb("m.s", kind="stream")
    for option in ("vers", "dropped_ok", "storage_options"):
        with pytest.raises(strandline.InvalidInput, match="version"):
            catalog.open_table("n.t", **{option: 1})
    assert catalog.open_table("n.t", version=1, kind=None).version == 1
    assert [n.name for n in catalog.list_namespaces()] == ["n"]


def test_of_many_creators_and_renamers_one_wins(place: Place) -> None:
    """[O6] [CAT-6] [CAT-7] Threads race for one name; every table ends under exactly one name."""
    root = strandline.Catalog(place.url, place.storage_options)
    sources = [root.create_table(f"r.s{i}", COLUMNS).uuid for i in range(4)]
    won: list[str] = []

    def race(i: int) -> None:
        mine = strandline.Catalog(place.url, place.storage_options)
        with suppress(strandline.TableExists):
            mine.rename_table(f"r.s{i}", "r.goal")
            won.append(sources[i])
        with suppress(strandline.TableExists):
            won.append(mine.create_table("r.goal", COLUMNS).uuid)

    threads = [threading.Thread(target=race, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = {t.uuid: t.name for t in root.list_tables("r")}
    assert len(won) == 1
    assert listed[won[0]] == "goal"
    assert set(sources) <= set(listed)
    assert len(listed) == len(set(sources) | set(won))


@pytest.mark.parametrize("operation", ["create", "drop", "undrop", "rename", "purge"])
def test_a_crash_after_any_step_is_completed_by_repeating_it(operation: str) -> None:
    """[X5] [CAT-6] [CAT-7] Broken off after any write to the store, it succeeds when repeated."""
    for step in range(12):
        url = memory_url()
        root = strandline.Catalog(url)
        kept = root.create_table("n.kept", COLUMNS)
        kept.append([{"n": 7}])
        if operation in {"undrop", "purge"}:
            root.drop_table("n.kept")
        run = {
            "create": lambda c: c.create_table("n.new", COLUMNS, exist_ok=True),
            "drop": lambda c: c.drop_table("n.kept"),
            "undrop": lambda c: c.undrop_table("n.kept"),
            "rename": lambda c: c.rename_table("n.kept", "n.other"),
            "purge": lambda c: c.purge("n", older_than=0, force=True),
        }[operation]
        broken = _BreaksOff(url, step)
        try:
            run(broken.catalog)
        except _PowerCut:
            pass
        else:
            assert step > 0
            return
        with suppress(strandline.TableNotFound, strandline.TableExists):  # it had been done
            run(root)
        live = [t.name for t in root.list_tables("n")]
        expected = {
            "create": ["kept", "new"], "drop": [], "undrop": ["kept"], "rename": ["other"],
            "purge": [],
        }  # fmt: skip
        assert live == expected[operation]
        for name in live:
            assert root.open_table(("n", name)).scan().count() == (name != "new")
    pytest.fail("the operation never ended")


ACTIONS = {
    "drop": lambda c, name: c.drop_table(f"n.{name}"),
    "undrop": lambda c, name: c.undrop_table(f"n.{name}"),
    "rename": lambda c, name: c.rename_table(f"n.{name}", "n.b"),
}


@pytest.mark.parametrize("slow", sorted(ACTIONS))
@pytest.mark.parametrize(
    "meanwhile",
    ["drop a", "undrop a", "rename a", "drop a undrop a", "undrop a drop a", "rename a drop b"],
)
def test_a_table_is_dropped_for_its_writers_where_it_is_for_its_name(
    slow: str, meanwhile: str
) -> None:
    """[CAT-8] [O6] Whatever others complete between any two steps: both say the same in the end."""
    verbs, targets = meanwhile.split()[::2], meanwhile.split()[1::2]
    for moment in range(24):
        url = memory_url()
        root = strandline.Catalog(url)
        table = root.create_table("n.a", COLUMNS)
        if slow == "undrop":
            root.drop_table("n.a")

        def others(root: strandline.Catalog = root) -> None:
            for verb, target in zip(verbs, targets, strict=True):
                with suppress(strandline.StrandlineError):
                    ACTIONS[verb](root, target)

        interrupted = _Interrupted(url, moment, others)
        with suppress(strandline.StrandlineError):
            ACTIONS[slow](interrupted.catalog, "a")

        (info,) = root.list_tables("n", include_dropped=True)
        if info.deleted_at is None:
            assert root.open_table(("n", info.name)).append([{"n": 1}]).rows == 1
        else:
            with pytest.raises(strandline.TableDropped):
                table.append([{"n": 1}])
        if not interrupted.reached:
            return
    pytest.fail("the operation never ended")


def test_a_drop_that_met_an_undrop_half_way_looks_again() -> None:
    """[CAT-8] The undrop had written the name; its commit to the table comes during the drop."""
    for moment in range(2):
        url = memory_url()
        table = strandline.Catalog(url).create_table("n.a", COLUMNS)
        table.mark_dropped()
        interrupted = _Interrupted(url, moment, lambda t=table: t.mark_dropped(dropped=False))

        interrupted.catalog.drop_table("n.a")

        with pytest.raises(strandline.TableDropped):
            table.append([{"n": 1}])


def test_a_drop_that_others_keep_undoing_gives_up() -> None:
    """[CAT-8] An error that says what is not certain, and not a loop without an end."""
    url = memory_url()
    others = strandline.Catalog(url)
    table = others.create_table("n.a", COLUMNS)

    class Watched(WatchedStorage):
        def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Any:
            if prefix.startswith("_catalog/tables") and table.refresh().manifest.dropped_at:
                with suppress(strandline.StrandlineError):
                    others.undrop_table("n.a")
                    others.drop_table("n.a")
            return super().list(prefix, start_after=start_after, limit=limit)

    catalog = strandline.Catalog(
        url, open_at=lambda path: Watched(open_storage(f"{url}/{path}" if path else url))
    )
    with pytest.raises(strandline.CommitConflict, match="list_tables"):
        catalog.drop_table("n.a")


def test_rows_of_a_table_that_was_only_listed_as_dropped_are_not_purged() -> None:
    """[CAT-9] An undrop that was overtaken and killed leaves a table that takes rows: they stay."""
    url, script = memory_url(), Script()

    def open_at(path: str) -> Storage:
        return open_storage(f"{url}/{path}" if path else url)

    root = strandline.Catalog(url, runtime=script.runtime(), open_at=open_at)
    table = root.create_table("n.a", COLUMNS)
    root.drop_table("n.a")
    table.mark_dropped(dropped=False)
    script.now += 2 * 86_400_000
    table.append([{"n": 1}])

    assert root.purge("n") == []

    with pytest.raises(strandline.TableDropped):
        table.append([{"n": 2}])
    assert root.undrop_table("n.a").scan().count() == 1
    root.drop_table("n.a")
    script.now += 2 * 86_400_000
    assert [info.name for info in root.purge("n")] == ["a"]


def test_a_table_that_was_renamed_is_brought_back_where_it_is_now() -> None:
    """[CAT-10] The namespace that it was created in stays gone; it may have any name."""
    root, first = strandline.Catalog(memory_url()), "first" * 60
    root.create_table((first, "a"), COLUMNS)
    root.create_namespace("now")
    root.rename_table((first, "a"), "now.a")
    root.drop_namespace(first)
    root.drop_table("now.a")

    root.undrop_table("now.a")

    assert [n.name for n in root.list_namespaces()] == ["now"]


def test_a_drop_that_is_refused_leaves_the_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """[CAT-8] Too many dropped tables of one name: nothing was changed, as the error says."""
    monkeypatch.setattr("strandline.tableformat.catalog_records.MAX_DROPPED", 1)
    root = strandline.Catalog(memory_url())
    root.create_table("n.a", COLUMNS)
    root.drop_table("n.a")
    table = root.create_table("n.a", COLUMNS)

    with pytest.raises(strandline.InvalidInput, match="Purge them first"):
        root.drop_table("n.a")

    assert table.append([{"n": 1}]).rows == 1


def test_every_record_fits_its_schema(tmp_path: Path) -> None:
    """[CAT-5] Whatever is done to names, each record fits its JSON Schema, field by field."""
    root = strandline.Catalog(tmp_path)
    root.create_namespace("n", ttl="1d", create_on_append=True)
    root.append("n.a", [{"n": 1}])
    root.rename_table("n.a", "n.B")
    root.drop_table("n.B")
    root.undrop_table("n.B")
    root.drop_table("n.B")
    root.purge("n", older_than=0, force=True)
    kinds = {"namespaces": "catalog_namespace", "tables": "catalog_name"}
    found = 0
    for folder, kind in kinds.items():
        for file in (tmp_path / "_catalog" / folder).rglob("*.json.lz4"):
            document = codec.decode_document(file.read_bytes(), file.name)
            validator(kind, strict=kind == "catalog_name").validate(document)
            found += 1
    assert found == 10


class _PowerCut(Exception):
    pass


class _Interrupted:
    """A catalog that waits once, before or after a write to the store, for what others do."""

    def __init__(self, url: str, moment: int, others: Callable[[], None]) -> None:
        moments, self.reached = iter(range(1000)), False

        def step(name: str, path: str) -> None:
            if name != "put_if_absent" or "probe" in path or self.reached:
                return
            if next(moments) == moment:
                self.reached = True
                others()

        def open_at(path: str) -> WatchedStorage:
            watched = WatchedStorage(open_storage(f"{url}/{path}" if path else url))
            watched.before = watched.after = step
            return watched

        self.catalog = strandline.Catalog(url, open_at=open_at)


class _BreaksOff:
    """A catalog whose process ends after some writes to the store."""

    def __init__(self, url: str, writes: int) -> None:
        left = [writes]

        def after(name: str, path: str) -> None:
            if name in {"put_if_absent", "delete"} and "probe" not in path:
                left[0] -= 1
                if left[0] < 0:
                    raise _PowerCut

        def open_at(path: str) -> WatchedStorage:
            watched = WatchedStorage(open_storage(f"{url}/{path}" if path else url))
            watched.after = after
            return watched

        self.catalog = strandline.Catalog(url, open_at=open_at)


def test_the_command_knows_catalogs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """[O6] Create, rename, list, drop and bring back from a shell, with JSON for programs."""
    root = str(tmp_path)
    assert main(["catalog", "create", root, "n.a", "--schema", "n:int64"]) == 0
    assert main(["catalog", "rename", root, "n.a", "n.b"]) == 0
    assert main(["catalog", "drop", root, "n.b"]) == 0
    assert main(["catalog", "undrop", root, "n.b"]) == 0
    capsys.readouterr()
    assert main(["catalog", "list", root, "n", "--json"]) == 0
    assert '"b"' in capsys.readouterr().out
    assert main(["catalog", "drop", root, "n.a"]) == 1
