"""XXH64 of many values at once, against the xxhash package."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.tableformat import xxh64


def slices(values: list[bytes]) -> tuple[Any, Any]:
    """The values back to back, and their edges."""
    edges = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return np.frombuffer(b"".join(values), np.uint8), edges


def digests(values: list[bytes]) -> list[int]:
    """The hashes one by one."""
    return [xxhash.xxh64_intdigest(value) for value in values]


@pytest.mark.parametrize("length", [*range(70), 127, 128, 255, 256, 257, 1000])
def test_values_of_one_length_hash_as_one_by_one(length: int) -> None:
    """[SHA-1] Stripes, lanes, half lanes and single bytes, in a group large enough to share steps.

    The first value starts in the middle of the data, so that lanes are not aligned.
    """
    source = random.Random(length)
    values = [source.randbytes(length) for _ in range(xxh64.FEWEST_TOGETHER + 1)]
    data, edges = slices([b"xyz", *values])

    assert xxh64.of_slices(data, edges[1:]).tolist() == digests(values)


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), max_size=20))
def test_mixed_lengths_keep_their_places(values: list[bytes]) -> None:
    """[SHA-1] Few values of a length go one by one; all land where they came from."""
    repeated = values * 50

    assert xxh64.of_slices(*slices(repeated)).tolist() == digests(values) * 50


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_integers_hash_as_their_eight_bytes(values: list[int]) -> None:
    """[SHA-1] Little-endian, two's complement."""
    expected = digests([v.to_bytes(8, "little", signed=True) for v in values])

    assert xxh64.of_int64s(np.array(values, np.int64)).tolist() == expected


@given(st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1, max_size=20))
def test_words_hash_as_their_sixteen_bytes(values: list[int]) -> None:
    """[SHA-1] What decimals are hashed by."""
    held = [v.to_bytes(16, "little", signed=True) for v in values]
    words = np.frombuffer(b"".join(held), "<u8").reshape(-1, 2)

    assert xxh64.of_words(words).tolist() == digests(held)
