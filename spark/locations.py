"""Where a table lies, in the JVM's words."""

from __future__ import annotations

from typing import Any, Final

from strandline.tableformat.errors import UnsupportedStore
from strandline.tableformat.stores.urls import absolute_url, parse_url

S3A_CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def root_of(url: str) -> dict[str, Any]:
    """The parts of the Hadoop path of a table."""
    place = parse_url(url)
    if place.backend == "local":
        return {"scheme": "file", "authority": None, "path": absolute_url(url)}
    if place.backend == "s3":
        path = f"/{place.path}".rstrip("/")
        return {"scheme": "s3a", "authority": place.bucket, "path": path}
    raise UnsupportedStore(
        f"Spark's own scan cannot read {place.scheme}:// tables; read the table with "
        "strandline.open_table"
    )


def needed_class(url: str) -> str | None:
    """The Java class without which Spark cannot open the table's files; None: it comes with it."""
    return S3A_CLASS if root_of(url)["scheme"] == "s3a" else None


def missing_class(hadoop_version: str) -> UnsupportedStore:
    """What to do when the JVM cannot read S3."""
    return UnsupportedStore(
        "this Spark session cannot read S3: hadoop-aws is not on its class path. Start it with "
        f"strandline.spark.session(s3=True), or with spark.jars.packages="
        f"org.apache.hadoop:hadoop-aws:{hadoop_version}; or read the table with "
        "strandline.open_table, which needs no jar."
    )
