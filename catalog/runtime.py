"""Time and chance, as one argument: real in production, scripted in tests."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.tableformat.random_names import random_hex

if TYPE_CHECKING:
    from collections.abc import Callable


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fraction() -> float:
    return secrets.randbits(32) / 2**32


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a commit needs from the world beside its store."""

    now_ms: Callable[[], int] = _now_ms
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random_hex: Callable[[int], str] = random_hex
    """Hex digits of this many random bytes."""
    fraction: Callable[[], float] = _fraction
    """A random number from 0 to 1, for jitter."""


REAL = Runtime()
