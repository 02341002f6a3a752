"""SPEC.md, section 18: a log can be read from its description, and is replayed by its rules."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lz4.frame
import orjson
import pyarrow as pa
import pytest
import xxhash

import strandline
from strandline.place import TablePlace
from strandline.tableformat import schema as schemas
from strandline.tableformat.errors import DamagedLog, WriterPositionLost
from strandline.writers.log import read_log
from strandline.writers.recovery import recover
from strandline.writers.wal_files import LogFolder
from strandline.writers.wal_frames import frame, json_payload, read_header
from tests.edited import commit_by_hand
from tests.format_spec.places import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table

LOG = GOLDEN / "logs" / "v1.wal"
OF_A_USER = GOLDEN / "logs" / "v1_user.wal"
MOMENT = "2026-01-31T12:00:00.250000+00:00"
FIRST = [MOMENT, "ä", -5, 0.1, True, "2026-01-31", "12.50", "AP8="]


def by_the_book(data: bytes) -> tuple[dict[str, Any], list[tuple[int, int, int, bytes]]]:
    """A stranger's reader: header and (record, arrived, kind, payload), from the text alone."""
    magic, length, checksum = struct.unpack_from("<8sIQ", data)
    text = data[20 : 20 + length]
    assert (magic, checksum) == (b"STRWAL1\n", xxhash.xxh64_intdigest(text))
    frames, position = [], 20 + length
    while position < len(data):
        marker, length, checksum = struct.unpack_from("<4sIQ", data, position)
        body = data[position + 16 : position + 16 + length]
        assert marker == bytes.fromhex("f5726563")
        assert checksum == xxhash.xxh64_intdigest(body)
        frames.append((*struct.unpack_from("<QqB", body), body[17:]))
        position += 16 + length
    return orjson.loads(text), frames


def test_the_golden_log_reads_by_the_book() -> None:
    """[WAL-1] The bytes are what the tables of section 18 say, and records count up by one."""
    header, frames = by_the_book(LOG.read_bytes())

    assert {key: header[key] for key in header if key != "schema"} == {
        "table_uuid": "00112233445566778899aabbccddeeff",
        "writer_id": "p1",
        "incarnation": "ffeeddccbbaa99887766554433221100",
        "first_record": "7",
    }
    assert [(record, kind) for record, _, kind, _ in frames] == [(7, 1), (8, 1), (9, 2)]
    assert [arrived for _, arrived, _, _ in frames] == [1769860800300 + i for i in range(3)]
    assert orjson.loads(frames[0][3]) == [FIRST]
    assert orjson.loads(frames[1][3]) == [[None] * 8, FIRST]
    columns = schemas.from_json(header["schema"]).arrow
    message = pa.py_buffer(lz4.frame.decompress(frames[2][3]))
    assert pa.ipc.read_record_batch(message, columns).column("n").to_pylist() == [2**62, None]


def test_the_golden_log_reads_with_the_library() -> None:
    """[WAL-1] [E2] Both kinds of payload give the rows that were taken."""
    (file,) = read_log([(LOG.name, LOG.read_bytes())])

    rows = [record.rows(file.header.schema).to_pylist() for record in file.records]

    assert [record.number for record in file.records] == [7, 8, 9]
    assert [len(part) for part in rows] == [1, 2, 2]
    assert rows[0][0] == rows[1][1]
    assert rows[0][0]["ts"].isoformat() == MOMENT
    assert (rows[0][0]["raw"], str(rows[0][0]["price"])) == (b"\x00\xff", "12.50")
    assert rows[1][0] == rows[2][1] == dict.fromkeys(file.header.schema.arrow.names)


def test_the_same_rows_give_the_same_frame() -> None:
    """[WAL-1] What is written today is what the golden log holds."""
    data = LOG.read_bytes()
    header, start = read_header(data, LOG.name) or pytest.fail("no header")

    assert header.encode() == data[:start]
    again = frame(7, 1769860800300, 1, json_payload([FIRST]))
    assert data[start : start + len(again)] == again


def test_the_golden_log_of_a_user_says_whose_it_is() -> None:
    """[WAL-9] [M9] By the book and with the library; a table's own log names nobody."""
    data = OF_A_USER.read_bytes()
    header, frames = by_the_book(data)

    assert header["user"] == "Zoë/1"
    assert [orjson.loads(payload) for *_, payload in frames] == [[["hello"]], [[None]]]
    (file,) = read_log([(OF_A_USER.name, data)])
    assert (file.header.user, file.header.encode()) == ("Zoë/1", data[: len(file.header.encode())])
    assert "user" not in by_the_book(LOG.read_bytes())[0]


def test_files_continue_each_other_or_are_damaged() -> None:
    """[WAL-2] [WAL-3] [WAL-4] Repeated numbers are ignored, gaps and bad middles refused."""
    data = LOG.read_bytes()
    header, start = read_header(data, LOG.name) or pytest.fail("no header")
    payload = json_payload([[None] * 8])

    def following(first: int) -> bytes:
        return replace(header, first_record=first).encode() + frame(first, 0, 1, payload)

    continued = read_log([("a-1.wal", data), ("a-2.wal", following(10))])
    assert [r.number for f in continued for r in f.records] == [7, 8, 9, 10]
    repeated = read_log([("a-1.wal", data), ("a-2.wal", following(9))])
    assert [r.arrived_ms for f in repeated for r in f.records][-1] == 0
    assert [r.number for f in repeated for r in f.records] == [7, 8, 9]
    with pytest.raises(DamagedLog, match="begins with record 11"):
        read_log([("a-1.wal", data), ("a-2.wal", following(11))])
    torn = read_log([("a-1.wal", data[:-1])])
    assert [r.number for r in torn[0].records] == [7, 8]
    bad = bytearray(data)
    bad[start + 20] ^= 1
    with pytest.raises(DamagedLog, match="record 7 is damaged"):
        read_log([("a-1.wal", bytes(bad))])


# --- replaying --------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of numbers."""
    return strandline.create_table(tmp_path / "t", {"n": "int64"})


def numbers(table: Table) -> list[int]:
    """All rows."""
    return table.scan().to_arrow().column("n").to_pylist()  # type: ignore[no-any-return]


def leave_behind(table: Table, wal: Path, *rows: int) -> None:
    """A log with rows that were committed (the first) and rows that were not."""
    writer = table.writer("p", wal=wal, flush_age="1h", close_timeout_s=0.0)
    writer.append({"n": rows[0]}).wait()
    for row in rows[1:]:
        writer.append({"n": row})
    writer._flusher.abandoned.set()  # noqa: SLF001 - end as a crash does: nothing more is committed
    with writer._buffers.changed:  # noqa: SLF001
        writer._buffers.failed = strandline.WriterClosed("crashed")  # noqa: SLF001
        writer._buffers.changed.notify_all()  # noqa: SLF001
    writer._flusher.thread.join()  # noqa: SLF001


def test_replay_leaves_out_what_is_committed(table: Table, tmp_path: Path) -> None:
    """[WAL-5] [WAL-8] [E2] [E3] Once each; the files go when all of their records are in."""
    leave_behind(table, tmp_path / "wal", 1, 2, 3)
    assert numbers(table) == [1]
    assert list((tmp_path / "wal").glob("*.wal"))

    with table.writer("p", wal=tmp_path / "wal") as writer:
        assert writer.recovered.records == 2

    assert numbers(table) == [1, 2, 3]
    assert not list((tmp_path / "wal").glob("*.wal"))


def test_a_replaced_log_is_replayed_under_an_id_of_its_own(table: Table, tmp_path: Path) -> None:
    """[WAL-5] [WAL-7] [O8] The writer that took over is not disturbed, and nothing is doubled."""
    leave_behind(table, tmp_path / "old", 1, 2, 3)
    with table.writer("p", wal=tmp_path / "new") as successor:
        successor.append({"n": 10}).wait()
        folder = LogFolder(str(tmp_path / "old"))
        recovered = recover(TablePlace(table), "p", folder)
        folder.release()
        successor.append({"n": 11}).wait()

    assert recovered.records == 2
    assert sorted(numbers(table)) == [1, 2, 3, 10, 11]
    assert any(key.startswith("recovered#") for key in table.refresh().manifest.positions)


def test_a_log_that_the_table_does_not_know_is_refused(table: Table, tmp_path: Path) -> None:
    """[WAL-6] [E2] Without the position nobody knows which records arrived."""
    leave_behind(table, tmp_path / "wal", 1, 2)
    commit_by_hand(table, positions={})

    with pytest.raises(WriterPositionLost, match="keeps no position"):
        strandline.open_table(table.url).writer("p", wal=tmp_path / "wal")

    assert numbers(table) == [1]
    assert list((tmp_path / "wal").glob("*.wal"))
