"""Drivers of their own: killed in the middle of a write, and one behind Spark Connect."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.spark.orphans import check_orphans
from tests.spark.source_tables import new_table, numbers_of
from tests.spark.standalone import run_driver

pytestmark = [pytest.mark.spark, pytest.mark.proof]

_DRIVER = """
import os, signal, sys
import strandline.spark
from strandline.spark import source_write
from tests.spark.orphans import check_orphans
from tests.spark.source_tables import events_frame
url, when = sys.argv[1:]
spark = strandline.spark.session()
commit = source_write.commit_files
def killed(*args, **options):
    if when == "after":
        commit(*args, **options)
    if when != "never":
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*args, **options)
source_write.commit_files = killed
keys = {"path": url, "txnAppId": "job", "txnVersion": "1"}
strandline.spark.save(events_frame(spark, 100), "append", keys)
spark.stop()
"""


def run(script: str, *arguments: str) -> int:
    """The exit code of a driver of its own."""
    return run_driver(script, *arguments, folder=Path(arguments[0]).parent).returncode


@pytest.mark.parametrize(("when", "version"), [("before", 1), ("after", 2)])
def test_a_killed_driver(tmp_path: Path, when: str, version: int) -> None:
    """[C7] [M1] Killed between the files and the commit, or behind it: the next run makes it whole.

    Files that were never committed are listed nowhere, and vacuum removes them.
    """
    table = new_table(tmp_path / "t")

    assert run(_DRIVER, table.url, when) == -signal.SIGKILL
    assert table.tail().version == version
    assert run(_DRIVER, table.url, "never") == 0

    assert numbers_of(table) == list(range(100))
    assert table.tail().version == 2
    if when == "before":
        check_orphans(tmp_path / "t", table)
        assert numbers_of(table) == list(range(100))


_CONNECT = """
import sys
from pyspark.sql import SparkSession
from strandline.spark import register_source
from tests.spark.orphans import check_orphans
from tests.spark.source_tables import events_frame, load
spark = SparkSession.builder.remote("local[2]").getOrCreate()
register_source(spark)
events_frame(spark, 5).write.format("strandline").mode("append").save(sys.argv[1])
assert sorted(row.n for row in load(spark, sys.argv[1], columns="n").collect()) == [0, 1, 2, 3, 4]
spark.stop()
"""


def test_spark_connect(tmp_path: Path) -> None:
    """[C11] Reading and writing needs no JVM in the client's reach."""
    pytest.importorskip("grpc_status")
    table = new_table(tmp_path / "t")
    assert run(_CONNECT, table.url) == 0
    assert numbers_of(table) == [0, 1, 2, 3, 4]
