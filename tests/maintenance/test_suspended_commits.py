"""A process sleeps between a lost reply and its next try, and its version is vacuumed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from strandline.tableformat.errors import CommitStateUnknown, OutcomeUnclear
from strandline.tableformat.manifest import HISTORY_LENGTH
from strandline.tableformat.stores.memory import MemoryStorage
from strandline.tableformat.windows import DAY_MS
from tests.maintenance.aging import NOW, Aging, numbers, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.table import Table
    from strandline.tableformat.storage import Put


def suspended(world: Aging, others: int) -> Any:
    """The next commit lands, nobody hears of it, and the next try comes after a vacuum."""
    right = MemoryStorage.put_if_absent
    turns = iter([True])

    def put(self: MemoryStorage, path: str, *args: Any, **options: Any) -> Put:
        done = right(self, path, *args, **options)
        if "/manifests/" in path and next(turns, False):
            other = world.open()
            for n in range(others):
                other.append([row(NOW, 1000 + n)])
            world.wait(8 * DAY_MS)
            other.expire_versions("1h")
            world.wait(2 * DAY_MS)
            other.append([row(NOW, 2000)])
            other.vacuum(dry_run=False)
            assert path not in world.files("_strandline/manifests/")
            raise OutcomeUnclear("the reply was lost")
        return done

    return mock.patch.object(MemoryStorage, "put_if_absent", put)


def a_table(world: Aging) -> Table:
    """A few small files."""
    table = world.create()
    for n in range(6):
        table.append([row(NOW, n)])
    return table


CHANGES: dict[str, tuple[Callable[[Table], Any], list[int]]] = {
    "append": (lambda table: table.append([row(NOW, 77)]), [0, 1, 2, 3, 4, 5, 77]),
    "compact": (lambda table: table.compact(min_segments=2), [0, 1, 2, 3, 4, 5]),
    "delete": (lambda table: table.delete(filter="n < 2"), [2, 3, 4, 5]),
    "set": (lambda table: table.set(ttl="3650d"), [0, 1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_landed_is_found_again(name: str) -> None:
    """[C1] [C2] [GC-5] Nothing is committed twice, and no listed file is thrown away."""
    world = Aging()
    table = a_table(world)
    change, left = CHANGES[name]

    with suspended(world, 3):
        change(table)

    want = sorted([*left, 1000, 1001, 1002, 2000])
    assert sorted(numbers(world.open())) == want
    assert sorted(numbers(table)) == want
    assert world.open().verify(deep=True).ok
    table.append([row(NOW, 78)])
    assert sorted(numbers(table)) == sorted([*want, 78])


@pytest.mark.parametrize("name", CHANGES)
def test_what_nobody_remembers_any_more_is_an_error(name: str) -> None:
    """[C1] [C2] [GC-5] The history ends behind it: the caller hears that it may have landed."""
    world = Aging()
    table = a_table(world)
    change, left = CHANGES[name]

    with suspended(world, HISTORY_LENGTH), pytest.raises(CommitStateUnknown):
        change(table)

    found = sorted(numbers(world.open()))
    assert found == sorted([*left, *range(1000, 1000 + HISTORY_LENGTH), 2000])
    assert world.open().verify(deep=True).ok
