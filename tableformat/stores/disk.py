"""The system calls that a local table is made of, small enough to put a fake disk underneath."""

# ruff: noqa: PTH102, PTH106, PTH108, PTH116, PTH123
# Plain system calls, one per method: pathlib would hide how many there are.

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_MAX_CALL = 1 << 30
"""Linux moves at most 2 GiB per call."""
_LARGE = 1 << 24


class Disk(Protocol):
    """What `LocalStorage` asks of a disk. Every method raises OSError as the system would."""

    def open_new(self, path: str) -> int: ...
    def open_append(self, path: str) -> int: ...
    def hold(self, fd: int) -> None: ...
    def release(self, fd: int) -> None: ...
    def state(self, fd: int) -> tuple[int, int]: ...
    def read_at(self, fd: int, start: int, length: int) -> bytes: ...
    def read_shared(self, path: str) -> bytes: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def write(self, fd: int, data: memoryview) -> None: ...
    def fsync(self, fd: int) -> None: ...
    def close(self, fd: int) -> None: ...
    def fsync_dir(self, path: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def rename_noreplace(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def read(self, path: str) -> bytes: ...
    def read_spans(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def scan(self, path: str) -> list[tuple[str, bool]]: ...
    def try_lock(self, path: str, pauses: Iterable[float] = ()) -> int | None: ...
    def unlock(self, fd: int) -> None: ...


class OsDisk:
    """The real disk."""

    def __reduce__(self) -> tuple[type[OsDisk], tuple[()]]:
        return OsDisk, ()

    def open_new(self, path: str) -> int:
        """Open a file that did not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open_append(self, path: str) -> int:
        """Open a file whose end moves with every write, made if it did not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def hold(self, fd: int) -> None:
        """Wait for a file's lock, for oneself alone."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def release(self, fd: int) -> None:
        """Give a file's lock back and keep the file open."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def state(self, fd: int) -> tuple[int, int]:
        """Return an open file's length, and how many names it has."""
        found = os.fstat(fd)
        return found.st_size, found.st_nlink

    def read_at(self, fd: int, start: int, length: int) -> bytes:
        """Return a piece of an open file, short where the file ends."""
        return _pread(fd, start, length)

    def read_shared(self, path: str) -> bytes:
        """Return the whole file as it is between two writes of those who hold its lock."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            fcntl.flock(fd, fcntl.LOCK_SH)
            return file.readall()

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file."""
        os.ftruncate(fd, size)

    def write(self, fd: int, data: memoryview) -> None:
        """Write all bytes."""
        while data:
            data = data[os.write(fd, data[:_MAX_CALL]) :]

    def fsync(self, fd: int) -> None:
        """Return once the file's bytes are on the medium."""
        if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's cache
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close the file."""
        os.close(fd)

    def fsync_dir(self, path: str) -> None:
        """Return once the names in the folder are on the medium."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, unless that name exists."""
        os.link(source, target)

    def rename_noreplace(self, source: str, target: str) -> None:
        """Move a file to a name that does not exist; ENOSYS where the system cannot."""
        renameat2 = _renameat2()
        if renameat2 is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
        names = os.fsencode(source), os.fsencode(target)
        if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        os.mkdir(path, 0o777)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            return file.readall()

    def read_spans(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return (start, length) pieces of one file; a piece is short where the file ends."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return [_pread(fd, start, length) for start, length in spans]
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        """Return a file's length; EISDIR for a folder."""
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return found.st_size

    def modified_ms(self, path: str) -> int:
        """Return when a file was written last."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def scan(self, path: str) -> list[tuple[str, bool]]:
        """Return (name, is a folder) for what a folder holds."""
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def try_lock(self, path: str, pauses: Iterable[float] = ()) -> int | None:
        """Take a folder's advisory lock if it is free, or is after a pause.

        The answer unlocks it; None once there are no more pauses.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for pause_s in chain((0.0,), pauses):
                if pause_s:
                    time.sleep(pause_s)
                with suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def unlock(self, fd: int) -> None:
        """Give the lock back, also for a forked child that inherited the descriptor."""
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)


def _pread(fd: int, start: int, length: int) -> bytes:
    if length > _LARGE:
        # The system call reserves what it is asked for, and metadata may ask for anything.
        length = min(length, max(0, os.fstat(fd).st_size - start))
    first = os.pread(fd, min(length, _MAX_CALL), start)
    if len(first) in {length, 0}:
        return first
    parts, got = [first], len(first)
    while got < length and (part := os.pread(fd, min(length - got, _MAX_CALL), start + got)):
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def _renameat2() -> Any:
    """Return the C library's renameat2, or None where it has none."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call
