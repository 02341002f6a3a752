"""A table as a Spark DataFrame: our plan, Spark's own Parquet scan."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from strandline.spark.enable import check_reach, frame_of
from strandline.spark.jvm import require_jvm
from strandline.spark.request import ReadRequest
from strandline.spark.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    url: str | os.PathLike[str],
    version: int | None = None,
    as_of: datetime | str | int | None = None,
    *,
    columns: Sequence[str] | None = None,
    hidden_columns: bool = False,
    start_seq: int | None = None,
    end_seq: int | None = None,
    start_ts: int | None = None,
    end_ts: int | None = None,
    all_rows: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows of a table, pinned to the version that is newest now, or to the one asked for.

    `columns` may name hidden ones (`_seq`, `_ts`, `_window`); `hidden_columns=True` puts them
    behind all others. A column that a query does not use costs nothing. `start_seq`, `start_ts`
    and `end_ts` (milliseconds) are inclusive, `end_seq` is exclusive.

    Of a table with a primary key, the newest row of each key; with `all_rows`, those that they
    have replaced, too.

    Filters of the query choose the files. Spark opens these itself, so it must be able to reach
    them: local paths always, `s3://` where the session has hadoop-aws. `storage_options` are for
    reading the table's metadata, and stay in this process.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415 - an optional dependency

    text = os.fspath(url)
    request = ReadRequest(
        version=version,
        as_of=as_of,
        columns=columns,
        hidden_columns=hidden_columns,
        start_seq=start_seq,
        end_seq=end_seq,
        start_ts=start_ts,
        end_ts=end_ts,
        all_rows=all_rows,
    )
    check_reach(require_jvm(spark), text)
    SOURCES.remember_options(text, storage_options)
    return DataFrame(frame_of(spark, SOURCES.open(text, request)), spark)
