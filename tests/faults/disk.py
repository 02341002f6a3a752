"""A disk in memory that forgets what was not synced when the power goes.

It keeps two layers: what processes see, and what is on the medium. A file's bytes reach the medium
by `fsync`, a name by `fsync_dir` of its folder, and nothing else reaches it for certain: at a power
cut everything unsynced is lost, kept, or mixed by a seed, and unsynced bytes may be torn.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tests.faults.kinds import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Unsynced(Enum):
    """What a power cut does to everything that was not synced."""

    LOST = "lost"
    KEPT = "kept"
    """Also what the end of a process does: the disk itself goes on."""
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class DiskFault:
    """What happens at one numbered call: an error, or the end when `code` is None."""

    code: int | None = None
    done: bool = False
    """Whether the call took effect before it failed."""
    torn: bool = False
    """For a write: half of the bytes arrived before it failed."""

    def __str__(self) -> str:
        name = "crash" if self.code is None else errno.errorcode[self.code]
        return name + ("_after" if self.done else "_torn" if self.torn else "_before")


CRASH = DiskFault()
TEAR = DiskFault(torn=True)
ERROR = DiskFault(errno.EIO)
ERROR_AFTER = DiskFault(errno.EIO, done=True)
FULL = DiskFault(errno.ENOSPC, torn=True)
_CHANGES = frozenset(
    {
        "open_new",
        "open_append",
        "truncate",
        "write",
        "fsync",
        "fsync_dir",
        "link",
        "rename_noreplace",
        "unlink",
        "mkdir",
    }
)


def faults_of(call: str) -> tuple[DiskFault, ...]:
    """Every fault that a kind of call is put through."""
    faults = [CRASH, ERROR]
    if call in _CHANGES:
        faults.append(ERROR_AFTER)
    if call == "write":
        faults += [TEAR, FULL]
    return tuple(faults)


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""


@dataclass
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    synced: dict[str, _File | _Folder] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One line of a disk's trace."""

    number: int
    name: str
    path: str


class CrashDisk:
    """The disk as one process sees it; `peer` gives another process's view of the same disk."""

    def __init__(self, root: _Folder | None = None, locks: set[str] | None = None) -> None:
        self.trace: list[Call] = []
        self.faults: dict[int, DiskFault] = {}
        self.hooks: dict[int, Callable[[], None]] = {}
        self._root = root or _Folder()
        self._open: dict[int, _File] = {}
        self._paths: dict[int, str] = {}
        self._locks = set() if locks is None else locks
        self._crashed = False

    def peer(self) -> CrashDisk:
        """A second process on the same disk, without faults of its own."""
        return CrashDisk(self._root, self._locks)

    def clone(self) -> CrashDisk:
        """A disk that holds the same, on both layers."""
        return CrashDisk(copy.deepcopy(self._root))

    def after_power_cut(self, unsynced: Unsynced, seed: int = 0) -> CrashDisk:
        """What a restarted machine finds."""
        root = copy.deepcopy(self._root)
        _settle(root, unsynced, random.Random(f"{seed} {unsynced.value}"), set())
        return CrashDisk(root)

    # --- numbering ---

    def _call(self, name: str, path: str, act: Callable[[], None] | None = None) -> None:
        if self._crashed:
            raise SimulatedCrash
        number = len(self.trace)
        self.trace.append(Call(number, name, path))
        if number in self.hooks:
            self.hooks[number]()
        fault = self.faults.get(number)
        if act is not None and (fault is None or fault.done):
            act()
        if fault is not None:
            self._fail(fault, path)

    def _fail(self, fault: DiskFault, path: str) -> None:
        if fault.code is None:
            self._crashed = True
            raise SimulatedCrash
        raise OSError(fault.code, os.strerror(fault.code), path)

    # --- finding ---

    def _folder(self, path: str) -> _Folder:
        node: _File | _Folder = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, _Folder):
                raise _error(errno.ENOTDIR, path)
            if name not in node.names:
                raise _error(errno.ENOENT, path)
            node = node.names[name]
        if not isinstance(node, _Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def _split(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _file(self, path: str) -> _File:
        folder, name = self._split(path)
        node = folder.names.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Folder):
            raise _error(errno.EISDIR, path)
        return node

    def _give(self, path: str, node: _File | _Folder) -> None:
        folder, name = self._split(path)
        if name in folder.names:
            raise _error(errno.EEXIST, path)
        folder.names[name] = node

    # --- what LocalStorage asks for ---

    def open_new(self, path: str) -> int:
        file = _File()
        self._call("open_new", path, lambda: self._give(path, file))
        fd = len(self._paths) + 3
        self._open[fd], self._paths[fd] = file, path
        return fd

    def open_append(self, path: str) -> int:
        def give() -> None:
            if self._split(path)[1] not in self._split(path)[0].names:
                self._give(path, _File())

        self._call("open_append", path, give)
        fd = len(self._paths) + 3
        self._open[fd], self._paths[fd] = self._file(path), path
        return fd

    def hold(self, fd: int) -> None:
        self._call("hold", self._paths[fd])

    def release(self, fd: int) -> None:
        # The end of a process gives its locks back, too.
        if not self._crashed:
            self._call("release", self._paths[fd])

    def state(self, fd: int) -> tuple[int, int]:
        self._call("state", self._paths[fd])
        try:
            links = int(self._file(self._paths[fd]) is self._open[fd])
        except OSError:
            links = 0
        return len(self._open[fd].data), links

    def read_at(self, fd: int, start: int, length: int) -> bytes:
        self._call("read_at", self._paths[fd])
        return self._open[fd].data[start : start + length]

    def read_shared(self, path: str) -> bytes:
        return self.read(path)

    def truncate(self, fd: int, size: int) -> None:
        file = self._open[fd]
        self._call("truncate", self._paths[fd], lambda: setattr(file, "data", file.data[:size]))

    def write(self, fd: int, data: memoryview) -> None:
        fault = self.faults.get(len(self.trace))
        part = bytes(data[: len(data) // 2] if fault is not None and fault.torn else data)
        if fault is not None and fault.torn and not self._crashed:
            self._open[fd].data += part
        self._call("write", self._paths[fd], lambda: self._extend(fd, part))

    def _extend(self, fd: int, data: bytes) -> None:
        self._open[fd].data += data

    def fsync(self, fd: int) -> None:
        self._call("fsync", self._paths[fd], lambda: self._sync(fd))

    def _sync(self, fd: int) -> None:
        self._open[fd].synced = self._open[fd].data

    def close(self, fd: int) -> None:
        self._call("close", self._paths[fd])
        del self._open[fd]

    def fsync_dir(self, path: str) -> None:
        folder = self._folder(path)
        self._call("fsync_dir", path, lambda: setattr(folder, "synced", dict(folder.names)))

    def link(self, source: str, target: str) -> None:
        self._call("link", target, lambda: self._give(target, self._file(source)))

    def rename_noreplace(self, source: str, target: str) -> None:
        def rename() -> None:
            folder, name = self._split(source)
            self._give(target, self._file(source))
            del folder.names[name]

        self._call("rename_noreplace", target, rename)

    def unlink(self, path: str) -> None:
        def unlink() -> None:
            self._file(path)
            folder, name = self._split(path)
            del folder.names[name]

        self._call("unlink", path, unlink)

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path, lambda: self._give(path, _Folder()))

    def rmdir(self, path: str) -> None:
        def rmdir() -> None:
            if self._folder(path).names:
                raise _error(errno.ENOTEMPTY, path)
            folder, name = self._split(path)
            del folder.names[name]

        self._call("rmdir", path, rmdir)

    def read(self, path: str) -> bytes:
        self._call("read", path)
        return self._file(path).data

    def read_spans(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        self._call("read_spans", path)
        data = self._file(path).data
        return [data[start : start + length] for start, length in spans]

    def size(self, path: str) -> int:
        self._call("size", path)
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        self._call("modified_ms", path)
        assert self._file(path) is not None
        return 0

    def scan(self, path: str) -> list[tuple[str, bool]]:
        self._call("scan", path)
        names = self._folder(path).names
        return [(name, isinstance(node, _Folder)) for name, node in names.items()]

    def try_lock(self, path: str, pauses: Iterable[float] = ()) -> int | None:
        del pauses
        self._call("try_lock", path)
        self._folder(path)
        if path in self._locks:
            # Waiting would never end: the other process has its turn inside one of our calls.
            raise _error(errno.ENOLCK, path)
        self._locks.add(path)
        fd = len(self._paths) + 3
        self._paths[fd] = path
        return fd

    def unlock(self, fd: int) -> None:
        self._locks.discard(self._paths[fd])
        self._call("unlock", self._paths[fd])


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _settle(
    node: _File | _Folder, unsynced: Unsynced, chance: random.Random, seen: set[int]
) -> None:
    """Make what survives of a node the only truth, and go on with what is in it."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, _File):
        node.data = node.synced = _surviving_bytes(node, unsynced, chance)
        return
    names = dict(node.names if unsynced is Unsynced.KEPT else node.synced)
    if unsynced is Unsynced.MIXED:
        for name in sorted(node.names.keys() | node.synced.keys()):
            source = chance.choice((node.names, node.synced))
            names.pop(name, None)
            if name in source:
                names[name] = source[name]
    node.names, node.synced = names, dict(names)
    for name in sorted(names):
        _settle(names[name], unsynced, chance, seen)


def _surviving_bytes(file: _File, unsynced: Unsynced, chance: random.Random) -> bytes:
    if unsynced is Unsynced.KEPT or file.data == file.synced:
        return file.data
    if unsynced is Unsynced.LOST:
        return file.synced
    # Files only grow, and what was synced stays: the tear is somewhere behind it.
    cut = chance.randrange(len(file.synced), len(file.data) + 1)
    torn = file.data[:cut]
    # A file may have its full length and yet hold zeros where blocks never arrived.
    return chance.choice((file.synced, file.data, torn, torn + bytes(len(file.data) - cut)))
