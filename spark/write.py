"""Batch writes in every save mode, from any DataFrame, as one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.api import create_table
from strandline.spark.source_options import Sealed, read_options
from strandline.spark.sources import SOURCES
from strandline.tableformat.errors import InvalidInput, TableExists
from strandline.writers.ingest import check_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from strandline.spark.source_options import SourceOptions
    from strandline.spark.source_write import WriteJob
    from strandline.writers.results import Commit

_MODES: Final = {
    "append": "append",
    "overwrite": "overwrite",
    "error": "error",
    "errorifexists": "error",
    "default": "error",
    "ignore": "ignore",
}


def save(
    df: DataFrame,
    mode: str = "errorifexists",
    options: Mapping[str, str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit | None:
    """Write a DataFrame to the table at the option `path`; None where `ignore` found a table.

    A table that does not exist is created with the DataFrame's columns; the options `timeColumn`
    and `ttl` say how. With `txnAppId` and a growing `txnVersion`, writing again is safe. Rows are
    numbered in the order of the DataFrame's partitions. `storage_options` go to the workers and
    into no plan.
    """
    from strandline.spark import source_write  # noqa: PLC0415 - needs PySpark, which is optional
    from strandline.spark.arrow_schema import arrow_schema  # noqa: PLC0415 - as above

    chosen = _MODES.get(mode.lower())
    if chosen is None:
        raise InvalidInput(f"save mode {mode!r} is not known; use one of {', '.join(_MODES)}")
    settings = settings_for(options or {}, storage_options)
    key = source_write.transaction_key(settings)
    if settings.exists():
        if chosen == "error":
            raise TableExists(
                f"there is a Strandline table at {settings.url} already; nothing was changed. Use "
                "mode('append'), or choose another place."
            )
        if chosen == "ignore":
            return None
    else:
        _create(df, settings)
    job, table = source_write.start_job(settings)
    known = source_write.committed_before(table, key)
    if known is not None:
        return known
    check_columns(arrow_schema(df.schema), table.manifest.schema)
    if table.config.order == "clamp":
        # Times must not go back, so one task has to see all rows in their order.
        df = df.coalesce(1)
    found = df.mapInArrow(_Task(job), "result binary").collect()
    results = [source_write.unpacked(bytes(row[0])) for row in found]
    return job.commit(results, key, overwrite=chosen == "overwrite")


def backfill(
    df: DataFrame,
    url: str,
    *,
    order_by: str | None = None,
    tasks: int | None = None,
    options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Commit | None:
    """Append a large DataFrame in one commit, ordered by time: few windows per task, few files.

    `order_by`: the column to order by; by default the table's time column. `tasks`: how many tasks
    write, by default as many as Spark shuffles into.
    """
    settings = {**(options or {}), "path": url}
    table = settings_for(settings, storage_options).open()
    time_column = table.config.time_column
    name = order_by or (
        None if time_column is None else table.manifest.schema.by_id[time_column].name
    )
    if name is not None:
        spread = (
            df.repartitionByRange(name) if tasks is None else df.repartitionByRange(tasks, name)
        )
        df = spread.sortWithinPartitions(name)
    elif tasks is not None:
        df = df.repartition(tasks)
    return save(df, "append", settings, storage_options=storage_options)


def settings_for(
    options: Mapping[str, str], storage_options: Mapping[str, Any] | None
) -> SourceOptions:
    """The options with credentials: those given here, or those that `enable` was given."""
    if storage_options is None and options.get("path"):
        storage_options = SOURCES.options_for(options["path"])
    return read_options(options, Sealed(storage_options))


class _Task:
    """What runs on a worker: batches in, one row with the task's result out."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - on the worker

        from strandline.spark.source_write import packed  # noqa: PLC0415

        yield pa.RecordBatch.from_pydict({"result": [packed(self._job.write(batches))]})


def _create(df: DataFrame, settings: SourceOptions) -> None:
    from strandline.spark.arrow_schema import arrow_schema  # noqa: PLC0415 - needs PySpark

    create_table(
        settings.url,
        arrow_schema(df.schema),
        time_column=settings.text("timeColumn"),
        ttl=settings.text("ttl"),
        storage_options=settings.storage_options(),
        exist_ok=True,
    )
