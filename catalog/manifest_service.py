"""A table's metadata by the shortest way: memory, then this machine's disk, then the store.

Only what can never change is kept: pages and other parts whose reference carries a checksum, and
manifests of versions whose commit is known. Which version is the newest is asked of the store
every time. An answer fills the tiers above the one that gave it.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.catalog.page_cache import PAGES, ObjectKey, PageCache
from strandline.tableformat import codec
from strandline.tableformat.errors import (
    CorruptTable,
    MissingFile,
    ObjectMissing,
    StrandlineError,
    TableNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.catalog.local_cache import LocalCache
    from strandline.tableformat.storage import Storage

MOST_WAITING_BYTES: Final = 8 * 2**20
"""Copies that wait for a busy cache; what is beyond is fetched again another time."""
_DECODED_FACTOR: Final = 4
"""About how much larger a decoded object is than its bytes."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an immutable object, as a reference vouches for them."""

    path: str
    start: int
    length: int
    xxh64: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """A moment in the life of a manifest service; counters count objects from when it began."""

    sync_state: str
    """`in_sync`: the newest version was confirmed, and all that was read is in the local cache.
    `syncing`: the store is being asked. `pending_write`: copies wait until the local cache takes
    them. `stale`: the store could not be asked for a newer version. `error`: the last load of
    metadata failed."""
    memory_hits: int
    memory_misses: int
    cache_hits: int
    cache_misses: int
    """Asked of the local cache in vain; 0 without one."""
    cache_damaged: int
    """Copies in the local cache that were not what they should be; the store was asked."""
    storage_objects: int
    storage_bytes: int
    pending: int
    """Copies that wait to be written to the local cache."""
    last_error: str | None
    cache_problem: str | None
    """Why the local cache is of no use at the moment; answers come from the store."""

    def to_json(self) -> dict[str, Any]:
        """The stats as plain values."""
        return asdict(self)


class ManifestService:
    """Loads metadata for the handles of one table. Safe to share between threads."""

    def __init__(
        self, storage: Storage, cache: LocalCache | None = None, memory: PageCache = PAGES
    ) -> None:
        self.storage = storage
        self._cache, self._memory = cache, memory
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_COUNTERS, 0)
        self._busy = 0
        self._load_error: str | None = None
        self._head_error: str | None = None
        self._waiting: dict[ObjectKey, bytes] = {}

    def __repr__(self) -> str:
        return f"<strandline manifest service of {self.storage.url}, {self.sync_state}>"

    @property
    def cache(self) -> LocalCache | None:
        """The tier on this machine's disk."""
        return self._cache

    # --- how it stands ---

    @property
    def sync_state(self) -> str:
        """How what is known here stands to the store; see `ServiceStats`."""
        if self._load_error is not None:
            return "error"
        if self._head_error is not None:
            return "stale"
        if self._busy:
            return "syncing"
        return "pending_write" if self._waiting else "in_sync"

    def stats(self) -> ServiceStats:
        """Counters and state."""
        with self._lock:
            return ServiceStats(
                sync_state=self.sync_state,
                pending=len(self._waiting),
                last_error=self._load_error or self._head_error,
                cache_problem=None if self._cache is None else self._cache.problem,
                **self._counts,
            )

    @contextmanager
    def asking_for_head(self) -> Iterator[None]:
        """Around every look for the newest version."""
        with self._syncing():
            try:
                yield
            except TableNotFound:
                raise
            except StrandlineError as error:
                self._head_error = str(error)
                raise
            self._head_error = None

    @contextmanager
    def _loading(self) -> Iterator[None]:
        with self._syncing():
            try:
                yield
            except StrandlineError as error:
                self._load_error = str(error)
                raise
            self._load_error = None

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number

    # --- parts with a checksum ---

    def get_or_load(self, parts: Sequence[Part], decode: Callable[[int, bytes], T]) -> list[T]:
        """Decoded parts, in order; `decode` gets a part's place in the list and its bytes.

        Parts that no faster tier has are fetched from the store together.
        """
        keys = [self._key(part) for part in parts]
        found = {key: self._memory.get(key) for key in keys}
        missing = {key: i for i, key in enumerate(keys) if found[key] is None}
        self._count(memory_hits=len(parts) - len(missing), memory_misses=len(missing))
        if missing:
            with self._loading():
                blobs = self._bytes({key: parts[i] for key, i in missing.items()})
                for key, i in missing.items():
                    found[key] = decode(i, blobs[key])
                    self._memory.put(key, found[key], _DECODED_FACTOR * len(blobs[key]))
        return [found[key] for key in keys]  # type: ignore[misc]  # none is None any more

    def _key(self, part: Part) -> ObjectKey:
        identity = f"{part.start}+{part.xxh64}" if part.start else part.xxh64
        return ObjectKey(self.storage.url, part.path, identity)

    def _bytes(self, wanted: Mapping[ObjectKey, Part]) -> dict[ObjectKey, bytes]:
        have = self._from_cache(wanted)
        rest = {key: part for key, part in wanted.items() if key not in have}
        if rest:
            loaded = self._from_storage(rest)
            self._keep(loaded)
            have |= loaded
        elif self._waiting:
            self._keep({})
        return have

    def _from_cache(self, wanted: Mapping[ObjectKey, Part]) -> dict[ObjectKey, bytes]:
        if self._cache is None:
            return {}
        stored = self._cache.get(list(wanted))
        right = {key: data for key, data in stored.items() if _is_part(data, wanted[key])}
        damaged = len(stored) - len(right)
        if damaged:
            self._cache.distrust()
        self._count(
            cache_hits=len(right),
            cache_misses=len(wanted) - len(right),
            cache_damaged=damaged,
        )
        return right

    def local_copies(self, parts: Sequence[Part]) -> list[bytes | None]:
        """What the local cache has of the parts, each with its checksum; None: nothing.

        For whoever asks the store in a way of its own, and can do without an answer.
        """
        if self._cache is None or not parts:
            return [None] * len(parts)
        found = self._from_cache({self._key(part): part for part in parts})
        return [found.get(self._key(part)) for part in parts]

    def keep_copies(self, parts: Sequence[tuple[Part, bytes]]) -> None:
        """Copy parts whose checksums were compared to the local cache."""
        if self._cache is not None and parts:
            self._keep({self._key(part): data for part, data in parts})

    def _from_storage(self, wanted: Mapping[ObjectKey, Part]) -> dict[ObjectKey, bytes]:
        url = self.storage.url
        try:
            blobs = self.storage.read_ranges(
                [(part.path, part.start, part.length) for part in wanted.values()]
            )
        except ObjectMissing as error:
            raise MissingFile(
                f"{url}: a page that the manifest lists is missing ({error}). Rows cannot "
                "be read without it; restore it from a copy of the table."
            ) from None
        loaded = dict(zip(wanted, blobs, strict=True))
        for key, part in wanted.items():
            if not _is_part(loaded[key], part):
                raise CorruptTable(
                    f"{url}: page {part.path} does not have the checksum that the manifest "
                    "gives. It was damaged or overwritten; restore it from a copy of the table."
                )
        self._count(storage_objects=len(loaded), storage_bytes=sum(map(len, loaded.values())))
        return loaded

    def _keep(self, loaded: Mapping[ObjectKey, bytes]) -> None:
        """Copy to the local cache what it has not got; what it cannot take now waits."""
        if self._cache is None:
            return
        with self._lock:
            due = {**self._waiting, **loaded}
        taken = self._cache.put(due)
        with self._lock:
            for key in due if taken else ():
                self._waiting.pop(key, None)
            room = MOST_WAITING_BYTES - sum(map(len, self._waiting.values()))
            for key, data in {} if taken else loaded.items():
                room -= len(data)
                if room >= 0:
                    self._waiting[key] = data

    # --- rows of verified files ---

    def remembered(self, path: str, identity: str) -> pa.Table | None:
        """Rows of an immutable object, if they are still in memory."""
        found: pa.Table | None = self._memory.get(ObjectKey(self.storage.url, path, identity))
        self._count(memory_hits=found is not None, memory_misses=found is None)
        return found

    def remember(self, path: str, identity: str, rows: pa.Table) -> None:
        """Keep rows in memory, where the least recently used leave first."""
        self._memory.put(ObjectKey(self.storage.url, path, identity), rows, rows.nbytes)

    # --- documents that check themselves ---

    def get_or_load_document(
        self,
        path: str,
        identity: str,
        *,
        read: Callable[[], bytes],
        decode: Callable[[bytes], T],
        is_right: Callable[[T], bool],
    ) -> T:
        """A document whose identity is known from elsewhere; `is_right` tells if this is it.

        The store's answer is given as it is, and kept only if it is right.
        """
        key = ObjectKey(self.storage.url, path, identity)
        found: T | None = self._memory.get(key)
        self._count(memory_hits=found is not None, memory_misses=found is None)
        if found is not None:
            return found
        data = None if self._cache is None else self._cache.get([key]).get(key)
        if data is not None:
            found = self._decoded(data, decode, is_right)
        if self._cache is not None:
            self._count(cache_hits=found is not None, cache_misses=found is None)
        if found is None:
            with self._syncing():
                data = read()
            found = decode(data)
            self._count(storage_objects=1, storage_bytes=len(data))
            if not is_right(found):
                return found
            self._keep({key: data})
        assert data is not None
        self._memory.put(key, found, _DECODED_FACTOR * len(data))
        return found

    def _decoded(
        self, data: bytes, decode: Callable[[bytes], T], is_right: Callable[[T], bool]
    ) -> T | None:
        """What a copy in the local cache holds; None if it is not what it should be."""
        try:
            found = decode(data)
        except CorruptTable:
            found = None
        if found is not None and is_right(found):
            return found
        assert self._cache is not None
        self._cache.distrust()
        self._count(cache_damaged=1)
        return None


_COUNTERS: Final = (
    *("memory_hits", "memory_misses", "cache_hits", "cache_misses", "cache_damaged"),
    *("storage_objects", "storage_bytes"),
)


def _is_part(data: bytes, part: Part) -> bool:
    return len(data) == part.length and codec.checksum(data) == part.xxh64
