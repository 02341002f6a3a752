"""Rows into frames, and frames back into the rows that are alive.

Producers of presence and cursors send one row at a time, so a few plain rows take a short road:
checked by their classes, written as JSON. Anything else goes through Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from strandline.tableformat.arrow_messages import pack_batch, unpack_batch
from strandline.tableformat.errors import CorruptTable, InvalidRow
from strandline.tableformat.misfits import first_true
from strandline.tableformat.stream_frames import (
    ARROW_ROWS,
    DELETE,
    JSON_ROWS,
    MAX_BODY_BYTES,
    encode_frame,
    encode_frame_of,
)
from strandline.tableformat.timestamps import TS_LIMIT_MS, stamp
from strandline.tableformat.windows import split_by_window
from strandline.writers.ingest import to_arrow
from strandline.writers.row_check import RowCheck
from strandline.writers.wal_frames import NO_ROWS, json_payload, rows_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.tableformat.config import Config
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.stream_frames import Frame
    from strandline.tableformat.stream_layout import StreamLayout
    from strandline.tableformat.windows import Window

    Int64s = np.ndarray[Any, np.dtype[np.int64]]

FEW_ROWS: Final = 4_096
MAX_FRAME_ROWS: Final = 1 << 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
_ONE_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Framed:
    """Rows as frames, each with the window it belongs to, and how many rows are too old."""

    frames: list[tuple[Window, bytes]]
    rows: int
    dropped: int


FewRows = list[tuple[int, list[int], bytes]]
"""For each window its beginning, the rows' times, and the rows as JSON without the brackets."""


class RowCodec:
    """Knows one schema and configuration."""

    def __init__(self, manifest: Manifest, layout: StreamLayout) -> None:
        self.schema: Schema = manifest.schema
        self._config: Config = manifest.config
        self.row_id = self.schema.by_id[layout.row_id]
        self._check = RowCheck(self.schema, self._config)
        names = [column.id for column in self.schema.columns]
        self._id_at = names.index(layout.row_id)
        time = self._config.time_column
        by_client = self._config.timestamping != "arrival"
        self._time_at = names.index(time) if time is not None and by_client else None

    # --- writing ---

    def frames(self, data: object, now_ms: int, floor_ms: int) -> Framed:
        """The rows as frames by window; refused as a whole if one of them is wrong."""
        return self._many(to_arrow(data, self.schema), now_ms, floor_ms)

    def few(self, rows: list[Any], now_ms: int, floor_ms: int) -> FewRows | None:
        """A few plain rows, encoded once; None: have a careful look with `frames`."""
        values, id_at, time_at = self._check.values, self._id_at, self._time_at
        length, uncapped = self._config.window_ms, self._config.uncapped
        by_window: dict[int, tuple[list[int], list[Any]]] = {}
        for row in rows:
            taken = values(row)
            if taken is None or taken[id_at] is None:
                return None
            given: Any = now_ms if time_at is None else taken[time_at]
            ts = given if type(given) is int else self._from_time(given, now_ms)
            if ts > now_ms and not uncapped:
                ts = now_ms
            if ts < floor_ms:
                continue
            start = ts - ts % length
            if start not in by_window:
                by_window[start] = [], []
            by_window[start][0].append(ts)
            by_window[start][1].append(taken)
        try:
            encoded = [
                (start, times, json_payload(kept)[1:-1])
                for start, (times, kept) in by_window.items()
            ]
        except TypeError:  # such as half of a character
            return None
        too_large = any(len(payload) > MAX_BODY_BYTES // 2 for _, _, payload in encoded)
        return None if too_large else encoded

    @staticmethod
    def _from_time(given: datetime | None, now_ms: int) -> int:
        if given is None:
            return now_ms
        return (given - (_EPOCH if given.tzinfo is not None else _NAIVE_EPOCH)) // _ONE_MS

    def _many(self, rows: pa.Table, now_ms: int, floor_ms: int) -> Framed:
        ids = rows.column(self.row_id.name)
        if ids.null_count:
            row = first_true(ids.is_null())
            raise InvalidRow(row, self.row_id.name, "it is null, and it has to name the row")
        time = self._config.time_column
        column = None if time is None else self.schema.by_id[time]
        ts_ms = stamp(
            None if column is None else rows.column(column.name),
            None if column is None else column.type,
            rows=rows.num_rows,
            mode=self._config.timestamping,
            uncapped=self._config.uncapped,
            order=self._config.order,
            now_ms=now_ms,
            tail_ts_ms=None,
            field="_ts" if column is None else column.name,
        ).ts_ms
        given, kept = rows.num_rows, np.flatnonzero(ts_ms >= floor_ms)
        if len(kept) < given:
            rows, ts_ms = rows.take(pa.array(kept)), ts_ms[kept]
        frames: list[tuple[Window, bytes]] = []
        for window, places in split_by_window(ts_ms, self._config.window_ms):
            part = (
                rows.slice(places.start, places.stop - places.start)
                if isinstance(places, slice)
                else rows.take(pa.array(places))
            )
            frames += [(window, frame) for frame in self._arrow_frames(part, ts_ms[places])]
        return Framed(frames, len(kept), given - len(kept))

    def _arrow_frames(self, rows: pa.Table, ts_ms: Int64s) -> Iterable[bytes]:
        for start in range(0, rows.num_rows, MAX_FRAME_ROWS):
            (batch,) = rows.slice(start, MAX_FRAME_ROWS).combine_chunks().to_batches()
            message = pack_batch(batch)
            if len(message) > MAX_BODY_BYTES // 2:
                raise InvalidRow(start, self.row_id.name, "rows of this size do not fit a frame")
            times = ts_ms[start : start + MAX_FRAME_ROWS]
            yield encode_frame(ARROW_ROWS, self.schema.id, times, message)

    def delete_frame(self, ids: list[Any], now_ms: int) -> bytes:
        """A frame that ends the life of the rows of these ids before it in the same log."""
        payload = json_payload([[value] for value in ids])
        return encode_frame_of(DELETE, self.schema.id, [now_ms] * len(ids), payload)

    def ids(self, given: object) -> pa.ChunkedArray:
        """Row ids that a caller names, as the column's own type; refused if one does not fit."""
        rows = to_arrow({self.row_id.name: given}, self._ids_schema)
        return rows.column(0)

    @property
    def _ids_schema(self) -> Schema:
        return replace(self.schema, columns=(self.row_id,))

    # --- reading ---

    def alive(
        self, logs: Iterable[Iterable[Frame]], first_ms: int = 0, last_ms: int = TS_LIMIT_MS
    ) -> pa.Table:
        """Rows between two times that no delete ended, the newest of each id, oldest first.

        They have a column `_ts` behind their own.
        """
        parts = [part for frames in logs for part in self._alive_in_log(frames)]
        schema = self.schema.arrow.append(pa.field("_ts", pa.int64()))
        if not parts:
            return schema.empty_table()
        rows = pa.concat_tables(parts)
        ts_ms = rows.column("_ts").to_numpy()
        wanted = (ts_ms >= first_ms) & (ts_ms <= last_ms)
        if not wanted.all():
            rows = rows.filter(pa.array(wanted))
        return newest(rows, self.row_id.name) if rows.num_rows else schema.empty_table()

    def _alive_in_log(self, frames: Iterable[Frame]) -> list[pa.Table]:
        parts: list[pa.Table] = []
        few: list[Frame] = []
        deleted: dict[Any, int] = {}
        """Id → how many rows stand before its last delete."""
        before = 0
        for frame in frames:
            if frame.schema_id != self.schema.id:
                raise CorruptTable(f"a frame has schema {frame.schema_id}, which is not known")
            if frame.kind == DELETE:
                for value in self._ids_of(frame):
                    deleted[value] = before
                continue
            before += len(frame.ts_ms)
            if frame.kind == JSON_ROWS:
                few.append(frame)
                continue
            parts += self._json_rows(few)
            few = []
            parts.append(self._arrow_rows(frame))
        parts += self._json_rows(few)
        if not deleted or not parts:
            return parts
        rows = pa.concat_tables(parts)
        ids = rows.column(self.row_id.name).to_pylist()
        return [rows.filter(pa.array([n >= deleted.get(value, 0) for n, value in enumerate(ids)]))]

    def _ids_of(self, frame: Frame) -> list[Any]:
        try:
            rows = orjson.loads(frame.payload)
            found = to_arrow(rows_from_json(rows, self._ids_schema), self._ids_schema)
        except NO_ROWS as error:
            raise CorruptTable(f"a delete passes its checksum and names no ids: {error}") from None
        return list(found.column(0).to_pylist())

    def _json_rows(self, frames: list[Frame]) -> list[pa.Table]:
        if not frames:
            return []
        try:
            rows = [row for frame in frames for row in orjson.loads(frame.payload)]
            found = to_arrow(rows_from_json(rows, self.schema), self.schema)
        except NO_ROWS as error:
            raise CorruptTable(f"a frame passes its checksum and holds no rows: {error}") from None
        return [_with_ts(found, np.concatenate([frame.ts_ms for frame in frames]))]

    def _arrow_rows(self, frame: Frame) -> pa.Table:
        batch = unpack_batch(frame.payload, self.schema.arrow, "a frame passes its checksum")
        return _with_ts(pa.Table.from_batches([batch]), frame.ts_ms)


def _with_ts(rows: pa.Table, ts_ms: Int64s) -> pa.Table:
    if rows.num_rows != len(ts_ms):
        raise CorruptTable(f"a frame has {rows.num_rows} rows and {len(ts_ms)} times")
    return rows.append_column(pa.field("_ts", pa.int64()), pa.array(ts_ms))


def newest(rows: pa.Table, row_id: str) -> pa.Table:
    """Of each id the row with the greatest time, of equal times the last; oldest first."""
    ts_ms = rows.column("_ts").to_numpy()
    order = np.argsort(ts_ms, kind="stable")
    codes = rows.column(row_id).combine_chunks().dictionary_encode()
    codes = codes.indices.to_numpy(zero_copy_only=False)[order]
    # The first of each code in the reversed order is the newest.
    _, last = np.unique(codes[::-1], return_index=True)
    kept = np.sort(len(codes) - 1 - last)
    return rows.take(pa.array(order[kept]))
