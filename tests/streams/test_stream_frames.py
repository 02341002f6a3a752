"""The bytes of stream logs: what is torn, what is damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.storage import open_storage
from strandline.tableformat.stream_frames import (
    JSON_ROWS,
    encode_chunk,
    encode_frame,
    encode_frame_of,
    read_chunks,
    read_frames,
    sound_bytes,
)
from tests.streams.rigs import NOW, new_stream, pairs, reopened, row
from tests.tables import Script

if TYPE_CHECKING:
    from pathlib import Path

FIRST = encode_frame_of(JSON_ROWS, 1, [NOW], b'[["a",1,2]]')
SECOND = encode_frame(JSON_ROWS, 1, np.array([NOW, NOW + 1]), b'[["b",1,2],["c",1,2]]')
LOG = FIRST + SECOND


def test_a_torn_last_frame_is_ignored_wherever_it_was_cut() -> None:
    """[K4] [STR-4] Every length: what came before is read, and nothing is made up."""
    for length in range(len(LOG) + 1):
        whole = 2 if length == len(LOG) else int(length >= len(FIRST))
        for end in (b"", bytes(40)):  # zeros: a power cut kept the length and lost the bytes
            data = LOG[:length] + (end if length in (0, len(FIRST), len(LOG)) else b"")
            assert len(list(read_frames(data, "log"))) == whole
            assert sound_bytes(data, "log") == (0, len(FIRST), len(LOG))[whole]


def test_every_flipped_bit_is_an_error_that_names_the_place() -> None:
    """[K4] [X4] [STR-4] Also in the last frame: it is whole, so it was not torn."""
    for place in range(len(LOG)):
        for bit in range(8):
            data = bytearray(LOG)
            data[place] ^= 1 << bit
            with pytest.raises(CorruptTable, match="frame at byte"):
                list(read_frames(bytes(data), "log"))


def test_every_flipped_bit_of_a_chunk_is_an_error() -> None:
    """[K6] [X4] [STR-5] Objects are whole, so nothing is taken for torn, not even a cut one."""
    chunks = encode_chunk(b"1" * 16, FIRST) + encode_chunk(b"2" * 16, SECOND)

    def read(data: bytes) -> list[bytes]:
        found = list(read_chunks(data, "object"))
        for _, frames in found:
            list(read_frames(frames, "object", may_be_torn=False))
        return [chunk_id for chunk_id, _ in found]

    assert read(chunks) == [b"1" * 16, b"2" * 16]
    for place in range(len(chunks)):
        data = bytearray(chunks)
        data[place] ^= 1 << (place % 8)
        with pytest.raises(CorruptTable):
            read(bytes(data))
        if place not in (0, len(chunks) // 2):
            cut_at_chunk = place == len(encode_chunk(b"1" * 16, FIRST))
            if not cut_at_chunk:
                with pytest.raises(CorruptTable):
                    read(chunks[:place])


def test_the_next_writer_cuts_a_torn_end_and_goes_on(tmp_path: Path) -> None:
    """[K4] [STR-4] Behind a torn frame nothing could be read: it goes before the next is added."""
    storage, script = open_storage(tmp_path), Script(now=NOW)
    new_stream(storage, script).put("alice", [row("a", 1)], flush=True)
    (log,) = tmp_path.glob("w*/*/alice.log")
    sound = log.read_bytes()
    log.write_bytes(sound + sound[:-3])

    table = reopened(storage, script)
    assert pairs(table.latest("alice")) == [("a", 1)]
    table.put("alice", [row("b", 2)], flush=True)

    assert pairs(reopened(storage, script).range("alice")) == [("a", 1), ("b", 2)]


def test_a_damaged_log_takes_no_more_rows_and_says_so(tmp_path: Path) -> None:
    """[K4] [STR-4] Reading and writing name the file and the byte; other users are not touched."""
    storage, script = open_storage(tmp_path), Script(now=NOW)
    table = new_stream(storage, script)
    table.put("alice", [row("a", 1)], flush=True)
    table.put("bob", [row("a", 1)], flush=True)
    (log,) = tmp_path.glob("w*/*/alice.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)

    other = reopened(storage, script)
    with pytest.raises(CorruptTable, match=r"alice\.log: the frame at byte 0"):
        other.latest("alice")
    with pytest.raises(CorruptTable, match=r"alice\.log"):
        other.put("alice", [row("b", 2)], flush=True)
    assert pairs(other.latest("bob")) == [("a", 1)]
