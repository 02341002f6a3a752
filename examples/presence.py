"""Who is online: a stream table, producers that send signs of life, and a loop that evicts.

python examples/presence.py [url] [seconds]
"""

from __future__ import annotations

import random
import sys
import threading
import time

import strandline

USERS = ["alice", "bob", "carol", "dave"]
STATES = ["online", "away", "typing"]


def send(table: strandline.StreamTable, user: str, stop: threading.Event) -> None:
    """One user's devices, each with a sign of life now and then."""
    chance = random.Random(user)  # noqa: S311 - a demonstration
    while not stop.wait(chance.uniform(0.05, 0.3)):
        device = chance.choice(["phone", "laptop"])
        now_ms = int(time.time() * 1000)
        table.put(user, [{"device": device, "state": chance.choice(STATES), "at": now_ms}])


def evict(table: strandline.StreamTable, stop: threading.Event) -> None:
    """Windows that have outlived the TTL go as a whole; nobody reads what is in them."""
    while not stop.wait(1.0):
        table.flush()
        for window in table.expire().windows:
            print(f"evicted {window}")


def main(url: str = "lake/who-is-online", seconds: float = 5.0) -> None:
    """Run for a while, and print who is there."""
    schema = {"device": "string", "state": "string", "at": "int64"}
    with strandline.create_table(
        url, schema, kind="stream", ttl="60s", row_id="device", time_column="at", exist_ok=True
    ) as table:
        stop = threading.Event()
        jobs = [threading.Thread(target=send, args=(table, user, stop)) for user in USERS]
        jobs.append(threading.Thread(target=evict, args=(table, stop)))
        for job in jobs:
            job.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(1.0)
            for user in USERS:
                rows = table.latest(user, limit=2).to_pylist()
                print(user, {row["device"]: row["state"] for row in rows})
        stop.set()
        for job in jobs:
            job.join()


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(float, sys.argv[2:3]))
