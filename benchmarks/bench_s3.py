"""S3, played by moto on this machine: requests per commit, commits per second, cold plans.

moto answers in a few milliseconds of Python and shares the cores with the writers. So the counts
are exact, and the speeds say who asks less of a store, not how fast S3 is.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_data
from bench_report import Verdict, ms, table, verdicts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

ROWS, APPENDS, WRITERS = 100, 60, 4
BUCKET = "bench"
LIBRARIES = ("strandline", "deltalake", "pyiceberg")
COUNTED = 10


def run(root: Path, options: argparse.Namespace) -> bool:
    """Count, race, count again."""
    lines, found = [], {}
    with moto_server() as endpoint:
        for library in LIBRARIES:
            if options.only and library not in {*options.only, "strandline"}:
                continue
            found[library] = _measure(library, endpoint, root)
            one = found[library]
            lines.append(
                (
                    library,
                    f"{one['per_commit']:.1f} ({one['kinds']})",
                    f"{one['rate_1']:.1f}",
                    f"{one['rate_n']:.1f}",
                    f"{one['acknowledged']} of {WRITERS * APPENDS}",
                    ms(one["slowest"]),
                    f"{one['plan']} ({one['plan_kinds']})",
                )
            )
    table(
        ["100 rows per commit", "requests per commit", "commits/s, 1 writer", f"{WRITERS} writers",
         f"acknowledged of {WRITERS}", "slowest ms", "requests to open and plan"],
        lines,
    )  # fmt: skip
    ours = found["strandline"]
    targets = [
        Verdict("≤ 3 requests per commit", f"{ours['per_commit']:.1f}", ours["per_commit"] <= 3),
        Verdict("open and plan ≤ 3 requests", str(ours["plan"]), ours["plan"] <= 3),
    ]
    if "deltalake" in found:
        for key, name in (("rate_1", "1 writer"), ("rate_n", f"{WRITERS} writers")):
            ratio = ours[key] / found["deltalake"][key]
            targets.append(
                Verdict(f"≥ 2 × Delta's commits/s, {name}", f"{ratio:.1f} ×", ratio >= 2)
            )
    exact = all(one["lost"] == one["doubled"] == 0 for one in found.values())
    targets.append(Verdict("no row lost or doubled by anybody", str(exact), exact))
    return verdicts(targets)


@contextmanager
def moto_server() -> Iterator[str]:
    """Start a server with an empty bucket, in a process of its own; its URL."""
    program = Path(__file__).with_name("bench_moto_server.py")
    server = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        bucket = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")  # noqa: S310
        urllib.request.urlopen(bucket).read()  # noqa: S310
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def requests_since(endpoint: str) -> dict[str, int]:
    """Requests by kind since the last call."""
    with urllib.request.urlopen(f"{endpoint}/__requests__") as answer:  # noqa: S310
        counts: dict[str, int] = json.load(answer)
        return counts


def _measure(library: str, endpoint: str, root: Path) -> dict[str, Any]:
    appends = _appends(library, endpoint, root, "counted")
    appends[0](bench_data.events(ROWS))
    requests_since(endpoint)
    for number in range(1, COUNTED + 1):
        appends[0](bench_data.events(ROWS, first_id=number * ROWS))
    per_commit = requests_since(endpoint)
    one = _race(library, endpoint, root, 1)
    many = _race(library, endpoint, root, WRITERS)
    plan = _plan_requests(library, endpoint, root)
    return {
        "per_commit": sum(per_commit.values()) / COUNTED,
        "kinds": kinds_of(per_commit, COUNTED),
        "rate_1": one["rate"],
        "rate_n": many["rate"],
        "acknowledged": many["acknowledged"],
        "slowest": many["slowest"],
        "lost": one["lost"] + many["lost"],
        "doubled": one["doubled"] + many["doubled"],
        "plan": sum(plan.values()),
        "plan_kinds": kinds_of(plan, 1),
    }


def kinds_of(counts: dict[str, int], times: int) -> str:
    """Requests of one time, by kind."""
    return ", ".join(f"{count / times:g} {kind}" for kind, count in sorted(counts.items()))


def _race(library: str, endpoint: str, root: Path, writers: int) -> dict[str, Any]:
    name = f"race{writers}"
    _appends(library, endpoint, root, name)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(
            target=_write, args=(library, endpoint, root, name, number, barrier, results)
        )
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    told = [results.get(timeout=900) for _ in processes]
    for process in processes:
        process.join()
    acknowledged = {n for one in told for n in one["acknowledged"]}
    ids = _event_ids(library, endpoint, root, name)
    wanted = {n * ROWS + i for n in acknowledged for i in range(ROWS)}
    span = max(one["end"] for one in told) - min(one["begin"] for one in told)
    return {
        "rate": len(acknowledged) / span,
        "acknowledged": len(acknowledged),
        "slowest": max(t for one in told for t in one["times"]),
        "lost": len(wanted - set(ids)),
        "doubled": len(ids) - len(set(ids)),
    }


def _write(  # noqa: PLR0917 - a process takes no keywords that would read better
    library: str, endpoint: str, root: Path, name: str, writer: int, barrier: Any, results: Any
) -> None:
    append, _ = _opened(library, endpoint, root, name)
    batches = [
        bench_data.events(ROWS, first_id=(writer * APPENDS + n) * ROWS) for n in range(APPENDS)
    ]
    out: dict[str, Any] = {"times": [], "acknowledged": []}
    barrier.wait()
    out["begin"] = time.monotonic()
    for number, batch in enumerate(batches):
        begun = time.perf_counter()
        try:
            append(batch)
        except Exception:  # noqa: BLE001, S110 - an append that raised is not acknowledged
            pass
        else:
            out["acknowledged"].append(writer * APPENDS + number)
        out["times"].append(time.perf_counter() - begun)
    out["end"] = time.monotonic()
    results.put(out)


def _plan_requests(library: str, endpoint: str, root: Path) -> dict[str, int]:
    """Requests of a fresh process that opens the small table and plans a scan."""
    context = multiprocessing.get_context("spawn")
    requests_since(endpoint)
    process = context.Process(target=_plan, args=(library, endpoint, root, "counted"))
    process.start()
    process.join()
    assert process.exitcode == 0
    return requests_since(endpoint)


# --- the libraries -----------------------------------------------------------------------------


def _appends(
    library: str, endpoint: str, root: Path, name: str
) -> tuple[Callable[[Any], object], Any]:
    """Create a table, and open it."""
    if library == "strandline":
        import strandline

        strandline.create_table(
            _url(library, name), bench_data.SCHEMA, time_column="ts",
            storage_options=s3fs_options(endpoint),
        )  # fmt: skip
    elif library == "deltalake":
        import deltalake

        deltalake.DeltaTable.create(
            _url(library, name), bench_data.SCHEMA, storage_options=delta_options(endpoint)
        )
    else:
        catalog = _iceberg(endpoint, root)
        catalog.create_namespace_if_not_exists("n")
        catalog.create_table(f"n.{name}", bench_data.SCHEMA)
    return _opened(library, endpoint, root, name)


def _opened(
    library: str, endpoint: str, root: Path, name: str
) -> tuple[Callable[[Any], object], Any]:
    if library == "strandline":
        import strandline

        held = strandline.open_table(_url(library, name), storage_options=s3fs_options(endpoint))
        return held.append, held
    if library == "deltalake":
        import deltalake

        delta = deltalake.DeltaTable(_url(library, name), storage_options=delta_options(endpoint))
        return lambda rows: deltalake.write_deltalake(delta, rows, mode="append"), delta
    iceberg = _iceberg(endpoint, root).load_table(f"n.{name}")

    def append(rows: Any) -> None:
        try:
            iceberg.append(rows)
        except Exception:
            iceberg.refresh()
            raise

    return append, iceberg


def _plan(library: str, endpoint: str, root: Path, name: str) -> None:
    _, held = _opened(library, endpoint, root, name)
    if library == "strandline":
        found = len(held.scan(filter="country = 'US'").plan().segments)
    elif library == "deltalake":
        import pyarrow as pa

        found = pa.table(held.get_add_actions(flatten=True)).num_rows
    else:
        found = len(list(held.scan(row_filter="country == 'US'").plan_files()))
    assert found == COUNTED + 1, found


def _event_ids(library: str, endpoint: str, root: Path, name: str) -> list[int]:
    _, held = _opened(library, endpoint, root, name)
    if library == "strandline":
        rows = held.scan(["event_id"]).to_arrow()
    elif library == "deltalake":
        rows = held.to_pyarrow_table(columns=["event_id"])
    else:
        rows = held.scan(selected_fields=("event_id",)).to_arrow()
    ids: list[int] = rows.column("event_id").to_pylist()
    return ids


def _url(library: str, name: str) -> str:
    return f"s3://{BUCKET}/{library}/{name}"


def s3fs_options(endpoint: str) -> dict[str, Any]:
    """How s3fs reaches the server."""
    return {
        "key": "bench",
        "secret": "bench",
        "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
    }


def delta_options(endpoint: str) -> dict[str, str]:
    """How Rust's object_store reaches the server."""
    return {
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }


def _iceberg(endpoint: str, root: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    return SqlCatalog(
        "b",
        **{
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"s3://{BUCKET}/pyiceberg",
            "s3.endpoint": endpoint,
            "s3.access-key-id": "bench",
            "s3.secret-access-key": "bench",
            "s3.region": "us-east-1",
        },
    )
