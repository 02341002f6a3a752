"""A file that several processes add to, none of which can spoil what another wrote.

Everybody takes the file's lock, looks at what was added since, cuts what a killed process left
unfinished, and only then writes. Readers take the lock too, shared, so that they never see a cut
end grow into something else halfway through.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.errors import StorageFailed
    from strandline.tableformat.storage import AppendFile


class AppendDisk(Protocol):
    """The system calls that appending needs."""

    def open_append(self, path: str) -> int: ...
    def hold(self, fd: int) -> None: ...
    def release(self, fd: int) -> None: ...
    def state(self, fd: int) -> tuple[int, int]: ...
    def read_at(self, fd: int, start: int, length: int) -> bytes: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def write(self, fd: int, data: memoryview) -> None: ...
    def close(self, fd: int) -> None: ...


class LocalAppendFile:
    """One open file; not for two threads at once."""

    def __init__(
        self,
        disk: AppendDisk,
        reopen: Callable[[], int],
        failure: Callable[[OSError], StorageFailed],
    ) -> None:
        """Open the file; `failure` words what the disk says."""
        self._disk, self._reopen, self._failure = disk, reopen, failure
        self._fd = reopen()
        self._end = 0
        """How far this process knows the file to be sound."""
        self._maybe_written: bytes | None = None
        """What a failed write may have left behind as a whole."""

    def append(self, data: bytes, sound_bytes: Callable[[bytes], int]) -> None:
        """Add bytes behind the last sound ones; `StorageFailed` means that nothing was added."""
        try:
            self._append(data, sound_bytes)
        except OSError as error:
            raise self._failure(error) from None

    def _append(self, data: bytes, sound_bytes: Callable[[bytes], int]) -> None:
        disk = self._disk
        disk.hold(self._fd)
        try:
            if disk.state(self._fd)[1] == 0:  # removed meanwhile: what is added would be lost
                self._open_again()
            if self._find_end(data, sound_bytes):
                return
            self._maybe_written = data
            try:
                disk.write(self._fd, memoryview(data))
            except OSError:
                with suppress(OSError):
                    disk.truncate(self._fd, self._end)
                    self._maybe_written = None
                raise
            self._maybe_written = None
            self._end += len(data)
        finally:
            disk.release(self._fd)

    def _open_again(self) -> None:
        self._disk.release(self._fd)
        old, self._fd = self._fd, self._reopen()
        self._disk.close(old)
        self._end, self._maybe_written = 0, None
        self._disk.hold(self._fd)

    def _find_end(self, data: bytes, sound_bytes: Callable[[bytes], int]) -> bool:
        """Learn what others added, and cut what is unfinished. True: the data is there already."""
        size, _ = self._disk.state(self._fd)
        if size < self._end:
            self._end = 0
        if size == self._end:
            return False
        added = self._disk.read_at(self._fd, self._end, size - self._end)
        was_written = self._maybe_written == data and added.startswith(data)
        end = self._end + sound_bytes(added)
        if end < size:
            self._disk.truncate(self._fd, end)
        self._end, self._maybe_written = end, None
        return was_written

    def close(self) -> None:
        """Let go of the file."""
        with suppress(OSError):  # every append was complete when it returned
            self._disk.close(self._fd)


if TYPE_CHECKING:

    def _fits(file: LocalAppendFile) -> AppendFile:
        return file
