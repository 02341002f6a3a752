"""`_ts`: whose clock counts, the cap, the clamp, and when it must be stored."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat.errors import InvalidInput, InvalidRow
from strandline.tableformat.timestamps import MODES, TS_LIMIT_MS, Stamped, derive, stamp
from strandline.tableformat.types import ColumnType

NOW = 1_700_000_000_000
MS = ColumnType("int64")
US = ColumnType("timestamptz")


def column(values: list[int | None], kind: ColumnType = MS, chunk: int = 2) -> pa.ChunkedArray:
    """A time column in several chunks, each a slice of a larger array."""
    arrow = (
        pa.int64() if kind is MS else pa.timestamp("us", tz=None if kind.name[-1] == "p" else "UTC")
    )
    whole = pa.array([7, None, *values], pa.int64()).cast(arrow)
    parts = [whole.slice(2 + i, min(chunk, len(values) - i)) for i in range(0, len(values), chunk)]
    return pa.chunked_array(parts, arrow)


def stamped(
    values: list[int | None],
    kind: ColumnType = MS,
    *,
    mode: str = "client-prefer",
    uncapped: bool = True,
    order: str = "event_time",
    tail: int | None = None,
) -> Stamped:
    """`stamp` with the defaults of these tests."""
    return stamp(
        column(values, kind),
        kind,
        rows=len(values),
        mode=mode,
        uncapped=uncapped,
        order=order,
        now_ms=NOW,
        tail_ts_ms=tail,
        field="at",
    )


times = st.integers(0, TS_LIMIT_MS - 1)


@settings(deadline=None)
@given(
    values=st.lists(st.none() | times, max_size=12),
    mode=st.sampled_from(["client-prefer", "arrival"]),
    uncapped=st.booleans(),
    order=st.sampled_from(["event_time", "clamp"]),
    tail=st.none() | times,
)
def test_ts_follows_the_rules_row_by_row(
    *, values: list[int | None], mode: str, uncapped: bool, order: str, tail: int | None
) -> None:
    """[O2] The vectorised answer is what the rules give one row at a time."""
    expected: list[int] = []
    for value in values:
        ts = NOW if value is None or mode == "arrival" else value
        ts = ts if uncapped else min(ts, NOW)
        if order == "clamp":
            ts = max(ts, -1 if tail is None else tail, *expected[-1:])
        expected.append(ts)

    result = stamped(values, mode=mode, uncapped=uncapped, order=order, tail=tail)

    assert result.ts_ms.dtype == np.int64
    assert result.ts_ms.tolist() == expected
    assert result.differs == (expected != values)


@settings(deadline=None)
@given(st.lists(st.integers(0, TS_LIMIT_MS * 1000 - 1), min_size=1, max_size=9))
def test_microseconds_are_floored(values: list[int]) -> None:
    """[O2] A reader derives the same `_ts` from a timestamp column, so none is stored."""
    for kind in (US, ColumnType("timestamp")):
        result = stamped(list(values), kind)

        assert result.ts_ms.tolist() == [us // 1000 for us in values]
        assert not result.differs
        assert derive(column(list(values), kind), kind).tolist() == result.ts_ms.tolist()


@pytest.mark.parametrize("kind", [MS, US])
@pytest.mark.parametrize("bad", [-1, TS_LIMIT_MS, -(1 << 63), (1 << 63) - 1])
def test_times_outside_the_calendar_are_refused(kind: ColumnType, bad: int) -> None:
    """[E1] The error names the row and the value: negative, year 10000, the ends of 64 bits."""
    scale = 1 if kind is MS else 1000
    raw = max(-(1 << 63), min((1 << 63) - 1, bad * scale))

    with pytest.raises(InvalidRow) as caught:
        stamped([5, None, 5, raw, 5], kind)

    assert (caught.value.row, caught.value.field) == (3, "at")
    assert str(raw // scale) in caught.value.reason


@pytest.mark.parametrize("kind", [MS, US])
def test_the_first_and_the_last_millisecond_are_accepted(kind: ColumnType) -> None:
    """[O2] 1970-01-01T00:00:00.000 and 9999-12-31T23:59:59.999 are times like others."""
    scale = 1 if kind is MS else 1000

    result = stamped([0, (TS_LIMIT_MS - 1) * scale + scale - 1], kind)

    assert result.ts_ms.tolist() == [0, TS_LIMIT_MS - 1]


def test_a_microsecond_before_1970_is_before_1970() -> None:
    """[O2] Flooring does not lift -1 µs to 0."""
    with pytest.raises(InvalidRow):
        stamped([-1], US)


def test_what_lies_under_a_null_does_not_matter() -> None:
    """A null's slot may hold anything, even a refused time, or by chance the clock's."""
    for under in (-5, 1 << 62, NOW):
        garbage = pa.array(np.array([under, 8]), mask=np.array([True, False]))

        result = stamp(
            pa.chunked_array([garbage]),
            MS,
            rows=2,
            mode="client-prefer",
            uncapped=True,
            order="event_time",
            now_ms=NOW,
            tail_ts_ms=None,
        )

        assert result.ts_ms.tolist() == [NOW, 8]
        assert result.differs


def test_the_cap_starts_one_millisecond_after_now() -> None:
    """[O2] Without `uncapped`, no row is later than the clock, and the column stays as it was."""
    result = stamped([NOW, NOW + 1], uncapped=False)

    assert result.ts_ms.tolist() == [NOW, NOW]
    assert result.differs
    assert not stamped([NOW], uncapped=False).differs
    assert stamped([NOW + 1], uncapped=True).ts_ms.tolist() == [NOW + 1]


def test_client_require_refuses_a_null_and_names_the_first() -> None:
    """[O2] [E1] With `client-require` every row brings its time."""
    with pytest.raises(InvalidRow) as caught:
        stamped([1, 2, None, None], mode="client-require")

    assert (caught.value.row, caught.value.field) == (2, "at")
    assert stamped([1, 2], mode="client-require").ts_ms.tolist() == [1, 2]


def test_arrival_does_not_look_at_the_column() -> None:
    """[O2] Under `arrival` even an impossible time in the column is only data."""
    result = stamped([-5, None, (1 << 63) - 1], mode="arrival")

    assert result.ts_ms.tolist() == [NOW] * 3
    assert result.differs
    assert not stamped([NOW, NOW], mode="arrival").differs


def test_all_nulls_and_no_column_get_the_clock() -> None:
    """[O2] Without a time of their own, rows carry the time of arrival, and it is stored."""
    assert stamped([None, None]).ts_ms.tolist() == [NOW, NOW]
    arguments: dict[str, Any] = {"uncapped": False, "order": "clamp", "now_ms": NOW}

    result = stamp(None, None, rows=2, mode="client-prefer", tail_ts_ms=NOW + 5, **arguments)

    assert result.ts_ms.tolist() == [NOW + 5, NOW + 5]
    assert result.differs
    with pytest.raises(InvalidInput, match="time column"):
        stamp(None, None, rows=2, mode="client-require", tail_ts_ms=None, **arguments)


@pytest.mark.parametrize("mode", MODES)
def test_no_rows_need_no_stored_ts(mode: str) -> None:
    """An empty batch has empty times."""
    result = stamped([], mode=mode, order="clamp", tail=5)

    assert result.ts_ms.tolist() == []
    assert not result.differs


def test_settings_and_types_that_do_not_exist_are_refused() -> None:
    """A misspelt mode must not pass for the default."""
    for wrong in ({"mode": "client"}, {"order": "sorted"}):
        with pytest.raises(InvalidInput):
            stamped([1], **wrong)
    with pytest.raises(InvalidInput, match="date"):
        stamp(
            pa.chunked_array([pa.array([1], pa.date32())]),
            ColumnType("date"),
            rows=1,
            mode="client-prefer",
            uncapped=True,
            order="event_time",
            now_ms=NOW,
            tail_ts_ms=None,
        )
    with pytest.raises(InvalidInput, match="nulls"):
        derive(column([None]), MS)


def test_times_in_order_are_not_copied() -> None:
    """One chunk of milliseconds is used in place."""
    times = pa.chunked_array([pa.array([1, 2, 3])])

    result = stamp(
        times,
        MS,
        rows=3,
        mode="client-prefer",
        uncapped=False,
        order="clamp",
        now_ms=NOW,
        tail_ts_ms=1,
    )

    assert result.ts_ms.ctypes.data == times.chunk(0).buffers()[1].address


def test_stamping_does_not_load_pandas() -> None:
    """A producer that hands in Arrow does not pay for pandas."""
    code = (
        "import sys, numpy as np, pyarrow as pa\n"
        "from strandline.tableformat import timestamps, types, windows\n"
        "raw = pa.py_buffer(np.arange(4))\n"
        "at = pa.chunked_array([pa.Array.from_buffers(pa.timestamp('us'), 4, [None, raw])])\n"
        "out = timestamps.stamp(at, types.ColumnType('timestamp'), rows=4, mode='client-prefer',"
        " uncapped=False, order='clamp', now_ms=9, tail_ts_ms=1)\n"
        "windows.split_by_window(out.ts_ms, 2)\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
