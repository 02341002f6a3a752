"""Writes that go on while the caller works: small thread pools that survive a fork."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from strandline.tableformat.errors import OutcomeUnclear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")


class Background:
    """A shared pool; a forked child starts its own, because threads do not cross a fork."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads, self._name = threads, name
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Run the call in a thread, or at once when the interpreter is already shutting down."""
        pid = os.getpid()
        if self._pool is None or self._pid != pid:
            # Two threads may both get here: one pool then serves a single call and ends.
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
            self._pid = pid
        try:
            return self._pool.submit(call, *args)
        except RuntimeError:
            return run_now(call, *args)

    def end(self) -> None:
        """Begin nothing more; what runs goes on, and nobody waits for it here."""
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=False, cancel_futures=True)

    def map(self, call: Callable[[Any], T], items: Sequence[Any]) -> list[T]:
        """Return the result for each item; the first error is raised after all have ended."""
        if len(items) < 2:  # noqa: PLR2004 - one item needs no thread
            return [call(item) for item in items]
        return _results([self.submit(call, item) for item in items])


class Pending:
    """A background write; `wait` may be called by any thread of the same process."""

    __slots__ = ("_future", "_path", "_pid")

    def __init__(self, path: str, future: Future[None]) -> None:
        self._path, self._future, self._pid = path, future, os.getpid()

    def wait(self) -> None:
        """Return once the object is durable, or raise what went wrong."""
        if self._pid != os.getpid() and not self._future.done():
            raise OutcomeUnclear(
                f"the write of {self._path} was started before this process was forked; only the "
                "parent process can wait for it"
            )
        self._future.result()


def run_now(call: Callable[..., T], *args: Any) -> Future[T]:
    """Run the call in this thread; its error is kept for whoever waits."""
    future: Future[T] = Future()
    try:
        future.set_result(call(*args))
    except BaseException as error:  # noqa: BLE001 - raised by wait
        future.set_exception(error)
    return future


def _results(futures: Iterable[Future[T]]) -> list[T]:
    results: list[T] = []
    failure: BaseException | None = None
    for future in futures:
        error = future.exception()
        if error is None:
            results.append(future.result())
        else:
            failure = failure or error
    if failure is not None:
        raise failure
    return results
