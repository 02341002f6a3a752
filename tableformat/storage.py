"""The one door to files: what a commit needs from a store, and how a URL becomes one.

Everything above this module speaks of paths relative to the table root. Metadata is written by
strangers, so a path is checked here once more before it is joined to the root, and no string
from metadata ever names a store.

fsspec alone does not do: its default `pipe_file(mode="create")` asks exists() and then writes, so
two writers can both win. Each backend in `stores/` therefore names its own atomic create, and the
shared tests race it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from strandline.tableformat.errors import InvalidInput, ObjectMissing, UnsupportedStore
from strandline.tableformat.redaction import register_secrets
from strandline.tableformat.stores.ranges import (
    MAX_GAP,
    MAX_SPAN,
    Span,
    plan_spans,
    take_ranges,
)
from strandline.tableformat.stores.urls import folder_path, parse_url

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    Data: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

Names: TypeAlias = list[str]
Blobs: TypeAlias = list[bytes]
T = TypeVar("T")

MANIFEST_FOLDER = "_strandline/manifests"


class Put(Enum):
    """How an exclusive create ended."""

    CREATED = "created"
    EXISTS = "exists"
    """Some object has the name. It may be our own, by a retry below us: read it and compare."""


class PendingWrite(Protocol):
    """A write that was started and may not be durable yet."""

    def wait(self) -> None:
        """Return once the object is durable, or raise what went wrong; may be called again."""


class AppendFile(Protocol):
    """A file that grows, shared with other processes."""

    def append(self, data: bytes, sound_bytes: Callable[[bytes], int]) -> None:
        """Add bytes whole or not at all; `sound_bytes` says how much of what others left is whole.

        They survive this process. `StorageFailed`: nothing was added.
        """

    def close(self) -> None: ...


class Storage(ABC):
    """The objects below one table root.

    Errors are `StorageFailed` kinds: `ObjectMissing` only when the store said so, `AccessDenied`,
    `StoreBusy` (try again later, nothing happened) and, for writes, `OutcomeUnclear`.
    """

    url: str
    """The table root as it may be shown; never holds credentials."""

    is_local: bool = False

    max_gap: int = MAX_GAP
    max_span: int = MAX_SPAN
    """Which neighbouring ranges are fetched together: see `ranges`."""

    can_append: bool = False
    """Whether files can grow; where they cannot, logs are kept as numbered objects."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    # --- reading ---

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the whole object."""

    def read_ranges(self, requests: Sequence[tuple[str, int, int]]) -> Blobs:
        """Return the bytes of each (path, start, length), in the order of the requests.

        Neighbouring ranges of one object are fetched together. An object that ends before a
        range does is damaged: `CorruptTable`.
        """
        spans = plan_spans(requests, max_gap=self.max_gap, max_span=self.max_span)
        return take_ranges(requests, spans, self._read_spans(spans))

    @abstractmethod
    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        """Fetch each span; a short answer is allowed and noticed by the caller."""

    @abstractmethod
    def size(self, path: str) -> int:
        """Return the object's length in bytes."""

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """Return when the object was written, by the store's own clock."""

    def read_each(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        """Return whole objects, None for each that is not there; many at once where that helps."""
        return [_unless_missing(self.read, path) for path in paths]

    def written_ms(self, paths: Sequence[str]) -> Sequence[int | None]:
        """Return `modified_ms` of each, None for each that is not there; likewise."""
        return [_unless_missing(self.modified_ms, path) for path in paths]

    def abort_uploads(self, older_than_ms: int) -> int:
        """End uploads in parts that began before a time of the store's clock; gives their number.

        Stores without such uploads have none.
        """
        del older_than_ms
        return 0

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        """Return the sorted names of the objects directly in a folder ("" or "a/b/").

        A folder that does not exist has no names. With `start_after`, only greater names.
        """

    @abstractmethod
    def folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly in a folder, in any order, as they are found.

        What lies in them is not looked at, so this costs the same however much it is.
        """

    @abstractmethod
    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield (path, size) of every object below a folder, at any depth, in any order.

        Paths are relative to the table root. Unlike `list`, this also shows temporary files that
        a crash left behind, because it is how garbage is found.
        """

    # --- writing ---

    @abstractmethod
    def write_new(self, path: str, data: Data) -> PendingWrite:
        """Start writing an object whose name was never used; `data` must not change meanwhile."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        """Create the object atomically and durably, unless one of this name exists.

        Nothing becomes visible before every write in `after` is durable; if one of them fails,
        its error is raised and nothing was created. `OutcomeUnclear`: it may have been created.
        """

    def open_append(self, path: str) -> AppendFile:
        """Open a file to add to, made with its folders if it is new; see `can_append`."""
        raise UnsupportedStore(f"{self.url} cannot add to {path}: its store has whole objects only")

    def read_growing(self, path: str) -> bytes:
        """Return a file that others may be adding to, without a write that is under way."""
        return self.read(path)

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Remove the objects; one that is absent is fine."""

    def remove_empty_folders(self, prefix: str) -> None:
        """Remove folders below and including `prefix` that hold nothing, where folders exist.

        Only for a folder that no writer will use again, such as an expired window: writers
        remember which folders they have made durable.
        """
        folder_path(prefix)

    # --- time and courtesy ---

    @abstractmethod
    def clock_ms(self) -> int:
        """Return the store's own time at the last reply this thread received."""

    def commit_lock(self, timeout_s: float = 1.0) -> AbstractContextManager[bool]:
        """Queue up with other processes before a create, where that is cheap; never required.

        Yields whether the lock was taken. The create decides in either case.
        """
        del timeout_s
        return nullcontext(enter_result=False)

    @property
    def probe_key(self) -> str:
        """Name what a probe of this storage proves something about, such as the bucket."""
        return self.url


def open_storage(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> Storage:
    """Return the storage of a table root; nothing is read or written yet.

    `storage_options` go to the fsspec filesystem of the store (such as s3fs) as they are.
    """
    options = _checked_options(storage_options)
    register_secrets(options)
    place = parse_url(url)
    # An optional package is imported only by the backend that needs it.
    backend = import_module(f"strandline.tableformat.stores.{place.backend}")
    return cast("Storage", backend.open_place(place, options))


def _unless_missing(ask: Callable[[str], T], path: str) -> T | None:
    try:
        return ask(path)
    except ObjectMissing:
        return None


def _checked_options(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy, so that the caller may change the mapping afterwards."""
    if storage_options is None:
        return {}
    if not isinstance(storage_options, Mapping):
        raise InvalidInput(f"storage_options is a dict, not {type(storage_options).__name__}")
    if not all(isinstance(key, str) for key in storage_options):
        raise InvalidInput("storage_options has a key that is not a string")
    return dict(storage_options)
