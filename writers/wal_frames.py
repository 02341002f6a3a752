"""The bytes of a write-ahead log: a header that says whose it is, then one frame per record.

Every frame carries its own number, length and checksum, and begins with a marker, so that a
reader can tell a tail that was torn by a crash (nothing valid follows: cut it) from a damaged
middle (valid frames follow: an error, because cutting there would lose acknowledged rows).
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import xxhash

from strandline.tableformat import schema as schemas
from strandline.tableformat.arrow_messages import unpack_batch
from strandline.tableformat.errors import CorruptTable, DamagedLog, StrandlineError
from strandline.tableformat.fields import Fields
from strandline.writers.ingest import to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.tableformat.schema import Schema

MAGIC: Final = b"STRWAL1\n"
MARKER: Final = b"\xf5rec"
JSON_ROWS: Final = 1
ARROW_BATCH: Final = 2
MAX_BODY_BYTES: Final = 2**31 - 1

_HEADER: Final = struct.Struct("<8sIQ")
"""Magic, length and XXH64 of the JSON that follows."""
_FRAME: Final = struct.Struct("<4sIQ")
"""Marker, length and XXH64 of the body."""
_BODY: Final = struct.Struct("<QqB")
"""Record number, time of arrival in milliseconds, kind; the payload follows."""
_FRAME_BYTES: Final = _FRAME.size

NO_ROWS: Final = (
    pa.ArrowException,
    StrandlineError,
    EOFError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Arrow, LZ4 and JSON say about bytes that are not theirs."""

_pack_frame, _pack_body, _checksum = _FRAME.pack, _BODY.pack, xxhash.xxh64_intdigest


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHeader:
    """Whose records a log file holds, and how their columns are to be read."""

    table_uuid: str
    writer_id: str
    incarnation: str
    """Made anew each time a writer opens; with a record's number it names that record for ever."""
    first_record: int
    schema: Schema
    user: str | None = None
    """Whose rows they are, in a table with `scope="user"`."""

    def encode(self) -> bytes:
        document = {
            **({} if self.user is None else {"user": self.user}),
            "table_uuid": self.table_uuid,
            "writer_id": self.writer_id,
            "incarnation": self.incarnation,
            "first_record": str(self.first_record),
            "schema": schemas.to_json(self.schema),
        }
        text = orjson.dumps(document)
        return _HEADER.pack(MAGIC, len(text), _checksum(text)) + text


@dataclass(frozen=True, slots=True)
class Record:
    """One acknowledged append: its rows as bytes, read when they are needed."""

    number: int
    arrived_ms: int
    kind: int
    payload: bytes

    def rows(self, schema: Schema) -> pa.Table:
        """The rows under the schema of the file that the record stands in."""
        try:
            if self.kind == ARROW_BATCH:
                batch = unpack_batch(self.payload, schema.arrow, "an Arrow batch")
                return pa.Table.from_batches([batch])
            return to_arrow(rows_from_json(orjson.loads(self.payload), schema), schema)
        except NO_ROWS as error:
            raise DamagedLog(
                f"record {self.number} passes its checksum and holds no rows: {error}"
            ) from None


def frame(record: int, arrived_ms: int, kind: int, payload: bytes) -> bytes:
    """One record as it stands in the log."""
    body = _pack_body(record, arrived_ms, kind) + payload
    return _pack_frame(MARKER, len(body), _checksum(body)) + body


def json_payload(rows: Sequence[Sequence[Any]]) -> bytes:
    """Rows of plain values in the order of the schema's columns."""
    return orjson.dumps(rows, _beyond_json)


def _beyond_json(value: Any) -> str:
    if type(value) is bytes:
        return b64encode(value).decode()
    if type(value) is Decimal:
        return str(value)
    raise TypeError


def own_rows(rows: pa.Table) -> tuple[pa.Table, pa.Buffer]:
    """A copy of rows, and the message of one Arrow batch that it lies in.

    Arrow may only have borrowed the caller's arrays, and the caller goes on to fill these with
    other rows. The schema stands in the header of a log.
    """
    (batch,) = rows.combine_chunks().to_batches()
    message = batch.serialize()
    return pa.Table.from_batches([pa.ipc.read_record_batch(message, batch.schema)]), message


def rows_from_json(rows: list[list[Any]], schema: Schema) -> dict[str, list[Any]]:
    """Columns of plain values from what `json_payload` wrote."""
    columns = list(zip(*rows, strict=True))
    out: dict[str, list[Any]] = {}
    for column, values in zip(schema.columns, columns, strict=True):
        parse = _FROM_TEXT.get(column.type.name)
        out[column.name] = [
            value if parse is None or value is None else parse(value) for value in values
        ]
    return out


_FROM_TEXT: Final[dict[str, Callable[[str], Any]]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "decimal": Decimal,
    "binary": b64decode,
}


# --- reading ----------------------------------------------------------------------------------


def read_header(data: bytes, name: str) -> tuple[LogHeader, int] | None:
    """The header and where the frames begin; None if a crash cut the file before they did."""
    if len(data) >= _HEADER.size:
        magic, length, checksum = _HEADER.unpack_from(data)
        text = data[_HEADER.size : _HEADER.size + length]
        if magic == MAGIC and len(text) == length and _checksum(text) == checksum:
            return _header_from_json(text, name), _HEADER.size + length
    if next(_valid_frames_behind(data, 0), None) is None:
        return None
    raise DamagedLog(f"{name}: its header is damaged, and records follow")


def _header_from_json(text: bytes, name: str) -> LogHeader:
    try:
        fields = Fields(orjson.loads(text), name)
        return LogHeader(
            table_uuid=fields.text("table_uuid"),
            writer_id=fields.text("writer_id"),
            incarnation=fields.text("incarnation"),
            first_record=fields.int64("first_record", least=1),
            schema=schemas.from_json(fields.value["schema"]),
            user=None if fields.optional("user") is None else fields.text("user"),
        )
    except (CorruptTable, KeyError, orjson.JSONDecodeError) as error:
        raise DamagedLog(f"{name}: its header cannot be read: {error}") from None


def read_frames(data: bytes, start: int, first_record: int, name: str) -> tuple[list[Record], int]:
    """All records from `start` on, and where the sound part ends.

    What follows the sound part was torn by a crash, unless a valid frame comes later.
    """
    records: list[Record] = []
    position, expected = start, first_record
    while True:
        found = _frame_at(data, position)
        if found is None:
            break
        record, position = found
        if record.number != expected:
            raise DamagedLog(
                f"{name}: record {expected} is missing, record {record.number} stands in its place"
            )
        records.append(record)
        expected += 1
    for later in _valid_frames_behind(data, position):
        raise DamagedLog(
            f"{name}: record {expected} is damaged at byte {position}, and record {later.number} "
            "behind it is sound"
        )
    return records, position


def _frame_at(data: bytes, position: int) -> tuple[Record, int] | None:
    """The frame that begins here and where it ends; None if there is no sound one."""
    start = position + _FRAME_BYTES
    if start > len(data):
        return None
    marker, length, checksum = _FRAME.unpack_from(data, position)
    end = start + length
    if marker != MARKER or length < _BODY.size or end > len(data):
        return None
    body = memoryview(data)[start:end]
    if _checksum(body) != checksum:
        return None
    number, arrived_ms, kind = _BODY.unpack_from(body)
    return Record(number, arrived_ms, kind, bytes(body[_BODY.size :])), end


def _valid_frames_behind(data: bytes, position: int) -> Iterator[Record]:
    while (position := data.find(MARKER, position)) >= 0:
        found = _frame_at(data, position)
        if found is not None:
            yield found[0]
        position += 1
