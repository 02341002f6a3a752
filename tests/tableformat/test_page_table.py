"""Page tables against the pages that are really there, and against damage of every kind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat import page_table
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.page_table import PageTable, page_checksum
from tests.parquet_pages import Page, pages_of
from tests.readers.segments import LAYOUTS, case

_U32 = np.dtype("<u4")


def encoded(rows: int = 3_000, **options: object) -> bytes:
    """A small file with dictionaries, nulls and a list."""
    numbers = np.arange(rows)
    table = pa.table(
        {
            "n": numbers,
            "word": pa.array([["a", "bb", None][n % 3] for n in numbers]),
            "list": pa.array([[int(n)] * (n % 3) for n in numbers]),
        }
    )
    sink = pa.BufferOutputStream()
    options = {"write_page_index": True, "row_group_size": 1_000, **options}
    pq.write_table(table, sink, store_schema=False, **options)
    return bytes(sink.getvalue())


def opened(data: bytes, rows: int = 3_000) -> PageTable:
    """The page table of a file."""
    blob = page_table.build(data)
    assert blob is not None
    return page_table.open(blob, row_count=rows, size_bytes=len(data))


def check_against_headers(data: bytes, table: PageTable) -> int:
    """Compare with a walk from page header to page header; gives the number of pages."""
    at = 0
    seen = pages_of(data)
    flat = {leaf for column in table.columns if not column.is_nested for leaf in column.leaves}
    for leaf in range(len(table.leaf_layout)):
        layout = table.layouts[table.leaf_layout[leaf]]
        assert at == table.leaf_pages[leaf]
        rows = iter(zip(layout.starts, layout.ends, strict=True))
        for group, chunks in enumerate(seen):
            pages = list(chunks[leaf])
            if pages[0].values is None:
                dictionary = pages.pop(0)
                raw = data[dictionary.start : dictionary.start + dictionary.size]
                assert table.dictionary_bytes[leaf, group] == dictionary.size
                assert table.dictionary_checksums[leaf, group] == page_checksum(raw)
                assert table.chunk_starts[leaf, group] == dictionary.start
            else:
                assert table.dictionary_bytes[leaf, group] == 0
                assert table.chunk_starts[leaf, group] == pages[0].start
            count = table.layout_pages[table.leaf_layout[leaf], group]
            assert count == len(_without_empty(pages))
            for page in _without_empty(pages):
                raw = data[page.start : page.start + page.size]
                assert table.page_offsets[at] == page.start
                assert table.page_bytes[at] == page.size
                assert table.page_checksums[at] == page_checksum(raw)
                start, end = next(rows)
                if leaf in flat:
                    assert end - start == page.values
                at += 1
    return at


def _without_empty(pages: list[Page]) -> list[Page]:
    """Pages without rows count with the page behind them."""
    found: list[Page] = []
    start = None
    for page in pages:
        start = page.start if start is None else start
        if page.values:
            found.append(Page(start, page.start + page.size - start, page.values))
            start = None
    return found


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_a_page_table_tells_what_a_walk_over_all_headers_finds(layout: str) -> None:
    """[E7] Places, sizes, checksums, rows and dictionaries of our own files."""
    found = case(layout)
    assert check_against_headers(found.storage.read(found.entry.path), found.pages) > 80


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"max_rows_per_page": 10},
        {"data_page_size": 50, "write_batch_size": 3},
        {"data_page_version": "2.0", "max_rows_per_page": 33},
        {"row_group_size": 1},
        {"compression": "none", "max_rows_per_page": 7},
        {"row_group_size": 10_000, "max_rows_per_page": 1},
    ],
    ids=str,
)
def test_files_of_other_shapes(options: dict[str, object]) -> None:
    """Short and long lists of pages, one-row groups, both versions of data pages."""
    rows = 60 if options.get("row_group_size") == 1 else 3_000
    data = encoded(rows, **options)
    check_against_headers(data, opened(data, rows))


def test_columns_with_equal_pages_share_a_layout() -> None:
    """Rows of pages are stored once where columns agree, as with pages that are zones."""
    assert len(case("zone_pages").pages.layouts) == 1
    assert len(case("uneven_pages").pages.layouts) > 5


def test_a_file_without_page_index_has_no_page_table() -> None:
    """Small files keep none, and nobody has to know why."""
    assert page_table.build(encoded(write_page_index=False)) is None


# --- damage ------------------------------------------------------------------------------------


def test_every_flipped_byte_is_refused() -> None:
    """[X4] The blob carries a checksum of its own."""
    data = encoded()
    blob = page_table.build(data)
    assert blob is not None
    for place in range(len(blob)):
        wrong = blob[:place] + bytes([blob[place] ^ (1 << place % 8)]) + blob[place + 1 :]
        with pytest.raises(CorruptTable):
            page_table.open(wrong, row_count=3_000, size_bytes=len(data))


def test_every_truncation_is_refused() -> None:
    """[X4] And every extension."""
    data = encoded()
    blob = page_table.build(data)
    assert blob is not None
    for wrong in (*(blob[:size] for size in range(len(blob))), blob + b"\0"):
        with pytest.raises(CorruptTable):
            page_table.open(wrong, row_count=3_000, size_bytes=len(data))


def resealed(blob: bytes) -> bytes:
    """The blob with a checksum that fits, as an attacker would make it."""
    return blob[:4] + np.array([page_checksum(blob[8:])], _U32).tobytes() + blob[8:]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_page_table_by_a_stranger_is_refused_or_harmless(data: st.DataObject) -> None:
    """[X4] Whatever its numbers say: nothing but `CorruptTable`, and no place beyond the file."""
    file = encoded()
    blob = page_table.build(file)
    assert blob is not None
    numbers = np.frombuffer(blob[: len(blob) // 4 * 4], _U32).copy()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(2, len(numbers) - 1))
        near = int(numbers[place])
        values = st.sampled_from([0, 1, 2**31, 2**32 - 1, near + 1, max(near - 1, 0), near * 2])
        numbers[place] = data.draw(values) & 0xFFFFFFFF
    wrong = resealed(numbers.tobytes() + blob[len(blob) // 4 * 4 :])
    try:
        table = page_table.open(wrong, row_count=3_000, size_bytes=len(file))
    except CorruptTable:
        return
    assert (table.page_offsets >= 0).all()
    assert (table.page_offsets + table.page_bytes <= len(file)).all()
    for layout in table.layouts:
        assert (layout.ends > layout.starts).all()
        assert (layout.starts[0], layout.ends[-1]) == (0, 3_000)


def test_the_rows_of_the_segment_must_fit() -> None:
    """A page table of a file with other rows, or of a longer one, is not believed."""
    data = encoded()
    blob = page_table.build(data)
    assert blob is not None
    with pytest.raises(CorruptTable, match="rows"):
        page_table.open(blob, row_count=2_999, size_bytes=len(data))
    with pytest.raises(CorruptTable, match="outside the file"):
        page_table.open(blob, row_count=3_000, size_bytes=2_000)


def test_a_row_group_of_many_pages_has_a_table_whatever_holds_the_bytes() -> None:
    """[E10] 250 pages are a count of two bytes, and pyarrow's buffers give bytes with a sign."""
    data = encoded(max_rows_per_page=4)

    assert page_table.build(pa.py_buffer(data)) == page_table.build(data) is not None
