"""The catalog: namespaces and tables by name, under one root URL.

Only exclusive creates decide. A name's chain of records says which folder it stands for; the
table's own chain says whether it was dropped. Each operation below is a few steps, every one of
which leaves a state that the same operation, repeated, completes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.api import create_in, open_in
from strandline.catalog.chain import MANIFEST_MIN_AGE_MS
from strandline.catalog.name_chain import META, NAMESPACES, NameChains, new_id
from strandline.catalog.runtime import REAL
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names, paths
from strandline.tableformat.errors import (
    CommitConflict,
    InvalidInput,
    NamespaceNotFound,
    ObjectMissing,
    TableExists,
    TableNotFound,
)
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.tableformat.windows import parse_duration

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from strandline.catalog.runtime import Runtime
    from strandline.table import Table
    from strandline.tableformat.catalog_records import Entry, NameRecord, NamespaceRecord
    from strandline.tableformat.storage import Storage
    from strandline.writers.results import Commit

_STEPS: Final = 64
"""How often a step is tried that others keep taking first."""
_DEFAULTS: Final = ("create_on_append", "create_on_read", "schema", "time_column", "ttl")
_MORE_DEFAULTS: Final = ("timestamping", "uncapped", "order")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """One table of a catalog, as listed; times are milliseconds since 1970."""

    namespace: str
    name: str
    uuid: str
    url: str
    created_at: int
    deleted_at: int | None = None
    """When it was dropped; None for a table that is there."""

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """One namespace, as listed."""

    name: str
    created_at: int
    defaults: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values."""
        return asdict(self)


class Catalog:
    """Namespaces and tables under a root URL. Safe to share between threads and processes."""

    def __init__(
        self,
        root_url: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        runtime: Runtime = REAL,
        open_at: Callable[[str], Storage] | None = None,
    ) -> None:
        """Name a root; nothing is read or written yet. `open_at`: for tests."""
        self._storage = open_storage(root_url, storage_options) if open_at is None else open_at("")
        base = str(root_url).rstrip("/") or "/"
        self._open_at = open_at or (lambda path: open_storage(f"{base}/{path}", storage_options))
        self._runtime = runtime
        self._namespaces = NameChains(
            self._storage,
            runtime,
            NAMESPACES,
            decode=records.namespace_record,
            unused=lambda name: records.NamespaceRecord(name=name),
        )

    def __repr__(self) -> str:
        return f"<strandline.Catalog {self.url}>"

    @property
    def url(self) -> str:
        """The root."""
        return self._storage.url

    # --- namespaces ---

    def create_namespace(
        self, name: str, *, exist_ok: bool = False, **defaults: Any
    ) -> NamespaceInfo:
        """Create a namespace with defaults for its tables.

        `create_on_append`, `create_on_read`: `append` and `open_table` create what is missing;
        `schema`: with these columns. `time_column`, `ttl`, `timestamping`, `uncapped`, `order`: as
        for `create_table`, used where it is not told otherwise.
        """
        names.check_name(name, "a namespace")
        checked = _checked_defaults(defaults)
        probe_once_per_process(self._storage)
        for _ in range(_STEPS):
            head = self._namespaces.head(name)
            if head.state == records.LIVE:
                if exist_ok:
                    return _namespace_info(head)
                raise TableExists(
                    f"there is a namespace {name!r} in {self.url} already. Nothing was changed."
                )
            made = head.next(
                **new_id(self._runtime),
                state=records.LIVE,
                folder=names.data_folder(name, self._runtime.random_hex(8)),
                created_at=self._runtime.now_ms(),
                deleted_at=None,
                defaults=checked,
            )
            if self._namespaces.put(made):
                return _namespace_info(made)
        raise self._too_busy(name)

    def set_namespace(self, name: str, **defaults: Any) -> NamespaceInfo:
        """Change defaults; None removes one. Tables that exist keep what they were created with."""
        for _ in range(_STEPS):
            head = self._namespace(name)
            merged = {**head.defaults, **defaults}
            kept = {key: value for key, value in merged.items() if value is not None}
            made = head.next(**new_id(self._runtime), defaults=_checked_defaults(kept))
            if self._namespaces.put(made):
                return _namespace_info(made)
        raise self._too_busy(name)

    def describe_namespace(self, name: str) -> NamespaceInfo:
        """A namespace and its defaults."""
        return _namespace_info(self._namespace(name))

    def list_namespaces(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[NamespaceInfo]:
        """Namespaces in the order of their names' bytes; `after` is the last name of a page."""
        found = (
            _namespace_info(record)
            for record in self._namespaces.newest(_prefix(prefix), after)
            if record.state == records.LIVE
        )
        return _taken(found, limit)

    def _namespace(self, name: str) -> NamespaceRecord:
        head = self._namespaces.head(names.check_name(name, "a namespace"))
        if head.state != records.LIVE:
            raise NamespaceNotFound(
                f"there is no namespace {name!r} in {self.url}. Create it with create_namespace, "
                "or by creating a table in it."
            )
        return head

    def _names(self, folder: str) -> NameChains[NameRecord]:
        return NameChains(
            self._storage,
            self._runtime,
            f"{META}tables/{folder}/",
            decode=records.name_record,
            unused=lambda name: records.NameRecord(name=name),
        )

    # --- tables: create, open, list ---

    def create_table(
        self,
        table: str | tuple[str, str],
        schema: Any = None,
        *,
        exist_ok: bool = False,
        **options: Any,
    ) -> Table:
        """Create a table; options as for `strandline.create_table`, and its namespace with it."""
        namespace, name = names.split_identifier(table)
        self.create_namespace(namespace, exist_ok=True)
        where = self._namespace(namespace)
        defaults = where.defaults
        columns = defaults.get("schema") if schema is None else schema
        if columns is None:
            raise InvalidInput(f"{table!r} needs a schema: its namespace has no default for it")
        settings = {"time_column": None} | {
            key: defaults[key] for key in ("time_column", "ttl", *_MORE_DEFAULTS) if key in defaults
        }
        chains = self._names(where.folder)
        made: tuple[str, Table] | None = None
        for _ in range(_STEPS):
            head = self._settled(chains, name)
            if head.live is not None:
                self._forget(made)
                if exist_ok:
                    return self._open_entry(head.live, table)
                raise TableExists(
                    f"there is a table {table!r} in {self.url} already. Nothing was changed. Open "
                    "it with open_table, or pass exist_ok=True."
                )
            if made is None:
                folder = (
                    f"{where.folder}/data/{names.data_folder(name, self._runtime.random_hex(8))}"
                )
                # The table first: until its name is created nobody can know of it.
                made = (
                    folder,
                    create_in(
                        self._open_at(folder),
                        columns,
                        runtime=self._runtime,
                        **{**settings, **options},
                    ),
                )
            entry = records.Entry(
                folder=made[0],
                table_uuid=made[1].uuid,
                created_at=made[1].manifest.commit.committed_at,
            )
            if chains.put(head.next(**new_id(self._runtime), live=entry)):
                return made[1]
        self._forget(made)
        raise self._too_busy(name)

    def _forget(self, made: tuple[str, Table] | None) -> None:
        """Remove a table that lost the race for its name; nobody has seen it."""
        if made is not None:
            self._open_at(made[0]).delete([paths.manifest_path(1)])

    def open_table(self, table: str | tuple[str, str], **options: Any) -> Table:
        """Open a table by name; options as for `strandline.open_table`."""
        namespace, name = names.split_identifier(table)
        head = self._namespaces.head(namespace)
        entry = None
        if head.state == records.LIVE:
            entry = self._settled(self._names(head.folder), name).live
            if entry is None and head.defaults.get("create_on_read"):
                return self.create_table((namespace, name), exist_ok=True)
        if entry is None:
            raise TableNotFound(
                f"there is no table {table!r} in {self.url}. list_tables() shows those there are."
            )
        return self._open_entry(entry, table, **options)

    def _open_entry(self, entry: Entry, table: object, **options: Any) -> Table:
        found = open_in(self._open_at(entry.folder), runtime=self._runtime, **options)
        if found.uuid != entry.table_uuid:
            raise TableNotFound(f"the folder of {table!r} holds another table than its name says")
        return found

    def append(self, table: str | tuple[str, str], data: Any, **options: Any) -> Commit:
        """Append rows to a table by name, creating it where its namespace allows that."""
        namespace, name = names.split_identifier(table)
        try:
            found = self.open_table((namespace, name))
        except TableNotFound:
            head = self._namespaces.head(namespace)
            if head.state != records.LIVE or not head.defaults.get("create_on_append"):
                raise
            schema = None if head.defaults.get("schema") else _inferred(data)
            found = self.create_table((namespace, name), schema, exist_ok=True)
        return found.append(data, **options)

    def list_tables(
        self,
        namespace: str = names.DEFAULT_NAMESPACE,
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        include_dropped: bool = False,
    ) -> list[TableInfo]:
        """Tables in the order of their names' bytes, a page at a time.

        `after`: the last name of the page before. `include_dropped`: also tables that were
        dropped and not purged, behind the one that has the name now.
        """
        where = self._namespaces.head(names.check_name(namespace, "a namespace"))
        if where.state != records.LIVE:
            return []
        return _taken(self._listed(where, _prefix(prefix), after, include_dropped), limit)

    def _listed(
        self,
        where: NamespaceRecord,
        prefix: str,
        after: str | None,
        dropped: bool,  # noqa: FBT001
    ) -> Iterator[TableInfo]:
        chains = self._names(where.folder)
        for record in chains.newest(prefix, after):
            live = None if self._has_moved(record) else record.live
            for entry in ([live] if live else []) + list(record.dropped if dropped else ()):
                yield self._info(where.name, record.name, entry)

    def describe_table(self, table: str | tuple[str, str]) -> TableInfo:
        """Where a table lies and since when; a dropped one is described until it is purged."""
        namespace, name = names.split_identifier(table)
        record = self._settled(self._names(self._namespace(namespace).folder), name)
        entry = record.live or next(iter(record.dropped), None)
        if entry is None:
            raise TableNotFound(f"there is no table {table!r} in {self.url}")
        return self._info(namespace, name, entry)

    def _info(self, namespace: str, name: str, entry: Entry) -> TableInfo:
        return TableInfo(
            namespace=namespace,
            name=name,
            uuid=entry.table_uuid,
            url=f"{self.url}/{entry.folder}",
            created_at=entry.created_at,
            deleted_at=entry.deleted_at,
        )

    # --- tables: drop, undrop, purge ---

    def drop_table(self, table: str | tuple[str, str]) -> TableInfo:
        """Drop a table: its name is free, writers are refused, and its files stay until a purge."""
        namespace, name = names.split_identifier(table)
        chains = self._names(self._namespace(namespace).folder)
        for _ in range(_STEPS):
            head = self._settled(chains, name)
            if head.live is None:
                raise TableNotFound(f"there is no table {table!r} in {self.url} to drop")
            # The table's own chain first: from here on no append succeeds.
            dropped_at = self._marked_dropped(head.live)
            if chains.put(head.without_live(dropped_at).next_id(self._runtime.random_hex(16))):
                return self._info(namespace, name, replace(head.live, deleted_at=dropped_at))
        raise self._too_busy(name)

    def _marked_dropped(self, entry: Entry) -> int:
        found = open_in(self._open_at(entry.folder), runtime=self._runtime, dropped_ok=True)
        return found.mark_dropped() or 0

    def undrop_table(self, table: str | tuple[str, str]) -> Table:
        """Bring the table back that was dropped last under this name, if the name is free."""
        namespace, name = names.split_identifier(table)
        chains = self._names(self._namespace(namespace).folder)
        for _ in range(_STEPS):
            head = self._settled(chains, name)
            entry = head.live or next((e for e in head.dropped if not e.purging), None)
            if entry is None:
                raise TableNotFound(
                    f"no table {table!r} was dropped in {self.url}, or it is purged"
                )
            found = open_in(self._open_at(entry.folder), runtime=self._runtime, dropped_ok=True)
            if head.live is not None and found.manifest.dropped_at is None:
                raise TableExists(f"the name {table!r} is in use: rename that table first")
            # A record also where the name is live: a drop that stalled half-way then loses.
            back = head.next(live=entry) if head.live else head.with_back(entry)
            if chains.put(back.next_id(self._runtime.random_hex(16))):
                found.mark_dropped(dropped=False)
                return self._open_entry(replace(entry, deleted_at=None), table)
        raise self._too_busy(name)

    def purge(
        self, namespace: str, *, older_than: Any = "24h", force: bool = False
    ) -> list[TableInfo]:
        """Remove the files of tables that were dropped longer ago than this; says which.

        Writers that knew a table must have had the time to see that it is gone, so less than an
        hour needs `force`.
        """
        age_ms = parse_duration(older_than) if older_than else 0
        if age_ms < MANIFEST_MIN_AGE_MS and not force:
            raise InvalidInput("older_than is an hour at least; force=True takes less")
        where = self._namespace(namespace)
        chains, purged = self._names(where.folder), []
        for record in chains.newest("", None):
            for entry in record.dropped:
                if (entry.deleted_at or 0) + age_ms <= self._runtime.now_ms():
                    self._purge_entry(chains, record.name, entry)
                    purged.append(self._info(namespace, record.name, entry))
        return purged

    def _purge_entry(self, chains: NameChains[NameRecord], name: str, entry: Entry) -> None:
        doomed = replace(entry, purging=True)
        if not entry.purging and not self._replace_dropped(chains, name, entry.folder, doomed):
            return  # somebody brought it back, or purged it
        storage = self._open_at(entry.folder)
        table = open_in(storage, runtime=self._runtime, dropped_ok=True)
        table.mark_dropped()
        version = table.refresh().version
        # What keeps out a writer that slept through all of this: the newest manifest stays and says
        # that the table is dropped, and the marker says that what is older was no accident.
        storage.put_if_absent(paths.gc_marker_path(version), b"")
        keep = (paths.GC_MARKERS, paths.manifest_path(version))
        storage.delete([path for path, _ in storage.walk("") if not path.startswith(keep)])
        self._replace_dropped(chains, name, entry.folder, None)

    def _replace_dropped(
        self, chains: NameChains[NameRecord], name: str, folder: str, entry: Entry | None
    ) -> bool:
        for _ in range(_STEPS):
            head = self._settled(chains, name)
            if all(e.folder != folder for e in head.dropped):
                return False
            step = head.with_dropped(folder, entry).next_id(self._runtime.random_hex(16))
            if chains.put(step):
                return True
        raise self._too_busy(name)

    # --- tables: rename ---

    def rename_table(self, table: str | tuple[str, str], to: str | tuple[str, str]) -> TableInfo:
        """Give a table another name, in any namespace there is; its files stay where they are."""
        namespace, name = names.split_identifier(table)
        new_namespace, new_name = names.split_identifier(to)
        source = self._names(self._namespace(namespace).folder)
        target_folder = self._namespace(new_namespace).folder
        target = self._names(target_folder)
        for _ in range(_STEPS):
            head, goal = self._settled(source, name), self._settled(target, new_name)
            if head.live is None:
                raise TableNotFound(f"there is no table {table!r} in {self.url} to rename")
            if goal.live is not None:
                raise TableExists(f"there is a table {to!r} in {self.url} already")
            move = records.Move(
                id=self._runtime.random_hex(16),
                namespace=target_folder,
                name=new_name,
                slot=goal.number + 1,
            )
            step = head.next(live=head.live, moving=move).next_id(self._runtime.random_hex(16))
            if not source.put(step):
                continue
            moved = self._carry_out(source, step)
            if moved:
                return self._info(new_namespace, new_name, head.live)
        raise self._too_busy(name)

    def _has_moved(self, record: NameRecord) -> bool:
        """Whether a rename under way has taken the table from this name."""
        move = record.moving
        if move is None:
            return False
        try:
            there = self._names(move.namespace).read(move.name, move.slot)
        except ObjectMissing:
            return False
        return there.moved_by == move.id

    def _carry_out(self, chains: NameChains[NameRecord], record: NameRecord) -> bool:
        """Finish a rename, one's own or one that a crash left; whether the table has moved.

        The record with the number that the rename named decides, and anybody may create it.
        """
        move = record.moving
        assert move is not None
        target = self._names(move.namespace)
        unused = records.NameRecord(name=move.name)
        before = target.read(move.name, move.slot - 1) if move.slot > 1 else unused
        if before.live is None:
            arrived = before.next(**new_id(self._runtime), live=record.live, moved_by=move.id)
            target.put(arrived)
        moved = self._has_moved(record)
        chains.put(record.next(**new_id(self._runtime), live=None if moved else record.live))
        return moved

    def _settled(self, chains: NameChains[NameRecord], name: str) -> NameRecord:
        """The newest record of a name, with what a crash left half-done completed."""
        for _ in range(_STEPS):
            head = chains.head(name)
            if head.moving is not None:
                self._carry_out(chains, head)
                continue
            return head
        raise self._too_busy(name)

    def _too_busy(self, name: str) -> CommitConflict:
        return CommitConflict(
            f"others kept changing {name!r} in {self.url}. Nothing was changed. Try again."
        )


def _namespace_info(record: NamespaceRecord) -> NamespaceInfo:
    return NamespaceInfo(record.name, record.created_at, dict(record.defaults))


def _prefix(given: object) -> str:
    return given if given == "" and isinstance(given, str) else names.check_name(given, "prefix")


def _taken(found: Iterator[Any], limit: int | None) -> list[Any]:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit must be an integer of 0 or more, not {limit!r}")
    taken: list[Any] = []
    while limit is None or len(taken) < limit:
        item = next(found, None)
        if item is None:
            break
        taken.append(item)
    return taken


def _inferred(data: Any) -> pa.Schema:
    if isinstance(data, list):
        return pa.Table.from_pylist(data).schema
    if isinstance(data, dict):
        return pa.table(data).schema
    if isinstance(getattr(data, "schema", None), pa.Schema):
        return data.schema
    raise InvalidInput("the columns cannot be told from this data: create the table first")


def _checked_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - {*_DEFAULTS, *_MORE_DEFAULTS})
    if unknown:
        raise InvalidInput(f"a namespace has no default {', '.join(unknown)}")
    for key in ("create_on_append", "create_on_read", "uncapped"):
        if not isinstance(given.get(key, False), bool):
            raise InvalidInput(f"{key} must be True or False")
    if given.get("ttl") is not None:
        parse_duration(given["ttl"], "ttl")
    schema = given.get("schema")
    if schema is not None and not (
        isinstance(schema, dict) and all(isinstance(t, str) for t in schema.values())
    ):
        raise InvalidInput("a namespace's schema is a dict of column names to type names")
    if given.get("create_on_read") and schema is None:
        raise InvalidInput("create_on_read needs a default schema")
    return dict(given)
