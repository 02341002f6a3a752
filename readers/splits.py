"""What a scan reads: segments, and of each the zones that may hold a matching row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.tableformat.hidden_columns import SEQ_ID
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.page_table import PageTable
    from strandline.tableformat.planning import PlanReport
    from strandline.tableformat.segments import SegmentEntry


@dataclass(slots=True, eq=False)
class Split:
    """One segment, or some zones of it.

    Nobody changes one. It is not frozen because that takes four times as long to make, and plans
    make thousands.
    """

    entry: SegmentEntry
    zones: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    """Which zones may hold a matching row; None: any."""
    pages: PageTable | None = None
    """Where the Parquet pages lie; None: read whole row groups."""
    zone_rows: int = 0
    """Rows of a zone; 0: as the table's configuration says."""
    bound: Bound | None = None
    """What its rows have to be asked; None: all of them match."""
    strategy: tuple[str, ...] = ()
    """How the zones were chosen, in words."""
    only_seqs: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """Ascending sequence numbers: other rows do not count, whatever the filter says; None: all do.
    Some may be those of other segments."""

    @property
    def sure_rows(self) -> int | None:
        """How many rows it gives; None where that is not known without reading."""
        if self.bound is not None:
            return None
        if self.only_seqs is None:
            return self.entry.row_count
        return len(self.only_seqs) if self.entry.rows_are == DENSE else None

    def order_from(self, column_id: int) -> str | None:
        """The kind of index that says which zones hold the first values of a column; None: none.

        `rows` is the numbering of rows itself, where it has no gaps.
        """
        index = self.entry.index
        if index is None:
            return None
        if "rank" in index.kinds.get(column_id, ()):
            return "rank"
        return "rows" if column_id == SEQ_ID and self.entry.rows_are == DENSE else None

    @property
    def rows_planned(self) -> int:
        """How many rows are looked at."""
        if self.zones is None:
            return self.entry.row_count
        rows = int(np.count_nonzero(self.zones)) * self.zone_rows
        if self.zones[-1]:
            # The last zone may be shorter.
            rows -= len(self.zones) * self.zone_rows - self.entry.row_count
        return rows

    @property
    def bytes_planned(self) -> int:
        """About how many bytes of the data file that are, over all columns."""
        if self.zones is None:
            return self.entry.size_bytes
        return -(-self.entry.size_bytes * self.rows_planned // self.entry.row_count)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scan reads, in the order of sequence numbers, and how that was found."""

    splits: tuple[Split, ...]
    report: PlanReport

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """The data files."""
        return tuple(split.entry for split in self.splits)
