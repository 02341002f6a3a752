"""A table as the source of a streaming query: offsets are sequence numbers.

Sequence numbers outlive what versions and files do not: compaction, expiry, vacuum. Rows that have
expired before a batch reads them are left out; all others come once.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from strandline.spark.source_rows import Span
from strandline.tableformat.errors import CorruptTable, InvalidInput, VersionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from strandline.spark.source_rows import Rows
    from strandline.table import Table
    from strandline.tableformat.segments import SegmentEntry

_limits: Any = None
_bases: tuple[type, ...] = (datasource.DataSourceStreamReader,)
with suppress(ImportError):  # PySpark 4.1 has neither limits nor availableNow for Python sources
    _limits = import_module("pyspark.sql.streaming.datasource")
    _bases = (*_bases, _limits.SupportsTriggerAvailableNow)
_Base: Any = type("_Base", _bases, {})


class StreamReader(_Base):  # type: ignore[misc]  # the base depends on PySpark's version
    """Gives the rows between two sequence numbers."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._files = _limit(rows, "maxFilesPerTrigger")
        self._bytes = _limit(rows, "maxBytesPerTrigger")
        self._table: Table | None = None
        self._target: int | None = None
        self._first: int | None = None
        """Where the stream begins, once it was asked."""
        self.must_settle = (
            rows.options.text("startingTimestamp") is not None
            or (rows.options.text("startingVersion") or "").lower() == "latest"
        )
        """Whether the beginning depends on when it is asked, and is in no checkpoint yet."""
        self._reached: int | None = None
        """The end of the newest batch, for a Spark that does not say where the next begins."""

    def __getstate__(self) -> dict[str, Any]:
        # Workers open the table themselves.
        return {**self.__dict__, "_table": None}

    # --- offsets ---

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        # Spark asks more than once, and rows that came in between would belong to no batch.
        if self._first is None:
            self._first = self._start()
        self._reached = self._first
        return self._offset(self._first)

    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        if self._is_settled_by(start):
            return self.initialOffset()
        tail = self._live().tail().next_seq
        if self._target is not None:
            tail = min(tail, self._target)
        first = self._reached if start is None else self._seq(start)
        unlimited = _limits is not None and isinstance(limit, _limits.ReadAllAvailable)
        if first is not None and not unlimited:
            tail = self._within_limits(first, tail)
        self._reached = tail if first is None else max(first, tail)
        return self._offset(self._reached)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's
        if self._files is not None:
            return _limits.ReadMaxFiles(self._files)
        if self._bytes is not None:
            return _limits.ReadMaxBytes(self._bytes)
        return _limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._target = self._live().tail().next_seq

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        return self._offset(self._live().tail().next_seq)

    def _is_settled_by(self, start: dict[str, Any] | None) -> bool:
        """Whether the next batch is an empty one that puts the beginning into the checkpoint.

        Spark notes where a batch ends and not where the first one began: run again after a crash,
        it would begin at the tail of that day.
        """
        if not self.must_settle or self._first is None:
            return False
        self.must_settle = False
        return start is None or self._seq(start) == self._first

    def _within_limits(self, first: int, tail: int) -> int:
        if (self._files is None and self._bytes is None) or first >= tail:
            return tail
        table = self._live()
        segments = (
            table.scan(start_seq=first, end_seq=tail, indexes=False, all_rows=True).plan().segments
        )
        return min(tail, _end_of(segments, tail, self._files, self._bytes))

    def _start(self) -> int:
        options, table = self._rows.options, self._live()
        version, moment = options.text("startingVersion"), options.moment_ms("startingTimestamp")
        if version is not None and moment is not None:
            raise InvalidInput("give startingVersion or startingTimestamp, not both")
        if version is not None and version.lower() == "latest":
            return table.tail().next_seq
        if version is not None:
            number = options.count("startingVersion")
            assert number is not None
            # The rows of that version's own commit are the first.
            return options.open(number - 1).manifest.next_seq if number > 1 else 0
        if moment is None:
            return 0
        try:
            return options.open_as_of(moment - 1).manifest.next_seq
        except VersionNotFound:
            if table.history()[-1].version > 1:
                raise
            return 0  # before the table was created

    # --- rows ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = self._seq(start), self._seq(end)
        self._reached = last
        if first >= last:
            return []
        table = self._live().refresh()
        manifest = table.manifest
        if last > manifest.next_seq:
            raise CorruptTable(
                f"{table.url}: the query has read up to row {last}, and the table ends at row "
                f"{manifest.next_seq}. Nothing was read. Is it an older copy of the table?"
            )
        span = self._rows.span_of(table)
        return self._rows.splits(
            table,
            Span(
                span.version,
                span.table_uuid,
                start_seq=max(first, span.start_seq or 0),
                end_seq=last if span.end_seq is None else min(last, span.end_seq),
                start_ts=span.start_ts,
                end_ts=span.end_ts,
                floor_ts=span.floor_ts,
                trim_seq=span.trim_seq,
            ),
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.batches(partition)

    # --- the table ---

    def _live(self) -> Table:
        if self._table is None:
            self._table = self._rows.options.open()
        return self._table

    def _offset(self, seq: int) -> dict[str, Any]:
        return {"seq": seq, "table": self._live().uuid}

    def _seq(self, offset: dict[str, Any]) -> int:
        uuid = self._live().uuid
        if offset.get("table") != uuid:
            raise CorruptTable(
                f"{self._live().url} is another table than the one this query has read so far. "
                "Nothing was read. Start the query with a new checkpoint."
            )
        return int(offset["seq"])


def _limit(rows: Rows, name: str) -> int | None:
    given = rows.options.count(name)
    if given == 0:
        raise InvalidInput(f"option {name} must be 1 or more")
    return given


def _end_of(
    segments: Sequence[SegmentEntry], tail: int, most_files: int | None, most_bytes: int | None
) -> int:
    """Where a batch ends that reads so many files or bytes, but at least one file.

    Files may overlap in their numbers; the end of a file is where a later batch goes on.
    """
    size = 0
    end = tail
    for count, entry in enumerate(sorted(segments, key=lambda s: s.max_seq), start=1):
        size += entry.size_bytes
        too_large = most_bytes is not None and size > most_bytes
        if count > 1 and (too_large or (most_files is not None and count > most_files)):
            return end
        end = entry.max_seq + 1
    return tail
