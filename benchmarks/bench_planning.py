"""Planning a 1-hour range over 100,000 and 1,000,000 segments of one minute each.

The metadata is written by each format's own encoder, without data files: planning opens none.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_data
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench_report import Verdict, median, ms, say, table, verdicts

if TYPE_CHECKING:
    import argparse

SEGMENT_MS, ROWS = 60_000, 1_000
HOUR_MS = 3_600_000
PAGE_SIZES = (32_768, 4_096, 512, 64)
"""What merging in tiers leaves of many appends."""
PROCESSES = 7


def run(root: Path, options: argparse.Namespace) -> bool:
    """Build the tables, then plan in fresh processes."""
    small, large = (10_000, 100_000) if options.quick else (100_000, 1_000_000)
    for count in (small, large):
        begun = time.perf_counter()
        _build_strandline(root / f"strandline-{count}", count)
        say(f"strandline: metadata of {count:,} segments in {time.perf_counter() - begun:.0f} s")
    begun = time.perf_counter()
    _build_delta(root / "delta", small)
    say(f"deltalake: metadata of {small:,} files in {time.perf_counter() - begun:.0f} s")
    first = bench_data.START_MS + small // 2 * SEGMENT_MS
    jobs = [
        ("strandline", root / f"strandline-{small}", small),
        ("deltalake", root / "delta", small),
        ("strandline", root / f"strandline-{large}", large),
    ]
    found: list[list[dict[str, Any]]] = [[] for _ in jobs]
    for turn in range(PROCESSES + 1):
        for answers, (library, path, _count) in zip(found, jobs, strict=True):
            answer = _plan(library, path, first, first + HOUR_MS - 1)
            if turn:  # whoever is first may have to compile what it imports
                answers.append(answer)
    for answers in found:
        wrong = {a["files"] for a in answers} - {60}
        if wrong:
            say(f"a plan found {wrong} files, not 60")
            return False
    cold = [median([a["cold"] for a in answers]) for answers in found]
    warm = [median([median(a["warm"]) for a in answers]) for answers in found]
    table(
        ["1-hour range (60 files)", "segments", "cold ms", "best cold", "warm ms"],
        [
            (library, f"{count:,}", ms(cold[i]), ms(min(a["cold"] for a in found[i])), ms(warm[i]))
            for i, (library, _path, count) in enumerate(jobs)
        ],
    )
    ours, theirs, importing = _import_times()
    say(f"import strandline {importing}")
    return verdicts(
        [
            Verdict(
                "cold ≤ 1/10 of Delta's", f"1/{cold[1] / cold[0]:.0f}", cold[0] <= cold[1] / 10
            ),
            Verdict(
                "warm ≤ 1/50 of Delta's", f"1/{warm[1] / warm[0]:.0f}", warm[0] <= warm[1] / 50
            ),
            Verdict(f"{large:,} cold ≤ 100 ms", f"{ms(cold[2])} ms", cold[2] <= 0.1),
            Verdict(
                "import ≤ 200 ms",
                f"{ms(ours)} ms, {ms(theirs)} of it numpy and pyarrow",
                ours <= 0.2,
            ),
        ]
    )


def _plan(library: str, path: Path, first: int, last: int) -> dict[str, Any]:
    child = Path(__file__).with_name("bench_plan_child.py")
    command = [sys.executable, str(child), library, str(path), str(first), str(last)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _import_times() -> tuple[float, float, str]:
    """Seconds to import strandline, and numpy with pyarrow alone, without starting Python."""

    def seconds(modules: str) -> list[float]:
        clock = "time.perf_counter()"
        code = f"import time; t = {clock}; import {modules}; print({clock} - t)"
        return [
            float(subprocess.check_output([sys.executable, "-c", code], cwd="/"))  # noqa: S603
            for _ in range(PROCESSES)
        ]

    whole, below = seconds("strandline"), seconds("numpy, pyarrow")
    told = f"median {ms(statistics.median(whole))} ms, best {ms(min(whole))} ms"
    return statistics.median(whole), statistics.median(below), told


# --- our metadata ------------------------------------------------------------------------------


def _build_strandline(path: Path, count: int) -> None:
    """Write the pages that merging in tiers would leave, and one manifest that lists them."""
    import strandline
    from strandline.tableformat import codec, paths
    from strandline.tableformat.manifest import CommitRecord
    from strandline.tableformat.segments import WindowEntry
    from strandline.tableformat.windows import window_of

    created = strandline.create_table(path, bench_data.SCHEMA, time_column="ts")
    snapshot, storage = created._head, created._chain.storage  # noqa: SLF001 - no public way in
    head = snapshot.manifest
    maker = _PageMaker(head)
    windows, inline, number = [], [], 0
    while number < count:
        window = window_of(_low(number), head.config.window_ms)
        in_window = min(count - number, -(-(window.end_ms - _low(number)) // SEGMENT_MS))
        refs = []
        for size in PAGE_SIZES:
            while in_window >= size:
                name = paths.segment_page_path(1, f"{number:016x}")
                ref, data = maker.page(name, number, size)
                storage.write_new(name, data).wait()
                refs.append(ref)
                number += size
                in_window -= size
        inline += [maker.entry(n) for n in range(number, number + in_window)]
        number += in_window
        if refs:
            windows.append(WindowEntry(window=window, pages=tuple(refs)))
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
        segments=tuple(inline),
    )
    storage.put_if_absent(paths.manifest_path(2), codec.encode_document(manifest.to_json()))


def _low(number: int) -> int:
    return bench_data.START_MS + number * SEGMENT_MS


class _PageMaker:
    """Pages by our own encoder.

    It takes minutes for a million entries with stats, so the first page of each size is a model:
    later ones differ from it in the columns that count up.
    """

    def __init__(self, head: Any) -> None:
        from strandline.writers.segment_file import encode_segment

        self._head = head
        times = np.arange(ROWS) * bench_data.ROW_EVERY_MS + bench_data.START_MS
        rows = bench_data.events(ROWS)
        self._file = encode_segment(rows, head.schema, head.config, ts_ms=times)
        self._models: dict[int, Any] = {}

    def entry(self, number: int) -> Any:
        """A segment of one minute, with the stats of real rows and bounds of its own."""
        from strandline.tableformat import paths
        from strandline.tableformat.segments import SegmentEntry
        from strandline.tableformat.stats import ColumnStats
        from strandline.tableformat.windows import window_of

        schema, file = self._head.schema, self._file
        low, high, first = _low(number), _low(number + 1) - 1, number * ROWS
        own = {
            schema.column("ts"): ColumnStats(low * 1000, high * 1000, 0),
            schema.column("event_id"): ColumnStats(first, first + ROWS - 1, 0),
        }
        window = window_of(low, self._head.config.window_ms)
        return SegmentEntry(
            path=paths.segment_path(window, 0, "batch", 1, f"{number:016x}"),
            window=window,
            shard=0,
            row_count=ROWS,
            size_bytes=len(file.data),
            min_seq=first,
            max_seq=first + ROWS - 1,
            min_ts=low,
            max_ts=high,
            column_stats=file.column_stats
            | {str(column.id): found.to_json(column.type) for column, found in own.items()},
            footer_bytes=file.footer_bytes,
            footer_xxh64=file.footer_xxh64,
            schema_id=schema.id,
            created_at=self._head.commit.committed_at + 1,
        )

    def page(self, name: str, number: int, size: int) -> tuple[Any, bytes]:
        """The page that lists `size` segments from `number` on, and its reference."""
        from strandline.tableformat import codec, pages
        from strandline.tableformat.segments import PageRef, summarize

        if size not in self._models:
            model = pages.encode_page([self.entry(n) for n in range(size)], self._head.schema)
            self._models[size] = pq.read_table(pa.BufferReader(model))
        rows = self._models[size]
        ends = [self.entry(number), self.entry(number + size - 1)]
        numbers = np.arange(number, number + size, dtype=np.int64)
        prefix, _, _ = ends[0].path.rpartition("-")
        ts, event = (self._head.schema.column(n).id for n in ("ts", "event_id"))
        first, low = numbers * ROWS, _low(0) + numbers * SEGMENT_MS
        last, high = first + ROWS - 1, low + SEGMENT_MS - 1
        counted = {
            "path": pa.array([f"{prefix}-{n:016x}.parquet" for n in numbers.tolist()]),
            "min_seq": first,
            "max_seq": last,
            "min_ts": low,
            "max_ts": high,
            f"c{ts}_min": low * 1000,
            f"c{ts}_max": high * 1000,
            f"c{event}_min": first,
            f"c{event}_max": last,
        }
        for column, values in counted.items():
            index = rows.schema.get_field_index(column)
            rows = rows.set_column(index, rows.schema.field(index), pa.array(values))
        data = pages.table_bytes(rows)
        summary = summarize(ends, self._head.schema)
        summary |= {"row_count": size * ROWS, "size_bytes": size * len(self._file.data)}
        checksum = codec.checksum(data)
        return PageRef(
            path=name, object_bytes=len(data), xxh64=checksum, entries=size, **summary
        ), data


# --- Delta's ---------------------------------------------------------------------------------


def _build_delta(path: Path, count: int) -> None:
    """One commit that adds all files, with the stats of a real one, and a checkpoint of it."""
    import deltalake

    model = path.with_name("delta-model")
    deltalake.write_deltalake(str(model), bench_data.events(ROWS))
    lines = []
    adds = []
    for line in (model / "_delta_log" / f"{0:020d}.json").read_text().splitlines():
        (adds if "add" in json.loads(line) else lines).append(line)
    add = json.loads(adds[0])["add"]
    stats = json.loads(add["stats"])
    for number in range(count):
        low = bench_data.START_MS + number * SEGMENT_MS
        for side, value in (("minValues", low), ("maxValues", low + SEGMENT_MS - 1)):
            stats[side]["ts"] = _iso(value)
        stats["minValues"]["event_id"] = number * ROWS
        stats["maxValues"]["event_id"] = number * ROWS + ROWS - 1
        action = {**add, "path": f"part-{number:08d}.parquet", "stats": json.dumps(stats)}
        lines.append(json.dumps({"add": action}))
    log = path / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("\n".join(lines))
    deltalake.DeltaTable(str(path)).create_checkpoint()


def _iso(ms_since_1970: int) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms_since_1970 // 1000))
    return f"{whole}.{ms_since_1970 % 1000:03d}Z"
