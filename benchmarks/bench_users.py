"""Appends per second of eight processes on eight users of one table, and of one on one.

Beside them the same files written and synced by system calls alone, in the same order and by as
many processes: what the disk and the processors of the machine give to anybody.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from bench_report import Verdict, median, table, verdicts

import strandline

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

ROWS = 1_000
GROWTH = 1.6
DATA_BYTES, MANIFEST_BYTES = 6_000, 4_000
"""About what an append of the benchmark stores."""


def produce(url: str, user: str, appends: int, start: Any, ended: Any) -> None:
    """Append as one user, once everybody is ready: modules are loaded, and the chain is there."""
    handle = strandline.open_table(url).user(user)
    batch = pa.table({"n": pa.array(range(ROWS), pa.int64())})
    handle.append(batch)
    start.wait()
    began = time.process_time()
    for _ in range(appends):
        handle.append(batch)
    ended.put((time.monotonic(), time.process_time() - began))


def write_bare(folder: str, user: str, appends: int, start: Any, ended: Any) -> None:
    """Write and sync what an append does: a data file, and beside it a manifest that is linked."""
    pool = ThreadPoolExecutor(2)
    data, manifests = f"{folder}/data", f"{folder}/{user}"
    for made in (data, manifests):
        os.makedirs(made, exist_ok=True)  # noqa: PTH103 - system calls are what is measured

    def sync(path: str) -> None:
        opened = os.open(path, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)

    def write(path: str, size: int, folder: str | None) -> None:
        opened = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.write(opened, b"x" * size)
        named = None if folder is None else pool.submit(sync, folder)
        os.fsync(opened)
        os.close(opened)
        if named is not None:
            named.result()

    start.wait()
    began = time.process_time()
    for n in range(appends):
        pending = pool.submit(write, f"{data}/{user}-{n}", DATA_BYTES, data)
        write(f"{manifests}/.{n}", MANIFEST_BYTES, None)
        pending.result()
        os.link(f"{manifests}/.{n}", f"{manifests}/{n}")
        os.unlink(f"{manifests}/.{n}")  # noqa: PTH108
        sync(manifests)
    ended.put((time.monotonic(), time.process_time() - began))


def measure(folder: Path, job: Any, processes: int, appends: int) -> tuple[float, float]:
    """Appends per second of this many processes, a user each, and milliseconds of CPU for one."""
    spawn = multiprocessing.get_context("spawn")
    start, ended = spawn.Barrier(processes + 1), spawn.Queue()
    running = [
        spawn.Process(target=job, args=(str(folder), f"user-{i}", appends, start, ended))
        for i in range(processes)
    ]
    for process in running:
        process.start()
    start.wait()
    began = time.monotonic()
    found = [ended.get(timeout=600) for _ in running]
    for process in running:
        process.join()
    every = processes * appends
    seconds = max(last for last, _ in found) - began
    return every / seconds, 1_000 * sum(cpu for _, cpu in found) / every


def run(root: Path, options: argparse.Namespace) -> bool:
    """Measure all in turns, and compare the middle ones."""
    appends, rounds = (20, 1) if options.quick else (200, 3)
    jobs = {"strandline": produce, "system calls alone": write_bare}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for turn in range(rounds):
        for name, job in jobs.items():
            for processes in (1, 8):
                folder = root / f"{name[:3]}-{processes}-{turn}"
                if job is produce:
                    strandline.create_table(folder, {"n": "int64"}, scope="user")
                taken = measure(folder, job, processes, appends)
                found.setdefault((name, processes), []).append(taken)
    table(
        ["a user each", "processes", "appends of 1,000 rows per second", "CPU ms each"],
        [
            (
                name,
                str(processes),
                f"{median([speed for speed, _ in taken]):.0f}",
                f"{median([cpu for _, cpu in taken]):.2f}",
            )
            for (name, processes), taken in found.items()
        ],
    )
    ratio, bare = (
        median(
            [
                eight / one
                for (one, _), (eight, _) in zip(found[name, 1], found[name, 8], strict=True)
            ]
        )
        for name in jobs
    )
    seen = f"{ratio:.2f} x (system calls alone: {bare:.2f} x)"
    return verdicts([Verdict("8 processes >= 1.6 x one", seen, ratio >= GROWTH)])
