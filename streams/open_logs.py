"""The logs that a process has open: small buffers, a bounded number, the coldest closed first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from strandline.streams.log_files import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.catalog.runtime import Runtime
    from strandline.streams.log_files import LogWriter
    from strandline.tableformat.storage import Storage

BUFFER_BYTES: Final = 64 * 1024
MAX_OPEN: Final = 256


class _OpenLog:
    """One log, with frames that wait in memory."""

    __slots__ = ("buffer", "unsent", "writer")

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self.buffer = bytearray()
        self.unsent = b""
        """Frames whose store failed: sent again as they were, so that they are not stored twice."""

    def flush(self) -> None:
        while self.unsent or self.buffer:
            if not self.unsent:
                self.unsent, self.buffer = bytes(self.buffer), bytearray()
            self.writer.write(self.unsent)
            self.unsent = b""

    @property
    def waiting(self) -> bytes:
        return self.unsent + bytes(self.buffer)


class OpenLogs:
    """Logs by path, the one used last at the end. Guarded by the lock of the table that owns it."""

    def __init__(self, storage: Storage, runtime: Runtime) -> None:
        self._storage, self._runtime = storage, runtime
        self._logs: OrderedDict[str, _OpenLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, path: str, frame: bytes) -> None:
        """Keep a frame for a log; a full buffer is stored."""
        log = self._logs.get(path)
        if log is None:
            log = self._open(path)
        else:
            self._logs.move_to_end(path)
        if len(log.buffer) + len(frame) > BUFFER_BYTES:
            log.flush()
        log.buffer += frame
        if len(log.buffer) >= BUFFER_BYTES:
            log.flush()

    def _open(self, path: str) -> _OpenLog:
        while len(self._logs) >= MAX_OPEN:
            coldest, log = next(iter(self._logs.items()))
            log.flush()  # if this fails, the log stays: its rows are nowhere else
            log.writer.close()
            del self._logs[coldest]
        log = self._logs[path] = _OpenLog(open_log(self._storage, self._runtime, path))
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
