"""Replaying what a crash left in a log: every acknowledged record, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from strandline.catalog import documents
from strandline.tableformat.errors import (
    DamagedLog,
    InvalidInput,
    WriterPositionConflict,
    WriterPositionLost,
)
from strandline.writers.committing import Committer, runs_of
from strandline.writers.log import LoggedFile, read_log
from strandline.writers.memtable import Memtable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.manifest import Position
    from strandline.writers.committing import Place

MOST_BYTES_AT_ONCE: Final = 64 * 2**20
"""A commit of replayed rows is closed once it is this large."""


class LogSource(Protocol):
    """Where the files of a log are found."""

    def names(self) -> list[str]:
        """All of them, in order."""

    def read(self, name: str) -> bytes:
        """The bytes of one."""

    def remove(self, names: list[str]) -> None:
        """Delete files, the first one first."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a log held when it was opened again."""

    records: int = 0
    """Records that were not in the table and are now."""
    rows: int = 0
    already: int = 0
    """Records that were in the table before the crash."""
    log: str | None = field(default=None, compare=False)
    """Where the log lies, if it was looked for; None: there is no such folder."""

    def __add__(self, other: Recovered) -> Recovered:
        return Recovered(
            self.records + other.records, self.rows + other.rows, self.already + other.already
        )


def recover(
    place: Place,
    writer_id: str,
    source: LogSource,
    *,
    fence: str | None = None,
    committed_up_to: int | None = None,
    dry_run: bool = False,
) -> Recovered:
    """Commit every record that the table does not have, then remove the log's files.

    `committed_up_to` answers for the table where it no longer knows: the newest record that is
    certainly in it.
    """
    total = Recovered()
    for incarnation, names in _incarnations(source.names()):
        log = _Log(place, writer_id, incarnation)
        log.files.extend(read_log(((n, source.read(n)) for n in names), log.known()))
        for file in log.files:
            _check_ours(file, place, writer_id)
        if any(file.records for file in log.files):
            total += log.replay(fence, committed_up_to, dry_run=dry_run)
        if not dry_run:
            source.remove(names)
    return total


def _incarnations(names: list[str]) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rpartition("-")[0], []).append(name)
    yield from found.items()


def _check_ours(file: LoggedFile, place: Place, writer_id: str) -> None:
    if file.header.table_uuid != place.head.manifest.table_uuid:
        raise InvalidInput(
            f"the log file {file.name} belongs to another table. Nothing was replayed. Open the "
            "table it was written for, or choose another folder."
        )
    if file.header.user != place.chain.user:
        raise InvalidInput(
            f"the log file {file.name} belongs to {_owner(file.header.user)}, not to "
            f"{_owner(place.chain.user)}. Nothing was replayed. Each user's log is replayed "
            "through that user's handle, table.user(name)."
        )
    if file.header.writer_id != writer_id:
        raise InvalidInput(
            f"the log file {file.name} belongs to writer {file.header.writer_id!r}, not to "
            f"{writer_id!r}. Nothing was replayed. Give each writer a folder of its own."
        )


def _owner(user: str | None) -> str:
    return "the table itself" if user is None else f"user {user!r}"


@dataclass(frozen=True, slots=True)
class _Log:
    """The log of one incarnation."""

    place: Place
    writer_id: str
    incarnation: str
    files: list[LoggedFile] = field(default_factory=list)

    def known(self) -> int:
        """The newest record that is certainly in the table; 0 if the table does not know."""
        committed, _ = self._position()
        return committed or 0

    def replay(self, fence: str | None, committed_up_to: int | None, *, dry_run: bool) -> Recovered:
        first = self.files[0].header.first_record
        last = self.files[-1].header.first_record + len(self.files[-1].records) - 1
        committed, writer_id = self._position()
        if committed is None:
            committed = self._answered(committed_up_to, first, last)
        if first > committed + 1:
            raise WriterPositionConflict(self.writer_id, committed, first, last)
        left = max(0, last - committed)
        already = last - first + 1 - left
        if not left or dry_run:
            rows = sum(m.rows for m in self._memtables(committed)) if left else 0
            return Recovered(left, rows, already)
        return self._commit(writer_id, fence, committed, already)

    def _position(self) -> tuple[int | None, str]:
        """The newest record in the table, None if it does not know, and who commits the others.

        Where another incarnation holds the position, records go in under an id of their own, so
        that the one that took over is not disturbed. What that id says comes first: it began with
        all that was known, and an earlier replay may have moved it.
        """
        stored = self._stored(self.writer_id)
        if stored is not None and stored.incarnation == self.incarnation:
            return stored.number, self.writer_id
        own = f"recovered#{self.incarnation}"
        replayed = self._stored(own)
        if replayed is not None:
            return replayed.number, own
        return (None if stored is None else dict(stored.previous).get(self.incarnation)), own

    def _stored(self, writer_id: str) -> Position | None:
        manifest = self.place.head.manifest
        cold = documents.cold_positions(self.place.chain.service, manifest, [writer_id])
        return manifest.positions.get(writer_id) or cold.get(writer_id)

    def _answered(self, committed_up_to: int | None, first: int, last: int) -> int:
        if committed_up_to is None:
            raise WriterPositionLost(self.writer_id, first)
        if not first - 1 <= committed_up_to <= last:
            raise InvalidInput(
                f"the log holds records {first} to {last}; committed_up_to must be one of them, or "
                f"{first - 1} for none, not {committed_up_to}"
            )
        return committed_up_to

    def _memtables(self, committed: int) -> Iterator[Memtable]:
        """What is left, in commits of some size: a log may be thousands of small objects."""
        memtable: Memtable | None = None
        for file in self.files:
            left = [record for record in file.records if record.number > committed]
            if memtable is not None and (
                memtable.schema != file.header.schema or memtable.bytes >= MOST_BYTES_AT_ONCE
            ):
                yield memtable
                memtable = None
            if left and memtable is None:
                memtable = Memtable(file.header.schema, left[0].number)
            for record in left:
                assert memtable is not None
                try:
                    memtable.add_table(record.rows(file.header.schema), record.arrived_ms)
                except DamagedLog as error:
                    raise DamagedLog(f"{file.name}: {error}") from None
        if memtable is not None:
            yield memtable

    def _commit(self, writer_id: str, fence: str | None, committed: int, already: int) -> Recovered:
        committer = Committer(self.place, writer_id, self.incarnation, fence)
        records = rows = 0
        if writer_id != self.writer_id:
            committer.claim(committed)
        for memtable in self._memtables(committed):
            for run in runs_of(memtable, self.place.head.manifest.config):
                placement = committer.commit(run, committer.prepare(run, memtable.schema))
                memtable.place(run.first_index, placement)
                committer.tidy_up()
            records += memtable.records
            rows += memtable.rows
        return Recovered(records, rows, already)
