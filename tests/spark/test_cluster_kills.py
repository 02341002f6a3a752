"""Executors that die and tasks that run twice, on a real cluster; streams whose driver dies."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.spark.orphans import check_orphans
from tests.spark.source_tables import filled_table, new_table, numbers_of
from tests.spark.standalone import cluster, run_driver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two workers on what Spark takes for two hosts."""
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


_START = """
import os, signal, sys
from pathlib import Path
import strandline.spark
from pyspark import TaskContext
from strandline.spark import write
from tests.spark.source_tables import events_frame
master, url, mark = sys.argv[1:4]
config = {
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.speculation.interval": "50ms", "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.01", "spark.speculation.quantile": "0.4",
    "spark.speculation": sys.argv[4],
}
spark = strandline.spark.session(master=master, config=config)
"""

_KILLED = """
def kill_executor_once():
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), signal.SIGKILL)  # the JVM above the daemon of Python workers

class Task(write._Task):
    def __call__(self, batches):
        results = list(super().__call__(batches))  # the files are there
        if TaskContext.get().partitionId() == 1:
            kill_executor_once()
        yield from results

write._Task = Task
strandline.spark.save(events_frame(spark, 100), "append", {"path": url})
assert os.path.exists(mark)

os.unlink(mark)
def count(batches):
    for batch in batches:
        kill_executor_once()
        yield batch
frame = spark.read.format("strandline").load(url)
assert sorted(row.n for row in frame.mapInArrow(count, frame.schema).collect()) == list(range(100))
assert os.path.exists(mark)
spark.stop()
"""


def test_a_killed_executor(master: str, tmp_path: Path) -> None:
    """[C7] It dies with files written and not yet reported, then under a scan: rows come once."""
    table = new_table(tmp_path / "t")

    done = run_driver(
        _START + _KILLED, master, table.url, str(tmp_path / "mark"), "false", folder=tmp_path
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers_of(table) == list(range(100))
    assert table.tail().version == 2
    check_orphans(tmp_path / "t", table)


_TWICE = """
class Task(write._Task):
    def __call__(self, batches):
        results = list(super().__call__(batches))
        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            open(mark).close()  # waits until the second attempt opens it, too
        elif context.partitionId() == 1:
            open(mark, "w").close()
        yield from results

write._Task = Task
strandline.spark.save(events_frame(spark, 100), "append", {"path": url})
spark.stop()
"""


def test_a_task_that_runs_twice_at_once(master: str, tmp_path: Path) -> None:
    """[C7] Speculation: both attempts write all their files, and one of them counts."""
    table = new_table(tmp_path / "t")
    os.mkfifo(tmp_path / "mark")

    done = run_driver(
        _START + _TWICE, master, table.url, str(tmp_path / "mark"), "true", folder=tmp_path
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers_of(table) == list(range(100))
    assert table.tail().version == 2
    check_orphans(tmp_path / "t", table)


_STREAM = """
import os, signal, sys
import strandline.spark
from strandline.spark import source_write
source, sink, checkpoint, when = sys.argv[1:]
spark = strandline.spark.session()
commit = source_write.commit_files
def killed(*args, **options):
    if when == "after":
        commit(*args, **options)
    if when != "never":
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*args, **options)
source_write.commit_files = killed
rows = spark.readStream.format("strandline").option("maxFilesPerTrigger", 2).load(source)
query = rows.writeStream.format("strandline").option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start(sink).awaitTermination()
spark.stop()
"""


def test_a_stream_whose_driver_dies_at_every_commit(tmp_path: Path) -> None:
    """[C7] Killed before and behind the commit of each batch, and started again each time."""
    source, sink = filled_table(tmp_path / "a", commits=2), new_table(tmp_path / "b")
    seen = []
    for when in ("before", "after", "before", "after", "after", "never"):
        done = run_driver(
            _STREAM, source.url, sink.url, str(tmp_path / "cp"), when, folder=tmp_path
        )
        if when != "never" and done.returncode == 0:
            continue  # the stream had come to its end
        expected = 0 if when == "never" else -signal.SIGKILL
        assert done.returncode == expected, done.stderr[-3000:]
        seen.append(sink.tail().version)
    assert seen[:4] == [1, 2, 2, 3]
    assert sorted(numbers_of(sink)) == list(range(60))
