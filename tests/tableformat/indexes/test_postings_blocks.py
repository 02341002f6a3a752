"""Postings in part: the same answers from a few blocks, and no block that nobody vouches for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.tableformat.binding import BoundCompare, BoundIn, BoundNull
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.indexes import postings_blocks
from strandline.tableformat.indexes.catalog import decode_catalog
from strandline.tableformat.indexes.kinds import KINDS
from strandline.tableformat.indexes.reference import path_of
from tests.format_spec.places import GOLDEN
from tests.tableformat.indexes.cases import Case, case_of
from tests.tableformat.indexes.test_specification import SPEC, blob_of

if TYPE_CHECKING:
    from pathlib import Path

ZONE_ROWS = 64


def numbers(distinct: int, rows: int, *, step: int = 1) -> Case:
    """Numbers in no order, each about equally often."""
    values = np.random.default_rng(distinct).integers(0, distinct, rows) * step
    return case_of("int64", values.tolist(), ZONE_ROWS)


CASES = {
    "some thousand": numbers(5_000, 20_000),
    "each once": case_of("int64", list(range(4_000)), ZONE_ROWS),
    "one run": numbers(50, 1_000),
    "a single value": case_of("int64", [7] * 10, ZONE_ROWS),
    "zones of two bytes": case_of("int64", list(range(600)) * 2, 1),
    "a last run of one": case_of("int64", list(range(1_025)), ZONE_ROWS),
}


def in_part(case: Case, data: bytes, read: Any) -> postings_blocks.PartialPostings:
    """The postings of a case, opened by their blocks alone."""
    opened = postings_blocks.open(
        postings_blocks.build(data),
        size_bytes=len(data),
        zone_count=case.layout.count,
        kind=case.column.type,
    )
    return replace(opened, read=read)


def built(case: Case) -> bytes:
    """The postings of a case."""
    found = KINDS["postings"].build(case.zones)
    assert found is not None
    return found.data


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=60)
@given(wanted=st.lists(st.integers(-3, 6_000), min_size=1, max_size=9))
def test_blocks_answer_as_the_whole_does(name: str, wanted: list[int]) -> None:
    """[E6, E11] [BLK-1] For one value and for many, held or not, in every layout of the blob."""
    case = CASES[name]
    data = built(case)
    whole: Any = KINDS["postings"].open(data, {}, case.layout, case.column.type)
    part = in_part(case, data, lambda ranges: [data[at : at + size] for at, size in ranges])

    for leaf in (BoundCompare(case.column, "=", wanted[0]), BoundIn(case.column, tuple(wanted), False, False)):  # fmt: skip  # noqa: E501, FBT003
        assert part.may_match(leaf).tolist() == whole.may_match(leaf).tolist()  # type: ignore[union-attr]
    assert part.may_match(BoundNull(case.column, False)) is None  # noqa: FBT003


def test_a_lookup_reads_a_few_blocks() -> None:
    """[T8] Of 100,000 hashes a value needs those of one run: hashes, counts and zones."""
    case = numbers(100_000, 400_000)
    data = built(case)
    read: list[tuple[int, int]] = []

    def reading(ranges: Any) -> list[bytes]:
        read.extend(ranges)
        return [data[at : at + size] for at, size in ranges]

    part = in_part(case, data, reading)
    mask = part.may_match(BoundCompare(case.column, "=", 77))

    whole: Any = KINDS["postings"].open(data, {}, case.layout, case.column.type)
    assert mask is not None
    assert mask.tolist() == whole.may_match(BoundCompare(case.column, "=", 77)).tolist()
    assert len(read) == 3
    assert sum(size for _, size in read) < len(data) / 30
    assert len(postings_blocks.build(data)) < len(data) / 300


@pytest.mark.parametrize("name", ["some thousand", "each once", "zones of two bytes"])
def test_no_flipped_byte_of_a_block_is_believed(name: str) -> None:
    """[X4] [BLK-2] Wherever a byte differs, an answer that looks there is an error."""
    case = CASES[name]
    data = built(case)
    chance = np.random.default_rng(1)
    refused = 0
    for at in chance.integers(16, len(data), 200).tolist():
        bad = bytearray(data)
        bad[at] ^= 1 << int(chance.integers(8))
        part = in_part(
            case, data, lambda ranges, bad=bad: [bytes(bad[a : a + n]) for a, n in ranges]
        )
        leaf = BoundCompare(case.column, "=", int(case.column.type.name == "int64") * (at % 600))
        right: Any = KINDS["postings"].open(data, {}, case.layout, case.column.type)
        try:
            assert part.may_match(leaf).tolist() == right.may_match(leaf).tolist()  # type: ignore[union-attr]
        except CorruptTable:
            refused += 1
    assert refused


@pytest.mark.parametrize("name", ["some thousand", "each once", "a single value"])
def test_a_blob_of_blocks_with_any_flipped_bit_is_survived(name: str) -> None:
    """[X4, T8] Whoever gets past its checksum meets an error or a mask, and no crash."""
    case = CASES[name]
    data = built(case)
    blocks = postings_blocks.build(data)
    leaf = BoundCompare(case.column, "=", 7)
    for bit in range(0, 8 * len(blocks), 3):
        bad = bytearray(blocks)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            part = postings_blocks.open(
                bytes(bad),
                size_bytes=len(data),
                zone_count=case.layout.count,
                kind=case.column.type,
            )
            read = replace(part, read=lambda rs: [data[a : a + n] for a, n in rs])
            mask = read.may_match(leaf)
        except CorruptTable as error:
            assert "rows are not affected" in str(error)  # noqa: PT017 - one of two right answers
        else:
            assert mask is not None
            assert mask.shape == (case.layout.count,)


@pytest.mark.parametrize("cut", [0, 4, 15, 16, 20, -4, -1])
def test_a_blob_of_blocks_that_was_cut_is_refused(cut: int) -> None:
    """[X4] [BLK-3] Its length follows from its header and from the postings beside it."""
    case = CASES["some thousand"]
    data = built(case)
    blocks = postings_blocks.build(data)
    for bad, size in ((blocks[:cut], len(data)), (blocks, len(data) + 1), (blocks + b"\0", len(data))):  # fmt: skip  # noqa: E501
        with pytest.raises(CorruptTable, match="damaged"):
            postings_blocks.open(
                bad, size_bytes=size, zone_count=case.layout.count, kind=case.column.type
            )


def test_the_example_is_what_is_written() -> None:
    """[E6] [BLK-1] The bytes that SPEC.md shows are those of its postings."""
    text = SPEC.split("<!-- blocks: those of the example in 20.10 -->\n```text\n")[1].split("```")[
        0
    ]

    case = case_of("string", ["a", "b", "a", "b", "a"], 2)
    assert postings_blocks.build(built(case)).hex(" ") == blob_of(text).hex(" ")


def test_a_golden_table_has_blocks_in_the_bytes_of_today() -> None:
    """[BLK-1] What is stored in it is what this library makes of the postings beside it."""
    found = 0
    for file in sorted((GOLDEN / "v1_postings_blocks").rglob("*.icx")):
        data = file.read_bytes()
        for start, size in _postings_of(file):
            assert data.count(postings_blocks.build(data[start : start + size])) == 1
            found += 1
    assert found == 2


def _postings_of(file: Path) -> list[tuple[int, int]]:
    table = strandline.open_table(GOLDEN / "v1_postings_blocks" / "table")
    (entry,) = (e for e in table.scan().plan().segments if path_of(e.path).endswith(file.name))
    assert entry.index is not None
    data = file.read_bytes()
    catalog = decode_catalog(data[-entry.index.catalog_bytes :], entry.index, file.name)
    return [(b.offset, b.size) for b in catalog.blobs if b.kind == "postings"]
