"""Snapshots: a range of a table in one file, looked at, and put into another table once.

The file may lie anywhere fsspec reaches, also where no table could: it is written once, from the
beginning to the end, and its trailer tells a whole one from one that was broken off.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.tableformat.errors import (
    CorruptTable,
    InvalidInput,
    ObjectMissing,
    StorageFailed,
    StrandlineError,
)
from strandline.tableformat.redaction import guard_loggers, redact, register_secrets
from strandline.tableformat.snapshot_format import (
    HEADER,
    MAGIC,
    ROWS,
    TRAILER,
    SnapshotHeader,
    SnapshotRanges,
    decode_record,
    encode_record,
    header_from,
    ranges_from,
)
from strandline.tableformat.stores.remote import clean_text
from strandline.tableformat.stream_frames import HEADER_BYTES, frame_bytes, read_frame

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.catalog.runtime import Runtime
    from strandline.table import Table
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.stream_frames import Frame

RECORD_ROWS: Final = 65_536
RECORD_BYTES: Final = 32 * 2**20
WRITER_PREFIX: Final = "snapshot#"
_KINDS: Final = frozenset({HEADER, ROWS, TRAILER})


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a snapshot file says of itself, every checksum verified."""

    header: SnapshotHeader
    ranges: SnapshotRanges


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did."""

    snapshot_id: str
    records: int
    """Records that this call committed; the others were in the table already."""
    rows: int
    dropped: int
    """Rows older than the table's retention floor."""


def export(
    batches: Iterable[pa.RecordBatch],
    manifest: Manifest,
    runtime: Runtime,
    file_url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    *,
    overwrite: bool,
    **bounds: int | None,
) -> SnapshotInfo:
    """Write batches with `_seq` and `_ts` behind the table's own columns into one file."""
    header = SnapshotHeader(
        snapshot_id=runtime.random_hex(16),
        table_uuid=manifest.table_uuid,
        version=manifest.version,
        created_at=runtime.now_ms(),
        schema=manifest.schema,
        start_seq=bounds["start_seq"],
        end_seq=bounds["end_seq"],
        start_ts=bounds["start_ts"],
        end_ts=bounds["end_ts"],
    )
    ranges = SnapshotRanges()
    with _opened(file_url, storage_options, "wb", overwrite=overwrite) as file:
        file.write(header.encode())
        for rows in _records(batches):
            seqs, times = rows.column("_seq").to_numpy(), rows.column("_ts").to_numpy()
            ranges = ranges.with_rows(seqs, times)
            file.write(encode_record(rows, manifest.schema))
        file.write(ranges.encode(manifest.schema.id))
    return SnapshotInfo(header, ranges)


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches as records of a bounded size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, RECORD_ROWS):
            part = batch.slice(start, RECORD_ROWS)
            if waiting and (
                rows + part.num_rows > RECORD_ROWS or size + part.nbytes > RECORD_BYTES
            ):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def inspect_snapshot(
    file_url: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> SnapshotInfo:
    """What a snapshot holds. The whole file is read, and every checksum verified."""
    with _opened(file_url, storage_options, "rb") as file:
        reader = _Reader(file, str(file_url))
        for _ in reader.records():
            pass
    return SnapshotInfo(reader.header, reader.ranges)


def replay(
    file_url: str | os.PathLike[str],
    table: Table,
    *,
    storage_options: Mapping[str, Any] | None = None,
    fence: str | None = None,
) -> Replayed:
    """Append a snapshot's rows to a table, each once, however often this is called.

    The file is verified as a whole first, so that a damaged one changes nothing. Each record is one
    commit under the snapshot's id: after an error, call it again. Rows get new sequence numbers;
    their time comes from the table's time column.
    """
    from strandline.table import Table  # noqa: PLC0415 - who only looks at a file needs none

    if not isinstance(table, Table):
        raise InvalidInput(
            f"rows are replayed into a table, not into a {type(table).__name__}. Nothing was "
            "changed. Stream tables and URLs are none: pass what strandline.open_table gives."
        )
    info = inspect_snapshot(file_url, storage_options=storage_options)
    writer_id = WRITER_PREFIX + info.header.snapshot_id
    records = rows = dropped = 0
    with _opened(file_url, storage_options, "rb") as file:
        reader = _Reader(file, str(file_url))
        for number, record in enumerate(reader.records(), 1):
            data = record.drop_columns(["_seq"])
            done = table.append(data, writer_id=writer_id, batch=number, fence=fence)
            if not done.duplicate:
                records, rows, dropped = records + 1, rows + done.rows, dropped + done.dropped
    return Replayed(info.header.snapshot_id, records, rows, dropped)


class _Reader:
    """A snapshot from its beginning to its end; errors name the last record that was sound."""

    def __init__(self, file: Any, url: str) -> None:
        self._file, self._url = file, redact(url)
        self._at = len(MAGIC)
        self.ranges = SnapshotRanges()
        if file.read(len(MAGIC)) != MAGIC:
            raise CorruptTable(f"{self._url} is no Strandline snapshot, or its beginning is lost")
        first = self._frame()
        if first.kind != HEADER:
            raise self._damaged("the header is missing")
        self.header = header_from(bytes(first.payload), self._url)

    def records(self) -> Iterator[pa.Table]:
        while (frame := self._frame()).kind == ROWS:
            try:
                rows = decode_record(frame.payload, self.header.schema, self._url)
                if rows.num_rows != len(frame.ts_ms) or not rows.num_rows:
                    raise self._damaged("its rows and times do not agree")
            except CorruptTable as error:
                raise self._damaged(str(error)) from None
            seqs = rows.column("_seq").to_numpy()
            before = -1 if self.ranges.max_seq is None else self.ranges.max_seq
            if np.any(seqs[1:] <= seqs[:-1]) or seqs[0] <= before:
                raise self._damaged("its sequence numbers do not ascend")
            self.ranges = self.ranges.with_rows(seqs, frame.ts_ms)
            yield rows
        if frame.kind != TRAILER or ranges_from(bytes(frame.payload), self._url) != self.ranges:
            raise self._damaged("the trailer speaks of other records")
        if self._file.read(1):
            raise self._damaged("more bytes follow the trailer")

    def _frame(self) -> Frame:
        head = self._file.read(HEADER_BYTES)
        length = frame_bytes(head)
        if length is None:
            cut = len(head) < HEADER_BYTES
            raise self._damaged("the file ends here" if cut else "no frame begins here")
        body = self._file.read(length)
        try:
            frame = read_frame(head, body, f"the frame of {length} bytes", _KINDS)
        except CorruptTable as error:
            raise self._damaged(str(error)) from None
        self._at += HEADER_BYTES + length
        return frame

    def _damaged(self, reason: str) -> CorruptTable:
        good = self.ranges
        last = (
            "no record before it is sound"
            if not good.records
            else f"the last good record is {good.records}, up to sequence number {good.max_seq}"
        )
        return CorruptTable(
            f"{self._url} is damaged or cut off at byte {self._at}: {reason}; {last}. Nothing "
            "of it was replayed. Export it again, or copy the file once more."
        )


@contextmanager
def _opened(
    file_url: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    mode: str,
    *,
    overwrite: bool = False,
) -> Iterator[Any]:
    """A file anywhere, with what goes wrong said as an error of ours and without secrets."""
    options = dict(storage_options or {})
    register_secrets(options)
    shown = redact(str(file_url))
    try:
        fs, path = _connected(str(file_url), options)
        if mode == "wb":
            _make_room(fs, path, shown, overwrite=overwrite)
        try:
            with fs.open(path, mode) as file:
                yield file
        except BaseException:
            if mode == "wb":
                # Half a file is good for nothing, and would be in the way of the next attempt.
                with suppress(Exception):
                    fs.rm_file(path)
            raise
    except StrandlineError:
        raise
    except FileNotFoundError:
        raise ObjectMissing(f"{shown} does not exist") from None
    except Exception as error:  # noqa: BLE001 - every library has its own
        raise StorageFailed(f"{shown} cannot be used: {clean_text(error)}") from None


def _make_room(fs: Any, path: str, shown: str, *, overwrite: bool) -> None:
    if not overwrite and fs.exists(path):
        raise InvalidInput(f"{shown} exists already; nothing was written")
    fs.makedirs(fs._parent(path), exist_ok=True)  # noqa: SLF001 - fsspec's own idiom


def _connected(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The filesystem, connected, and the path in it; no logger of a library tells a secret."""
    import fsspec  # noqa: PLC0415 - only whoever exports needs it at once

    fs, path = fsspec.core.url_to_fs(url, **options)
    guard_loggers()
    if hasattr(fs, "connect"):
        # Connecting loads the rest of the library, with loggers of its own.
        fs.connect()
        guard_loggers()
    return fs, path
