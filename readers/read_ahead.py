"""Splits read ahead of whoever takes their rows: in parallel, in order, and never too much.

What is under way or waits to be taken is counted in bytes of memory, as planned. The next in line
may always start, however large it is; everything else only while the budget lasts.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from strandline.readers.bundle import MOST_SPLITS, bundles, read_bundle
from strandline.tableformat.stores.background import Background

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from strandline.readers.split_reader import SplitReader, Unit

DEFAULT_MEMORY_BYTES: Final = 256 * 2**20
_CORES: Final = os.cpu_count() or 1
_LOCAL: Final = Background(max(2, _CORES), "strandline-read")
_REMOTE: Final = Background(max(16, 2 * _CORES), "strandline-fetch")
"""Most of a remote read is waiting, so more of them than cores keep these busy."""


@dataclass(slots=True, eq=False)
class _Task:
    """A unit of a split, the opening of a split together with its first unit, or small splits."""

    index: int
    readers: Sequence[SplitReader]
    unit: Unit | None
    weight: int
    future: Future[list[pa.Table]] | None = None
    rest: Sequence[Unit] = ()
    """What the opening found besides, until it is in line."""

    def run(self) -> list[pa.Table]:
        """The rows of each reader, as far as it has any."""
        if len(self.readers) > 1:
            return read_bundle(self.readers)
        (reader,) = self.readers
        if self.unit is not None:
            return [reader.read(self.unit)]
        units = reader.open()
        self.rest = units[1:]
        return [reader.read(unit) for unit in units[:1]]


class ReadAhead:
    """Gives (number of the split, rows) in the order of the splits and of their rows.

    Closing the iterator takes back what has not begun.
    """

    def __init__(
        self,
        readers: Sequence[SplitReader],
        *,
        is_local: bool,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        may_stop: bool = False,
    ) -> None:
        """Take `may_stop` where few rows may do: what is under way then grows step by step."""
        self._readers = readers
        self._pool = _LOCAL if is_local else _REMOTE
        self._memory_bytes = memory_bytes
        self._most_tasks = 1 if may_stop else sys.maxsize
        self._opened = 0
        self._tasks: deque[_Task] = deque()

    def __iter__(self) -> Iterator[tuple[int, pa.Table]]:
        if len(self._readers) == 1 and (found := self._alone()) is not None:
            yield 0, found
            return
        if self._is_one_bundle():
            yield from enumerate(read_bundle(self._readers))
            return
        try:
            self._top_up()
            while self._tasks:
                task = self._tasks[0]
                assert task.future is not None, "the first in line has always begun"
                found = task.future.result()
                self._line_up(task)
                self._tasks.popleft()
                if self._most_tasks == sys.maxsize:
                    self._top_up()  # so that the caller's work does not hold it up
                yield from enumerate(found, task.index)
                self._most_tasks = min(2 * self._most_tasks, sys.maxsize)
                self._top_up()
        finally:
            for task in self._tasks:
                if task.future is not None:
                    task.future.cancel()

    def _is_one_bundle(self) -> bool:
        """Whether all splits are read in one go: more threads would wait for each other."""
        if not 1 < len(self._readers) <= MOST_SPLITS or self._most_tasks < sys.maxsize:
            return False
        return all(reader.is_small for reader in self._readers)

    def _alone(self) -> pa.Table | None:
        """The rows of the only split, if they are a single unit: no thread is worth its start."""
        reader = self._readers[0]
        units = reader.open()
        self._opened = 1
        if len(units) == 1:
            return reader.read(units[0])
        self._tasks.extend(_Task(0, [reader], unit, unit.memory_bytes) for unit in units)
        return None

    def _top_up(self) -> None:
        """Start what the budget allows."""
        for task in list(self._tasks):
            self._line_up(task)
        begun = [task for task in self._tasks if task.future is not None]
        used, running = sum(task.weight for task in begun), len(begun)
        waiting = [task for task in self._tasks if task.future is None]
        for task in chain(waiting, self._unopened()):
            too_much = used + task.weight > self._memory_bytes
            # Splits further on may be under way already: the next in line must not wait for them.
            is_next = not self._tasks or task is self._tasks[0]
            if not is_next and (too_much or running >= self._most_tasks):
                return
            if task.unit is None:
                self._tasks.append(task)
                self._opened += len(task.readers)
            task.future = self._pool.submit(task.run)
            used, running = used + task.weight, running + 1

    def _unopened(self) -> Iterator[_Task]:
        waiting = self._readers[self._opened :]
        # Who may stop soon reads split by split.
        runs = bundles(waiting) if self._most_tasks == sys.maxsize else _singly(waiting)
        opened = self._opened
        for run in runs:
            readers = waiting[run.start : run.stop]
            weight = sum(reader.memory_estimate() for reader in readers)
            yield _Task(opened + run.start, readers, None, weight)

    def _line_up(self, task: _Task) -> None:
        """Put the other units of an opened split behind its first one."""
        units, task.rest = task.rest, ()
        at = self._tasks.index(task) + 1 if units else 0
        for unit in reversed(units):
            self._tasks.insert(at, _Task(task.index, task.readers, unit, unit.memory_bytes))


def _singly(readers: Sequence[SplitReader]) -> Iterator[range]:
    return (range(at, at + 1) for at in range(len(readers)))
