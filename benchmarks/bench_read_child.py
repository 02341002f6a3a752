"""One fresh process that asks one contestant one thing: cold first, then warm. Prints JSON.

Cold is from opening the table to its first answer, after imports; the system's cache is warm.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_reader_peers
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_ROUNDS, WARM_SECONDS = 15, 2.0
_IMPORTS = {
    # The last two are what its first scan with a filter would load.
    "strandline": [
        "strandline",
        "strandline.readers.index_selection",
        "strandline.readers.evaluate",
    ],
    "DuckDB": ["duckdb"],
    "pyarrow's": [],
    "deltalake": ["deltalake"],
    "pyiceberg": ["pyiceberg.catalog.sql"],
    "lance": ["lance"],
    "pyarrow.dataset": ["pyarrow.dataset"],
}


def main() -> None:
    """Arguments: contestant, folder, question, and what the question needs, several times."""
    name, folder, question = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    asked = json.loads(sys.argv[4])
    contestant = bench_reader_peers.contestant(name)
    for module in _IMPORTS[name.split(" ", maxsplit=1)[0]]:
        import_module(module)
    begun = time.perf_counter()
    queries = contestant.open(folder)
    ask: Callable[..., pa.Table] = getattr(queries, question)
    first = ask(*asked[0])
    cold = time.perf_counter() - begun
    digests, warm = [digest(first)], []
    until = time.perf_counter() + WARM_SECONDS
    for number in range(WARM_ROUNDS):
        arguments = asked[(number + 1) % len(asked)]
        begun = time.perf_counter()
        rows = ask(*arguments)
        warm.append(time.perf_counter() - begun)
        if number + 1 < len(asked):
            digests.append(digest(rows))
        if time.perf_counter() > until:
            break
    json.dump({"cold": cold, "warm": warm, "digests": digests}, sys.stdout)


def digest(rows: pa.Table) -> list[Any]:
    """What an answer says, so that answers can be compared; sums are rounded, orders differ."""
    if rows.column_names == ["country", "total"]:
        totals = zip(*(rows.column(n).to_pylist() for n in rows.column_names), strict=True)
        return sorted([country, round(total)] for country, total in totals)
    times = rows.column("ts").cast(pa.int64())
    first = pc.min(times)
    return [
        rows.num_rows,
        first.as_py(),
        pc.sum(pc.subtract(times, first)).as_py(),
        round(pc.sum(rows.column("amount")).as_py(), 2),
        pc.count_distinct(rows.column("user_id").cast(pa.string())).as_py(),
    ]


if __name__ == "__main__":
    main()
