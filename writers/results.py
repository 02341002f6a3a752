"""What an append was given."""

from __future__ import annotations

from dataclasses import dataclass


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
