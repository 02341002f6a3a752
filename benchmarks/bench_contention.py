"""8 processes, each appending 50 times 100 rows to one table, all at once, with defaults."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

import bench_data
import bench_peers
from bench_report import Verdict, median, ms, say, table, verdicts

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

WRITERS, APPENDS, ROWS = 8, 50, 100


def run(root: Path, options: argparse.Namespace) -> bool:
    """Race each contestant's writers and count what became of their rows."""
    names = ["strandline", *(c.name for c in bench_peers.PEERS)]
    if options.only:
        names = [n for n in names if n in {*options.only, "strandline"}]
    lines, ours = [], {}
    for name in names:
        found = _race(name, root / name)
        if name == "strandline":
            ours = found
        lines.append(
            (
                name,
                f"{found['acknowledged']} of {WRITERS * APPENDS}",
                found["raised"],
                found["lost"],
                found["doubled"],
                f"{found['per_second']:.0f}",
                ms(found["cpu"]),
                ms(found["median"]),
                ms(found["slowest"]),
            )
        )
        for error in found["errors"]:
            say(f"  {name} raised, for example: {error}")
    table(
        ["8 × 50 commits", "acknowledged", "raised", "rows lost", "rows doubled", "commits/s",
         "CPU ms", "median ms", "slowest ms"],
        lines,
    )  # fmt: skip
    exact = ours["acknowledged"] == WRITERS * APPENDS and not ours["lost"] + ours["doubled"]
    return verdicts(
        [
            Verdict("400 of 400, none raised, lost or doubled", str(ours["acknowledged"]), exact),
            Verdict("≥ 200 commits/s", f"{ours['per_second']:.0f}", ours["per_second"] >= 200),
            Verdict("slowest < 0.5 s", f"{ours['slowest']:.3f} s", ours["slowest"] < 0.5),
        ]
    )


def _race(name: str, folder: Path) -> dict[str, Any]:
    bench_peers.ALL[name].create(folder)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(WRITERS), context.Queue()
    writers = [
        context.Process(target=_write, args=(name, folder, number, barrier, results))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    told = [results.get(timeout=600) for _ in writers]
    for writer in writers:
        writer.join()
    times = [taken for one in told for taken in one["times"]]
    acknowledged = {number for one in told for number in one["acknowledged"]}
    lost, doubled = _rows_wrong(name, folder, acknowledged)
    return {
        "acknowledged": len(acknowledged),
        "raised": sum(one["raised"] for one in told),
        "errors": sorted({error for one in told for error in one["errors"]})[:2],
        "lost": lost,
        "doubled": doubled,
        "per_second": len(acknowledged)
        / (max(one["end"] for one in told) - min(one["begin"] for one in told)),
        "cpu": sum(one["cpu"] for one in told) / (WRITERS * APPENDS),
        "median": median(times),
        "slowest": max(times),
    }


def _write(name: str, folder: Path, writer: int, barrier: Any, results: Any) -> None:
    append = bench_peers.ALL[name].open(folder)
    batches = [
        bench_data.events(ROWS, first_id=(writer * APPENDS + n) * ROWS) for n in range(APPENDS)
    ]
    out: dict[str, Any] = {"times": [], "acknowledged": [], "raised": 0, "errors": []}
    barrier.wait()
    out["begin"], busy = time.monotonic(), time.process_time()
    for number, batch in enumerate(batches):
        begun = time.perf_counter()
        try:
            append(batch)
        except Exception as error:  # noqa: BLE001 - counting them is the point
            out["raised"] += 1
            out["errors"].append(f"{type(error).__name__}: {error}"[:120].replace("\n", " "))
        else:
            out["acknowledged"].append(writer * APPENDS + number)
        out["times"].append(time.perf_counter() - begun)
    out["end"], out["cpu"] = time.monotonic(), time.process_time() - busy
    results.put(out)


def _rows_wrong(name: str, folder: Path, acknowledged: set[int]) -> tuple[int, int]:
    """Acknowledged rows that are missing, and rows that are there more than once."""
    ids = bench_peers.ALL[name].event_ids(folder).to_pylist()
    wanted = {n * ROWS + i for n in acknowledged for i in range(ROWS)}
    return len(wanted - set(ids)), len(ids) - len(set(ids))
