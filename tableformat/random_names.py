"""Random hex digits for names, drawn from the system in larger portions.

One commit needs three names, and each question to the system costs as much as checking a column.
"""

from __future__ import annotations

import os
import threading
from typing import Final

_PORTION: Final = 4096
_lock = threading.Lock()
_pool = b""


def random_hex(count: int) -> str:
    """Hex digits of this many random bytes, never given twice, also not by a forked child."""
    global _pool  # noqa: PLW0603 - one pool for the process
    with _lock:
        if len(_pool) < count:
            _pool = os.urandom(max(count, _PORTION))
        taken, _pool = _pool[:count], _pool[count:]
    return taken.hex()


def _forget() -> None:
    """A child must not give out what its parent gives out, nor wait for a thread it has not."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), b""


os.register_at_fork(after_in_child=_forget)
