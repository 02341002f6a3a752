"""A scan: what to read from one pinned version, and the ways to read it."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.readers.planner import plan_scan
from strandline.readers.segment_reader import read_segment
from strandline.tableformat.binding import bind, columns_of
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.expressions import all_of, col
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.hidden_columns import HIDDEN_COLUMNS, SEQ_ID
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.tableformat.binding import Bound
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.planning import Plan
    from strandline.tableformat.schema import Column
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import Storage

READ_AHEAD: Final = 4
"""Segments in memory or on their way at once."""
READ_THREADS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller asked for, checked for shape but not yet against a schema."""

    columns: Sequence[str] | None = None
    filter: str | Expression | None = None
    start_seq: int | None = None
    end_seq: int | None = None
    start_ts: int | None = None
    end_ts: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise InvalidInput("columns is a list of names, not one string")
        for name in ("start_seq", "end_seq", "start_ts", "end_ts", "limit"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise InvalidInput(f"{name} must be an integer of 0 or more, not {value!r}")


class Scan:
    """Rows of one version that match a request, in the order of their sequence numbers.

    `start_seq`, `start_ts` and `end_ts` are inclusive, `end_seq` is exclusive.
    """

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        request: Request,
        *,
        floor_ts: int,
        trim_seq: int,
        unflushed: Sequence[pa.Table] = (),
    ) -> None:
        """Take rows that are not committed yet as `unflushed`, with their hidden columns."""
        self._storage, self._manifest, self._request = storage, manifest, request
        self._unflushed = unflushed
        self._columns = _chosen(manifest, request.columns)
        self._bound = _bound(manifest, request, floor_ts=floor_ts, trim_seq=trim_seq)

    @property
    def version(self) -> int:
        """The table version that is read, whatever is committed meanwhile."""
        return self._manifest.version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the answer."""
        by_name = {field.name: field for field in self._manifest.schema.arrow}
        return pa.schema(
            [
                by_name.get(column.name, pa.field(column.name, pa.int64(), nullable=False))
                for column in self._columns
            ]
        )

    @cached_property
    def _plan(self) -> Plan:
        return plan_scan(self._storage, self._manifest, self._bound)

    def plan(self) -> Plan:
        """The segments that will be read, and what each step of planning removed."""
        return self._plan

    def explain(self) -> str:
        """The plan in words."""
        report = self._plan.report
        lines = [f"version {self.version} of {self._storage.url}"]
        if self._request.filter is not None:
            lines.append(f"filter: {filter_from(self._request.filter)}")
        for name in ("window_pages", "windows", "pages", "segments"):
            count = getattr(report, name)
            lines.append(f"{name.replace('_', ' ')}: {count.kept} of {count.considered} may match")
        if self._unflushed:
            rows = sum(table.num_rows for table in self._unflushed)
            lines.append(f"unflushed: {rows} rows in the writer's memory")
        lines.append(
            f"to read: {report.rows_planned} rows in {len(self._plan.segments)} files, "
            f"{report.bytes_planned} of {report.bytes_total} bytes"
        )
        return "\n".join(lines)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches, with a bounded number of segments in memory."""
        left = self._request.limit
        for rows in self._tables():
            table = rows if left is None else rows.slice(0, left)
            yield from table.to_batches()
            if left is not None:
                left -= table.num_rows
                if left <= 0:
                    return

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of Arrow batches, for libraries that take one."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.schema)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        import polars as pl  # noqa: PLC0415 - an optional dependency

        return pl.from_arrow(self.to_arrow())

    def count(self) -> int:
        """How many rows there are, without keeping them."""
        return sum(batch.num_rows for batch in self.to_batches())

    # --- execution ---

    def _tables(self) -> Iterator[pa.Table]:
        """Matching rows, one table for each run of segments whose numbers interleave."""
        if self._request.limit == 0:
            return
        yield from self._committed_tables()
        for rows in self._unflushed:
            yield self._finish([self._filtered(rows)])

    def _committed_tables(self) -> Iterator[pa.Table]:
        runs = deque(_runs(self._plan.segments))
        needed = {column.id for column in self._columns}
        needed |= columns_of(self._bound) if self._bound is not None else frozenset()
        if len(runs) == 1 and len(runs[0]) == 1:
            (entry,) = runs[0]
            yield self._finish([self._read(entry, needed | _to_sort(runs[0]))])
            return
        with ThreadPoolExecutor(READ_THREADS) as pool:
            ahead: deque[list[Any]] = deque()
            in_flight = 0
            try:
                while runs or ahead:
                    while runs and (in_flight < READ_AHEAD or not ahead):
                        run = runs.popleft()
                        ids = needed | _to_sort(run)
                        ahead.append([pool.submit(self._read, entry, ids) for entry in run])
                        in_flight += len(run)
                    done = ahead.popleft()
                    in_flight -= len(done)
                    yield self._finish([future.result() for future in done])
            finally:
                for futures in ahead:
                    for future in futures:
                        future.cancel()

    def _read(self, entry: SegmentEntry, column_ids: set[int] | frozenset[int]) -> pa.Table:
        return self._filtered(read_segment(self._storage, self._manifest, entry, column_ids))

    def _filtered(self, rows: pa.Table) -> pa.Table:
        # Row filters need pyarrow's kernels, which planning does without: see the import test.
        from strandline.readers.evaluate import filter_table  # noqa: PLC0415

        if self._bound is None:
            return rows
        names = {c.id: c.name for c in (*self._manifest.schema.columns, *HIDDEN_COLUMNS.values())}
        return filter_table(self._bound, rows, names)

    def _finish(self, tables: list[pa.Table]) -> pa.Table:
        rows = tables[0]
        if len(tables) > 1:
            rows = pa.concat_tables(tables).sort_by("_seq")
        elif "_seq" in rows.column_names and not _ascends(rows.column("_seq")):
            rows = rows.sort_by("_seq")
        return rows.select([column.name for column in self._columns]).cast(self.schema)


def _chosen(manifest: Manifest, names: Sequence[str] | None) -> list[Column]:
    if names is None:
        return list(manifest.schema.columns)
    chosen = [HIDDEN_COLUMNS.get(name) or manifest.schema.column(name) for name in names]
    if len({column.id for column in chosen}) != len(chosen):
        raise InvalidInput("columns names a column twice")
    if not chosen:
        raise InvalidInput("columns is empty; name at least one column, or leave it out")
    return chosen


def _bound(manifest: Manifest, request: Request, *, floor_ts: int, trim_seq: int) -> Bound | None:
    """Everything a row must satisfy, as one filter: the request's, and what is still visible."""
    terms = [] if request.filter is None else [filter_from(request.filter)]
    least_seq, least_ts = (
        max(request.start_seq or 0, trim_seq),
        max(request.start_ts or 0, floor_ts),
    )
    if least_seq > 0:
        terms.append(col("_seq") >= least_seq)
    if request.end_seq is not None:
        terms.append(col("_seq") < request.end_seq)
    if least_ts > 0:
        terms.append(col("_ts") >= least_ts)
    if request.end_ts is not None:
        terms.append(col("_ts") <= request.end_ts)
    return bind(all_of(terms), manifest.schema) if terms else None


def _to_sort(run: Sequence[SegmentEntry]) -> frozenset[int]:
    """What reading a run needs besides: numbers, unless its rows are known to be in order."""
    in_order = len(run) == 1 and run[0].rows_are == DENSE
    return frozenset() if in_order else frozenset({SEQ_ID})


def _ascends(values: pa.ChunkedArray) -> bool:
    numbers = values.to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all())


def _runs(segments: Sequence[SegmentEntry]) -> Iterator[list[SegmentEntry]]:
    """Segments sorted by their first number, grouped where their ranges overlap."""
    run: list[SegmentEntry] = []
    reach = -1
    for entry in segments:
        if run and entry.min_seq > reach:
            yield run
            run = []
        run.append(entry)
        reach = max(reach, entry.max_seq)
    if run:
        yield run
