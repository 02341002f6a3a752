"""Overwriting a table: new rows in the place of all others, in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.api import create_in
from strandline.tableformat.errors import Fenced, InvalidInput
from strandline.tableformat.storage import open_storage
from tests.tables import SCHEMA, Script, events, memory_url, small_limits

if TYPE_CHECKING:
    from strandline.table import Table


def make_table() -> Table:
    """A table with four appends."""
    table = create_in(
        open_storage(memory_url()), SCHEMA, runtime=Script().runtime(), time_column="ts"
    )
    for first in range(0, 40, 10):
        table.append(events(first, 10))
    return table


def numbers(table: Table) -> list[int]:
    """Column `n`, in order."""
    return [int(n) for n in table.scan(["n"]).to_arrow().column("n").to_pylist()]


def test_new_rows_take_the_place_of_all_others() -> None:
    """[C2] [COM-15] Old versions keep theirs; numbers go on behind the tail."""
    table = make_table()
    version = table.version

    done = table.overwrite(events(100, 5))

    assert numbers(table) == list(range(100, 105))
    assert (done.version, done.first_seq, done.last_seq, done.rows) == (version + 1, 40, 44, 5)
    assert table.scan(["_seq"]).to_arrow().column("_seq").to_pylist() == list(range(40, 45))
    assert table.manifest.deleted_rows == 40
    assert len(table.manifest.removed_files) == 4
    assert table.history(1)[0].operation == "overwrite"
    old = strandline.open_table(table.url, version=version)
    assert numbers(old) == list(range(40))
    assert table.verify(deep=True).ok


def test_it_takes_out_what_was_appended_a_moment_before() -> None:
    """[C1] [COM-15] What goes is everything in the version that the commit lands on."""
    table = make_table()
    other = strandline.open_table(table.url)
    table.append(events(40, 10))

    other.overwrite(events(100, 1))

    assert numbers(table) == [100]
    assert table.tail().next_seq == 51


def test_pages_and_folded_windows_go_too() -> None:
    """[COM-15] [MAN-10] Wherever segments are listed, none is left."""
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, runtime=Script().runtime(), time_column="ts", ttl="1d")
    with small_limits():
        for number in range(40):
            table.append(events(number % 10 * 3600 + number, 1))
    before = table.manifest
    assert before.windows
    assert before.window_pages

    table.overwrite([])

    assert numbers(table) == []
    assert table.manifest.deleted_rows == 40
    listed = {page.path for window in before.windows for page in window.pages}
    listed |= {page.path for page in before.window_pages}
    listed |= {entry.path for entry in before.segments}
    assert set(table.manifest.removed_files) == listed
    assert table.append(events(0, 1)).first_seq == 40
    assert table.verify(deep=True).ok


def test_a_batch_overwrites_once() -> None:
    """[C1] A repeated batch returns its first result and takes nothing away."""
    table = make_table()
    first = table.overwrite(events(100, 5), writer_id="job", batch=1)
    table.append(events(200, 1))

    again = strandline.open_table(table.url).overwrite(events(100, 5), writer_id="job", batch=1)

    assert again.duplicate
    assert again.first_seq == first.first_seq
    assert numbers(table) == [*range(100, 105), 200]


def test_the_fence_keeps_out_who_may_not_write() -> None:
    """[O8] Nothing goes without the token."""
    table = make_table()
    table.fence("token")

    with pytest.raises(Fenced):
        table.overwrite(events(100, 5))

    assert numbers(table) == list(range(40))
    assert table.overwrite(events(100, 1), fence="token").rows == 1


def test_rows_that_do_not_fit_change_nothing() -> None:
    """[E1] An overwrite is checked like an append, before anything goes."""
    table = make_table()
    version = table.version

    with pytest.raises(InvalidInput, match="unknown"):
        table.overwrite([{"n": 1, "unknown": 2}])

    assert table.refresh().version == version
    with pytest.raises(strandline.ReadOnlyTable):
        strandline.open_table(table.url, version=2).overwrite([])
