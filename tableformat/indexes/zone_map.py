"""Kind `zone_map`: the least and greatest value of each zone, nulls and NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import BoundConstant, BoundPair
from strandline.tableformat.indexes import value_arrays
from strandline.tableformat.indexes.blob import BlobReader, choice
from strandline.tableformat.indexes.contract import Built
from strandline.tableformat.pruning import Bounds, leaf_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType, Domain

_KNOWN: Final = 1
_HAS_NAN: Final = 2
_EXACT: Final = 4


@dataclass(frozen=True, eq=False)
class BoundsIndex:
    """Zone bounds that answer leaves as segment stats do."""

    bounds: Bounds

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        if isinstance(leaf, BoundConstant | BoundPair):
            return None
        mask: NDArray[np.bool_] = leaf_mask(leaf, self.bounds)
        return mask


class ZoneMap:
    """Serves every leaf that looks at one column."""

    name = "zone_map"

    def build(self, column: ColumnZones) -> Built | None:
        return encode_bounds(column.bounds, column.domain)

    def serves(self, leaf: Leaf) -> bool:
        return not isinstance(leaf, BoundConstant | BoundPair)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> BoundsIndex:
        blob = BlobReader(self.name, data)
        bounds = decode_bounds(blob, params, layout, kind)
        blob.finish()
        return BoundsIndex(bounds)


def encode_bounds(bounds: Bounds, domain: Domain) -> Built:
    """Null counts, flags, then the values: all least ones, all greatest ones."""
    ends = [np.asarray(end) for end in (bounds.mins, bounds.maxs)]
    form = value_arrays.form_of(np.concatenate(ends), domain)
    exact = np.zeros(len(bounds.known), np.bool_) if bounds.exact is None else bounds.exact
    flags = bounds.known * _KNOWN | bounds.has_nan * _HAS_NAN | exact * _EXACT
    parts = [
        bounds.null_count.astype("<u4").tobytes(),
        flags.astype("u1").tobytes(),
        value_arrays.encode(np.concatenate(ends), form),
    ]
    return Built(b"".join(parts), {"values": form})


def decode_bounds(
    blob: BlobReader, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
) -> Bounds:
    """Take bounds over the zones of `layout` from the front of a blob."""
    assert kind.domain is not None
    form = choice(blob.kind, params, "values", value_arrays.FORMS[kind.domain])
    count = layout.count
    nulls = blob.array("<u4", count)
    if (nulls > layout.rows).any():
        blob.fail("a zone has more nulls than rows")
    flags = blob.array("u1", count)
    values = value_arrays.decode(blob, form, 2 * count, kind.domain)
    return Bounds(
        mins=values[:count],
        maxs=values[count:],
        known=flags & _KNOWN != 0,
        null_count=nulls.astype(np.int64),
        value_count=layout.rows,
        has_nan=flags & _HAS_NAN != 0,
        exact=flags & _EXACT != 0,
    )
