"""A table as a Spark DataFrame: our plan, Spark's own Parquet scan.

Spark reads exactly the files that the plan lists, by their physical column names, and current
names go on top. So renamed, added and dropped columns come out right whatever is pushed down.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import strandline.api
from strandline.maintenance.verify import check_segment
from strandline.spark.types import spark_type
from strandline.tableformat.errors import UnsupportedStore
from strandline.tableformat.segments import DENSE, STORED
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stores.urls import parse_url

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry

_OPTIONS: Final = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    # Folders above the table may look like partitions (`day=1/`); they mean nothing here.
    "recursiveFileLookup": "true",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}


def read(
    spark: SparkSession,
    url: str | os.PathLike[str],
    version: int | None = None,
    as_of: datetime | str | int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows of a table, pinned to the version that is newest now, or to the one asked for.

    Spark opens the files itself, so it must be able to reach them: local paths always, `s3://`
    where the session has hadoop-aws and credentials of its own. `storage_options` are for reading
    the table's metadata.
    """
    root = _root(spark, url)
    storage = open_storage(url, storage_options)
    head = strandline.api.open_in(storage)
    table = (
        head
        if version is None and as_of is None
        else strandline.api.open_in(storage, version, as_of)
    )
    segments = table.scan().plan().segments
    for entry in segments:
        check_segment(storage, entry)
    manifest = table.manifest
    # What has expired stays hidden, also when an older version is read.
    floor_ts = max(manifest.floor_ts, head.manifest.floor_ts)
    trim_seq = max(manifest.trim_seq, head.manifest.trim_seq)
    whole: list[SegmentEntry] = []
    cut: list[SegmentEntry] = []
    for entry in segments:
        visible = entry.min_seq >= trim_seq and entry.min_ts >= floor_ts
        (whole if visible else cut).append(entry)
    reader = _Reader(spark, root, manifest)
    parts = [reader.files(whole)] if whole or not cut else []
    parts += [reader.cut_file(entry, floor_ts=floor_ts, trim_seq=trim_seq) for entry in cut]
    return reduce(lambda left, right: left.unionAll(right), parts)


class _Reader:
    def __init__(self, spark: SparkSession, root: str, manifest: Manifest) -> None:
        self._spark, self._root, self._manifest = spark, root, manifest

    def files(self, entries: Sequence[SegmentEntry]) -> DataFrame:
        """All rows of these files."""
        return self._current_names(self._scan(entries))

    def cut_file(self, entry: SegmentEntry, *, floor_ts: int, trim_seq: int) -> DataFrame:
        """The rows of one file that are still visible."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit

        rows = self._scan([entry], hidden=True)
        if entry.rows_are == DENSE:
            seq = F.col("_metadata.row_index") + entry.min_seq
        elif entry.rows_are == STORED:
            seq = F.col("_seq")
        else:
            seq = F.col("_off") + F.lit(entry.seq_base)
        visible = (seq >= trim_seq) & self._is_at_or_after(entry, floor_ts)
        return self._current_names(rows.where(visible))

    def _scan(self, entries: Sequence[SegmentEntry], *, hidden: bool = False) -> DataFrame:
        from pyspark.sql import types as T  # noqa: N812, PLC0415 - Spark's own habit

        fields = [
            T.StructField(column.physical_name, spark_type(column.type))
            for column in self._manifest.schema.columns
        ]
        if hidden:
            fields += [
                T.StructField("_off", T.IntegerType()),
                T.StructField("_seq", T.LongType()),
                T.StructField("_ts", T.LongType()),
            ]
        schema = T.StructType(fields)
        if not entries:
            from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit

            nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in fields]
            return self._spark.range(0).select(*nothing)
        paths = [f"{self._root}/{entry.path}" for entry in entries]
        return self._spark.read.schema(schema).options(**_OPTIONS).parquet(*paths)

    def _current_names(self, rows: DataFrame) -> DataFrame:
        columns = self._manifest.schema.columns
        return rows.select(*(rows[c.physical_name].alias(c.name) for c in columns))

    def _is_at_or_after(self, entry: SegmentEntry, floor_ts: int) -> SparkColumn:
        """Whether a row's `_ts` is at least `floor_ts`: its time column decides, or a stored `_ts`.

        Times are compared as what they are: a conversion of times without a zone would go through
        the session's zone, where some hours do not exist.
        """
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's own habit

        if entry.ts_stored or self._manifest.config.time_column is None:
            return F.col("_ts") >= floor_ts
        column = self._manifest.schema.by_id[self._manifest.config.time_column]
        value = F.col(column.physical_name)
        if column.type.name == "timestamptz":
            return value >= F.timestamp_millis(F.lit(floor_ts))
        if column.type.name == "timestamp":
            wall = datetime(1970, 1, 1) + timedelta(milliseconds=floor_ts)  # noqa: DTZ001 - no zone
            return value >= F.expr(f"TIMESTAMP_NTZ '{wall.isoformat(sep=' ')}'")
        return value >= floor_ts


def _root(spark: SparkSession, url: str | os.PathLike[str]) -> str:
    place = parse_url(url)
    if place.backend == "local":
        # Spark takes a path for a pattern; a backslash makes its special characters plain ones.
        return "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", open_storage(url).url)
    if place.backend == "s3":
        if not _has_class(spark, "org.apache.hadoop.fs.s3a.S3AFileSystem"):
            raise UnsupportedStore(
                "this Spark session cannot read S3: hadoop-aws is not on its class path. Start it "
                "with spark.jars.packages=org.apache.hadoop:hadoop-aws:<Hadoop version of your "
                "PySpark> and fs.s3a credentials, or read the table with strandline.open_table."
            )
        return f"s3a://{place.bucket}/{place.path}".rstrip("/")
    raise UnsupportedStore(
        f"Spark cannot read {place.scheme}:// tables yet; read the table with strandline.open_table"
    )


def _has_class(spark: SparkSession, name: str) -> bool:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark

    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to ask
    try:
        jvm.java.lang.Class.forName(name, False, jvm.Thread.currentThread().getContextClassLoader())  # noqa: FBT003 - Java takes no names
    except Py4JJavaError:
        return False
    return True
