"""The bytes of a snapshot: rows of a table's range in one portable file.

A magic, a header, records of rows and a trailer, each in a frame with its own checksums
(`stream_frames`). The trailer says how much there was: a file that was cut between two records
would otherwise look like a shorter, sound one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from strandline.tableformat import schema as schemas
from strandline.tableformat.arrow_messages import pack_batch, unpack_batch
from strandline.tableformat.errors import CorruptTable, StrandlineError
from strandline.tableformat.fields import Fields
from strandline.tableformat.stream_frames import encode_frame

if TYPE_CHECKING:
    from strandline.tableformat.schema import Schema

MAGIC: Final = b"STRSNP1\n"
ROWS: Final = 2
HEADER: Final = 16
TRAILER: Final = 17
_NO_TIMES: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """Where the rows come from, and which were asked for; None is no bound."""

    snapshot_id: str
    """Random: under it, a replay remembers which records are in the other table."""
    table_uuid: str
    version: int
    created_at: int
    start_seq: int | None
    end_seq: int | None
    start_ts: int | None
    end_ts: int | None
    schema: Schema

    def encode(self) -> bytes:
        document = {
            "snapshot_id": self.snapshot_id,
            "table_uuid": self.table_uuid,
            "version": str(self.version),
            "created_at": str(self.created_at),
            **{name: _text(getattr(self, name)) for name in _BOUNDS},
            "schema": schemas.to_json(self.schema),
        }
        return MAGIC + encode_frame(HEADER, self.schema.id, _NO_TIMES, orjson.dumps(document))


_BOUNDS: Final = ("start_seq", "end_seq", "start_ts", "end_ts")


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRanges:
    """What a snapshot holds; the least and greatest are None without rows."""

    records: int = 0
    rows: int = 0
    min_seq: int | None = None
    max_seq: int | None = None
    min_ts: int | None = None
    max_ts: int | None = None

    def with_rows(self, seqs: Any, times: Any) -> SnapshotRanges:
        """The ranges with one more record."""
        return SnapshotRanges(
            records=self.records + 1,
            rows=self.rows + len(seqs),
            min_seq=_least(self.min_seq, int(seqs.min())),
            max_seq=_most(self.max_seq, int(seqs.max())),
            min_ts=_least(self.min_ts, int(times.min())),
            max_ts=_most(self.max_ts, int(times.max())),
        )

    def encode(self, schema_id: int) -> bytes:
        text = orjson.dumps({name: _text(value) for name, value in asdict(self).items()})
        return encode_frame(TRAILER, schema_id, _NO_TIMES, text)


def _least(known: int | None, found: int) -> int:
    return found if known is None else min(known, found)


def _most(known: int | None, found: int) -> int:
    return found if known is None else max(known, found)


def header_from(payload: bytes, where: str) -> SnapshotHeader:
    """Decode and check a header."""
    try:
        fields = Fields(orjson.loads(payload), "snapshot header")
        return SnapshotHeader(
            snapshot_id=fields.identity("snapshot_id"),
            table_uuid=fields.identity("table_uuid"),
            version=fields.int64("version", least=1),
            created_at=fields.int64("created_at"),
            schema=schemas.from_json(fields.object("schema")),
            **{name: _optional(fields, name) for name in _BOUNDS},
        )
    except (orjson.JSONDecodeError, StrandlineError) as error:
        raise CorruptTable(f"{where}: its header cannot be read: {error}") from None


def ranges_from(payload: bytes, where: str) -> SnapshotRanges:
    """Decode and check a trailer."""
    try:
        fields = Fields(orjson.loads(payload), "snapshot trailer")
        names = ("min_seq", "max_seq", "min_ts", "max_ts")
        return SnapshotRanges(
            records=fields.int64("records"),
            rows=fields.int64("rows"),
            **{name: _optional(fields, name) for name in names},
        )
    except (orjson.JSONDecodeError, StrandlineError) as error:
        raise CorruptTable(f"{where}: its trailer cannot be read: {error}") from None


def _optional(fields: Fields, name: str) -> int | None:
    return None if fields.optional(name) is None else fields.int64(name)


def record_schema(schema: Schema) -> pa.Schema:
    """The columns of a record: the table's own, then `_seq`."""
    return schema.arrow.append(pa.field("_seq", pa.int64()))


def encode_record(rows: pa.Table, schema: Schema) -> bytes:
    """Rows with `_seq` and `_ts` behind their own columns, as a record."""
    times = rows.column("_ts").to_numpy()
    (batch,) = rows.drop_columns(["_ts"]).cast(record_schema(schema)).combine_chunks().to_batches()
    return encode_frame(ROWS, schema.id, times, pack_batch(batch))


def decode_record(payload: Any, schema: Schema, where: str) -> pa.Table:
    """The rows of a record with `_seq`."""
    return pa.Table.from_batches([unpack_batch(payload, record_schema(schema), where)])
