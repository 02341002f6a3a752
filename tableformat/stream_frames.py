"""The bytes of a stream log: frames, each with its length and its own checksums.

A process that is killed leaves the beginning of a frame at the end of a log: that is ignored. What
is whole and does not fit its checksum is damage, and said so, because rows are missing then. The
header has a checksum of its own: without it, a flipped bit in a length would look like a torn end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import xxhash

from strandline.tableformat.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    Int64s = np.ndarray[Any, np.dtype[np.int64]]

MARKER: Final = b"\xf5st1"
JSON_ROWS: Final = 1
ARROW_ROWS: Final = 2
DELETE: Final = 3
LOG_KINDS: Final = frozenset({JSON_ROWS, ARROW_ROWS, DELETE})
MAX_BODY_BYTES: Final = 2**31 - 1

_HEAD: Final = struct.Struct("<4sIQ")
"""Marker, length and XXH64 of the body; the low 32 bits of these bytes' own XXH64 follow."""
_CHECK: Final = struct.Struct("<I")
_BODY: Final = struct.Struct("<BII")
"""Kind, schema id, rows; then the time of each row, then the payload."""
HEADER_BYTES: Final = _HEAD.size + _CHECK.size
_LOW32: Final = 0xFFFFFFFF

CHUNK_MAGIC: Final = b"STRCHK1\n"
_CHUNK: Final = struct.Struct("<8s16sQ")
"""Magic, a random id, the length of the frames; XXH64 of these bytes follows."""
_SUM64: Final = struct.Struct("<Q")
CHUNK_HEADER_BYTES: Final = _CHUNK.size + _SUM64.size

_hash = xxhash.xxh64_intdigest


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One put or delete: its rows' times, and the rows as bytes that are read when needed."""

    kind: int
    schema_id: int
    ts_ms: Int64s
    payload: memoryview


def encode_frame(kind: int, schema_id: int, ts_ms: Int64s, payload: bytes) -> bytes:
    """A frame as it stands in a log."""
    body = _BODY.pack(kind, schema_id, len(ts_ms)) + ts_ms.astype("<i8").tobytes() + payload
    return _framed(body)


def encode_frame_of(kind: int, schema_id: int, times: list[int], payload: bytes) -> bytes:
    """The same for a few rows whose times are plain numbers."""
    count = len(times)
    return _framed(_BODY.pack(kind, schema_id, count) + struct.pack(f"<{count}q", *times) + payload)


def _framed(body: bytes) -> bytes:
    head = _HEAD.pack(MARKER, len(body), _hash(body))
    return head + _CHECK.pack(_hash(head) & _LOW32) + body


def read_frames(data: bytes, where: str, *, may_be_torn: bool = True) -> Iterator[Frame]:
    """The frames of a log, in order. `may_be_torn`: a cut last frame is fine and left out."""
    position = 0
    while True:
        end = _frame_end(data, position, where, may_be_torn=may_be_torn)
        if end is None:
            return
        yield _frame(memoryview(data)[position + HEADER_BYTES : end], where)
        position = end


def sound_bytes(data: bytes, where: str) -> int:
    """Where the last whole frame ends: what follows was torn by a crash and may be cut."""
    position = 0
    while (end := _frame_end(data, position, where, may_be_torn=True)) is not None:
        position = end
    return position


def _frame_end(data: bytes, position: int, where: str, *, may_be_torn: bool) -> int | None:
    """Where the frame that begins here ends; None at the end of the log."""
    left = len(data) - position
    if left == 0:
        return None
    if left < HEADER_BYTES:
        is_torn = MARKER.startswith(data[position : position + len(MARKER)])
    else:
        head = data[position : position + _HEAD.size]
        (check,) = _CHECK.unpack_from(data, position + _HEAD.size)
        marker, length, checksum = _HEAD.unpack(head)
        is_header = marker == MARKER and _hash(head) & _LOW32 == check
        start = position + HEADER_BYTES
        is_torn = is_header and start + length > len(data)
        if is_header and not is_torn:
            if _hash(memoryview(data)[start : start + length]) != checksum:
                raise _damaged(where, position, "its checksum is wrong")
            return int(start + length)
    # A power cut may leave zeros where bytes were promised to the disk and never came.
    is_torn = is_torn or not any(data[position:])
    if is_torn and may_be_torn:
        return None
    raise _damaged(where, position, "it is cut off" if is_torn else "it does not begin as one")


def _damaged(where: str, position: int, reason: str) -> CorruptTable:
    return CorruptTable(
        f"{where}: the frame at byte {position} is damaged: {reason}. No rows of this log were "
        "given. Restore the file from a copy, or remove it to go on without its rows."
    )


def frame_bytes(header: bytes) -> int | None:
    """How long the body behind a frame's header is; None if this is no sound header."""
    if len(header) < HEADER_BYTES:
        return None
    marker, length, _ = _HEAD.unpack_from(header)
    (check,) = _CHECK.unpack_from(header, _HEAD.size)
    is_sound = marker == MARKER and _hash(header[: _HEAD.size]) & _LOW32 == check
    return int(length) if is_sound else None


def read_frame(header: bytes, body: bytes, where: str, kinds: frozenset[int]) -> Frame:
    """One frame of a file that is read piece by piece."""
    _, length, checksum = _HEAD.unpack_from(header)
    if len(body) != length or _hash(body) != checksum:
        raise CorruptTable(f"{where}: {'it is cut off' if len(body) < length else 'damaged bytes'}")
    return _frame(memoryview(body), where, kinds)


def _frame(body: memoryview, where: str, kinds: frozenset[int] = LOG_KINDS) -> Frame:
    if len(body) < _BODY.size:
        raise CorruptTable(f"{where}: a frame of {len(body)} bytes is too short")
    kind, schema_id, rows = _BODY.unpack_from(body)
    start = _BODY.size + 8 * rows
    if kind not in kinds or start > len(body):
        raise CorruptTable(f"{where}: a frame of kind {kind} and {rows} rows is none we know")
    return Frame(kind, schema_id, np.frombuffer(body, "<i8", rows, _BODY.size), body[start:])


# --- chunks, where a store cannot append --------------------------------------------------------


def encode_chunk(chunk_id: bytes, frames: bytes) -> bytes:
    """Frames that were stored together, with an id by which their writer knows them again."""
    head = _CHUNK.pack(CHUNK_MAGIC, chunk_id, len(frames))
    return head + _SUM64.pack(_hash(head)) + frames


def read_chunks(data: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """The id and the frames of each chunk of an object, which holds whole chunks only."""
    position = 0
    while position < len(data):
        head = data[position : position + _CHUNK.size]
        start = position + CHUNK_HEADER_BYTES
        if start > len(data) or _SUM64.unpack_from(data, start - 8)[0] != _hash(head):
            raise _damaged(where, position, "its chunk has no sound header")
        magic, chunk_id, length = _CHUNK.unpack(head)
        if magic != CHUNK_MAGIC or start + length > len(data):
            raise _damaged(where, position, "its chunk is cut off")
        yield chunk_id, data[start : start + length]
        position = start + length
