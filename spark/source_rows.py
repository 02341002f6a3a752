"""Rows of a table for a Spark task: planned on the driver, read and checked by the worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from strandline.spark.arrow_schema import arrow_schema
from strandline.spark.types import spark_type
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.hidden_columns import DELETED, HIDDEN_COLUMNS
from strandline.tableformat.segments import segment_from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.readers.scan import Scan
    from strandline.spark.source_options import SourceOptions
    from strandline.table import Table
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry

DEFAULT_SPLIT_BYTES: Final = 64 * 2**20
_LOG: Final = logging.getLogger("strandline.spark")
_said: set[str] = set()


@dataclass(frozen=True)
class Span:
    """Which rows of which version, as plain values."""

    version: int
    table_uuid: str
    start_seq: int | None = None
    end_seq: int | None = None
    start_ts: int | None = None
    end_ts: int | None = None
    floor_ts: int = 0
    trim_seq: int = 0


class SplitPartition(InputPartition):
    """Some segments of one version, as text that the worker decodes and checks again."""

    def __init__(self, span: Span, entries: Sequence[str] | None) -> None:
        """Without entries: everything that the span holds."""
        super().__init__(None)
        self.span, self.entries = span, None if entries is None else tuple(entries)

    def __repr__(self) -> str:
        segments = "all" if self.entries is None else len(self.entries)
        return f"SplitPartition(version={self.span.version}, segments={segments})"


def spark_schema(manifest: Manifest, options: SourceOptions) -> StructType:
    """The columns as Spark sees them; hidden ones where they are asked for."""
    names, with_hidden = options.columns, options.flag("hiddenColumns")
    if names is not None and with_hidden:
        raise InvalidInput("give columns, which may name hidden ones, or hiddenColumns")
    if names is None:
        hidden = HIDDEN_COLUMNS if with_hidden else ()
        names = [*(column.name for column in manifest.schema.columns), *hidden]
    fields = []
    for name in names:
        if name in HIDDEN_COLUMNS or name == DELETED.name:
            kind = BooleanType() if name == DELETED.name else LongType()
            fields.append(StructField(name, kind, nullable=False))
        else:
            column = manifest.schema.column(name)
            fields.append(StructField(column.name, spark_type(column.type)))
    return StructType(fields)


def check_same_columns(given: StructType, expected: StructType) -> None:
    """Refuse a schema of the user's own: rows come as the table has them."""
    if [(f.name, f.dataType) for f in given] != [(f.name, f.dataType) for f in expected]:
        raise InvalidInput(
            f"the schema that was given, {given.simpleString()}, is not that of the columns to "
            f"read, {expected.simpleString()}. Nothing was read. Leave .schema(…) out, and name "
            "columns with the option columns."
        )


def say_reads_all(options: SourceOptions) -> None:
    """Tell once that every column is read: this road of Spark cannot leave any out by itself."""
    if options.columns is None and options.url not in _said:
        _said.add(options.url)
        _LOG.warning(
            "%s: all columns are read; name those you need with .option('columns', 'a, b')",
            options.url,
        )


class Rows:
    """Plans and reads the rows that options ask for."""

    def __init__(
        self, options: SourceOptions, schema: StructType, *, all_rows: bool | None = None
    ) -> None:
        """`all_rows`: of a keyed table, replaced rows too; by default as the option says."""
        self.options, self.schema = options, schema
        self.all_rows = options.flag("allRows") if all_rows is None else all_rows

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema, "all_rows": self.all_rows}

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """What Spark compares every batch with, field by field."""
        return arrow_schema(self.schema)

    # --- on the driver ---

    def span_of(self, table: Table) -> Span:
        """All rows of the version that options ask for."""
        head = table._head.manifest  # noqa: SLF001 - what has expired since stays hidden
        manifest = table.manifest
        return Span(
            manifest.version,
            manifest.table_uuid,
            start_seq=self.options.count("startSeq"),
            end_seq=self.options.count("endSeq"),
            start_ts=self.options.moment_ms("startTime"),
            end_ts=self.options.moment_ms("endTime"),
            floor_ts=max(manifest.floor_ts, head.floor_ts),
            trim_seq=max(manifest.trim_seq, head.trim_seq),
        )

    def splits(self, table: Table, span: Span) -> list[InputPartition]:
        """Segments that may hold a wanted row, in parts of about equal size."""
        if table.config.primary_key and not self.all_rows:
            # Which row of a key is the newest shows only to who sees them all.
            return [SplitPartition(span, None)]
        segments = self._scan(table, span, indexes=False).plan().segments
        most_bytes = self.options.count("splitBytes") or DEFAULT_SPLIT_BYTES
        return [
            SplitPartition(span, [entry.to_json().decode() for entry in group])
            for group in _in_parts(segments, most_bytes)
        ]

    # --- on a worker ---

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; an empty plan comes back as a part of Spark's own making."""
        if not isinstance(partition, SplitPartition):
            return
        table = self.options.open(partition.span.version)
        if table.uuid != partition.span.table_uuid:
            raise CorruptTable(
                f"{table.url} holds another table than the one that was planned. Nothing was "
                "read. Load it again."
            )
        scan = self._scan(table, partition.span)
        if partition.entries is not None:
            entries = [segment_from_json(orjson.loads(text)) for text in partition.entries]
            scan = scan.of_segments(entries)
        for batch in scan.to_batches():
            yield self._as_spark_wants(batch)

    def _scan(self, table: Table, span: Span, *, indexes: bool = True) -> Scan:
        return table.scan(
            [field.name for field in self.schema],
            self.options.text("filter"),
            start_seq=max(span.start_seq or 0, span.trim_seq),
            end_seq=span.end_seq,
            start_ts=max(span.start_ts or 0, span.floor_ts),
            end_ts=span.end_ts,
            indexes=indexes,
            all_rows=self.all_rows,
        )

    def _as_spark_wants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            array if array.type == field.type else array.cast(field.type)
            for array, field in zip(batch.columns, self.arrow_schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)


def _in_parts(segments: Sequence[SegmentEntry], most_bytes: int) -> Iterator[list[SegmentEntry]]:
    part: list[SegmentEntry] = []
    size = 0
    for entry in segments:
        if part and size + entry.size_bytes > most_bytes:
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.size_bytes
    if part:
        yield part
