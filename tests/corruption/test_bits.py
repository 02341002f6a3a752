"""Every bit flipped and every truncation: an error or the right rows, never wrong rows."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.corruption.small_table import (
    data_paths,
    fresh,
    head,
    is_right_or_refused,
    metadata_paths,
    objects,
    positions_are_right_or_refused,
    right_rows,
    same_rows,
    segment_is_right_or_refused,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.tableformat.stores.memory import MemoryStorage

METADATA = ("manifest", "segment_page", "window_page", "position_page")
STRIDE = {"manifest": 1, "segment_page": 29, "window_page": 7, "position_page": 3}
"""Every how many-th bit the quick run flips."""
DATA_STRIDE = 97
DATA_FILES = 9


def flip(path: str, bits: Iterable[int]) -> tuple[int, int]:
    """Flip bits of an object one by one; how many were tried, and how many went unnoticed."""
    data = objects()[path]
    tried = unnoticed = 0
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        unnoticed += check(path, fresh({path: bytes(damaged)}), f"{path} bit {bit}")
        tried += 1
    return tried, unnoticed


def check(path: str, storage: MemoryStorage, where: str) -> bool:
    """Read what the object is for: right is True, refused is False, all else fails."""
    if path in position_pages():
        return positions_are_right_or_refused(storage, where)
    if path in data_paths():
        return segment_is_right_or_refused(storage, path, where)
    return is_right_or_refused(storage, where)


@cache
def position_pages() -> set[str]:
    """Pages that only writers read."""
    return {page.path for page in head().position_pages}


def bits_of(path: str, stride: int) -> range:
    """Every `stride`-th bit of an object."""
    return range(0, 8 * len(objects()[path]), stride)


def test_the_undamaged_table_reads_as_written() -> None:
    """Otherwise the tests below would compare with nothing."""
    rows = right_rows()
    assert same_rows(rows)
    assert not same_rows(rows.slice(1))
    assert rows["_seq"].to_pylist() == list(range(21))
    assert rows.schema.names[:7] == ["at", "n", "x", "t", "b", "l", "later"]
    assert rows["later"].null_count == 12
    assert len(data_paths()) == DATA_FILES
    assert {entry.rows_are for entry in head().segments} == {"dense", "offset"}


@pytest.mark.parametrize("kind", METADATA)
def test_flipped_bits_of_metadata_are_refused(kind: str) -> None:
    """[X4] A page's bytes are covered by its reference's checksum, the manifest's by its own.

    The manifest's covers the text: a flip that LZ4 unfolds to the same text is harmless.
    """
    path = metadata_paths()[kind]
    tried, unnoticed = flip(path, bits_of(path, STRIDE[kind]))
    assert tried > 500
    assert unnoticed < (tried / 200 if kind == "manifest" else 1)


@pytest.mark.proof
@pytest.mark.parametrize("kind", METADATA)
def test_every_flipped_bit_of_metadata_is_refused(kind: str) -> None:
    """[X4] The same, bit by bit."""
    path = metadata_paths()[kind]
    tried, unnoticed = flip(path, bits_of(path, 1))
    assert unnoticed < (tried / 200 if kind == "manifest" else 1)


@pytest.mark.parametrize("kind", METADATA)
def test_truncated_metadata_is_refused(kind: str) -> None:
    """[X4] Lengths from nothing to one byte less, and a byte too many."""
    path = metadata_paths()[kind]
    data = objects()[path]
    for length in range(0, len(data), 5 if kind == "segment_page" else 1):
        assert not check(path, fresh({path: data[:length]}), f"{path} cut at {length}")
    # A page is read up to the length its reference gives, so what follows it does no harm.
    assert check(path, fresh({path: data + b"\0"}), f"{path} with a byte too many") is (
        kind != "manifest"
    )


@pytest.mark.proof
def test_every_truncation_is_refused() -> None:
    """[X4] Every length of every object."""
    for path, data in objects().items():
        for length in range(len(data)):
            assert not check(path, fresh({path: data[:length]}), f"{path} cut at {length}")


def test_flipped_bits_of_data_give_an_error_or_the_right_rows() -> None:
    """[X4] In a file of an old schema and in one that the manifest lists inline."""
    for path in (data_paths()[0], data_paths()[-1]):
        tried, unnoticed = flip(path, bits_of(path, DATA_STRIDE))
        assert tried > 50
        assert unnoticed < tried / 2


@pytest.mark.proof
@pytest.mark.parametrize("index", range(DATA_FILES))
def test_every_flipped_bit_of_data_gives_an_error_or_the_right_rows(index: int) -> None:
    """[X4] The same, bit by bit, in every data file."""
    path = data_paths()[index]
    flip(path, bits_of(path, 1))


def test_truncated_data_is_refused() -> None:
    """[X4] Every length: a segment has the size that its entry gives."""
    path = data_paths()[-1]
    data = objects()[path]
    for length in range(0, len(data), 7):
        assert not check(path, fresh({path: data[:length]}), f"{path} cut at {length}")


def test_a_missing_object_is_refused() -> None:
    """[X4] A listed file that is not there is an error, never fewer rows."""
    for path in objects():
        if path in position_pages():
            continue
        storage = fresh()
        storage.delete([path])
        assert not is_right_or_refused(storage, f"without {path}")


def test_objects_in_each_others_place_are_refused() -> None:
    """[X4] Each reference carries the checksum of its own object."""
    names = list(objects())
    for path in names:
        for other in names:
            if path == other or {path, other} & position_pages():
                continue
            changed = {path: objects()[other], other: objects()[path]}
            assert not is_right_or_refused(fresh(changed), f"{path} and {other} exchanged")
