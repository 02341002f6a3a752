"""Kind `temporal`: the time fences of each zone, as distances from the earliest time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.binding import BoundConstant, BoundLike, BoundPair
from strandline.tableformat.indexes.blob import BlobReader, choice
from strandline.tableformat.indexes.contract import Built
from strandline.tableformat.indexes.time_units import unit_of
from strandline.tableformat.indexes.zone_map import BoundsIndex
from strandline.tableformat.pruning import Bounds
from strandline.tableformat.values import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType

_WIDTHS = {"u32": "<u4", "u64": "<u8"}


class Temporal:
    """Serves what a zone map serves, in half the bytes where the times lie close together."""

    name = "temporal"

    def build(self, column: ColumnZones) -> Built | None:
        if column.time_unit is None:
            return None
        bounds = column.bounds
        base = int(bounds.mins[bounds.known].min()) if bounds.known.any() else 0
        # Wraps around where the times are further apart than an int64 reaches; unsigned, the
        # distance is right again.
        low, high = (
            np.where(bounds.known, end - np.int64(base), 0).astype(np.int64).view(np.uint64)
            for end in (bounds.mins, bounds.maxs)
        )
        form = "u32" if high.max() <= np.iinfo(np.uint32).max else "u64"
        parts = [
            np.array([base], "<i8"),
            bounds.null_count.astype("<u4"),
            low.astype(_WIDTHS[form]),
            high.astype(_WIDTHS[form]),
        ]
        return Built(b"".join(part.tobytes() for part in parts), {"distances": form})

    def serves(self, leaf: Leaf) -> bool:
        return not isinstance(leaf, BoundConstant | BoundPair | BoundLike)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> BoundsIndex:
        blob = BlobReader(self.name, data)
        if unit_of(kind) is None:
            blob.fail(f"a {kind} column holds no times")
        width = _WIDTHS[choice(self.name, params, "distances", _WIDTHS)]
        base, count = blob.number("<i8"), layout.count
        nulls = blob.array("<u4", count).astype(np.int64)
        low, high = (blob.array(width, count).astype(np.uint64) for _ in range(2))
        blob.finish()
        if (nulls > layout.rows).any():
            blob.fail("a zone has more nulls than rows")
        if int(high.max()) > INT64_MAX - base or (low > high).any():
            blob.fail("its times are out of order or beyond 64 bits")
        always, never = np.ones(count, np.bool_), np.zeros(count, np.bool_)
        return BoundsIndex(
            Bounds(
                mins=low.view(np.int64) + np.int64(base),
                maxs=high.view(np.int64) + np.int64(base),
                known=nulls < layout.rows,
                null_count=nulls,
                value_count=layout.rows,
                has_nan=never,
                exact=always,
            )
        )
