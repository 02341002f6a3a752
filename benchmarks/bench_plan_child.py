"""One fresh process that plans a range over a table: cold first, then warm. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_ROUNDS = 15


def main() -> None:
    """Arguments: library, table, first and last millisecond."""
    library, path, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    cold, warm = (_strandline if library == "strandline" else _delta)(path, first, last)
    begun = time.perf_counter()
    files = cold()
    cold_s = time.perf_counter() - begun
    warm_s = []
    for _ in range(WARM_ROUNDS):
        begun = time.perf_counter()
        again = warm()
        warm_s.append(time.perf_counter() - begun)
        assert again == files, (again, files)
    json.dump({"files": files, "cold": cold_s, "warm": warm_s}, sys.stdout)


def _strandline(path: str, first: int, last: int) -> tuple[Callable[[], int], Callable[[], int]]:
    import strandline

    held = []

    def warm() -> int:
        return len(held[0].scan(start_ts=first, end_ts=last).plan().segments)

    def cold() -> int:
        held.append(strandline.open_table(path))
        return warm()

    return cold, warm


def _delta(path: str, first: int, last: int) -> tuple[Callable[[], int], Callable[[], int]]:
    """The fastest way deltalake offers in Python: the stats of all files, filtered by Arrow."""
    from datetime import UTC, datetime

    import deltalake
    import pyarrow as pa
    import pyarrow.compute as pc

    held = []
    low = pa.scalar(datetime.fromtimestamp(first / 1000, UTC), pa.timestamp("us", tz="UTC"))
    high = pa.scalar(datetime.fromtimestamp(last / 1000, UTC), pa.timestamp("us", tz="UTC"))

    def warm() -> int:
        held[0].update_incremental()
        files = pa.table(held[0].get_add_actions(flatten=True))
        keep = pc.and_(
            pc.less_equal(files.column("min.ts"), high),
            pc.greater_equal(files.column("max.ts"), low),
        )
        return files.filter(keep).column("path").length()

    def cold() -> int:
        held.append(deltalake.DeltaTable(path))
        return warm()

    return cold, warm


if __name__ == "__main__":
    main()
