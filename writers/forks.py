"""A writer belongs to the process that opened it.

A forked child has a copy of the writer's memory and of its open log, and none of its threads. If it
appended, its records would stand in the parent's log under numbers that the parent uses too, and
nobody could read that log again. So the child's copy lets go of everything and refuses.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from strandline.tableformat.errors import WriterClosed

if TYPE_CHECKING:
    from strandline.tableformat.errors import StrandlineError


class Owned(Protocol):
    """What only the process that opened it may use."""

    def disown(self, error: StrandlineError) -> None:
        """In a child, where no other thread runs: let go without a word to the outside."""


_OPEN: Final[WeakSet[Owned]] = WeakSet()


def disown_in_children(owned: Owned) -> None:
    """See to it that a forked child does not use this."""
    _OPEN.add(owned)


def _after_fork() -> None:
    error = WriterClosed(
        "this writer was opened before the process was forked; it belongs to the parent process, "
        "which goes on with it. Nothing was taken. Open a writer in this process, with a writer_id "
        "and a log of its own."
    )
    for owned in list(_OPEN):
        owned.disown(error)


os.register_at_fork(after_in_child=_after_fork)
