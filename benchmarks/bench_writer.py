"""A producer's writer: acknowledged appends, latency beside a flush, memory, and a long stream."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_data
import pyarrow as pa
import pyarrow.parquet as pq
from bench_report import Verdict, ms, say, table, verdicts

import strandline

if TYPE_CHECKING:
    import argparse

ROW_COLUMNS = [name for name in bench_data.SCHEMA.names if name != "price"]
"""A row of plain values; decimals take the careful road, which is measured beside it."""
STREAM_BATCH = 10_000
MEMORY_BYTES = 64 * 2**20


def run(root: Path, options: argparse.Namespace) -> bool:
    """Everything in this process but the memory, which is measured in a process of its own."""
    scale = 10 if options.quick else 1
    found = [
        *_single_rows(root, 300_000 // scale),
        *_synced_rows(root, 4_000 // scale),
        *_batches(root, 2_000 // scale),
        *_latency(root, 200_000 // scale),
        *_stream(root, 10_000_000 // scale),
        *_memory(root, 4_000_000 // scale),
    ]
    return verdicts(found)


def _table(root: Path, name: str, columns: list[str] | None = None) -> Any:
    shutil.rmtree(root / name, ignore_errors=True)
    schema = bench_data.SCHEMA
    if columns is not None:
        schema = pa.schema([schema.field(column) for column in columns])
    return strandline.create_table(root / name, schema, time_column="ts")


def _rows(count: int, columns: list[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = bench_data.events(count).select(columns).to_pylist()
    for row in rows:
        row["ts"] = row["ts"].astimezone(UTC)
    return rows


def _rate(root: Path, name: str, rows: list[Any], columns: list[str], **options: Any) -> float:
    made = _table(root, name, columns)
    with made.writer(wal=str(root / f"{name}-wal"), **options) as writer:
        begun = time.perf_counter()
        for row in rows:
            writer.append(row)
        seconds = time.perf_counter() - begun
    _check(made, len(rows))
    return len(rows) / seconds


def _check(made: Any, rows: int) -> None:
    assert made.scan(columns=["event_id"]).count() == rows


def _single_rows(root: Path, count: int) -> list[Verdict]:
    rows = _rows(20_000, ROW_COLUMNS) * max(1, count // 20_000)
    plain = max(_rate(root, "single", rows, ROW_COLUMNS) for _ in range(3))
    careful = _rate(root, "careful", _rows(5_000, bench_data.SCHEMA.names), bench_data.SCHEMA.names)
    table(
        ["single rows, one thread, ack='wal'", "rows/s"],
        [("12 plain columns", f"{plain:,.0f}"), ("with a decimal", f"{careful:,.0f}")],
    )
    return [Verdict("single rows ≥ 100,000/s", f"{plain:,.0f}/s", plain >= 100_000)]


def _synced_rows(root: Path, each: int) -> list[Verdict]:
    rows = _rows(each, ROW_COLUMNS)
    made = _table(root, "synced", ROW_COLUMNS)
    wal = {"dir": str(root / "synced-wal"), "fsync": True}
    with made.writer(wal=wal) as writer:

        def produce() -> None:
            for row in rows:
                writer.append(row)

        threads = [threading.Thread(target=produce) for _ in range(8)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begun
        stats = writer.stats()
    _check(made, 8 * each)
    rate = 8 * each / seconds
    grouped = stats.records / max(1, stats.wal_syncs)
    say(f"8 threads with fsync: {rate:,.0f} rows/s, {grouped:.1f} rows per sync")
    return [Verdict("8 threads with fsync ≥ 5,000/s", f"{rate:,.0f}/s", rate >= 5_000)]


def _batches(root: Path, count: int) -> list[Verdict]:
    batch = bench_data.events(1_000)
    rates = []
    for _ in range(3):
        made = _table(root, "batches")
        with made.writer(wal=str(root / "batches-wal"), flush_rows=262_144) as writer:
            begun = time.perf_counter()
            for _ in range(count):
                writer.append(batch)
            rates.append(1_000 * count / (time.perf_counter() - begun))
        _check(made, 1_000 * count)
    rate = max(rates)
    return [
        Verdict("batches of 1,000 ≥ 1 M rows/s", f"{rate / 1e6:.2f} M rows/s", rate >= 1_000_000)
    ]


def _latency(root: Path, count: int) -> list[Verdict]:
    rows = _rows(20_000, ROW_COLUMNS)
    made = _table(root, "latency", ROW_COLUMNS)
    waits, beside = [], []
    with made.writer(
        wal={"dir": str(root / "latency-wal"), "buffered": True}, ack="buffered", flush_rows=16_384
    ) as writer:
        for number in range(count):
            row = rows[number % len(rows)]
            begun = time.perf_counter()
            writer.append(row)
            waited = time.perf_counter() - begun
            waits.append(waited)
            if writer.sync_state == "syncing":
                beside.append(waited)
    _check(made, count)
    beside.sort()
    waits.sort()
    p99 = beside[int(len(beside) * 0.99)]
    usual, rare = waits[len(waits) // 2], waits[int(count * 0.99)]
    say(
        f"append p50 {usual * 1e6:.0f} µs, p99 {rare * 1e6:.0f} µs; beside a flush "
        f"({len(beside)} of {count} appends): p99 {p99 * 1e6:.0f} µs, slowest {ms(beside[-1])} ms"
    )
    return [Verdict("append p99 < 1 ms beside a flush", f"{ms(p99)} ms", p99 < 0.001)]


def _stream(root: Path, count: int) -> list[Verdict]:
    """Validated, logged, committed, against writing the same batches as plain Parquet."""
    whole = bench_data.events(1_000_000)
    batches = [whole.slice(i, STREAM_BATCH) for i in range(0, whole.num_rows, STREAM_BATCH)]
    rounds = count // whole.num_rows
    begun = time.perf_counter()
    for number in range(rounds):
        pq.write_table(
            pa.concat_tables(batches), root / f"raw-{number}.parquet", compression="zstd"
        )
    raw = count / (time.perf_counter() - begun)
    made = _table(root, "stream")
    begun = time.perf_counter()
    with made.writer(
        wal=str(root / "stream-wal"), flush_rows=1_000_000, flush_bytes=2**30, memory_bytes=2**30
    ) as writer:
        for _ in range(rounds):
            for batch in batches:
                writer.append(batch)
        acknowledged = time.perf_counter() - begun
    seconds = time.perf_counter() - begun
    _check(made, count)
    rate = count / seconds
    say(
        f"{count:,} rows: raw Parquet {raw / 1e6:.2f} M rows/s, writer {rate / 1e6:.2f} M rows/s "
        f"(acknowledged after {acknowledged:.1f} of {seconds:.1f} s)"
    )
    return [Verdict("stream ≥ 0.5 × raw Parquet", f"{rate / raw:.2f} ×", rate >= 0.5 * raw)]


def _memory(root: Path, count: int) -> list[Verdict]:
    peaks = {}
    for rows in (count // 4, count):
        shutil.rmtree(root / "memory", ignore_errors=True)
        shutil.rmtree(root / "memory-wal", ignore_errors=True)
        command = [sys.executable, __file__, str(root), str(rows)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        peaks[rows] = json.loads(done.stdout)
    table(
        [f"memory budget {MEMORY_BYTES >> 20} MiB", "before MiB", "peak MiB", "grew MiB"],
        [
            (f"{rows:,} rows", f"{p['before']:.0f}", f"{p['peak']:.0f}", f"{p['grew']:.0f}")
            for rows, p in peaks.items()
        ],
    )
    few, many = (peaks[rows]["grew"] for rows in (count // 4, count))
    return [
        Verdict("peak memory does not grow with the stream", f"{many - few:+.0f} MiB for 4 × rows",
                many <= few + 32),
        Verdict("grew ≤ budget + 256 MiB", f"{many:.0f} MiB", many <= MEMORY_BYTES / 2**20 + 256),
    ]  # fmt: skip


def _measure_memory(root: Path, count: int) -> None:
    batch = bench_data.events(STREAM_BATCH)
    made = _table(root, "memory")
    made.append(batch)
    before = _peak_mib()
    with made.writer(
        wal=str(root / "memory-wal"), memory_bytes=MEMORY_BYTES, flush_bytes=MEMORY_BYTES // 4
    ) as writer:
        for _ in range(count // STREAM_BATCH):
            writer.append(batch)
    peak = _peak_mib()
    json.dump({"before": before, "peak": peak, "grew": peak - before}, sys.stdout)


def _peak_mib() -> float:
    # getrusage would begin with what the parent held when it forked.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    _measure_memory(Path(sys.argv[1]), int(sys.argv[2]))
