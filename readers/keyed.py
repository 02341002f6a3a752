"""Scans of keyed tables: find the newest row of each key first, then read only those rows.

Tombstones take part in the first pass like rows, and have nothing to give to the second.

The first pass reads key columns, times and sequence numbers of whatever may hold a wanted key. It
keeps one row's worth of these for each key, so memory follows the number of keys and not that of
rows. The second pass is an ordinary scan that leaves out all other rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.readers.arrow_arrays import among, bool_array, integers
from strandline.tableformat.keys import Newest
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from strandline.readers.splits import Split
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column

    ReadSplits = Callable[[Sequence[Split]], Iterable[tuple[int, pa.Table]]]

KEEP_BYTES: Final = 16 * 2**20
"""Up to this size of all that is planned, rows stay in memory after the first pass."""
Int64s = np.ndarray[Any, np.dtype[np.int64]]


class Winners:
    """The rows that count, by their sequence numbers, which no two rows share."""

    def __init__(self, seqs: Int64s) -> None:
        self._seqs = seqs
        """Ascending."""

    def splits(
        self, splits: Iterable[Split], bound: Bound | None, zone_rows: int
    ) -> tuple[Split, ...]:
        """What to read of them, to find the winners for which the filter is true."""
        made = (self._split(split, bound, zone_rows) for split in splits)
        return tuple(split for split in made if split is not None)

    def _split(self, split: Split, bound: Bound | None, zone_rows: int) -> Split | None:
        entry = split.entry
        low, high = np.searchsorted(self._seqs, [entry.min_seq, entry.max_seq + 1])
        seqs = self._seqs[low:high]
        if not len(seqs):
            return None
        zones = split.zones
        if entry.rows_are == DENSE and (zones is not None or entry.index is None):
            # Numbers tell the rows, and rows the zones; an index file may know other zones.
            zone_rows = split.zone_rows or zone_rows
            zones = np.zeros(-(-entry.row_count // zone_rows), np.bool_)
            zones[(seqs - entry.min_seq) // zone_rows] = True
            split = replace(split, zones=zones, zone_rows=zone_rows)
        return replace(split, bound=bound, only_seqs=seqs)

    def only(self, rows: pa.Table) -> pa.Table:
        """Those of the rows that win; they come with `_seq`."""
        return rows.filter(bool_array(among(integers(rows.column("_seq")), self._seqs)))


def find_winners(
    manifest: Manifest,
    splits: Sequence[Split],
    read: ReadSplits,
    *,
    unflushed: Sequence[pa.Table],
    keep: bool,
) -> tuple[Winners, list[pa.Table]]:
    """The newest row of each key among what `read` gives of the splits, and `unflushed` rows.

    Both come with key columns, `_ts` and `_seq`, without rows that are known not to matter. With
    `keep`, what was read is given as well.
    """
    seqs: list[Int64s] = []
    seen: list[pa.Table] = []
    for group in [splits] if unflushed else _by_shard(manifest, splits):
        newest = Newest()
        for index, rows in read(group):
            _add(newest, rows, manifest.key_columns)
            # A key whose newest row is a tombstone has no row: its number is that of none.
            if keep and not group[index].entry.tombstones:
                seen.append(rows)
        for rows in unflushed:
            _add(newest, rows, manifest.key_columns)
        seqs.append(newest.seqs())
    return Winners(np.sort(np.concatenate([*seqs, np.zeros(0, np.int64)]))), seen


def _add(newest: Newest, rows: pa.Table, key: Sequence[Column]) -> None:
    newest.add(
        [rows.column(column.name) for column in key],
        integers(rows.column("_ts")),
        integers(rows.column("_seq")),
    )


def _by_shard(manifest: Manifest, splits: Sequence[Split]) -> list[list[Split]]:
    """Splits that may share keys: a key that decides the shard is in one shard only."""
    if manifest.config.shard_by not in manifest.config.primary_key:
        return [list(splits)]
    shards: dict[int, list[Split]] = {}
    for split in splits:
        shards.setdefault(split.entry.shard, []).append(split)
    return list(shards.values())
