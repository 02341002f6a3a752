"""The catalog: namespaces and tables by name, under one root URL.

Only exclusive creates decide. A name's chain of records says which folder it stands for; the
table's own chain says whether it was dropped. Each operation below is a few steps, every one of
which leaves a state that the same operation, repeated, completes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.api import open_in
from strandline.catalog.chain import MANIFEST_MIN_AGE_MS
from strandline.catalog.name_chain import new_id
from strandline.catalog_agreement import KeepsAgreement
from strandline.catalog_infos import NamespaceInfo, TableInfo
from strandline.catalog_namespaces import namespace_info
from strandline.catalog_root import STEPS
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names, paths
from strandline.tableformat.errors import (
    InvalidInput,
    NamespaceNotFound,
    StrandlineError,
    TableDropped,
    TableExists,
    TableNotFound,
)
from strandline.tableformat.windows import parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.catalog.name_chain import NameChains
    from strandline.maintenance.maintain import MaintainReport
    from strandline.table import Table
    from strandline.tableformat.catalog_records import Entry, NameRecord

__all__ = ["Catalog", "NamespaceInfo", "TableInfo"]

_SETTLED_MS: Final = 60_000
"""Who drops a table or brings it back needs two steps: so much time is between them at most."""


class Catalog(KeepsAgreement):
    """Namespaces and tables under a root URL. Safe to share between threads and processes."""

    # --- namespaces: drop ---

    def drop_namespace(self, name: str) -> NamespaceInfo:
        """Drop a namespace without tables; dropped ones in it can still be purged.

        Creating it again brings it back, with the defaults that are then given.
        """
        for _ in range(STEPS):
            head = self._namespace(name)
            if head.state == records.LIVE:
                claim = head.next(**new_id(self._runtime), state=records.DROPPING)
                if not self._namespaces.put(claim):
                    continue
                head = claim
            # Who creates a table from now on sees the claim, and ends it.
            in_use = next(self._live(head), None)
            if in_use is not None:
                self._namespaces.put(head.alive(self._runtime.random_hex(16)))
                raise InvalidInput(
                    f"namespace {name!r} holds tables, such as {in_use.name!r}. Nothing was "
                    "changed. Drop or rename them first."
                )
            gone = head.next(
                **new_id(self._runtime),
                state=records.DROPPED,
                deleted_at=self._runtime.now_ms(),
            )
            if self._namespaces.put(gone):
                return namespace_info(gone)
        raise self._too_busy(name)

    # --- tables: drop, undrop, purge ---

    def drop_table(self, table: str | tuple[str, str]) -> TableInfo:
        """Drop a table: its name is free, writers are refused, and its files stay until a purge."""
        namespace, name = names.split_identifier(table)
        chains = self._names(self._namespace(namespace).folder)
        begun: tuple[NameRecord, Entry, Table] | None = None
        for _ in range(STEPS):
            head = self._settled(chains, name)
            if begun and (head.live is None or head.live.folder != begun[1].folder):
                # Another was quicker: the mark that was set goes by what the name says now.
                self._agree(chains, *begun)
                begun = None
            if head.live is None:
                raise TableNotFound(f"there is no table {table!r} in {self.url} to drop")
            head.without_live(0)  # too many dropped ones: said before anything is changed
            # The table's own chain first: from here on no append succeeds.
            found = self._with_dropped(head.live)
            begun = (head, head.live, found)
            dropped_at = found.mark_dropped() or 0
            if chains.put(head.without_live(dropped_at).next_id(self._runtime.random_hex(16))):
                self._agree(chains, *begun)
                return self._info(namespace, name, replace(head.live, deleted_at=dropped_at))
        if begun:
            self._agree(chains, *begun)
        raise self._too_busy(name)

    def undrop_table(self, table: str | tuple[str, str]) -> Table:
        """Bring the table back that was dropped last under this name, if the name is free."""
        namespace, name = names.split_identifier(table)
        where = self._namespace(namespace).folder
        chains = self._names(where)
        for _ in range(STEPS):
            head = self._settled(chains, name)
            entry = head.live or next((e for e in head.dropped if not e.purging), None)
            if entry is None:
                raise TableNotFound(
                    f"no table {table!r} was dropped in {self.url}, or it is purged"
                )
            found = self._with_dropped(entry)
            if head.live is not None and found.manifest.dropped_at is None:
                raise TableExists(f"the name {table!r} is in use: rename that table first")
            # A record also where the name is live: a drop that stalled half-way then loses.
            back = head.next(live=entry) if head.live else head.with_back(entry)
            back = back.next_id(self._runtime.random_hex(16))
            if chains.put(back):
                self._keep_namespace(where)
                if not self._agree(chains, back, entry, found):
                    raise TableDropped(found.manifest.dropped_at or 0)  # again, by another
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
        where = self._namespaces.head(names.check_name(namespace, "a namespace"))
        if not where.folder:
            raise NamespaceNotFound(f"there was never a namespace {namespace!r} in {self.url}")
        chains, purged = self._names(where.folder), []
        for record in chains.newest("", None):
            for entry in record.dropped:
                # Times of commits may be a little ahead of the clock; without an age, all go.
                if not age_ms or (entry.deleted_at or 0) + age_ms <= self._runtime.now_ms():
                    if age_ms and self._took_rows(chains, record.name, entry):
                        continue
                    self._purge_entry(chains, record.name, entry)
                    purged.append(self._info(namespace, record.name, entry))
        return purged

    def _took_rows(self, chains: NameChains[NameRecord], name: str, entry: Entry) -> bool:
        """Whether a table that is listed as dropped could be appended to until now.

        An undrop that a drop overtook and that was killed leaves this. The table is dropped from
        now on: its age begins here, and until it is purged the rows can be brought back.
        """
        if entry.purging or (found := self._with_dropped(entry)).manifest.dropped_at is not None:
            return False
        late = replace(entry, deleted_at=found.mark_dropped())
        self._replace_dropped(chains, name, entry.folder, late)
        return True

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
        for _ in range(STEPS):
            head = self._settled(chains, name)
            if all(e.folder != folder for e in head.dropped):
                return False
            step = head.with_dropped(folder, entry).next_id(self._runtime.random_hex(16))
            if chains.put(step):
                return True
        raise self._too_busy(name)

    # --- maintenance ---

    def maintain(
        self, namespace: str | None = None, **options: Any
    ) -> Iterator[tuple[TableInfo, MaintainReport | StrandlineError | None]]:
        """Maintain one table after the other, as `Table.maintain` does, in one namespace or all.

        A table that its settings end because it was empty (`delete_on_empty_secs`) is dropped in
        the catalog too; of one that had ended before there is no report. A table that fails does
        not stop the others: its error is given in the place of a report.
        """
        wanted = [namespace] if namespace else [n.name for n in self.list_namespaces()]
        for each in wanted:
            for info in self._live(self._namespace(each)):
                try:
                    yield self._maintained(info, options)
                except StrandlineError as error:
                    yield info, error

    def _maintained(
        self, info: TableInfo, options: dict[str, Any]
    ) -> tuple[TableInfo, MaintainReport | None]:
        identifier = (info.namespace, info.name)
        folder = info.url.removeprefix(f"{self.url}/")
        table = open_in(self._open_at(folder), runtime=self._runtime, dropped_ok=True)
        dropped_at = table.manifest.dropped_at
        if dropped_at is None:
            report = table.maintain(**options)
            return (self.drop_table(identifier) if report.dropped else info), report
        # Somebody dropped it without a word to the catalog, or is about to tell it.
        is_settled = dropped_at + _SETTLED_MS <= self._runtime.now_ms()
        return (self.drop_table(identifier) if is_settled else info), None

    # --- tables: rename ---

    def rename_table(self, table: str | tuple[str, str], to: str | tuple[str, str]) -> TableInfo:
        """Give a table another name, in any namespace there is; its files stay where they are."""
        namespace, name = names.split_identifier(table)
        new_namespace, new_name = names.split_identifier(to)
        source = self._names(self._namespace(namespace).folder)
        target_folder = self._namespace(new_namespace).folder
        target = self._names(target_folder)
        for _ in range(STEPS):
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
