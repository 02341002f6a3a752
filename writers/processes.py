"""What becomes of open writers when their process forks or ends.

A forked child has a copy of a writer's memory and of its open log, and none of its threads. If it
appended, its records would stand in the parent's log under numbers that the parent uses too, and
nobody could read that log again. So the child's copy lets go of everything and refuses.

A program that ends in the ordinary way has its writers closed. That happens while Python still
starts threads: a store's library needs them for new connections, and `atexit`, which `logging`
closes its handlers by, comes too late.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from strandline.tableformat.errors import WriterClosed

if TYPE_CHECKING:
    from strandline.tableformat.errors import StrandlineError


class Owned(Protocol):
    """What belongs to the process that opened it."""

    def disown(self, error: StrandlineError) -> None:
        """In a child, where no other thread runs: let go without a word to the outside."""

    def close(self) -> Any:
        """The process ends."""


_OPEN: Final[WeakSet[Owned]] = WeakSet()


def look_after(owned: Owned) -> None:
    """Have this disowned in forked children, and closed when the program ends."""
    _OPEN.add(owned)


def _after_fork() -> None:
    error = WriterClosed(
        "this writer was opened before the process was forked; it belongs to the parent process, "
        "which goes on with it. Nothing was taken. Open a writer in this process, with a writer_id "
        "and a log of its own."
    )
    for owned in list(_OPEN):
        owned.disown(error)


def _at_exit() -> None:
    for owned in list(_OPEN):
        owned.close()


os.register_at_fork(after_in_child=_after_fork)
# Python's own executors end themselves by this call, which has no public name; where it is gone,
# rows of writers that nobody closed wait in their logs for the next start.
getattr(threading, "_register_atexit", lambda _: None)(_at_exit)
