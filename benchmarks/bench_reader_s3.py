"""Random point lookups on S3, played by moto on this machine: requests of each, and their pace.

moto answers in a few milliseconds of Python on the same cores. So the counts are exact; the times
say who asks less of a store, not how fast S3 is.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import bench_data
import bench_reader_peers as peers
import bench_s3
from bench_report import Verdict, ms, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

LOOKUPS, SECONDS = 1_000, 150
ROWS, SEGMENTS, USERS = 1_000_000, 4, 100_000
"""Smaller than elsewhere: what is counted is requests, and moto takes its time for each."""


def run(root: Path, names: list[str]) -> list[Verdict]:
    """Look up the same users through each library; slow ones stop after a while."""
    lines, found = [], {}
    root.mkdir()
    batches = [
        bench_data.visits(ROWS // SEGMENTS, first_id=number * ROWS // SEGMENTS, users=USERS)
        for number in range(SEGMENTS)
    ]
    with bench_s3.moto_server() as endpoint:
        for name, open_queries in _contestants(endpoint).items():
            if name not in names:
                continue
            _upload(root, peers.ALL[name], batches, endpoint)
            found[name] = one = _measure(open_queries, endpoint)
            lines.append(
                (
                    name,
                    f"{one['lookups']:,}",
                    f"{one['first']} ({one['first_kinds']})",
                    f"{one['each']:.1f} ({one['kinds']})",
                    ms(one["seconds"] / one["lookups"]),
                )
            )
    head = ["lookups on S3", "done", "requests to open and find one", "requests each", "ms each"]
    table(head, lines)
    return _targets(found)


def _contestants(endpoint: str) -> dict[str, Callable[[], peers.Queries]]:
    s3, rust = bench_s3.s3fs_options(endpoint), bench_s3.delta_options(endpoint)
    url = f"s3://{bench_s3.BUCKET}"
    ours = (peers.OURS, peers.OURS_SORTED, peers.OURS_POSTINGS)
    return {
        **{
            one.name: lambda one=one: peers.StrandlineQueries(
                f"{url}/{one.folder}", storage_options=s3
            )
            for one in ours
        },
        peers.LanceIndexed.name: lambda: peers.LanceQueries(
            f"{url}/{peers.LanceIndexed.folder}", storage_options=rust
        ),
        peers.DeltaEngine.name: lambda: peers.DeltaQueries(
            f"{url}/{peers.DeltaEngine.folder}", storage_options=rust
        ),
    }


def _upload(
    root: Path, contestant: peers.Contestant, batches: list[pa.Table], endpoint: str
) -> None:
    """Write on the disk, then copy: all of these formats can be moved."""
    import s3fs

    folder = root / contestant.folder
    if contestant.name == peers.LanceIndexed.name:
        peers.Lance().write(root / peers.Lance.folder, batches)
    contestant.write(folder, batches)
    files = s3fs.S3FileSystem(**bench_s3.s3fs_options(endpoint))
    files.put(f"{folder}/", f"{bench_s3.BUCKET}/{contestant.folder}", recursive=True)


def _measure(open_queries: Callable[[], peers.Queries], endpoint: str) -> dict[str, Any]:
    chance = random.Random(17)  # noqa: S311 - users, no secrets
    wanted = [bench_data.user_name(chance.randrange(USERS)) for _ in range(LOOKUPS + 1)]
    bench_s3.requests_since(endpoint)
    queries = open_queries()
    rows = [queries.lookup(wanted[0]).num_rows]
    first = bench_s3.requests_since(endpoint)
    begun = time.perf_counter()
    for user in wanted[1:]:
        rows.append(queries.lookup(user).num_rows)
        if time.perf_counter() - begun > SECONDS:
            break
    seconds, counts = time.perf_counter() - begun, bench_s3.requests_since(endpoint)
    done = len(rows) - 1
    return {
        "rows": rows,
        "lookups": done,
        "seconds": seconds,
        "first": sum(first.values()),
        "first_kinds": bench_s3.kinds_of(first, 1),
        "each": sum(counts.values()) / done,
        "kinds": bench_s3.kinds_of(counts, done),
    }


def _targets(found: dict[str, Any]) -> list[Verdict]:
    least = min(len(one["rows"]) for one in found.values())
    agree = len({tuple(one["rows"][:least]) for one in found.values()}) == 1
    done = found[peers.OURS.name]["lookups"]
    return [
        Verdict(f"{LOOKUPS:,} lookups on S3 in {SECONDS} s", f"{done:,}", done == LOOKUPS),
        Verdict("all find as many rows on S3", f"{agree}, {least} users compared", agree),
    ]
