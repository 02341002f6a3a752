"""Telling a program's metrics what its writer does, after each flush and never during an append."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.writers.stats import WriterStats

    MetricsHook = Callable[[str, float, dict[str, Any]], None]

LOG: Final = logging.getLogger("strandline.writer")
PREFIX: Final = "strandline.writer."
COUNTERS: Final = {
    "rows": "rows_committed",
    "commits": "commits",
    "retries": "retries",
    "late_rows": "late_rows",
    "dropped_late_rows": "dropped_late_rows",
    "blocked_appends": "blocked",
    "wal_syncs": "wal_syncs",
}
"""Each is told as what was added since the last time; beside it, the name in the stats."""
GAUGES: Final = {
    "rows_pending": "rows_pending",
    "bytes_pending": "bytes_pending",
    "queue_depth": "queue_depth",
}
"""Each is told as it is now."""
COMMIT_SECONDS: Final = "commit_seconds"
"""How long a flush took, from encoded rows to the commit; told once for each."""


class Metrics:
    """Calls a program's hook; a hook that fails is logged once and harms nothing."""

    def __init__(self, hook: MetricsHook, attributes: dict[str, Any]) -> None:
        self._hook, self._attributes = hook, attributes
        self._told: dict[str, float] = {}
        self._complained = False

    def flushed(self, stats: WriterStats, commit_seconds: float | None) -> None:
        """Tell all; without seconds the flush has failed and will be tried again."""
        for name, source in COUNTERS.items():
            now = getattr(stats, source)
            added = now - self._told.get(name, 0)
            self._told[name] = now
            if added:
                self._tell(name, added)
        for name, source in GAUGES.items():
            self._tell(name, getattr(stats, source))
        if commit_seconds is not None:
            self._tell(COMMIT_SECONDS, commit_seconds)

    def _tell(self, name: str, value: float) -> None:
        try:
            self._hook(PREFIX + name, value, dict(self._attributes))
        except Exception:
            if not self._complained:
                self._complained = True
                LOG.exception("the metrics hook failed; further failures are not shown")
