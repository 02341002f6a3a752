"""How much is read, to the byte: what a scan asks the store for, and what it leaves there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.api import create_in, open_in
from strandline.catalog.page_cache import PAGES
from strandline.readers import split_reader
from strandline.readers.index_reader import CACHE
from strandline.readers.split_reader import read_split
from strandline.readers.splits import Split
from strandline.tableformat import page_table
from strandline.tableformat.binding import bind
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.reference import SEGMENT, path_of
from strandline.tableformat.stores.memory import MemoryStorage
from tests.parquet_pages import pages_of
from tests.tables import START_MS, Script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.table import Table
    from strandline.tableformat.segments import SegmentEntry

ROWS, ROW_GROUP, ZONE = 130_000, 32_768, 1_024
GROUPS = 4
MAX_GAP = 64 * 1024
END_BYTES = 128 * 1024
"""So much of the end of an index file is read with its catalog."""


class Counted(MemoryStorage):
    """Notes every request for bytes of a data file, as it would go to the store."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.requests: list[tuple[str, int, int]] = []
        self._lock = threading.Lock()

    def _read_spans(self, spans: Any) -> list[bytes]:
        with self._lock:
            self.requests += [
                (span.path, span.start, span.length) for span in spans if span.path.startswith("w")
            ]
        return super()._read_spans(spans)


@cache
def written(*, indexed: bool = False) -> str:
    """Two segments of five columns, four row groups each, with pages that are zones.

    `indexed`: with postings of keys, which are spread over both segments then.
    """
    name = f"scan-requests-{indexed}"
    table = create_in(
        MemoryStorage(name),
        {"at": "int64", "key": "int64", "word": "string", "x": "float64", "y": "float64"},
        runtime=Script().runtime(),
        time_column="at",
        row_group_rows=ROW_GROUP,
        # Without: what execution does by itself.
        indexes={"key": ["postings"], "word": [], "x": [], "y": []} if indexed else False,
        zone_rows=ZONE,
        zone_pages=True,
    )
    random = np.random.default_rng(3)
    spread = random.permutation(2 * ROWS) if indexed else None
    for batch in range(2):
        numbers = np.arange(batch * ROWS, (batch + 1) * ROWS)
        table.append(
            pa.table(
                {
                    "at": START_MS + numbers,
                    "key": random.permutation(numbers) if spread is None else spread[numbers],
                    "word": random.choice(["red", "green", "blue"], ROWS),
                    "x": random.random(ROWS),
                    "y": random.random(ROWS),
                }
            )
        )
    return name


@dataclass
class World:
    """The table, and what was asked for since the last look."""

    storage: Counted
    table: Table

    def asked(self) -> list[tuple[str, int, int]]:
        found = sorted(self.storage.requests)
        self.storage.requests.clear()
        return found


@pytest.fixture
def world() -> Iterator[World]:
    """The same two segments for every test, and cold caches."""
    yield from opened(written())


@pytest.fixture
def indexed_world() -> Iterator[World]:
    """Two segments with index files, and cold caches."""
    yield from opened(written(indexed=True))


def opened(name: str) -> Iterator[World]:
    """The table as a process finds it that has just begun."""
    storage = Counted(name)
    table = open_in(storage)
    PAGES.clear()
    CACHE.clear()
    storage.requests.clear()
    yield World(storage, table)
    PAGES.clear()
    CACHE.clear()


def files(world: World) -> list[tuple[str, bytes, pq.FileMetaData]]:
    """Path, bytes and footer of each segment."""
    found = []
    for entry in sorted(world.table.manifest.segments, key=lambda entry: entry.min_seq):
        data = world.storage.read(entry.path)
        assert len(data) > split_reader.WHOLE_FILE_BYTES
        found.append((entry.path, data, pq.read_metadata(pa.BufferReader(data))))
    return found


def footer_request(path: str, data: bytes) -> tuple[str, int, int]:
    """What a footer takes, with its length and magic."""
    size = int.from_bytes(data[-8:-4], "little") + 8
    return path, len(data) - size, size


def chunk_requests(
    path: str, footer: pq.FileMetaData, names: set[str], groups: range
) -> list[tuple[str, int, int]]:
    """The chunks of some columns, with neighbours at most 64 KiB apart as one request."""
    merged: list[list[int]] = []
    for group in groups:
        for leaf in range(footer.num_columns):
            chunk = footer.row_group(group).column(leaf)
            if chunk.path_in_schema not in names:
                continue
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            end = start + chunk.total_compressed_size
            if merged and start - merged[-1][1] <= MAX_GAP:
                merged[-1][1] = end
            else:
                merged.append([start, end])
    return [(path, start, end - start) for start, end in merged]


ALL = {"at", "key", "word", "x", "y"}


def test_a_full_scan_asks_for_each_footer_and_each_byte_of_data_once(world: World) -> None:
    """[E10] Two requests for a file never seen before, one for a file whose footer is known."""
    expected = []
    data_only = []
    for path, data, footer in files(world):
        chunks = chunk_requests(path, footer, ALL, range(GROUPS))
        assert len(chunks) == 1
        data_only += chunks
        expected += [*chunks, footer_request(path, data)]

    assert world.table.scan().to_arrow().num_rows == 2 * ROWS
    assert world.asked() == sorted(expected)
    assert world.table.scan().to_arrow().num_rows == 2 * ROWS
    assert world.asked() == sorted(data_only)


def test_two_columns_leave_the_bytes_of_the_others(world: World) -> None:
    """[E10] Chunks of the named columns, and of nothing else but small gaps."""
    names = {"key", "y"}
    expected, wanted, total = [], 0, 0
    for path, data, footer in files(world):
        expected += [footer_request(path, data)]
        expected += chunk_requests(path, footer, names, range(GROUPS))
        total += len(data)
        for group in range(GROUPS):
            chunks = [footer.row_group(group).column(leaf) for leaf in range(5)]
            wanted += sum(c.total_compressed_size for c in chunks if c.path_in_schema in names)
    expected.sort()

    world.table.scan(columns=["key", "y"]).to_arrow()

    asked = world.asked()
    assert asked == expected
    assert wanted < sum(size for _, _, size in asked) < 0.75 * total


def test_a_filter_column_is_read_once_and_counted_alone(world: World) -> None:
    """[E10] `count` with a filter reads the filter's columns; without one it reads nothing."""
    assert world.table.scan().count() == 2 * ROWS
    assert world.table.scan(start_seq=0, end_ts=START_MS + 10**9).count() == 2 * ROWS
    assert world.asked() == []

    expected = []
    for path, data, footer in files(world):
        expected += [footer_request(path, data)]
        expected += chunk_requests(path, footer, {"x"}, range(GROUPS))
    count = world.table.scan(filter="x < 0.5").count()
    assert 0.9 * ROWS < count < 1.1 * ROWS
    assert world.asked() == sorted(expected)


def test_a_filter_that_holds_for_a_whole_segment_is_not_asked_again(world: World) -> None:
    """[E10] A range over time reads the time column only where it cuts through a segment."""
    (first, first_data, first_footer), (second, second_data, second_footer) = files(world)
    found = world.table.scan(columns=["y"], start_ts=START_MS + ROWS // 2).to_arrow()
    assert found.num_rows == ROWS + ROWS // 2
    assert world.asked() == sorted(
        [
            footer_request(first, first_data),
            *chunk_requests(first, first_footer, {"at", "y"}, range(GROUPS)),
            footer_request(second, second_data),
            *chunk_requests(second, second_footer, {"y"}, range(GROUPS)),
        ]
    )


def test_a_limit_reads_the_first_row_group_of_the_first_segment(world: World) -> None:
    """[E10] Ten rows take ten rows' worth: nothing of later row groups and segments."""
    path, data, footer = files(world)[0]
    found = world.table.scan(limit=10).to_arrow()
    assert found.column("at").to_pylist() == [START_MS + n for n in range(10)]
    assert world.asked() == sorted(
        [footer_request(path, data), *chunk_requests(path, footer, ALL, range(1))]
    )


def test_a_limit_stops_at_the_row_group_that_has_enough_matches(world: World) -> None:
    """[E10] With a filter the first row group is read alone: often it is enough."""
    path, data, footer = files(world)[0]
    found = world.table.scan(columns=["at"], filter="x < 0.5", limit=10).to_arrow()
    assert found.num_rows == 10
    assert world.asked() == sorted(
        [footer_request(path, data), *chunk_requests(path, footer, {"at", "x"}, range(1))]
    )


def splits(world: World) -> list[Split]:
    """The segments with their page tables."""
    found = []
    for entry in sorted(world.table.manifest.segments, key=lambda entry: entry.min_seq):
        blob = page_table.build(world.storage.read(entry.path))
        assert blob is not None
        pages = page_table.open(blob, row_count=entry.row_count, size_bytes=entry.size_bytes)
        found.append(Split(entry, np.zeros(-(-ROWS // ZONE), np.bool_), pages))
    return found


def zone_request(world: World, split: Split, name: str, zone: int) -> tuple[int, int]:
    """Place and size of the page of one zone, found by walking over page headers."""
    data = world.storage.read(split.entry.path)
    names = ["at", "key", "word", "x", "y"]
    group, within = divmod(zone * ZONE, ROW_GROUP)
    pages = [p for p in pages_of(data)[group][names.index(name)] if p.values is not None]
    page = pages[within // ZONE]
    return page.start, page.size


def test_one_zone_of_one_column_is_one_request_for_one_page(world: World) -> None:
    """[E10] Not a byte more, and no footer."""
    split = splits(world)[0]
    assert split.zones is not None
    split.zones[20] = True
    (rows,) = read_split(world.storage, world.table.manifest, split, {4})
    assert rows.num_rows == ZONE
    path = split.entry.path
    assert world.asked() == [(path, *zone_request(world, split, "x", 20))]


def test_a_dictionary_comes_with_its_page(world: World) -> None:
    """[E10] One more page, in the same request."""
    split = splits(world)[0]
    assert split.zones is not None
    split.zones[20] = True
    (rows,) = read_split(world.storage, world.table.manifest, split, {3})
    assert set(rows.column("word").to_pylist()) == {"red", "green", "blue"}
    data = world.storage.read(split.entry.path)
    dictionary = pages_of(data)[20 * ZONE // ROW_GROUP][2][0]
    start, size = zone_request(world, split, "word", 20)
    assert world.asked() == [(split.entry.path, dictionary.start, start + size - dictionary.start)]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_point_lookup_reads_the_rest_only_where_it_hits(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,  # noqa: FBT001 - a test's parameter
) -> None:
    """[E10] Of three zones one holds the key: the others are asked for their key alone.

    While the rest is small it comes with the first request, because a second one costs more.
    """
    if not at_once:
        monkeypatch.setattr(split_reader, "ONE_STEP_BYTES", 0)
    split = splits(world)[1]
    rows = world.table.scan(columns=["key"], start_seq=ROWS).to_arrow().column("key").to_numpy()
    world.asked()
    assert split.zones is not None
    zones = [3, 30, 70]
    split.zones[zones] = True
    wanted = int(rows[30 * ZONE + 5])
    bound = bind(filter_from(f"key = {wanted}"), world.table.manifest.schema)

    (found,) = read_split(
        world.storage, world.table.manifest, replace(split, bound=bound), {1, 2, 4, 5}
    )

    assert found.column("at").to_pylist() == [START_MS + ROWS + 30 * ZONE + 5]
    asked = sum(size for _, _, size in world.asked())
    keys = [zone_request(world, split, "key", zone) for zone in zones]
    rest = [zone_request(world, split, name, 30) for name in ("at", "x", "y")]
    if at_once:
        others = [
            zone_request(world, split, name, zone)
            for zone in zones
            for name in ("at", "key", "x", "y")
        ]
        assert asked == sum(_merged_sizes(others))
    else:
        assert asked == sum(_merged_sizes(keys)) + sum(_merged_sizes(rest))


def _merged_sizes(ranges: list[tuple[int, int]]) -> list[int]:
    return [size for _, _, size in merged("", ranges)]


def merged(path: str, ranges: list[tuple[int, int]]) -> list[tuple[str, int, int]]:
    """Requests for some places and sizes, with neighbours at most 64 KiB apart as one."""
    found: list[list[int]] = []
    for start, size in sorted(ranges):
        if found and start - found[-1][1] <= MAX_GAP:
            found[-1][1] = start + size
        else:
            found.append([start, start + size])
    return [(path, start, end - start) for start, end in found]


# --- through index files ---


def index_requests(
    world: World, entry: SegmentEntry, *places: tuple[int, str]
) -> list[tuple[str, int, int]]:
    """The end of an index file with its catalog, and the wanted indexes that lie before it."""
    assert entry.index is not None
    path = path_of(entry.path)
    data = world.storage.read(path)
    catalog = decode_catalog(data[-entry.index.catalog_bytes :], entry.index, path)
    end = len(data) - END_BYTES
    assert end > 0
    blobs = [blob for place in places if (blob := catalog.find(*place))]
    assert len(blobs) == len(places)
    before = [(blob.offset, blob.size) for blob in blobs if blob.offset < end]
    return [(path, end, END_BYTES), *merged(path, before)]


def test_a_point_lookup_reads_postings_and_the_pages_of_one_zone(indexed_world: World) -> None:
    """[E10, E7] Cold: of both files the catalog and the postings; warm: the rows alone."""
    world = indexed_world
    first, second = splits(world)
    keys = world.table.scan(columns=["key"], start_seq=ROWS).to_arrow().column("key")
    row = 30 * ZONE + 5
    wanted = keys[row].as_py()
    columns = ["at", "key", "x", "y"]
    places = ((2, "postings"), (SEGMENT, "pages"))
    indexes = [
        one for split in (first, second) for one in index_requests(world, split.entry, *places)
    ]
    assert len(indexes) > 2, "postings are larger than the end of a file that is read at once"
    zone = [zone_request(world, second, name, 30) for name in columns]
    pages = merged(second.entry.path, zone)
    PAGES.clear()
    CACHE.clear()
    world.asked()

    for expected in (indexes + pages, pages):
        found = world.table.scan(columns, f"key = {wanted}").to_arrow()
        assert found.column("at").to_pylist() == [START_MS + ROWS + row]
        assert world.asked() == sorted(expected)


def test_the_earliest_rows_take_one_zone_of_one_file(indexed_world: World) -> None:
    """[E10, E6] ORDER BY `_ts` LIMIT: the rank of one file, and a page of each column."""
    world = indexed_world
    first, second = splits(world)
    for descending, split, zone in ((False, first, 0), (True, second, (ROWS - 1) // ZONE)):
        indexes = index_requests(world, split.entry, (TS_ID, "rank"), (SEGMENT, "pages"))
        zones = [zone_request(world, split, name, zone) for name in ("at", "x")]
        pages = merged(split.entry.path, zones)
        world.asked()
        for expected in (indexes + pages, pages):
            scan = world.table.scan(["x"], order_by="_ts", descending=descending, limit=10)
            assert scan.to_arrow().num_rows == 10
            assert world.asked() == sorted(expected)
