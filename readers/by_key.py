"""Rows by key: one key, many in one pass, or all; the earliest or the latest of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat.expressions import In, IsNull, any_of
from strandline.tableformat.literals import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.readers.scan import Scan
    from strandline.tableformat.expressions import Expression

_GATHERED_ROWS: Final = 131_072
"""So many rows, or as many as are kept already, are sorted together: each row is sorted seldom."""


def key_is_among(key: str, wanted: Iterable[Any]) -> Expression:
    """Rows of these keys. None is the key of rows that have none, and not the unknown of SQL."""
    # A null of Arrow is an object like any other until it is a plain value.
    values = [plain(value) for value in _without_missing(wanted)]
    held = tuple(value for value in values if value is not None)
    among = In(key, held)
    return any_of([among, IsNull(key)]) if len(held) < len(values) else among


def _without_missing(wanted: Iterable[Any]) -> Iterable[Any]:
    """What pandas calls missing (NaN, NaT, NA) is None, as where rows are appended."""
    # Only pandas has this method, and asking for it does not load pandas.
    if not hasattr(wanted, "isna"):
        return wanted
    marked = zip(wanted, wanted.isna(), strict=True)
    return [None if missing else value for value, missing in marked]


def ordered_by_key(scan: Scan, key: str, *, limit: int, latest: bool) -> pa.Table:
    """All rows of a scan by key, then by time and sequence number; at most `limit` of each key.

    The scan gives `_ts` and `_seq`. 0 is no limit. With `latest`, the newest rows of each key are
    kept; they still come oldest first. With a limit, memory holds about twice what is kept.
    """
    if not limit:
        return best_rows(scan.to_arrow(), key, limit, latest=latest)
    kept, waiting, rows = scan.schema.empty_table(), [], 0
    for batch in scan.to_batches():
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= max(_GATHERED_ROWS, kept.num_rows):
            gathered = pa.concat_tables([kept, pa.Table.from_batches(waiting)])
            kept = best_rows(gathered, key, limit, latest=latest)
            waiting, rows = [], 0
    gathered = pa.concat_tables([kept, pa.Table.from_batches(waiting, scan.schema)])
    return best_rows(gathered, key, limit, latest=latest)


def best_rows(rows: pa.Table, key: str, limit: int, *, latest: bool) -> pa.Table:
    """The first rows of each key, or its last, in order; all of them where the limit is 0."""
    ranks = _ranks(rows.column(key))
    order = np.lexsort((rows.column("_seq").to_numpy(), rows.column("_ts").to_numpy(), ranks))
    if limit:
        order = order[_within(ranks[order], limit, latest=latest)]
    return rows.take(pa.array(order))


def _ranks(keys: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each row where its key stands among all keys; rows without one come last.

    Equal keys are found by hashing and only distinct ones compared, which costs a third of sorting
    rows by texts.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys, pa.scalar(0.0, keys.type))  # -0.0 is the same key as 0.0
    coded = keys.dictionary_encode().combine_chunks()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.full(len(order) + 1, len(order), np.int64)
    ranks[order] = np.arange(len(order))
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    return np.asarray(ranks[codes], np.int64)


def _within(
    ranks: np.ndarray[Any, np.dtype[np.int64]], limit: int, *, latest: bool
) -> np.ndarray[Any, Any]:
    """Which of the sorted rows are among the first, or last, of their key."""
    starts = np.flatnonzero(np.append(len(ranks) > 0, ranks[1:] != ranks[:-1]))
    lengths = np.diff(np.append(starts, len(ranks)))
    place = np.arange(len(ranks)) - np.repeat(starts, lengths)
    return place >= np.repeat(lengths - limit, lengths) if latest else place < limit
