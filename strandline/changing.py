"""The half of a table that replaces what is there: overwrite, upsert, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

from strandline.place import TablePlace
from strandline.tableformat.actions import MAX_FENCE_BYTES
from strandline.tableformat.arguments import check_text
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
    from strandline.writers.results import Commit, Deleted


class ReplacesRows:
    """Everything that puts files in the place of others."""

    _chain: Chain
    _head: Snapshot
    _check_writable: Callable[[], None]
    _latest: Callable[[], Snapshot]

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

    def upsert(
        self,
        data: Any,
        writer_id: str | None = None,
        batch: int | None = None,
        *,
        fence: str | None = None,
        match_seq: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Commit:
        """Put each row in the place of the row of its key, if it is not older; for keyed tables.

        What `append` does to a table with a primary key, and refused without one. Of several rows
        of a key the one with the greatest `_ts` counts, of equal ones the last, also in one batch.
        """
        key = self._latest().manifest.key_columns
        if not key:
            raise InvalidInput(
                "this table has no primary key, so no row takes the place of another: that is "
                "chosen when a table is created. Nothing was changed. Add rows with append."
            )
        return cast("Table", self).append(
            data, writer_id, batch, fence=fence, match_seq=match_seq, properties=properties
        )

    @overload
    def delete(
        self, *, filter: str | Expression, keys: None = None, fence: str | None = None
    ) -> Deleted: ...

    @overload
    def delete(
        self,
        *,
        keys: Any,
        filter: None = None,
        writer_id: str | None = None,
        batch: int | None = None,
        fence: str | None = None,
        match_seq: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Commit: ...

    def delete(
        self,
        *,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        keys: Any = None,
        writer_id: str | None = None,
        batch: int | None = None,
        fence: str | None = None,
        match_seq: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Deleted | Commit:
        """Delete rows in one commit, by a filter or by their keys; earlier versions keep them.

        `filter`: the rows for which it is true, of those that are in the table when it begins.
        Rows for which it is unknown, as a comparison with null is, stay. In a keyed table it is
        asked of the newest row of each key.
        `keys`: for keyed tables, as `get` takes them, whether they are there or not; the other
        arguments are those of `append`. What was seen of a key loses, and so does a row that comes
        later with an earlier time.
        """
        if (filter is None) == (keys is None):
            raise InvalidInput(
                "delete needs a filter, or keys of a keyed table, and not both; to delete every "
                "row, use overwrite([]), or filter='true'"
            )
        if keys is not None:
            return self._delete_keys(keys, (writer_id, batch, fence, match_seq), properties)
        if (writer_id, batch, match_seq, properties) != (None, None, None, None):
            raise InvalidInput("with a filter, delete takes a fence and nothing else")
        return self._delete_where(filter, fence)

    def _delete_where(self, given: Any, fence: object) -> Deleted:
        from strandline.writers.deleting import delete_where  # noqa: PLC0415 - kernels

        token = check_text("fence", fence, MAX_FENCE_BYTES)
        self._check_writable()
        condition = filter_from(given)
        bind(condition, self._latest().manifest.schema)
        probe_once_per_process(self._chain.storage)
        return delete_where(self._place(), condition, token)

    def _delete_keys(
        self, keys: Any, conditions: tuple[Any, ...], properties: Mapping[str, str] | None
    ) -> Commit:
        from strandline import appending  # noqa: PLC0415 - see there
        from strandline.writers.deleting_keys import delete_keys  # noqa: PLC0415 - kernels

        wanted = appending.conditions_from(*conditions)
        stored_properties = appending.properties_from(properties)
        self._check_writable()
        self._latest()
        probe_once_per_process(self._chain.storage)
        return delete_keys(self._place(), keys, wanted, stored_properties)

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
