"""Files listed as columns are those that a plan gives as records, and as carefully checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from strandline.catalog.page_cache import PAGES
from strandline.readers.planner import plan_files, plan_scan
from strandline.tableformat import pages, paths, rolling
from strandline.tableformat.binding import bind
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.expressions import col
from strandline.tableformat.segments import OFFSET
from tests.tables import START_MS, memory_url

if TYPE_CHECKING:
    import numpy as np

    from strandline.table import Table
    from strandline.tableformat.expressions import Expression

MINUTE_MS = 60_000
Listed = dict[str, tuple[int, ...]]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Segments in pages: dense ones, split ones, compacted ones, deletes, and some with indexes."""
    for name, value in {"ROLL_AT": 4, "ROLL_STEP": 2, "LEAST_PAGE": 2}.items():
        monkeypatch.setattr(rolling, name, value)
    made = strandline.create_table(
        memory_url(),
        {"ts": "int64", "user": "string", "n": "int64"},
        time_column="ts",
        ttl="10m",
        primary_key=["user"],
        zone_rows=4,
    )
    for batch in range(12):
        made.append(
            [
                {"ts": START_MS + (batch * 7 + i) % 19 * MINUTE_MS, "user": f"u{i}", "n": batch}
                for i in range(9 if batch % 3 else 2)
            ]
        )
        if batch == 5:
            made.delete(keys=["u1"])
            made.compact()
    return made


def as_columns(table: Table, filter_: Expression | None, *, tombstones: bool) -> tuple[Listed, int]:
    """By path: size, creation, first number and window; and how many of them came as columns."""
    manifest = table.manifest
    bound = None if filter_ is None else bind(filter_, manifest.schema)
    plan, found = plan_files(table.manifest_service, manifest, bound, tombstones=tombstones)
    listed = records([split.entry for split in plan.splits])
    for files in found:
        held = files.numbers
        columns = (held["size_bytes"], held["created_at"], held["first_seq"], files.window_starts)
        for place, path in enumerate(files.paths):
            assert path not in listed
            listed[path] = tuple(int(values[place]) for values in columns)
        assert records(files.entries()) == {path: listed[path] for path in files.paths}
    return listed, sum(len(files.rows) for files in found)


def records(entries: Any) -> Listed:
    """The same of records."""
    return {
        entry.path: (
            entry.size_bytes,
            entry.created_at,
            entry.seq_base if entry.rows_are == OFFSET else entry.min_seq,
            entry.window.start_ms,
        )
        for entry in entries
    }


FILTERS: list[Expression | None] = [
    None,
    col("_ts") >= START_MS + 9 * MINUTE_MS,
    (col("_ts") >= START_MS + 3 * MINUTE_MS) & (col("_ts") < START_MS + 5 * MINUTE_MS),
    col("n") == 7,
    col("user") == "u8",
    col("_seq") < 20,
    col("n") > 99,
]


@pytest.mark.parametrize("tombstones", [True, False])
@pytest.mark.parametrize("filter_", FILTERS, ids=str)
def test_the_same_files_come_either_way(
    table: Table, filter_: Expression | None, *, tombstones: bool
) -> None:
    """[X3] Whatever is asked, and whatever kinds of segments there are."""
    manifest = table.manifest
    bound = None if filter_ is None else bind(filter_, manifest.schema)
    plan = plan_scan(table.manifest_service, manifest, bound, tombstones=tombstones)

    listed, in_columns = as_columns(table, filter_, tombstones=tombstones)

    # Zones that no index leaves are told by records only.
    assert listed == records([split.entry for split in plan.splits])
    if filter_ is None:
        assert in_columns > len(listed) // 3


WRONG: dict[str, tuple[str, Any]] = {
    "an absolute path": ("path", "/w0-60000/shard-0/batch-1-0000000000000000.parquet"),
    "a way out": ("path", "w0-60000/shard-0/../batch-1-0000000000000000.parquet"),
    "a second line": ("path", "w0-60000/shard-0/batch-1-0000000000000000.parquet\n"),
    "no rows": ("row_count", 0),
    "a footer larger than the file": ("footer_bytes", 2**30),
    "a schema that is none": ("schema_version", 0),
    "a time before all times": ("created_at", -1),
    "numbers below none": ("min_seq", -1),
    "numbers that end before they begin": ("max_seq", -1),
    "a base below none": ("seq_base", -2),
    "times outside the window": ("max_ts", 2**50),
    "times that end before they begin": ("min_ts", 2**50),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_record_refuses_is_refused_in_columns_too(
    table: Table, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """[M2] [X4] A page that says one impossible thing is an error, not a file to read."""
    name, value = WRONG[wrong]
    read = pages.SegmentPage._read  # noqa: SLF001 - as if the page's bytes said so

    def damaged(self: pages.SegmentPage, names: Any) -> list[pa.Array]:
        arrays = read(self, names)
        if name not in names:
            return arrays
        place = list(names).index(name)
        values = arrays[place].to_pylist()
        arrays[place] = pa.array([value, *values[1:]], arrays[place].type)
        return arrays

    PAGES.clear()
    monkeypatch.setattr(pages.SegmentPage, "_read", damaged)
    with pytest.raises(CorruptTable):
        as_columns(table, None, tombstones=True)


def test_a_page_whose_columns_are_right_makes_no_records(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X3] That is what makes it fast: records are for rows with something of their own."""
    made: list[int] = []
    entries = pages.SegmentPage.entries

    def counted(self: pages.SegmentPage, rows: np.ndarray[Any, Any]) -> Any:
        made.append(len(rows))
        return entries(self, rows)

    monkeypatch.setattr(pages.SegmentPage, "entries", counted)
    plan, found = plan_files(table.manifest_service, table.manifest, None, tombstones=True)
    inline = len(table.manifest.segments)
    assert sum(made) == len(plan.splits) - inline
    assert sum(len(files.rows) for files in found) > sum(made)


def test_paths_are_asked_together() -> None:
    """[M1] As each by itself."""
    good = "w0-60000/shard-0/batch-1-0123456789abcdef.parquet"
    assert paths.are_segment_paths([])
    assert paths.are_segment_paths([good, good.replace("batch", "late")])
    for bad in ("", good + "x", good + "\n", "x" + good, good.replace("0123", "01-3")):
        assert not paths.are_segment_paths([good, bad, good])
