"""The commit under races, lost replies, busy stores and stalled writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.api import create_in, open_in
from strandline.catalog.chain import MANIFEST_MIN_AGE_MS, TRUST_MS
from strandline.tableformat import paths
from strandline.tableformat.errors import OutcomeUnclear, StorageFailed, StoreBusy
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, Script, events, memory_url, numbers_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.table import Table


class World:
    """A table in memory, a watched door to it, and a scripted clock."""

    def __init__(self, **options: object) -> None:
        self.script = Script()
        self.plain = open_storage(memory_url())
        self.watched = WatchedStorage(self.plain)
        self.watched.clock = lambda: self.script.now
        self.other = create_in(
            self.plain, SCHEMA, time_column="ts", runtime=self.script.runtime(), **options
        )
        self.table = open_in(self.watched, runtime=self.script.runtime())
        self.table.append(events(0, 1))
        self.watched.names()

    def rows(self) -> list[int]:
        return numbers_in(open_in(self.plain))

    def once(self, operation: str, action: Callable[[], None], *, when: str = "before") -> None:
        """Do something at the next call of an operation on a manifest."""

        def hook(name: str, path: str) -> None:
            if name == operation and path.startswith(paths.MANIFESTS):
                setattr(self.watched, when, lambda *_: None)
                action()

        setattr(self.watched, when, hook)


def raising(error: Exception) -> Callable[[], None]:
    """An action that fails."""

    def action() -> None:
        raise error

    return action


def test_a_writer_that_knows_the_head_reads_nothing() -> None:
    """[C1, O1] One data file and one create: two requests."""
    world = World()

    world.table.append(events(1, 1))

    assert world.watched.names() == ["write_new", "put_if_absent"]


def test_a_lost_race_is_rebased_without_writing_data_again() -> None:
    """[C1, O1] The loser's rows follow the winner's, and its data file is written once."""
    world = World()
    world.once("put_if_absent", lambda: _append(world.other, 10))

    done = world.table.append(events(1, 2))

    assert world.watched.names() == [
        *["write_new", "put_if_absent"],  # lost
        *["read", "read"],  # who won; nobody after it
        "put_if_absent",
    ]
    assert (done.first_seq, done.last_seq, done.version) == (2, 3, 4)
    assert world.rows() == [0, 10, 1, 2]


def _append(table: Table, number: int) -> None:
    table.append(events(number, 1))


def test_many_lost_races_in_a_row_end_well() -> None:
    """[C1] Retries are limited by time, not by count."""
    world = World()
    left = [20]

    def hook(name: str, path: str) -> None:
        if name == "put_if_absent" and path.startswith(paths.MANIFESTS) and left[0]:
            left[0] -= 1
            _append(world.other, 100 + left[0])

    world.watched.before = hook
    world.table.append(events(1, 1))

    assert sorted(world.rows()) == [0, 1, *range(100, 120)]


def test_a_lost_reply_is_settled_by_reading() -> None:
    """[X5, C1] The create landed, its reply did not: the append succeeds, once."""
    world = World()
    world.once("put_if_absent", raising(OutcomeUnclear("reset")), when="after")

    done = world.table.append(events(1, 1))

    assert (done.version, done.first_seq) == (3, 1)
    assert world.rows() == [0, 1]


def test_a_lost_request_is_sent_again() -> None:
    """[X5] The create never arrived: the identical one is sent again."""
    world = World()
    world.once("put_if_absent", raising(OutcomeUnclear("timeout")))

    world.table.append(events(1, 1))

    assert world.rows() == [0, 1]


def test_an_outcome_that_stays_unclear_is_said_so_and_nothing_is_deleted() -> None:
    """[X5] The commit landed, and no reply ever comes: the error names version and commit."""
    world = World()

    def hook(name: str, path: str) -> None:
        if path.startswith(paths.MANIFESTS):
            raise OutcomeUnclear(name)

    world.watched.after = hook
    with pytest.raises(strandline.CommitStateUnknown) as caught:
        world.table.append(events(1, 1))

    assert caught.value.version == 3
    assert "delete" not in world.watched.names()
    assert world.rows() == [0, 1]


def test_a_refused_create_is_an_error_that_changed_nothing() -> None:
    """A definite no is passed on as it is."""
    world = World()
    world.once("put_if_absent", raising(strandline.AccessDenied("no")))

    with pytest.raises(strandline.AccessDenied):
        world.table.append(events(1, 1))

    assert world.rows() == [0]


def test_a_refusal_after_an_unclear_create_stays_unclear() -> None:
    """[X5] A later "no" says nothing about the first create, which may have landed."""
    world = World()
    answers = iter([OutcomeUnclear("lost")])

    def after(name: str, path: str) -> None:
        if name == "put_if_absent" and path.startswith(paths.MANIFESTS):
            error = next(answers, None)
            if error:
                world.watched.before = before
                raise error

    def before(name: str, path: str) -> None:
        if path.startswith(paths.MANIFESTS):
            raise strandline.AccessDenied(name)

    world.watched.after = after
    with pytest.raises(strandline.CommitStateUnknown):
        world.table.append(events(1, 1))
    assert world.rows() == [0, 1]


def test_a_busy_store_is_waited_for() -> None:
    """[X5] 503, 429 and 409 are "try again": with growing pauses, without losing the place."""
    world = World()
    busy = iter([StoreBusy("503"), StoreBusy("429"), StoreBusy("409")])

    def hook(name: str, _path: str) -> None:
        if name == "put_if_absent":
            error = next(busy, None)
            if error:
                raise error

    world.watched.before = hook
    world.table.append(events(1, 1))

    assert world.rows() == [0, 1]
    assert len(world.script.slept) == 3


def test_a_store_that_stays_busy_ends_in_an_error() -> None:
    """Bounded by time; nothing was changed."""
    world = World()

    def hook(name: str, path: str) -> None:
        if name == "put_if_absent" and path.startswith(paths.MANIFESTS):
            raise StoreBusy("503")

    world.watched.before = hook
    with pytest.raises(StoreBusy):
        world.table.append(events(1, 1))
    assert world.rows() == [0]


def test_a_lost_data_file_is_written_under_a_new_name() -> None:
    """[X5] The store lost track of an upload: the append starts over and lands once."""
    world = World()
    failed = []

    def hook(name: str, path: str) -> None:
        if name == "write_new" and not failed:
            failed.append(path)
            raise StorageFailed("upload failed")

    world.watched.before = hook
    with pytest.raises(StorageFailed):
        world.table.append(events(1, 1))
    assert world.rows() == [0]
    world.table.append(events(1, 1))
    assert world.rows() == [0, 1]


def _leave_only_newest(world: World) -> None:
    """What vacuum does: a marker first, then the manifests below it go."""
    head = open_in(world.plain).version
    world.plain.put_if_absent(paths.gc_marker_path(head), b"")
    world.plain.delete([paths.manifest_path(v) for v in range(1, head)])


def test_a_stalled_writer_cannot_commit_a_version_that_was_removed() -> None:
    """[C8, O8] Its create succeeds on a free name; the marker tells it that this is no commit."""
    world = World()

    def stall() -> None:
        for number in range(10, 14):
            _append(world.other, number)
        world.script.now += MANIFEST_MIN_AGE_MS + 1
        _leave_only_newest(world)

    world.once("put_if_absent", stall)
    done = world.table.append(events(1, 1))

    assert world.rows() == [0, 10, 11, 12, 13, 1]
    assert (done.first_seq, done.version) == (5, 7)


def test_a_stalled_keyed_append_lands_once() -> None:
    """[C1] The retry of another handle landed first; the stalled one finds its key."""
    world = World()

    def stall() -> None:
        world.other.append(events(1, 1), writer_id="p", batch=1)
        _append(world.other, 10)
        world.script.now += MANIFEST_MIN_AGE_MS + 1
        _leave_only_newest(world)

    world.once("put_if_absent", stall)
    done = world.table.append(events(1, 1), writer_id="p", batch=1)

    assert done.duplicate
    assert world.rows() == [0, 1, 10]


def test_markers_are_read_only_when_time_has_passed() -> None:
    """A quick commit costs no extra request; a slow one costs one."""
    world = World()
    world.once(
        "put_if_absent", lambda: setattr(world.script, "now", world.script.now + TRUST_MS + 1)
    )

    world.table.append(events(1, 1))

    assert world.watched.names() == ["write_new", "put_if_absent", "list"]


def test_a_clamped_append_is_stamped_again_after_a_lost_race() -> None:
    """[O2] The winner raised the tail's time; the loser's rows must not fall behind it."""
    world = World(order="clamp")
    world.once("put_if_absent", lambda: _append(world.other, 50))

    world.table.append(events(1, 2))

    rows = open_in(world.plain).scan(columns=["n", "_ts"]).to_arrow().to_pylist()
    assert [row["n"] for row in rows] == [0, 50, 1, 2]
    assert [row["_ts"] for row in rows] == sorted(row["_ts"] for row in rows)


def test_commit_times_always_grow() -> None:
    """[C2] A clock that goes back does not turn history around."""
    world = World()
    world.script.now -= 10**9
    world.table.append(events(1, 1))
    world.table.append(events(2, 1))

    times = [record.committed_at for record in world.table.history()]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def test_two_creates_of_one_table_have_one_winner() -> None:
    """[C1] The loser gets TableExists and its table does not replace the winner's."""
    plain = open_storage(memory_url())
    watched = WatchedStorage(plain)
    made: list[Table] = []

    def hook(name: str, path: str) -> None:
        if name == "put_if_absent" and path == paths.manifest_path(1):
            watched.before = lambda *_: None
            made.append(create_in(plain, SCHEMA, time_column="ts"))

    watched.before = hook
    with pytest.raises(strandline.TableExists):
        create_in(watched, SCHEMA, time_column="ts")
    assert open_in(plain).uuid == made[0].uuid


def test_create_survives_a_lost_reply() -> None:
    """[X5] Our own version 1 is not taken for another's."""
    watched = WatchedStorage(open_storage(memory_url()))

    def hook(name: str, path: str) -> None:
        if name == "put_if_absent" and path == paths.manifest_path(1):
            watched.after = lambda *_: None
            raise OutcomeUnclear("lost")

    watched.after = hook
    table = create_in(watched, SCHEMA, time_column="ts", runtime=Script().runtime())
    assert table.append(events(0, 1)).first_seq == 0
