"""Zones of a segment, and what the index kinds need to know of a column, found once for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat import types
from strandline.tableformat.arrow_numbers import (
    decimal_words,
    float64s,
    int64s,
    joined,
    validity,
)
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.indexes.distinct import Distinct, distinct_values
from strandline.tableformat.indexes.hashing import column_hashes
from strandline.tableformat.indexes.occurrences import Occurrences, occurrences
from strandline.tableformat.indexes.time_units import unit_of
from strandline.tableformat.indexes.zone_bounds import zone_bounds
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.tableformat.pruning import Bounds
    from strandline.tableformat.types import ColumnType
    from strandline.tableformat.xxh64 import Uint64s

MAX_ZONES: Final = 1 << 24
"""More zones than that are no help to anybody, and their masks would fill the memory."""


@dataclass(frozen=True)
class ZoneLayout:
    """How the rows of a segment fall into zones; only the last zone may be shorter."""

    row_count: int
    zone_rows: int

    def __post_init__(self) -> None:
        if self.row_count < 1 or self.zone_rows < 1 or self.count > MAX_ZONES:
            raise CorruptTable(
                f"{self.row_count} rows in zones of {self.zone_rows} are no layout of a segment: "
                f"both must be at least 1, and a segment has at most {MAX_ZONES} zones"
            )

    @property
    def count(self) -> int:
        """The number of zones."""
        return -(-self.row_count // self.zone_rows)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each zone."""
        return np.arange(0, self.row_count, self.zone_rows, dtype=np.int64)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The number of rows of each zone."""
        return np.diff(self.starts, append=self.row_count)

    @cached_property
    def zone_of_row(self) -> NDArray[np.int32]:
        """The zone of each row."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.rows)


class ColumnZones:
    """One column of one segment. Facts are found when asked for, and kept for the next kind."""

    def __init__(
        self,
        values: pa.ChunkedArray,
        kind: ColumnType,
        layout: ZoneLayout,
        *,
        time_unit: str | None = None,
        encoded: pa.ChunkedArray | None = None,
    ) -> None:
        """`time_unit` is "ms" for integers that are moments: `_ts`, or the table's time column.

        `encoded`: the same values with one dictionary, if somebody has looked them up already.
        """
        if kind.domain is None:
            raise InvalidInput(f"a {kind} column has no values to index")
        if len(values) != layout.row_count:
            raise InvalidInput(
                f"the column has {len(values)} rows and its zones have {layout.row_count}"
            )
        self._given = values
        self.kind, self.layout = kind, layout
        self.domain: Domain = kind.domain
        self.encoded = encoded
        # Without a hint, an integer is no time.
        self.time_unit = unit_of(kind) if time_unit or kind.name != "int64" else None

    @cached_property
    def values(self) -> pa.ChunkedArray:
        """In the plain Arrow type of the column."""
        arrow = types.to_arrow(self.kind)
        return self._given if self._given.type == arrow else self._given.cast(arrow)

    @cached_property
    def valid(self) -> NDArray[np.bool_] | None:
        """Where the column is not null; None if it is nowhere null."""
        return joined(self._given, validity) if self._given.null_count else None

    @cached_property
    def null_counts(self) -> NDArray[np.int64]:
        """Nulls in each zone."""
        if self.valid is None:
            return np.zeros(self.layout.count, np.int64)
        return np.bincount(self.layout.zone_of_row[~self.valid], minlength=self.layout.count)

    @cached_property
    def words(self) -> NDArray[np.uint64] | None:
        """Low and high words of decimals; None for other types."""
        return joined(self.values, decimal_words) if self.kind.name == "decimal" else None

    @cached_property
    def numbers(self) -> NDArray[Any] | None:
        """Domain values as int64 or float64, anything under nulls; None if they are neither."""
        if self.domain is Domain.FLOAT:
            return joined(self.values, float64s)
        if self.words is not None:
            low, high = self.words[:, 0].view(np.int64), self.words[:, 1].view(np.int64)
            narrow = high == low >> 63
            fits = narrow.all() if self.valid is None else narrow[self.valid].all()
            return np.ascontiguousarray(low) if fits else None
        return joined(self.values, int64s) if self.domain is Domain.INT else None

    @cached_property
    def hashes(self) -> Uint64s:
        """Canonical hashes; 0 for null."""
        if self.encoded is None or self.domain is Domain.FLOAT:
            return column_hashes(self.values, self.kind)
        encoded = self.encoded.combine_chunks()
        each = column_hashes(pa.chunked_array([encoded.dictionary]), self.kind)
        codes = int64s(encoded.indices)
        if encoded.null_count:
            codes = np.where(validity(encoded.indices), codes, len(each))
            each = np.append(each, np.uint64(0))
        return each[codes]

    @cached_property
    def bounds(self) -> Bounds:
        """The least and greatest value of each zone."""
        return zone_bounds(self)

    @cached_property
    def occurrences(self) -> Occurrences:
        """Which hash occurs in which zone, sorted."""
        return occurrences(self.hashes, self.valid, self.layout)

    @cached_property
    def few_distinct(self) -> Distinct | None:
        """The distinct values in order and where they are; None if they are many."""
        return distinct_values(self)

    @cached_property
    def distinct(self) -> int:
        """How many distinct values there are, as far as 32 bits of their hashes can tell."""
        if "occurrences" not in self.__dict__ and self.few_distinct is not None:
            return len(self.few_distinct.values)
        return self.occurrences.distinct
