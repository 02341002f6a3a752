"""What an append was given."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from strandline.tableformat.actions import ExternalKey

if TYPE_CHECKING:
    from strandline.tableformat.actions import BatchKey
    from strandline.tableformat.manifest import Manifest, Position


@dataclass(frozen=True, slots=True)
class Commit:
    """The version of an append and the sequence numbers of its rows."""

    version: int
    first_seq: int
    last_seq: int
    rows: int
    duplicate: bool = False
    """True if the batch was in the table already and nothing was written."""
    dropped: int = 0
    """Rows older than the retention floor, which the table does not take any more."""
    superseded_by: int | None = None
    """The writer's newest batch number, if the one that was sent is below it.

    A table remembers the result of a writer's newest batch only. So nothing was written, `rows` is
    0, the sequence numbers are an empty range, and `version` is that of the newest batch.
    """


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did."""

    version: int
    rows: int
    """Rows that matched, and are gone from this version on; of a keyed table the keys, where the
    filter asked for more than the key."""
    segments_dropped: int = 0
    """Segments of which every row went, most of them unread."""
    segments_rewritten: int = 0

    def to_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def added_result(made: Manifest, rows: int = 0, dropped: int = 0) -> Commit:
    """What rows were given that the version `made` has put behind the tail."""
    first = made.next_seq - rows
    return Commit(made.version, first, made.next_seq - 1, rows, dropped=dropped)


def earlier_result(key: BatchKey | None, position: Position) -> Commit:
    """What a batch was given when it was committed first, as far as the table remembers it."""
    version, first = position.version, position.first_seq
    if isinstance(key, ExternalKey) and key.number < position.number:
        # The position is another batch's: its numbers would be a false answer to this one.
        return Commit(version, first, first - 1, 0, duplicate=True, superseded_by=position.number)
    return Commit(version, first, first + position.rows - 1, position.rows, duplicate=True)
