"""Kind `enum_bitmap`: for each of a few distinct values, the zones that hold it.

The leaf is decided on the values themselves, so the answer is exact: a zone is kept if and only
if it has a row for which the leaf is TRUE.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.binding import (
    BoundCompare,
    BoundConstant,
    BoundIn,
    BoundKnown,
    BoundLike,
    BoundNull,
    BoundPair,
)
from strandline.tableformat.indexes import value_arrays
from strandline.tableformat.indexes.blob import (
    BlobReader,
    bytes_of_bits,
    choice,
    packed,
    unpacked,
)
from strandline.tableformat.indexes.contract import Built, common
from strandline.tableformat.indexes.distinct import MAX_DISTINCT
from strandline.tableformat.like import ANY
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.tableformat.binding import Leaf
    from strandline.tableformat.indexes.zones import ColumnZones, ZoneLayout
    from strandline.tableformat.like import LikePattern
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.values import Value

MAX_VALUE_BYTES: Final = 65_536
"""Of all values together: whole texts are kept, and they may be long."""


class EnumBitmap:
    """Serves every leaf that looks at one column, if that has at most 256 distinct values."""

    name = "enum_bitmap"

    def build(self, column: ColumnZones) -> Built | None:
        distinct = column.few_distinct
        if distinct is None:
            return None
        form = value_arrays.form_of(distinct.values, column.domain)
        values = value_arrays.encode(distinct.values, form)
        if len(values) > MAX_VALUE_BYTES:
            return None
        bitmaps = packed(distinct.zones)
        count = np.array([len(distinct.values)], "<u4")
        return Built(b"".join((count.tobytes(), values, bitmaps.tobytes())), {"values": form})

    def serves(self, leaf: Leaf) -> bool:
        return not isinstance(leaf, BoundConstant | BoundPair)

    def open(
        self, data: bytes, params: Mapping[str, Any], layout: ZoneLayout, kind: ColumnType
    ) -> EnumIndex:
        assert kind.domain is not None
        blob = BlobReader(self.name, data)
        form = choice(self.name, params, "values", value_arrays.FORMS[kind.domain])
        count = blob.number("<u4")
        if count > MAX_DISTINCT:
            blob.fail(f"it says that it has {count} values, and {MAX_DISTINCT} is the most")
        values = value_arrays.decode(blob, form, count, kind.domain).tolist()
        has_nan = kind.domain is Domain.FLOAT and bool(values) and math.isnan(values[-1])
        plain = values[:-1] if has_nan else values
        if not all(a < b for a, b in pairwise(plain)) or any(v != v for v in plain):  # noqa: PLR0124 - NaN
            blob.fail("its values do not ascend")
        row_bytes = bytes_of_bits(layout.count)
        bitmaps = blob.array("u1", (count + 1) * row_bytes).reshape(count + 1, row_bytes)
        blob.finish()
        return EnumIndex(plain, bitmaps, layout.count, has_nan)


@dataclass(frozen=True, eq=False)
class EnumIndex:
    """Values in order, and a bitmap over the zones for each, for NaN, and for null."""

    values: list[Any]
    bitmaps: NDArray[np.uint8]
    zone_count: int
    has_nan: bool

    def may_match(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        return self.may_match_all((leaf,))

    def may_match_all(self, leaves: Sequence[Leaf]) -> NDArray[np.bool_] | None:
        wanted = common(self._true_for(leaf) for leaf in leaves)
        if wanted is None:
            return None
        return unpacked(np.bitwise_or.reduce(self.bitmaps[wanted], axis=0), self.zone_count)

    def _true_for(self, leaf: Leaf) -> NDArray[np.bool_] | None:
        """For which bitmaps the leaf is TRUE: those of values, of NaN if there is one, of null."""
        match leaf:
            case BoundKnown(_, value):
                found = np.full(len(self.bitmaps), value)
            case BoundCompare(_, operator, value):
                found = self._compared(operator, value)
            case BoundIn(_, values, with_nan, negated):
                found = self._among(values, with_nan=with_nan) ^ negated
            case BoundLike(_, pattern, negated):
                matches = _matcher(pattern).fullmatch
                found = np.array([matches(v) is not None for v in (*self.values, "")]) ^ negated
            case BoundNull(_, negated):
                found = np.full(len(self.bitmaps), negated)
            case _:
                return None
        found[-1] = isinstance(leaf, BoundNull) and not leaf.negated
        return found

    def _compared(self, operator: str, value: Value) -> NDArray[np.bool_]:
        if operator in ("=", "!="):
            is_nan = isinstance(value, float) and math.isnan(value)
            equal = self._among(() if is_nan else (value,), with_nan=is_nan)
            return equal if operator == "=" else ~equal
        # NaN is above everything, and stands behind everything.
        cut = (bisect_left if operator in ("<", ">=") else bisect_right)(self.values, value)
        below = np.arange(len(self.bitmaps)) < cut
        return below if operator in ("<", "<=") else ~below

    def _among(self, wanted: tuple[Value, ...], *, with_nan: bool) -> NDArray[np.bool_]:
        found = np.zeros(len(self.bitmaps), np.bool_)
        for value in wanted:
            place = bisect_left(self.values, value)
            if place < len(self.values) and self.values[place] == value:
                found[place] = True
        if self.has_nan:
            found[-2] = with_nan
        return found


def _matcher(pattern: LikePattern) -> re.Pattern[str]:
    pieces = [re.escape(pattern.literals[0])]
    for wildcard, literal in zip(pattern.wildcards, pattern.literals[1:], strict=True):
        pieces += [".*" if wildcard == ANY else ".", re.escape(literal)]
    return re.compile("".join(pieces), re.DOTALL)
