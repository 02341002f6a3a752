"""One case's world: its store, a scripted clock, scripted chance, and the processes in it."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest

from strandline.catalog import user_chain
from strandline.catalog.page_cache import PAGES
from strandline.catalog.runtime import Runtime
from strandline.readers import read_ahead
from strandline.readers.index_reader import CACHE as INDEXES
from strandline.tableformat import rolling
from strandline.tableformat.stores import local, memory, probe
from strandline.tableformat.stores.background import run_now
from strandline.writers import append, rewriting
from tests.faults.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from strandline.tableformat.storage import Storage

START_MS = 1_800_000_000_000
_STORE = "faults"


class Clock:
    """Time that passes only when somebody looks at it or sleeps."""

    def __init__(self) -> None:
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        self._elapsed_ms += 1
        return START_MS + int(self._elapsed_ms)

    def peek_ms(self) -> int:
        return START_MS + int(self._elapsed_ms)

    def monotonic(self) -> float:
        self._elapsed_ms += 0.01
        return self._elapsed_ms / 1000

    def sleep(self, seconds: float) -> None:
        self._elapsed_ms += seconds * 1000


class World:
    """What all processes of a case share."""

    def __init__(self, seed: int, store: Storage, clock: Clock | None = None) -> None:
        self.seed = seed
        self.store = store
        """The store as it is, without faults."""
        self.clock = clock or Clock()
        self.ledger = Ledger()

    def runtime(self, process: str) -> Runtime:
        """Return the time and chance of one process: the same for the same seed and name."""
        chance = random.Random(f"{self.seed} {process}")
        return Runtime(
            now_ms=self.clock.now_ms,
            monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
            random_hex=lambda count: chance.randbytes(count).hex(),
            fraction=chance.random,
        )


class InlineExecutor:
    """A thread pool without threads: operations come in one order, so a seed gives one trace."""

    def __init__(self, threads: int = 1, name: str = "", *, thread_name_prefix: str = "") -> None:
        del threads, name, thread_name_prefix

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        return run_now(call, *args)

    def end(self) -> None: ...

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [call(item) for item in items]


def forget_everything() -> None:
    """Drop what a process keeps in memory, as a restart does."""
    PAGES.clear()
    INDEXES.clear()
    probe._proven.clear()  # noqa: SLF001 - what a new process has not proven yet


@contextmanager
def scripted(seed: int, thresholds: Mapping[str, int] | None = None) -> Iterator[None]:
    """Take chance and threads out of the library, and set `rolling`'s thresholds for a while."""
    chance = random.Random(f"{seed} names")
    names = SimpleNamespace(token_hex=lambda count: chance.randbytes(count).hex())
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(probe, "secrets", names)
        patch.setattr(local, "random_hex", names.token_hex)
        for module in (append, rewriting, user_chain):
            patch.setattr(module, "Background", InlineExecutor)
        for pool in ("_LOCAL", "_REMOTE"):
            patch.setattr(read_ahead, pool, InlineExecutor())
        for name, value in (thresholds or {}).items():
            patch.setattr(rolling, name, value)
        forget_everything()
        yield
        forget_everything()


def empty_memory_store(clock_ms: Callable[[], int] | None = None) -> memory.MemoryStorage:
    """Return a memory store that holds nothing; `clock_ms` is its clock."""
    memory._shelves.pop(_STORE, None)  # noqa: SLF001 - otherwise every case would stay in memory
    return memory.MemoryStorage(_STORE, clock_ms=clock_ms)


Objects = dict[str, tuple[bytes, int]]
"""What a store holds: the bytes of each object, and when it was written."""


def objects_in(store: Storage) -> Objects:
    """Everything in a store."""
    return {path: (store.read(path), store.modified_ms(path)) for path, _ in store.walk("")}


def memory_store_with(objects: Objects, clock_ms: Callable[[], int]) -> memory.MemoryStorage:
    """Return a memory store that holds these objects, as old as they are."""
    store = empty_memory_store(clock_ms)
    for path, (data, written_ms) in objects.items():
        store.put_if_absent(path, data)
        store._shelf.written_ms[path] = written_ms  # noqa: SLF001 - ages cannot be put otherwise
    return store
