"""Tables on a disk: durable by fsync, exclusive by a hard link.

A version's manifest is written to a temporary file, synced, and linked to its name. The link
decides who wins, and a crash leaves either the whole manifest or none: creating the name first
and writing afterwards would leave a torn version behind.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    UnsupportedStore,
)
from strandline.tableformat.random_names import random_hex
from strandline.tableformat.storage import (
    MANIFEST_FOLDER,
    AppendFile,
    Blobs,
    Names,
    PendingWrite,
    Put,
    Storage,
)
from strandline.tableformat.stores.append_file import LocalAppendFile
from strandline.tableformat.stores.background import Background, Pending, run_now
from strandline.tableformat.stores.disk import Disk, OsDisk
from strandline.tableformat.stores.ranges import LOCAL_MAX_GAP, LOCAL_MAX_SPAN
from strandline.tableformat.stores.urls import check_path, folder_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.tableformat.storage import Data
    from strandline.tableformat.stores.ranges import Span
    from strandline.tableformat.stores.urls import Place

Entries: TypeAlias = list[tuple[str, bool]]

TEMPORARY = ".tmp-"
"""How the names of unfinished files begin; `list` hides them."""

_NO_LINK = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_HINTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EMFILE: "this process has too many open files",
    errno.ENFILE: "the system has too many open files",
    errno.ENAMETOOLONG: "the name is too long for this disk",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENODEV: "no folder can be made there",
    errno.EISDIR: "the path names a folder, not a file",
    errno.EEXIST: "a file of this name exists already",
}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NOT_LINKED = {*_HINTS, *_DENIED, errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.ELOOP}
_NOT_LINKED -= {errno.ENODEV}
"""Refusals of a link. After any other error, on a network disk above all, the name may exist."""

# A data file, its folder and, in the caller's thread, the manifest are synced at the same time:
# a disk puts them into one flush. Folders have a pool of their own, so that nobody waits in a ring.
_SYNCS = Background(2, "strandline-fsync")
_FOLDER_SYNCS = Background(2, "strandline-folders")


def open_place(place: Place, options: dict[str, Any]) -> LocalStorage:
    """Open a path on this machine; no option means anything to it."""
    del options
    return LocalStorage(place.path)


class LocalStorage(Storage):
    """A table root on a disk of this machine, or one mounted like it."""

    is_local = True
    can_append = True
    max_gap, max_span = LOCAL_MAX_GAP, LOCAL_MAX_SPAN

    def __init__(
        self, root: str | os.PathLike[str], disk: Disk | None = None, *, background: bool = True
    ) -> None:
        """Take a root folder; `background=False` syncs in the calling thread, for tests."""
        self._root = os.path.abspath(root)  # noqa: PTH100 - Path would follow symbolic links
        self.url = self._root
        self._disk: Disk = OsDisk() if disk is None else disk
        self._background = background
        self._durable_folders: set[str] = set()
        self._unsynced_folders: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._root, self._disk, self._background)

    @property
    def probe_key(self) -> str:
        """Return the device: what holds for one of its folders holds for all."""
        folder = self._root
        while True:
            with suppress(OSError):
                return f"device {os.stat(folder).st_dev}"  # noqa: PTH116 - text is all we keep
            if folder == _parent(folder):
                return self.url
            folder = _parent(folder)

    # --- reading ---

    def read(self, path: str) -> bytes:
        try:
            return self._disk.read(self._full(path))
        except OSError as error:
            raise _failure(error, "read", path) from None

    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        by_path: dict[str, list[int]] = {}
        for index, span in enumerate(spans):
            by_path.setdefault(span.path, []).append(index)
        blobs = [b""] * len(spans)
        for path, indexes in by_path.items():
            wanted = [(spans[index].start, spans[index].length) for index in indexes]
            try:
                found = self._disk.read_spans(self._full(path), wanted)
            except OSError as error:
                raise _failure(error, "read", path) from None
            for index, blob in zip(indexes, found, strict=True):
                blobs[index] = blob
        return blobs

    def size(self, path: str) -> int:
        try:
            return self._disk.size(self._full(path))
        except OSError as error:
            raise _failure(error, "read", path) from None

    def modified_ms(self, path: str) -> int:
        try:
            return self._disk.modified_ms(self._full(path))
        except OSError as error:
            raise _failure(error, "read", path) from None

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        entries = self._scan(folder_path(prefix))
        names = (
            name
            for name, is_folder in entries
            if not is_folder and name > start_after and not name.startswith(TEMPORARY)
        )
        return sorted(names) if limit is None else heapq.nsmallest(limit, names)

    def folders(self, prefix: str) -> Iterator[str]:
        for name, is_folder in self._scan(folder_path(prefix)):
            if is_folder:
                yield name

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        folders = [folder_path(prefix)]
        while folders:
            folder = folders.pop()
            for name, is_folder in self._scan(folder):
                path = f"{folder}/{name}" if folder else name
                if is_folder:
                    folders.append(path)
                    continue
                with suppress(ObjectMissing):  # removed meanwhile
                    yield path, self.size(path)

    def _scan(self, folder: str) -> Entries:
        try:
            return self._disk.scan(self._full_folder(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failure(error, "list", folder or ".") from None

    # --- writing ---

    def write_new(self, path: str, data: Data) -> PendingWrite:
        full = self._full(path)
        run = _SYNCS.submit if self._background else run_now
        return Pending(path, run(self._write_durably, path, full, data))

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        full = self._full(path)
        folder = _parent(full)
        temporary = f"{folder}/{TEMPORARY}{random_hex(8)}"
        try:
            self._write_file(temporary, data)  # synced while the writes in `after` are, too
            self._make_durable(folder)
            for pending in after:
                pending.wait()
            outcome = self._publish(temporary, full)
        except OSError as error:
            raise _failure(error, "create", path) from None
        finally:
            # Also on success: the link gave the file its second, lasting name.
            with suppress(OSError):
                self._disk.unlink(temporary)
        if outcome is Put.CREATED or folder in self._unsynced_folders:
            self._sync_names(folder, path)
        return outcome

    def open_append(self, path: str) -> AppendFile:
        full = self._full(path)

        def reopen() -> int:
            return self._in_its_folder(full, self._disk.open_append)

        try:
            return LocalAppendFile(
                self._disk, reopen, lambda error: _failure(error, "add to", path)
            )
        except OSError as error:
            raise _failure(error, "open", path) from None

    def read_growing(self, path: str) -> bytes:
        try:
            return self._disk.read_shared(self._full(path))
        except OSError as error:
            raise _failure(error, "read", path) from None

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._disk.unlink(self._full(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failure(error, "delete", path) from None

    def remove_empty_folders(self, prefix: str) -> None:
        folder = folder_path(prefix)
        if not folder:
            return
        for name, is_folder in self._scan(folder):
            if is_folder:
                self.remove_empty_folders(f"{folder}/{name}")
        full = self._full_folder(folder)
        self._durable_folders.discard(full)
        with suppress(OSError):  # not empty, or gone
            self._disk.rmdir(full)

    # --- time and courtesy ---

    def clock_ms(self) -> int:
        return int(time.time() * 1000)

    @contextmanager
    def commit_lock(self, timeout_s: float = 1.0) -> Iterator[bool]:
        held = self._take_lock(timeout_s)
        try:
            yield held is not None
        finally:
            if held is not None:
                with suppress(OSError):
                    self._disk.unlock(held)

    def _take_lock(self, timeout_s: float) -> int | None:
        folder = self._full_folder(MANIFEST_FOLDER)
        try:
            return self._disk.try_lock(folder, _pauses(timeout_s))
        except OSError:
            return None  # no such folder yet, or a disk without locks: the link decides

    # --- the steps of a durable write ---

    def _write_durably(self, path: str, full: str, data: Data) -> None:
        try:
            self._write_file(full, data, with_folder=True)
        except OSError as error:
            raise _failure(error, "write", path) from None

    def _write_file(self, full: str, data: Data, *, with_folder: bool = False) -> None:
        """Write and sync a new file, making its folders on the way; if asked, sync its name too."""
        fd = self._open_new(full)
        folder, named = _parent(full), None
        try:
            try:
                self._disk.write(fd, memoryview(data))
                if with_folder and self._background:
                    named = _FOLDER_SYNCS.submit(self._sync_folder, folder)
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
                if named is not None:
                    named.result()
            if with_folder and named is None:
                self._sync_folder(folder)
        except OSError:
            with suppress(OSError):  # a torn file serves nobody; its name is never used again
                self._disk.unlink(full)
            raise

    def _sync_folder(self, folder: str) -> None:
        self._make_durable(folder)
        self._disk.fsync_dir(folder)

    def _open_new(self, full: str) -> int:
        return self._in_its_folder(full, self._disk.open_new)

    def _in_its_folder(self, full: str, open_file: Callable[[str], int]) -> int:
        folder = _parent(full)
        for _ in range(8):  # a folder may vanish again while an expired window is being removed
            try:
                return open_file(full)
            except FileNotFoundError:
                self._durable_folders.discard(folder)
                self._make_folders(folder)
        return open_file(full)

    def _make_folders(self, folder: str) -> None:
        missing = [folder]
        refusals = 0
        while missing:
            try:
                self._disk.mkdir(missing[-1])
            except FileExistsError:
                missing.pop()
            except FileNotFoundError as error:
                # Some systems say so of a folder whose parent is there (such as /proc); then going
                # up and down again would never end.
                refusals += 1
                if refusals > 64 + folder.count("/"):
                    raise OSError(errno.ENODEV, "", error.filename) from None
                missing.append(_parent(missing[-1]))
            else:
                made = missing.pop()
                self._durable_folders.discard(made)
                if not made.startswith(self._root):  # above the root nobody else looks after it
                    self._disk.fsync_dir(_parent(made))

    def _make_durable(self, folder: str) -> None:
        """Sync the names of all folders from the table root down to this one, once per process.

        Also of folders that existed: another process may have made one and not synced it yet,
        and our commit would point into a folder that a power cut takes away.
        """
        synced: list[str] = []
        inner = folder
        while inner not in self._durable_folders:
            outer = _parent(inner)
            try:
                self._disk.fsync_dir(outer)
            except PermissionError:
                if inner != self._root:  # we may be allowed to enter the root's parent only
                    raise
            synced.append(inner)
            if inner == self._root:
                break
            inner = outer
        # Only now: had an outer sync failed, the next write would have to begin again.
        self._durable_folders.update(synced)

    def _publish(self, temporary: str, full: str) -> Put:
        """Give the finished file its name, exclusively."""
        try:
            try:
                self._disk.link(temporary, full)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                self._disk.rename_noreplace(temporary, full)
        except FileExistsError:
            return Put.EXISTS
        except OSError as error:
            if error.errno in _NO_LINK | {errno.EINVAL}:
                raise UnsupportedStore(
                    f"the disk of {self.url} has neither hard links nor an exclusive rename "
                    f"({os.strerror(error.errno)}), so two writers could overwrite each other. "
                    "Nothing was changed. Keep the table on another disk."
                ) from None
            if error.errno in _NOT_LINKED:
                raise
            self._unsynced_folders.add(_parent(full))
            raise OutcomeUnclear(
                f"the disk failed while {full} was given its name: {error.strerror}"
            ) from None
        return Put.CREATED

    def _sync_names(self, folder: str, path: str) -> None:
        """Make a published name durable; until that worked, nobody is told of success.

        A later attempt finds the name and would take it for done, so a folder that could not be
        synced is remembered and synced again then.
        """
        self._unsynced_folders.add(folder)
        try:
            self._disk.fsync_dir(folder)
        except OSError as error:
            raise OutcomeUnclear(
                f"{path} was created, but the disk could not make it durable: {error.strerror}"
            ) from None
        self._unsynced_folders.discard(folder)

    def _full(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _full_folder(self, folder: str) -> str:
        return f"{self._root}/{folder}" if folder else self._root


def _parent(full: str) -> str:
    return full.rpartition("/")[0] or "/"


def _rebuild(root: str, disk: Disk, background: bool) -> LocalStorage:  # noqa: FBT001 - pickle
    return LocalStorage(root, disk, background=background)


def _failure(error: OSError, verb: str, path: str) -> StorageFailed:
    """Say what the disk said, as the kind of error a caller would act on."""
    code = error.errno or 0
    reason = _HINTS.get(code) or (os.strerror(code) if code else str(error))
    text = f"cannot {verb} {path}: {reason}"
    if code == errno.ENOENT:
        return ObjectMissing(f"{path} does not exist" if verb == "read" else text)
    if code in _DENIED:
        return AccessDenied(text)
    return StorageFailed(text)


def _pauses(timeout_s: float) -> Iterator[float]:
    """How long to wait before asking for the lock again.

    Asking costs the holder's core time, and among several who wait one asks soon. Who has waited
    longer asks more often, so that nobody is passed over for long.
    """
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < timeout_s:
        pause_s = random.uniform(0.001, 0.003)  # noqa: S311 - jitter, not a secret
        yield pause_s / (1 + 10 * waited_s)
