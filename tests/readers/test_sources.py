"""Decoding parts of one file that several threads share."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.readers import row_ranges
from strandline.readers.sources import ChunkSource
from strandline.readers.sparse_file import SparseFile

if TYPE_CHECKING:
    import pytest

ROWS = 1_000


def test_one_decoder_does_not_lose_its_place_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """[E10] A small file is fetched once, and threads decode its row groups side by side.

    Here the second group comes whenever the first one's decoder has found its place.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": np.arange(2 * ROWS)}), sink, row_group_size=ROWS)
    data = sink.getvalue().to_pybytes()
    file = SparseFile(len(data))
    file.fill(0, data)
    source = ChunkSource(pq.read_metadata(pa.BufferReader(data)))
    first, second = (
        source.plan(["n"], row_ranges.joined(np.array([start]), np.array([start + ROWS])))
        for start in (0, ROWS)
    )
    plain, within, found = SparseFile.seek, [], []

    def seek_and_be_interrupted(self: SparseFile, offset: int, whence: int = io.SEEK_SET) -> int:
        place = plain(self, offset, whence)
        if not within:
            within.append(True)
            found.append(second.decode(file)["n"].to_pylist())
            within.clear()
        return place

    monkeypatch.setattr(SparseFile, "seek", seek_and_be_interrupted)
    assert first.decode(file)["n"].to_pylist() == list(range(ROWS))
    assert found
    assert all(rows == list(range(ROWS, 2 * ROWS)) for rows in found)
