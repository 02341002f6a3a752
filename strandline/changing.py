"""The half of a table that replaces what is there: overwrite, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from strandline.appending import conditions_from, properties_from
from strandline.arguments import check_text
from strandline.tableformat.actions import MAX_FENCE_BYTES, settle_key
from strandline.tableformat.binding import bind
from strandline.tableformat.compaction import DEFAULT_BYTES, DEFAULT_ROWS, Policy
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.append import AppendChange
from strandline.writers.overwrite import OverwriteChange
from strandline.writers.results import Commit, earlier_result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.catalog.commit import Change, Committed
    from strandline.table import Table
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.schema import Schema
    from strandline.writers.committing import Place
    from strandline.writers.compacting import CompactReport
    from strandline.writers.deleting import Deleted


class ReplacesRows:
    """Everything that puts files in the place of others."""

    _chain: Chain
    _head: Snapshot

    def _check_writable(self) -> None:
        raise NotImplementedError

    def _latest(self) -> Snapshot:
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
                return earlier_result(known)
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
            return earlier_result(done.earlier)
        made, dropped = done.snapshot.manifest, append.dropped_late
        stored = rows.num_rows - dropped
        first = made.next_seq - stored
        return Commit(made.version, first, made.next_seq - 1, stored, dropped=dropped)

    def delete(
        self,
        *,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        fence: str | None = None,
    ) -> Deleted:
        """Delete the rows for which the filter is true, in one commit; the others stay.

        It covers the rows that are in the table when it begins. Rows for which the filter is
        unknown, as a comparison with null is, stay. Earlier versions keep their rows.
        """
        from strandline.writers.deleting import delete_where  # noqa: PLC0415 - kernels

        if filter is None:
            raise InvalidInput(
                "delete needs a filter; to delete every row, use overwrite([]), or filter='true'"
            )
        token = check_text("fence", fence, MAX_FENCE_BYTES)
        self._check_writable()
        condition = filter_from(filter)
        bind(condition, self._latest().manifest.schema)
        probe_once_per_process(self._chain.storage)
        return delete_where(self._place(), condition, token)

    def compact(
        self,
        sort_by: Sequence[str] | None = None,
        *,
        target_rows: int = DEFAULT_ROWS,
        target_bytes: int = DEFAULT_BYTES,
        min_segments: int = 2,
        bytes_per_s: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CompactReport:
        """Put small segments together, window by window; rows, numbers and answers stay.

        Each run of neighbours is a commit of its own, so a compaction that was broken off goes on
        where it was, and appends go on meanwhile. `sort_by`: columns to sort the rows of a new
        segment by. `target_rows`, `target_bytes`: how much goes into one. `min_segments`: fewer
        neighbours are left alone. `bytes_per_s`: read and write no faster. `dry_run`: only tell.
        """
        from strandline.writers.compacting import CompactOptions, compact  # noqa: PLC0415

        options = CompactOptions(
            policy=Policy(target_rows, target_bytes, min_segments),
            sort_by=sort_by,
            bytes_per_s=bytes_per_s,
            dry_run=dry_run,
            progress=progress,
        )
        self._check_writable()
        if not dry_run:
            probe_once_per_process(self._chain.storage)
        return compact(self._place(), options)

    def _place(self) -> Place:
        from strandline.writing import TablePlace  # noqa: PLC0415 - the other half

        return TablePlace(cast("Table", self))
