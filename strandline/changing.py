"""The half of a table that replaces what is there: overwrite, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from strandline.arguments import check_text
from strandline.place import TablePlace
from strandline.tableformat.actions import MAX_FENCE_BYTES
from strandline.tableformat.binding import bind
from strandline.tableformat.compaction import DEFAULT_BYTES, DEFAULT_ROWS, Policy
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.stores.probe import probe_once_per_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.table import Table
    from strandline.tableformat.expressions import Expression
    from strandline.writers.committing import Place
    from strandline.writers.compacting import CompactReport
    from strandline.writers.deleting import Deleted
    from strandline.writers.results import Commit


class ReplacesRows:
    """Everything that puts files in the place of others."""

    _chain: Chain
    _head: Snapshot

    def _check_writable(self) -> None:
        raise NotImplementedError

    def _latest(self) -> Snapshot:
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
        from strandline import appending  # noqa: PLC0415 - see there

        conditions = appending.conditions_from(writer_id, batch, fence, None)
        stored_properties = appending.properties_from(properties)
        self._check_writable()
        return appending.overwrite_rows(self._place(), data, conditions, stored_properties)

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
        return TablePlace(cast("Table", self))
