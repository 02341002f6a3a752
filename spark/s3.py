"""S3 for Spark's own scan: hadoop-aws of the right version, and credentials where plans are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.spark.locations import S3A_CLASS
from strandline.spark.sources import SOURCES
from strandline.tableformat.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_KEYS: Final = {
    "key": "fs.s3a.access.key",
    "secret": "fs.s3a.secret.key",
    "token": "fs.s3a.session.token",
    "endpoint_url": "fs.s3a.endpoint",
    "region_name": "fs.s3a.endpoint.region",
}


def s3_package() -> str:
    """The Maven name of hadoop-aws that fits the Hadoop of the installed PySpark."""
    import pyspark  # noqa: PLC0415 - an optional dependency

    assert pyspark.__file__ is not None
    jars = Path(pyspark.__file__).parent / "jars"
    for jar in jars.glob("hadoop-client-api-*.jar"):
        version = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
        if version is not None:
            return f"org.apache.hadoop:hadoop-aws:{version[1]}"
    raise StrandlineError(
        f"PySpark at {jars.parent} ships no hadoop-client-api jar, so its Hadoop version is not "
        "known; set spark.jars.packages=org.apache.hadoop:hadoop-aws:<version> yourself"
    )


def use_s3(spark: SparkSession, storage_options: Mapping[str, Any] | None) -> None:
    """Give Spark the credentials that Python has, through the Hadoop configuration alone."""
    conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - no other way
    for scheme in ("s3", "s3a"):
        conf.set(f"fs.{scheme}.impl", S3A_CLASS)
    for name, value in hadoop_settings(storage_options or {}).items():
        conf.set(name, value)
    SOURCES.remember_options("s3:/", storage_options)


def hadoop_settings(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """What s3fs calls key, secret, token, endpoint and region, as S3A spells it."""
    client = {**storage_options, **(storage_options.get("client_kwargs") or {})}
    found = {s3a: str(client[ours]) for ours, s3a in _KEYS.items() if client.get(ours)}
    if "fs.s3a.endpoint" in found:
        # A server of one's own has no name per bucket.
        found["fs.s3a.path.style.access"] = "true"
        secure = not found["fs.s3a.endpoint"].startswith("http://")
        found["fs.s3a.connection.ssl.enabled"] = str(secure).lower()
    return found
