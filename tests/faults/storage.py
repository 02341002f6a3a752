"""A storage that numbers every operation and lets chosen ones go wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.tableformat.errors import (
    AccessDenied,
    OutcomeUnclear,
    StorageFailed,
    StoreBusy,
)
from strandline.tableformat.storage import Blobs, Names, PendingWrite, Put, Storage
from tests.faults.kinds import Fault, Kind, Landing, SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from strandline.tableformat.storage import Data
    from strandline.tableformat.stores.ranges import Span

T = TypeVar("T")
_DELAYED = frozenset({Kind.LAND_LATE, Kind.CRASH_IN_FLIGHT})
_READS = frozenset({"read", "read_ranges", "size", "list", "folders", "walk"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of a trace."""

    number: int
    kind: str
    path: str
    fault: str

    def __str__(self) -> str:
        return f"{self.number:3} {self.kind} {self.path} {self.fault}".rstrip()


class FaultyStorage(Storage):
    """What one process sees of a store, operation by operation.

    `faults` says which numbered operations go wrong and how; `hooks` are called before the
    operation of their number, which is how another process gets its turn there. A data file
    reaches the store when it is waited for and not before, so a commit that does not wait is
    found out. After a crash every further operation raises `SimulatedCrash`.
    """

    def __init__(
        self,
        inner: Storage,
        faults: Mapping[int, Fault] | None = None,
        *,
        hooks: Mapping[int, Callable[[], None]] | None = None,
        clock_ms: Callable[[], int] | None = None,
        is_local: bool | None = None,
    ) -> None:
        """Wrap a store; `is_local` makes writers follow the rules for disks on any store."""
        self.url = inner.url
        self.is_local = inner.is_local if is_local is None else is_local
        self.inner = inner
        self.faults = dict(faults or {})
        self.trace: list[Operation] = []
        self.hooks = dict(hooks or {})
        self._clock_ms = clock_ms or inner.clock_ms
        self._late: list[tuple[int | Landing, Callable[[], object]]] = []
        self._crashed = False

    # --- numbering ---

    def _begin(self, kind: str, path: str) -> Fault | None:
        """Number an operation and say what happens to it."""
        if self._crashed:
            raise SimulatedCrash
        number = len(self.trace)
        fault = next((f for n, f in self.faults.items() if n <= number < n + f.times), None)
        self.trace.append(Operation(number, kind, path, "" if fault is None else str(fault)))
        self._land(lambda due: isinstance(due, int) and due <= number)
        if number in self.hooks:
            self.hooks[number]()
        if fault is not None and fault.kind is Kind.CRASH_BEFORE:
            self.crash()
        return fault

    def crash(self) -> None:
        """End this process."""
        self._crashed = True
        raise SimulatedCrash

    def restart(self) -> None:
        """Let everything arrive that is still on its way when the process starts again."""
        self._land(lambda due: due is not Landing.AFTER_REOPEN)

    def reopened(self) -> None:
        """Let the rest arrive: the restarted process has read the head."""
        self._land(lambda _: True)

    def _land(self, is_due: Callable[[int | Landing], bool]) -> None:
        due = [write for when, write in self._late if is_due(when)]
        self._late = [(when, write) for when, write in self._late if not is_due(when)]
        for write in due:
            with suppress(StorageFailed):  # nobody is left to hear of it
                write()

    def _operate(self, kind: str, path: str, act: Callable[[], T]) -> T:
        fault = self._begin(kind, path)
        return self._finish(fault, kind, path, act)

    def _finish(self, fault: Fault | None, kind: str, path: str, act: Callable[[], T]) -> T:
        if fault is None:
            return act()
        what = f"{kind} {path}"
        if fault.kind is Kind.FAIL_BEFORE:
            raise StorageFailed(f"injected: {what} was refused")
        if fault.kind is Kind.THROTTLE:
            raise StoreBusy(f"injected: {what}: the store answers {fault.code}")
        if fault.kind is Kind.DENY:
            raise AccessDenied(f"injected: {what}: the store answers 403")
        if fault.kind in _DELAYED and kind not in _READS:
            lands = fault.lands
            due = len(self.trace) + lands if isinstance(lands, int) else lands
            self._late.append((due, act))
            if fault.kind is Kind.CRASH_IN_FLIGHT:
                self.crash()
            raise OutcomeUnclear(f"injected: no reply to {what}, which is on its way")
        result = act()
        if fault.kind is Kind.CRASH_AFTER:
            self.crash()
        if fault.kind is Kind.LOSE_REPLY:
            lost = StorageFailed if kind in _READS else OutcomeUnclear
            raise lost(f"injected: the reply to {what} was lost")
        return result

    # --- reading ---

    def read(self, path: str) -> bytes:
        return self._operate("read", path, lambda: self.inner.read(path))

    def read_ranges(self, requests: Sequence[tuple[str, int, int]]) -> Blobs:
        names = ",".join(path for path, _, _ in requests)
        return self._operate("read_ranges", names, lambda: self.inner.read_ranges(requests))

    def _read_spans(self, spans: Sequence[Span]) -> Blobs:
        raise AssertionError(f"read_ranges is answered by the store below, not {spans}")

    def size(self, path: str) -> int:
        return self._operate("size", path, lambda: self.inner.size(path))

    def modified_ms(self, path: str) -> int:
        return self._operate("size", path, lambda: self.inner.modified_ms(path))

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Names:
        return self._operate(
            "list", prefix, lambda: self.inner.list(prefix, start_after=start_after, limit=limit)
        )

    def folders(self, prefix: str) -> Iterator[str]:
        return iter(self._operate("folders", prefix, lambda: [*self.inner.folders(prefix)]))

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        return iter(self._operate("walk", prefix, lambda: [*self.inner.walk(prefix)]))

    # --- writing ---

    def write_new(self, path: str, data: Data) -> PendingWrite:
        fault = self._begin("write_new", path)

        def write() -> None:
            self.inner.write_new(path, data).wait()

        if fault is not None and fault.kind in (Kind.CRASH_AFTER, Kind.CRASH_IN_FLIGHT):
            # Nobody will wait any more.
            self._finish(fault, "write_new", path, write)
        return _Write(self, path, lambda: self._finish(fault, "write_new", path, write))

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        fault = self._begin("put_if_absent", path)
        if fault is not None and fault.kind in _DELAYED:
            for pending in after:
                pending.wait()
            after = ()
        return self._finish(
            fault,
            "put_if_absent",
            path,
            lambda: self.inner.put_if_absent(path, data, after=after),
        )

    def delete(self, paths: Sequence[str]) -> None:
        self._operate("delete", ",".join(paths), lambda: self.inner.delete(paths))

    def abort_uploads(self, older_than_ms: int) -> int:
        return self._operate("abort_uploads", "", lambda: self.inner.abort_uploads(older_than_ms))

    def remove_empty_folders(self, prefix: str) -> None:
        if self._crashed:
            raise SimulatedCrash
        self.inner.remove_empty_folders(prefix)

    # --- time and courtesy ---

    def clock_ms(self) -> int:
        return self._clock_ms()

    def commit_lock(self, timeout_s: float = 1.0) -> AbstractContextManager[bool]:
        return self.inner.commit_lock(timeout_s)

    @property
    def probe_key(self) -> str:
        """Return a key of this process alone: what another has proven it does not know."""
        return f"faulty {id(self)}"


class _Write:
    """A data file on its way; it arrives when it is waited for, and its reply comes only then."""

    def __init__(self, storage: FaultyStorage, path: str, finish: Callable[[], Any]) -> None:
        self._storage, self._path, self._finish = storage, path, finish
        self._outcome: BaseException | None = None
        self._ended = False

    def wait(self) -> None:
        """Write the file, once; whoever waits again hears the same."""
        if not self._ended:
            fault = self._storage._begin("wait", self._path)  # noqa: SLF001 - its own
            self._ended = True
            try:
                self._finish()
            except StorageFailed as error:
                self._outcome = error
            if fault is not None and fault.kind is Kind.CRASH_AFTER:
                self._storage.crash()
        if self._outcome is not None:
            raise self._outcome
