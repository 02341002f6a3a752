"""Rows by key: one key, many in one pass, or all; the earliest or the latest of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from strandline.readers.scan import Scan


def ordered_by_key(scan: Scan, key: str, *, limit: int, latest: bool) -> pa.Table:
    """All rows of a scan by key, then by time and sequence number; at most `limit` of each key.

    The scan gives `_ts` and `_seq` as its last two columns. 0 is no limit. With `latest`, the
    newest rows of each key are kept; they still come oldest first.
    """
    rows = scan.to_arrow()
    order = pc.sort_indices(
        rows, sort_keys=[(key, "ascending"), ("_ts", "ascending"), ("_seq", "ascending")]
    )
    rows = rows.take(order)
    if limit and rows.num_rows:
        rows = rows.filter(pa.array(_within(rows.column(key), limit, latest=latest)))
    return rows


def _within(keys: pa.ChunkedArray, limit: int, *, latest: bool) -> np.ndarray[Any, Any]:
    """Which of the sorted rows are among the first, or last, of their key."""
    codes = pc.fill_null(keys.combine_chunks().dictionary_encode().indices, -1).to_numpy()
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    lengths = np.diff(np.append(starts, len(codes)))
    place = np.arange(len(codes)) - np.repeat(starts, lengths)
    return place >= np.repeat(lengths - limit, lengths) if latest else place < limit
