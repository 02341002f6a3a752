"""Rows as one Arrow record batch message in an LZ4 frame: logs, snapshots, remembered queries."""

from __future__ import annotations

from typing import Any, Final

import lz4.frame
import pyarrow as pa

from strandline.tableformat.errors import CorruptTable

_NOT_ARROW: Final = (pa.ArrowException, EOFError, OSError, RuntimeError, TypeError, ValueError)
"""What Arrow and LZ4 say about bytes that are not theirs."""


def pack_batch(batch: pa.RecordBatch) -> bytes:
    """The message of a batch, without its schema."""
    return pack_message(batch.serialize())


def pack_message(message: pa.Buffer) -> bytes:
    """A message as it is stored."""
    return bytes(lz4.frame.compress(message))


def unpack_batch(payload: Any, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The batch of a message that was written with this schema; every offset in it is checked."""
    try:
        message = pa.py_buffer(lz4.frame.decompress(payload))
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except _NOT_ARROW as error:
        raise CorruptTable(f"{where}: it holds no rows: {error}") from None
    return batch
