"""JSON documents in LZ4 frames: self-checking, bounded, readable with `lz4 -dc | jq`.

The frame's header is compared bit by bit with the only form we write. That matters: a flipped
flag could otherwise switch the content checksum off.
"""

from __future__ import annotations

from typing import Any, Final

import lz4.frame
import orjson
import xxhash

from strandline.tableformat.errors import CorruptTable, InvalidInput

MAX_OBJECT_BYTES: Final = 16 * 2**20
MAX_TEXT_BYTES: Final = 128 * 2**20
"""A document may not unfold to more than this: a small file must not exhaust memory."""
MAX_MARKS: Final = 4_000_000
"""Nor hold more of the bytes that separate values: an empty list takes twenty times its text."""
MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS: Final = 0b0110_1100
"""Version 01, independent blocks, no block checksums, content size and content checksum."""
_BLOCK_SIZES: Final = frozenset({0x40, 0x50, 0x60, 0x70})
_HEADER_BYTES: Final = 15
_END_BYTES: Final = 8
"""An end mark of four zero bytes, then the content checksum."""


def checksum(data: bytes | memoryview) -> str:
    """XXH64 of the bytes with seed 0, as 16 lower-case hex digits."""
    return str(xxhash.xxh64_hexdigest(data))


def encode_document(text: bytes) -> bytes:
    """A JSON text as the bytes of an object."""
    data = lz4.frame.compress(
        text, block_linked=False, content_checksum=True, block_checksum=False, store_size=True
    )
    if len(data) > MAX_OBJECT_BYTES or len(text) > MAX_TEXT_BYTES or _too_many_marks(text):
        raise InvalidInput(
            f"the table's manifest would take {len(data)} bytes and may take {MAX_OBJECT_BYTES}. "
            "Nothing was changed. Use fewer columns, fewer stats_columns or shorter properties."
        )
    return bytes(data)


def to_text(value: Any, where: str) -> bytes:
    """A value as JSON text. What strangers nested too deeply to be written again is refused."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise CorruptTable(f"{where} cannot be written again: {error}") from None


def _too_many_marks(text: bytes) -> bool:
    """Count the bytes that may stand before a value: a document has one value more at most."""
    return len(text) > MAX_MARKS and (
        sum(text.count(mark) for mark in (b",", b":", b"[", b"{")) > MAX_MARKS
    )


def decode_document(data: bytes, where: str) -> Any:
    """The JSON value of an object, or a `CorruptTable` that names the object."""
    text = decompress(data, where)
    if _too_many_marks(text):
        raise CorruptTable(f"{where} holds more values than {MAX_MARKS} marks of JSON may separate")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise CorruptTable(f"{where} is not valid JSON: {error}") from None


def decompress(data: bytes, where: str) -> bytes:
    """The text of an LZ4 frame of exactly our form, with its checksum verified."""
    if len(data) > MAX_OBJECT_BYTES:
        raise CorruptTable(f"{where} has {len(data)} bytes; at most {MAX_OBJECT_BYTES} are allowed")
    if len(data) < _HEADER_BYTES + _END_BYTES or data[:4] != MAGIC:
        raise CorruptTable(f"{where} is not an LZ4 frame (truncated or overwritten)")
    size = int.from_bytes(data[6:14], "little")
    if data[4] != _FLAGS or data[5] not in _BLOCK_SIZES or size > MAX_TEXT_BYTES:
        raise CorruptTable(f"{where} has a damaged or foreign LZ4 frame header")
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        text = decompressor.decompress(data, max_length=size + 1)
    except (RuntimeError, MemoryError) as error:
        raise CorruptTable(f"{where} is damaged: {error}") from None
    if len(text) != size or not decompressor.eof or decompressor.unused_data:
        raise CorruptTable(f"{where} is damaged: its LZ4 frame does not end where it should")
    return bytes(text)
