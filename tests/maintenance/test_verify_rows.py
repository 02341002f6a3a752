"""Stats and indexes against the rows they speak of, and repairs of what only costs time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from strandline.api import create_in
from strandline.maintenance.verify import verify
from strandline.place import TablePlace
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.storage import open_storage
from tests.tables import SCHEMA, Script, events, memory_url

if TYPE_CHECKING:
    from strandline.table import Table


@pytest.fixture
def table() -> Table:
    """A table whose only segment has every kind of index that fits."""
    made = create_in(
        open_storage(memory_url()),
        SCHEMA,
        runtime=Script().runtime(),
        time_column="ts",
        row_group_rows=1024,
        zone_rows=128,
        indexes={"n": ["zone_map", "membership", "postings"], "user": ["enum_bitmap"]},
    )
    made.append(events(0, 3000, step_ms=1))
    return made


@pytest.mark.parametrize(
    "lie",
    [
        {"4": {"min": "0", "max": "100", "null_count": "0"}},
        {"4": {"min": "5", "max": "2999", "null_count": "0"}},
        {"4": {"min": "0", "max": "2999", "null_count": "7"}},
    ],
)
def test_stats_that_would_lose_rows_are_told(table: Table, lie: dict[str, Any]) -> None:
    """[SEG-5] [STA-1] [X4] `deep` compares bounds and counts with the values."""
    (entry,) = table.manifest.segments
    wrong = replace(entry, column_stats={**entry.column_stats, **lie}, encoded=b"")
    service = TablePlace(table).chain.service

    report = verify(service, replace(table.manifest, segments=(wrong,)), deep=True)

    assert "column 'n'" in str(report)
    assert table.verify(deep=True).ok


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_index_is_made_anew_only_on_request(table: Table, how: str) -> None:
    """[T8] Rows and numbers stay; the index is there again."""
    before = table.scan([*SCHEMA.names, "_seq", "_ts"]).to_arrow()
    (entry,) = table.manifest.segments
    storage, path = TablePlace(table).chain.storage, path_of(entry.path)
    data = bytearray(storage.read(path))
    storage.delete([path])
    if how == "damaged":
        data[10] ^= 1
        storage.write_new(path, bytes(data)).wait()
    version = table.version
    assert not table.verify(deep=True).ok
    assert table.refresh().version == version

    report = table.verify(deep=True, repair=True)

    assert report.ok
    assert report.repaired == (entry.path,)
    assert "repaired: 1 segments" in str(report)
    assert table.history(1)[0].operation == "repair"
    assert table.manifest.segments[0].index is not None
    assert table.scan([*SCHEMA.names, "_seq", "_ts"]).to_arrow().equals(before)


def test_damaged_rows_are_not_repaired(table: Table) -> None:
    """[X4] What to do about lost rows is for people to say."""
    (entry,) = table.manifest.segments
    TablePlace(table).chain.storage.delete([entry.path])
    version = table.version

    assert not table.verify(deep=True, repair=True).ok
    assert table.refresh().version == version
