"""Every error Strandline raises: what happened, what state things are in, what to do.

A class of its own exists where a caller would act differently on it. All derive from
`StrandlineError`. Arguments mirror the signatures, so that errors survive pickling on their way
back from a worker process.
"""

from __future__ import annotations


class StrandlineError(Exception):
    """The root of all errors of this library."""


# --- what the caller handed in ---------------------------------------------------------------


class InvalidInput(StrandlineError):
    """The caller's data or arguments cannot be accepted; nothing was changed."""


class InvalidRow(InvalidInput):
    """One value of the data does not fit its column; nothing was written."""

    def __init__(self, row: int | None, field: str, reason: str) -> None:
        super().__init__(row, field, reason)
        self.row, self.field, self.reason = row, field, reason

    def __str__(self) -> str:
        where = "the data" if self.row is None else f"row {self.row}"
        return f"{where}, field {self.field!r}: {self.reason}. Nothing was written."


class InvalidFilter(InvalidInput):
    """A filter that cannot be understood, with the place in its text."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(text, position, reason)
        self.text, self.position, self.reason = text, position, reason

    def __str__(self) -> str:
        # The line with the mistake, and of a long line only the neighbourhood.
        start = self.text.rfind("\n", 0, self.position) + 1
        line = self.text[start:].partition("\n")[0]
        column = self.position - start
        left = max(0, column - 60)
        return (
            f"cannot understand the filter at character {self.position + 1}: {self.reason}\n"
            f"  {line[left : left + 120]}\n  {' ' * (column - left)}^"
        )


class UnknownPayload(InvalidInput):
    """A payload carries a version that has no decoder here; nothing was decoded."""

    def __init__(self, version: int | None, known: list[int]) -> None:
        super().__init__(version, known)
        self.version, self.known = version, known

    def __str__(self) -> str:
        what = "has no version" if self.version is None else f"has version {self.version}"
        known = ", ".join(map(str, self.known)) or "none"
        return (
            f"a payload {what}, and the registered versions are: {known}. Nothing was decoded. "
            "Register a decoder for it, or update the program that reads."
        )


class TooManyWindows(InvalidInput):
    """One append would touch more time windows than a commit may."""

    def __init__(self, windows: int, limit: int, earliest_ms: int, latest_ms: int) -> None:
        super().__init__(windows, limit, earliest_ms, latest_ms)
        self.windows, self.limit = windows, limit
        self.earliest_ms, self.latest_ms = earliest_ms, latest_ms

    def __str__(self) -> str:
        return (
            f"the rows fall into {self.windows} time windows and one commit may touch "
            f"{self.limit}: the earliest row is at {self.earliest_ms} ms, the latest at "
            f"{self.latest_ms} ms. Nothing was written. Check for wrong timestamps, or append "
            "the rows in several batches ordered by time."
        )


class LateRows(InvalidInput):
    """Rows older than the retention floor, in a table that refuses them."""

    def __init__(self, rows: int, floor_ms: int) -> None:
        super().__init__(rows, floor_ms)
        self.rows, self.floor_ms = rows, floor_ms

    def __str__(self) -> str:
        return (
            f"{self.rows} rows are older than the retention floor {self.floor_ms} ms and the table "
            "has on_late='error'. Nothing was written. Remove these rows, or set on_late='drop'."
        )


class ImplausibleExpiry(InvalidInput):
    """A run of expire would hide more of the table than it may."""

    def __init__(self, share: float, allowed: float, skew_ms: int) -> None:
        super().__init__(share, allowed, skew_ms)
        self.share, self.allowed, self.skew_ms = share, allowed, skew_ms

    def __str__(self) -> str:
        return (
            f"expire would hide {self.share:.1%} of the rows, and {self.allowed:.1%} is allowed; "
            f"the store's clock and this machine's differ by {self.skew_ms / 1000:.0f} s. Nothing "
            "was changed. Check both clocks, or pass now= or force=True."
        )


class BeyondTail(InvalidInput):
    """A read was to begin behind the last row."""

    def __init__(self, seq: int, tail_seq: int) -> None:
        super().__init__(seq, tail_seq)
        self.seq, self.tail_seq = seq, tail_seq

    def __str__(self) -> str:
        return (
            f"there is no row {self.seq}: the next row to be appended gets number {self.tail_seq}. "
            "Nothing was read. Read from there, or follow the table."
        )


# --- where the table is ----------------------------------------------------------------------


class TableNotFound(StrandlineError):
    """No table is stored at this place."""


class TableExists(StrandlineError):
    """A table is stored at this place already."""


class NamespaceNotFound(StrandlineError):
    """The catalog has no namespace of this name."""


class VersionNotFound(StrandlineError):
    """The table exists but does not keep the version that was asked for."""


class ReadOnlyTable(StrandlineError):
    """A handle pinned to a version was asked to write."""


# --- the store -------------------------------------------------------------------------------


class UnsupportedStore(StrandlineError):
    """The URL names a store without the atomic create that a commit needs."""


class StorageFailed(StrandlineError):
    """The store refused or failed an operation; it did not happen."""


class ObjectMissing(StorageFailed):
    """The store answered that the object does not exist (and only that)."""


class AccessDenied(StorageFailed):
    """The store refused the credentials or the permission."""


class StoreBusy(StorageFailed):
    """The store asks to try again later; the operation did not happen."""


class OutcomeUnclear(StorageFailed):
    """The reply was lost: the operation may or may not have happened."""


# --- the bytes -------------------------------------------------------------------------------


class CorruptTable(StrandlineError):
    """Stored bytes contradict the specification, a size or a checksum."""


class MissingFile(CorruptTable):
    """A file that the manifest lists is not in the store."""


class UnsupportedFormat(StrandlineError):
    """The table needs a format version or a feature that this library does not know."""


# --- the commit ------------------------------------------------------------------------------


class CommitConflict(StrandlineError):
    """The table has changed so that this commit cannot be applied; nothing was changed."""


class TableDropped(CommitConflict):
    """The table was dropped: nobody reads or writes it until it is brought back."""

    def __init__(self, dropped_at: int) -> None:
        super().__init__(dropped_at)
        self.dropped_at = dropped_at

    def __str__(self) -> str:
        return (
            f"the table was dropped at {self.dropped_at} ms. Nothing was changed; its rows are "
            "kept until it is purged. Bring it back with undrop_table, or create another one."
        )


class SeqMismatch(CommitConflict):
    """`match_seq` did not equal the table's next sequence number."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(expected, actual)
        self.expected, self.actual = expected, actual

    def __str__(self) -> str:
        return (
            f"match_seq={self.expected}, but the next sequence number is {self.actual}. "
            "Nothing was changed. Read the table from there and decide again."
        )


class Fenced(CommitConflict):
    """The table carries another fencing token than the one given."""

    def __init__(self) -> None:
        # The token itself stays out of the message: it is what keeps other writers out.
        super().__init__()

    def __str__(self) -> str:
        return (
            "the table is fenced with another token: a newer writer has taken over. Nothing was "
            "changed. Stop this writer, or take over with a token of your own."
        )


class WriterFenced(CommitConflict):
    """Another process has opened this writer id with a log of its own."""

    def __init__(self, writer_id: str) -> None:
        super().__init__(writer_id)
        self.writer_id = writer_id

    def __str__(self) -> str:
        return (
            f"another process has opened writer {self.writer_id!r} and writes in its place. "
            "Nothing was changed; rows that this writer acknowledged and did not commit are still "
            "in its log. Stop this writer, or give it a writer_id of its own, then recover its log."
        )


class WriterPositionLost(CommitConflict):
    """A write-ahead log goes on after a position that the table no longer knows."""

    def __init__(self, writer_id: str, first_record: int) -> None:
        super().__init__(writer_id, first_record)
        self.writer_id, self.first_record = writer_id, first_record

    def __str__(self) -> str:
        return (
            f"writer {self.writer_id!r} continues at record {self.first_record}, but the table "
            "keeps no position for it (idle for longer than writer_retention, or another table). "
            "Nothing was changed. Replaying blindly could double rows: look which rows arrived, "
            "then recover with committed_up_to, the newest record that did "
            f"({self.first_record - 1}: none of these)."
        )


class WriterPositionConflict(CommitConflict):
    """A write-ahead log's records do not follow the position that the table stores."""

    def __init__(self, writer_id: str, stored: int, first_record: int, last_record: int) -> None:
        super().__init__(writer_id, stored, first_record, last_record)
        self.writer_id, self.stored = writer_id, stored
        self.first_record, self.last_record = first_record, last_record

    def __str__(self) -> str:
        return (
            f"writer {self.writer_id!r} offers records {self.first_record} to {self.last_record}, "
            f"but its stored position is {self.stored}. Nothing was changed. Cut what is committed "
            "and replay from the record after the stored position."
        )


class CommitTimeout(StrandlineError):
    """Other writers or a busy store kept a commit from landing in time; nothing was changed."""


class CommitStateUnknown(StrandlineError):
    """The store did not say whether the commit landed; nothing was deleted."""

    def __init__(self, table: str, version: int, commit_id: str) -> None:
        super().__init__(table, version, commit_id)
        self.table, self.version, self.commit_id = table, version, commit_id

    def __str__(self) -> str:
        return (
            f"the store did not say whether version {self.version} of {self.table} was written "
            f"(commit {self.commit_id}). The rows are in the table exactly once or not at all, and "
            "nothing was deleted. Look for the commit id in history(), or append again with the "
            "same writer_id and batch, which is safe."
        )


# --- the writer and its log ------------------------------------------------------------------


class DamagedLog(StrandlineError):
    """A write-ahead log holds bytes that its writer did not leave; nothing was replayed."""


class LogInUse(StrandlineError):
    """Another process holds this write-ahead log."""


class LogFailed(StrandlineError):
    """The write-ahead log could not be written or synced; the append was not acknowledged."""


class WriterClosed(StrandlineError):
    """The writer was closed, or has failed for good; nothing was taken."""


class WriterBusy(StrandlineError):
    """The writer's memory was full for longer than the caller wanted to wait; nothing was taken."""
