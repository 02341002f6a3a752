"""What processes do while an operation goes wrong: each scenario is a short story."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.catalog.chain import MANIFEST_MIN_AGE_MS
from strandline.tableformat import paths
from strandline.tableformat.errors import StrandlineError
from strandline.tableformat.windows import HOUR_MS
from tests.faults.client import Client
from tests.faults.ledger import BASE_TS, Batch, BrokenPromise, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.faults.world import World


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """One story. `run` is told with faults, the rest without."""

    name: str
    run: Callable[[World, Client], None]
    prepare: Callable[[World, Client], None] = _nothing
    """By another, healthy process, which has ended when `run` begins."""
    before: Callable[[World, Client], None] = _nothing
    """By the process of `run` itself, before its first fault; the client has opened the table."""
    other: Callable[[World, Client], None] | None = None
    """By a second, healthy process, in between two operations of `run`."""
    after_restart: Callable[[World, Client], None] = _nothing
    config: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, int] = field(default_factory=dict)


def _create(world: World, client: Client) -> None:
    client.create()
    if world.ledger.uuids:
        client.append(Batch(1))


def _create_again(world: World, client: Client) -> None:
    """Whoever finds nothing creates; what was acknowledged must be found."""
    promised = set(world.ledger.uuids)
    client.create(exist_ok=True)
    if len(promised) > 1 or not promised <= {client.table.uuid}:
        raise BrokenPromise(f"creations {promised} were acknowledged, {client.table.uuid} is there")


CREATE = Scenario("create", _create, after_restart=_create_again)
CREATE_TWICE = Scenario(
    "create_twice",
    lambda _, client: client.create(),
    other=lambda _, client: client.create(),
    after_restart=_create_again,
)


def _table(**config: Any) -> Callable[[World, Client], None]:
    def prepare(world: World, client: Client) -> None:
        del world
        client.create(**config)
        client.append(Batch(1))

    return prepare


def _append(*batches: Batch) -> Callable[[World, Client], None]:
    def run(world: World, client: Client) -> None:
        del world
        for batch in batches:
            client.append(batch)

    return run


APPEND = Scenario("append", _append(Batch(2), Batch(3)), prepare=_table())
WIDE = Scenario(
    "many_windows",
    # Rows that go back and forth between two windows: offsets are stored, files are several.
    _append(Batch(2, rows=4, first_ts=BASE_TS - 3 * HOUR_MS, step_ms=3 * HOUR_MS // 2)),
    prepare=_table(ttl="1d"),
    config={"ttl": "1d"},
)

_KEYED = (Batch(2, key=("spark", 7)), Batch(3, key=("spark", 8)))


def _in_order(world: World, client: Client) -> None:
    """Numbered batches are sent one after the other: the next only when the last is known."""
    for batch in _KEYED:
        client.append(batch)
        if world.ledger.told[batch.number] is not Told.DONE:
            break


def _retry_keyed(world: World, client: Client) -> None:
    """The client does not know what arrived and sends both batches again, in order."""
    for batch in _KEYED:
        client.append(batch)
        if world.ledger.told[batch.number] is not Told.DONE:
            raise BrokenPromise(f"a retried batch was not acknowledged: {batch}")


KEYED = Scenario("keyed_append", _in_order, prepare=_table(), after_restart=_retry_keyed)


def _open(world: World, client: Client) -> None:
    del world
    client.open()


CONCURRENT = Scenario(
    "concurrent_append",
    _append(Batch(2)),
    prepare=_table(),
    before=_open,
    other=_append(Batch(100), Batch(101)),
)
CONCURRENT_KEY = Scenario(
    "concurrent_same_key",
    _append(Batch(2, key=("spark", 7))),
    prepare=_table(),
    before=_open,
    # The same batch of the same query: a zombie task and its replacement.
    other=_append(Batch(2, key=("spark", 7))),
    after_restart=_append(Batch(2, key=("spark", 7))),
)
CONCURRENT_EVOLVE = Scenario(
    "concurrent_schema",
    _append(Batch(2)),
    prepare=_table(),
    before=_open,
    other=lambda _, client: client.add_column("other_c"),
)
CLAMP = Scenario(
    "clamped",
    _append(Batch(2), Batch(3, first_ts=BASE_TS - 9_000)),
    prepare=_table(order="clamp"),
    before=_open,
    other=_append(Batch(100, first_ts=BASE_TS + 60_000)),
    config={"order": "clamp"},
)


def _evolve(world: World, client: Client) -> None:
    del world
    client.append(Batch(2))
    client.add_column("extra_a")
    client.append(Batch(3))
    client.add_column("extra_b")
    client.append(Batch(4))


EVOLVE = Scenario("schema_change", _evolve, prepare=_table())

SMALL = {
    "ROLL_AT": 3,
    "ROLL_STEP": 1,
    "ROLL_ALL_AT": 4,
    "LEAST_PAGE": 2,
    "TIER_FACTOR": 2,
    "FOLD_WINDOWS_ABOVE": 2,
    "KEEP_WINDOWS": 1,
    "FOLD_POSITIONS_ABOVE": 2,
    "KEEP_POSITIONS": 1,
    "MERGE_DOCUMENTS_AT": 2,
}
"""Thresholds that make a table of a few appends roll, merge and fold everything."""


def _in_hour(number: int, hour: int, *, keyed: bool = True) -> Batch:
    key = (f"writer-{number}", 1) if keyed else None
    return Batch(number, rows=2, first_ts=BASE_TS - hour * HOUR_MS, key=key)


_ROLLED_BEFORE = [
    _in_hour(n, hour) for n, hour in enumerate((9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3), 2)
]
_ROLLING = [_in_hour(n, hour) for n, hour in enumerate((1, 1, 1, 1), 20)]
"""Behind these, each kind of housekeeping is due once: a test keeps it so."""


def _hourly(*batches: Batch) -> Callable[[World, Client], None]:
    def run(world: World, client: Client) -> None:
        del world
        client.create(ttl="1d")
        for batch in batches:
            client.append(batch)

    return run


def _retry_all(world: World, client: Client) -> None:
    """What is not known to have arrived is sent again, and more: folded positions must know it."""
    keyed = [batch for batch in world.ledger.batches.values() if batch.key is not None]
    for index, batch in enumerate(keyed):
        told = world.ledger.told[batch.number]
        if told is Told.DONE and index % 4:
            continue
        before = client.table.refresh().tail().next_seq
        client.append(batch)
        after = client.table.refresh().tail().next_seq
        if told is Told.DONE and after != before:
            raise BrokenPromise(f"batch {batch.number} went in twice")


ROLL = Scenario(
    "page_roll",
    _append(*_ROLLING),
    prepare=_hourly(*_ROLLED_BEFORE),
    after_restart=_retry_all,
    config={"ttl": "1d"},
    thresholds=SMALL,
)
CONCURRENT_ROLL = Scenario(
    "concurrent_roll",
    _append(*_ROLLING[:2]),
    prepare=_hourly(*_ROLLED_BEFORE[:5]),
    before=_open,
    # The other process rolls the same segments at the same time.
    other=_append(_in_hour(100, 7), _in_hour(101, 6)),
    after_restart=_retry_all,
    config={"ttl": "1d"},
    thresholds=SMALL,
)


def _vacuumed(world: World, client: Client) -> None:
    """Hours later others have committed, and the versions behind our head are gone."""
    client.open()
    other = Client(world, world.store, "other")
    for number in (50, 51, 52):
        other.append(Batch(number))
    world.clock.sleep(2 * MANIFEST_MIN_AGE_MS / 1000)
    marker = 4
    world.store.put_if_absent(paths.gc_marker_path(marker), b"")
    world.store.delete([paths.manifest_path(version) for version in range(1, marker)])


ZOMBIE = Scenario(
    "vacuumed_head",
    _append(Batch(3), Batch(4)),
    prepare=_table(),
    before=_vacuumed,
)


def _read_everything(world: World, client: Client) -> None:
    """A read answers rightly or not at all."""
    expected = sum(batch.rows for batch in world.ledger.batches.values())
    try:
        rows = client.table.scan(columns=["batch", "i"]).to_arrow()
        versions = [record.version for record in client.table.history()]
        listed = client.table.files()
    except StrandlineError:
        return
    if rows.num_rows != sum(listed["row_count"].to_pylist()) or rows.num_rows != expected:
        raise BrokenPromise(f"a scan gave {rows.num_rows} rows")
    if versions != list(range(len(versions), 0, -1)):
        raise BrokenPromise(f"history gave {versions}")


READ = Scenario(
    "read",
    _read_everything,
    prepare=_hourly(*_ROLLED_BEFORE[4:], Batch(30)),
    config={"ttl": "1d"},
    thresholds=SMALL,
)


# --- writers with a log ---

_FLUSHED = (Batch(2), Batch(3, rows=1)), (Batch(4, rows=1), Batch(5))
_LEFT = (Batch(10), Batch(11, rows=1)), (Batch(12, rows=1), Batch(13), Batch(14))


def _flush(world: World, client: Client) -> None:
    """Take and flush rows, and close: every operation of a writer's life."""
    del world
    with suppress(StrandlineError):
        client.producer().produce(*_FLUSHED)


def _recover(world: World, client: Client) -> None:
    """The next writer of the same id finds the log, commits what is left, and goes on."""
    del world
    with suppress(StrandlineError):
        client.producer().produce((Batch(20),))


def _recovered(world: World, client: Client) -> None:
    """A healthy process opens a writer on every log: all that was acknowledged is in the table."""
    del world
    for folder in ("other", "ours"):
        client.producer(folder).produce(())


def _crashed(world: World, client: Client) -> None:
    """A table whose writer ended with some rows committed and some only in its log."""
    _table()(world, client)
    client.producer().leave_behind(*_LEFT)


def _take_over(world: World, client: Client) -> None:
    """Another process claims the same writer id, commits, and leaves rows in its own log."""
    del world
    client.producer("other").leave_behind((Batch(100),), (Batch(101, rows=1),))


FLUSH = Scenario("flush", _flush, prepare=_table(), before=_open, after_restart=_recovered)
RECOVER = Scenario("recover", _recover, prepare=_crashed, before=_open, after_restart=_recovered)
TAKEN_OVER = Scenario(
    "taken_over",
    _flush,
    prepare=_table(),
    before=_open,
    other=_take_over,
    after_restart=_recovered,
)
RECOVERED_TWICE = Scenario(
    "recovered_twice",
    _recover,
    prepare=_crashed,
    before=_open,
    # Two processes find the same log in a store, or a second one starts with an empty disk.
    other=_take_over,
    after_restart=_recovered,
)


def _many_batches(world: World, client: Client) -> None:
    """Small segments in two windows, some of them in pages."""
    del world
    client.create(ttl="1d")
    for number in range(1, 6):
        client.append(Batch(number, first_ts=BASE_TS - number % 2 * 3 * HOUR_MS))


_PAGES = {"ROLL_AT": 4, "ROLL_STEP": 1, "ROLL_ALL_AT": 4, "LEAST_PAGE": 2}
COMPACT = Scenario(
    "compact",
    lambda _, client: client.compact(),
    prepare=_many_batches,
    after_restart=lambda _, client: client.compact(),
    thresholds=_PAGES,
)


def _append_and_compact(world: World, client: Client) -> None:
    del world
    client.append(Batch(100))
    client.compact()


CONCURRENT_COMPACT = Scenario(
    "concurrent_compact",
    lambda _, client: client.compact(),
    prepare=_many_batches,
    before=_open,
    other=_append_and_compact,
)
DELETE = Scenario(
    "delete",
    lambda _, client: client.delete(2, 3),
    prepare=_many_batches,
    before=_open,
    other=_append_and_compact,
    thresholds=_PAGES,
)


def _keyed_batches(world: World, client: Client) -> None:
    """Small segments in two windows, each row with a key of its own."""
    del world
    client.create(ttl="1d", primary_key=["batch", "i"])
    for number in range(1, 6):
        client.append(Batch(number, first_ts=BASE_TS - number % 2 * 3 * HOUR_MS))


def _delete_keys(world: World, client: Client) -> None:
    del world
    client.delete_keys(2, 3, batch=("deleter", 1))
    client.compact()


def _delete_keys_again(world: World, client: Client) -> None:
    """Whoever does not know whether it was done does it again, and then once too often."""
    before = client.table.refresh().tail().next_seq
    told = {world.ledger.told[2], world.ledger.told[3]}
    client.delete_keys(2, 3, batch=("deleter", 1))
    if told == {Told.REFUSED} and client.table.refresh().tail().next_seq != before:
        raise BrokenPromise("a delete went in twice")
    client.compact()


DELETE_KEYS = Scenario(
    "delete_keys",
    _delete_keys,
    prepare=_keyed_batches,
    before=_open,
    other=_append_and_compact,
    after_restart=_delete_keys_again,
    thresholds=_PAGES,
)
OVERWRITE = Scenario(
    "overwrite", lambda _, client: client.empty(), prepare=_many_batches, thresholds=_PAGES
)

SCENARIOS = (
    COMPACT,
    CONCURRENT_COMPACT,
    DELETE,
    DELETE_KEYS,
    OVERWRITE,
    CREATE,
    CREATE_TWICE,
    APPEND,
    WIDE,
    KEYED,
    CONCURRENT,
    CONCURRENT_KEY,
    CONCURRENT_EVOLVE,
    CLAMP,
    EVOLVE,
    ROLL,
    CONCURRENT_ROLL,
    ZOMBIE,
    READ,
    FLUSH,
    RECOVER,
    TAKEN_OVER,
    RECOVERED_TWICE,
)
