"""What an append was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Position


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


def earlier_result(position: Position) -> Commit:
    """What a batch was given when it was committed first."""
    last_seq = position.first_seq + position.rows - 1
    return Commit(position.version, position.first_seq, last_seq, position.rows, duplicate=True)
