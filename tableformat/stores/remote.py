"""What all object stores share: calls on fsspec's event loop, retries, and what an answer means.

A store's own module names its few calls (`_get`, `_put`, `_create`, …) and reads the status of an
error; this module decides what follows from it. The libraries' own retries are switched off where
they can be: after a retry that nobody told us of, "503, nothing happened" may be false, because an
attempt before it may have happened.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.tableformat.errors import (
    AccessDenied,
    ObjectMissing,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
    UnsupportedStore,
)
from strandline.tableformat.redaction import guard_loggers, redact
from strandline.tableformat.storage import (
    Blobs,
    Names,
    PendingWrite,
    Put,
    Storage,
    open_storage,
)
from strandline.tableformat.stores.background import Pending
from strandline.tableformat.stores.urls import check_path, folder_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
    from concurrent.futures import Future
    from datetime import datetime

    from strandline.tableformat.storage import Data
    from strandline.tableformat.stores.ranges import Span
    from strandline.tableformat.stores.urls import Place

S = TypeVar("S")
T = TypeVar("T")

RETRY_DELAYS_S = (0.0, 0.1, 0.4, 1.0)
"""Upper bounds of the jittered waits before a read, list, delete or plain write is tried again."""

LARGE_OBJECT = 64 * 1024 * 1024
"""Above this a plain write is split into parts by the library."""

PARALLEL_READS = 16

_TRY_LATER = frozenset({408, 409, 429, 500, 502, 503, 504})
_NOT_DONE = frozenset({409, 429, 503})
"""The answers to a conditional write that mean: try again, and nothing happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A library's error, reduced to what decides how to go on."""

    status: int | None
    """The HTTP status; None when no answer came."""

    text: str
    """The library's words, cleaned of secrets."""

    code: str = ""
    """The store's own name for the error."""

    date: str | None = None
    """The reply's Date header: an error also tells the store's time."""

    never_sent: bool = False
    """The library gave up before it sent anything, for example without credentials."""

    retried: bool = False
    """The library tried more than once, so an earlier attempt may have happened."""

    root_missing: bool = False
    """The bucket or container itself does not exist."""


class Call:
    """One call from a caller's thread: the open filesystem, and the store's time in the reply."""

    __slots__ = ("clock_ms", "fs")

    def __init__(self, fs: Any) -> None:
        self.fs = fs
        self.clock_ms = 0

    def saw(self, date: str | None) -> None:
        """Keep the time in a reply's Date header."""
        try:
            self.clock_ms = int(parsedate_to_datetime(date or "").timestamp() * 1000)
        except ValueError:
            return


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list request."""

    entries: list[tuple[str, int]]
    next_token: str | None


class RemoteStorage(Storage):
    """A prefix in a bucket, reached through an asynchronous fsspec filesystem."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        self._bucket = place.bucket
        self._prefix = f"{place.path}/" if place.path else ""
        self.url = f"{place.scheme}://{place.bucket}/{place.path}".rstrip("/")
        self._options = options
        self._pool_key = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()
        self._clocks = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_storage, (self.url, self._options)

    @property
    def probe_key(self) -> str:
        """Return the bucket and how it is reached."""
        return f"{type(self).__name__} {self._bucket} {self._pool_key}"

    # --- what a store's module provides; all may raise whatever its library raises ---

    @abstractmethod
    def _open_filesystem(self, options: dict[str, Any]) -> Any:
        """Import the library and make a filesystem; nothing is sent."""

    @abstractmethod
    async def _get(self, call: Call, key: str, start: int, length: int | None) -> bytes:
        """Fetch an object, or what exists of a range of it."""

    @abstractmethod
    async def _head(self, call: Call, key: str) -> int:
        """Return an object's size."""

    @abstractmethod
    async def _modified(self, call: Call, key: str) -> datetime:
        """Return when an object was written."""

    @abstractmethod
    async def _list_page(
        self,
        call: Call,
        prefix: str,
        *,
        flat: bool,
        after: str,
        limit: int | None,
        token: str | None,
    ) -> Page:
        """List keys with a prefix, in order; `flat` leaves out what lies in deeper folders."""

    @abstractmethod
    async def _put(self, call: Call, key: str, data: bytes) -> None:
        """Write an object, in parts if it is large."""

    @abstractmethod
    async def _create(self, call: Call, key: str, data: bytes) -> None:
        """Write an object with one request, on the condition that none exists."""

    @abstractmethod
    async def _remove(self, call: Call, keys: Sequence[str]) -> None:
        """Delete objects; absent ones are fine."""

    @abstractmethod
    def _fault(self, error: Exception) -> Fault:
        """Reduce the library's error."""

    def _says_exists(self, fault: Fault) -> bool:
        """Whether a failed create means that the object exists."""
        return fault.status == 412  # noqa: PLR2004 - Precondition Failed

    # --- reading ---

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._do("read", path, lambda call: self._get(call, key, 0, None))

    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        def fetch(call: Call, key: str, span: Span) -> Awaitable[bytes]:
            return self._get(call, key, span.start, span.length)

        found: Blobs = self._read_all([(span.path, span) for span in spans], fetch)
        return found

    def read_each(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        def fetch(call: Call, key: str, _: None) -> Awaitable[bytes]:
            return self._get(call, key, 0, None)

        found: Sequence[bytes | None]
        found = self._read_all([(path, None) for path in paths], fetch, may_miss=True)
        return found

    def written_ms(self, paths: Sequence[str]) -> Sequence[int | None]:
        def ask(call: Call, key: str, _: None) -> Awaitable[datetime]:
            return self._modified(call, key)

        dates = self._read_all([(path, None) for path in paths], ask, may_miss=True)
        return [None if date is None else _ms(date) for date in dates]

    def _read_all(
        self,
        wanted: Sequence[tuple[str, S]],
        ask: Callable[[Call, str, S], Awaitable[T]],
        *,
        may_miss: bool = False,
    ) -> Any:
        """Answers in a list, in the order of the questions, several under way at a time."""
        keys = [self._key(path) for path, _ in wanted]

        async def ask_all(call: Call) -> Any:
            turns = asyncio.Semaphore(PARALLEL_READS)

            async def one(key: str, path: str, more: S) -> T | None:
                async with turns:
                    try:
                        return await self._retrying("read", path, call, lambda c: ask(c, key, more))
                    except ObjectMissing:
                        if not may_miss:
                            raise
                        return None

            asked = (one(key, *what) for key, what in zip(keys, wanted, strict=True))
            return [*await asyncio.gather(*asked)]

        return self._run(ask_all) if wanted else []

    def size(self, path: str) -> int:
        key = self._key(path)
        return self._do("read", path, lambda call: self._head(call, key))

    def modified_ms(self, path: str) -> int:
        key = self._key(path)
        written = self._do("read", path, lambda call: self._modified(call, key))
        return _ms(written)

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        folder = self._folder(prefix)
        names: Names = []
        if limit is not None and limit <= 0:
            return names
        for key, _ in self._keys(folder, flat=True, after=start_after, limit=limit):
            name = key[len(folder) :]
            if name and "/" not in name and name > start_after:
                names.append(name)
            if len(names) == limit:
                break
        return names

    def folders(self, prefix: str) -> Iterator[str]:
        folder, after = self._folder(prefix), ""
        while True:
            # One key names its folder; the next search begins behind all that lies in it.
            found = self._first_folder(folder, after)
            if found is None:
                return
            yield found
            after = found + "0"  # the character after "/"

    def _first_folder(self, folder: str, after: str) -> str | None:
        for key, _ in self._keys(folder, flat=False, after=after, limit=1):
            name = key[len(folder) :]
            if "/" in name and name > after:
                return name.partition("/")[0]
        return None

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        for key, size in self._keys(self._folder(prefix), flat=False, after="", limit=None):
            if not key.endswith("/"):  # a folder marker that some console made
                yield key[len(self._prefix) :], size

    def _keys(
        self, folder: str, *, flat: bool, after: str, limit: int | None
    ) -> Iterator[tuple[str, int]]:
        token: str | None = None
        while True:

            async def list_page(call: Call, token: str | None = token) -> Page:
                return await self._list_page(
                    call, folder, flat=flat, after=after, limit=limit, token=token
                )

            page = self._do("list", folder[len(self._prefix) :] or self.url, list_page)
            yield from page.entries
            token = page.next_token
            if not token:
                return

    # --- writing ---

    def write_new(self, path: str, data: Data) -> PendingWrite:
        key = self._key(path)
        body = data if isinstance(data, bytes) else bytes(memoryview(data))
        call = Call(self._filesystem())
        upload = self._retrying("write", path, call, lambda c: self._put(c, key, body))
        return Pending(path, _start(call, upload))

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        key = self._key(path)
        body = bytes(data)
        for pending in after:
            pending.wait()

        async def create(call: Call) -> Put:
            try:
                await self._create(call, key, body)
            except Exception as error:  # noqa: BLE001 - every library has its own; none is lost
                fault = self._fault(error)
                call.saw(fault.date)
                if self._says_exists(fault):
                    return Put.EXISTS
                raise _create_failure(fault, path, self.url) from None
            return Put.CREATED

        return self._run(create)

    def delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        if keys:
            self._do("delete", f"{len(keys)} objects", lambda call: self._remove(call, keys))

    # --- time ---

    def clock_ms(self) -> int:
        """Return the time in the last reply to this thread; before the first, our own clock."""
        seen: int = getattr(self._clocks, "ms", 0)
        return seen or int(time.time() * 1000)

    # --- calls ---

    def _do(self, verb: str, what: str, operation: Callable[[Call], Awaitable[T]]) -> T:
        return self._run(lambda call: self._retrying(verb, what, call, operation))

    def _run(self, operation: Callable[[Call], Coroutine[Any, Any, T]]) -> T:
        call = Call(self._filesystem())
        try:
            return _start(call, operation(call)).result()
        finally:
            if call.clock_ms:
                self._clocks.ms = call.clock_ms

    async def _retrying(
        self, verb: str, what: str, call: Call, operation: Callable[[Call], Awaitable[T]]
    ) -> T:
        """Repeat what may safely be repeated while the store is busy or does not answer."""
        for delay_s in (*RETRY_DELAYS_S, None):
            try:
                return await operation(call)
            except Exception as error:  # noqa: BLE001 - every library has its own; none is lost
                fault = self._fault(error)
                call.saw(fault.date)
                no_answer = fault.status is None and not fault.never_sent
                if delay_s is None or not (no_answer or fault.status in _TRY_LATER):
                    raise _failure(fault, verb, what, self.url) from None
            await asyncio.sleep(random.uniform(0, delay_s))  # noqa: S311 - jitter
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _filesystem(self) -> Any:
        return _pooled((os.getpid(), type(self), self._pool_key), self._new_filesystem)

    def _new_filesystem(self) -> Any:
        try:
            fs = self._open_filesystem(
                {**self._options, "skip_instance_cache": True, "use_listings_cache": False}
            )
        except (StorageFailed, UnsupportedStore):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library makes of the options
            raise StorageFailed(
                f"cannot open {self.url} with these storage_options: {clean_text(error)}"
            ) from None
        guard_loggers()
        return fs

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _folder(self, prefix: str) -> str:
        folder = folder_path(prefix)
        return f"{self._prefix}{folder}/" if folder else self._prefix


def clean_text(error: BaseException) -> str:
    """Return an error's words in one bounded line without secrets."""
    words = " ".join(redact(str(error)).split())
    return f"{type(error).__name__}: {words[:400]}" if words else type(error).__name__


def missing_package(package: str, extra: str) -> UnsupportedStore:
    """Return the error for a store whose package is not installed."""
    return UnsupportedStore(
        f"this URL needs the package {package}: pip install 'strandline[{extra}]'"
    )


def _ms(date: datetime) -> int:
    return int(date.timestamp() * 1000)


def _start(call: Call, work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, call.fs.loop)


def _failure(fault: Fault, verb: str, what: str, url: str) -> StorageFailed:
    text = f"cannot {verb} {what}: {_reason(fault)}"
    if fault.root_missing:
        return StorageFailed(f"{text}. Create the bucket of {url}, or check its name.")
    if fault.status == 404:  # noqa: PLR2004 - Not Found, the only "absent"
        return ObjectMissing(f"{what} does not exist")
    return _common_failure(fault, text) or StorageFailed(text)


def _create_failure(fault: Fault, path: str, url: str) -> StorageFailed | UnsupportedStore:
    """Say whether a create that failed is known not to have happened."""
    text = f"cannot create {path}: {_reason(fault)}"
    if fault.never_sent:
        return _common_failure(fault, text) or StorageFailed(text)
    answered_no = fault.status is not None and (
        fault.status < 500 or fault.status in {501, 503}  # noqa: PLR2004 - server errors
    )
    if fault.retried or not answered_no or fault.status == 408:  # noqa: PLR2004 - Timeout
        return OutcomeUnclear(f"{path} may or may not have been created: {_reason(fault)}")
    if fault.status == 501:  # noqa: PLR2004 - Not Implemented
        return UnsupportedStore(
            f"the store of {url} does not know conditional writes ({_reason(fault)}), so two "
            "writers could overwrite each other. Nothing was changed."
        )
    if fault.status in _NOT_DONE:
        return StoreBusy(text)
    if fault.root_missing or fault.status == 404:  # noqa: PLR2004 - Not Found
        return StorageFailed(f"{text}. Create the bucket of {url}, or check its name.")
    return _common_failure(fault, text) or StorageFailed(text)


def _common_failure(fault: Fault, text: str) -> StorageFailed | None:
    if fault.status in {401, 403}:
        return AccessDenied(text)
    return StoreBusy(text) if fault.status in _TRY_LATER else None


def _reason(fault: Fault) -> str:
    words = [str(fault.status)] if fault.status else []
    return " ".join([*words, fault.text])


# --- one filesystem per process and set of options ---

_POOL_SIZE = 16
_pool: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_pool_lock = threading.Lock()


def _pooled(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return a filesystem that is already open: a client takes 100 ms to make, and connections.

    The process id is part of the key because an asynchronous filesystem does not survive a fork.
    """
    with _pool_lock:
        fs = _pool.get(key)
        if fs is None:
            fs = _pool[key] = make()
            mine = [other for other in _pool if other[0] == key[0]]
            if len(mine) > _POOL_SIZE:
                del _pool[mine[0]]
        _pool.move_to_end(key)
        return fs


def _after_fork() -> None:
    """Give the child a fresh lock: a thread that held the old one does not exist there."""
    global _pool_lock  # noqa: PLW0603 - replaced as a whole
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
