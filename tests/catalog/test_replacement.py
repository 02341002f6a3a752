"""Segments replaced wherever a version lists them: inline, in pages, in folded windows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from strandline.api import create_in
from strandline.catalog.commit import commit
from strandline.catalog.locating import Replacement, missing_from
from strandline.catalog.replacement import ReplacementChange
from strandline.place import TablePlace
from strandline.readers.planner import plan_scan
from strandline.tableformat.errors import CommitConflict
from strandline.tableformat.segments import STORED
from strandline.tableformat.storage import open_storage
from strandline.writers.rewriting import rewrite
from tests.tables import SCHEMA, Script, events, memory_url, small_limits

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.catalog.chain import Chain
    from strandline.table import Table
    from strandline.tableformat.segments import SegmentEntry

HOUR = 3_600_000


def make_table() -> Table:
    """A table with hourly windows."""
    storage = open_storage(memory_url())
    return create_in(storage, SCHEMA, runtime=Script().runtime(), time_column="ts", ttl="1d")


def chain_of(table: Table) -> Chain:
    """The table's versions."""
    return TablePlace(table).chain


def segments_of(table: Table) -> list[SegmentEntry]:
    """All segments of the head."""
    table.refresh()
    return list(plan_scan(chain_of(table).service, table.manifest, None).segments)


def rewritten(table: Table, inputs: list[SegmentEntry]) -> Replacement:
    """The same rows in one file."""
    chain = chain_of(table)
    done = rewrite(chain.storage, table.manifest, inputs, chain.runtime.random_hex)
    return Replacement(tuple(inputs), done.entries)


def replace(table: Table, inputs: list[SegmentEntry]) -> None:
    """Compact these segments, in a commit."""
    chain = chain_of(table)
    change = ReplacementChange(chain, table.manifest, rewritten(table, inputs))
    done = commit(chain, TablePlace(table).head, change, operation="compact")
    TablePlace(table).see(done.snapshot)


def rows_of(table: Table) -> pa.Table:
    """Everything a reader can see of each row."""
    return table.scan([*SCHEMA.names, "_seq", "_ts", "_window"]).to_arrow()


def test_rows_of_several_batches_keep_their_numbers_in_one_file() -> None:
    """[ROW-9] [COM-16] [O1] Every row keeps `_seq` and `_ts`; old files are listed as removed."""
    table = make_table()
    for first in range(0, 40, 10):
        table.append(events(first, 10, step_ms=400_000))
    before = rows_of(table)
    by_window = Counter(entry.window for entry in segments_of(table))
    window, count = by_window.most_common(1)[0]
    inputs = [entry for entry in segments_of(table) if entry.window == window]
    assert count >= 2

    replace(table, inputs)

    assert rows_of(table).equals(before)
    assert set(table.manifest.removed_files) == {entry.path for entry in inputs}
    assert table.verify(deep=True).ok


@pytest.mark.parametrize("windows", [1, 12])
def test_segments_are_replaced_wherever_they_are_listed(windows: int) -> None:
    """[COM-13] Pages are written anew without them, and folded windows come back."""
    with small_limits():
        table = make_table()
        for number in range(60):
            table.append(events(number % windows * 3600 + number, 1))
    manifest = table.manifest
    assert manifest.windows
    assert bool(manifest.window_pages) == (windows > 1)
    before = rows_of(table)
    while True:
        groups: dict[object, list[SegmentEntry]] = {}
        for entry in segments_of(table):
            groups.setdefault(entry.window, []).append(entry)
        due = next((group for group in groups.values() if len(group) > 1), None)
        if due is None:
            break
        # Not all at once, so that pages lose some of their segments and keep others.
        replace(table, due[1:] if len(due) > 2 else due)
        assert rows_of(table).equals(before)
    assert len(segments_of(table)) == windows
    assert any(entry.rows_are == STORED for entry in segments_of(table)) == (windows > 1)
    assert table.verify(deep=True).ok


def test_segments_that_moved_into_pages_meanwhile_are_found_there() -> None:
    """[COM-13] [M7] Concurrent appends roll segments into pages; the change goes on."""
    table = make_table()
    for number in range(6):
        table.append(events(number, 1))
    inputs = segments_of(table)
    chain, head = chain_of(table), TablePlace(table).head
    change = ReplacementChange(chain, head.manifest, rewritten(table, inputs))
    with small_limits():
        table.append(events(6, 1))
    assert not {entry.path for entry in table.manifest.segments} & {e.path for e in inputs}

    commit(chain, head, change, operation="compact")

    assert rows_of(table).column("n").to_pylist() == list(range(7))
    assert not {entry.path for entry in segments_of(table)} & {e.path for e in inputs}
    assert table.verify(deep=True).ok


def test_who_comes_second_changes_nothing() -> None:
    """[COM-13] [M7] Of two that replace the same segments one wins, and no row comes twice."""
    table = make_table()
    for number in range(4):
        table.append(events(number, 1))
    inputs = segments_of(table)
    chain, head = chain_of(table), TablePlace(table).head
    late = ReplacementChange(chain, head.manifest, rewritten(table, inputs[1:]))
    replace(table, inputs[:3])
    version = table.version

    with pytest.raises(CommitConflict, match="no longer"):
        commit(chain, head, late, operation="compact")

    assert table.refresh().version == version
    assert rows_of(table).column("n").to_pylist() == list(range(4))
    assert missing_from(chain, table.manifest, inputs) == {e.path for e in inputs[:3]}
