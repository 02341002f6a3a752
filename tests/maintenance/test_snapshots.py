"""Snapshots: exported, looked at, replayed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.maintenance import snapshots
from tests.tables import SCHEMA, START_MS, Place, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import S3Bucket


@pytest.fixture(autouse=True)
def _small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "RECORD_ROWS", 7)


def full(url: str | None = None, rows: int = 50) -> strandline.Table:
    """A table with a few appends."""
    table = strandline.create_table(url or memory_url(), SCHEMA, time_column="ts")
    for first in range(0, rows, 20):
        table.append(events(first, min(20, rows - first)))
    return table


def empty() -> strandline.Table:
    """A table to replay into."""
    return strandline.create_table(memory_url(), SCHEMA, time_column="ts")


def test_a_range_goes_to_a_file_and_into_another_table_once(place: Place, tmp_path: Path) -> None:
    """[E12] [SNP-1] [SNP-4] Same rows, same times; a second replay adds nothing."""
    source = place.create()
    source.append(events(0, 30))
    source.append(events(30, 30))
    file = tmp_path / "a b" / "part.snap"

    info = source.export(file, start_seq=10, end_seq=45)
    other = empty()
    first, again = strandline.replay(file, other), strandline.replay(file, other)

    assert strandline.inspect_snapshot(file) == info
    assert (info.ranges.rows, info.ranges.min_seq, info.ranges.max_seq) == (35, 10, 44)
    assert (info.ranges.min_ts, info.ranges.max_ts) == (START_MS + 10_000, START_MS + 44_000)
    assert info.header.table_uuid == source.uuid
    assert (first.records, first.rows) == (info.ranges.records, 35)
    assert (again.records, again.rows) == (0, 0)
    expected = source.scan(start_seq=10, end_seq=45).to_arrow()
    assert other.scan().to_arrow().equals(expected)


@settings(max_examples=20)
@given(st.integers(0, 55), st.integers(0, 55), st.integers(-2, 52), st.integers(-2, 52))
def test_any_range_is_what_a_scan_gives(seq: int, end: int, ts: int, end_ts: int) -> None:
    """[E12] [SNP-1] Bounds mean what they mean for scans, also where they leave nothing."""
    source, other, file = full(), empty(), f"{memory_url()}/x.snap"
    bounds = {
        "start_seq": seq,
        "end_seq": max(seq, end),
        "start_ts": START_MS + ts * 1000,
        "end_ts": START_MS + end_ts * 1000,
    }

    info = source.export(file, **bounds)
    strandline.replay(file, other)

    assert numbers_in(other) == numbers_in(source, **bounds)
    assert info.ranges.rows == len(numbers_in(other))


@pytest.mark.parametrize("scheme", ["disk", "memory"])
def test_a_failed_export_leaves_no_file(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E12] What was begun is removed, so that the same call can be repeated."""
    source = full()
    file = str(tmp_path / "x.snap") if scheme == "disk" else f"{memory_url()}/x.snap"
    encode, seen = snapshots.encode_record, iter(range(1000))

    def fails(*given: Any) -> bytes:
        if next(seen) == 2:
            raise OSError("the disk is full")
        return encode(*given)

    monkeypatch.setattr(snapshots, "encode_record", fails)
    with pytest.raises(strandline.StrandlineError, match="the disk is full"):
        source.export(file)

    assert source.export(file).ranges.rows == 50

    with pytest.raises(strandline.InvalidInput, match="exists already"):
        source.export(file)
    assert strandline.inspect_snapshot(file).ranges.rows == 50


def test_rows_are_replayed_into_tables_only(tmp_path: Path) -> None:
    """[E12] The error names what was given, and does not blame the file."""
    full().export(tmp_path / "x.snap")
    stream = strandline.create_table(
        memory_url(), {"a": "int64"}, kind="stream", row_id="a", ttl="1h"
    )
    for target in (stream, "memory://url"):
        with pytest.raises(strandline.InvalidInput, match=type(target).__name__):
            strandline.replay(tmp_path / "x.snap", target)  # type: ignore[arg-type]  # the point


def test_a_damaged_or_cut_file_changes_nothing_and_names_the_last_good_record(
    tmp_path: Path,
) -> None:
    """[E12] [X4] [SNP-2] [SNP-3] At every length and at every byte."""
    file, broken = tmp_path / "x.snap", tmp_path / "broken.snap"
    info = full(rows=20).export(file)
    data, other = file.read_bytes(), empty()
    assert info.ranges.records == 3
    for place in range(0, len(data), 13):
        flipped = bytearray(data)
        flipped[place] ^= 1 << (place % 8)
        for damaged in (data[:place], bytes(flipped)):
            broken.write_bytes(damaged)
            with pytest.raises(strandline.CorruptTable, match=r"damaged|no Strandline snapshot"):
                strandline.replay(broken, other)
    broken.write_bytes(data[:-40])
    with pytest.raises(strandline.CorruptTable, match="last good record is 3, up to sequence"):
        strandline.inspect_snapshot(broken)
    broken.write_bytes(data + b"x")
    with pytest.raises(strandline.CorruptTable, match="follow the trailer"):
        strandline.inspect_snapshot(broken)
    assert other.tail().next_seq == 0


def test_a_replay_that_was_broken_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E12] [SNP-4] Records that are in the table are not appended again."""
    file, other = tmp_path / "x.snap", empty()
    full().export(file)
    append, calls = strandline.Table.append, 0

    def failing(self: strandline.Table, *given: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise strandline.StoreBusy("not now")
        return append(self, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(strandline.Table, "append", failing)
    with pytest.raises(strandline.StoreBusy):
        strandline.replay(file, other)
    assert other.tail().next_seq == 20

    strandline.replay(file, other)

    assert numbers_in(other) == list(range(50))


@pytest.mark.s3
def test_a_snapshot_lies_on_any_store(s3_bucket: S3Bucket) -> None:
    """[E12] [C10] Also on S3, with options of its own, which no error repeats."""
    url, options = f"s3://{s3_bucket.name}/out/x.snap", s3_bucket.storage_options
    full().export(url, storage_options=options)
    other = empty()

    strandline.replay(url, other, storage_options=options)

    assert numbers_in(other) == list(range(50))
    with pytest.raises(strandline.StorageFailed, match="does not exist") as error:
        strandline.inspect_snapshot(url + "x", storage_options=options)
    assert options["secret"] not in str(error.value)


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    """[E12] A file that exists stays, a wrong bound is named, no snapshot is no snapshot."""
    table = full()
    table.export(tmp_path / "x.snap")

    with pytest.raises(strandline.InvalidInput, match="exists already"):
        table.export(tmp_path / "x.snap")
    table.export(tmp_path / "x.snap", overwrite=True)
    with pytest.raises(strandline.InvalidInput):
        table.export(tmp_path / "y.snap", start_seq="one")  # type: ignore[arg-type]
    (tmp_path / "z").write_bytes(b"hello")
    with pytest.raises(strandline.CorruptTable, match="no Strandline snapshot"):
        strandline.inspect_snapshot(tmp_path / "z")


def test_versioned_payloads_travel_from_writer_to_replay(tmp_path: Path) -> None:
    """[T7] Bytes and their version pass writer, scan and snapshot; an unknown one is an error."""
    registry = strandline.PayloadRegistry()
    registry.register(1, lambda data: data.decode(), lambda text: text.encode())
    registry.register(2, lambda data: data[::-1].decode(), lambda text: text.encode()[::-1])
    schema = {"version": "int32", "payload": "binary"}
    table = strandline.create_table(tmp_path / "t", schema)
    with table.writer("p", wal=tmp_path / "wal") as writer:
        for version in (1, 2):
            writer.append({"version": version, "payload": registry.encode(version, f"v{version}")})
    other = strandline.create_table(tmp_path / "u", schema)
    table.export(tmp_path / "x.snap")
    strandline.replay(tmp_path / "x.snap", other)

    for read in (table, other):
        assert registry.decode_column(read.scan().to_arrow()) == ["v1", "v2"]
    other.append([{"version": 3, "payload": b"?"}])
    with pytest.raises(strandline.UnknownPayload, match="version 3"):
        registry.decode_column(other.scan().to_arrow())
