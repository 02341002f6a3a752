"""Following a table: rows as they are committed, in order, none left out and none twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from strandline.tableformat.errors import MissingFile

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
        shows_seq: bool,
    ) -> None:
        """`tail_seq` looks for a newer version; `scan_between` reads that version, or later.

        Its scans give `_seq`, which callers see only where `shows_seq`.
        """
        self._tail_seq, self._scan_between = tail_seq, scan_between
        self._poll_s, self._shows_seq = poll_s, shows_seq
        self._stopped = threading.Event()
        self.next_seq = start_seq
        """Where a new follower would go on after the batches that were given so far."""
        self._batches = self._follow()

    def _follow(self) -> Iterator[pa.RecordBatch]:
        while not self._stopped.is_set():
            tail = self._tail_seq()
            if tail <= self.next_seq:
                self._stopped.wait(self._poll_s)
                continue
            scan = self._scan_between(self.next_seq, tail)
            try:
                yield from self._given(scan)
            except MissingFile:
                # Compaction may have replaced the file, and vacuum removed it, while we read: a
                # newer version then lists the same rows elsewhere.
                if self._scan_between(self.next_seq, tail).version == scan.version:
                    raise
                continue
            if not self._stopped.is_set():
                self.next_seq = tail

    def _given(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        for batch in scan.to_batches():
            if self._stopped.is_set():
                return
            if batch.num_rows:
                self.next_seq = int(batch.column("_seq")[-1].as_py()) + 1
                place = batch.schema.get_field_index("_seq")
                yield batch if self._shows_seq else batch.remove_column(place)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException:
            # A generator ends with its first error; the place is kept, so another goes on there.
            self._batches = self._follow()
            raise

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
