"""A user's log in one window: a file that grows, or numbered objects where a store cannot append.

Objects are created and never changed. A writer takes the next number; when there are too many,
the log's beginning is merged into one object whose name says which numbers are inside, and the
parts go. A writer that slept through all that could take a number that was merged and removed: so
after each create it looks, and finds its chunk's id in the merged object, or stores it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from strandline.tableformat.errors import (
    CorruptTable,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
)
from strandline.tableformat.storage import Put
from strandline.tableformat.stream_frames import (
    encode_chunk,
    read_chunks,
    read_frames,
    sound_bytes,
)
from strandline.tableformat.stream_layout import ChunkSpan, chunks_to_read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.storage import Storage
    from strandline.tableformat.stream_frames import Frame

MAX_OBJECTS: Final = 16
"""Objects of one log, beyond which its beginning is merged."""
GIVE_UP_S: Final = 30.0
_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_ATTEMPTS: Final = 8
T = TypeVar("T")


class LogWriter(Protocol):
    """Where frames go."""

    def write(self, frames: bytes) -> None:
        """Store the frames; sent again after an error, they are not stored twice."""

    def close(self) -> None: ...


def open_log(storage: Storage, runtime: Runtime, path: str) -> LogWriter:
    """A log to add frames to, as the store allows."""
    return GrowingLog(storage, path) if storage.can_append else ChunkedLog(storage, runtime, path)


def read_log(storage: Storage, runtime: Runtime, path: str) -> Iterator[Frame]:
    """The frames of a log, oldest first; none if it does not exist."""
    if storage.can_append:
        try:
            data = patiently(runtime, lambda: storage.read_growing(path))
        except ObjectMissing:
            return
        yield from read_frames(data, path)
        return
    for data, where in _read_objects(storage, runtime, path):
        for _, frames in read_chunks(data, where):
            yield from read_frames(frames, where, may_be_torn=False)


def patiently(runtime: Runtime, ask: Callable[[], T]) -> T:
    """Ask again while the store is busy: reading twice is always safe."""
    for attempt in range(_ATTEMPTS):
        try:
            return ask()
        except StoreBusy:
            runtime.sleep(_PAUSE_S * 2**attempt * (0.5 + runtime.fraction()))
    return ask()


class GrowingLog:
    """A log on a disk."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._file, self._path = storage.open_append(path), path

    def write(self, frames: bytes) -> None:
        self._file.append(frames, lambda added: sound_bytes(added, self._path))

    def close(self) -> None:
        self._file.close()


def _read_objects(storage: Storage, runtime: Runtime, path: str) -> list[tuple[bytes, str]]:
    """The objects of a log; looked for again when one of them was merged meanwhile."""
    for _ in range(_ATTEMPTS):
        needed, _ = chunks_to_read(patiently(runtime, lambda: storage.list(f"{path}/")))
        try:
            return [_read_object(storage, runtime, f"{path}/{span.name}") for span in needed]
        except ObjectMissing:
            continue
    raise CorruptTable(f"{path} lists objects that cannot be read")


def _read_object(storage: Storage, runtime: Runtime, name: str) -> tuple[bytes, str]:
    return patiently(runtime, lambda: storage.read(name)), name


class ChunkedLog:
    """A log of numbered objects."""

    def __init__(self, storage: Storage, runtime: Runtime, path: str) -> None:
        self._storage, self._runtime, self._path = storage, runtime, path
        self._next: int | None = None
        self._unsettled: tuple[bytes, bytes] | None = None
        """Frames whose store is not certain, and the chunk they were sent as."""

    def write(self, frames: bytes) -> None:
        if self._unsettled is None or self._unsettled[0] != frames:
            chunk_id = bytes.fromhex(self._runtime.random_hex(16))
            self._unsettled = frames, encode_chunk(chunk_id, frames)
        chunk = self._unsettled[1]
        until = self._runtime.monotonic() + GIVE_UP_S
        while not self._store(chunk, until):
            self._next = None  # the number is another's; look for the next free one
        self._unsettled = None

    def close(self) -> None:
        """Nothing is held."""

    def _names(self) -> list[str]:
        return patiently(self._runtime, lambda: self._storage.list(f"{self._path}/"))

    def _store(self, chunk: bytes, until: float) -> bool:
        """Store under the next number. False: it belongs to another chunk."""
        if self._next is None:
            needed, _ = chunks_to_read(self._names())
            self._next = needed[-1].last + 1 if needed else 0
        number = self._next
        name = f"{self._path}/{ChunkSpan(number, number).name}"
        if not self._create(name, chunk, until):
            return False
        self._next = number + 1
        needed, covered = chunks_to_read(self._names())
        first = needed[0] if needed else ChunkSpan(number, number)
        if first.last >= number and first != ChunkSpan(number, number):
            if not self._is_inside(first, chunk):
                return False
        elif len(needed) + len(covered) > MAX_OBJECTS:
            self._merge(needed, covered)
        return True

    def _create(self, name: str, chunk: bytes, until: float) -> bool:
        """Create the object. False: the name is another chunk's."""
        pause_s = _PAUSE_S
        while True:
            try:
                if self._storage.put_if_absent(name, chunk) is Put.CREATED:
                    return True
                # A library below us may have sent it twice: only the bytes tell whose it is.
                return patiently(self._runtime, lambda: self._storage.read(name)) == chunk
            except ObjectMissing:
                return False  # created and merged away between the two requests
            except (OutcomeUnclear, StoreBusy):
                if self._runtime.monotonic() > until:
                    raise
            self._runtime.sleep(pause_s * (0.5 + self._runtime.fraction() / 2))
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def _is_inside(self, merged: ChunkSpan, chunk: bytes) -> bool:
        """Whether a merged object that covers our number holds our chunk, or came before it."""
        ours = next(read_chunks(chunk, self._path))[0]
        name = f"{self._path}/{merged.name}"
        try:
            data = patiently(self._runtime, lambda: self._storage.read(name))
        except ObjectMissing:  # merged once more
            needed, _ = chunks_to_read(self._names())
            return bool(needed) and self._is_inside(needed[0], chunk)
        return any(chunk_id == ours for chunk_id, _ in read_chunks(data, name))

    def _merge(self, needed: list[ChunkSpan], covered: list[ChunkSpan]) -> None:
        """Put the log's beginning into one object. Failing is fine: the next writer tries again."""
        run = [needed[0]]
        for span in needed[1:]:
            if span.first != run[-1].last + 1:
                break
            run.append(span)
        names = [f"{self._path}/{span.name}" for span in run]
        merged = f"{self._path}/{ChunkSpan(run[0].first, run[-1].last).name}"
        try:
            if run[0].first == 0 and len(run) > 1:
                parts = [self._storage.read(name) for name in names]
                self._storage.put_if_absent(merged, b"".join(parts))
                self._storage.delete(names)
            self._storage.delete([f"{self._path}/{span.name}" for span in covered])
        except StorageFailed:
            return
