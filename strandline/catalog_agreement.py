"""What a table's own chain says of a drop, and what its name says: brought to agree.

The two cannot change in one step. So whoever changes one of them reads the other afterwards, and
the name decides: of those who change both at once, the last to look finds and ends the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.api import open_in
from strandline.catalog_root import STEPS
from strandline.catalog_tables import HasTables
from strandline.tableformat.errors import CommitConflict

if TYPE_CHECKING:
    from strandline.catalog.name_chain import NameChains
    from strandline.table import Table
    from strandline.tableformat.catalog_records import Entry, NameRecord


class KeepsAgreement(HasTables):
    """Tables that are dropped and brought back."""

    def _with_dropped(self, entry: Entry) -> Table:
        return open_in(self._open_at(entry.folder), runtime=self._runtime, dropped_ok=True)

    def _agree(
        self, chains: NameChains[NameRecord], record: NameRecord, entry: Entry, found: Table
    ) -> bool:
        """Make the table's chain say what its name says; whether the table is live.

        `record` is one that had the table: renames since then are followed.
        """
        head = self._record_with(chains, record, entry.folder)
        for _ in range(STEPS):
            is_live = head.live is not None and head.live.folder == entry.folder
            found.mark_dropped(dropped=not is_live)
            before, head = head, self._record_with(chains, record, entry.folder)
            if head.record_id == before.record_id:
                return is_live
        raise CommitConflict(
            f"others kept dropping {record.name!r} in {self.url} and bringing it back. What it is "
            "now is not certain: list_tables() shows it. Try again."
        )

    def _record_with(
        self, chains: NameChains[NameRecord], record: NameRecord, folder: str
    ) -> NameRecord:
        """The newest record of the name that the table has now, or had when it was purged."""
        while True:
            head = self._settled(chains, record.name)
            here = [*([head.live] if head.live else []), *head.dropped]
            if any(entry.folder == folder for entry in here):
                return head
            moved = self._departure(chains, record, head, folder)
            if moved is None or moved.moving is None:
                return head
            chains = self._names(moved.moving.namespace)
            record = chains.read(moved.moving.name, moved.moving.slot)

    def _departure(
        self, chains: NameChains[NameRecord], record: NameRecord, head: NameRecord, folder: str
    ) -> NameRecord | None:
        """The last rename that took the table away from this name, since a record of it."""
        for number in range(head.number - 1, record.number - 1, -1):
            step = chains.read(record.name, number)
            if step.live is not None and step.live.folder == folder and self._has_moved(step):
                return step
        return None
