"""A write-ahead log in an object store, for producers without a disk of their own.

Records are gathered in memory; one thread stores what was gathered as one object, so that all
appends that wait meanwhile share the next one. An object is a whole log file with a name of its
own, is created once and never changed. Nobody waits for the store under the writer's lock.

There is no lock between processes: each opens an incarnation of its own, which is in every name,
and the claim in the table's manifest decides whose records count.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.tableformat.errors import (
    AccessDenied,
    LogFailed,
    ObjectMissing,
    StorageFailed,
)
from strandline.tableformat.redaction import redact
from strandline.writers.log import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.storage import Storage
    from strandline.writers.log import LogOptions
    from strandline.writers.wal_frames import LogHeader

LOG: Final = logging.getLogger("strandline.writer")
LINGER_S: Final = 1.0
"""Records that nobody waits for (`ack="buffered"`) are stored this soon."""
GIVE_UP_S: Final = 30.0
"""How long a store may refuse one object before those who wait for it are told."""
READ_AHEAD: Final = 16
"""Objects that recovery reads at the same time."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 5.0
_HOPELESS: Final = (AccessDenied, ObjectMissing)
"""Failures that waiting does not mend."""

T = TypeVar("T")


class ObjectFolder:
    """The objects of a log, found again after a crash."""

    def __init__(self, storage: Storage, give_up_s: float = GIVE_UP_S) -> None:
        self.storage, self._give_up_s = storage, give_up_s
        self.where = storage.url
        self._names: list[str] = []
        self._ahead: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """The log's objects, in order."""
        found = self._patiently(lambda: self.storage.list(""))
        self._names = [name for name in found if name.endswith(SUFFIX)]
        return list(self._names)

    def read(self, name: str) -> bytes:
        """One object. The following ones are fetched with it: a log is many small objects."""
        if name not in self._ahead:
            at = self._names.index(name)
            wanted = self._names[at : at + READ_AHEAD]
            with ThreadPoolExecutor(len(wanted), "strandline-recover") as pool:
                self._ahead = dict(zip(wanted, pool.map(self._fetch, wanted), strict=True))
        return self._ahead.pop(name)

    def _fetch(self, name: str) -> bytes:
        return self._patiently(lambda: self.storage.read(name))

    def remove(self, names: list[str]) -> None:
        """Remove objects whose records are in the table, in any order: all or some."""
        if names:
            self._patiently(lambda: self.storage.delete(names))

    def release(self) -> None:
        """Nothing is held: the manifest keeps two processes apart."""

    def _patiently(self, call: Callable[[], T]) -> T:
        until = time.monotonic() + self._give_up_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return call()
            except StorageFailed as error:
                if isinstance(error, _HOPELESS) or time.monotonic() + pause_s > until:
                    raise LogFailed(
                        f"the write-ahead log in {self.where} cannot be used: {error}"
                    ) from error
            time.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


@dataclass(slots=True)
class _Group:
    """Records that become one object."""

    header: LogHeader
    last_record: int
    tried_at: float
    """When it was begun, or tried in vain."""
    frames: bytearray = field(default_factory=bytearray)
    frozen: bool = False
    """Its upload was tried: the bytes under its name must stay what they are."""

    @property
    def name(self) -> str:
        return f"{self.header.incarnation}-{self.header.first_record:020d}{SUFFIX}"


class ObjectLog:
    """The log of one incarnation of a writer. `_turn` guards everything below it."""

    must_sync = True
    """A record is in memory until its object is stored."""

    def __init__(
        self,
        folder: ObjectFolder,
        options: LogOptions,
        *,
        linger_s: float = LINGER_S,
        give_up_s: float = GIVE_UP_S,
    ) -> None:
        self._folder, self._storage = folder, folder.storage
        self.where = folder.where
        self._buffer_size = options.buffer_size
        self._linger_s, self._give_up_s = linger_s, give_up_s
        self._turn = threading.Condition()
        self._header: LogHeader | None = None
        self._groups: deque[_Group] = deque()
        """Not stored yet, oldest first; the last one takes records unless it is frozen."""
        self._objects: list[tuple[str, int]] = []
        """Those that may be stored, each with its last record."""
        self._uploading: str | None = None
        self._wanted = self._stored = self._committed = 0
        """The newest record somebody waits for, that is stored, that is in the table."""
        self._failed_until = 0
        """Waiting for a record up to this one was in vain, because of `_error`."""
        self._error: StorageFailed | None = None
        self._closing = self._ended = False
        self._bytes = self._syncs = 0
        self._thread = threading.Thread(target=self._run, name="strandline-wal", daemon=True)
        self._thread.start()

    # --- the writer's side ---

    def begin(self, header: LogHeader) -> None:
        """Later records go to objects of their own; what was gathered is stored in its turn."""
        with self._turn:
            if self._groups:
                self._groups[-1].frozen = True
            self._header = header

    def write(self, frame: bytes, record: int) -> None:
        with self._turn:
            if self._groups and not self._groups[-1].frozen:
                group = self._groups[-1]
                group.last_record = record
            else:
                assert self._header is not None
                header = replace(self._header, first_record=record)
                group = _Group(header, record, time.monotonic())
                self._groups.append(group)
                self._turn.notify_all()
            group.frames += frame
            if len(group.frames) >= self._buffer_size:
                self._want(record)

    def flush(self) -> None:
        """Store what was gathered soon; whoever needs to know waits with `sync_until`."""
        with self._turn:
            if self._groups:
                self._want(self._groups[-1].last_record)

    def _want(self, record: int) -> None:
        if record > self._wanted:
            self._wanted = record
            self._turn.notify_all()

    def sync_until(self, record: int) -> None:
        """Return once the record's object is stored (or its rows are in the table)."""
        with self._turn:
            self._want(record)
            while max(self._stored, self._committed) < record:
                if self._failed_until >= record or self._ended:
                    raise LogFailed(
                        f"the write-ahead log in {self.where} could not be stored: "
                        f"{self._error or 'the writer was closed'}. The rows are not acknowledged: "
                        "this writer goes on trying to commit them while it lives, so look "
                        "whether they arrived before you send them again."
                    ) from self._error
                self._turn.wait()

    # --- the uploading thread ---

    def _run(self) -> None:
        try:
            while self.step():
                pass
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()

    def step(self) -> bool:
        """Store the next object, waiting for one; False when there is nothing more to do."""
        group = self._next_group()
        if group is None:
            return False
        data = group.header.encode() + bytes(group.frames)
        wanted = self._wanted
        error = self._store(group.name, data)
        with self._turn:
            self._uploading = None
            if error is None:
                self._stored = group.last_record
                self._bytes += len(group.frames)
                self._syncs += 1
                if self._groups and self._groups[0] is group:
                    self._groups.popleft()
            else:
                # All who waited when the try began are told; later ones have it tried again.
                self._error, self._failed_until = error, max(wanted, group.last_record)
                group.tried_at = time.monotonic()
            self._turn.notify_all()
            return error is None or not self._closing

    def _next_group(self) -> _Group | None:
        """The group to be stored next, once it is time; None when the log is closed."""
        with self._turn:
            while True:
                if self._closing and not self._groups:
                    return None
                wait_s = None
                if self._groups:
                    wait_s = self._seconds_until_due(self._groups[0])
                    if wait_s <= 0:
                        return self._freeze(self._groups[0])
                self._turn.wait(wait_s)

    def _seconds_until_due(self, group: _Group) -> float:
        if self._closing or self._wanted > max(self._stored, self._failed_until):
            return 0.0
        return group.tried_at + self._linger_s - time.monotonic()

    def _freeze(self, group: _Group) -> _Group:
        group.frozen = True
        self._uploading = group.name
        # It may be stored from here on, also if we never hear so: pruning must remove it.
        if all(name != group.name for name, _ in self._objects):
            self._objects.append((group.name, group.last_record))
        return group

    def _store(self, name: str, data: bytes) -> StorageFailed | None:
        """Create the object, with patience. A name that exists is our own earlier try."""
        until = time.monotonic() + self._give_up_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._storage.put_if_absent(name, data)
            except StorageFailed as error:
                late = self._closing or time.monotonic() + pause_s > until
                if late or isinstance(error, _HOPELESS):
                    return error
                LOG.warning("the log will be stored again in %.2f s: %s", pause_s, error)
            except Exception as error:  # noqa: BLE001 - told to those who wait, who would hang
                return StorageFailed(redact(f"{type(error).__name__}: {error}"))
            else:
                return None
            with self._turn:
                self._turn.wait_for(lambda: self._closing, pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    # --- leaving ---

    def prune(self, record: int) -> None:
        """Remove what is in the table now, stored or not. Talks to the store."""
        with self._turn:
            self._committed = max(self._committed, record)
            while (
                self._groups
                and self._groups[0].last_record <= record
                and self._groups[0].name != self._uploading
            ):
                self._groups.popleft()
            done = {n for n, last in self._objects if last <= record and n != self._uploading}
            self._turn.notify_all()
        self._folder.remove(sorted(done))
        with self._turn:
            self._objects = [entry for entry in self._objects if entry[0] not in done]

    def stats(self) -> dict[str, int]:
        with self._turn:
            return {
                "wal_bytes": self._bytes,
                "wal_syncs": self._syncs,
                "wal_files": len(self._objects),
            }

    def close(self, *, finished: bool = False) -> None:
        with self._turn:
            if finished:
                for group in list(self._groups):
                    if group.name != self._uploading:
                        self._groups.remove(group)
            self._closing = True
            self._turn.notify_all()
        self._thread.join()
        if finished:
            self._folder.remove([name for name, _ in self._objects])
            self._objects = []
        elif self._groups:
            raise LogFailed(
                f"records {self._groups[0].header.first_record} to "
                f"{self._groups[-1].last_record} could not be stored in the write-ahead log in "
                f"{self.where}: {self._error}"
            )

    def disown(self) -> None:
        self._turn = threading.Condition()
        self._groups.clear()
        self._ended = True
