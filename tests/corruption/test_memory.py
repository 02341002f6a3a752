"""Small files that claim or unfold to gigabytes: refused, with a bounded amount of memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.tableformat import codec, pages
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.pages import FIXED, MAX_PAGE_ENTRIES, SegmentPage
from strandline.tableformat.segments import PageRef

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
BLOCK = 4 * MIB

READ_AND_MEASURE = """
import resource, sys
from pathlib import Path
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable
data = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    codec.decode_document(data, "the bomb")
except CorruptTable:
    answer = "refused"
else:
    answer = "read"
print(answer, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def frame(claimed: int, block: bytes, count: int) -> bytes:
    """An LZ4 frame of our form whose header claims a size, with one block many times."""
    header = lz4.frame.LZ4FrameCompressor(
        block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, content_checksum=True
    ).begin(claimed)
    whole = lz4.frame.compress(
        block, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    body = whole[7:-4]  # without its own header and end mark
    return bytes(header + body * count + bytes(8))


def measured(tmp_path: Path, data: bytes) -> tuple[str, int]:
    """Decode a document in a process of its own; what came of it, and the growth in MiB."""
    path = tmp_path / "bomb"
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", READ_AND_MEASURE, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    answer, growth = done.stdout.split()
    return answer, int(growth)


@pytest.mark.parametrize("claimed", [10, BLOCK, codec.MAX_TEXT_BYTES, codec.MAX_TEXT_BYTES + 1])
def test_a_frame_that_unfolds_to_more_than_it_claims(tmp_path: Path, claimed: int) -> None:
    """[X4] Four gigabytes in a file of a few megabytes."""
    data = frame(claimed, bytes(BLOCK), 900)
    assert len(data) < codec.MAX_OBJECT_BYTES
    answer, growth = measured(tmp_path, data)
    assert answer == "refused"
    assert growth < 2 * codec.MAX_TEXT_BYTES // MIB + 64


@pytest.mark.parametrize("claimed", [2**40, 2**63, 2**64 - 1])
def test_a_frame_that_claims_more_than_a_document_may_have(tmp_path: Path, claimed: int) -> None:
    """[X4] The claim is refused before memory is reserved for it."""
    answer, growth = measured(tmp_path, frame(claimed, b"{}", 1))
    assert answer == "refused"
    assert growth < 16


@pytest.mark.parametrize("text", [b"[],", b'{"":', b"1.5,"])
def test_json_that_takes_many_times_its_text(tmp_path: Path, text: bytes) -> None:
    """[X4] Values are counted before they are made."""
    whole = b"[" + text * (codec.MAX_TEXT_BYTES // len(text) - 1) + b"0]"
    data = lz4.frame.compress(whole, block_linked=False, content_checksum=True, store_size=True)
    assert len(data) < codec.MAX_OBJECT_BYTES
    answer, growth = measured(tmp_path, bytes(data))
    assert answer == "refused"
    assert growth < 2 * codec.MAX_TEXT_BYTES // MIB + 64


def test_the_largest_number_of_values_fits_in_memory(tmp_path: Path) -> None:
    """What is just allowed takes a few hundred megabytes at most."""
    whole = b"[" + b"[]," * (codec.MAX_MARKS // 2 - 1) + b"0]"
    answer, growth = measured(tmp_path, codec.encode_document(whole))
    assert answer == "read"
    assert growth < 400


def test_no_document_is_written_that_would_not_be_read() -> None:
    """The same limits hold for writers."""
    with pytest.raises(InvalidInput, match="manifest would take"):
        codec.encode_document(b"[" + b"0," * codec.MAX_MARKS + b"0]")


# --- segment pages -----------------------------------------------------------------------------


def page_of(path: pa.Array, **options: object) -> bytes:
    """A segment page with these paths and zeros in all other columns."""
    columns = {
        field.name: path
        if field.name == "path"
        else pa.nulls(len(path), field.type).fill_null(_zero(field.type))
        for field in FIXED
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=FIXED), sink, compression="zstd", **options)
    return bytes(sink.getvalue())


def _zero(kind: pa.DataType) -> object:
    return "" if kind == pa.string() else False if kind == pa.bool_() else 0


def open_page(data: bytes, entries: int) -> SegmentPage:
    """A page with a reference that fits it."""
    ref = PageRef(
        path="_strandline/pages/1-0123456789abcdef.parquet",
        object_bytes=len(data),
        xxh64=codec.checksum(data),
        entries=entries,
        row_count=entries,
        size_bytes=1,
        min_seq=0,
        max_seq=entries,
        min_ts=0,
        max_ts=0,
        column_stats={},
    )
    return SegmentPage(ref, data)


@pytest.mark.parametrize(
    "options",
    [
        {"use_dictionary": True},
        {"use_dictionary": False, "column_encoding": {"path": "DELTA_BYTE_ARRAY"}},
    ],
    ids=["dictionary", "shared_prefix"],
)
def test_a_page_that_repeats_text_by_reference_is_refused(options: dict[str, object]) -> None:
    """[X4] A few kilobytes of file would become gigabytes of paths."""
    paths = pa.array(["x" * 4_000] * 10_000)
    data = page_of(paths, **options)
    assert len(data) < 100_000
    page = open_page(data, 10_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptTable, match="by reference"):
        page.entries(np.arange(10_000))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 16 * 1024


def test_a_page_with_too_many_rows_or_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """[X4] By what the footer says, before a column is read."""
    rows = MAX_PAGE_ENTRIES + 1
    data = page_of(pa.array([""] * rows), use_dictionary=False)
    with pytest.raises(CorruptTable, match="at most 32768"):
        open_page(data, rows)
    monkeypatch.setattr(pages, "MAX_UNFOLDED_BYTES", MIB)
    data = page_of(pa.array(["x" * MIB]), use_dictionary=False)
    with pytest.raises(CorruptTable, match="in 1048576 are allowed"):
        open_page(data, 1)
