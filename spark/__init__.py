"""Spark: tables as DataFrames. Importing this does not import PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.spark.attach import attach, detach, refresh, sql
from strandline.spark.enable import enable
from strandline.spark.java import JavaMissing
from strandline.spark.jvm import JvmUnreachable
from strandline.spark.read import read
from strandline.spark.rewrites import compact, reindex
from strandline.spark.session import session
from strandline.spark.stream_tables import read_stream_table
from strandline.spark.user_tables import read_users
from strandline.spark.verify import verify
from strandline.spark.write import backfill, save

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = [
    "JavaMissing",
    "JvmUnreachable",
    "attach",
    "backfill",
    "compact",
    "detach",
    "enable",
    "read",
    "read_stream_table",
    "read_users",
    "refresh",
    "register_source",
    "reindex",
    "save",
    "session",
    "sql",
    "verify",
]


def register_source(
    spark: SparkSession,
    *,
    storage_options: Mapping[str, Any] | None = None,
    name: str = "strandline",
) -> None:
    """Make the Python data source known to a session; see `strandline.spark.source`."""
    from strandline.spark import source  # noqa: PLC0415 - needs PySpark, which is optional

    source.register_source(spark, storage_options=storage_options, name=name)
