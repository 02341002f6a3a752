"""Time windows: the unit in which old data disappears.

A window is a stretch of `_ts` aligned to the epoch. Its folder carries start and length, so
expiry reads names only, and a changed TTL renames nothing: windows of several lengths live side
by side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.errors import CorruptTable, InvalidInput, TooManyWindows
from strandline.tableformat.timestamps import TS_LIMIT_MS

if TYPE_CHECKING:
    Int64s = np.ndarray[Any, np.dtype[np.int64]]

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS
MONTH_MS: Final = 30 * DAY_MS

MAX_WINDOWS_PER_COMMIT: Final = 256
_LENGTH_UP_TO_TTL: Final = (
    (15 * MINUTE_MS, MINUTE_MS),
    (DAY_MS, HOUR_MS),
    (7 * DAY_MS, DAY_MS),
    (30 * DAY_MS, WEEK_MS),
)
_LENGTHS: Final = (MINUTE_MS, HOUR_MS, DAY_MS, WEEK_MS, MONTH_MS)
_PREFIX: Final = re.compile(r"w(0|[1-9][0-9]{0,14})-([1-9][0-9]{0,14})")
_COUNTABLE_SPAN: Final = 1 << 16


def window_ms_for_ttl(ttl_ms: int | None) -> int:
    """How long a new window is: short enough that expiry overshoots the TTL only a little."""
    if ttl_ms is not None:
        for up_to, length in _LENGTH_UP_TO_TTL:
            if ttl_ms <= up_to:
                return length
    return MONTH_MS


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The rows with `start_ms <= _ts < end_ms`."""

    start_ms: int
    duration_ms: int

    def __post_init__(self) -> None:
        start, duration = self.start_ms, self.duration_ms
        if not (0 <= start < TS_LIMIT_MS and 0 < duration <= TS_LIMIT_MS and start % duration == 0):
            raise CorruptTable(
                f"a window of {duration} ms cannot start at {start} ms: windows are aligned to "
                "the epoch and start before the year 10000"
            )

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.duration_ms

    @property
    def prefix(self) -> str:
        """The window's folder, without a slash."""
        return f"w{self.start_ms}-{self.duration_ms}"


def length_that_fits(ts_ms: Int64s, duration_ms: int, most: int) -> int:
    """The shortest length, from a given one on, of which so many windows hold all of these times.

    The longest there is, if even those are too many.
    """
    for length in (duration_ms, *(known for known in _LENGTHS if known > duration_ms)):
        if _fewer_than(ts_ms, length, most):
            return length
    return max(duration_ms, MONTH_MS)


def _fewer_than(ts_ms: Int64s, length: int, most: int) -> bool:
    if not ts_ms.size or (int(ts_ms.max()) // length - int(ts_ms.min()) // length) < most:
        return True
    return len(np.unique(ts_ms // length)) <= most


def parse_prefix(text: str) -> Window:
    """A window from its folder's name, in the one spelling that `prefix` gives."""
    match = _PREFIX.fullmatch(text)
    if match is None:
        raise CorruptTable(f"{text[:80]!r} is not a window prefix such as w0-3600000")
    return Window(int(match[1]), int(match[2]))


def window_of(ts_ms: int, duration_ms: int) -> Window:
    """The window of this length that holds this time."""
    return Window(ts_ms - ts_ms % duration_ms, duration_ms)


# --- splitting a batch ------------------------------------------------------------------------


def split_by_window(
    ts_ms: Int64s, duration_ms: int, limit: int = MAX_WINDOWS_PER_COMMIT
) -> list[tuple[Window, slice | Int64s]]:
    """The rows of each window, windows in order of time, rows in their own order.

    Rows mostly arrive in order of time. A window whose rows lie together is given as a slice,
    which costs nothing to take; others as an array of row numbers.
    """
    if not ts_ms.size:
        return []
    earliest, latest = int(ts_ms.min()), int(ts_ms.max())
    first = earliest // duration_ms
    if latest // duration_ms == first:
        return [(Window(first * duration_ms, duration_ms), slice(0, len(ts_ms)))]
    number = ts_ms // duration_ms - first
    breaks = np.flatnonzero(number[1:] != number[:-1]) + 1
    starts, stops = np.append(0, breaks), np.append(breaks, len(ts_ms))
    found, window_of_run = _ranked(number[starts])
    runs = np.bincount(window_of_run)
    present = np.flatnonzero(runs)
    if len(present) > limit:
        raise TooManyWindows(len(present), limit, earliest, latest)
    only_run = np.zeros(len(runs), np.int64)
    only_run[window_of_run] = np.arange(len(starts))
    scattered = _scattered_rows(window_of_run, stops - starts, runs > 1)
    out: list[tuple[Window, slice | Int64s]] = []
    for rank in present.tolist():
        start = (first + (rank if found is None else int(found[rank]))) * duration_ms
        run = int(only_run[rank])
        rows = scattered[rank] if rank in scattered else slice(int(starts[run]), int(stops[run]))
        out.append((Window(start, duration_ms), rows))
    return out


def _ranked(numbers: Int64s) -> tuple[Int64s | None, Int64s]:
    """Window numbers as small numbers, with their meaning (None: they are small already)."""
    if numbers.max() < _COUNTABLE_SPAN:
        return None, numbers
    found, ranks = np.unique(numbers, return_inverse=True)
    return found, ranks


def _scattered_rows(
    window_of_run: Int64s, run_lengths: Int64s, is_scattered: np.ndarray[Any, np.dtype[np.bool_]]
) -> dict[int, Int64s]:
    if not is_scattered.any():
        return {}
    window_of_row = np.repeat(window_of_run, run_lengths)
    rows = np.flatnonzero(is_scattered[window_of_row])
    # Ranks fit 16 bits (more windows than that were refused), which numpy sorts in linear time.
    rank = window_of_row[rows].astype(np.uint16)
    ordered = rows[np.argsort(rank, kind="stable")]
    ends = np.cumsum(np.bincount(rank))
    windows = np.flatnonzero(is_scattered).tolist()
    return {w: ordered[ends[w - 1] if w else 0 : ends[w]] for w in windows}


# --- lengths of time --------------------------------------------------------------------------

_UNITS_MS: Final = {
    "w": WEEK_MS,
    "d": DAY_MS,
    "h": HOUR_MS,
    "m": MINUTE_MS,
    "s": SECOND_MS,
    "ms": 1,
}
_DURATION: Final = re.compile(r"([0-9]{1,15})(w|d|h|m|s|ms)")
_FORMATTED: Final = ("d", "h", "m", "s", "ms")
_ONE_MS: Final = timedelta(milliseconds=1)


def parse_duration(given: object, what: str = "a duration") -> int:
    """Milliseconds from `"7d"` or a timedelta.

    Plain numbers are refused: taken for another unit, a TTL would delete data too early.
    """
    if isinstance(given, timedelta):
        millis, rest = divmod(given, _ONE_MS)
        if rest:
            raise InvalidInput(f"{what} is in whole milliseconds, not {given!r}")
    elif isinstance(given, str) and (match := _DURATION.fullmatch(given.strip())):
        millis = int(match[1]) * _UNITS_MS[match[2]]
    else:
        raise InvalidInput(
            f"{what} is text such as '90s', '15m', '12h', '7d' or '2w', or a timedelta, not "
            f"{str(given)[:60]!r}"
        )
    if not 0 < millis <= TS_LIMIT_MS:
        raise InvalidInput(f"{what} is more than nothing and at most 8,000 years, not {given!s}")
    return millis


def format_duration(duration_ms: int) -> str:
    """The shortest text that `parse_duration` reads as the same length."""
    for unit in _FORMATTED:
        if duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    raise AssertionError(duration_ms)
