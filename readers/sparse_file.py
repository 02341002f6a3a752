"""A file of which only some ranges are in memory; asking for any other byte is an error."""

from __future__ import annotations

import bisect
import io
from typing import Any

from strandline.tableformat.errors import CorruptTable


class SparseFile(io.RawIOBase):
    """What is known of a segment's bytes: the ranges that were fetched, at their true places."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._starts: list[int] = []
        self._blobs: list[memoryview] = []
        self._position = 0

    def reopened(self) -> SparseFile:
        """The same bytes with a place of its own, since threads may decode parts of one file."""
        other = SparseFile(self._size)
        other._starts, other._blobs = self._starts, self._blobs
        return other

    def fill(self, start: int, data: bytes) -> None:
        """Put fetched bytes at their place."""
        at = bisect.bisect_left(self._starts, start)
        self._starts.insert(at, start)
        self._blobs.insert(at, memoryview(data))

    def holds(self, start: int, length: int) -> bool:
        """Whether a range lies inside one fetched range."""
        at = bisect.bisect_right(self._starts, start) - 1
        return at >= 0 and start + length <= self._starts[at] + len(self._blobs[at])

    def bytes_at(self, start: int, length: int) -> memoryview:
        """A range that must lie inside one fetched range."""
        at = bisect.bisect_right(self._starts, start) - 1
        if at >= 0:
            offset = start - self._starts[at]
            blob = self._blobs[at]
            if offset + length <= len(blob):
                return blob[offset : offset + length]
        raise CorruptTable("a data file's footer points at bytes outside its column chunks")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> Any:
        """What pyarrow asks for, without a copy."""
        length = self._size - self._position if size < 0 else size
        length = max(0, min(length, self._size - self._position))
        data = self.bytes_at(self._position, length) if length else memoryview(b"")
        self._position += length
        return data
