"""One process that uses a table, and writes down what it was told."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from strandline import api
from strandline.tableformat.errors import CommitStateUnknown, StrandlineError
from tests.faults.kinds import SimulatedCrash
from tests.faults.ledger import SCHEMA, Batch, Told
from tests.faults.producing import Producer
from tests.faults.world import START_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.table import Table
    from strandline.tableformat.storage import Storage
    from tests.faults.world import World


class Client:
    """A handle on the table in one process.

    An error ends the step and not the process, as in a program that logs it and goes on.
    """

    def __init__(self, world: World, storage: Storage, name: str) -> None:
        self._world, self._storage = world, storage
        self._runtime = world.runtime(name)
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        """The handle; opened when it is first needed."""
        if self._table is None:
            self._table = api.open_in(self._storage, runtime=self._runtime)
        return self._table

    def create(self, *, exist_ok: bool = False, **config: Any) -> None:
        try:
            self._table = api.create_in(
                self._storage,
                SCHEMA,
                exist_ok=exist_ok,
                runtime=self._runtime,
                time_column="at",
                **config,
            )
        except StrandlineError:
            return
        self._world.ledger.uuids.add(self._table.uuid)

    def open(self) -> None:
        """Read the head."""
        try:
            assert self.table.version
        except StrandlineError:
            return

    def append(self, batch: Batch) -> None:
        writer, number = batch.key or (None, None)
        ledger = self._world.ledger
        ledger.note(batch, Told.REFUSED)
        try:
            commit = self.table.append(batch.data(), writer_id=writer, batch=number)
        except (SimulatedCrash, CommitStateUnknown) as error:
            ledger.note(batch, Told.NOTHING)
            if isinstance(error, SimulatedCrash):
                raise
        except StrandlineError:
            ledger.note(batch, Told.REFUSED)
        else:
            ledger.note(batch, Told.DONE, commit)

    def compact(self) -> None:
        with suppress(StrandlineError):
            self.table.compact()

    def delete(self, *numbers: int) -> None:
        """Delete whole batches, in one step."""
        listed = ", ".join(map(str, numbers))
        self._take_out(numbers, lambda: self.table.delete(filter=f"batch IN ({listed})"))

    def delete_keys(self, *numbers: int, batch: tuple[str, int]) -> None:
        """Delete the keys of whole batches, in one step that may be tried again."""
        rows = [row for n in numbers for row in self._world.ledger.batches[n].data()]
        keys = [(row["batch"], row["i"]) for row in rows]
        writer, number = batch
        self._take_out(
            numbers, lambda: self.table.delete(keys=keys, writer_id=writer, batch=number)
        )

    def empty(self) -> None:
        """Overwrite everything with nothing."""
        self._take_out(tuple(self._world.ledger.batches), lambda: self.table.overwrite([]))

    def expire(self, *numbers: int, **options: Any) -> None:
        """Raise the floor above these batches, and remove prefixes whose grace is over."""
        self._take_out(numbers, lambda: self.table.expire(START_MS, **options), several=True)

    def trim(self, seq: int, *numbers: int) -> None:
        """Hide these batches, whose rows are those below the number."""
        self._take_out(numbers, lambda: self.table.trim(seq))

    def roll_back(self, version: int, *numbers: int) -> None:
        """Go back to a version that did not have these batches yet."""
        self._take_out(numbers, lambda: self.table.rollback(version))

    def do(self, step: Callable[[Table], object]) -> None:
        """Do something that changes no row; an error ends the step."""
        with suppress(StrandlineError):
            step(self.table)

    def _take_out(
        self, numbers: tuple[int, ...], call: Callable[[], object], *, several: bool = False
    ) -> None:
        """Note what a call takes away. `several`: its errors may come behind its commit."""
        ledger = self._world.ledger
        ledger.deleted.update(numbers)
        ledger.together.append(frozenset(numbers))

        def doubt() -> None:
            for number in numbers:
                ledger.told[number] = min(ledger.told[number], Told.NOTHING)

        try:
            call()
        except (SimulatedCrash, CommitStateUnknown) as error:
            doubt()
            if isinstance(error, SimulatedCrash):
                raise
        except StrandlineError:
            # Of one step it says that nothing was changed: the rows must be there.
            if several:
                doubt()
        else:
            ledger.told.update(dict.fromkeys(numbers, Told.REFUSED))

    def producer(self, folder: str = "ours") -> Producer:
        """Something that writes through a log of its own."""
        return Producer(self._world, self.table, self._storage, folder)

    def add_column(self, name: str) -> None:
        try:
            self.table.evolve(add={name: "int64"})
        except StrandlineError:
            return
        self._world.ledger.columns.add(name)
