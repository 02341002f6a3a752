"""A Spark cluster of its own on this machine, with workers that take each other for other hosts.

Spark repeats a slow task only on another host, which `local-cluster` does not have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
assert pyspark.__file__ is not None
SPARK_HOME = Path(pyspark.__file__).parent


def environment() -> dict[str, str]:
    """For processes that use this Python, this PySpark and the tests' own modules."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run_driver(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A driver of its own, which may be killed."""
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a master with some workers of one core each."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        master, said = _start(
            "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", at=folder
        )
        running.append(master)
        url = _said(said, r"Starting Spark master at (spark://\S+)")
        for number in range(1, workers + 1):
            place = folder / f"worker-{number}"
            options = ["--host", f"127.0.0.{number}", "--cores", "1", "--memory", "1g"]
            options += ["--webui-port", "0", "--work-dir", str(place)]
            worker, said = _start("worker.Worker", *options, url, at=folder)
            running.append(worker)
            _said(said, "Successfully registered with master")
        yield url
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)
            assert process.stderr is not None
            process.stderr.close()


def _start(role: str, *options: str, at: Path) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *options]
    process = subprocess.Popen(
        command, env=environment(), cwd=at, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    return process, process.stderr


def _said(lines: IO[bytes], wanted: str) -> str:
    """Wait until a process has logged something; give its last word."""
    seen = []
    for line in lines:
        seen.append(line.decode(errors="replace"))
        found = re.search(wanted, seen[-1])
        if found is not None:
            return found[found.re.groups]
    raise AssertionError("Spark did not start: " + "".join(seen[-20:]))
