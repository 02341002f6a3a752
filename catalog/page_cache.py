"""The fastest tier: decoded, verified objects in memory, shared by all tables of a process.

They never change and their references carry a checksum, so what is found by path and checksum is
right for ever; only memory decides how long it stays.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final, NamedTuple

DEFAULT_BYTES: Final = 256 * 2**20


class ObjectKey(NamedTuple):
    """What a kept object is a copy of, in memory and on disk."""

    place: str
    """The table's URL as it may be shown, never with credentials."""
    path: str
    identity: str
    """What tells it from any other object that ever had this path, such as its checksum."""


class PageCache:
    """Least recently used objects leave first."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES) -> None:
        self._limit = limit_bytes
        self._used = 0
        self._pages: OrderedDict[ObjectKey, tuple[int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: ObjectKey) -> Any | None:
        with self._lock:
            found = self._pages.get(key)
            if found is None:
                return None
            self._pages.move_to_end(key)
            return found[1]

    def put(self, key: ObjectKey, page: Any, weight: int) -> None:
        with self._lock:
            if key in self._pages or weight > self._limit:
                return
            self._pages[key] = (weight, page)
            self._used += weight
            while self._used > self._limit:
                _, (left, _page) = self._pages.popitem(last=False)
                self._used -= left

    def clear(self) -> None:
        with self._lock:
            self._pages.clear()
            self._used = 0


PAGES: Final = PageCache()
