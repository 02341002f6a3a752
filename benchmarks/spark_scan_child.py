"""One Spark and one or two roads to the same rows, for `spark_scan.py`: prints JSON.

`python spark_scan_child.py ROAD FOLDER ROWS USER REPEATS`: seconds, CPU seconds of tasks, tasks,
files, bytes.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

START_MS = 1_700_000_000_000
PEERS = {
    "delta": (
        "io.delta:delta-spark_2.13:4.0.0",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",  # its own default is for clusters
        },
    ),
    "iceberg": (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
        {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
        },
    ),
}
ITS_FILES = "its files as Parquet"
FILES_METRICS = ("number of files read", "number of result data files")


def queries(rows: int, user: str) -> dict[str, str]:
    """What is asked, in SQL."""
    first, span = START_MS + rows // 2, rows // 100
    return {
        "full scan": "SELECT sum(v), sum(length(user)), sum(length(page)), "  # noqa: S608 - a number
        f"sum(tm - {START_MS}) FROM t",
        "aggregate": "SELECT page, count(*), avg(v) FROM t GROUP BY page",
        "1% of time": f"SELECT sum(v) FROM t WHERE tm >= {first} AND tm < {first + span}",  # noqa: S608 - numbers
        "one user": f"SELECT count(*), sum(v) FROM t WHERE user = '{user}'",  # noqa: S608 - ours
    }


def session(road: str, folder: Path) -> Any:
    """A Spark that knows one format."""
    if road == "strandline":
        import strandline.spark

        return strandline.spark.session("spark_scan", memory="2g")
    from pyspark.sql import SparkSession

    package, settings = PEERS[road]
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", package)
    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
    }
    for key, value in {**fixed, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def roads(spark: Any, road: str, folder: Path) -> dict[str, Any]:
    """The same rows as DataFrames; a peer's table is made first, a commit for each file."""
    sources = sorted(str(path) for path in (folder / "source").glob("*.parquet"))
    if road == "strandline":
        import strandline
        import strandline.spark

        table = strandline.open_table(folder / "strandline")
        files = [f"{table.url}/{path}" for path in table.files().column("path").to_pylist()]
        return {
            "strandline": strandline.spark.read(spark, table.url),
            ITS_FILES: spark.read.parquet(*files),
            "plain Parquet": spark.read.parquet(*sources),
        }
    done = folder / f"filled-{road}"
    for number, source in enumerate([] if done.exists() else sources):
        rows = spark.read.parquet(source).coalesce(1)
        if road == "delta":
            rows.write.format("delta").mode("append").save(str(folder / "delta"))
        elif number == 0:
            rows.writeTo("lake.db.t").using("iceberg").create()
        else:
            rows.writeTo("lake.db.t").append()
    done.touch()
    if road == "delta":
        return {"delta": spark.read.format("delta").load(str(folder / "delta"))}
    return {"iceberg": spark.table("lake.db.t")}


def measured(spark: Any, text: str, name: str) -> dict[str, Any]:
    """One run of a query: its time, and what Spark says that it did."""
    spark.sparkContext.setJobGroup(name, name)
    begun = time.perf_counter()
    answer = sorted(map(str, spark.sql(text).collect()))
    seconds = time.perf_counter() - begun
    context = spark._jsc.sc()  # noqa: SLF001 - figures that PySpark does not show
    context.listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(name)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    data = [context.statusStore().lastStageAttempt(stage) for stage in stages]
    return {
        "answer": answer,
        "seconds": seconds,
        "tasks": sum(stage.numCompleteTasks() for stage in data),
        "bytes": sum(stage.inputBytes() for stage in data),
        "cpu": sum(stage.executorCpuTime() for stage in data) / 1e9,
        "files": _files(spark),
    }


def _files(spark: Any) -> int:
    """How many files the scans of the newest query were given."""
    store = spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001
    newest = store.executionsList().last().executionId()
    values = store.executionMetrics(newest)
    nodes = store.planGraph(newest).allNodes()
    found = 0
    for place in range(nodes.size()):
        metrics = nodes.apply(place).metrics()
        for number in range(metrics.size()):
            metric = metrics.apply(number)
            value = values.get(metric.accumulatorId())
            if metric.name() in FILES_METRICS and value.isDefined():
                found += int(value.get().replace(",", ""))
    return found


def main(road: str, folder: Path, rows: int, user: str, repeats: int) -> None:
    """Every query, every road in turn."""
    spark = session(road, folder)
    frames = roads(spark, road, folder)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for turn in range(repeats + 2 if repeats else 0):
        counts_bytes = turn > repeats
        if counts_bytes:
            # Hadoop does not count what is read from a local disk in parallel.
            spark.conf.set("parquet.hadoop.vectored.io.enabled", "false")
        for name, text in queries(rows, user).items():
            for title, frame in frames.items():
                frame.createOrReplaceTempView("t")
                run = measured(spark, text, f"{turn} {name} {title}")
                if counts_bytes:
                    found[name][title][-1]["bytes"] = run["bytes"]
                elif turn:  # the first one warms up
                    found.setdefault(name, {}).setdefault(title, []).append(run)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
