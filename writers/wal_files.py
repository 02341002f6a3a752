"""A write-ahead log in a folder of this machine.

Records are appended to one file at a time; a file is finished when the memtable it belongs to is.
Nothing is ever overwritten or cut: after a failed write the next record goes to a new file.
"""

# ruff: noqa: PTH118
# Plain names and system calls: pathlib would cost more than the write itself.

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import LogFailed, LogInUse
from strandline.tableformat.stores.disk import OsDisk
from strandline.writers.log import SUFFIX, LogOptions

if TYPE_CHECKING:
    from strandline.tableformat.stores.disk import Disk
    from strandline.writers.wal_frames import LogHeader

_NO_FILE: Final = -1


class PrivateDisk(OsDisk):
    """Files that only their owner can read: a log holds rows in the clear."""

    def open_new(self, path: str) -> int:
        """Open a file that did not exist."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        os.mkdir(path, 0o700)  # noqa: PTH102

    def write(self, fd: int, data: memoryview | bytes) -> None:
        """Write all bytes; mostly one call does."""
        written = os.write(fd, data)
        if written != len(data):
            super().write(fd, memoryview(data)[written:])


class LogFolder:
    """A folder with log files, held by one process at a time."""

    def __init__(self, path: str, disk: Disk | None = None) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - Path would follow symbolic links
        self.disk: Disk = PrivateDisk() if disk is None else disk
        try:
            self._make(self.path)
            lock = self.disk.try_lock(self.path)
        except OSError as error:
            raise LogFailed(
                f"the folder {self.path} for the write-ahead log cannot be used: {error}"
            ) from None
        if lock is None:
            raise LogInUse(
                f"the log in {self.path} is held by another writer, of this process or of another "
                "process. Two would mix their records. Close the other one, or give each its own "
                "writer_id (or wal folder)."
            )
        self._lock = lock
        self.where = self.path

    def _make(self, path: str) -> None:
        with suppress(FileExistsError):
            try:
                self.disk.mkdir(path)
            except FileNotFoundError:
                self._make(os.path.dirname(path))  # noqa: PTH120
                self.disk.mkdir(path)
            self.disk.fsync_dir(os.path.dirname(path))  # noqa: PTH120

    def names(self) -> list[str]:
        """The log files, in order."""
        try:
            return sorted(
                n for n, is_dir in self.disk.scan(self.path) if n.endswith(SUFFIX) and not is_dir
            )
        except OSError as error:
            raise LogFailed(f"the folder {self.path} cannot be read: {error}") from None

    def read(self, name: str) -> bytes:
        """One file."""
        try:
            return self.disk.read(os.path.join(self.path, name))
        except OSError as error:
            raise LogFailed(f"{os.path.join(self.path, name)} cannot be read: {error}") from None

    def remove(self, names: list[str]) -> None:
        """Remove files, oldest first, so that what a crash leaves behind has no gap."""
        try:
            for name in names:
                self.disk.unlink(os.path.join(self.path, name))
        except OSError as error:
            raise LogFailed(f"a log file in {self.path} cannot be removed: {error}") from None

    def release(self) -> None:
        """Let another process in."""
        lock, self._lock = self._lock, _NO_FILE
        if lock != _NO_FILE:
            with suppress(OSError):
                self.disk.unlock(lock)

    def disown(self) -> None:
        """Close a forked child's copy of the lock; the parent's stays, and ends with the parent."""
        # A number that was closed already may mean something else by now.
        lock, self._lock = self._lock, _NO_FILE
        if lock != _NO_FILE:
            with suppress(OSError):
                self.disk.close(lock)


class FileLog:
    """The log of one incarnation of a writer."""

    def __init__(self, folder: LogFolder, options: LogOptions) -> None:
        self._folder, self._options, self._disk = folder, options, folder.disk
        self.where = folder.where
        self.must_sync = options.fsync
        self._fd = _NO_FILE
        self._file_number = 0
        self._files: list[tuple[str, int]] = []
        """Finished files and the current one, each with its first record."""
        self._header: LogHeader | None = None
        self._buffer = bytearray()
        self._gathers = options.gathers
        self._taken = 0
        """The newest record that was handed to us; `_written` and `_synced` follow it."""
        self._written = 0
        self._synced = 0
        self._syncing = False
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._failed: OSError | None = None
        self._torn = False
        self._bytes = self._syncs = 0

    # --- files ---

    def begin(self, header: LogHeader) -> None:
        if self._failed is not None:
            raise self._stopped(self._failed)
        self.flush()
        if self._fd != _NO_FILE:
            self._finish_file()
        self._open_file(header)
        # Not before: if the file could not be made, records go on under the header they fit.
        self._header = header
        self._taken = self._written = header.first_record - 1

    def _open_file(self, header: LogHeader) -> None:
        self._torn = True
        self._file_number += 1
        name = f"{header.incarnation}-{self._file_number:08d}{SUFFIX}"
        try:
            self._fd = self._disk.open_new(os.path.join(self._folder.path, name))
            self._files.append((name, header.first_record))
            self._disk.write(self._fd, memoryview(header.encode()))
            if self._options.fsync:
                self._disk.fsync(self._fd)
                self._disk.fsync_dir(self._folder.path)
        except OSError as error:
            raise self._failure("opened", error) from None
        self._torn = False

    def _finish_file(self) -> None:
        """Sync what must survive a power cut, then close. Before a torn record all is sound."""
        with self._lock:
            self._turn.wait_for(lambda: not self._syncing)
            self._torn = True  # nothing can be written until a new file is open
            fd, self._fd = self._fd, _NO_FILE
            try:
                try:
                    if self._options.fsync and self._failed is None:
                        self._disk.fsync(fd)
                        self._synced = self._written
                finally:
                    self._disk.close(fd)
            except OSError as error:
                self._failed = self._failed or error
                raise self._stopped(error) from None

    def _failure(self, what: str, error: OSError) -> LogFailed:
        return LogFailed(
            f"the write-ahead log in {self.where} could not be {what}: {error.strerror or error}. "
            "The rows were not acknowledged; free space or repair the disk, then send them again."
        )

    def _stopped(self, error: OSError) -> LogFailed:
        """After a failed sync the system may have dropped what it could not write."""
        return LogFailed(
            f"the write-ahead log in {self.where} could not be synced: {error.strerror or error}. "
            "It takes no more records. What was not acknowledged may be committed all the same: "
            "close the writer, open a new one, and look before you send rows again."
        )

    # --- records ---

    def write(self, frame: bytes, record: int) -> None:
        if record <= self._taken:
            self._repeat(record)
        if self._gathers:
            # First make room: a frame that was refused must not be written later.
            if len(self._buffer) + len(frame) > self._options.buffer_size:
                self.flush()
            self._buffer += frame
        else:
            self._put(frame, record)
        self._taken = record

    def _put(self, data: bytes | bytearray, record: int) -> None:
        if self._torn or self._failed is not None:
            self._go_on_in_a_new_file()
        self._torn = True  # until we know better; a signal may break this off, too
        try:
            self._disk.write(self._fd, data)  # type: ignore[arg-type] # bytes do as well
        except OSError as error:
            raise self._failure("written", error) from None
        self._written = record
        self._torn = False
        self._bytes += len(data)

    def _repeat(self, record: int) -> None:
        """An append was broken off between its log and its memtable: its number is free again.

        A new file that begins with the number makes readers ignore what the old one has.
        """
        self.flush()
        self._taken = self._written = record - 1
        self._synced = min(self._synced, record - 1)
        self._torn = True

    def _go_on_in_a_new_file(self) -> None:
        """Behind a torn record nothing could be read again; a new file begins cleanly."""
        if self._failed is not None:
            raise self._stopped(self._failed)
        if self._fd != _NO_FILE:
            self._finish_file()
        assert self._header is not None
        self._open_file(replace(self._header, first_record=self._written + 1))

    def flush(self) -> None:
        if self._buffer:
            self._put(self._buffer, self._taken)
            self._buffer = bytearray()

    def sync_until(self, record: int) -> None:
        """Return once the record is durable. Whoever comes first syncs for all who wait."""
        every = self._options.fsync_every_n
        if not self._options.fsync or (every > 1 and record % every):
            return
        while self._synced < record:
            self._sync_or_wait(record)

    def _sync_or_wait(self, record: int) -> None:
        ours, failed = False, None
        try:
            with self._lock:
                if self._failed is not None:
                    raise self._stopped(self._failed)
                if self._syncing or self._synced >= record:
                    self._turn.wait_for(lambda: not self._syncing)
                    return
                self._syncing = ours = True
                fd, reached = self._fd, self._written
            self._disk.fsync(fd)
        except OSError as error:
            failed = error
        else:
            self._synced = max(self._synced, reached)
            self._syncs += 1
        finally:
            # Also when a signal breaks in: those who wait would wait for ever.
            if ours:
                with self._lock:
                    self._failed = self._failed or failed
                    self._syncing = False
                    self._turn.notify_all()

    # --- leaving ---

    def prune(self, record: int) -> None:
        # Not under the writer's lock: this cuts the front of a list that `begin` adds to.
        starts = [first for _, first in self._files]
        # A file ends where the next one begins; the last one is still written to.
        done = sum(1 for following in starts[1:] if following - 1 <= record)
        names = [name for name, _ in self._files[:done]]
        del self._files[:done]
        self._folder.remove(names)

    def stats(self) -> dict[str, int]:
        return {"wal_bytes": self._bytes, "wal_syncs": self._syncs, "wal_files": len(self._files)}

    def close(self, *, finished: bool = False) -> None:
        try:
            if self._fd != _NO_FILE:
                if not self._torn and self._failed is None:
                    self.flush()
                self._finish_file()
            if finished:
                self._folder.remove([name for name, _ in self._files])
                self._files = []
        finally:
            self._folder.release()

    def disown(self) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._buffer = bytearray()
        fd, self._fd = self._fd, _NO_FILE
        if fd != _NO_FILE:
            with suppress(OSError):
                self._disk.close(fd)
        self._folder.disown()
