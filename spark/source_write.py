"""Writing from Spark: tasks write files under names of their own, the driver commits them once."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from strandline.catalog.runtime import REAL
from strandline.place import TablePlace
from strandline.tableformat.actions import MAX_WRITER_ID_BYTES, ExternalKey, settle_key
from strandline.tableformat.errors import CommitConflict, InvalidInput
from strandline.tableformat.manifest import check_writable
from strandline.tableformat.replacing import RemoveAll
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.foreign_files import WrittenFiles, commit_files, write_files
from strandline.writers.results import earlier_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.spark.source_options import SourceOptions
    from strandline.table import Table
    from strandline.writers.results import Commit

CHUNK_ROWS: Final = 1_048_576
CHUNK_BYTES: Final = 128 * 2**20
"""What a task holds in memory before it writes a file."""
QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class TaskResult(WriterCommitMessage):
    """What one task has written."""

    partition: int
    query_id: str | None
    written: tuple[WrittenFiles, ...]


@dataclass(frozen=True)
class WriteJob:
    """One write, as driver and tasks share it."""

    options: SourceOptions
    table_uuid: str

    # --- on a worker ---

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Write the rows of one attempt of one task."""
        context = TaskContext.get()
        assert context is not None, "only tasks write"
        table = self.options.open()
        if table.uuid != self.table_uuid:
            raise CommitConflict(
                f"{table.url} was replaced by another table while the job ran. Nothing was "
                "committed. Run the job again."
            )
        storage = table.manifest_service.storage
        written: list[WrittenFiles] = []
        tail_ts = None
        for rows in _chunks(batches):
            files = write_files(storage, REAL, table.manifest, rows, tail_ts)
            tail_ts = files.last_ts if files.rows else tail_ts
            written.append(files)
        query_id = context.getLocalProperty(QUERY_ID)
        return TaskResult(context.partitionId(), query_id, tuple(written))

    # --- on the driver ---

    def commit(
        self, results: Sequence[Any], key: ExternalKey | None, *, overwrite: bool = False
    ) -> Commit:
        """Put the files of all tasks into one commit, in the order of their partitions."""
        if any(result is None for result in results):
            raise CommitConflict(
                "a task did not say what it wrote. Nothing was committed. Run the job again."
            )
        table = self.options.open()
        if table.uuid != self.table_uuid:
            raise CommitConflict(
                f"{table.url} was replaced by another table while the job ran. Nothing was "
                "committed. Run the job again."
            )
        ordered = sorted(results, key=lambda result: result.partition)
        files = [part for result in ordered for part in result.written]
        return commit_files(
            TablePlace(table),
            files,
            operation="overwrite" if overwrite else "append",
            key=key,
            before=(RemoveAll(),) if overwrite else (),
        )


def start_job(options: SourceOptions) -> tuple[WriteJob, Table]:
    """A job that writes to the table as it is now; refuses a store that cannot commit."""
    table = options.open()
    check_writable(table.manifest)
    probe_once_per_process(table.manifest_service.storage)
    return WriteJob(options, table.uuid), table


def transaction_key(options: SourceOptions) -> ExternalKey | None:
    """What makes a write that is repeated safe."""
    app, version = options.text("txnAppId"), options.count("txnVersion")
    if (app is None) != (version is None):
        raise InvalidInput("txnAppId and txnVersion go together: give both, or neither")
    if app is None or version is None:
        return None
    if not 1 <= len(app.encode()) <= MAX_WRITER_ID_BYTES:
        raise InvalidInput(f"txnAppId must have 1 to {MAX_WRITER_ID_BYTES} bytes")
    return ExternalKey(app, version)


def stream_key(results: Sequence[Any], batch: int) -> ExternalKey | None:
    """(query id, batch id): known only to tasks, and the same for all of them."""
    found = {result.query_id for result in results if result is not None}
    if not found:
        return None
    if len(found) != 1 or None in found:
        raise CommitConflict(
            "the tasks of a streaming batch do not know the query they belong to. Nothing was "
            "committed. Start the query again."
        )
    return ExternalKey(f"spark-query:{found.pop()}", batch)


def committed_before(table: Table, key: ExternalKey | None) -> Commit | None:
    """What this batch was given earlier, as far as the head itself remembers."""
    if key is None:
        return None
    known = settle_key(key, table.manifest.positions, {})
    return None if known is None else earlier_result(key, known)


def packed(result: TaskResult) -> bytes:
    """A task's result as bytes, for roads that carry rows only."""
    return pickle.dumps(result)


def unpacked(data: bytes) -> TaskResult:
    """The result of a task of our own."""
    result = pickle.loads(data)  # noqa: S301 - from our own tasks, over Spark's own channel
    assert isinstance(result, TaskResult)
    return result


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in pieces that make files of a good size and fit into memory."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (rows + batch.num_rows > CHUNK_ROWS or size + batch.nbytes > CHUNK_BYTES):
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield pa.Table.from_batches(held)
