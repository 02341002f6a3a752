"""Compaction of keyed tables: what is forgotten, what stays, and what others may do meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.api import create_in, open_in
from strandline.place import TablePlace
from strandline.readers import key_lookup
from strandline.tableformat.storage import open_storage
from strandline.writers import compacting, forgetting, rewrite_tasks
from tests.stores import WatchedStorage
from tests.tables import START_MS, Script, memory_url, small_limits

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from strandline.table import Table

MINUTE = 60_000


def make(storage: Any = None, **options: Any) -> Table:
    """A table keyed by `id` with windows of a minute, and a clock that stands."""
    return create_in(
        storage or open_storage(memory_url()),
        {"at": "int64", "id": "int64", "v": "string"},
        runtime=Script(now=START_MS).runtime(),
        **{"time_column": "at", "ttl": "15m", "primary_key": "id", "uncapped": True, **options},
    )


def row(minute: float, key: int, v: str) -> dict[str, Any]:
    """One row, so many minutes before the clock's time."""
    return {"at": START_MS + int(minute * MINUTE), "id": key, "v": v}


def values(table: Table, **options: Any) -> list[str]:
    """Column `v`, in the order of `_seq`."""
    return table.scan(["v"], **options).to_arrow().column(0).to_pylist()  # type: ignore[no-any-return]


def told(table: Table) -> list[tuple[int, bool]]:
    """Keys of all stored rows, and whether these are tombstones."""
    found = table.scan(["id", "_deleted"], all_rows=True).to_arrow().to_pylist()
    return [(r["id"], r["_deleted"]) for r in found]


def test_only_the_newest_row_of_each_key_stays() -> None:
    """[M7] [KEY-11] Of rows in the order of their times; a late one stays with its winner."""
    table = make()
    for n in range(4):
        table.upsert([row(-9 + n / 100, key, f"{key}-{n}") for key in range(3)])
    table.upsert([row(-9 + 1 / 1000, 2, "late")])
    report = table.compact()
    assert (report.rows, report.rows_dropped, report.segments_after) == (4, 9, 1)
    assert values(table) == ["0-3", "1-3", "2-3"]
    assert values(table, all_rows=True) == ["0-3", "1-3", "2-3", "late"]
    assert table.manifest.deleted_rows == 9
    assert table.verify(deep=True).ok
    table.trim(12)
    assert values(table) == ["late"]


def test_a_run_that_was_replaced_elsewhere_leaves_nothing_behind() -> None:
    """[M7] The newer rows are in another window; the old window has no file any more."""
    table = make()
    for n in range(3):
        table.upsert([row(-9, key, f"old {n}") for key in range(4)])
    table.upsert([row(-2, key, "new") for key in range(4)])
    table.delete(keys=[3])
    report = table.compact()
    assert report.rows_dropped == 12
    assert table.files().num_rows == 2
    assert values(table) == ["new"] * 3
    assert told(table) == [(0, False), (1, False), (2, False), (3, False), (3, True)]


def test_tombstones_stay_exactly_as_long_as_an_older_row_is_there() -> None:
    """[M7] [KEY-12] In another window, in the same one, and of a key that nobody had."""
    table = make()
    table.upsert([row(-9, 1, "a"), row(-9, 2, "b")])
    table.delete(keys=[1, 7])
    table.delete(keys=[2, 8])
    table.compact()
    assert told(table) == [(1, False), (2, False), (1, True), (2, True)]
    table.delete(filter="id = 1")
    table.compact()
    assert told(table) == [(2, False), (2, True)]
    table.upsert([row(-9, 3, "c")])
    # The old window has a run now, of which only the new row is left; then nothing is hidden.
    report = table.compact()
    assert (report.runs, report.segments_after, report.rows_dropped) == (2, 1, 2)
    assert told(table) == [(3, False)]
    assert values(table) == ["c"]
    assert table.compact().runs == 0
    assert table.verify(deep=True).ok


def test_a_tombstone_outside_of_runs_is_only_looked_at() -> None:
    """[M7] While it hides a row, nothing is written for it, whatever often compaction comes by."""
    table = make()
    table.upsert([row(-9, 1, "a")])
    table.delete(keys=[1])
    version = table.version
    assert table.compact().runs == 0
    assert table.version == version


# --- while others are at work --------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> list[int]:
    """Let something happen before the first commit that assumes something; counts from then on."""
    commit, calls = compacting.commit, []

    def slow(*given: Any, **more: Any) -> Any:
        assumes = given[2].actions[0].assumes is not None
        if assumes and not calls:
            act()
        if assumes or calls:
            calls.append(1)
        return commit(*given, **more)

    monkeypatch.setattr(compacting, "commit", slow)
    return calls


def test_a_row_that_comes_late_meanwhile_keeps_the_tombstone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[KEY-13] [M7] It was hidden before the compaction, so it is hidden afterwards."""
    table = make()
    table.delete(keys=[1])
    table.delete(keys=[2])
    other = open_in(table._chain.storage)  # noqa: SLF001
    calls = meanwhile(monkeypatch, lambda: other.upsert([row(-5, 1, "late")]))
    table.compact()
    # What was to go with it goes by itself, once it has been looked at again.
    assert len(calls) == 3
    assert values(table.refresh()) == []
    assert told(table) == [(1, True), (1, False)]


def test_rows_come_back_whole_when_a_rollback_takes_what_had_replaced_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[KEY-13] [M7] A run is not forgotten for rows that are gone when its commit lands."""
    table = make()
    table.upsert([row(-9, 1, "old"), row(-9, 2, "old")])
    table.upsert([row(-9, 3, "old")])
    before = table.version
    table.upsert([row(-2, key, "new") for key in (1, 2, 3)])
    other = open_in(table._chain.storage)  # noqa: SLF001
    meanwhile(monkeypatch, lambda: other.rollback(before))
    report = table.compact()
    assert values(table.refresh()) == ["old"] * 3
    assert report.rows_dropped == 0
    assert (report.runs, report.lost_runs) == (1, 0)


def test_a_rollback_that_brings_an_older_row_back_keeps_the_tombstone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[KEY-13] [KEY-12] The row was deleted for good when the tombstone seemed of no use."""
    table = make()
    table.upsert([row(-9, 1, "old")])
    table.delete(keys=[1])
    table.delete(keys=[2])
    before = table.version
    table.delete(filter="id = 1")
    other = open_in(table._chain.storage)  # noqa: SLF001
    meanwhile(monkeypatch, lambda: other.rollback(before))
    table.compact()
    assert values(table.refresh()) == []
    assert (1, True) in told(table)


def test_appends_and_rolls_meanwhile_do_not_starve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] What it relied on has moved into a page: it falls back on what the run alone tells."""
    table = make()
    with small_limits():
        table.upsert([row(-9, key, "old") for key in (1, 2)])
        table.upsert([row(-9, 1, "newer")])
        table.upsert([row(-2, 2, "new")])
        table.upsert([row(-2, 9, "new")])
        other = open_in(table._chain.storage)  # noqa: SLF001

        def append() -> None:
            for n in range(8):
                other.upsert([row(-2, 10 + n, "more")])

        calls = meanwhile(monkeypatch, append)
        report = table.compact()
    assert table.refresh().manifest.windows
    assert len(calls) == 2
    assert report.lost_runs == 0
    assert sorted(values(table))[-3:] == ["new", "new", "newer"]
    assert table.scan().count() == 11


def test_too_much_elsewhere_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """[M7] Then rows that are rewritten together are compared, and nothing is wrong by that."""
    table = make()
    for _ in range(2):
        table.upsert([row(-9, key, "old") for key in (1, 2)])
    table.upsert([row(-2, 1, "new")])
    table.delete(keys=[2])
    monkeypatch.setattr(forgetting, "MOST_ROWS_ELSEWHERE", 0)
    assert table.compact().rows_dropped == 2
    assert values(table, all_rows=True) == ["old", "old", "new"]
    monkeypatch.undo()
    table.upsert([row(-9, 3, "old")])
    table.compact()
    assert values(table, all_rows=True) == ["new", "old"]


def test_tasks_and_automatic_compaction_compare_what_they_rewrite() -> None:
    """[M7] What other processes rewrite for one commit keeps each key's newest row of the run."""
    table = make()
    for n in range(3):
        table.upsert([row(-9, key, f"{n}") for key in (1, 2)])
    table.delete(keys=[1])
    table.delete(keys=[1])
    place = TablePlace(table)
    for task in rewrite_tasks.plan_tasks(place, table.url):
        made = task.run()
        assert made.assumes is None
        assert rewrite_tasks.commit_task(place, task, made)
    assert told(table) == [(1, False), (2, False), (1, True)]
    assert values(table) == ["2"]

    other = make()
    with other.writer("w", wal=False, ack="committed", auto_compact=4, flush_rows=1) as writer:
        for n in range(6):
            writer.append([row(-9 + n / 100, 1, f"{n}")]).wait()
    assert values(other) == ["5"]
    assert other.refresh().manifest.deleted_rows > 0


def test_other_segments_are_read_once_and_only_where_they_may_matter() -> None:
    """[M7] [KEY-4] Key columns where bounds allow a key of the run; then from memory."""
    storage = WatchedStorage(open_storage(memory_url()))
    table = make(storage)
    for n in range(2):
        table.upsert([row(-9, key, f"{n}") for key in (1, 2)])
    table.upsert([row(-2, key, "far") for key in (50, 60)])
    table.upsert([row(-2 + 1 / 100, key, "near") for key in (2, 3)])
    (run,) = compacting.plan_runs(
        [entry for entry in table.manifest.segments if entry.max_ts < START_MS - 5 * MINUTE]
    )
    storage.calls.clear()
    elsewhere = forgetting.Elsewhere(table.manifest_service, table.manifest, run.segments)
    keys = key_lookup.key_set([1, 2], table.manifest)
    for _ in range(2):
        ((entry, found),) = elsewhere.read(keys) or []
        assert entry.path == table.manifest.segments[-1].path
        assert found.column("id").to_pylist() == [2]
    assert [path for _, path in storage.calls] == [entry.path]
