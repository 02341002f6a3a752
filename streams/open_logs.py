"""The logs that a process has open: small buffers, a bounded number, the coldest closed first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from strandline.streams.log_files import open_log
from strandline.tableformat.stream_frames import JSON_ROWS, encode_frame_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.catalog.runtime import Runtime
    from strandline.streams.log_files import LogWriter
    from strandline.tableformat.storage import Storage

BUFFER_BYTES: Final = 64 * 1024
_TIME_BYTES: Final = 9
"""What a row takes beside its JSON: its time, and a comma."""
_ROOM_BYTES: Final = BUFFER_BYTES - 64
"""What rows may fill: the head of their frame has to fit as well."""
MAX_OPEN: Final = 256


class _OpenLog:
    """One log, with rows and frames that wait in memory.

    Producers put one row at a time, and a frame for each would cost more than the row itself. So
    rows wait as JSON until there is a reason to close their frame: the buffer is full, somebody
    flushes or reads, or a frame of another kind follows.
    """

    __slots__ = ("buffer", "rows", "rows_bytes", "schema_id", "times", "unsent", "writer")

    def __init__(self, writer: LogWriter, schema_id: int) -> None:
        self.writer, self.schema_id = writer, schema_id
        self.buffer = bytearray()
        self.rows: list[bytes] = []
        """Of each put its rows, as JSON without the brackets of the list."""
        self.times: list[int] = []
        self.rows_bytes = 0
        self.unsent = b""
        """Frames whose store failed: sent again as they were, so that they are not stored twice."""

    def seal(self) -> None:
        """Close the frame of the rows that wait."""
        if self.rows:
            payload = b"[" + b",".join(self.rows) + b"]"
            self.buffer += encode_frame_of(JSON_ROWS, self.schema_id, self.times, payload)
            self.rows, self.times, self.rows_bytes = [], [], 0

    def flush(self) -> None:
        self.seal()
        while self.unsent or self.buffer:
            if not self.unsent:
                self.unsent, self.buffer = bytes(self.buffer), bytearray()
            self.writer.write(self.unsent)
            self.unsent = b""

    @property
    def waiting(self) -> bytes:
        self.seal()
        return self.unsent + bytes(self.buffer)


class OpenLogs:
    """Logs by path, the one used last at the end. Guarded by the lock of the table that owns it."""

    def __init__(self, storage: Storage, runtime: Runtime, schema_id: int) -> None:
        self._storage, self._runtime, self._schema_id = storage, runtime, schema_id
        self._logs: OrderedDict[str, _OpenLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, path: str, frame: bytes) -> None:
        """Keep a frame for a log; a full buffer is stored."""
        log = self._used(path)
        log.seal()
        if len(log.buffer) + len(frame) > BUFFER_BYTES:
            log.flush()
        log.buffer += frame
        if len(log.buffer) >= BUFFER_BYTES:
            log.flush()

    def add_rows(self, path: str, times: list[int], rows: bytes) -> None:
        """Keep the rows of one put, as JSON without its brackets; they stay in one frame."""
        log = self._used(path)
        size = len(rows) + _TIME_BYTES * len(times)
        if len(log.buffer) + log.rows_bytes + size > _ROOM_BYTES:
            log.flush()
        log.rows.append(rows)
        log.times += times
        log.rows_bytes += size
        if log.rows_bytes >= _ROOM_BYTES:
            log.flush()

    def _used(self, path: str) -> _OpenLog:
        log = self._logs.get(path)
        if log is None:
            return self._open(path)
        self._logs.move_to_end(path)
        return log

    def _open(self, path: str) -> _OpenLog:
        while len(self._logs) >= MAX_OPEN:
            coldest, log = next(iter(self._logs.items()))
            log.flush()  # if this fails, the log stays: its rows are nowhere else
            log.writer.close()
            del self._logs[coldest]
        log = self._logs[path] = _OpenLog(
            open_log(self._storage, self._runtime, path), self._schema_id
        )
        return log

    def waiting(self, path: str) -> bytes:
        """Frames of a log that are not stored yet."""
        log = self._logs.get(path)
        return b"" if log is None else log.waiting

    def paths(self) -> list[str]:
        """The logs that are open."""
        return list(self._logs)

    def flush(self) -> None:
        """Store everything; all logs are tried before the first failure is told."""
        failed: Exception | None = None
        for log in self._logs.values():
            try:
                log.flush()
            except Exception as error:  # noqa: BLE001 - told below; the other logs come first
                failed = failed or error
        if failed is not None:
            raise failed

    def drop(self, is_dropped: Callable[[str], bool]) -> int:
        """Close logs without storing what waits: their window has expired."""
        paths = [path for path in self._logs if is_dropped(path)]
        for path in paths:
            self._logs.pop(path).writer.close()
        return len(paths)

    def close(self) -> None:
        """Store everything and let go of all files."""
        try:
            self.flush()
        finally:
            self.drop(lambda _: True)
