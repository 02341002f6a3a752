"""What a writer asks of its write-ahead log, wherever that lies, and how a log is read back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.tableformat.errors import DamagedLog, InvalidInput
from strandline.writers.wal_frames import LogHeader, Record, read_frames, read_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SUFFIX: Final = ".wal"
DEFAULT_BUFFER_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How durable an acknowledgement is, and what it costs."""

    enabled: bool = True
    dir: str | None = None
    """A folder of this machine, or a URL of an object store. None: a folder of the user's own."""
    buffered: bool = False
    """Gather records in memory before they are written. An append that promises the log
    (`ack="wal"`) writes what was gathered, so this serves `ack="buffered"`."""
    buffer_size: int = DEFAULT_BUFFER_BYTES
    """Bytes that are gathered at most."""
    flush_each_write: bool = False
    """Write after each record although records are gathered; the same as `buffered=False`."""
    fsync: bool = False
    """Survive a power cut, not only the end of the process. Appends of many threads share one."""
    fsync_every_n: int = 1
    """With `fsync`: sync with every n-th record; up to n - 1 acknowledged ones may be lost to a
    power cut, none to the end of the process."""
    storage_options: Mapping[str, Any] | None = None
    """For a log in an object store."""

    def __post_init__(self) -> None:
        for name in ("enabled", "buffered", "flush_each_write", "fsync"):
            if type(getattr(self, name)) is not bool:
                raise InvalidInput(f"wal option {name} must be True or False")
        for name in ("buffer_size", "fsync_every_n"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidInput(f"wal option {name} must be an integer of 1 or more")

    def __repr__(self) -> str:
        shown = (f for f in fields(self) if f.name != "storage_options")
        return f"LogOptions({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"

    @property
    def gathers(self) -> bool:
        """Whether a record may stay in memory after its append returned."""
        return self.buffered and not self.flush_each_write


class Log(Protocol):
    """A place that keeps records until they are committed.

    One thread at a time calls `begin`, `write` and `flush`; `sync_until` may be called by many.
    """

    where: str
    """For messages; never holds credentials."""
    must_sync: bool
    """Whether an append that promises the log has to wait with `sync_until`."""

    def begin(self, header: LogHeader) -> None:
        """Start a new file. What was written before is as safe as it was promised to be."""

    def write(self, frame: bytes, record: int) -> None:
        """Take one record."""

    def flush(self) -> None:
        """Hand everything over to the system, so that it survives the end of the process."""

    def sync_until(self, record: int) -> None:
        """Return once this record is as durable as the options promise."""

    def prune(self, record: int) -> None:
        """Remove files whose records are all at or below this one; may take its time."""

    def stats(self) -> dict[str, int]:
        """Bytes, syncs and files."""

    def close(self, *, finished: bool = False) -> None:
        """Flush, and let go of the log; `finished`: all records are committed, so remove it."""

    def disown(self) -> None:
        """Let go in a forked child: the log, its lock and what was gathered are the parent's."""


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """One file of a log, read back."""

    name: str
    header: LogHeader
    records: list[Record]

    @property
    def end(self) -> int:
        """The record after the last one."""
        return self.header.first_record + len(self.records)


def read_log(files: Iterable[tuple[str, bytes]], committed: int = 0) -> list[LoggedFile]:
    """The files of one incarnation in order, whole and without a gap.

    A file may end in a torn record. That loses nothing that was acknowledged if the next file
    goes on with that record's number; at the end of the last one it was never acknowledged. The
    next file may also repeat a number: its writer was told that the first try had failed. Files
    whose records are all committed may be there or gone, in any order.
    """
    found: list[LoggedFile] = []
    for name, data in files:
        opened = read_header(data, name)
        if opened is None:
            continue
        header, start = opened
        if found and found[-1].end < header.first_record <= committed + 1:
            found.clear()
        if found:
            _check_continues(found[-1], header, name)
        records, _ = read_frames(data, start, header.first_record, name)
        found.append(LoggedFile(name, header, records))
    return found


def _check_continues(before: LoggedFile, header: LogHeader, name: str) -> None:
    sound = header.first_record - before.header.first_record
    if not 0 <= sound <= len(before.records):
        raise DamagedLog(
            f"{name} begins with record {header.first_record}, but {before.name} ends before "
            f"record {before.header.first_record + len(before.records)}"
        )
    del before.records[sound:]
