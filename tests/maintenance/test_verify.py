"""Verify finds every kind of damage, and all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import strandline
from strandline.catalog import tidy
from strandline.tableformat import rolling
from tests.edited import commit_by_hand, first_data_file, flip
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from strandline.table import Table
    from strandline.tableformat.segments import PageRef
    from tests.tables import Place

HOUR_MS = 3_600_000
N_ID = "4"
"""Of the column `n`."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three appends of ten rows, the middle one split over windows."""
    made = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts", ttl="12h")
    made.append(events(0, 10))
    made.append(events(10, 10, step_ms=HOUR_MS // 3))
    made.append(events(20, 10))
    return made


def _messages(table: Table, **options: Any) -> str:
    report = table.verify(**options)
    assert report.ok == (not report.problems)
    return "\n".join(str(problem) for problem in report.problems)


def test_a_sound_table_has_no_problems(place: Place) -> None:
    """On disk, in memory and on S3; the report counts what it looked at."""
    made = place.create(ttl="12h")
    made.append(events(0, 10, step_ms=HOUR_MS // 3))
    made.evolve(rename={"amount": "price"}, add={"amount": "int64"})
    made.append([{"n": 10, "amount": 1}])

    for deep in (False, True):
        report = place.open().verify(deep=deep)
        assert report.problems == ()
        assert (report.rows, report.version, report.deep) == (11, 4, deep)
        assert report.segments == made.files().num_rows
        assert "0 problems" in str(report)


def test_an_empty_table_is_sound(tmp_path: Path) -> None:
    """Nothing to look at is nothing wrong."""
    assert strandline.create_table(tmp_path / "t", {"n": "int64"}).verify(deep=True).ok


def test_every_missing_file_is_listed(table: Table) -> None:
    """[M1] The walk does not stop at the first fault."""
    found = table.files().column("path").to_pylist()
    for path in found:
        Path(table.url, path).unlink()

    report = table.verify()

    assert [problem.path for problem in report.problems] == found
    assert all("is not in the store" in problem.message for problem in report.problems)


def test_a_wrong_size_and_a_wrong_footer_are_found_without_reading_rows(table: Table) -> None:
    """[X4] Sizes and footers are compared by a quick look, too."""
    file = first_data_file(table)
    sound = file.read_bytes()
    file.write_bytes(sound + b"x")
    assert "bytes, and the manifest says" in _messages(table)

    file.write_bytes(sound)
    flip(file, len(sound) - 30)
    assert "footer" in _messages(table)

    file.write_bytes(sound)
    assert _messages(table) == ""


def test_a_flipped_bit_in_the_data_is_found_by_a_deep_look(table: Table) -> None:
    """[X4] Page checksums cover what the footer's does not."""
    file = first_data_file(table)
    first = pq.read_metadata(file).row_group(0).column(0)
    flip(file, first.data_page_offset + first.total_compressed_size - 1)

    assert _messages(table) == ""
    assert "damaged" in _messages(table, deep=True)


def _entries(table: Table) -> tuple[Any, ...]:
    return table.refresh().manifest.segments


def test_a_gap_in_the_sequence_numbers_is_found(table: Table) -> None:
    """[O1] Numbers are dense from 0; a segment that nobody lists leaves a gap."""
    commit_by_hand(table, segments=_entries(table)[1:])
    assert "sequence numbers 0 to 9 are in no file" in _messages(table)

    commit_by_hand(table, segments=_entries(table)[:-1])
    assert "sequence numbers 20 to 29 are in no file" in _messages(table)


def test_a_missing_part_of_a_split_batch_is_found(table: Table) -> None:
    """[O1] Parts of one batch interleave, so their rows are counted."""
    parts = _entries(table)
    assert len(parts) > 4
    commit_by_hand(table, segments=(*parts[:2], *parts[3:]))

    assert "are in no file" in _messages(table) or "only" in _messages(table)


def test_overlapping_sequence_numbers_are_found(table: Table) -> None:
    """[O1] Two rows never share a number."""
    first, *rest = _entries(table)
    copy = replace(first, path=first.path.replace("batch-", "late-"), encoded=b"")
    Path(table.url, copy.path).write_bytes(first_data_file(table).read_bytes())
    commit_by_hand(table, segments=(first, copy, *rest))

    assert "20 rows share the numbers 0 to 9" in _messages(table)


def test_an_entry_that_contradicts_its_rows_is_found(table: Table) -> None:
    """[X4] Bounds that planning trusts are compared with the rows by a deep look."""
    first, *rest = _entries(table)
    narrow = replace(first, max_ts=first.max_ts - 1000, encoded=b"")
    commit_by_hand(table, segments=(narrow, *rest))

    assert _messages(table) == ""
    assert "_ts runs from" in _messages(table, deep=True)


@pytest.fixture
def rolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table whose segments lie in pages, its windows and writer positions too."""
    monkeypatch.setattr(rolling, "LEAST_PAGE", 1)
    monkeypatch.setattr(rolling, "FOLD_WINDOWS_ABOVE", 2)
    monkeypatch.setattr(rolling, "KEEP_WINDOWS", 1)
    monkeypatch.setattr(rolling, "FOLD_POSITIONS_ABOVE", 2)
    monkeypatch.setattr(rolling, "KEEP_POSITIONS", 1)
    made = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts", ttl="12h")
    for n in range(rolling.ROLL_AT + 5):
        made.append(events(n * 6, 6, step_ms=HOUR_MS // 40), f"writer-{n % 4}", n)
    made.refresh()
    made._see(tidy.tidy(made._chain, made._head))  # noqa: SLF001 - what an append does by itself
    return made


def test_pages_are_walked_and_compared(rolled: Table) -> None:
    """[M2] Segment pages, window pages and position pages: each is looked at, each damage found."""
    manifest = rolled.manifest
    assert manifest.window_pages
    assert manifest.position_pages
    assert any(entry.pages for entry in manifest.windows)
    sound = rolled.verify(deep=True)
    assert sound.problems == ()
    assert sound.rows == manifest.next_seq

    pages = sorted(Path(rolled.url, "_strandline/pages").iterdir())
    for page in pages:
        flip(page, page.stat().st_size // 2)
    report = rolled.verify()
    broken = {problem.path for problem in report.problems if problem.path}
    listed = [manifest.window_pages, manifest.position_pages]
    listed += [entry.pages for entry in manifest.windows]
    assert {ref.path for refs in listed for ref in refs} <= broken
    assert "sequence numbers were not compared" in str(report)
    assert "checksum" in str(report)


def test_a_missing_page_is_found(rolled: Table) -> None:
    """[M1] Without the page its segments are not known, and the report says so."""
    ref = rolled.manifest.window_pages[0]
    Path(rolled.url, ref.path).unlink()

    assert f"{ref.path}: the page is missing" in _messages(rolled)


def test_a_reference_that_contradicts_its_page_is_found(rolled: Table) -> None:
    """[M2] Planning skips a page by what its reference says."""
    ref, *rest = rolled.manifest.window_pages
    commit_by_hand(rolled, window_pages=(replace(ref, max_ts=ref.max_ts - 1), *rest))

    assert "its reference says" in _messages(rolled)


@pytest.mark.parametrize("level", ["window page", "segment page"])
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"max": "1"}, "go from"),
        ({"min": "1000"}, "go from 1000 to"),
        ({"null_count": "1"}, "count 1 nulls"),
    ],
)
def test_stats_of_a_reference_that_would_lose_rows_are_told(
    rolled: Table, level: str, lie: dict[str, str], said: str
) -> None:
    """[PAG-3] [X4] Bounds of a page that exclude what it lists; a scan would skip the page."""
    manifest = rolled.manifest
    if level == "window page":
        ref, *rest = manifest.window_pages
        commit_by_hand(rolled, window_pages=(_told(ref, lie), *rest))
    else:
        ref, *more = manifest.windows[0].pages
        changed = replace(manifest.windows[0], pages=(_told(ref, lie), *more), encoded=b"")
        commit_by_hand(rolled, windows=(changed, *manifest.windows[1:]))

    assert f"{ref.path}: the stats of column 'n' in its reference {said}" in _messages(rolled)


def test_stats_of_a_reference_may_be_wider_or_missing(rolled: Table) -> None:
    """[PAG-3] [STA-6] That costs a look and loses nothing."""
    ref, *rest = rolled.manifest.window_pages
    for lie in ({"min": "-5", "max": "99999"}, {"null_count": None}, {"min": None}):
        commit_by_hand(rolled, window_pages=(_told(ref, lie), *rest))

        assert _messages(rolled, deep=True) == ""


def test_stats_in_a_page_are_compared_with_the_rows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[STA-1] [PAG-3] [X4] Page and reference agree with each other, and not with the files."""
    first, *rest = _entries(table)
    stats = {**first.column_stats, N_ID: {**first.column_stats[N_ID], "max": "1"}}
    commit_by_hand(table, segments=(replace(first, column_stats=stats, encoded=b""), *rest))
    table.refresh()
    for name in ("LEAST_PAGE", "ROLL_AT", "ROLL_STEP"):
        monkeypatch.setattr(rolling, name, 1)
    tidy.tidy(table._chain, table._head)  # noqa: SLF001 - what an append does by itself
    assert first.path not in {entry.path for entry in table.refresh().manifest.segments}

    assert _messages(table) == ""
    assert f"{first.path}: the stats of column 'n' rule out a row" in _messages(table, deep=True)


def _told(ref: PageRef, lie: dict[str, Any]) -> PageRef:
    """A reference with other stats of the column `n`; None: without."""
    stats = {k: v for k, v in {**ref.column_stats[N_ID], **lie}.items() if v is not None}
    return replace(ref, column_stats={**ref.column_stats, N_ID: stats})


def test_a_pinned_version_is_verified(table: Table) -> None:
    """[C2] An older version is checked against its own list of files."""
    last = Path(table.url, table.files().column("path").to_pylist()[-1])
    last.unlink()

    assert not table.verify().ok
    assert strandline.open_table(table.url, version=3).verify(deep=True).ok


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("how", ["missing", "cut", "catalog", "blob"])
def test_a_damaged_index_file_is_found(tmp_path: Path, how: str, deep: bool) -> None:  # noqa: FBT001
    """[X4, T8] Scans do without it and say little; verify names the file. Blobs are deep."""
    made = strandline.create_table(
        tmp_path / "t", SCHEMA, time_column="ts", row_group_rows=1024, zone_rows=64
    )
    made.append(events(0, 2000))
    assert made.verify(deep=True).ok
    (index,) = (tmp_path / "t").rglob("*.icx")
    if how == "missing":
        index.unlink()
    elif how == "cut":
        index.write_bytes(index.read_bytes()[:-1])
    else:
        flip(index, 5 if how == "blob" else index.stat().st_size - 5)

    messages = _messages(made, deep=deep)

    assert (index.name in messages) == (deep or how != "blob")
    assert made.scan(filter="n = 7").count() == 1
