"""The half of a table that replaces what is there: overwrite, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.appending import conditions_from, earlier, properties_from
from strandline.tableformat.actions import settle_key
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.append import AppendChange
from strandline.writers.overwrite import OverwriteChange
from strandline.writers.results import Commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.catalog.commit import Change, Committed
    from strandline.tableformat.schema import Schema


class ReplacesRows:
    """Everything that puts files in the place of others."""

    _chain: Chain
    _head: Snapshot

    def _check_writable(self) -> None:
        raise NotImplementedError

    def _ingest(self, data: Any) -> tuple[pa.Table, Schema]:
        raise NotImplementedError

    def _commit(
        self, change: Change, operation: str, properties: tuple[tuple[str, str], ...]
    ) -> Committed:
        raise NotImplementedError

    def overwrite(
        self,
        data: Any,
        writer_id: str | None = None,
        batch: int | None = None,
        *,
        fence: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Commit:
        """Put these rows in the place of all others, in one commit.

        What goes is everything in the version that the commit lands on, also rows that others
        appended a moment before. Earlier versions keep their rows. The new rows are numbered
        behind the tail. Without rows, the table is emptied.
        """
        conditions = conditions_from(writer_id, batch, fence, None)
        stored_properties = properties_from(properties)
        self._check_writable()
        rows, schema = self._ingest(data)
        manifest = self._head.manifest
        if conditions.key is not None:
            known = settle_key(conditions.key, manifest.positions, {})
            if known is not None:
                return earlier(known)
        probe_once_per_process(self._chain.storage)
        append = AppendChange(
            self._chain.storage,
            self._chain.runtime,
            manifest,
            rows=rows,
            schema=schema,
            conditions=conditions,
            alone=True,
        )
        done = self._commit(OverwriteChange(append), "overwrite", stored_properties)
        if done.earlier is not None:
            return earlier(done.earlier)
        made, dropped = done.snapshot.manifest, append.dropped_late
        stored = rows.num_rows - dropped
        first = made.next_seq - stored
        return Commit(made.version, first, made.next_seq - 1, stored, dropped=dropped)
