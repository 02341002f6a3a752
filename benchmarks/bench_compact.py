"""Compaction of many small segments, beside Delta's optimize; and what writers notice of it.

Copies of the same two tables are compacted in turns, so whatever else the machine does meets both.
Both sides are checked: every row is there afterwards, once.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from bench_report import Verdict, median, table, verdicts

import strandline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_MS = 1_700_000_000_000
TURNS = 5
ROWS = 1_000
APPENDS, APPEND_ROWS, ROUNDS = 1_000, 10, 3
RATE = 2_000_000
"""Bytes per second that a compaction beside writers may move."""
TARGET = 200_000
"""Rows of its new segments: so it commits several times."""


def run(root: Path, options: argparse.Namespace) -> bool:
    """Compact in turns with Delta; append alone and beside compactions, in turns as well."""
    segments = 200 if options.quick else 1_000
    _ours(root / "ours", segments)
    measured = {"strandline": lambda: _compact_ours(root / "ours", segments)}
    if importlib.util.find_spec("deltalake"):
        _delta(root / "delta", segments)
        measured["deltalake"] = lambda: _compact_delta(root / "delta", segments)
    results = _in_turns(measured)
    table(
        [f"{segments:,} segments of {ROWS:,} rows", "rows/s", "CPU s"],
        [
            (name, f"{segments * ROWS / median(walls):,.0f}", f"{median(cpus):.2f}")
            for name, (walls, cpus) in results.items()
        ],
    )
    found = []
    if "deltalake" in results:
        wall, cpu = (
            median(theirs) / median(ours)
            for ours, theirs in zip(results["strandline"], results["deltalake"], strict=True)
        )
        found.append(
            Verdict("≥ Delta's optimize in rows/s", f"{wall:.2f} × ({cpu:.2f} × by CPU)", wall >= 1)
        )
    for name, beside in {"a thread": _thread, "another process": _process}.items():
        alone, busy = _append_rates(root / "ours", segments, beside)
        found.append(
            Verdict(
                f"appends beside a compaction in {name}: ≥ 0.9 ×",
                f"{busy / alone:.2f} × ({alone:.0f}/s alone, {busy:.0f}/s beside)",
                busy >= 0.9 * alone,
            )
        )
    return verdicts(found)


def _rows(first: int, count: int) -> pa.Table:
    """Events of a millisecond each, with a key of few values and one of many."""
    numbers = np.arange(first, first + count)
    chance = np.random.default_rng(first)
    return pa.table(
        {
            "ts": pa.array((START_MS + numbers) * 1000, pa.timestamp("us", "UTC")),
            "id": numbers,
            "user": pa.array([f"user-{n}" for n in chance.integers(0, 500, count)]),
            "amount": chance.random(count),
        }
    )


def _in_turns(
    measured: dict[str, Callable[[], tuple[float, float]]],
) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds and CPU seconds of each; the first turn loads what is loaded once."""
    results: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in measured}
    for turn in range(TURNS + 1):
        for name, measure in measured.items():
            wall, cpu = measure()
            if turn:
                results[name][0].append(wall)
                results[name][1].append(cpu)
    return results


@contextmanager
def _copy(path: Path) -> Iterator[Path]:
    made = path.with_name(f"{path.name}-copy")
    shutil.copytree(path, made)
    try:
        yield made
    finally:
        shutil.rmtree(made)


# --- compaction --------------------------------------------------------------------------------


def _ours(path: Path, segments: int) -> None:
    made = strandline.create_table(path, _rows(0, 1).schema, time_column="ts")
    for number in range(segments):
        made.append(_rows(number * ROWS, ROWS))


def _compact_ours(path: Path, segments: int) -> tuple[float, float]:
    with _copy(path) as copy:
        given = strandline.open_table(copy)
        wall, cpu = time.perf_counter(), time.process_time()
        report = given.compact()
        took = time.perf_counter() - wall, time.process_time() - cpu
        assert report.segments_before == segments
        assert report.rows == segments * ROWS
        found = given.scan(["id"]).to_arrow().column("id").to_numpy()
        assert np.array_equal(found, np.arange(segments * ROWS))
    return took


def _delta(path: Path, segments: int) -> None:
    import deltalake

    for number in range(segments):
        deltalake.write_deltalake(str(path), _rows(number * ROWS, ROWS), mode="append")


def _compact_delta(path: Path, segments: int) -> tuple[float, float]:
    import deltalake

    with _copy(path) as copy:
        given = deltalake.DeltaTable(str(copy))
        wall, cpu = time.perf_counter(), time.process_time()
        report = given.optimize.compact()
        took = time.perf_counter() - wall, time.process_time() - cpu
        assert report["numFilesRemoved"] == segments
        found = deltalake.DeltaTable(str(copy)).to_pyarrow_table(columns=["id"])
        assert np.array_equal(np.sort(found.column("id").to_numpy()), np.arange(segments * ROWS))
    return took


# --- writers beside it -------------------------------------------------------------------------


def _append_rates(path: Path, segments: int, beside: Callable[[Path], Any]) -> tuple[float, float]:
    """Appends per second to copies of a table, alone and all the time that one is compacted."""
    alone, busy = [], []
    for _ in range(ROUNDS):
        with _copy(path) as place, beside(place) as goes_on:
            busy.append(_append(place, segments, goes_on))
        with _copy(path) as place:
            left = iter(range(APPENDS))
            alone.append(_append(place, segments, lambda left=left: next(left, None) is not None))
    return median(alone), median(busy)


def _append(path: Path, segments: int, goes_on: Callable[[], bool]) -> float:
    given = strandline.open_table(path)
    batches = [_rows(10**8 + number * APPEND_ROWS, APPEND_ROWS) for number in range(100)]
    given.append(batches[-1])
    done, begun = 0, time.perf_counter()
    while goes_on():
        given.append(batches[done % len(batches)])
        done += 1
    rate = done / (time.perf_counter() - begun)
    assert given.refresh().scan().count() == segments * ROWS + (done + 1) * APPEND_ROWS
    return rate


@contextmanager
def _thread(path: Path) -> Iterator[Callable[[], bool]]:
    """A compaction in a thread of the writer's process."""
    given = strandline.open_table(path)
    worker = threading.Thread(target=lambda: given.compact(target_rows=TARGET, bytes_per_s=RATE))
    worker.start()
    yield worker.is_alive
    worker.join()


_CHILD = """
import sys
import strandline
given = strandline.open_table(sys.argv[1])
warm = strandline.create_table("memory://warm", {"n": "int64"})
for number in range(20):
    warm.append([{"n": number}])
warm.compact()  # loads what a compaction needs: a process that maintains tables has done so
sys.stdout.write("begun\\n")
sys.stdout.flush()
given.compact(target_rows=int(sys.argv[2]), bytes_per_s=int(sys.argv[3]))
"""


@contextmanager
def _process(path: Path) -> Iterator[Callable[[], bool]]:
    """The same in a process of its own, as `strandline maintain` is."""
    command = [sys.executable, "-c", _CHILD, str(path), str(TARGET), str(RATE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:  # noqa: S603 - our own
        assert child.stdout is not None
        child.stdout.readline()
        yield lambda: child.poll() is None
    assert child.returncode == 0
