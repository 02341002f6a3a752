"""Leaves that name the values they want: the ones that hashes can answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from strandline.tableformat.binding import BoundCompare, BoundIn
from strandline.tableformat.indexes.hashing import literal_hashes
from strandline.tableformat.indexes.occurrences import hash32
from strandline.tableformat.indexes.runs import sorted_once

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.xxh64 import Uint64s


def asks_for_values(leaf: Leaf) -> bool:
    """Whether only rows with certain values are TRUE: `=` and `IN`."""
    if isinstance(leaf, BoundCompare):
        return leaf.operator == "="
    return isinstance(leaf, BoundIn) and not leaf.negated


class _Last:
    """The last answer: a lookup asks the indexes of many segments the same."""

    halves: tuple[Leaf, ColumnType, NDArray[np.uint32]] | None = None


def wanted_halves(leaf: BoundCompare | BoundIn, kind: ColumnType) -> NDArray[np.uint32]:
    """The upper halves of the wanted hashes, ascending, each once."""
    last = _Last.halves
    if last is not None and last[0] is leaf and last[1] is kind:
        return last[2]
    # Of one type with stored ones: otherwise numpy would convert all of those.
    found = sorted_once(hash32(wanted_hashes(leaf, kind))).astype("<u4", copy=False)
    _Last.halves = leaf, kind, found
    return found


def wanted_hashes(leaf: BoundCompare | BoundIn, kind: ColumnType) -> Uint64s:
    """The hashes of the values that such a leaf asks for."""
    if isinstance(leaf, BoundCompare):
        return literal_hashes((leaf.value,), kind)
    nan = (math.nan,) if leaf.with_nan else ()
    return literal_hashes((*leaf.values, *nan), kind)
