"""The chain of manifests in a store: finding its head, reading a version, keeping up.

A manifest never changes once it exists, so knowing the head means knowing that the next version
does not exist yet. That is one small request, and it is what a warm reader or writer asks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.catalog.manifest_service import ManifestService
from strandline.catalog.runtime import REAL
from strandline.tableformat import codec, manifest, paths
from strandline.tableformat.errors import (
    CorruptTable,
    ObjectMissing,
    StoreBusy,
    TableNotFound,
    VersionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.catalog.local_cache import LocalCache
    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import Storage

MANIFEST_MIN_AGE_MS: Final = 3_600_000
"""No manifest younger than this is ever removed (SPEC.md, removing old versions)."""
TRUST_MS: Final = MANIFEST_MIN_AGE_MS // 4
"""How long a confirmed head may be followed by asking for the next version alone."""
_READS_BEFORE_LISTING: Final = 3
_READ_AT_ONCE: Final = 8
"""A manifest takes up to 16 MiB."""
_HEAD_ATTEMPTS: Final = 5
_BUSY_ATTEMPTS: Final = 6
_BUSY_PAUSE_S: Final = 0.02
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A manifest with the checksum of its bytes."""

    manifest: Manifest
    xxh64: str
    confirmed_ms: int
    """The store's time when this was known to be the head."""


class Chain:
    """The versions of one table."""

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime = REAL,
        cache: LocalCache | None = None,
        *,
        features: frozenset[str] = manifest.READER_FEATURES,
    ) -> None:
        """Take a table root; `features` are those that whoever asks understands."""
        self.storage = storage
        self.runtime = runtime
        self._features = features
        self.service = ManifestService(storage, cache)
        self.base = paths.META

    follows_root = False
    """Whether part of what is committed here is decided in another chain."""
    user: str | None = None
    """Whose chain it is; None: the table's own."""

    def manifest_path(self, version: int) -> str:
        """Where a version of this chain lies."""
        return self.base + paths.manifest_path(version).removeprefix(paths.META)

    def gc_marker_path(self, version: int) -> str:
        """Where the marker lies that says: versions below may be gone."""
        return self.gc_folder + paths.gc_marker_path(version).removeprefix(paths.GC_MARKERS)

    @property
    def manifests_folder(self) -> str:
        """Where the versions lie."""
        return f"{self.base}manifests/"

    @property
    def gc_folder(self) -> str:
        """Where the gc markers lie."""
        return f"{self.base}gc/"

    def lock(self) -> AbstractContextManager[object]:
        """Queue up with others before a create, where that is cheap."""
        return self.storage.commit_lock() if self.storage.is_local else nullcontext()

    def encode(self, made: Manifest) -> bytes:
        """The bytes of a manifest."""
        return codec.encode_document(made.to_json())

    def announce(self, version: int) -> bool:
        """What has to be in the store before the head is looked at from which a version is made.

        Whether there is such a thing: it is there now, and the head must be looked at again.
        """
        del version
        return False

    def load(self, version: int, known: Snapshot | None = None) -> Snapshot:
        """Read one version; `ObjectMissing` if it is not there. `known`: an earlier one, if any."""
        return self._decode(self._read(version), version, known)

    def load_each(self, versions: Sequence[int]) -> Iterator[tuple[int, Snapshot | None]]:
        """Read some versions, each decoded with the help of the one before; None: not there."""
        known: Snapshot | None = None
        for first in range(0, len(versions), _READ_AT_ONCE):
            part = versions[first : first + _READ_AT_ONCE]
            paths = [self.manifest_path(version) for version in part]
            blobs = self._patiently(partial(self.storage.read_each, paths))
            for version, data in zip(part, blobs, strict=True):
                found = None if data is None else self._decode(data, version, known)
                known = found or known
                yield version, found

    def _read(self, version: int) -> bytes:
        return self._patiently(lambda: self.storage.read(self.manifest_path(version)))

    def _decode(self, data: bytes, version: int, known: Snapshot | None = None) -> Snapshot:
        where = f"manifest {version} of {self.storage.url}"
        try:
            document = codec.decode_document(data, where)
            decoded = manifest.from_json(
                document, version, known.manifest if known else None, self._features
            )
        except CorruptTable as error:
            raise CorruptTable(
                f"{str(error).rstrip('.')}. Nothing was read or changed. Restore "
                f"{self.manifest_path(version)} of {self.storage.url} from a copy."
            ) from None
        return Snapshot(decoded, codec.checksum(data), self.storage.clock_ms())

    def find_head(self) -> Snapshot:
        """Find the newest version by listing: two requests."""
        with self.service.asking_for_head():
            return self._find_head()

    def _find_head(self) -> Snapshot:
        for _ in range(_HEAD_ATTEMPTS):
            version = self._newest_name()
            if version is None:
                raise TableNotFound(
                    f"there is no Strandline table at {self.storage.url}. Check the URL, or create "
                    "one with strandline.create_table."
                )
            try:
                return self.load(version)
            except ObjectMissing:
                # Vacuumed between the two requests: there is a newer one by now.
                continue
        raise CorruptTable(f"{self.storage.url} lists a manifest that cannot be read")

    def _newest_name(self) -> int | None:
        after = ""
        while name := self._first_name(self.manifests_folder, after):
            version = paths.manifest_version(name)
            if version is not None:
                return version
            after = name
        return None

    def _first_name(self, folder: str, after: str) -> str | None:
        names = self._patiently(lambda: self.storage.list(folder, start_after=after, limit=1))
        return names[0] if names else None

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while the store is busy: reading twice is always safe."""
        for attempt in range(_BUSY_ATTEMPTS):
            try:
                return ask()
            except StoreBusy:
                self.runtime.sleep(_BUSY_PAUSE_S * 2**attempt * (0.5 + self.runtime.fraction()))
        return ask()

    def refresh(self, known: Snapshot) -> Snapshot:
        """The head, given a version that was the head once: one request if it still is.

        The shortcut is safe only while no manifest newer than `known` can have been removed. After
        that the chain may have a gap behind `known`, and the head is found by listing.
        """
        with self.service.asking_for_head():
            head = self._gallop(known) if self.storage.is_local else self._follow(known)
            if not known.confirmed_ms <= head.confirmed_ms <= known.confirmed_ms + TRUST_MS:
                head = self._find_head()
            self.check_same_table(known, head)
        return head

    def check_same_table(self, known: Snapshot, found: Snapshot) -> None:
        """Refuse to follow a chain into a table that was put in this one's place."""
        if found.manifest.table_uuid != known.manifest.table_uuid:
            raise CorruptTable(
                f"{self.storage.url} holds another table than before (its uuid has changed). "
                "Open the table again."
            )

    def _follow(self, known: Snapshot) -> Snapshot:
        """Read the next versions; whoever is far behind finds the head by listing."""
        head = known
        for _ in range(_READS_BEFORE_LISTING):
            try:
                head = self.load(head.manifest.version + 1, head)
            except ObjectMissing:
                return replace(head, confirmed_ms=self.storage.clock_ms())
        return self._find_head()

    def _gallop(self, known: Snapshot) -> Snapshot:
        """Where asking is cheap: double the step while versions exist, then halve it."""
        low, step = known.manifest.version, 1
        while self._exists(low + step):
            low += step
            step *= 2
        while step > 1:
            step //= 2
            if self._exists(low + step):
                low += step
        try:
            head = self.load(low, known) if low != known.manifest.version else known
        except ObjectMissing:
            return self._find_head()
        return replace(head, confirmed_ms=self.storage.clock_ms())

    def _exists(self, version: int) -> bool:
        try:
            self._patiently(lambda: self.storage.size(self.manifest_path(version)))
        except ObjectMissing:
            return False
        return True

    def largest_gc_marker(self) -> int:
        """Versions below this one may be gone; 0 if nothing was ever removed."""
        after = ""
        while name := self._first_name(self.gc_folder, after):
            version = paths.gc_marker_version(name)
            if version is not None:
                return version
            after = name
        return 0

    def at_version(self, version: int, head: Snapshot) -> Snapshot:
        """A version that readers may see, for time travel."""
        if version == head.manifest.version:
            return head
        if not 1 <= version < head.manifest.version:
            raise VersionNotFound(
                f"{self.storage.url} has versions up to {head.manifest.version}, not {version}"
            )
        try:
            found = self._load_older(version, head)
        except ObjectMissing:
            found = None
        # A name below the marker may be a stalled writer's, created after the version was removed.
        kept = head.manifest.lifecycle
        is_gone = version < self.largest_gc_marker() and version not in kept.tagged
        if found is None or is_gone or not kept.keeps(version):
            raise VersionNotFound(
                f"{self.storage.url} no longer keeps version {version}; its head is "
                f"{head.manifest.version}"
            )
        if found.manifest.table_uuid != head.manifest.table_uuid:
            raise CorruptTable(f"version {version} of {self.storage.url} is of another table")
        return found

    def _load_older(self, version: int, head: Snapshot) -> Snapshot:
        """A version below the head, from a faster tier if the head's history names its commit."""
        record = next((r for r in head.manifest.history if r.version == version), None)
        if record is None:
            return self.load(version)
        commit_id, table_uuid = record.commit_id, head.manifest.table_uuid
        return self.service.get_or_load_document(
            self.manifest_path(version),
            commit_id,
            read=lambda: self._read(version),
            decode=lambda data: self._decode(data, version),
            is_right=lambda found: (
                found.manifest.commit.commit_id == commit_id
                and found.manifest.table_uuid == table_uuid
            ),
        )

    def as_of(self, timestamp_ms: int, head: Snapshot) -> Snapshot:
        """The version that was the head at this time: by recent history, else by halving."""
        if head.manifest.commit.committed_at <= timestamp_ms:
            return head
        for record in head.manifest.history:
            if record.committed_at <= timestamp_ms:
                return self.at_version(record.version, head)
        # Versions that are given up may not have a marker yet, if the removal was broken off.
        oldest = max(1, self.largest_gc_marker(), head.manifest.lifecycle.oldest_version)
        low, high = oldest - 1, head.manifest.history[-1].version
        found: Snapshot | None = None
        while high - low > 1:
            middle = (low + high) // 2
            snapshot = self.at_version(middle, head)
            if snapshot.manifest.commit.committed_at <= timestamp_ms:
                found, low = snapshot, middle
            else:
                high = middle
        if found is None:
            raise VersionNotFound(
                f"{self.storage.url} keeps no version as old as {timestamp_ms} ms"
            )
        return found
