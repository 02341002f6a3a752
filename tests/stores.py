"""Storages for tests that watch or bend what happens between the library and a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.tableformat.storage import Blobs, Names, PendingWrite, Put, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from strandline.tableformat.stores.ranges import Span


class WatchedStorage(Storage):
    """Passes everything on, notes it, and lets a test step in before or after an operation."""

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.url = inner.url
        self.is_local = inner.is_local
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda *_: None
        self.after: Callable[[str, str], None] = lambda *_: None
        self.clock: Callable[[], int] = inner.clock_ms

    def _call(self, name: str, path: str, make: Callable[[], Any]) -> Any:
        self.calls.append((name, path))
        self.before(name, path)
        result = make()
        self.after(name, path)
        return result

    def names(self) -> list[str]:
        """The operations so far, without their paths; forgets them."""
        found = [name for name, _ in self.calls]
        self.calls.clear()
        return found

    def read(self, path: str) -> bytes:
        data: bytes = self._call("read", path, lambda: self.inner.read(path))
        return data

    def read_ranges(self, requests: Sequence[tuple[str, int, int]]) -> Blobs:
        blobs: Blobs = []
        for request in requests:
            blobs += self._call(
                "read_range", request[0], lambda r=request: self.inner.read_ranges([r])
            )
        return blobs

    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        raise AssertionError(spans)

    def size(self, path: str) -> int:
        size: int = self._call("size", path, lambda: self.inner.size(path))
        return size

    def modified_ms(self, path: str) -> int:
        written: int = self._call("modified_ms", path, lambda: self.inner.modified_ms(path))
        return written

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        found: Names = self._call(
            "list", prefix, lambda: self.inner.list(prefix, start_after=start_after, limit=limit)
        )
        return found

    def folders(self, prefix: str) -> Iterator[str]:
        for name in self.inner.folders(prefix):
            self.calls.append(("folder", name))
            yield name

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self.inner.walk(prefix)

    def write_new(self, path: str, data: Any) -> PendingWrite:
        pending: PendingWrite = self._call(
            "write_new", path, lambda: self.inner.write_new(path, data)
        )
        return pending

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        put: Put = self._call(
            "put_if_absent", path, lambda: self.inner.put_if_absent(path, data, after=after)
        )
        return put

    def delete(self, paths: Sequence[str]) -> None:
        self._call("delete", " ".join(paths), lambda: self.inner.delete(paths))

    def clock_ms(self) -> int:
        return self.clock()

    def commit_lock(self, timeout_s: float = 1.0) -> AbstractContextManager[bool]:
        return self.inner.commit_lock(timeout_s)
