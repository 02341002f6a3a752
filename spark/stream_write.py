"""A table as the sink of a streaming query: every batch once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from strandline.spark.source_write import start_job, stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

    from strandline.spark.source_options import SourceOptions
    from strandline.spark.source_write import TaskResult


class StreamWriter(DataSourceStreamArrowWriter):
    """Commits a micro-batch under (query id, batch id).

    A query that died between the commit and its own checkpoint runs the batch again under the same
    numbers, and the table answers that it has it.
    """

    def __init__(self, options: SourceOptions, *, overwrite: bool) -> None:
        self._job, _ = start_job(options)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return self._job.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        # Spark gives the query's id to tasks and not to the sink, so the tasks bring it along.
        key = stream_key(messages, batchId)
        self._job.commit(messages, key, overwrite=self._overwrite)
