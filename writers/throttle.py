"""Bytes per second, for work that must leave room for others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.catalog.runtime import Runtime


class Throttle:
    """Makes whoever spends bytes wait until the rate allows them; shared by threads."""

    def __init__(self, bytes_per_s: int, runtime: Runtime) -> None:
        self._rate, self._runtime = bytes_per_s, runtime
        self._free_at = runtime.monotonic()
        self._lock = threading.Lock()

    def spend(self, count: int) -> None:
        """Wait for what was spent before; what is spent now makes the next one wait."""
        with self._lock:
            now = self._runtime.monotonic()
            wait = self._free_at - now
            self._free_at = max(self._free_at, now) + count / self._rate
        if wait > 0:
            self._runtime.sleep(wait)
