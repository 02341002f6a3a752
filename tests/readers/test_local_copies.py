"""Index files and footers in the local cache: a second process asks the store for rows alone."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from strandline.api import create_in, open_in
from strandline.catalog.page_cache import PAGES
from strandline.readers import index_reader, split_reader
from strandline.tableformat.stores.memory import MemoryStorage

if TYPE_CHECKING:
    from pathlib import Path

SEGMENTS, ROWS = 3, 3_000
WANTED = "user = 'u21'"


def new_process() -> None:
    """Forget what is in memory."""
    PAGES.clear()
    index_reader.CACHE.clear()


@pytest.fixture
def stored() -> str:
    """Three segments with postings, in pages of 64 rows."""
    name = uuid4().hex
    table = create_in(
        MemoryStorage(name),
        {"user": "string", "n": "int64"},
        time_column=None,
        indexes={"user": ["postings"]},
        row_group_rows=1_024,
        zone_rows=64,
        zone_pages=True,
    )
    for first in range(0, SEGMENTS * ROWS, ROWS):
        table.append([{"user": f"u{n * 7 % 500}", "n": n} for n in range(first, first + ROWS)])
    return name


def expected() -> list[int]:
    """The numbers of the user's visits."""
    return [n for n in range(SEGMENTS * ROWS) if n * 7 % 500 == 21]


class Counted(MemoryStorage):
    """Notes the kind of file of every request for ranges, as it would go to the store."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[str] = []

    def _read_spans(self, spans: Any) -> list[bytes]:
        self.asked += [span.path.rsplit(".", 1)[-1] for span in spans]
        return super()._read_spans(spans)


def lookup(name: str, cache: Path, **options: Any) -> list[str]:
    """Look one user up in a new process; what it asked the store for, by kinds of file."""
    new_process()
    storage = Counted(name)
    table = open_in(storage, cache=cache)
    storage.asked.clear()

    rows = table.scan(["n"], WANTED, **options).to_arrow()

    assert rows.column("n").to_pylist() == expected()
    return storage.asked


def test_a_second_process_reads_no_index_file(stored: str, tmp_path: Path) -> None:
    """[M4] [M8] Catalogs and indexes come from the machine's own copies; only rows are fetched."""
    cold = lookup(stored, tmp_path)
    warm = lookup(stored, tmp_path)

    assert sorted(cold) == ["icx"] * SEGMENTS + ["parquet"] * SEGMENTS
    assert warm == ["parquet"] * SEGMENTS


def test_indexes_that_did_not_come_with_the_catalog_are_kept_too(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] Large ones take a request of their own, the first time."""
    monkeypatch.setattr(index_reader, "FIRST_READ_BYTES", 1)
    cold = lookup(stored, tmp_path)

    assert cold.count("icx") == 2 * SEGMENTS  # the catalog; then the page table with the postings
    assert "icx" not in lookup(stored, tmp_path)


def test_a_second_process_reads_no_footer(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[M4] Of files too large to be read whole, the footer is kept."""
    monkeypatch.setattr(split_reader, "WHOLE_FILE_BYTES", 0)
    cold = lookup(stored, tmp_path, indexes=False)
    warm = lookup(stored, tmp_path, indexes=False)

    assert cold == ["parquet"] * 2 * SEGMENTS
    assert warm == ["parquet"] * SEGMENTS


def test_a_wrong_copy_is_found_out_and_the_store_is_asked(stored: str, tmp_path: Path) -> None:
    """[M4] [X4] Copies are believed by their checksums alone."""
    cold = lookup(stored, tmp_path)
    (file,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(file) as db:
        changed = db.execute(
            "UPDATE objects SET data = zeroblob(length(data)) WHERE key LIKE '%.icx%'"
        ).rowcount
    db.close()

    assert changed == 3 * SEGMENTS
    assert lookup(stored, tmp_path) == cold
