"""Small splits of many segments are read together, and answer as if each were read alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import strandline
from strandline.readers import bundle, flat_pages, split_reader
from strandline.tableformat.errors import CorruptTable, MissingFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.table import Table

SEGMENTS, ROWS, USERS = 20, 3_000, 500
SCHEMA = pa.schema(
    [("user", pa.string()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))],
)
WANTED = "user = 'u21'"


@pytest.fixture
def visits(tmp_path: Path) -> Table:
    """Users that every segment has some rows of, in pages of 64 rows with postings."""
    table = strandline.create_table(
        tmp_path / "visits",
        SCHEMA,
        indexes={"user": ["postings"]},
        row_group_rows=1_024,
        zone_rows=64,
        zone_pages=True,
    )
    for first in range(0, SEGMENTS * ROWS, ROWS):
        table.append([_row(n) for n in range(first, first + ROWS)])
    return table


def _row(n: int) -> dict[str, object]:
    return {"user": f"u{n * 7 % USERS}", "n": n, "tags": ["a"] * (n % 3)}


def _expected() -> list[dict[str, object]]:
    return [row for row in map(_row, range(SEGMENTS * ROWS)) if row["user"] == "u21"]


def _files(table: Table) -> list[Path]:
    return sorted(Path(table.url).glob("w*/*/*.parquet"))


def test_a_lookup_over_many_segments_gives_the_rows_of_each(visits: Table) -> None:
    """[E9, E10] All columns, nested ones too, in order, and the splits were small enough."""
    scan = visits.scan(filter=WANTED)
    readers = [scan._reader(split, {1, 2, 3}) for split in scan.plan().splits]  # noqa: SLF001

    assert [len(run) for run in bundle.bundles(readers)] == [20]
    assert scan.to_arrow().to_pylist() == _expected()
    assert visits.scan(["_seq"], WANTED).to_arrow().column(0).to_pylist() == [
        row["n"] for row in _expected()
    ]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each small file of pages was made of."""
    seen: list[int] = []
    decode = flat_pages.FlatPages.decode

    def noting(self: flat_pages.FlatPages, blobs: Sequence[bytes]) -> pa.Table:
        seen.append(len(self.page_counts))
        return decode(self, blobs)

    monkeypatch.setattr(flat_pages.FlatPages, "decode", noting)
    return seen


def test_flat_pages_of_all_segments_are_decoded_as_one(visits: Table, at_once: list[int]) -> None:
    """[E9, E10] Hidden columns say of each row the same as when its file is read alone."""
    names = ["n", "_seq", "user", "_window", "_ts"]
    hidden = {"_window": pa.int64(), "_ts": pa.int64()}

    rows = visits.scan(names, WANTED).to_arrow()

    assert at_once == [SEGMENTS]
    assert rows.column_names == names
    assert rows.column("n").to_pylist() == [row["n"] for row in _expected()]
    assert rows.column("_seq").to_pylist() == rows.column("n").to_pylist()
    every = visits.scan([*hidden, "user"]).to_arrow().to_pylist()
    expected = [row for row in every if row["user"] == "u21"]
    assert rows.select([*hidden, "user"]).to_pylist() == expected


def test_pages_that_hold_more_than_is_wanted_are_cut(tmp_path: Path, at_once: list[int]) -> None:
    """[E10] Zones are smaller than pages: of each page only the rows of wanted zones count."""
    table = strandline.create_table(
        tmp_path / "t", pa.schema([("n", pa.int64())]), indexes={"n": ["postings"]},
        row_group_rows=1_024, zone_rows=16,
    )  # fmt: skip
    for first in range(0, 4 * ROWS, ROWS):
        table.append([{"n": n} for n in range(first, first + ROWS)])
    wanted = [5, 1_023, 1_024, 4_000, 4_017, 11_999]

    rows = table.scan(["n", "_seq"], f"n IN ({', '.join(map(str, wanted))})").to_arrow()

    assert at_once == [3]
    assert rows.to_pylist() == [{"n": n, "_seq": n} for n in wanted]


def test_files_of_another_schema_are_decoded_apart(visits: Table) -> None:
    """[M3, E9] A column that only newer files have is null in the older ones."""
    visits.evolve(add={"more": "float64"}, rename={"n": "number"})
    last = SEGMENTS * ROWS
    visits.append([{"user": "u21", "number": last, "tags": None, "more": 0.5}] * 3_000)

    rows = visits.scan(["number", "more"], WANTED).to_arrow().to_pylist()

    assert rows[: len(_expected())] == [{"number": r["n"], "more": None} for r in _expected()]
    assert rows[len(_expected()) :] == [{"number": last, "more": 0.5}] * 3_000


def test_a_piece_of_many_bytes_is_read_alone(
    visits: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[E10] Rows that take more bytes than expected are read in their own way."""
    monkeypatch.setattr(split_reader, "ONE_STEP_BYTES", 1_000)

    assert visits.scan(filter=WANTED).to_arrow().to_pylist() == _expected()


def test_a_missing_file_is_named(visits: Table) -> None:
    """[M1] One lost file of many fails the scan, under its name."""
    lost = _files(visits)[7]
    lost.unlink()

    with pytest.raises(MissingFile, match=lost.name):
        visits.scan(filter=WANTED).to_arrow()


@pytest.mark.parametrize("columns", [None, ["user", "n"]], ids=["nested", "flat"])
def test_a_damaged_page_is_an_error_that_names_its_file(
    visits: Table, columns: list[str] | None
) -> None:
    """[X4] [PGT-11] A flipped bit in one of many files never gives other rows."""
    damaged = _files(visits)[3]
    data = bytearray(damaged.read_bytes())
    for place in range(4, len(data) - 8_000, 50):
        data[place] ^= 0x10
    damaged.write_bytes(data)

    with pytest.raises(CorruptTable, match=damaged.name):
        visits.scan(columns, WANTED).to_arrow()


def test_headers_of_flat_pages_are_checked_too(
    visits: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[X4] [PGT-11] Parquet's own CRC leaves a page's header out; our checksum covers it."""
    seen = []
    decode = flat_pages.FlatPages.decode

    def keeping(self: flat_pages.FlatPages, blobs: Sequence[bytes]) -> pa.Table:
        seen.append((self, list(blobs)))
        return decode(self, blobs)

    monkeypatch.setattr(flat_pages.FlatPages, "decode", keeping)
    visits.scan(["n"], WANTED).to_arrow()
    ((pages, blobs),) = seen
    for bit in range(8 * 32):
        damaged = bytearray(blobs[3])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptTable, match="checksum that its page table gives"):
            decode(pages, [*blobs[:3], bytes(damaged), *blobs[4:]])
