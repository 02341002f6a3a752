"""Catalogs, users, remembered queries and snapshots while every operation goes wrong once.

Each story is told by a process whose store fails at one operation; then a healthy process looks at
what is left, repeats what a client would repeat, and looks again.
"""

from __future__ import annotations

import itertools
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import strandline
from strandline.api import create_in, open_in
from strandline.maintenance.snapshots import replay
from strandline.tableformat.errors import (
    CommitConflict,
    CommitStateUnknown,
    StrandlineError,
    TableDropped,
    TableExists,
    TableNotFound,
)
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import DAY_MS
from strandline.writers import flusher
from tests.faults.kinds import FAULTS_OF, SimulatedCrash
from tests.faults.storage import FaultyStorage
from tests.faults.world import InlineExecutor, forget_everything, scripted
from tests.tables import Script
from tests.writers.rigs import crash, without_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from strandline.table import Table
    from strandline.tableformat.storage import Storage
    from strandline.users import UsersTable
    from tests.faults.kinds import Fault

SAMPLE = 40
_names = itertools.count()
COLUMNS = {"n": "int64"}


class Branch(FaultyStorage):
    """Another folder of a faulty store: operations are numbered together with the rest."""

    def __init__(self, trunk: FaultyStorage, inner: Storage) -> None:
        super().__init__(inner)
        self._trunk = trunk

    def _begin(self, kind: str, path: str) -> Fault | None:
        return self._trunk._begin(kind, path)  # noqa: SLF001 - one store

    def _finish(self, fault: Fault | None, kind: str, path: str, act: Callable[[], Any]) -> Any:
        return self._trunk._finish(fault, kind, path, act)  # noqa: SLF001


class Site:
    """A store with its clock: healthy, and as one process sees it that has bad luck."""

    def __init__(self, fault: tuple[int, Fault] | None) -> None:
        self.script = Script(now=int(time.time() * 1000))
        self.name = f"systems-{next(_names)}"
        self.fault = fault
        self.trunk: FaultyStorage | None = None

    def at(self, path: str = "") -> MemoryStorage:
        return MemoryStorage(f"{self.name}/{path}".rstrip("/"), clock_ms=lambda: self.script.now)

    def unlucky(self, path: str = "") -> FaultyStorage:
        if self.trunk is None:
            self.trunk = FaultyStorage(self.at(path), dict([self.fault] if self.fault else []))
            return self.trunk
        return Branch(self.trunk, self.at(path))

    def restart(self) -> None:
        """The process has ended, and what was on its way arrives."""
        if self.trunk is not None:
            self.trunk.restart()
            self.trunk.reopened()
        forget_everything()


class Story:
    """What happens; `told` holds what was acknowledged."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.told: set[str] = set()
        self.refused: set[str] = set()

    def prepare(self) -> None:
        """By a healthy process."""

    def run(self) -> None:
        """By the unlucky one."""
        raise NotImplementedError

    def check(self) -> None:
        """By a healthy process afterwards."""
        raise NotImplementedError

    def do(self, what: str, step: Callable[[], object]) -> None:
        """A step whose error ends it alone, as in a program that logs it and goes on."""
        try:
            step()
        except SimulatedCrash:
            raise
        except CommitStateUnknown:
            return
        except StrandlineError:
            self.refused.add(what)
        else:
            self.told.add(what)


# --- catalogs ---


class InCatalog(Story):
    """One table that is kept, one dropped; each verb of a catalog changes one name."""

    def catalog(self, *, lucky: bool) -> strandline.Catalog:
        site = self.site
        open_at: Any = site.at if lucky else site.unlucky
        return strandline.Catalog(
            f"memory://{site.name}", open_at=open_at, runtime=site.script.runtime()
        )

    def prepare(self) -> None:
        root = self.catalog(lucky=True)
        for name in ("kept", "gone"):
            root.create_table(f"n.{name}", COLUMNS).append([{"n": 7}])
        root.drop_table("n.gone")
        root.create_namespace("empty")

    def verb(self, root: strandline.Catalog) -> object:
        raise NotImplementedError

    before: tuple[str, ...] = ("kept",)
    after: tuple[str, ...] = ("kept",)

    def run(self) -> None:
        root = self.catalog(lucky=False)
        self.do("verb", lambda: self.verb(root))
        self.do("list", lambda: [t.name for t in root.list_tables("n")])

    def check(self) -> None:
        root = self.catalog(lucky=True)
        live = tuple(t.name for t in root.list_tables("n"))
        assert live in ([self.after] if "verb" in self.told else [self.before, self.after]), live
        for name in live:
            # Half a rename, drop or undrop may still be on its way; never wrong rows.
            with suppress(TableNotFound, TableDropped):
                assert root.open_table(("n", name)).scan().count() == (name != "new")
        with suppress(TableNotFound, TableExists):
            self.verb(root)
        assert tuple(t.name for t in root.list_tables("n")) == self.after
        for name in self.after:
            table = root.open_table(("n", name))
            assert table.scan().count() == (name != "new")
            table.append([{"n": 8}])


class Create(InCatalog):
    """A new name."""

    after = ("kept", "new")

    def verb(self, root: strandline.Catalog) -> object:
        return root.create_table("n.new", COLUMNS, exist_ok=True)


class Rename(InCatalog):
    """A name becomes another."""

    after = ("other",)

    def verb(self, root: strandline.Catalog) -> object:
        return root.rename_table("n.kept", "n.other")


class Drop(InCatalog):
    """A name ends."""

    after = ()

    def verb(self, root: strandline.Catalog) -> object:
        return root.drop_table("n.kept")


class Undrop(InCatalog):
    """An ended name comes back."""

    after = ("gone", "kept")

    def verb(self, root: strandline.Catalog) -> object:
        return root.undrop_table("n.gone")


class Purge(InCatalog):
    """The files of what was dropped go."""

    def verb(self, root: strandline.Catalog) -> object:
        return root.purge("n", older_than=0, force=True)

    def check(self) -> None:
        super().check()
        with pytest.raises(TableNotFound):
            self.catalog(lucky=True).undrop_table("n.gone")


class Namespaces(InCatalog):
    """One namespace is made and used, one ends."""

    def verb(self, root: strandline.Catalog) -> object:
        with suppress(TableExists):
            root.create_namespace("made", ttl="1d", create_on_append=True)
        root.append("made.auto", [{"n": 1}])
        return root.drop_namespace("empty") if "empty" in self.namespaces(root) else None

    @staticmethod
    def namespaces(root: strandline.Catalog) -> list[str]:
        return [n.name for n in root.list_namespaces()]

    def check(self) -> None:
        super().check()
        root = self.catalog(lucky=True)
        assert "empty" not in self.namespaces(root)
        rows = root.open_table("made.auto").scan().count()
        assert rows in ({2} if "verb" in self.told else {1, 2})
        assert root.open_table("made.auto").config.ttl_ms == DAY_MS


# --- users ---


class Users(Story):
    """Appends of a known and of a new user, and everything that maintenance does with both."""

    config: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def table(self, storage: Storage) -> UsersTable:
        ids = self.site.script.runtime()
        table: Any = open_in(storage, runtime=ids)
        return table

    def prepare(self) -> None:
        created: Any = create_in(
            self.site.at(),
            {"at": "int64", "n": "int64"},
            time_column="at",
            ttl="30d",
            scope="user",
            runtime=self.site.script.runtime(),
            **self.config,
        )
        for n in range(3):
            created.user("ada").append([{"at": self.site.script.now, "n": n}])
        window = created.user("ada").manifest.segments[0].path.rpartition("/")[0]
        self.orphan = f"{window}/batch-1-{'a' * 16}.parquet"
        self.site.at().write_new(self.orphan, b"left behind").wait()
        self.site.script.now += 3 * DAY_MS

    def run(self) -> None:
        table = self.table(self.site.unlucky())
        for name, n in (("ada", 10), ("new", 20), ("ada", 11)):
            row = {"at": self.site.script.now, "n": n}
            self.do(f"{name} {n}", lambda name=name, row=row: table.user(name).append([row]))  # type: ignore[misc]
        self.do("compact", table.compact)
        self.do("expire", table.expire)
        self.do("versions", lambda: table.expire_versions("1d"))
        self.do("vacuum", lambda: table.vacuum(dry_run=False))
        self.do("purge", lambda: table.purge(dry_run=False))

    def check(self) -> None:
        table = self.table(self.site.at())
        self._check_rows(table)
        self.site.script.now += 3 * DAY_MS
        table.maintain()
        table.purge(dry_run=False)
        self._check_rows(table)
        assert self.orphan not in dict(self.site.at().walk(""))
        assert table.user("new").append([{"at": self.site.script.now, "n": 99}]).rows == 1
        assert table.verify(deep=True).ok

    def _check_rows(self, table: UsersTable) -> None:
        assert table.verify(deep=True).problems == ()
        found = {
            f"{name} {n}": n
            for name, scan in table.scan_users()
            for n in scan.to_arrow().column("n").to_pylist()
        }
        assert {"ada 0", "ada 1", "ada 2"} <= set(found)
        appended = {"ada 10", "new 20", "ada 11"}
        assert self.told & appended <= set(found)
        assert not self.refused & appended & set(found), "refused, and there"
        rows = sum(scan.count() for _, scan in table.scan_users())
        assert rows == len(found), "a row is there twice"


class KeyedUsers(Users):
    """Two users with the same keys: rows are replaced, deleted and put together at each."""

    config = {"primary_key": "n"}  # noqa: RUF012 - never changed

    def run(self) -> None:
        table = self.table(self.site.unlucky())
        for name in ("ada", "new"):
            rows = [{"at": self.site.script.now, "n": n} for n in (0, 1, 5)]
            self.do(f"{name} upsert", lambda name=name, rows=rows: table.user(name).upsert(rows))  # type: ignore[misc]
        self.do("ada delete", lambda: table.user("ada").delete(keys=[1, 2]))
        self.do("new delete", lambda: table.user("new").delete(filter="n = 5 AND at > 0"))
        self.do("compact", table.compact)
        self.do("vacuum", lambda: table.vacuum(dry_run=False))

    def _check_rows(self, table: UsersTable) -> None:
        assert table.verify(deep=True).problems == ()
        for name, before, gone in (("ada", {0, 1, 2}, {1, 2}), ("new", set[int](), {5})):
            # What may have happened: nothing, rows came, keys went.
            put = {0, 1, 5, *before}
            upserted, deleted = f"{name} upsert" in self.told, f"{name} delete" in self.told
            allowed = [
                sorted((put if came else before) - (gone if went else set()))
                for came in ((True,) if upserted else (False, True))
                for went in ((True,) if deleted else (False, True))
            ]
            user = table.user(name)
            found = sorted(user.scan().to_arrow().column("n").to_pylist())
            assert found in allowed, (name, found, allowed)
            assert user.exists([0, 1, 2, 5]).tolist() == [n in found for n in (0, 1, 2, 5)]


class WritersOfUsers(Users):
    """Writers of two users, of one id and one folder: each log holds what the table has not got."""

    def run(self) -> None:
        table = self.table(self.site.unlucky())
        with without_threads(), mock.patch.object(flusher, "Background", InlineExecutor):
            for name, first in (("ada", 10), ("new", 20)):
                self.do(
                    f"{name} writes", lambda name=name, first=first: self._write(table, name, first)
                )  # type: ignore[misc]

    def _write(self, table: UsersTable, name: str, first: int) -> None:
        writer = table.user(name).writer("w", wal=self.wal, flush_records=2, flush_age="1h")
        # Nobody waits for a store that fails: what it did not take stays in the log.
        writer._flusher.abandoned.set()  # noqa: SLF001
        try:
            for n in range(first, first + 5):
                writer.append({"at": self.site.script.now, "n": n})
                self.told.add(f"{name} {n}")
            while writer._buffers.uncommitted():  # noqa: SLF001 - as its thread does
                writer._buffers.ask_for(writer._buffers.active)  # noqa: SLF001
                if not writer._flusher.step():  # noqa: SLF001
                    return
        finally:
            crash(writer)

    @property
    def wal(self) -> Path:
        return self.folder / f"{self.site.name}-wal"

    def _check_rows(self, table: UsersTable) -> None:
        for name in ("ada", "new"):
            table.user(name).recover("w", self.wal)
        expected = {"ada": [0, 1, 2], "new": []}
        for name, first in (("ada", 10), ("new", 20)):
            found = table.user(name).scan().to_arrow().column("n").to_pylist()
            logged = [n for n in range(first, first + 5) if f"{name} {n}" in self.told]
            assert found == [*expected[name], *logged], (name, found)


# --- remembered queries ---

QUERY = {"columns": ["k"], "aggregates": {"rows": "count(*)", "total": "sum(n)"}}


class Remembered(Story):
    """One query is refreshed, shown and forgotten, another is remembered."""

    def prepare(self) -> None:
        table = create_in(self.site.at(), {"k": "int64", "n": "int64"}, time_column=None)
        table.append([{"k": n % 3, "n": n} for n in range(30)])
        for alias in ("old", "ends"):
            table.remember(alias, QUERY)
        table.append([{"k": 1, "n": 100}])

    def answer(self, table: Table) -> list[dict[str, Any]]:
        """The query by hand."""
        rows = table.scan().to_arrow().to_pylist()
        groups: dict[int, list[int]] = {}
        for row in rows:
            groups.setdefault(row["k"], []).append(row["n"])
        return [{"k": k, "rows": len(v), "total": sum(v)} for k, v in sorted(groups.items())]

    def run(self) -> None:
        table = open_in(self.site.unlucky(), runtime=self.site.script.runtime())
        self.do("remember", lambda: table.remember("new", QUERY))
        self.do("refresh", lambda: table.refresh_query("old"))
        shown: list[Any] = []
        self.do("show", lambda: shown.append(table.show("old").to_pylist()))
        if shown:
            assert shown == [self.answer(open_in(self.site.at()))]
        self.do("forget", lambda: table.forget("ends"))

    def check(self) -> None:
        table = open_in(self.site.at())
        known = set(table.remembered())
        assert "old" in known
        assert "new" in known or "remember" not in self.told
        assert "ends" not in known or "forget" not in self.told
        with suppress(CommitConflict, strandline.InvalidInput):
            table.remember("new", QUERY)
        for alias in ("old", "new"):
            assert table.show(alias).to_pylist() == self.answer(table)
            table.refresh_query(alias)
        table.append([{"k": 2, "n": 1000}])
        assert table.show("new").to_pylist() == table.show("old").to_pylist() == self.answer(table)
        assert table.verify(deep=True).ok


# --- snapshots ---


class Snapshots(Story):
    """A table is exported, and its rows go into another one."""

    def prepare(self) -> None:
        source = create_in(self.site.at("source"), COLUMNS, time_column=None)
        for n in range(3):
            source.append([{"n": n}])
        self.good = self.folder / f"{self.site.name}.snap"
        source.export(self.good)
        create_in(self.site.at("target"), COLUMNS, time_column=None)

    def run(self) -> None:
        self.do("open", self._both)

    def _both(self) -> None:
        source = open_in(self.site.unlucky("source"), runtime=self.site.script.runtime())
        new = self.folder / f"{self.site.name}-new.snap"
        self.do("export", lambda: source.export(new))
        target = open_in(self.site.unlucky("target"), runtime=self.site.script.runtime())
        self.do("replay", lambda: replay(self.good, target))

    def check(self) -> None:
        new = self.folder / f"{self.site.name}-new.snap"
        if "export" in self.told:
            assert strandline.inspect_snapshot(new).ranges.rows == 3
        elif new.exists():
            with pytest.raises(StrandlineError):
                strandline.inspect_snapshot(new)
        target = open_in(self.site.at("target"))
        if "replay" in self.told:
            assert target.scan().count() == 3
        replay(self.good, target)
        assert target.scan().to_arrow().column("n").to_pylist() == [0, 1, 2]
        assert replay(self.good, target).rows == 0


STORIES = (
    *(Create, Rename, Drop, Undrop, Purge, Namespaces),
    *(Users, KeyedUsers, WritersOfUsers, Remembered, Snapshots),
)


def tell(kind: type[Story], folder: Path, fault: tuple[int, Fault] | None) -> FaultyStorage:
    """One case: the story up to its end or the process's, and the look at it afterwards."""
    with scripted(0):
        site = Site(fault)
        story = kind(site, folder)
        story.prepare()
        forget_everything()
        with suppress(SimulatedCrash, StrandlineError):
            story.run()
        site.restart()
        story.check()
    assert site.trunk is not None
    return site.trunk


def cases(kind: type[Story], folder: Path) -> Iterator[tuple[int, Fault]]:
    """Every operation of the story with every fault of its kind."""
    for operation in tell(kind, folder, None).trace:
        for fault in FAULTS_OF[operation.kind]:
            yield operation.number, fault


@pytest.mark.parametrize("kind", STORIES, ids=lambda kind: kind.__name__)
def test_a_sample_of_faults_breaks_no_promise(kind: type[Story], tmp_path: Path) -> None:
    """[X5] [O6] [M9] [E12] [E13] What was told holds, and repeating the rest completes it."""
    every = list(cases(kind, tmp_path))
    for fault in random.Random(kind.__name__).sample(every, min(SAMPLE, len(every))):
        _told(kind, tmp_path, fault)


@pytest.mark.proof
@pytest.mark.parametrize("kind", STORIES, ids=lambda kind: kind.__name__)
def test_no_fault_breaks_a_promise(kind: type[Story], tmp_path: Path) -> None:
    """[X5] The same, at each operation with each fault."""
    for fault in cases(kind, tmp_path):
        _told(kind, tmp_path, fault)


def _told(kind: type[Story], folder: Path, fault: tuple[int, Fault]) -> None:
    try:
        tell(kind, folder, fault)
    except Exception as error:
        raise AssertionError(f"{kind.__name__} {fault[0]}:{fault[1]}: {error!r}") from error
