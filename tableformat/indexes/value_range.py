"""Kind `range`: which parts of the column's range of values each zone has rows in.

The values of the segment are cut into at most 255 buckets of about equal depth, and each zone has
a bitmap of its buckets. Unlike two bounds it sees the gaps: a zone with two far values is not
taken for one that holds everything in between. It is approximate by less than one bucket at
either end of what is asked for, and never leaves a row out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import BoundCompare, BoundIn, BoundKnown, BoundNull
from strandline.tableformat.indexes import value_arrays
from strandline.tableformat.indexes.blob import BlobReader, bytes_of_bits, choice, packed
from strandline.tableformat.indexes.contract import Built, common
from strandline.tableformat.indexes.runs import sorted_once
from strandline.tableformat.types import Domain
from strandline.tableformat.values import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.values import Value

MAX_BUCKETS: Final = 255
_SAMPLE: Final = 65_536
_FORMS: Final = {Domain.INT: "int64", Domain.FLOAT: "float64"}


class ValueRange:
    """Serves comparisons (but not !=) and IN on numbers and times."""

    name = "range"

    def build(self, column: ColumnZones) -> Built | None:
        if column.numbers is None:
            return None
        numbers, zones = column.numbers, column.layout.zone_of_row
        if column.valid is not None:
            numbers, zones = numbers[column.valid], zones[column.valid]
        is_nan = np.isnan(numbers) if column.domain is Domain.FLOAT else None
        held = numbers if is_nan is None or not is_nan.any() else numbers[~is_nan]
        edges = _edges(held)
        buckets = np.full(len(numbers), len(edges), np.int64)
        if len(held):
            where = slice(None) if len(held) == len(numbers) else ~is_nan  # type: ignore[operator]
            buckets[where] = np.searchsorted(edges, held, side="right") - 1
        flags = np.zeros((column.layout.count, len(edges) + 1), np.bool_)
        flags[zones, buckets] = True
        form = _FORMS[column.domain]
        ends = np.append(edges, held.max()) if len(held) else edges
        parts = (
            np.array([len(edges)], "<u4").tobytes(),
            value_arrays.encode(ends, form),
            packed(flags).tobytes(),
        )
        return Built(b"".join(parts), {"values": form})

    def serves(self, leaf: Leaf) -> bool:
        match leaf:
            case BoundCompare(_, operator, _):
                return operator != "!="
            case BoundIn(_, _, _, negated):
                return not negated
            case BoundNull(_, negated):
                return negated
        return isinstance(leaf, BoundKnown)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> RangeIndex:
        blob = BlobReader(self.name, data)
        assert kind.domain is not None
        form = choice(self.name, params, "values", {_FORMS.get(kind.domain, "")})
        count = blob.number("<u4")
        if count > MAX_BUCKETS:
            blob.fail(f"it says that it has {count} buckets, and {MAX_BUCKETS} is the most")
        ends = value_arrays.decode(blob, form, count + 1 if count else 0, kind.domain)
        row_bytes = bytes_of_bits(count + 1)
        bitmaps = blob.array("u1", layout.count * row_bytes).reshape(layout.count, row_bytes)
        blob.finish()
        edges = ends[:count]
        # Written so that a NaN fails it too.
        if count and not ((edges[1:] > edges[:-1]).all() and ends[-1] >= edges[-1]):
            blob.fail("its buckets do not ascend")
        return RangeIndex(edges, ends[-1].item() if count else None, bitmaps)


def _edges(held: NDArray[Any]) -> NDArray[Any]:
    """The least value of each bucket. Any choice is right; a sample makes them about equal."""
    if not len(held):
        return held
    sample = np.sort(held[:: -(-len(held) // _SAMPLE)])
    picked = sample[np.arange(MAX_BUCKETS) * len(sample) // MAX_BUCKETS]
    picked[0] = held.min()
    return sorted_once(picked)


@dataclass(frozen=True, eq=False)
class RangeIndex:
    """Bucket i holds values from edge i on, up to the next edge; one more bucket holds NaN."""

    edges: NDArray[Any]
    greatest: Value | None
    bitmaps: NDArray[np.uint8]
    """A row of bits over the buckets for each zone."""

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        return self.may_match_all((leaf,))

    def may_match_all(self, leaves: Sequence[Leaf]) -> NDArray[np.bool_] | None:
        wanted = common(self._wanted(leaf) for leaf in leaves)
        if wanted is None:
            return None
        mask: NDArray[np.bool_] = np.any(self.bitmaps & packed(wanted), axis=1)
        return mask

    def _wanted(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        """The buckets that may hold a TRUE row."""
        match leaf:
            case BoundCompare(_, "=", value):
                return self._holding((value,))
            case BoundCompare(_, "<" | "<=" as operator, value):
                return self._below(value, inclusive=operator == "<=")
            case BoundCompare(_, ">" | ">=" as operator, value):
                return self._above(value, inclusive=operator == ">=")
            case BoundIn(_, values, with_nan, False):
                return self._holding((*values, math.nan) if with_nan else values)
            case BoundKnown(_, value):
                return np.full(len(self.edges) + 1, value)
            case BoundNull(_, True):
                return np.ones(len(self.edges) + 1, np.bool_)
        return None

    def _holding(self, values: tuple[Value, ...]) -> NDArray[np.bool_]:
        wanted = np.zeros(len(self.edges) + 1, np.bool_)
        for value in values:
            if isinstance(value, float) and math.isnan(value):
                wanted[-1] = True
            elif not self._is_beyond(value, inclusive=False):
                bucket = self._edges_up_to(value, inclusive=True) - 1
                wanted[max(bucket, 0)] |= bucket >= 0
        return wanted

    def _below(self, value: Value, *, inclusive: bool) -> NDArray[np.bool_]:
        wanted = np.zeros(len(self.edges) + 1, np.bool_)
        wanted[: self._edges_up_to(value, inclusive=inclusive)] = True
        return wanted

    def _above(self, value: Value, *, inclusive: bool) -> NDArray[np.bool_]:
        wanted = np.zeros(len(self.edges) + 1, np.bool_)
        wanted[-1] = True  # NaN is above everything
        if not self._is_beyond(value, inclusive=not inclusive):
            wanted[max(self._edges_up_to(value, inclusive=True) - 1, 0) :] = True
        return wanted

    def _is_beyond(self, value: Any, *, inclusive: bool) -> bool:
        """Whether all values are below, or at most at, this one."""
        if self.greatest is None:
            return True
        return bool(value >= self.greatest if inclusive else value > self.greatest)

    def _edges_up_to(self, value: Any, *, inclusive: bool) -> int:
        """How many buckets begin below, or at most at, this value."""
        if self.edges.dtype.kind == "i":
            # A decimal may be asked for what no int64 holds: all edges are on one side of it.
            if value > INT64_MAX:
                return len(self.edges)
            if value < INT64_MIN:
                return 0
        exact = self.edges.dtype.type(value)
        return int(np.searchsorted(self.edges, exact, side="right" if inclusive else "left"))
