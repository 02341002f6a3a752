"""Following a table: rows as they are committed, in order, none left out and none twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    import pyarrow as pa

    from strandline.readers.scan import Scan


class Follow:
    """An endless iterator of Arrow batches; `stop()` from any thread ends it.

    The place is kept as a sequence number, which compaction and expiry do not change: rows that
    have expired meanwhile are gone, all others come once.
    """

    def __init__(
        self,
        tail_seq: Callable[[], int],
        scan_between: Callable[[int, int], Scan],
        *,
        start_seq: int,
        poll_s: float,
    ) -> None:
        """`tail_seq` looks for a newer version; `scan_between` reads that version, or later."""
        self._tail_seq, self._scan_between = tail_seq, scan_between
        self._poll_s = poll_s
        self._stopped = threading.Event()
        self._batches = self._follow(start_seq)
        self.next_seq = start_seq
        """Where a new follower would go on after the batches that were given so far."""

    def _follow(self, position: int) -> Iterator[pa.RecordBatch]:
        while not self._stopped.is_set():
            tail = self._tail_seq()
            if tail <= position:
                self._stopped.wait(self._poll_s)
                continue
            for batch in self._scan_between(position, tail).to_batches():
                if self._stopped.is_set():
                    return
                if batch.num_rows:
                    self.next_seq = int(batch.column(batch.num_columns - 1)[-1].as_py()) + 1
                    yield batch.slice(0).remove_column(batch.num_columns - 1)
            self.next_seq = position = tail

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def stop(self) -> None:
        """End the iteration, also one that waits for rows in another thread."""
        self._stopped.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
