"""Credentials of the data source, and a table in a store that the JVM cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
from strandline.spark import register_source, save, verify
from tests.spark.source_tables import COLUMNS, event, events_frame, filled_table, load
from tests.spark.standalone import run_driver

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import S3Bucket

pytestmark = pytest.mark.spark


@pytest.mark.s3
def test_s3_without_a_jar_and_without_a_trace(
    spark: SparkSession, s3_bucket: S3Bucket, capfd: pytest.CaptureFixture[str]
) -> None:
    """[C10] Workers open S3 with credentials that no plan, no message and no output shows."""
    options = {**s3_bucket.storage_options, "secret": "canary-secret-4711"}
    table = strandline.create_table(
        s3_bucket.url, COLUMNS, time_column="ts", ttl="7d", storage_options=options
    )
    table.append([event(0)])
    register_source(spark, storage_options=options)
    frame = load(spark, s3_bucket.url)

    save(
        events_frame(spark, 3, first=1), "append", {"path": s3_bucket.url}, storage_options=options
    )
    events_frame(spark, 2, first=4).write.format("strandline").mode("append").save(s3_bucket.url)
    frame.explain("extended")

    assert frame.count() == 1
    assert sorted(row.n for row in load(spark, s3_bucket.url).collect()) == list(range(6))
    shown = "".join(capfd.readouterr()) + repr(frame)
    assert "canary-secret-4711" not in shown
    register_source(spark)


_LOGGED = """
import sys
import strandline.spark
from tests.spark.source_tables import events_frame, load
events, url = sys.argv[1:]
spark = strandline.spark.session(native=False, config={
    "spark.eventLog.enabled": "true", "spark.eventLog.dir": events,
    "spark.eventLog.compress": "false",
})
secret = {"auto_mkdir": "canary-secret-4712"}
strandline.spark.register_source(spark, storage_options=secret)
strandline.spark.save(events_frame(spark, 3), "append", {"path": url}, storage_options=secret)
events_frame(spark, 3).write.format("strandline").mode("append").save(url)
assert load(spark, url).count() == 6
spark.stop()
"""

_LOGGED_NATIVE = _LOGGED.replace(
    "strandline.spark.register_source(spark, storage_options=secret)",
    """
strandline.spark.enable(spark, storage_options={url: secret})
""",
).replace(
    "spark.stop()",
    """
spark.sql(f"CREATE TABLE ev USING strandline LOCATION '{url}'")
spark.sql("INSERT INTO ev SELECT * FROM ev WHERE n = 1")
rows = spark.readStream.format("strandline").load(url).writeStream.format("noop")
rows.trigger(availableNow=True).start().awaitTermination()
spark.sql("SELECT * FROM ev").explain("extended")
assert spark.table("ev").count() == 8
spark.stop()
""",
)


@pytest.mark.proof
@pytest.mark.parametrize("script", [_LOGGED, _LOGGED_NATIVE], ids=["source", "native"])
def test_event_logs_hold_no_secret(tmp_path: Path, script: str) -> None:
    """[C10] What Spark writes down of a job does not hold what travels with its tasks."""
    table = filled_table(tmp_path / "t", commits=0)
    (tmp_path / "events").mkdir()
    done = run_driver(script, str(tmp_path / "events"), table.url, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    logs = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    text = "".join(path.read_text(errors="replace") for path in logs)
    assert "SparkListenerJobEnd" in text
    assert "canary-secret-4712" not in text + done.stdout + done.stderr


def test_verify_on_the_cluster(spark: SparkSession, tmp_path: Path) -> None:
    """[X4] Tasks find the damage that a scan would meet."""
    table = filled_table(tmp_path / "t")
    assert verify(spark, table.url, deep=True).to_json() == table.verify(deep=True).to_json()
    damaged = next((tmp_path / "t").rglob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])

    report = verify(spark, table.url)

    assert [problem.path for problem in report.problems] == [
        str(damaged.relative_to(tmp_path / "t"))
    ]
