"""Producer processes to be killed: `python -m tests.writers.producer`, with one job per line.

Starting an interpreter takes longer than a producer lives here, so this process imports everything
once and forks a producer for each job. It reports `pid <n>` and `ended <status>`; the producer
reports `open`, then `ack <thread> <first> <rows>` after each append that returned.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import strandline


def say(*words: object) -> None:
    """One line, in one system call, so that a kill leaves whole lines."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def produce(job: dict[str, Any]) -> None:
    """Append numbered rows from two threads until killed, and report each acknowledgement."""
    table = strandline.open_table(job["url"], storage_options=job["storage_options"])
    if job["user"] is not None:
        table = table.user(job["user"])
    writer = table.writer("p", wal=job["wal"], flush_rows=job["flush_rows"], flush_age="1s")
    say("open")

    def append_for_ever(thread: int) -> None:
        n = job["first"]
        while True:
            count = 1 if n % 5 else 3
            rows = [{"thread": thread, "n": n + i, "text": f"row {n + i}"} for i in range(count)]
            writer.append(rows[0] if count == 1 else rows)
            say("ack", thread, n, count)
            n += count

    for thread in range(2):
        threading.Thread(target=append_for_ever, args=(thread,), daemon=True).start()
    threading.Event().wait()


def main() -> None:
    """Fork a producer for each line of standard input."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                produce(json.loads(line))
            except BaseException as error:  # noqa: BLE001 - the test has to hear of it
                say("error", type(error).__name__, str(error).replace("\n", " "))
            os._exit(1)
        say("pid", pid)
        say("ended", os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
