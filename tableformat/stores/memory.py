"""Tables in this process's memory, shared by name: for tests and for trying things out."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any

from strandline.tableformat.errors import ObjectMissing, StorageFailed
from strandline.tableformat.storage import (
    Blobs,
    Names,
    PendingWrite,
    Put,
    Storage,
)
from strandline.tableformat.stores.urls import check_path, folder_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.tableformat.storage import Data
    from strandline.tableformat.stores.ranges import Span
    from strandline.tableformat.stores.urls import Place

_LAST = "\U0010ffff"


class _Shelf:
    """All objects of one name: the bytes, and the keys in order for listing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.keys: list[str] = []
        self.written_ms: dict[str, int] = {}

    def put(self, key: str, data: bytes, now_ms: int) -> bool:
        with self.lock:
            if key in self.objects:
                return False
            self.objects[key] = data
            self.written_ms[key] = now_ms
            insort(self.keys, key)
            return True

    def below(self, prefix: str) -> list[str]:
        with self.lock:
            return self.keys[
                bisect_left(self.keys, prefix) : bisect_right(self.keys, prefix + _LAST)
            ]


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


def _after_fork() -> None:
    """Give the child fresh locks: a thread that held one does not exist there."""
    global _shelves_lock  # noqa: PLW0603 - replaced as a whole
    _shelves_lock = threading.Lock()
    for shelf in _shelves.values():
        shelf.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def open_place(place: Place, options: dict[str, Any]) -> MemoryStorage:
    """Open `memory://name`, or a folder in it; no option means anything to it."""
    del options
    return MemoryStorage(place.bucket, place.path)


class MemoryStorage(Storage):
    """A table root in memory; every storage of the same URL in this process sees the same."""

    def __init__(
        self, name: str, folder: str = "", clock_ms: Callable[[], int] | None = None
    ) -> None:
        """Take a name; `clock_ms` is the store's clock, for tests."""
        self._place = (name, folder)
        self._clock_ms = clock_ms
        self._prefix = f"{folder}/" if folder else ""
        self.url = f"memory://{name}/{self._prefix}".rstrip("/")
        with _shelves_lock:
            self._shelf = _shelves.setdefault(name, _Shelf())

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryStorage, self._place

    def read(self, path: str) -> bytes:
        data = self._shelf.objects.get(self._key(path))
        if data is None:
            raise ObjectMissing(f"{path} does not exist")
        return data

    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        return [self.read(span.path)[span.start : span.start + span.length] for span in spans]

    def size(self, path: str) -> int:
        return len(self.read(path))

    def modified_ms(self, path: str) -> int:
        written = self._shelf.written_ms.get(self._key(path))
        if written is None:
            raise ObjectMissing(f"{path} does not exist")
        return written

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        begin = self._folder(prefix)
        rest = (key[len(begin) :] for key in self._shelf.below(begin))
        return [name for name in rest if "/" not in name and name > start_after][:limit]

    def folders(self, prefix: str) -> Iterator[str]:
        begin = self._folder(prefix)
        rest = (key[len(begin) :] for key in self._shelf.below(begin))
        yield from dict.fromkeys(name.partition("/")[0] for name in rest if "/" in name)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        for key in self._shelf.below(self._folder(prefix)):
            data = self._shelf.objects.get(key)
            if data is not None:
                yield key[len(self._prefix) :], len(data)

    def write_new(self, path: str, data: Data) -> PendingWrite:
        if not self._shelf.put(self._key(path), bytes(memoryview(data)), self.clock_ms()):
            raise StorageFailed(f"cannot write {path}: an object of this name exists already")
        return Done()

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        for pending in after:
            pending.wait()
        created = self._shelf.put(self._key(path), bytes(data), self.clock_ms())
        return Put.CREATED if created else Put.EXISTS

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            key = self._key(path)
            with self._shelf.lock:
                if self._shelf.objects.pop(key, None) is not None:
                    del self._shelf.keys[bisect_left(self._shelf.keys, key)]
                    self._shelf.written_ms.pop(key, None)

    def clock_ms(self) -> int:
        return int(time.time() * 1000) if self._clock_ms is None else self._clock_ms()

    @property
    def probe_key(self) -> str:
        """Return one key for all: the lock is ours."""
        return "memory"

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _folder(self, prefix: str) -> str:
        folder = folder_path(prefix)
        return f"{self._prefix}{folder}/" if folder else self._prefix


class Done:
    """A write that was durable when it returned."""

    __slots__ = ()

    def wait(self) -> None:
        """Return at once."""
