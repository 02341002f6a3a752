"""Windows: their length, their names, and how a batch falls into them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.tableformat.errors import CorruptTable, InvalidInput, TooManyWindows
from strandline.tableformat.timestamps import TS_LIMIT_MS
from strandline.tableformat.windows import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    MONTH_MS,
    WEEK_MS,
    Window,
    format_duration,
    parse_duration,
    parse_prefix,
    split_by_window,
    window_ms_for_ttl,
    window_of,
)


@pytest.mark.parametrize(
    ("ttl_ms", "length"),
    [
        (1, MINUTE_MS),
        (15 * MINUTE_MS, MINUTE_MS),
        (15 * MINUTE_MS + 1, HOUR_MS),
        (DAY_MS, HOUR_MS),
        (DAY_MS + 1, DAY_MS),
        (7 * DAY_MS, DAY_MS),
        (7 * DAY_MS + 1, WEEK_MS),
        (30 * DAY_MS, WEEK_MS),
        (30 * DAY_MS + 1, MONTH_MS),
        (None, MONTH_MS),
    ],
)
def test_the_length_follows_the_ttl_in_five_steps(ttl_ms: int | None, length: int) -> None:
    """[K1] Each step ends exactly where it says, one millisecond later the next one begins."""
    assert window_ms_for_ttl(ttl_ms) == length
    assert (MINUTE_MS, HOUR_MS, DAY_MS, WEEK_MS) == (60_000, 3_600_000, 86_400_000, 604_800_000)


# --- names ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, TS_LIMIT_MS - 1), st.integers(1, TS_LIMIT_MS))
def test_a_window_holds_its_time_and_its_name_reads_back(ts_ms: int, duration_ms: int) -> None:
    """[K1] Any time lies in exactly one window of a length, and the folder's name is enough."""
    window = window_of(ts_ms, duration_ms)

    assert window.start_ms <= ts_ms < window.end_ms
    assert window.start_ms % duration_ms == 0
    assert parse_prefix(window.prefix) == window


def test_a_boundary_belongs_to_the_later_window() -> None:
    """[K1] The start is inside, the end is not."""
    assert window_of(HOUR_MS - 1, HOUR_MS).prefix == "w0-3600000"
    assert window_of(HOUR_MS, HOUR_MS).prefix == "w3600000-3600000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w",
        "w0",
        "w0-",
        "w0-0",
        "w-0-60000",
        "w00-60000",
        "w060000-60000",
        "w60000-060000",
        "w30000-60000",
        "W0-60000",
        "w0-60000\n",
        "w0-60000/",
        " w0-60000",
        "w+0-60000",
        "w0-60_000",
        "w\u0660-60000",
        "w253402300800000-60000",
        "w0-253402300800001",
        "w0-99999999999999999999",
        "w" + "9" * 5000 + "-1",
    ],
)
def test_only_the_one_spelling_of_a_prefix_is_read(text: str) -> None:
    """[K1] Zeros in front, strange digits, wrong alignment and far futures are refused."""
    with pytest.raises(CorruptTable):
        parse_prefix(text)


# --- splitting --------------------------------------------------------------------------------


def _rows(rows: slice | np.ndarray[Any, Any], length: int) -> list[int]:
    return list(range(*rows.indices(length))) if isinstance(rows, slice) else rows.tolist()


@settings(deadline=None)
@given(
    times=st.lists(st.integers(0, 40 * MINUTE_MS), max_size=60),
    duration_ms=st.sampled_from([MINUTE_MS, 7 * MINUTE_MS, HOUR_MS]),
    in_order=st.booleans(),
    base=st.sampled_from([0, TS_LIMIT_MS // HOUR_MS * HOUR_MS - HOUR_MS]),
)
def test_every_row_is_in_its_window_once_and_in_order(
    *, times: list[int], duration_ms: int, in_order: bool, base: int
) -> None:
    """[K1] The parts are the windows in order, each with exactly its rows in row order."""
    ts_ms = np.array(sorted(times) if in_order else times, np.int64) + base

    parts = split_by_window(ts_ms, duration_ms)

    assert [window for window, _ in parts] == sorted(
        {window_of(int(t), duration_ms) for t in ts_ms}
    )
    for window, rows in parts:
        expected = [i for i, t in enumerate(ts_ms) if window.start_ms <= t < window.end_ms]
        assert _rows(rows, len(ts_ms)) == expected
        assert isinstance(rows, slice) == (expected == list(range(expected[0], expected[-1] + 1)))


def test_rows_of_a_large_unordered_batch_keep_their_order() -> None:
    """Sorting rows into windows must not shuffle them inside a window."""
    ts_ms = np.random.default_rng(1).integers(0, 5 * HOUR_MS, 10_000)

    for window, rows in split_by_window(ts_ms, HOUR_MS):
        inside = (ts_ms >= window.start_ms) & (ts_ms < window.end_ms)
        assert np.array_equal(rows, np.flatnonzero(inside))


def test_windows_far_apart_are_split_like_near_ones() -> None:
    """A batch may hold the first and the last minute there is."""
    ts_ms = np.array([TS_LIMIT_MS - 1, 0, TS_LIMIT_MS - 2], np.int64)

    parts = split_by_window(ts_ms, MINUTE_MS)

    assert [_rows(rows, 3) for _, rows in parts] == [[1], [0, 2]]


def test_no_rows_fall_into_no_windows() -> None:
    """An empty batch touches nothing."""
    assert split_by_window(np.empty(0, np.int64), HOUR_MS) == []


@pytest.mark.parametrize("step", [MINUTE_MS, 1000 * DAY_MS])
def test_one_commit_touches_at_most_256_windows(step: int) -> None:
    """[K1] 256 windows are fine; one more is refused and the error names both extremes."""
    ts_ms = np.arange(256, dtype=np.int64) * step
    assert len(split_by_window(ts_ms, MINUTE_MS)) == 256

    with pytest.raises(TooManyWindows) as caught:
        split_by_window(np.append(ts_ms, 256 * step)[::-1], MINUTE_MS)

    assert caught.value.args == (257, 256, 0, 256 * step)


# --- lengths of time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_as", "millis"),
    [
        ("60s", 60_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("250ms", 250),
        (" 7d ", 604_800_000),
        (timedelta(days=7), 604_800_000),
        (timedelta(milliseconds=1), 1),
    ],
)
def test_durations_are_read_with_their_unit(given_as: object, millis: int) -> None:
    """A TTL is text with a unit, or a timedelta."""
    assert parse_duration(given_as) == millis


@pytest.mark.parametrize(
    "given_as",
    [
        7,
        7.5,
        True,
        None,
        b"7d",
        "",
        "7",
        "d",
        "-7d",
        "0s",
        "7 d",
        "7D",
        "7.5d",
        "7d12h",
        "\u0667d",
        "1e3s",
        "9" * 15 + "w",
        "9" * 5000 + "s",
        timedelta(0),
        timedelta(days=-1),
        timedelta(microseconds=1500),
        timedelta.max,
        ["7d"],
    ],
)
def test_other_durations_are_refused_with_an_example(given_as: object) -> None:
    """A number without a unit is not guessed: a TTL in the wrong unit deletes data."""
    with pytest.raises(InvalidInput, match=r"^ttl is ") as caught:
        parse_duration(given_as, "ttl")

    assert len(str(caught.value)) < 200


@settings(deadline=None)
@given(st.integers(1, TS_LIMIT_MS))
def test_a_formatted_duration_reads_back(millis: int) -> None:
    """What we print can be typed in again."""
    assert parse_duration(format_duration(millis)) == millis


def test_durations_are_formatted_in_their_largest_whole_unit() -> None:
    """People read 7d, not 604800000."""
    shown = [format_duration(ms) for ms in (7 * DAY_MS, 90 * MINUTE_MS, 60_000, 1500, WEEK_MS * 2)]
    assert shown == ["7d", "90m", "1m", "1500ms", "14d"]


def test_a_window_cannot_be_made_out_of_line() -> None:
    """Wherever windows come from, they are aligned to the epoch."""
    for start, duration in ((-60_000, 60_000), (1, 60_000), (0, 0), (TS_LIMIT_MS, 1)):
        with pytest.raises(CorruptTable):
            Window(start, duration)
