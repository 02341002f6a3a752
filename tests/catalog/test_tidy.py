"""Metadata stays bounded: rolls, merges and folds change no answer and lose no writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from strandline.api import create_in, open_in
from strandline.catalog import documents, tidy
from strandline.catalog.manifest_service import ManifestService
from strandline.tableformat import codec, pages, paths, rolling
from strandline.tableformat.errors import StorageFailed
from strandline.tableformat.storage import open_storage
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, START_MS, Script, events, memory_url, numbers_in

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.table import Table
    from strandline.tableformat.manifest import Manifest


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that a few appends reach every kind of page."""
    for name, value in {
        "ROLL_AT": 4,
        "ROLL_STEP": 2,
        "ROLL_ALL_AT": 6,
        "LEAST_PAGE": 2,
        "TIER_FACTOR": 2,
        "FOLD_WINDOWS_ABOVE": 4,
        "KEEP_WINDOWS": 2,
        "MERGE_DOCUMENTS_AT": 2,
        "FOLD_POSITIONS_ABOVE": 4,
        "KEEP_POSITIONS": 2,
    }.items():
        monkeypatch.setattr(rolling, name, value)


def make(**options: object) -> Table:
    """Create a table in memory."""
    return create_in(
        open_storage(memory_url()), SCHEMA, time_column="ts", runtime=Script().runtime(), **options
    )


def head_of(table: Table) -> Manifest:
    """Look at the newest manifest."""
    return table.refresh()._head.manifest  # noqa: SLF001


@pytest.mark.usefixtures("eager")
def test_rolled_merged_and_folded_tables_answer_the_same() -> None:
    """[M1, M6] Every scan over pages equals the scan over plain segments, pruning included."""
    table = make(ttl="1d")
    for batch in range(40):
        # Every append falls into another hour, and every third goes back to an old one.
        table.append(events(batch if batch % 3 else 0, 2, step_ms=3_600_000))
    manifest = head_of(table)

    assert manifest.window_pages, "no window was folded"
    assert manifest.windows, "no segment was rolled"
    expected = [n for b in range(40) for n in ((b, b + 1) if b % 3 else (0, 1))]
    assert numbers_in(table) == expected
    assert table.scan(columns=["_seq"]).to_arrow().column("_seq").to_pylist() == list(range(80))
    for least in (0, 5, 20, 39):
        start = START_MS + least * 3_600_000
        assert numbers_in(table, start_ts=start) == [n for n in expected if n >= least]
        assert numbers_in(table, filter=f"n = {least}") == [n for n in expected if n == least]
        assert numbers_in(table, start_seq=2 * least) == expected[2 * least :]
    listed = table.files()["path"].to_pylist()
    assert len(listed) == len(set(listed))


@pytest.mark.usefixtures("eager")
def test_a_filter_on_a_nested_column_passes_pages() -> None:
    """[E11] Pages hold no stats of lists, so nothing is skipped, and the rows are right."""
    schema = {"n": "int64", "tags": pa.list_(pa.string())}
    table = create_in(open_storage(memory_url()), schema, time_column=None)
    for n in range(8):
        table.append([{"n": n, "tags": None if n % 2 else ["a"]}])

    assert head_of(table).windows, "no segment was rolled"
    assert numbers_in(table, filter="tags IS NULL") == [1, 3, 5, 7]
    assert numbers_in(table, filter="tags IS NOT NULL AND n > 2") == [4, 6]


@pytest.mark.usefixtures("eager")
def test_pruning_goes_through_window_pages_pages_and_segments() -> None:
    """[M1, X3] A narrow time range opens few pages, and the report says what was removed."""
    table = make(ttl="1d")
    for batch in range(60):
        table.append(events(batch, 1, step_ms=3_600_000))

    report = table.scan(start_ts=START_MS, end_ts=START_MS + 3_600_000).plan().report

    assert report.segments.kept == 2
    assert report.window_pages.kept < report.window_pages.considered
    assert report.segments.considered < 20


@pytest.mark.usefixtures("eager")
def test_writer_positions_survive_folding() -> None:
    """[C1] A writer that was folded away long ago still has its batches recognised."""
    table = make()
    for writer in range(30):
        table.append(events(writer, 1), writer_id=f"w{writer}", batch=writer + 1)
    assert head_of(table).position_pages

    for writer in range(30):
        again = table.append(events(writer, 1), writer_id=f"w{writer}", batch=writer + 1)
        assert again.duplicate
        assert again.first_seq == writer
    for writer in (0, 3, 29):
        assert not table.append(events(99, 1), writer_id=f"w{writer}", batch=100).duplicate
    for writer in range(30, 60):
        table.append(events(writer, 1), writer_id=f"w{writer}", batch=1)
    # The newer of two stored positions counts, wherever each of them lies by now.
    assert table.append(events(99, 1), writer_id="w0", batch=100).duplicate
    assert table.append(events(99, 1), writer_id="w3", batch=50).duplicate


@pytest.mark.usefixtures("eager")
def test_idle_positions_are_forgotten_only_when_all_pages_merge() -> None:
    """Beyond writer_retention a position may go; before, it never does."""
    script = Script()
    table = create_in(
        open_storage(memory_url()),
        SCHEMA,
        time_column="ts",
        writer_retention="1h",
        runtime=script.runtime(),
    )
    table.append(events(0, 1), writer_id="old", batch=5)
    for writer in range(20):
        script.now += 60_000 if writer < 10 else 3_600_000
        table.append(events(writer, 1), writer_id=f"w{writer}", batch=1)

    assert not table.append(events(0, 1), writer_id="old", batch=5).duplicate


def test_a_manifest_stays_small_however_long_the_history(tmp_path: Path) -> None:
    """[M6] Bytes per commit do not grow with the table: 300 appends, the same limit throughout."""
    table = create_in(open_storage(tmp_path / "t"), SCHEMA, time_column="ts")
    sizes = []
    for batch in range(300):
        table.append(events(batch, 1))
        sizes.append(
            max(p.stat().st_size for p in (tmp_path / "t/_strandline/manifests").iterdir())
        )

    assert len(head_of(table).segments) < rolling.ROLL_AT + rolling.ROLL_STEP
    assert sizes[-1] <= 1.5 * sizes[80]
    assert numbers_in(table) == list(range(300))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("failure", [StorageFailed("x"), ValueError("x"), pa.ArrowInvalid("x")])
def test_a_failing_roll_never_fails_the_append(failure: Exception) -> None:
    """[X5] The append was acknowledged; what comes after it may fail silently."""
    plain = open_storage(memory_url())
    watched = WatchedStorage(plain)
    table = create_in(watched, SCHEMA, time_column="ts", runtime=Script().runtime())

    def hook(name: str, path: str) -> None:
        del name
        if path.startswith(paths.PAGES):
            raise failure

    watched.before = hook
    for batch in range(12):
        table.append(events(batch, 1))

    assert numbers_in(open_in(plain)) == list(range(12))
    assert not head_of(open_in(plain)).windows


@pytest.mark.usefixtures("eager")
def test_a_roll_that_lost_the_race_reuses_its_page() -> None:
    """Another append in between does not spoil the page, because its inputs are still there."""
    plain = open_storage(memory_url())
    watched = WatchedStorage(plain)
    table = create_in(watched, SCHEMA, time_column="ts", runtime=Script().runtime())
    other = open_in(plain)
    for batch in range(3):
        table.append(events(batch, 1))

    def hook(name: str, path: str) -> None:
        if name == "write_new" and path.startswith(paths.PAGES):
            watched.before = lambda *_: None
            other.append(events(50, 1))

    watched.before = hook
    table.append(events(3, 1))

    assert [w.pages[0].entries for w in head_of(table).windows] == [4]
    assert len([1 for name, path in watched.calls if path.startswith(paths.PAGES)]) == 1
    assert numbers_in(open_in(plain)) == [0, 1, 2, 3, 50]


@pytest.mark.usefixtures("eager")
def test_two_rolls_of_the_same_segments_land_once() -> None:
    """The second finds its inputs moved and gives up; no segment is listed twice."""
    plain = open_storage(memory_url())
    table = create_in(plain, SCHEMA, time_column="ts", runtime=Script().runtime())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "ROLL_AT", 100)
        for batch in range(6):
            table.append(events(batch, 1))
    stale = table._head  # noqa: SLF001 - both rolls start from the same version
    landed = tidy.tidy(table._chain, stale)  # noqa: SLF001
    tidy.tidy(table._chain, stale)  # noqa: SLF001

    assert open_in(plain).version == landed.manifest.version
    assert table.files().num_rows == 6
    assert numbers_in(open_in(plain)) == list(range(6))


def test_replaced_pages_are_listed_as_removed() -> None:
    """[C8] A commit names the files it no longer refers to, so that nobody has to search."""
    table = make()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "ROLL_AT": 2,
            "ROLL_STEP": 1,
            "LEAST_PAGE": 1,
            "TIER_FACTOR": 2,
        }.items():
            patch.setattr(rolling, name, value)
        seen: set[str] = set()
        removed: set[str] = set()
        for batch in range(20):
            table.append(events(batch, 1))
            manifest = head_of(table)
            seen |= {page.path for w in manifest.windows for page in w.pages}
        for record in table.history():
            snapshot = table._chain.load(record.version)  # noqa: SLF001
            removed |= set(snapshot.manifest.removed_files)
        kept = {page.path for w in head_of(table).windows for page in w.pages}

    assert removed
    assert seen - kept == removed & seen
    assert not removed & kept


def test_pages_keep_stats_of_every_kind_of_column() -> None:
    """[M2, M3] Text, bytes, floats with NaN, decimals, times and nulls prune the same in a page."""
    schema = {
        "s": "string",
        "b": "binary",
        "f": "float64",
        "d": "decimal(38,4)",
        "t": "timestamp",
        "o": "bool",
    }
    storage = open_storage(memory_url())
    table = create_in(storage, schema, time_column=None)
    for i in range(70):
        table.append(
            {
                "s": [f"k{i:03}", None],
                "b": [bytes([i]), b""],
                "f": [float(i), float("nan") if i % 10 == 0 else 0.5],
                "d": [None, None],
                "o": [i % 2 == 0, None],
            }
        )
    assert head_of(table).windows
    for text, rows in {
        "s = 'k005'": 1,
        "b = X'07'": 1,
        "f > 1e9": 7,
        "f = 12": 1,
        "d IS NOT NULL": 0,
        "o = TRUE": 35,
    }.items():
        assert table.scan(filter=text).count() == rows, text
    assert table.scan(filter="s = 'k005'").plan().report.segments.kept == 1
    assert table.scan(filter="d > 0").plan().report.segments.kept == 0
    page_ref = head_of(table).windows[0].pages[0]
    (page,) = documents.segment_pages(ManifestService(storage), [page_ref])
    again = pages.merge_pages([page], head_of(table).schema)
    assert codec.checksum(again) == page_ref.xxh64
