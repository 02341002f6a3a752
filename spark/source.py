"""The data source of name `strandline`: for Spark Connect, streams, and any store we can open.

Spark makes these objects in processes of their own, pickles them and sends them on; so they hold
plain values, and stores are opened where they are needed. Filters are not pushed down: Spark 4.3
keeps what was pushed on the relation that all queries of a DataFrame share, so a second query
would get the first one's rows. `filter` and the other options prune instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader

from strandline.spark.source_options import Sealed, read_options
from strandline.spark.source_rows import Rows, check_same_columns, say_reads_all, spark_schema
from strandline.spark.source_write import (
    committed_before,
    start_job,
    transaction_key,
)
from strandline.spark.stream_read import StreamReader
from strandline.spark.stream_write import StreamWriter
from strandline.tableformat.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.types import StructType

    from strandline.spark.source_options import SourceOptions
    from strandline.spark.source_write import TaskResult
    from strandline.table import Table


class StrandlineSource(DataSource):
    """`format("strandline")`, batch and streaming, reading and writing."""

    sealed: Sealed = Sealed()
    """Storage options that no plan may show; `register_source` makes a class of its own."""
    _version: int | None = None
    """The version that was newest when the DataFrame was made, or the one asked for."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    @property
    def _options(self) -> SourceOptions:
        return read_options(dict(self.options), self.sealed)

    def schema(self) -> StructType:
        options = self._options
        table = _open_at(options, self._version)
        self._version = table.version
        say_reads_all(options)
        return spark_schema(table.manifest, options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options
        if self._version is None:
            self._version = _open_at(options, None).version
        table = options.open(self._version)
        check_same_columns(schema, spark_schema(table.manifest, options))
        return BatchReader(Rows(options, schema), self._version)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        del schema
        return BatchWriter(self._options, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        options = self._options
        check_same_columns(schema, spark_schema(options.open().manifest, options))
        # Of a keyed table, a stream is that of its changes: a row that came is never taken back.
        return StreamReader(Rows(options, schema, all_rows=True))

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's
    ) -> DataSourceStreamArrowWriter:
        del schema
        # The output mode "complete": every batch is the whole result.
        return StreamWriter(self._options, overwrite=overwrite)


class BatchReader(DataSourceReader):
    """Reads one version."""

    def __init__(self, rows: Rows, version: int) -> None:
        self._rows, self._version = rows, version

    def partitions(self) -> Sequence[InputPartition]:
        table = self._rows.options.open(self._version)
        # A list: Spark looks at its length before anything else.
        return self._rows.splits(table, self._rows.span_of(table))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.batches(partition)


class BatchWriter(DataSourceArrowWriter):
    """Appends, or puts the rows in the place of all others, in one commit."""

    def __init__(self, options: SourceOptions, *, overwrite: bool) -> None:
        self._key = transaction_key(options)
        self._overwrite = overwrite
        self._job, table = start_job(options)
        self._is_known = committed_before(table, self._key) is not None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        # What is in the table already is not written once more.
        return self._job.write(() if self._is_known else iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self._is_known:
            self._job.commit(messages, self._key, overwrite=self._overwrite)


def _open_at(options: SourceOptions, version: int | None) -> Table:
    """The table at the version that options name, or at the newest one."""
    asked, moment = options.count("versionAsOf"), options.moment_ms("timestampAsOf")
    if asked is not None and moment is not None:
        raise InvalidInput("give versionAsOf or timestampAsOf, not both")
    if version is not None or asked is not None:
        return options.open(version if version is not None else asked)
    if moment is not None:
        return options.open_as_of(moment)
    return options.open()


def register_source(
    spark: SparkSession,
    *,
    storage_options: Mapping[str, Any] | None = None,
    name: str = "strandline",
) -> None:
    """Make `format("strandline")` known to a session, over Spark Connect too.

    `storage_options` travel to the workers inside the registered class: no plan, no event log and
    no message shows them. A later call replaces them. `name`: another format name, under which the
    data source can stand beside the native scan.
    """
    format_name = name

    class RegisteredSource(StrandlineSource):
        sealed = Sealed(storage_options)

        @classmethod
        def name(cls) -> str:
            return format_name

    try:
        spark.dataSource.register(RegisteredSource)
    except AnalysisException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        raise InvalidInput(
            f"the format name {name!r} is taken in this Java process: strandline.spark.enable gave "
            "'strandline' to the native scan, which reads, writes and streams. Nothing was "
            "changed. To use the Python data source beside it, register it under another name: "
            "register_source(spark, name='strandline_rows')."
        ) from None
