"""Leaves that name the values they want: the ones that hashes can answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.indexes.hashing import literal_hashes

if TYPE_CHECKING:
    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.xxh64 import Uint64s


def asks_for_values(leaf: Leaf) -> bool:
    """Whether only rows with certain values are TRUE: `=` and `IN`."""
    if isinstance(leaf, BoundCompare):
        return leaf.operator == "="
    return isinstance(leaf, BoundIn) and not leaf.negated


def wanted_hashes(leaf: BoundCompare | BoundIn, kind: ColumnType) -> Uint64s:
    """The hashes of the values that such a leaf asks for."""
    if isinstance(leaf, BoundCompare):
        return literal_hashes((leaf.value,), kind)
    nan = (math.nan,) if leaf.with_nan else ()
    return literal_hashes((*leaf.values, *nan), kind)
