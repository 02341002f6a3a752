"""A stream table as a DataFrame: one task for each shard, with the answers of the Python reader."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import strandline.api
from strandline.catalog.runtime import Runtime
from strandline.spark.sources import SOURCES
from strandline.spark.types import spark_type
from strandline.streams.creation import open_stream
from strandline.streams.table import all_users_schema
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.urls import absolute_url

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ShardReader:
    """Reads shards inside a task; it carries what opens the store, and opens it there."""

    url: str
    """Not relative: workers run in a folder of their own."""
    storage_options: Mapping[str, Any] | None = field(repr=False)
    now_ms: int
    """One moment for all tasks: a row is alive in all of them or in none."""

    def __call__(self, splits: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runtime = Runtime(now_ms=lambda: self.now_ms)
        with open_stream(open_storage(self.url, self.storage_options), runtime=runtime) as table:
            for split in splits:
                for shard in split.column(0).to_pylist():
                    yield from table.to_batches(shard)


def read_stream_table(
    spark: SparkSession,
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The living rows of all users, with `_user` and `_ts`; what others have flushed by then.

    Each action reads the logs again. `storage_options`, by default those that `enable` was given,
    travel to the workers with the task.
    """
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - Spark's own habit

    place = absolute_url(url)
    options = SOURCES.options_for(place) if storage_options is None else storage_options
    with strandline.api.open_table(place, storage_options=options, kind="stream") as table:
        columns = table.manifest.schema.columns
        assert all_users_schema(table.schema).names[1:-1] == [c.name for c in columns]
        reader = ShardReader(place, options, Runtime().now_ms())
        shards = table.shards
    schema = T.StructType(
        [
            T.StructField("_user", T.StringType()),
            *(T.StructField(c.name, spark_type(c.type)) for c in columns),
            T.StructField("_ts", T.LongType()),
        ]
    )
    splits = spark.range(0, shards, 1, shards)
    with warnings.catch_warnings():
        # PySpark looks for pandas here and warns of new ones; Arrow batches need none.
        warnings.simplefilter("ignore", FutureWarning)
        return splits.mapInArrow(reader, schema)
