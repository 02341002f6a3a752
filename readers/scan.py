"""A scan: what to read from one pinned version, and the ways to read it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.readers.explain import explain_order, explain_plan
from strandline.readers.in_order import in_order, needs_numbers, read_apart, sorted_rows
from strandline.readers.keyed import KEEP_BYTES, find_winners
from strandline.readers.planner import plan_scan, plan_segments
from strandline.readers.read_ahead import ReadAhead
from strandline.readers.request import (
    Request,
    check_shows_deletes,
    chosen_columns,
    names_of,
    order_column,
    whole_filter,
)
from strandline.readers.split_reader import SplitReader
from strandline.tableformat import types
from strandline.tableformat.binding import all_true, columns_of
from strandline.tableformat.errors import UnsupportedFormat
from strandline.tableformat.filter_parser import filter_from
from strandline.tableformat.hidden_columns import (
    DELETED,
    HIDDEN_COLUMNS,
    SEQ_ID,
    TS_ID,
    WINDOW_ID,
)
from strandline.tableformat.keys import before_winners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.readers.key_lookup import KeySet
    from strandline.readers.ordered import ZoneOrders
    from strandline.readers.splits import Plan, Split
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Column
    from strandline.tableformat.segments import SegmentEntry

BATCH_ROWS: Final = 2**16
"""No batch has more rows."""
_UNITS_IN_BUDGET: Final = 4
"""So many parts of segments fit the memory at once, if row groups are not larger."""


class Scan:
    """Rows of one version that match a request, in the order of their sequence numbers.

    Of a keyed table, the newest row of each key, if it matches. `start_seq`, `start_ts` and
    `end_ts` are inclusive, `end_seq` is exclusive.
    """

    def __init__(
        self,
        service: ManifestService,
        manifest: Manifest,
        request: Request,
        *,
        floor_ts: int,
        trim_seq: int,
        unflushed: Sequence[pa.Table] = (),
        among: Sequence[SegmentEntry] | None = None,
        keys: KeySet | None = None,
    ) -> None:
        """Take rows that are not committed yet as `unflushed`, with their hidden columns.

        `among`: only these segments of the version, as one of several workers reads them.
        `keys`: of a keyed table, only the rows of these.
        """
        self._service, self._storage = service, service.storage
        if DELETED.name in (request.columns or ()):
            check_shows_deletes(manifest, request)
            request = replace(request, tombstones=True)
        self._manifest, self._request = manifest, request
        self._unflushed, self._among, self._keys = unflushed, among, keys
        self._floor_ts, self._trim_seq = floor_ts, trim_seq
        self._columns = chosen_columns(manifest, request.columns)
        self._bound = whole_filter(manifest, request, floor_ts=floor_ts, trim_seq=trim_seq)
        self._order = order_column(manifest, request)
        self._afterwards: Bound | None = None
        """What is asked of winners only."""
        if self.newest_only:
            self._afterwards = whole_filter(manifest, request, floor_ts=0, trim_seq=0)
            visible = whole_filter(manifest, Request(), floor_ts=floor_ts, trim_seq=trim_seq)
            early = self._afterwards and before_winners(
                self._afterwards, manifest.config.primary_key
            )
            self._bound = all_true([visible, early])

    @property
    def newest_only(self) -> bool:
        """Whether replaced rows are left out: then the files are not yet the answer."""
        return bool(self._manifest.config.primary_key) and not self._request.all_rows

    @property
    def version(self) -> int:
        """The table version that is read, whatever is committed meanwhile."""
        return self._manifest.version

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self._request

    @property
    def unflushed_rows(self) -> int:
        """Rows in a writer's memory that are given too, where they match."""
        return sum(table.num_rows for table in self._unflushed)

    def changed(self, **changes: Any) -> Scan:
        """A scan of the same version that asks for something else, such as other `columns`."""
        return Scan(
            self._service,
            self._manifest,
            replace(self._request, **changes),
            floor_ts=self._floor_ts,
            trim_seq=self._trim_seq,
            unflushed=self._unflushed,
            among=self._among,
            keys=self._keys,
        )

    def of_segments(self, entries: Sequence[SegmentEntry]) -> Scan:
        """The part of this scan that lies in some segments of its plan."""
        if self.newest_only:
            raise UnsupportedFormat(
                f"{self._storage.url} has a primary key: which row is the newest of its key cannot "
                "be told from some files. Read the table with strandline.open_table(...).scan()."
            )
        return Scan(
            self._service,
            self._manifest,
            self._request,
            floor_ts=self._floor_ts,
            trim_seq=self._trim_seq,
            among=entries,
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the answer."""
        by_name = {field.name: field for field in self._manifest.schema.arrow}
        fields = [
            by_name.get(column.name)
            or pa.field(column.name, types.to_arrow(column.type), nullable=False)
            for column in self._columns
        ]
        if self._request.tombstones:
            key = self._manifest.config.primary_key
            fields = [
                field.with_nullable(field.nullable or (column.id > 0 and column.id not in key))
                for field, column in zip(fields, self._columns, strict=True)
            ]
        return pa.schema(fields)

    @cached_property
    def _plan(self) -> Plan:
        indexes = self._request.indexes
        bound = all_true([self._bound, None if self._keys is None else self._keys.bound])
        if self._among is not None:
            return plan_segments(self._service, self._manifest, bound, self._among, indexes=indexes)
        return plan_scan(
            self._service,
            self._manifest,
            bound,
            indexes=indexes,
            tombstones=self.newest_only or self._request.tombstones,
        )

    def plan(self) -> Plan:
        """The segments that will be read, and what each step of planning removed."""
        return self._plan

    def explain(self) -> str:
        """The plan in words: step by step what it removed, and what is left to read."""
        lines = [f"version {self.version} of {self._storage.url}"]
        if self._request.filter is not None:
            lines.append(f"filter: {filter_from(self._request.filter)}")
        if self.newest_only:
            key = ", ".join(column.name for column in self._manifest.key_columns)
            lines.append(
                f"newest row of each key ({key}): found first, with what the filter says about "
                "the key and the least _ts"
            )
        deletes = [split.entry for split in self._plan.splits if split.entry.tombstones]
        if deletes:
            count = sum(entry.row_count for entry in deletes)
            lines.append(f"deletes by key: {count} tombstones in {len(deletes)} files")
        if self._unflushed:
            lines.append(f"unflushed: {self.unflushed_rows} rows in the writer's memory")
        lines.extend(explain_order(self._plan, self._order, self._request))
        lines.extend(explain_plan(self._plan))
        return "\n".join(lines)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches of at most 65,536 rows; what waits in memory is bounded."""
        for table in self._limited():
            if table.num_rows <= BATCH_ROWS:
                table = table.combine_chunks()  # noqa: PLW2901 - small pieces as one
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of Arrow batches, for libraries that take one."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self, *, dictionaries: bool = False) -> pa.Table:
        """All rows as an Arrow table.

        `dictionaries`: every column of texts or bytes as codes into one dictionary. Where files
        hold few different texts this is quicker, and so are groups and joins over them.
        """
        if dictionaries:
            from strandline.readers.coded_texts import coded  # noqa: PLC0415 - few ask for it

            return coded(self.schema, list(self.changed(keep_codes=True)._limited()))  # noqa: SLF001
        tables = list(self._limited())
        return pa.concat_tables(tables) if tables else pa.Table.from_batches([], self.schema)

    # --- other libraries, loaded when asked for ---

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame; options as for `pyarrow.Table.to_pandas`."""
        from strandline.readers import interop  # noqa: PLC0415

        return interop.to_pandas(self, options)

    def to_polars(self) -> Any:
        """All rows as a Polars DataFrame."""
        from strandline.readers import interop  # noqa: PLC0415

        return interop.to_polars(self)

    def scan_polars(self) -> Any:
        """A Polars LazyFrame: its filters, columns and `head` reach the scan, which reads less."""
        from strandline.readers import interop  # noqa: PLC0415

        return interop.scan_polars(self)

    def to_duckdb(self, connection: Any = None) -> Any:
        """A DuckDB relation over the rows, on DuckDB's default connection unless one is given.

        The filters and columns of queries reach the scan, which reads less.
        """
        from strandline.readers import interop  # noqa: PLC0415

        return interop.to_duckdb(self, connection)

    def to_pyarrow_dataset(self) -> Any:
        """A pyarrow Dataset of the rows; its filters and columns reach the scan."""
        from strandline.readers import interop  # noqa: PLC0415

        return interop.to_pyarrow_dataset(self)

    def count(self) -> int:
        """How many rows there are; only what the filter looks at is read."""
        splits, in_memory = self._sources()
        count = sum(split.sure_rows or 0 for split in splits)
        count += sum(int(rows.num_rows) for rows in in_memory)
        limit = self._request.limit
        if limit is None or count < limit:
            # Some column must tell the number of rows; this one is never stored.
            doubtful = [self._reader(s, {WINDOW_ID}) for s in splits if s.sure_rows is None]
            count += sum(int(rows.num_rows) for _, rows in self._read_ahead(doubtful))
        return count if limit is None else min(count, limit)

    # --- execution ---

    def _limited(self) -> Iterator[pa.Table]:
        """Matching rows in order, up to the limit."""
        left = self._request.limit
        if left == 0:
            return
        for rows in self._tables():
            if left is None:
                yield rows
                continue
            yield rows.slice(0, left)
            left -= rows.num_rows
            if left <= 0:
                return

    def _tables(self) -> Iterator[pa.Table]:
        return self._in_sequence() if self._order is None else self._ordered(self._order)

    def _ordered(self, key: Column) -> Iterator[pa.Table]:
        from strandline.readers import ordered  # noqa: PLC0415 - kernels for sorting

        request = self._request
        splits, in_memory = self._sources()
        best = ordered.BestRows(key, limit=request.limit, descending=request.descending)
        wanted = {column.id for column in self._columns} | {key.id, SEQ_ID}
        for rows in in_memory:
            best.add(rows.select(names_of(self._manifest, wanted)))
        ordered.collect(
            best,
            splits,
            key=key,
            descending=request.descending,
            limit=request.limit,
            read=lambda chosen: self._read_ahead([self._reader(s, wanted) for s in chosen]),
            orders=self._zone_orders,
        )
        if best.rows is not None:
            yield self._answer(best.rows)

    @cached_property
    def _zone_orders(self) -> ZoneOrders:
        from strandline.readers.ordered import ZoneOrders  # noqa: PLC0415 - as above

        assert self._order is not None
        return ZoneOrders(
            self._service,
            self._manifest.schema,
            self._order,
            self._plan.report,
            use_indexes=self._request.indexes,
        )

    def _in_sequence(self) -> Iterator[pa.Table]:
        splits, in_memory = self._sources()
        numbered = needs_numbers([split.entry for split in splits])
        memory_bytes = self._request.memory_bytes
        readers = []
        rows_sure = 0
        limit = self._request.limit
        for split, sort in zip(splits, numbered, strict=True):
            readers.append(self._reader_in_sequence(split, sort=sort))
            rows_sure += split.sure_rows or 0
            if limit is not None and rows_sure >= limit and not sort:
                break
        may_stop = limit is not None and rows_sure < limit

        def read(chosen: Sequence[SplitReader], *, share: int) -> ReadAhead:
            return self._read_ahead(chosen, may_stop=may_stop, memory_bytes=memory_bytes // share)

        apart = read_apart(readers, memory_bytes)
        for number in apart.segments:
            readers[number] = self._reader_in_sequence(
                splits[number], sort=True, unit_memory_bytes=memory_bytes // apart.share
            )
        for rows in in_order(readers, numbered, apart, read):
            yield self._answer(rows)
        for rows in in_memory:
            yield self._answer(rows)

    def _reader_in_sequence(
        self, split: Split, *, sort: bool, unit_memory_bytes: int | None = None
    ) -> SplitReader:
        """Rows that have to be sorted come with their numbers, all of them, and of one type."""
        wanted = {column.id for column in self._columns}
        return self._reader(
            split,
            wanted | {SEQ_ID} if sort else wanted,
            None if sort else self._request.limit,
            keep_codes=self._request.keep_codes and not sort,
            unit_memory_bytes=unit_memory_bytes,
        )

    def _sources(self) -> tuple[Sequence[Split], list[pa.Table]]:
        """What is to be read, and matching rows that are in memory and come behind."""
        if self.newest_only:
            return self._newest()
        waiting = self._unflushed
        if self._request.tombstones:
            waiting = [
                rows.append_column(DELETED.name, pa.repeat(pa.scalar(value=False), rows.num_rows))
                for rows in waiting
            ]
        return self._plan.splits, [self._filtered(rows, self._bound) for rows in waiting]

    def _newest(self) -> tuple[Sequence[Split], list[pa.Table]]:
        manifest, splits = self._manifest, self._plan.splits
        most = min(KEEP_BYTES, self._request.memory_bytes // _UNITS_IN_BUDGET)
        keep = self._plan.report.bytes_planned <= most
        ids = {*manifest.config.primary_key, SEQ_ID, TS_ID}
        if keep:
            last = self._afterwards
            ids |= {column.id for column in self._columns} | (columns_of(last) if last else set())
            ids |= set() if self._order is None else {self._order.id}
        waiting = [self._of_keys(self._filtered(rows, self._bound)) for rows in self._unflushed]
        winners, seen = find_winners(
            manifest,
            splits,
            lambda chosen: self._candidates(chosen, ids),
            unflushed=waiting,
            keep=keep,
        )
        in_memory = ([sorted_rows(seen)] if seen else []) + waiting
        found = [self._filtered(winners.only(rows), self._afterwards) for rows in in_memory]
        if keep:
            return (), found
        rows = [split for split in splits if not split.entry.tombstones]
        return winners.splits(rows, self._afterwards, manifest.config.zone_rows), found

    def _candidates(
        self, splits: Sequence[Split], wanted: set[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        """Rows that may win, or lose to what wins."""
        key = {*self._manifest.config.primary_key, SEQ_ID, TS_ID}
        readers = [self._reader(s, key if s.entry.tombstones else wanted) for s in splits]
        for index, rows in self._read_ahead(readers):
            yield index, self._of_keys(rows)

    def _of_keys(self, rows: pa.Table) -> pa.Table:
        return rows if self._keys is None else self._keys.only(rows)

    def _reader(
        self,
        split: Split,
        wanted: set[int],
        most_rows: int | None = None,
        *,
        keep_codes: bool = False,
        unit_memory_bytes: int | None = None,
    ) -> SplitReader:
        return SplitReader(
            self._storage,
            self._manifest,
            split,
            wanted,
            service=self._service,
            keep_codes=keep_codes,
            most_rows=most_rows,
            unit_memory_bytes=(
                self._request.memory_bytes // _UNITS_IN_BUDGET
                if unit_memory_bytes is None
                else unit_memory_bytes
            ),
        )

    def _read_ahead(
        self,
        readers: Sequence[SplitReader],
        *,
        may_stop: bool = False,
        memory_bytes: int | None = None,
    ) -> ReadAhead:
        return ReadAhead(
            readers,
            is_local=self._storage.is_local,
            memory_bytes=self._request.memory_bytes if memory_bytes is None else memory_bytes,
            may_stop=may_stop,
        )

    def _filtered(self, rows: pa.Table, bound: Bound | None) -> pa.Table:
        # Row filters need pyarrow's kernels, which planning does without: see the import test.
        from strandline.readers.evaluate import filter_table  # noqa: PLC0415

        if bound is None:
            return rows
        names = {c.id: c.name for c in (*self._manifest.schema.columns, *HIDDEN_COLUMNS.values())}
        return filter_table(bound, rows, names)

    def _answer(self, rows: pa.Table) -> pa.Table:
        """The columns that were asked for, in the types that the schema says."""
        fields = [*self.schema]
        arrays = [rows.column(field.name) for field in fields]
        if self._request.keep_codes:
            fields = [
                field.with_type(array.type) if pa.types.is_dictionary(array.type) else field
                for field, array in zip(fields, arrays, strict=True)
            ]
        return pa.Table.from_arrays(
            [
                # Inner fields of an equal type may have other names.
                array.cast(field.type) if pa.types.is_nested(field.type) else array
                for array, field in zip(arrays, fields, strict=True)
            ],
            schema=pa.schema(fields),
        )
