"""The root of a catalog: its storage, its chains of names, and what a crash left half-done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.name_chain import META, NAMESPACES, NameChains, new_id
from strandline.catalog.runtime import REAL
from strandline.catalog_infos import TableInfo
from strandline.tableformat import catalog_records as records
from strandline.tableformat import names
from strandline.tableformat.errors import CommitConflict, NamespaceNotFound, ObjectMissing
from strandline.tableformat.storage import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.catalog_records import Entry, NameRecord, NamespaceRecord
    from strandline.tableformat.storage import Storage

STEPS: Final = 64
"""How often a step is tried that others keep taking first."""


class CatalogRoot:
    """What every part of a catalog needs."""

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

    def _namespace(self, name: str) -> NamespaceRecord:
        head = self._namespaces.head(names.check_name(name, "a namespace"))
        if not head.exists:
            raise NamespaceNotFound(
                f"there is no namespace {name!r} in {self.url}. Create it with create_namespace, "
                "or by creating a table in it."
            )
        return head

    def _keep_namespace(self, folder: str) -> None:
        """A table has arrived: end a drop of its namespace that did not see it.

        Whoever drops a namespace says so first, and then looks for tables. So either the table is
        seen there, or the drop is seen here.
        """
        name = names.name_of_data_folder(folder)
        for _ in range(STEPS):
            head = self._namespaces.head(name)
            if head.state == records.LIVE:
                return
            if self._namespaces.put(head.alive(self._runtime.random_hex(16))):
                return
        raise self._too_busy(name)

    def _names(self, folder: str) -> NameChains[NameRecord]:
        return NameChains(
            self._storage,
            self._runtime,
            f"{META}tables/{folder}/",
            decode=records.name_record,
            unused=lambda name: records.NameRecord(name=name),
        )

    def _info(self, namespace: str, name: str, entry: Entry) -> TableInfo:
        return TableInfo(
            namespace=namespace,
            name=name,
            uuid=entry.table_uuid,
            url=f"{self.url}/{entry.folder}",
            created_at=entry.created_at,
            deleted_at=entry.deleted_at,
        )

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
        if moved:
            self._keep_namespace(move.namespace)
        chains.put(record.next(**new_id(self._runtime), live=None if moved else record.live))
        return moved

    def _settled(self, chains: NameChains[NameRecord], name: str) -> NameRecord:
        """The newest record of a name, with what a crash left half-done completed."""
        for _ in range(STEPS):
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
