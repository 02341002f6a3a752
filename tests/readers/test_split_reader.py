"""Any zones of any segment, by pages or by chunks: exactly the rows that a slice would give."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.readers import row_ranges, split_reader
from strandline.readers.evaluate import filter_table
from strandline.readers.sources import PageSource
from strandline.readers.split_reader import SplitReader, read_split
from strandline.readers.splits import Split
from strandline.tableformat import page_table
from strandline.tableformat.binding import bind
from strandline.tableformat.errors import CorruptTable, MissingFile, StrandlineError
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS
from strandline.tableformat.stores.memory import MemoryStorage
from tests.readers.segments import LAYOUTS, ZONE, Case, case

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from strandline.tableformat.binding import Bound

FILTERS = [
    "n >= 0",
    "n < 100 OR n > 4300",
    "medium > 2000000000",
    "medium IS NULL AND flag",
    "note LIKE 'note 1%'",
    "note = 'nobody'",
    "f64 < -2.5 OR blob IS NULL",
    "_seq > 2000 AND _seq < 2100",
    "_ts < 0",
    "_window > 0 AND small = 7",
    "money > 999999.98",
]


def ids_of(found: Case) -> dict[str, int]:
    """Column ids by name, hidden ones too."""
    columns = (*found.manifest.schema.columns, *HIDDEN_COLUMNS.values())
    return {column.name: column.id for column in columns}


def bound_of(found: Case, text: str | None) -> Bound | None:
    """A filter for this case."""
    return None if text is None else bind(filter_from(text), found.manifest.schema)


def read(found: Case, split: Split, names: Collection[str], text: str | None = None) -> pa.Table:
    """What the reader gives, with the columns in the order of `names`."""
    ids = ids_of(found)
    tables = list(
        read_split(
            found.storage,
            found.manifest,
            replace(split, bound=bound_of(found, text)),
            {ids[name] for name in names},
        )
    )
    if not tables:
        return expected(found, np.zeros(zone_count(found), np.bool_), names)
    return pa.concat_tables(tables).select(list(names))


def expected(
    found: Case, zones: np.ndarray[Any, Any] | None, names: Collection[str], text: str | None = None
) -> pa.Table:
    """The same by slicing and filtering the whole file."""
    rows = found.rows
    if zones is not None:
        rows = rows.filter(pa.array(np.repeat(zones, ZONE)[: rows.num_rows]))
    bound = bound_of(found, text)
    if bound is not None:
        rows = filter_table(bound, rows, {i: name for name, i in ids_of(found).items()})
    return rows.select(list(names))


def zone_count(found: Case) -> int:
    """How many zones the segment has."""
    return -(-found.entry.row_count // ZONE)


def same(got: pa.Table, wanted: pa.Table) -> bool:
    """Equal values and types; NaN equals itself, and -0.0 is not 0.0."""
    if got.schema.types != wanted.schema.types or got.num_rows != wanted.num_rows:
        return False
    return all(_bits(a).equals(_bits(b)) for a, b in zip(got.columns, wanted.columns, strict=True))


def _bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(values.type):
        return values
    return values.cast(pa.string())


@st.composite
def masks(draw: st.DrawFn, count: int) -> np.ndarray[Any, Any]:
    """Single zones, runs of zones, and everything between."""
    zones = np.zeros(count, np.bool_)
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, count - 1))
        zones[start : start + draw(st.sampled_from([1, 1, 1, 2, 5, 17, count]))] = True
    return zones


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_zones_are_what_slicing_gives(layout: str, data: st.DataObject) -> None:
    """[E5, E10, E11] Random zones, columns and filters over files of every layout and all types."""
    found = case(layout)
    names = data.draw(
        st.lists(st.sampled_from(found.rows.column_names), min_size=1, max_size=6, unique=True)
    )
    zones = data.draw(st.none() | masks(zone_count(found)))
    text = data.draw(st.none() | st.sampled_from(FILTERS))
    pages = data.draw(st.sampled_from([found.pages, None]))

    got = read(found, Split(found.entry, zones, pages), names, text)

    assert same(got, expected(found, zones, names, text))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("by_pages", [True, False], ids=["pages", "chunks"])
def test_every_column_of_every_zone(layout: str, by_pages: bool) -> None:  # noqa: FBT001
    """Zone by zone, all columns: together they are the file."""
    found = case(layout)
    names = found.rows.column_names
    pages = found.pages if by_pages else None
    step = 1 if by_pages else 9
    for zone in range(0, zone_count(found), step):
        zones = np.zeros(zone_count(found), np.bool_)
        zones[zone] = True
        got = read(found, Split(found.entry, zones, pages), names)
        assert same(got, expected(found, zones, names)), zone


@pytest.mark.parametrize("layout", ["zone_pages", "uneven_pages"])
@pytest.mark.parametrize("text", [None, "small > 100"])
def test_units_split_a_segment_without_changing_its_rows(layout: str, text: str | None) -> None:
    """[E10] A segment larger than a unit comes in several tables, of one row group at least."""
    found = case(layout)
    ids = set(ids_of(found).values())
    for pages in (found.pages, None):
        reader = SplitReader(
            found.storage,
            found.manifest,
            Split(found.entry, None, pages, bound=bound_of(found, text)),
            ids,
            unit_memory_bytes=1,
        )
        tables = [reader.read(unit) for unit in reader.open()]
        assert len(tables) == 5
        got = pa.concat_tables(tables)
        names = got.column_names
        assert same(got, expected(found, None, names, text))


@pytest.mark.parametrize("layout", ["zone_pages", "uneven_pages"])
def test_the_rest_is_fetched_only_where_rows_match(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E10] With nothing fetched ahead, other columns are read for zones with a hit alone."""
    found = case(layout)
    monkeypatch.setattr(split_reader, "ONE_STEP_BYTES", 0)
    for pages in (found.pages, None):
        for text in FILTERS:
            split = Split(found.entry, None, pages)
            names = ["note", "deep", "huge", "_seq"]
            assert same(read(found, split, names, text), expected(found, None, names, text)), text


def test_a_mask_of_the_wrong_length_is_refused() -> None:
    """Zones of another file would silently be other rows."""
    found = case("zone_pages")
    split = Split(found.entry, np.ones(7, np.bool_), found.pages)
    with pytest.raises(StrandlineError, match="7 zones"):
        read(found, split, ["n"])


def test_zones_of_another_size_than_the_configured() -> None:
    """A split may say how large its zones are."""
    found = case("zone_pages")
    zones = np.zeros(-(-found.entry.row_count // 100), np.bool_)
    zones[[3, 44]] = True
    split = Split(found.entry, zones, found.pages, zone_rows=100)
    got = read(found, split, ["n"], "n != 350").column("n").to_pylist()
    assert got == [n for n in [*range(300, 400), *range(4400, 4500)] if n != 350]


def test_a_missing_file_is_an_error() -> None:
    """[X4] Rows are never left out because a file is gone, whichever way it is read."""
    found = case("zone_pages")
    elsewhere = MemoryStorage("nothing-here")
    for pages in (found.pages, None):
        with pytest.raises(MissingFile, match="restore the file"):
            list(read_split(elsewhere, found.manifest, Split(found.entry, None, pages), {2}))


# --- damage ------------------------------------------------------------------------------------


class Damaged(MemoryStorage):
    """The objects of another storage, with one byte changed on its way."""

    def __init__(self, inner: MemoryStorage, change: Callable[[bytes, int], bytes]) -> None:
        self.inner, self.change, self.url = inner, change, inner.url

    def _read_spans(self, spans: Any) -> list[bytes]:
        found = []
        for span in spans:
            data = self.inner.read(span.path)[span.start : span.start + span.length]
            found.append(self.change(data, span.start))
        return found


def flipped(place: int, bit: int) -> Callable[[bytes, int], bytes]:
    """Change one bit of the file."""

    def change(data: bytes, start: int) -> bytes:
        at = place - start
        if not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]

    return change


NAMES = ("n", "city", "note", "tags", "counts", "_ts")


@cache
def hit_bytes(layout: str) -> list[int]:
    """Every byte of the pages that hold two zones of a few columns."""
    found = case(layout)
    zones = two_zones(found).zones
    assert zones is not None
    rows = row_ranges.of_zones(zones, ZONE, found.entry.row_count)
    asked = PageSource(found.pages).plan(["n", "city", "note", "tags", "counts"], rows).byte_ranges
    return [place for start, size in asked for place in range(start, start + size)]


def two_zones(found: Case) -> Split:
    """Zones in two row groups."""
    zones = np.zeros(zone_count(found), np.bool_)
    zones[[5, 40]] = True
    return Split(found.entry, zones, found.pages)


def wanted_ids(found: Case) -> set[int]:
    """Columns of several kinds."""
    return {ids_of(found)[name] for name in NAMES}


def check_flip(layout: str, place: int, bit: int) -> bool:
    """Read with one bit flipped: the right rows, or an error. Tells whether it was an error."""
    found = case(layout)
    split = two_zones(found)
    damaged = Damaged(found.storage, flipped(place, bit))
    try:
        tables = list(read_split(damaged, found.manifest, split, wanted_ids(found)))
    except CorruptTable:
        return True
    got = pa.concat_tables(tables).select(list(NAMES))
    assert same(got, expected(found, split.zones, NAMES)), (place, bit)
    return False


@pytest.mark.parametrize("layout", ["zone_pages", "uneven_pages"])
def test_a_flipped_bit_in_a_page_is_noticed(layout: str) -> None:
    """[X4] A sample of all bytes that are fetched: an error, or the right rows."""
    places = hit_bytes(layout)
    errors = [check_flip(layout, place, place % 8) for place in places[:: len(places) // 150]]
    # The CRC that has the last word leaves out a page's header, and some of that is unused.
    assert sum(errors) > len(errors) * 0.8


def test_a_flipped_header_of_a_nested_page_is_noticed() -> None:
    """[X4] No CRC covers a page's header, and values of nested rows could move to other rows."""
    found, fetched = case("uneven_pages"), set(hit_bytes("uneven_pages"))
    table = found.pages
    leaves = table.by_name["counts"].leaves
    starts = {
        place
        for leaf in leaves
        for place in table.page_offsets[
            table.leaf_pages[leaf] : table.leaf_pages[leaf + 1]
        ].tolist()
    }
    headers = [place + i for place in sorted(starts & fetched) for i in range(24)]
    assert len(headers) >= 4 * 24

    errors = [check_flip("uneven_pages", place, bit) for place in headers for bit in range(8)]

    assert any(errors)


@pytest.mark.proof
@pytest.mark.parametrize("layout", ["zone_pages", "uneven_pages"])
def test_every_flipped_byte_of_a_page_is_noticed(layout: str) -> None:
    """[X4] All bytes that are fetched."""
    for place in hit_bytes(layout):
        check_flip(layout, place, place % 8)


def test_a_page_table_of_another_file_costs_time_only() -> None:
    """[T8] The page table is checked against the pages; the file's own footer has the last word."""
    found, other = case("zone_pages"), case("stored_ts")
    zones = two_zones(found).zones
    blob = page_table.build(other.storage.read(other.entry.path))
    assert blob is not None
    pages = page_table.open(blob, row_count=4500, size_bytes=other.entry.size_bytes)
    reader = SplitReader(
        found.storage,
        found.manifest,
        Split(found.entry, zones, pages, bound=bound_of(found, "n >= 0")),
        wanted_ids(found),
    )
    got = pa.concat_tables([reader.read(unit) for unit in reader.open()])
    assert reader.pages_failed
    assert same(got.select(list(NAMES)), expected(found, zones, NAMES))


def test_a_page_that_holds_other_rows_than_its_table_says() -> None:
    """[X4] Counts are compared: a page table whose checksums are right may still lie."""
    found = case("zone_pages")
    first_rows = found.pages.first_rows.copy()
    first_rows[6] += 1
    lying = replace(found.pages, first_rows=first_rows)
    split = two_zones(found)
    reader = SplitReader(
        found.storage,
        found.manifest,
        Split(found.entry, split.zones, lying),
        wanted_ids(found),
    )
    got = pa.concat_tables([reader.read(unit) for unit in reader.open()])
    assert reader.pages_failed
    assert same(got.select(list(NAMES)), expected(found, split.zones, NAMES))


def test_splits_of_no_zone_read_nothing() -> None:
    """No zone, no request."""
    found = case("zone_pages")
    split = Split(found.entry, np.zeros(zone_count(found), np.bool_), found.pages)
    elsewhere = MemoryStorage("nothing-here")
    assert list(read_split(elsewhere, found.manifest, split, {2})) == []
