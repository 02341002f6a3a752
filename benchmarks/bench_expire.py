"""Dropping one of 30 days: by expiry from 600 and from 60,000 segments, beside Delta's delete.

Both change metadata only: the files go later, ours by whole prefixes, Delta's by vacuum. Every drop
is one day more, so the table shrinks as it is measured.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_data
import numpy as np
import pyarrow as pa
from bench_planning import ROWS, SEGMENT_MS, _low, _PageMaker
from bench_report import Verdict, median, ms, table, verdicts

import strandline
from strandline.tableformat import codec, paths
from strandline.tableformat.manifest import CommitRecord
from strandline.tableformat.segments import WindowEntry
from strandline.tableformat.windows import DAY_MS, window_of

if TYPE_CHECKING:
    import argparse

DAYS, PER_DAY, MEASURED = 30, 20, 12
TTL_DAYS = 7
"""A TTL of a week has windows of a day; older rows are there until the first expiry."""
FIRST_DAY = bench_data.START_MS - bench_data.START_MS % DAY_MS


def run(root: Path, options: argparse.Namespace) -> bool:
    """Build the tables, drop day after day, compare."""
    large = 6_000 if options.quick else 60_000
    # In turns, so that whatever else the machine does meets both.
    few = _Drops(_built(root / "ours"), FIRST_DAY)
    many = _Drops(_built_without_data(root / "many", large), _low(0) - _low(0) % DAY_MS)
    for day in range(MEASURED):
        few.drop(day)
        many.drop(day)
    ours, theirs = few.results(), many.results()
    rows = [("strandline", 600, *ours), ("strandline", large, *theirs)]
    found = [
        Verdict("0 data bytes written", f"{ours[1]} bytes", ours[1] == 0),
        Verdict("≤ 9.7 ms", f"{ms(ours[0])} ms", ours[0] <= 0.0097),
        Verdict(
            f"{large:,} segments as fast as 600 (within half)",
            f"{theirs[0] / ours[0]:.2f} ×",
            theirs[0] <= 1.5 * ours[0],
        ),
    ]
    if importlib.util.find_spec("deltalake"):
        delta = _delta(root / "delta")
        rows.append(("deltalake", 600, delta, 0, float("nan")))
        found.append(Verdict("≤ Delta's delete", f"{ours[0] / delta:.2f} ×", ours[0] <= delta))
    table(
        ["one day of 30", "segments", "ms", "data bytes", "prefix removed ms"],
        [(name, f"{n:,}", ms(took), size, ms(gone)) for name, n, took, size, gone in rows],
    )
    return verdicts(found)


def _day(number: int, part: int) -> pa.Table:
    """A few rows of a day."""
    start = FIRST_DAY + number * DAY_MS + part * DAY_MS // PER_DAY
    times = pa.array((np.arange(10) * 1000 + start) * 1000, bench_data.SCHEMA.field("ts").type)
    rows = bench_data.events(10, first_id=(number * PER_DAY + part) * 10)
    return rows.set_column(0, bench_data.SCHEMA.field("ts"), times)


def _built(path: Path) -> Any:
    made = strandline.create_table(path, bench_data.SCHEMA, time_column="ts", ttl=f"{TTL_DAYS}d")
    for part in range(PER_DAY):
        for day in range(DAYS):
            made.append(_day(day, part))
    assert made.scan().count() == DAYS * PER_DAY * 10
    return made


class _Drops:
    """Drops of one day after the other from one table."""

    def __init__(self, given: Any, first_day: int) -> None:
        self.given, self.first_day = given, first_day
        self.seconds: list[float] = []
        self.before = _data_bytes(given)

    def drop(self, day: int) -> None:
        now = self.first_day + (day + 1 + TTL_DAYS) * DAY_MS
        begun = time.perf_counter()
        report = self.given.expire(now)
        self.seconds.append(time.perf_counter() - begun)
        assert report.segments_hidden >= 1
        assert report.prefixes_removed == ()

    def results(self) -> tuple[float, int, float]:
        """Seconds of a drop, bytes of data it wrote, seconds to remove the prefix of a day."""
        written = _data_bytes(self.given) - self.before
        begun = time.perf_counter()
        last = self.first_day + (MEASURED + TTL_DAYS) * DAY_MS
        removed = self.given.expire(last, grace=0).prefixes_removed
        gone = (time.perf_counter() - begun) / max(1, len(removed))
        return median(self.seconds), written, gone


def _data_bytes(given: Any) -> int:
    root = Path(given.url)
    return sum(f.stat().st_size for f in root.glob("w*/**/*") if f.is_file())


def _built_without_data(path: Path, count: int) -> Any:
    """Metadata of segments of a minute each, a page for each day, as merging leaves them."""
    made = strandline.create_table(path, bench_data.SCHEMA, time_column="ts", ttl=f"{TTL_DAYS}d")
    snapshot, storage = made._head, made._chain.storage  # noqa: SLF001 - no public way in
    head = snapshot.manifest
    maker, windows, number = _PageMaker(head), [], 0
    while number < count:
        window = window_of(_low(number), head.config.window_ms)
        size = min(count - number, -(-(window.end_ms - _low(number)) // SEGMENT_MS))
        name = paths.segment_page_path(1, f"{number:016x}")
        ref, data = maker.page(name, number, size)
        storage.write_new(name, data).wait()
        (path / window.prefix).mkdir()
        windows.append(WindowEntry(window=window, pages=(ref,)))
        number += size
    record = CommitRecord(
        version=2,
        commit_id="0" * 32,
        committed_at=head.commit.committed_at + 1,
        operation="append",
        rows=count * ROWS,
        first_seq=0,
    )
    manifest = replace(
        head,
        version=2,
        parent_xxh64=snapshot.xxh64,
        commit=record,
        history=(record, *head.history),
        next_seq=count * ROWS,
        last_ts=_low(count) - 1,
        windows=tuple(windows),
    )
    storage.put_if_absent(paths.manifest_path(2), codec.encode_document(manifest.to_json()))
    return strandline.open_table(path)


def _delta(path: Path) -> float:
    """Seconds to delete a day from a table partitioned by days: metadata only, too."""
    import deltalake

    for part in range(PER_DAY):
        batch = pa.concat_tables(
            _day(day, part).append_column("day", pa.array([f"{day:02}"] * 10))
            for day in range(DAYS)
        )
        deltalake.write_deltalake(str(path), batch, mode="append", partition_by=["day"])
    given = deltalake.DeltaTable(str(path))
    assert len(given.file_uris()) == DAYS * PER_DAY
    seconds = []
    for day in range(MEASURED):
        begun = time.perf_counter()
        given.delete(f"day = '{day:02}'")
        seconds.append(time.perf_counter() - begun)
    assert len(given.file_uris()) == (DAYS - MEASURED) * PER_DAY
    return median(seconds)
