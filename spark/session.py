"""A small local Spark, for trying things out and for tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.spark.enable import enable
from strandline.spark.java import require_java
from strandline.spark.s3 import s3_package, use_s3
from strandline.tableformat.errors import InvalidInput, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Everything stays on this machine, whatever its host name resolves to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def session(
    app_name: str = "strandline",
    *,
    master: str = "local[2]",
    memory: str = "1g",
    config: Mapping[str, str] | None = None,
    s3: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    native: bool = True,
) -> SparkSession:
    """The running session, or a new one on this machine: two threads, no web page, UTC.

    It knows `format("strandline")`. `s3=True` adds hadoop-aws of the version that fits, from
    Maven, and takes `storage_options` (`key`, `secret`, `token`, `endpoint_url`, region) for all
    of `s3://`; they go into the Hadoop configuration, never into plans. `native=False` leaves
    out `enable`, for `register_source`.
    Needs the extra `spark` and Java 17; an error says so where one is missing.
    """
    if storage_options is not None and not s3:
        raise InvalidInput(
            "session() takes storage_options for s3=True alone; no session was made. Say s3=True, "
            "or hand them to strandline.spark.enable(spark, storage_options={url: {…}})."
        )
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise StrandlineError(
            "PySpark is not installed: pip install 'strandline[spark]' adds it"
        ) from None
    running = SparkSession.getActiveSession()
    if running is not None:
        return _ready(running, storage_options, s3=s3, native=native)
    require_java()
    # Python code of tasks runs in this Python, which has this package, and not in the system's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name).master(master)
    logging = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {
        **_SETTINGS,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging}",
        **({"spark.jars.packages": s3_package()} if s3 else {}),
        **(config or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return _ready(builder.getOrCreate(), storage_options, s3=s3, native=native)


def _ready(
    spark: SparkSession, storage_options: Mapping[str, Any] | None, *, s3: bool, native: bool
) -> SparkSession:
    if native:
        enable(spark)
    if s3:
        use_s3(spark, storage_options)
    return spark
