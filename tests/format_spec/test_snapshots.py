"""SPEC.md, snapshots: a file can be read from its description."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import lz4.frame
import orjson
import pyarrow as pa
import xxhash

import strandline
from strandline.tableformat import schema as schemas
from strandline.tableformat.snapshot_format import SnapshotHeader, SnapshotRanges
from tests.format_spec.places import GOLDEN, load_schema, validator
from tests.tables import memory_url

FILE = GOLDEN / "snapshots" / "v1.snap"


def test_the_golden_snapshot_reads_by_the_book() -> None:
    """[SNP-1] [SNP-2] [SNP-3] Magic, header, record, trailer, and their checksums."""
    data, position, frames = FILE.read_bytes(), 8, []
    assert data[:8] == b"STRSNP1\n"
    while position < len(data):
        marker, length, checksum, check = struct.unpack_from("<4sIQI", data, position)
        body = data[position + 20 : position + 20 + length]
        assert marker == bytes.fromhex("f5737431")
        assert check == xxhash.xxh64_intdigest(data[position : position + 16]) & 0xFFFFFFFF
        assert checksum == xxhash.xxh64_intdigest(body)
        kind, _, rows = struct.unpack_from("<BII", body)
        frames.append((kind, body[9 + 8 * rows :]))
        position += 20 + length

    assert [kind for kind, _ in frames] == [16, 2, 17]
    header, trailer = orjson.loads(frames[0][1]), orjson.loads(frames[2][1])
    assert (header["start_seq"], header["end_seq"], header["start_ts"]) == ("1", "4", None)
    validator("snapshot_header", strict=True).validate(header)
    validator("snapshot_trailer", strict=True).validate(trailer)
    columns = schemas.from_json(header["schema"]).arrow.append(pa.field("_seq", pa.int64()))
    batch = pa.ipc.read_record_batch(pa.py_buffer(lz4.frame.decompress(frames[1][1])), columns)
    assert batch.column("_seq").to_pylist() == [1, 2, 3]
    assert batch.column("name").to_pylist() == ["b", None, "d"]
    assert (trailer["records"], trailer["rows"], trailer["max_seq"]) == ("1", "3", "3")


def test_schemas_list_the_fields_of_the_code() -> None:
    """[SNP-1] No drift: what the library writes into header and trailer is in their schemas."""
    for name, record in (("header", SnapshotHeader), ("trailer", SnapshotRanges)):
        fields = {field.name for field in dataclasses.fields(record)}
        schema = load_schema(f"snapshot_{name}")
        assert set(schema["properties"]) == set(schema["required"]) == fields
    empty = frame_payload(SnapshotRanges().encode(1))
    validator("snapshot_trailer", strict=True).validate(empty)


def frame_payload(data: bytes) -> Any:
    """The JSON of a frame without rows."""
    return orjson.loads(data[20 + 9 :])


def test_the_golden_snapshot_is_replayed() -> None:
    """[SNP-4] [E12] Under the snapshot's id, by today's library."""
    table = strandline.create_table(memory_url(), {"at": "int64", "name": "string"})

    strandline.replay(FILE, table)

    assert table.scan(columns=["name"]).to_arrow().column("name").to_pylist() == ["b", None, "d"]
    snapshot_id = strandline.inspect_snapshot(FILE).header.snapshot_id
    assert f"snapshot#{snapshot_id}" in table.manifest.positions
