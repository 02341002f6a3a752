"""`enable`: after it, a session knows `format("strandline")` and `USING strandline`."""

from __future__ import annotations

import importlib
import re
import threading
import traceback
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakKeyDictionary

import orjson

from strandline.api import open_table
from strandline.spark.jvm import has_class, load_classes, require_jvm
from strandline.spark.locations import missing_class, needed_class
from strandline.spark.request import (
    ReadRequest,
    from_options,
    is_for_tables,
    url_from_spark,
)
from strandline.spark.seen_columns import check_names_hold
from strandline.spark.sources import SOURCES
from strandline.spark.streams import STREAMS
from strandline.tableformat.errors import InvalidInput, StrandlineError, TableExists, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_LOCK: Final = threading.Lock()
_CONNECTED: Final[WeakKeyDictionary[Any, object]] = WeakKeyDictionary()
"""What answers the JVM behind a gateway. A process has one JVM, which outlives sessions."""

_OURS: Final = re.compile(
    r"^strandline\.[\w.]*?(\w+): (.+?)\s*(?:^ ?SQLSTATE: |^\s+at |^\s*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""An error of ours in a traceback that Spark brings from a worker."""


def enable(
    spark: SparkSession,
    *,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> SparkSession:
    """Make `format("strandline")`, `USING strandline` and SQL on tables run as Spark's own scans.

    `storage_options`: for reading metadata, by the URL they are for: `{"s3://bucket": {…}}`. They
    stay in this process: plans, logs and tasks never hold them. Calling it again is fine.
    """
    classes(spark)
    for url, options in (storage_options or {}).items():
        SOURCES.remember_options(url, options)
    return spark


def classes(spark: SparkSession) -> Any:
    """Our classes in the JVM, connected to this process."""
    from pyspark import java_gateway  # noqa: PLC0415 - an optional dependency

    start_callbacks: Any = java_gateway.ensure_callback_server_started
    jvm = require_jvm(spark)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the way to the JVM
    ours = load_classes(jvm)
    with _LOCK:
        if gateway not in _CONNECTED:
            start_callbacks(gateway)
            answers = _Answers(jvm)
            ours.Bridge.connect(answers)
            _CONNECTED[gateway] = answers
    ours.Tables.prepare(spark._jsparkSession)  # noqa: SLF001
    return ours


def frame_of(spark: SparkSession, info: Mapping[str, Any]) -> Any:
    """Java's DataFrame of a table that is open in this process."""
    session = spark._jsparkSession  # noqa: SLF001
    return classes(spark).Tables.frame(session, orjson.dumps(info).decode())


def check_reach(jvm: Any, url: str) -> None:
    """Refuse a store that the JVM has no class for."""
    needed = needed_class(url)
    if needed is not None and not has_class(jvm, needed):
        raise missing_class(jvm.org.apache.hadoop.util.VersionInfo.getVersion())


class _Answers:
    """What Java calls: a request as JSON, and an object that belongs to it."""

    class Java:
        implements: ClassVar = ["java.util.function.BiFunction"]

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def apply(self, request: str, payload: Any) -> bytearray:
        """A zero byte and the answer, or a one and what is wrong."""
        try:
            return bytearray(b"\0" + self._answer(orjson.loads(request), payload))
        except StrandlineError as error:
            text = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 - Java must hear of it, and shows it to the user
            text = _told_by_spark(error) or traceback.format_exc()
        return bytearray(b"\1" + text.encode())

    def _answer(self, request: dict[str, Any], payload: Any) -> bytes:
        match request["operation"]:
            case "plan":
                return SOURCES.plan(request["state"], request["part"], request["filters"])
            case "newest":
                return orjson.dumps(SOURCES.newest(request["state"], request["seen"]))
            case "open":
                return orjson.dumps(self._open(*from_options(request["options"])))
            case "save":
                _save(payload, request["mode"], request["options"], request["relation"])
                return b"{}"
            case "check_unused":
                _check_unused(request["name"], url_from_spark(request["path"]))
                return b"{}"
        return orjson.dumps(_about_stream(request))

    def _open(self, url: str, request: ReadRequest) -> dict[str, Any]:
        check_reach(self._jvm, url)
        return SOURCES.open(url, request)


def _told_by_spark(error: Exception) -> str | None:
    """What went wrong in a job of Spark, in our own words if a task of ours was what failed."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an optional dependency

    if not isinstance(error, PySparkException):
        return None
    text = str(error)
    ours = _OURS.search(text)
    return f"{ours[1]}: {ours[2]}" if ours else f"{type(error).__name__}: {text}"


def _about_stream(request: dict[str, Any]) -> Any:
    match request["operation"]:
        case "stream":
            return STREAMS.start(request["options"])
        case "stream_latest":
            return STREAMS.latest(request["stream"], request["start"])
        case "stream_prepare":
            return STREAMS.prepare(request["stream"])
        case "stream_batch":
            return STREAMS.batch(request["stream"], request["start"], request["end"])
        case "stream_stop":
            return STREAMS.stop(request["stream"])
    raise StrandlineError(f"Java asked for {request['operation']!r}, which nobody knows")


def _check_unused(name: str, url: str) -> None:
    """Refuse to make a table of Spark's catalog out of rows where a table of ours is."""
    try:
        open_table(url, storage_options=SOURCES.options_for(url))
    except TableNotFound:
        return
    raise TableExists(
        f"Spark's catalog does not know {name}, and there is a Strandline table at {url} already; "
        "Spark would replace all its rows. Nothing was written. Say CREATE TABLE "
        f"{name} USING strandline LOCATION '{url}' and then append, or use mode('overwrite')."
    )


def _save(
    frame: Any, mode: str, options: Mapping[str, str], relation: Mapping[str, Any] | None
) -> None:
    """Rows that `df.write` or INSERT hands over; those of INSERT have the names of a relation."""
    from pyspark.sql import DataFrame, SparkSession  # noqa: PLC0415 - optional

    try:
        save = importlib.import_module("strandline.spark.write").save
    except ModuleNotFoundError:
        raise StrandlineError(
            "writing to a table from Spark is not possible in this version; nothing was written. "
            "Append with strandline.open_table(url).append(df.toArrow())."
        ) from None
    running: Any = SparkSession._instantiatedSession  # noqa: SLF001 - the context is shared
    session = SparkSession(running.sparkContext, frame.sparkSession())
    path = next((value for name, value in options.items() if name.lower() == "path"), None)
    if path is None:
        raise InvalidInput("say where the table is: save(url), option path, or LOCATION 'url'")
    if "__partition_columns" in options:
        raise InvalidInput(
            "partitionBy means nothing to a Strandline table, whose files lie by time window and "
            "shard; nothing was written. Leave it out, or create the table with shard_by."
        )
    url = url_from_spark(path)
    if relation is not None:
        head = open_table(url, storage_options=SOURCES.options_for(url))
        check_names_hold(relation["seen"], relation["state"]["uuid"], head)
    given = {name: value for name, value in options.items() if is_for_tables(name)}
    save(
        DataFrame(frame, session),
        mode,
        {**given, "path": url},
        storage_options=SOURCES.options_for(url),
    )
