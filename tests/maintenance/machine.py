"""A table and a plain model of it, side by side through any sequence of operations."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.api import create_in, open_in
from strandline.tableformat.errors import CommitConflict, ImplausibleExpiry, VersionNotFound
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import DAY_MS, HOUR_MS
from tests.faults.kinds import CRASH_AFTER, CRASH_BEFORE, SimulatedCrash
from tests.faults.ledger import check_store
from tests.faults.storage import FaultyStorage
from tests.faults.world import World, forget_everything, scripted
from tests.maintenance.aging import SCHEMA, row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from strandline.table import Table
    from strandline.tableformat.storage import Data, PendingWrite, Put, Storage

TTL_MS = 6 * HOUR_MS
SMALL = {
    "ROLL_AT": 3,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 4,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 2,
    "FOLD_WINDOWS_ABOVE": 3,
    "KEEP_WINDOWS": 1,
}
_names = itertools.count()
Rows = dict[int, tuple[int, int]]
"""By sequence number, the time and the value of each row."""


@dataclass
class Model:
    """What a table should show."""

    rows: Rows = field(default_factory=dict)
    next_seq: int = 0
    floor: int = 0
    trim: int = 0
    tags: dict[str, int] = field(default_factory=dict)
    columns: int = 0

    def visible(self, rows: Rows) -> Rows:
        return {s: r for s, r in rows.items() if s >= self.trim and r[0] >= self.floor}


class Dated(FaultyStorage):
    """A store with a scripted clock, which also dates its objects; a chosen operation crashes."""

    def __init__(self, inner: Storage, clock_ms: Callable[[], int], dates: dict[str, int]) -> None:
        super().__init__(inner, clock_ms=clock_ms)
        self._dates = dates

    def modified_ms(self, path: str) -> int:
        found = super().modified_ms(path)
        return self._dates.get(path, found)

    def write_new(self, path: str, data: Data) -> PendingWrite:
        self._dates[path] = self.clock_ms()
        return super().write_new(path, data)

    def put_if_absent(self, path: str, data: bytes, *, after: Sequence[PendingWrite] = ()) -> Put:
        self._dates.setdefault(path, self.clock_ms())
        return super().put_if_absent(path, data, after=after)


crashes = st.one_of(
    st.none(), st.tuples(st.integers(0, 25), st.sampled_from([CRASH_BEFORE, CRASH_AFTER]))
)
graces = st.sampled_from([0, "24h"])


class LifecycleMachine(RuleBasedStateMachine):
    """Every operation of a table's life, with crashes, late rows and clocks that jump."""

    @staticmethod
    def new_store() -> Storage:
        return MemoryStorage(f"machine-{next(_names)}")

    @initialize()
    def create(self) -> None:
        self._script: AbstractContextManager[None] = scripted(0, SMALL)
        self._script.__enter__()
        self.store = self.new_store()
        self.dates: dict[str, int] = {}
        self.skew_ms = 0
        self.world = World(0, self.store)
        self.processes = itertools.count()
        self.values = itertools.count()
        self.model = Model()
        self.shown: dict[int, Rows] = {}
        runtime = self.world.runtime("creator")
        create_in(self.storage(), SCHEMA, runtime=runtime, time_column="at", ttl="6h")
        self.restart()
        self.note()

    def store_ms(self) -> int:
        return self.world.clock.peek_ms() + self.skew_ms

    def storage(self) -> Dated:
        return Dated(self.store, self.store_ms, self.dates)

    def restart(self) -> None:
        """A new process opens the table."""
        forget_everything()
        self.faulty = self.storage()
        name = f"process {next(self.processes)}"
        self.table = open_in(self.faulty, runtime=self.world.runtime(name))

    def step(
        self,
        crash: Any,
        act: Callable[[Table], Any],
        predict: Callable[[Model], object],
        *refusals: type[Exception],
    ) -> None:
        """Do something; the model follows, unless it is refused. After a crash: either state."""
        before, after = self.model, copy.deepcopy(self.model)
        predict(after)
        if crash is not None:
            number, fault = crash
            self.faulty.faults = {len(self.faulty.trace) + number: fault}
        try:
            act(self.table)
            self.model = after
        except refusals:
            pass
        except SimulatedCrash:
            self.restart()
            head, found = self.table.manifest, self.found(self.table)
            states = [
                m
                for m in (after, before)
                if m.visible(m.rows) == found
                and (m.floor, m.trim) == (head.floor_ts, head.trim_seq)
                and m.tags == {name: tag.version for name, tag in head.lifecycle.tags.items()}
                and m.columns == len(self.table.schema.names)
                and m.next_seq == head.next_seq
            ]
            assert states, "after a crash the table is neither as before nor as after"
            self.model = states[0]
        self.faulty.faults = {}
        self.note()

    def note(self) -> None:
        self.model.columns = len(self.table.refresh().schema.names)
        self.shown[self.table.version] = dict(self.model.rows)

    def found(self, table: Table) -> Rows:
        rows = table.scan(["_seq", "at", "n"]).to_arrow().to_pylist()
        assert len({r["_seq"] for r in rows}) == len(rows)
        return {r["_seq"]: (r["at"], r["n"]) for r in rows}

    # --- rows ---

    @rule(ages=st.lists(st.integers(0, 10), min_size=1, max_size=4), crash=crashes)
    def append(self, ages: list[int], crash: Any) -> None:
        """New rows and late ones, some perhaps below the floor."""
        now = self.world.clock.peek_ms()
        rows = [(now - age * HOUR_MS, next(self.values)) for age in ages]

        def predict(model: Model) -> None:
            for at, n in rows:
                if at >= model.floor:
                    model.rows[model.next_seq] = at, n
                    model.next_seq += 1

        self.step(crash, lambda table: table.append([row(*r) for r in rows]), predict)

    @rule(modulo=st.integers(2, 5), crash=crashes)
    def delete(self, modulo: int, crash: Any) -> None:
        values = [n for _, n in self.model.rows.values() if n % modulo == 0]
        listed = ", ".join(map(str, values or [-1]))

        def predict(model: Model) -> None:
            gone = set(model.visible(model.rows)) & {
                s for s, (_, n) in model.rows.items() if n in values
            }
            model.rows = {s: r for s, r in model.rows.items() if s not in gone}

        self.step(crash, lambda table: table.delete(filter=f"n IN ({listed})"), predict)

    @rule(crash=crashes)
    def compact(self, crash: Any) -> None:
        self.step(crash, lambda table: table.compact(min_segments=2), lambda _: None)

    @rule(crash=crashes)
    def evolve(self, crash: Any) -> None:
        name = f"more_{len(self.table.schema.names)}"

        def predict(model: Model) -> None:
            model.columns += 1

        self.step(crash, lambda table: table.evolve(add={name: "int32"}), predict)

    # --- hiding ---

    @rule(grace=graces, crash=crashes)
    def expire(self, grace: Any, crash: Any) -> None:
        cutoff = self.store_ms() - TTL_MS

        def predict(model: Model) -> None:
            model.floor = max(model.floor, cutoff - cutoff % HOUR_MS)

        self.step(crash, lambda table: table.expire(grace=grace), predict, ImplausibleExpiry)

    @rule(share=st.floats(0, 1), crash=crashes)
    def trim(self, share: float, crash: Any) -> None:
        seq = int(self.model.next_seq * share)

        def predict(model: Model) -> None:
            model.trim = max(model.trim, seq)

        self.step(crash, lambda table: table.trim(seq), predict)

    # --- versions ---

    @rule(name=st.sampled_from("ab"), crash=crashes)
    def tag(self, name: str, crash: Any) -> None:
        version = self.table.refresh().version

        def predict(model: Model) -> None:
            model.tags[name] = version

        self.step(crash, lambda table: table.tag(name, version), predict, CommitConflict)

    @rule(name=st.sampled_from("ab"), crash=crashes)
    def untag(self, name: str, crash: Any) -> None:
        def predict(model: Model) -> None:
            model.tags.pop(name, None)

        self.step(crash, lambda table: table.untag(name), predict, CommitConflict)

    @rule(data=st.data(), crash=crashes)
    def rollback(self, data: st.DataObject, crash: Any) -> None:
        version = data.draw(st.sampled_from(sorted(self.shown)))

        def predict(model: Model) -> None:
            model.rows = dict(self.shown[version])

        self.step(
            crash,
            lambda table: table.rollback(version),
            predict,
            *(VersionNotFound, CommitConflict),
        )

    @rule(older=st.sampled_from([0, "1h", "1d"]), last=st.integers(1, 3), crash=crashes)
    def expire_versions(self, older: Any, last: int, crash: Any) -> None:
        self.step(
            crash,
            lambda table: table.expire_versions(older, retain_last=last),
            lambda _: None,
        )

    @rule(grace=graces, crash=crashes)
    def vacuum(self, grace: Any, crash: Any) -> None:
        self.step(crash, lambda table: table.vacuum(dry_run=False, grace=grace), lambda _: None)

    # --- time ---

    @rule(hours=st.sampled_from([1, 1, 5, 26, -1, -30]))
    def time_passes(self, hours: int) -> None:
        self.world.clock.sleep(hours * 3600)

    @rule(skew_ms=st.sampled_from([0, HOUR_MS // 2, -2 * HOUR_MS, 3650 * DAY_MS, -3650 * DAY_MS]))
    def the_stores_clock_jumps(self, skew_ms: int) -> None:
        self.skew_ms = skew_ms

    @rule()
    def another_process(self) -> None:
        self.restart()

    # --- what must hold ---

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        """[C1] [C2] [X1] [O4] Once each, with their numbers, in this process and in a new one."""
        expected = self.model.visible(self.model.rows)
        assert self.found(self.table) == expected
        head = self.table.manifest
        assert (head.next_seq, head.floor_ts, head.trim_seq) == (
            self.model.next_seq,
            self.model.floor,
            self.model.trim,
        )

    @invariant()
    def tags_keep_their_rows(self) -> None:
        """[C9] What has neither expired nor been trimmed."""
        assert self.table.tags().keys() == self.model.tags.keys()
        for name, version in self.model.tags.items():
            pinned = open_in(self.store, name, runtime=self.world.runtime("reader"))
            assert pinned.version == version
            assert self.found(pinned) == self.model.visible(self.shown[version])

    def teardown(self) -> None:
        """Every file is what its reference says, and the table goes on."""
        if not hasattr(self, "table"):
            return
        try:
            check_store(self.store)
            self.restart()
            report = self.table.verify(deep=True)
            assert report.ok, str(report)
        finally:
            self._script.__exit__(None, None, None)
            if isinstance(self.store, MemoryStorage):
                self.store.delete([path for path, _ in self.store.walk("")])
