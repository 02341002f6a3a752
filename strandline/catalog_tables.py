"""The tables of a catalog: created, opened, appended to, listed and described by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline import catalog_key_lengths
from strandline.api import create_in, open_in
from strandline.catalog.name_chain import new_id
from strandline.catalog_infos import TableInfo, checked_prefix, taken
from strandline.catalog_namespaces import STAMPING, HasNamespaces
from strandline.catalog_root import STEPS
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names, paths
from strandline.tableformat.arguments import check_options
from strandline.tableformat.errors import InvalidInput, TableExists, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.table import Table
    from strandline.tableformat.catalog_records import Entry, NamespaceRecord
    from strandline.writers.results import Commit


_OPENING: Final = ("version", "as_of", "cache")


class HasTables(HasNamespaces):
    """Tables by name."""

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
        _check_kind(options)
        self.create_namespace(namespace, exist_ok=True)
        where = self._namespace(namespace)
        defaults = where.defaults
        columns = defaults.get("schema") if schema is None else schema
        if columns is None:
            raise InvalidInput(f"{table!r} needs a schema: its namespace has no default for it")
        settings = {"time_column": None} | {
            key: defaults[key] for key in ("time_column", "ttl", *STAMPING) if key in defaults
        }
        chains = self._names(where.folder)
        made: tuple[str, Table] | None = None
        for _ in range(STEPS):
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
                catalog_key_lengths.check_table(self._storage, where.folder, name)
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
                self._keep_namespace(where.folder)
                return made[1]
        self._forget(made)
        raise self._too_busy(name)

    def _forget(self, made: tuple[str, Table] | None) -> None:
        """Remove a table that lost the race for its name; nobody has seen it."""
        if made is not None:
            self._open_at(made[0]).delete([paths.manifest_path(1)])

    def open_table(self, table: str | tuple[str, str], **options: Any) -> Table:
        """Open a table by name; `version`, `as_of` and `cache` as for `strandline.open_table`."""
        namespace, name = names.split_identifier(table)
        _check_kind(options)
        check_options("opening a table of a catalog", options, _OPENING)
        head = self._namespaces.head(namespace)
        entry = None
        if head.exists:
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
            if not head.exists or not head.defaults.get("create_on_append"):
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
        dropped and not purged, behind the one that has the name now. All tables of one name are on
        one page, which is longer than `limit` where its last name has several.
        """
        where = self._namespaces.head(names.check_name(namespace, "a namespace"))
        if not where.folder:
            return []
        return taken(self._by_name(where, checked_prefix(prefix), after, include_dropped), limit)

    def _live(self, where: NamespaceRecord) -> Iterator[TableInfo]:
        for tables in self._by_name(where, "", None, include_dropped=False):
            yield from tables

    def _by_name(
        self,
        where: NamespaceRecord,
        prefix: str,
        after: str | None,
        include_dropped: bool,  # noqa: FBT001
    ) -> Iterator[list[TableInfo]]:
        chains = self._names(where.folder)
        for record in chains.newest(prefix, after):
            live = None if self._has_moved(record) else record.live
            entries = [*([live] if live else []), *(record.dropped if include_dropped else ())]
            yield [self._info(where.name, record.name, entry) for entry in entries]

    def describe_table(self, table: str | tuple[str, str]) -> TableInfo:
        """Where a table lies and since when; a dropped one is described until it is purged."""
        namespace, name = names.split_identifier(table)
        record = self._settled(self._names(self._namespace(namespace).folder), name)
        entry = record.live or next(iter(record.dropped), None)
        if entry is None:
            raise TableNotFound(f"there is no table {table!r} in {self.url}")
        return self._info(namespace, name, entry)


def _inferred(data: Any) -> pa.Schema:
    """The columns of rows that come before their table."""
    try:
        if isinstance(data, list):
            return pa.Table.from_pylist(data).schema
        if isinstance(data, dict):
            return pa.table(data).schema
        if isinstance(getattr(data, "schema", None), pa.Schema):
            return data.schema
    # Arrow lets errors of Python through, of whatever the values may be.
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise _unclear(f": {error}") from None
    raise _unclear("")


def _unclear(reason: str) -> InvalidInput:
    text = reason.encode("utf-8", "backslashreplace").decode()
    return InvalidInput(
        f"the columns cannot be told from this data{text}. Nothing was changed. Create the table "
        "first, or append a list of dicts with values of one type for each column."
    )


def _check_kind(options: dict[str, Any]) -> None:
    if options.pop("kind", None) is not None:
        raise InvalidInput(
            "tables of a catalog are no stream tables. Nothing was changed. A stream table has a "
            "URL and no name: use strandline.create_table and open_table with kind='stream'."
        )
