"""Eight processes on eight users of one table against one process on one user: appends per second.

python benchmarks/users.py [--appends 50] [--rows 1000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from typing import Any

import pyarrow as pa

import strandline


def produce(url: str, user: str, appends: int, rows: int, start: Any) -> None:
    """Append as one user, once everybody is ready."""
    handle = strandline.open_table(url).user(user)
    batch = pa.table({"n": pa.array(range(rows), pa.int64())})
    start.wait()
    for _ in range(appends):
        handle.append(batch)


def measure(processes: int, appends: int, rows: int) -> float:
    """Appends per second of this many processes, each with a user of its own."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/t"
        strandline.create_table(url, {"n": "int64"}, scope="user")
        spawn = multiprocessing.get_context("spawn")
        start = spawn.Barrier(processes + 1)
        running = [
            spawn.Process(target=produce, args=(url, f"user-{i}", appends, rows, start))
            for i in range(processes)
        ]
        for process in running:
            process.start()
        start.wait()
        began = time.perf_counter()
        for process in running:
            process.join()
        return processes * appends / (time.perf_counter() - began)


def main() -> None:
    """Print both figures and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    one, eight = (measure(n, given.appends, given.rows) for n in (1, 8))
    print(f"1 process {one:.0f} appends/s, 8 processes {eight:.0f}: {eight / one:.2f} times")


if __name__ == "__main__":
    main()
