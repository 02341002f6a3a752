"""The part of a table that keeps the answers of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from strandline.queries.remembered import Remembered
    from strandline.table import Table


class RemembersQueries:
    """Queries under an alias: remembered, shown, refreshed, forgotten."""

    _check_writable: Callable[[], None]

    def _remembered(self, alias: str) -> Remembered:
        from strandline.queries.remembered import Remembered  # noqa: PLC0415 - few programs need it

        return Remembered(cast("Table", self), alias)

    def remember(self, alias: str, query: Mapping[str, Any]) -> None:
        """Keep the answer of a query: `filter`, `columns`, `bucket`, `aggregates`, `retention`.

        With `aggregates` (`{"n": "count(*)", "total": "sum(amount)"}`) `columns` and the time
        `bucket` (`"1h"`) say what is counted up together; without, the rows themselves are kept.
        """
        self._check_writable()
        if cast("Table", self).config.primary_key:
            raise InvalidInput(
                "a table with a primary key cannot remember queries yet: a new row takes the place "
                "of an older one, and a kept answer would count both. Nothing was changed."
            )
        self._remembered(alias).remember(query)

    def show(self, alias: str) -> pa.Table:
        """The answer of a remembered query as it is now; only what is new is read."""
        return self._remembered(alias).show()

    def refresh_query(self, alias: str) -> int:
        """Keep the answer as it is now, so that the next `show` has less to read."""
        self._check_writable()
        return self._remembered(alias).refresh()

    def forget(self, alias: str) -> None:
        """Let a remembered query go."""
        self._check_writable()
        self._remembered(alias).forget()

    def remembered(self) -> list[str]:
        """The aliases of all remembered queries."""
        from strandline.queries.remembered import aliases  # noqa: PLC0415 - as above

        return aliases(cast("Table", self))
