"""SPEC.md, section 21: a stream table can be read from its description."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import orjson
import xxhash

from strandline.streams.creation import open_stream
from strandline.tableformat import codec, paths
from strandline.tableformat.storage import open_storage
from tests.format_spec.places import GOLDEN, validator
from tests.tables import Script

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = GOLDEN / "streams"
EXPECTED = json.loads((STREAMS / "expected.json").read_text())
NOW = EXPECTED["now_ms"]


def by_the_book(data: bytes) -> list[tuple[int, list[int], bytes]]:
    """A stranger's reader of frames: (kind, times, payload), from the text alone."""
    frames, position = [], 0
    while position < len(data):
        marker, length, checksum, check = struct.unpack_from("<4sIQI", data, position)
        assert marker == bytes.fromhex("f5737431")
        assert check == xxhash.xxh64_intdigest(data[position : position + 16]) & 0xFFFFFFFF
        body = data[position + 20 : position + 20 + length]
        assert checksum == xxhash.xxh64_intdigest(body)
        kind, _, rows = struct.unpack_from("<BII", body)
        times = list(struct.unpack_from(f"<{rows}q", body, 9))
        frames.append((kind, times, body[9 + 8 * rows :]))
        position += 20 + length
    return frames


def test_the_golden_log_reads_by_the_book() -> None:
    """[STR-1] [STR-2] [STR-4] Place, frames and checksums are what the section says."""
    log = STREAMS / "appended" / EXPECTED["log"]

    frames = by_the_book(log.read_bytes())

    assert [kind for kind, _, _ in frames] == [1, 1, 3, 2]
    assert orjson.loads(frames[0][2]) == [["a", 1, NOW], ["b", 2, NOW]]
    assert orjson.loads(frames[2][2]) == [["b"]]
    assert len(frames[3][1]) == 70
    user = "Zoë/1"
    shard = xxhash.xxh64_intdigest(user.encode()) % 16
    assert EXPECTED["log"].split("/")[1] == f"shard-{shard}"


def test_the_golden_chunks_read_by_the_book() -> None:
    """[STR-5] [STR-6] A merged object holds the chunks of its parts, and covers them."""
    folder = STREAMS / "chunked" / EXPECTED["log"]
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"{0:012d}-{2:012d}", f"{1:012d}-{1:012d}", f"{3:012d}-{3:012d}"]
    data, kinds = (folder / names[0]).read_bytes(), []
    while data:
        magic, _, length, checksum = struct.unpack_from("<8s16sQQ", data)
        assert (magic, checksum) == (b"STRCHK1\n", xxhash.xxh64_intdigest(data[:32]))
        kinds += [kind for kind, _, _ in by_the_book(data[40 : 40 + length])]
        data = data[40 + length :]
    assert kinds == [1, 1, 3]


def _rows(table: Any) -> dict[str, Any]:
    return {user: table.latest(user).to_pylist() for user in table.users()}


def test_the_golden_tables_give_their_rows(tmp_path: Path, monkeypatch: Any) -> None:
    """[STR-6] [STR-8] [K4] [K5] The same rows from a file that grew and from objects."""
    for name in ("appended", "chunked"):
        shutil.copytree(STREAMS / name, tmp_path / name)
        storage = open_storage(tmp_path / name)
        monkeypatch.setattr(storage, "can_append", name == "appended")
        runtime = Script(now=NOW).runtime()
        assert _rows(open_stream(storage, runtime=runtime)) == EXPECTED["rows"]
        later = Script(now=NOW + 60_001).runtime()
        assert all(not rows for rows in _rows(open_stream(storage, runtime=later)).values())


def test_the_manifest_of_a_stream_table_fits_its_schema() -> None:
    """[STR-1] [VER-1] Its feature is named, and its configuration described."""
    data = (STREAMS / "appended" / paths.manifest_path(1)).read_bytes()
    document = codec.decode_document(data, "golden")

    validator("manifest").validate(document)
    assert document["reader_features"] == document["writer_features"] == ["stream"]
    assert document["config"]["stream"] == {"row_id": 1, "shards": 16}
