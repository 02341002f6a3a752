"""Tables with `scope="user"`: one handle for the table, one for each user in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from strandline.catalog.user_chain import FOLDERS, UserChain, batches_of_names, list_users, users_in
from strandline.table import Table
from strandline.tableformat.arguments import check_count
from strandline.tableformat.errors import InvalidInput, TableDropped
from strandline.tableformat.names import check_name
from strandline.versions import check_version, find_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from strandline.maintenance.verify import VerifyReport
    from strandline.readers.scan import Scan
    from strandline.writers.compacting import CompactReport


__all__ = ["FOLDERS", "UserScans", "UserTable", "UsersTable"]


class UserTable(Table):
    """One user's rows: appended, scanned and numbered apart from everybody else's."""

    @property
    def name(self) -> str:
        """The user."""
        chain = self._chain
        assert isinstance(chain, UserChain)
        return chain.user

    def __repr__(self) -> str:
        return f"<strandline user {self.name!r} of {self.url}>"

    def _of_the_table(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidInput(
            "this belongs to the table and not to one of its users: schema, fence, retention and "
            "drop are the same for all, and so is the way to users. Nothing was changed. Ask the "
            "table's own handle."
        )

    evolve = fence = mark_dropped = set = expire = user = _of_the_table
    # Other users' files lie in the same folders: seen from here they would be garbage.
    vacuum = expire_versions = purge = maintain = _of_the_table


class UserScans:
    """Rows of many users, one user after the other: there is no snapshot common to all.

    Each user is read at its newest version at the time its turn comes. Memory holds one user's
    batch at a time.
    """

    def __init__(
        self, table: UsersTable, users: Iterable[str] | None, request: dict[str, Any]
    ) -> None:
        self._table, self._users, self._request = table, users, request

    def __iter__(self) -> Iterator[tuple[str, Scan]]:
        names = self._table.users() if self._users is None else self._users
        for name in names:
            yield name, self._table.user(name).scan(**self._request)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches; the first column, `_user`, says whose rows they are."""
        for name, scan in self:
            for batch in scan.to_batches():
                column = pa.repeat(pa.scalar(name, pa.string()), batch.num_rows)
                yield pa.RecordBatch.from_arrays(
                    [column, *batch.columns],
                    schema=batch.schema.insert(0, pa.field("_user", pa.string())),
                )

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        batches = list(self.to_batches())
        columns = self._request.get("columns")
        schema = self._table.schema
        if columns is not None:
            schema = pa.schema([schema.field(c) for c in columns if c in schema.names])
        empty = schema.insert(0, pa.field("_user", pa.string()))
        return pa.Table.from_batches(batches, batches[0].schema if batches else empty)

    def count(self) -> int:
        """How many rows there are."""
        return sum(scan.count() for _, scan in self)


class UsersTable(Table):
    """The table itself: what holds for all users, and the way to each."""

    def user(
        self,
        name: str,
        version: int | str | None = None,
        as_of: datetime | str | int | None = None,
    ) -> UserTable:
        """One user's handle; a user without rows is a user with an empty table.

        Live, or pinned to one of the user's own versions, as `open_table` pins a table.
        """
        check_name(name, "a user's name")
        moment = check_version(version, as_of)
        if self._pinned is not None:
            raise InvalidInput(
                "users have versions of their own: open the table without a version, and take "
                "table.user(name, version)"
            )
        dropped_at = self.refresh().manifest.dropped_at
        if dropped_at is not None:
            raise TableDropped(dropped_at)
        chain = UserChain(self._chain, self._head, name)
        head = chain.find_head()
        return UserTable(chain, head, pinned=find_version(chain, head, version, moment))

    def users(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[str]:
        """Names of users that were ever appended to, in the order of their bytes."""
        check_count("limit", limit)
        return list_users(self._chain.storage, prefix, after)[:limit]

    def users_in(self, number: int) -> list[str]:
        """The users of one of `FOLDERS` folders, for who divides the work."""
        return users_in(self._chain.storage, number)

    def scan_users(self, users: Iterable[str] | None = None, **request: Any) -> UserScans:
        """Scan some users or all, as `scan` does for one; rows carry their user in `_user`."""
        if isinstance(users, str | bytes):
            raise InvalidInput(
                f"users is a list of names, and not {users!r}: its letters would be taken for "
                "users. Nothing was read. Write scan_users([name]), or table.user(name).scan()."
            )
        return UserScans(self, users, request)

    def _by_user(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidInput(
            "this table has scope='user': its rows belong to users. Nothing was changed. Take "
            "table.user(name), or table.scan_users() for all of them; in a shell, --user NAME."
        )

    def compact(
        self,
        sort_by: Sequence[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> CompactReport:
        """Compact the files of each user, one user after the other, as `compact` does for one.

        The report adds them up. `progress` is told of users done; how many there are is known
        only at the end.
        """
        total = None
        from strandline.writers.compacting import CompactReport  # noqa: PLC0415 - kernels

        for done, user in enumerate(self._each()):
            report = user.compact(sort_by, **options)
            total = report if total is None else total + report
            if progress is not None:
                progress(done + 1, done + 1)
        if total is None:
            return CompactReport(self.url, self.version)
        return replace(total, url=self.url, version=self.version)

    def verify(self, *, deep: bool = False, repair: bool = False) -> VerifyReport:
        """Check the files of the table and of each user, as `verify` does for one."""
        total = super().verify(deep=deep, repair=repair)
        for user in self._each():
            report = user.verify(deep=deep, repair=repair)
            total += replace(report, problems=tuple(p.of(user.name) for p in report.problems))
        return total

    def _each(self) -> Iterator[UserTable]:
        """Users one after the other; none of their handles is kept."""
        self.refresh()
        for names in batches_of_names(self._chain.storage):
            for name in names:
                yield self.user(name)

    append = overwrite = delete = _by_user
    writer = async_writer = recover = _by_user
    _scan = files = tail = export = trim = rollback = tag = untag = _by_user
