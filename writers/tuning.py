"""How a writer adapts when its table cannot keep up: larger commits and fewer indexes, all rows.

The depth of the queue decides: above half the level goes up, below a quarter it goes down, and
five flushes pass between two steps, so that it does not swing. A flush counts among what fills the
queue, and no longer among what is left in it: large commits would keep their own level up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

HIGH, LOW = 0.5, 0.25
STEADY_FLUSHES: Final = 5
MOST_LEVEL: Final = 8
DEGRADED_LEVEL: Final = 2
"""From here on flushes leave index work to compaction."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The present level, and how it came about."""

    level: int = 0
    flushes_since_step: int = STEADY_FLUSHES
    scale_ups: int = 0
    scale_downs: int = 0

    @property
    def batch_factor(self) -> int:
        """By how much a flush is larger than it was configured."""
        return 1 << self.level

    @property
    def degraded(self) -> bool:
        """Whether index work is left out."""
        return self.level >= DEGRADED_LEVEL

    def after_flush(self, depth: float, left: float) -> Tuning:
        """The tuning for the next flush.

        `depth` is the share of the queue that was in use, `left` without the rows just committed.
        """
        waited = replace(self, flushes_since_step=self.flushes_since_step + 1)
        if waited.flushes_since_step < STEADY_FLUSHES:
            return waited
        if depth > HIGH and self.level < MOST_LEVEL:
            return replace(
                waited, level=self.level + 1, flushes_since_step=0, scale_ups=self.scale_ups + 1
            )
        if left < LOW and self.level > 0:
            return replace(
                waited, level=self.level - 1, flushes_since_step=0, scale_downs=self.scale_downs + 1
            )
        return waited
