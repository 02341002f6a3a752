"""The index file: blobs, a catalog with checksums, and a reference in the segment's entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.indexes.catalog import (
    Part,
    decode_catalog,
    encode_index,
)
from strandline.tableformat.indexes.reference import index_from_json, path_of

PARTS = [Part(3, "postings", b"p" * 90, {}), Part(0, "pages", b"q" * 40, {"n": 1})]


def test_an_index_file_lists_what_it_holds() -> None:
    """[E7] Blobs by column and kind, the largest first, each with its place and checksum."""
    pieces, ref = encode_index(PARTS, row_count=500, zone_rows=100)
    data = b"".join(pieces)

    catalog = decode_catalog(data[-ref.catalog_bytes :], ref, "x.icx")

    assert len(data) == ref.size_bytes
    assert ref.kinds == {3: ("postings",), 0: ("pages",)}
    assert (catalog.row_count, catalog.zone_rows) == (500, 100)
    postings, pages = catalog.find(3, "postings"), catalog.find(0, "pages")
    assert postings is not None
    assert pages is not None
    assert data[postings.offset : postings.offset + postings.size] == b"p" * 90
    assert data[pages.offset : pages.offset + pages.size] == b"q" * 40
    assert pages.params == {"n": 1}
    assert catalog.find(3, "range") is None


def test_a_reference_survives_the_manifest() -> None:
    """[E7] What an entry says of its indexes reads back as it was."""
    _, ref = encode_index(PARTS, row_count=500, zone_rows=100)

    assert index_from_json(ref.to_json(), "segment") == ref


def test_the_index_file_lies_beside_its_segment() -> None:
    """[E7] The name follows from the segment's; nothing is listed or looked for."""
    assert path_of("w0-60000/shard-3/late-7-0123456789abcdef.parquet") == (
        "w0-60000/shard-3/late-7-0123456789abcdef.icx"
    )


@given(st.data())
def test_a_flipped_bit_in_a_catalog_is_found(data: st.DataObject) -> None:
    """[X4] [ICX-6] The reference's checksum covers every bit of the catalog."""
    pieces, ref = encode_index(PARTS, row_count=500, zone_rows=100)
    catalog = bytearray(pieces[-1])
    place = data.draw(st.integers(0, len(catalog) * 8 - 1))
    catalog[place // 8] ^= 1 << place % 8

    with pytest.raises(CorruptTable):
        decode_catalog(bytes(catalog), ref, "x.icx")


@pytest.mark.parametrize(
    "broken",
    [
        {"size_bytes": "10", "catalog_bytes": 11},
        {"size_bytes": "0"},
        {"xxh64": "x"},
        {"kinds": []},
        {"kinds": {"03": ["pages"]}},
        {"kinds": {"x": ["pages"]}},
        {"kinds": {"-": ["pages"]}},
        {"kinds": {"3": "postings"}},
        {"kinds": {"3": [1]}},
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(broken: dict[str, object]) -> None:
    """[X4] [ICX-5] Metadata comes from strangers."""
    _, ref = encode_index(PARTS, row_count=500, zone_rows=100)

    with pytest.raises(CorruptTable):
        index_from_json({**ref.to_json(), **broken}, "segment")


def test_a_blob_outside_the_file_is_refused() -> None:
    """[X4] [ICX-7] A catalog cannot send a reader beyond the blobs."""
    small, ref = encode_index([Part(3, "postings", b"p", {})], row_count=1, zone_rows=1)
    large, large_ref = encode_index([Part(3, "postings", b"p" * 50, {})], row_count=1, zone_rows=1)
    lying = type(ref)(len(large[-1]) + 1, len(large[-1]), large_ref.xxh64, large_ref.kinds)

    with pytest.raises(CorruptTable, match="outside"):
        decode_catalog(large[-1], lying, "x.icx")
    assert decode_catalog(small[-1], ref, "x.icx").blobs[0].size == 1
