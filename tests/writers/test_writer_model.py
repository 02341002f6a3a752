"""Writers that crash, restart, are fenced and replaced, against a list in memory."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import strandline
from strandline.tableformat.actions import MAX_PREVIOUS
from strandline.tableformat.errors import CommitConflict, LogInUse, StrandlineError
from tests.tables import START_MS
from tests.writers.rigs import Rig, close_now, crash, event, without_threads

if TYPE_CHECKING:
    from strandline.table import Table
    from strandline.writers.writer import Writer

FOLDERS = st.sampled_from(["a", "b"])
WHICH = st.integers(0, 1)
TOKENS = st.sampled_from([None, None, "one", "two"])
HOUR_MS = 3_600_000
Row = dict[str, Any]


@dataclass
class Log:
    """What a folder holds: rows that were acknowledged and are not in the table."""

    rows: list[Row] = field(default_factory=list)
    claims_since: int = 0
    """How many writers have been opened after the one that wrote it."""
    writer: Writer | None = None
    """None once it has ended."""
    fence: str | None = None


def ms_of(row: Row) -> int:
    """The time of a row."""
    return int(row["ts"].timestamp() * 1000)


class Writers(RuleBasedStateMachine):
    """One writer id, two log folders, any number of lives."""

    scope = "shared"

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(without_threads())
        self.root = Path(tempfile.mkdtemp(prefix="strandline-model-"))
        self.rig = Rig()  # until `first` has chosen another
        self.floor_ts = 0
        self.logs: dict[str, Log] = {}
        self.committed: list[Row] = []
        self.fence: str | None = None
        self.extras: list[str] = []
        self.next_n = 0

    def teardown(self) -> None:
        for log in self.logs.values():
            if log.writer is not None:
                crash(log.writer)
        self.stack.close()
        shutil.rmtree(self.root)

    # --- helpers ---

    def rows(self) -> Table:
        """Whose rows they are, as somebody else opens it."""
        return self.rig.open()

    def new_row(self, hours_late: int, *, extra: bool) -> Row:
        self.next_n += 1
        row = event(self.next_n)
        row["ts"] -= timedelta(hours=hours_late)
        if extra and self.extras:
            row[self.extras[-1]] = self.next_n * 10
        return row

    def live(self, which: int) -> tuple[str, Log, Writer] | None:
        """One of the writers that have not ended; None if there is none."""
        found = [(f, log, log.writer) for f, log in self.logs.items() if log.writer is not None]
        return found[which % len(found)] if found else None

    def may_commit(self, log: Log) -> bool:
        return log.claims_since == 0 and log.fence == self.fence

    def commit(self, rows: list[Row]) -> None:
        """Rows get their numbers, unless they are older than the floor by now."""
        self.committed += [row for row in rows if ms_of(row) >= self.floor_ts]

    def end(self, folder: str) -> None:
        """A writer has ended; what it did not commit stays in its folder."""
        log = self.logs[folder]
        if log.rows:
            log.writer = None
        else:
            del self.logs[folder]

    # --- opening ---

    @initialize(
        jitter_ms=st.sampled_from([None, 0, 3 * HOUR_MS]), shards=st.sampled_from([0, 1, 4])
    )
    def first(self, jitter_ms: int | None, shards: int) -> None:
        """Late rows travel with the rest, or apart; rows of a user go to one shard, or to any."""
        by_user = {"shard_by": "user", "shards": shards} if shards else {}
        self.rig = Rig(ttl="1d", uncapped=True, jitter_ms=jitter_ms, scope=self.scope, **by_user)
        self.open("a", None)

    @rule(folder=FOLDERS, right=st.sampled_from([True, True, True, False]))
    def start(self, folder: str, *, right: bool) -> None:
        """Restart in a folder, or take over from the other one; mostly with the right token."""
        self.open(folder, self.fence if right else "wrong")

    @rule(which=WHICH, count=st.integers(1, 5), as_batch=st.booleans())
    def crash_and_restart(self, which: int, count: int, *, as_batch: bool) -> None:
        """Common in life, and rare among random steps."""
        if (live := self.live(which)) is not None:
            self.append(which, count, 0, as_batch=as_batch, extra=True)
            self.crash(which)
            self.open(live[0], self.fence)

    def open(self, folder: str, token: str | None) -> None:
        old = self.logs.get(folder, Log())

        def attempt() -> Writer:
            return self.rows().writer(
                "w", wal=self.root / folder, fence=token, flush_records=3, flush_age="1h"
            )

        if old.writer is not None:
            with pytest.raises(LogInUse):
                attempt()
            return
        if old.rows and old.claims_since > MAX_PREVIOUS:
            with pytest.raises(strandline.WriterPositionLost):
                attempt()
            return
        if token != self.fence:
            with pytest.raises(CommitConflict):
                attempt()
            return
        writer = attempt()
        self.commit(old.rows)
        for log in self.logs.values():
            log.claims_since += 1
        self.logs[folder] = Log(writer=writer, fence=token)

    # --- taking rows ---

    @rule(
        which=WHICH,
        count=st.integers(1, 5),
        late=st.integers(0, 30),
        as_batch=st.booleans(),
        extra=st.booleans(),
    )
    def append(self, which: int, count: int, late: int, *, as_batch: bool, extra: bool) -> None:
        if (live := self.live(which)) is None:
            return
        _, log, writer = live
        rows = [self.new_row(late * (i % 2), extra=extra) for i in range(count)]
        if as_batch:
            writer.append(rows)
        else:
            for row in rows:
                writer.append(row)
        log.rows += rows

    @rule(which=WHICH, late=st.integers(1, 30), hours=st.integers(-9, 14), as_batch=st.booleans())
    def append_late(self, which: int, late: int, hours: int, *, as_batch: bool) -> None:
        """Rows in time, then late ones, some of which may be too old once they are committed."""
        self.append(which, 1, 0, as_batch=as_batch, extra=False)
        self.flush(which)
        self.append(which, 4, late, as_batch=as_batch, extra=False)
        if hours >= 0:
            self.expire(hours)
        self.flush(which)

    @rule(which=WHICH, wrong=st.sampled_from([{"n": "x"}, {"no_such": 1}, {"ts": 5.5}]))
    def append_wrong(self, which: int, wrong: Row) -> None:
        if (live := self.live(which)) is None:
            return
        for rows in ({**event(1), **wrong}, [event(1), {**event(2), **wrong}]):
            with pytest.raises(strandline.InvalidInput):
                live[2].append(rows)

    # --- committing ---

    @rule(which=WHICH)
    def flush(self, which: int) -> None:
        """All that waits is committed, or the writer learns that it was replaced or fenced."""
        if (live := self.live(which)) is None:
            return
        folder, log, writer = live
        buffers, flusher = writer._buffers, writer._flusher  # noqa: SLF001
        allowed = self.may_commit(log)
        try:
            while buffers.uncommitted():
                buffers.ask_for(buffers.active)
                flusher.step()
        except CommitConflict as error:
            assert not allowed
            flusher._stop(error)  # noqa: SLF001 - what its thread would do
            flusher._close_log()  # noqa: SLF001
            assert writer.sync_state == "stale"
            with pytest.raises(strandline.WriterClosed):
                writer.append(event(0))
            self.end(folder)
        else:
            assert allowed or not log.rows
            self.commit(log.rows)
            log.rows = []

    @rule(which=WHICH)
    def close(self, which: int) -> None:
        if (live := self.live(which)) is None:
            return
        folder, log, writer = live
        close_now(writer)
        report = writer.close()
        if not log.rows or self.may_commit(log):
            assert report.committed
            self.commit(log.rows)
            log.rows = []
        else:
            assert (report.committed, report.rows_left) == (False, len(log.rows))
        self.end(folder)

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        if (live := self.live(which)) is not None:
            crash(live[2])
            self.end(live[0])

    # --- what others do ---

    @rule(token=TOKENS)
    def set_fence(self, token: str | None) -> None:
        self.rig.open().fence(token)
        self.fence = token

    @rule(hours=st.integers(0, 14))
    def expire(self, hours: int) -> None:
        """Rows that are acknowledged and now too old will not be committed, nor read."""
        table, before = self.rig.open(), self.floor_ts
        table.expire(now=START_MS + hours * HOUR_MS, force=True)
        self.floor_ts = table.manifest.floor_ts
        assert self.floor_ts == max(before, START_MS // HOUR_MS * HOUR_MS + (hours - 24) * HOUR_MS)

    @precondition(lambda self: self.fence is None)
    @rule()
    def somebody_else_appends(self) -> None:
        row = self.new_row(0, extra=False)
        self.rows().append([row])
        self.committed.append(row)

    @precondition(lambda self: len(self.extras) < 3)
    @rule()
    def add_column(self) -> None:
        name = f"extra{len(self.extras)}"
        self.rig.open().evolve(add={name: "int64"}, reorder=[name])
        self.extras.append(name)

    # --- what must hold ---

    def is_visible(self, row: Row) -> bool:
        return ms_of(row) >= self.floor_ts

    def shown(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        return [(row["n"], row["ts"], *(row.get(name) for name in self.extras)) for row in rows]

    @invariant()
    def the_table_holds_what_was_committed_once_and_in_order(self) -> None:
        columns = ["n", "ts", *self.extras]
        found = self.rows().scan(columns=[*columns, "_seq"]).to_arrow()
        visible = [(n, row) for n, row in enumerate(self.committed) if self.is_visible(row)]
        assert found.column("_seq").to_pylist() == [n for n, _ in visible]
        rows = [row for _, row in visible]
        assert self.shown(found.to_pylist()) == self.shown(rows)
        for log in self.logs.values():
            if log.writer is not None:
                own = log.writer.scan(columns=columns).to_arrow().to_pylist()
                waiting = [row for row in log.rows if self.is_visible(row)]
                assert self.shown(own) == self.shown([*rows, *waiting])
                assert log.writer.stats().rows_pending == len(log.rows)


class WritersOfUsers(Writers):
    """The same for one user of a table; another has a writer of the same id and the same folders.

    The table's own versions move alone: schema, fence and floor.
    """

    scope = "user"

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Row] = []

    def rows(self) -> Table:
        return self.rig.open().user("ann/../é")

    @rule(folder=FOLDERS, count=st.integers(1, 3), crashes=st.booleans())
    def another_user_appends(self, folder: str, count: int, *, crashes: bool) -> None:
        """Rows of one never land at the other, also if the log is all that is left of them."""
        rows = [self.new_row(0, extra=False) for _ in range(count)]
        for ends in (True, False) if crashes else (False,):
            wal = self.root / folder
            writer = self.rig.open().user("bob").writer("w", wal=wal, fence=self.fence)
            if ends == crashes:
                writer.append(rows)
            if ends:
                crash(writer)
            else:
                close_now(writer)
                assert writer.close().committed
        self.others += rows

    @invariant()
    def the_other_user_has_what_it_was_told(self) -> None:
        found = self.rig.open().user("bob").scan(columns=["n"]).to_arrow().column("n").to_pylist()
        assert found == [row["n"] for row in self.others if self.is_visible(row)]


@pytest.mark.parametrize(("machine", "examples"), [(Writers, 60), (WritersOfUsers, 30)])
def test_writers_agree_with_a_list_in_memory(machine: type[Writers], examples: int) -> None:
    """[E2] [E4] [E15] [O8] [T3] [T4] [M9] Whatever happens and when: every row once, in order."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )


@pytest.mark.proof
@pytest.mark.parametrize("machine", [Writers, WritersOfUsers])
def test_writers_agree_with_a_list_in_memory_at_length(machine: type[Writers]) -> None:
    """[E2] [E4] [E15] [O8] [T3] [T4] [M9] The same, far longer."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=1_000, stateful_step_count=50, deadline=None)
    )


def test_the_model_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that forgets one record is found out."""
    from strandline.writers import recovery  # noqa: PLC0415 - to be broken

    read_log = recovery.read_log

    def forgetful(*given: Any) -> Any:
        files = read_log(*given)
        if files and len(files[-1].records) > 1:
            files[-1].records.pop()
        return files

    monkeypatch.setattr(recovery, "read_log", forgetful)
    with pytest.raises((AssertionError, StrandlineError)):
        run_state_machine_as_test(
            Writers,
            settings=settings(
                max_examples=60, stateful_step_count=40, deadline=None, phases=[Phase.generate]
            ),
        )
