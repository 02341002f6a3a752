"""When rows are too old: the floor that a TTL asks for, and the windows that may be removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.lifecycle import is_expired, is_hidden
from strandline.tableformat.windows import DAY_MS, HOUR_MS, Window, parse_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.tableformat.config import Config
    from strandline.tableformat.manifest import Manifest

GRACE_MS: Final = DAY_MS
MOST_SKEW_MS: Final = HOUR_MS
MOST_SHARE: Final = 0.5
"""Of the rows: what one run may hide while this machine's clock and the store's contradict."""


def floor_for(config: Config, now_ms: int, known_floor: int) -> int:
    """The floor at a time: everything below is older than the TTL, and windows end there.

    Ends of windows of a day or longer are whole days, so a floor never cuts more windows than it
    must. It never falls.
    """
    if config.ttl_ms is None:
        return known_floor
    step = min(config.window_ms, DAY_MS)
    cutoff = now_ms - config.ttl_ms
    return max(known_floor, cutoff - cutoff % step)


@dataclass(frozen=True, slots=True)
class Share:
    """What a floor would hide, as far as metadata in the manifest itself tells."""

    rows: int
    rows_hidden: int
    segments_hidden: int
    bytes_hidden: int

    @property
    def share(self) -> float:
        return self.rows_hidden / self.rows if self.rows else 0.0

    def __add__(self, other: Share) -> Share:
        return Share(
            self.rows + other.rows,
            self.rows_hidden + other.rows_hidden,
            self.segments_hidden + other.segments_hidden,
            self.bytes_hidden + other.bytes_hidden,
        )


def share_below(manifest: Manifest, floor_ts: int) -> Share:
    """How much of the table lies in windows that end at or below a floor."""
    pages = [page for window in manifest.windows for page in window.pages]
    parts = [*manifest.segments, *pages, *manifest.window_pages]
    hidden = [part for part in parts if is_hidden(part, floor_ts, 0)]
    return Share(
        rows=sum(part.row_count for part in parts),
        rows_hidden=sum(part.row_count for part in hidden),
        segments_hidden=sum(getattr(part, "entries", 1) for part in hidden),
        bytes_hidden=sum(part.size_bytes for part in hidden),
    )


def removable_floor(manifest: Manifest, store_ms: int, grace_ms: int) -> tuple[int, int]:
    """The greatest floor whose grace is over, and the version that raised it; (0, 0): none."""
    over = [r for r in manifest.lifecycle.raises if r.raised_at <= store_ms - grace_ms]
    return max(((r.floor_ts, r.version) for r in over), default=(0, 0))


def expired_prefixes(folders: Iterable[str], floor_ts: int) -> list[Window]:
    """Of the names of a table's folders, the windows that end at or below a floor."""
    found: list[Window] = []
    for name in folders:
        try:
            window = parse_prefix(name)
        except CorruptTable:
            continue  # not a window: none of our business
        if is_expired(window, floor_ts):
            found.append(window)
    return sorted(found)


def gone_after_ms(config: Config, grace_ms: int, interval_ms: int) -> int | None:
    """How long after its time a row is gone from the store at the latest."""
    if config.ttl_ms is None:
        return None
    return config.ttl_ms + config.window_ms + grace_ms + interval_ms
