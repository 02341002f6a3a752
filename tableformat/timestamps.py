"""Which time each row gets: `_ts`, in milliseconds since the epoch.

Windows, the retention floor and the order of a stream stand on `_ts`. It comes from the table's
time column; the clock comes in as an argument. Buffers are read through numpy, since converting
through pyarrow would load pandas into every producer process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.tableformat.errors import InvalidInput, InvalidRow

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.tableformat.types import ColumnType

    Int64s = np.ndarray[Any, np.dtype[np.int64]]
    Bools = np.ndarray[Any, np.dtype[np.bool_]]

TS_LIMIT_MS: Final = 253_402_300_800_000
"""The first millisecond of the year 10000: every `_ts` is below it and at least 0."""

MODES: Final = ("client-prefer", "client-require", "arrival")
ORDERS: Final = ("event_time", "clamp")
_US_PER_MS: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Stamped:
    """The `_ts` of a batch of rows."""

    ts_ms: Int64s
    """It may look into the time column's own memory: do not write to it."""

    differs: bool
    """Whether `_ts` is more than a reader can derive from the stored time column."""


def stamp(
    times: pa.ChunkedArray | None,
    kind: ColumnType | None,
    *,
    rows: int,
    mode: str,
    uncapped: bool,
    order: str,
    now_ms: int | Int64s,
    tail_ts_ms: int | None,
    field: str = "_ts",
) -> Stamped:
    """Give every row its `_ts`. `now_ms`: when they arrived, together or each on its own.

    The mode says whose clock counts, the cap keeps wrong clocks out of the future, the order
    decides whether a row may be older than the one before. Clamping comes last and wins over the
    cap: a stream that never goes back is a promise to readers, the cap only guards against typos.
    """
    if mode not in MODES or order not in ORDERS:
        raise InvalidInput(f"mode {mode!r} must be one of {MODES}, order {order!r} of {ORDERS}")
    if times is None or kind is None:
        if mode == "client-require":
            raise InvalidInput("mode 'client-require' needs a time column, and there is none")
        ts_ms, derived, nulls = np.full(rows, now_ms, np.int64), None, None
    else:
        derived, nulls = _derived(times, kind)
        ts_ms = _client_times(derived, nulls, mode, now_ms, field)
    if not uncapped and (ts_ms > now_ms).any():
        ts_ms = np.minimum(ts_ms, now_ms)
    if order == "clamp":
        ts_ms = _clamped(ts_ms, tail_ts_ms)
    return Stamped(ts_ms, differs=_differs(ts_ms, derived, nulls))


def derive(times: pa.ChunkedArray, kind: ColumnType) -> Int64s:
    """`_ts` as a reader finds it in a time column without nulls, where it was not stored."""
    derived, nulls = _derived(times, kind)
    if nulls is not None:
        raise InvalidInput("the time column holds nulls, so its rows must carry a stored _ts")
    return derived


def _client_times(
    derived: Int64s, nulls: Bools | None, mode: str, now_ms: int | Int64s, field: str
) -> Int64s:
    if mode == "arrival":
        return np.full(len(derived), now_ms, np.int64)
    if nulls is None:
        ts_ms = derived
    elif mode == "client-require":
        reason = "it is null, and the table takes its times from this column only"
        raise InvalidRow(int(nulls.argmax()), field, reason)
    else:
        ts_ms = np.where(nulls, now_ms, derived)
    if ts_ms.size and (ts_ms.min() < 0 or ts_ms.max() >= TS_LIMIT_MS):
        row = int(((ts_ms < 0) | (ts_ms >= TS_LIMIT_MS)).argmax())
        raise InvalidRow(
            row,
            field,
            f"{ts_ms[row]} ms since 1970 is not between the years 1970 and 9999 (a time column of "
            "integers counts milliseconds)",
        )
    return ts_ms


def _clamped(ts_ms: Int64s, tail_ts_ms: int | None) -> Int64s:
    if not ts_ms.size:
        return ts_ms
    if (tail_ts_ms is None or ts_ms[0] >= tail_ts_ms) and bool((ts_ms[1:] >= ts_ms[:-1]).all()):
        return ts_ms  # in order already: nothing is copied
    raised = np.maximum.accumulate(ts_ms)
    return raised if tail_ts_ms is None else np.maximum(raised, tail_ts_ms)


def _differs(ts_ms: Int64s, derived: Int64s | None, nulls: Bools | None) -> bool:
    if not ts_ms.size or ts_ms is derived:
        return False
    return derived is None or nulls is not None or not np.array_equal(ts_ms, derived)


# --- reading the column -----------------------------------------------------------------------


def _derived(times: pa.ChunkedArray, kind: ColumnType) -> tuple[Int64s, Bools | None]:
    """The column in milliseconds, and which rows are null (None: no row is)."""
    if kind.name not in ("int64", "timestamp", "timestamptz"):
        raise InvalidInput(
            f"a time column is int64 (milliseconds), timestamp or timestamptz, not {kind}"
        )
    parts = [_int64s(chunk) for chunk in times.chunks if len(chunk)]
    raw = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])
    # Floor, not truncation: half a millisecond before 1970 lies before 1970.
    derived = raw if kind.name == "int64" else raw // _US_PER_MS
    if not times.null_count:
        return derived, None
    return derived, np.concatenate([_null_mask(chunk) for chunk in times.chunks])


def _int64s(array: pa.Array) -> Int64s:
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def _null_mask(array: pa.Array) -> Bools:
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    valid = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    nulls: Bools = valid[array.offset :] == 0
    return nulls
