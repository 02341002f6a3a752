"""The thread that commits sealed memtables, in order, and does not give up on a store.

While one memtable is being committed, the next one's files are already encoded and uploaded.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import (
    CommitStateUnknown,
    CommitTimeout,
    LogFailed,
    StorageFailed,
    StrandlineError,
    WriterClosed,
)
from strandline.tableformat.stores.background import Background
from strandline.writers.committing import Run, runs_of
from strandline.writers.tuning import LOW, Tuning

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from strandline.writers.append import AppendChange
    from strandline.writers.buffers import Buffers
    from strandline.writers.committing import Committer
    from strandline.writers.log import Log
    from strandline.writers.memtable import Memtable

LOG: Final = logging.getLogger("strandline.writer")
_PASSING: Final = (StorageFailed, CommitTimeout, CommitStateUnknown)
"""Errors after which the same rows are tried again; the record numbers keep that safe."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0

_Prepared = tuple[list[Run], "Future[AppendChange]"]


class Flusher:
    """Takes memtables from the buffers and commits them."""

    def __init__(self, buffers: Buffers, committer: Committer, log: Log | None) -> None:
        self._buffers, self._committer, self._log = buffers, committer, log
        self._ahead: dict[int, _Prepared] = {}
        self._encoding = Background(1, "strandline-encode")
        self.abandoned = threading.Event()
        """Set when the writer was closed and nobody waits for its commits any more."""
        self.busy = False
        self.last_error: StrandlineError | None = None
        """What went wrong at the latest try; None once a try has succeeded."""
        self.commits = self.retries = self.rows = self.degraded = 0
        self.tuning = Tuning()
        self.tell: Callable[[float | None], None] = lambda _: None
        """Called after each flush with the seconds it took; with None after one that failed."""
        self.thread = threading.Thread(target=self._run, name="strandline-flush", daemon=True)

    def _run(self) -> None:
        try:
            while self.step():
                pass
        except StrandlineError as error:
            self._stop(error)
        except BaseException as error:
            self._stop(StrandlineError(f"the writer's flush failed unexpectedly: {error!r}"))
            raise
        finally:
            self.busy = False
            self._encoding.end()
            self._close_log()

    def step(self) -> bool:
        """Commit the next memtable, waiting for one; False when there is nothing more to do."""
        memtable = self._buffers.next_to_commit()
        if memtable is None:
            return False
        self.busy = True
        return self._flush(memtable)

    def _stop(self, error: StrandlineError) -> None:
        LOG.error("the writer stops: %s", error)
        self.last_error = error
        self._buffers.stop(error)

    def _close_log(self) -> None:
        if self._log is not None:
            try:
                finished = self._buffers.failed is None and not self._buffers.uncommitted()
                self._log.close(finished=finished)
            except LogFailed as error:
                LOG.warning("%s", error)

    def _flush(self, memtable: Memtable) -> bool:
        """Commit one memtable, however long that takes; False if nobody waits any more."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                self._commit(memtable)
            except _PASSING as error:
                self.last_error = error
                self.retries += 1
                LOG.warning("a flush will be tried again in %.1f s: %s", pause_s, error)
                self.tell(None)
                if self.abandoned.wait(pause_s):
                    self._buffers.stop(_closed_before_commit(error))
                    return False
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            else:
                break
        # Before the rows count as committed: whoever waited for them finds the writer in sync.
        self.last_error, self.busy = None, False
        self.degraded += self.tuning.degraded
        took_s = time.monotonic() - began
        with self._buffers.changed:
            depth, left = self._buffers.depth, self._buffers.depth_without(memtable)
        self.tuning = self.tuning.after_flush(depth, left)
        self._buffers.committed(memtable, self.tuning.batch_factor)
        self.tell(took_s)
        self._prune(memtable.last_record)
        # Nobody waits for these rows any more; those that wait for the next commit come first.
        self._committer.tidy_up(in_haste=left >= LOW)
        return True

    def _commit(self, memtable: Memtable) -> None:
        ahead = self._ahead.pop(memtable.first_record, None)
        runs, future = ahead if ahead is not None else self._prepare(memtable)
        change = future.result()
        self._prepare_next()
        for run in runs:
            if run is not runs[0]:
                self._committer.tidy_up(in_haste=True)  # or one manifest would list them all
                change = self._encode(run, memtable)
            memtable.place(run.first_index, self._committer.commit(run, change))
            self.commits += 1
            self.rows += run.rows.num_rows

    def _prepare(self, memtable: Memtable) -> _Prepared:
        runs = runs_of(memtable, self._committer.place.head.manifest.config)
        return runs, self._encoding.submit(self._encode, runs[0], memtable)

    def _encode(self, run: Run, memtable: Memtable) -> AppendChange:
        return self._committer.prepare(run, memtable.schema, in_haste=self.tuning.degraded)

    def _prepare_next(self) -> None:
        """Work ahead on the memtable behind the oldest one, if there is one."""
        if self._committer.place.head.manifest.config.order == "clamp":
            return  # its rows are raised to the tail that this commit moves
        with self._buffers.changed:
            waiting = list(self._buffers.passive)[1:2]
        for following in waiting:
            if following.first_record not in self._ahead:
                self._ahead[following.first_record] = self._prepare(following)

    def _prune(self, record: int) -> None:
        if self._log is None:
            return
        try:
            self._log.prune(record)
        except LogFailed as error:
            # The rows are in the table; opening the log again removes what is left of it.
            LOG.warning("%s", error)


def _closed_before_commit(error: StrandlineError) -> WriterClosed:
    return WriterClosed(
        f"the writer was closed before these rows could be committed ({error}). They are in its "
        "log, if it had one, and the next writer of this id commits them."
    )
