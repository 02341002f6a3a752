"""What a producer is given for its rows, and what it can learn from it later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.tableformat.errors import WriterBusy
from strandline.writers.options import check_seconds
from strandline.writers.results import Commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.writers.memtable import Memtable


class Receipt:
    """Rows that the writer has taken. Cheap to throw away."""

    __slots__ = ("_ask", "_index", "_memtable")

    def __init__(
        self, memtable: Memtable, index: int, ask_for_flush: Callable[[Memtable], None]
    ) -> None:
        self._memtable, self._index, self._ask = memtable, index, ask_for_flush

    def __repr__(self) -> str:
        return f"<strandline.Receipt record {self.record}, {self.state}>"

    @property
    def record(self) -> int:
        """The number of the rows' record in the writer's log."""
        return self._memtable.first_record + self._index

    @property
    def state(self) -> str:
        """`pending`, `committed` or `failed`."""
        if not self._memtable.settled.is_set():
            return "pending"
        return "failed" if self._memtable.error is not None else "committed"

    @property
    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._memtable.settled.is_set()

    def wait(self, timeout: float | None = None) -> Commit:
        """Return once the rows are committed: their version and sequence numbers.

        Asks the writer not to wait for more rows. If it cannot commit them any more, its error is
        raised; the rows are still in its log.
        """
        check_seconds("timeout", timeout)
        memtable = self._memtable
        if not memtable.settled.is_set():
            self._ask(memtable)
            if not memtable.settled.wait(timeout):
                raise WriterBusy(
                    f"the rows were not committed within {timeout:.3g} s. The writer keeps them, "
                    "in its log too if it has one, and goes on trying; wait again."
                )
        if memtable.error is not None:
            raise memtable.error
        version, first_seq, rows, given = memtable.placed(self._index)
        return Commit(version, first_seq, first_seq + rows - 1, rows, dropped=given - rows)
