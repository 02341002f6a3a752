"""Followers while the table changes under them: compaction, vacuum, expiry, evolution, errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import strandline
from strandline.readers.follow import Follow
from strandline.tableformat.errors import BeyondTail, InvalidInput, MissingFile, StoreBusy
from tests.edited import commit_by_hand
from tests.tables import SCHEMA, START_MS, events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Thirty appends of ten rows: more files than are read ahead."""
    made = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    for first in range(0, 300, 10):
        made.append(events(first, 10))
    return made


def compact(table: Table, tmp_path: Path, *, vacuum: bool) -> None:
    """Replace all files by one with the same rows and numbers; with `vacuum` the old are gone."""
    other = strandline.create_table(tmp_path / "compacted", SCHEMA, time_column="ts")
    other.append(table.scan().to_arrow())
    (entry,) = other.refresh().manifest.segments
    old = table.files().column("path").to_pylist()
    shutil.copy(Path(other.url, entry.path), Path(table.url, entry.path))
    commit_by_hand(table, segments=(entry,), windows=(), window_pages=())
    for path in old if vacuum else ():
        Path(table.url, path).unlink()
    table.refresh()


def numbers(follower: Follow, until: int) -> list[int]:
    """Column `n` of what a follower gives, up to the row with this number."""
    found: list[int] = []
    while until not in found:
        found += next(follower).column("n").to_pylist()
    return found


@pytest.mark.parametrize("vacuum", [False, True], ids=["kept", "vacuumed"])
def test_a_follower_sees_no_row_twice_when_files_are_replaced(
    table: Table,
    tmp_path: Path,
    vacuum: bool,  # noqa: FBT001
) -> None:
    """[O11] [O1] Between two batches, compaction puts all rows into one file; old ones may go."""
    follower = strandline.open_table(table.url).follow(0, ["n"], poll="5ms")
    seen = numbers(follower, 15)

    compact(table, tmp_path, vacuum=vacuum)
    table.append(events(300, 10))
    seen += numbers(follower, 309)

    assert seen == list(range(310))
    assert follower.next_seq == 310


def test_a_follower_that_waits_sees_no_row_of_a_replaced_file_again(
    table: Table, tmp_path: Path
) -> None:
    """[O11] A new version without new rows gives nothing."""
    follower = table.follow(0, ["n"], poll="5ms")
    seen = numbers(follower, 299)

    compact(table, tmp_path, vacuum=True)
    table.append(events(300, 1))

    assert seen + next(follower).column("n").to_pylist() == list(range(301))


def test_rows_that_expire_while_a_follower_reads_are_passed_over(table: Table) -> None:
    """[O11] [O4] What is still visible comes, once; the place moves on."""
    follower = table.follow(0, ["n"], poll="5ms")
    seen = numbers(follower, 9)
    left = numbers(follower, 299)  # the scan under way is of the version before
    assert seen + left == list(range(300))

    late = table.follow(0, ["n"], poll="5ms")
    commit_by_hand(table, floor_ts=START_MS + 150_000, trim_seq=120)
    assert numbers(late, 299) == list(range(150, 300))
    commit_by_hand(table, trim_seq=300)
    table.append(events(400, 2))
    assert next(late).column("n").to_pylist() == [400, 401]
    assert late.next_seq == 302


def test_a_follower_begins_where_another_ended(table: Table) -> None:
    """[O11] `next_seq` is the place behind the last batch that was given, filtered or not."""
    with table.follow(0, ["n"], "n >= 5", poll="5ms") as first:
        seen = next(first).column("n").to_pylist()
        place = first.next_seq

    again = table.follow(place, ["n"], "n >= 5", poll="5ms")

    assert seen + numbers(again, 299) == list(range(5, 300))


def test_a_follower_shows_what_was_asked_for(table: Table) -> None:
    """[O11] Hidden columns where they are named, and columns that are added meanwhile."""
    named = next(table.follow(0, ["_seq", "n", "_ts"], poll="5ms"))
    assert named.schema.names == ["_seq", "n", "_ts"]
    assert named.column("_seq").to_pylist()[:2] == [0, 1]

    follower = table.follow(290, poll="5ms")
    assert next(follower).schema.names == SCHEMA.names
    table.evolve(add={"note": "string"})
    table.append([{"n": 300, "note": "new"}])
    assert next(follower).column("note").to_pylist() == ["new"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"from_seq": 301}, BeyondTail),
        ({"from_seq": -1}, InvalidInput),
        ({"columns": ["nope"]}, InvalidInput),
        ({"filter": "nope = 1"}, InvalidInput),
        ({"poll": "soon"}, InvalidInput),
    ],
)
def test_a_wrong_request_is_refused_at_once(
    table: Table, wrong: dict[str, Any], error: type[Exception]
) -> None:
    """[O10] [O11] Not when the first row comes, which may be tomorrow."""
    with pytest.raises(error):
        table.follow(**wrong)


# --- errors in the middle of a scan -----------------------------------------------------------


class Piecewise:
    """A scan of rows two at a time that fails once behind some of them."""

    def __init__(self, version: int, start: int, end: int, fail_at: int, error: Exception) -> None:
        self.version, self._rows = version, range(start, end)
        self._fail_at, self._error = fail_at, error

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for seq in self._rows[::2]:
            if seq == self._fail_at:
                raise self._error
            held = [one for one in (seq, seq + 1) if one in self._rows]
            yield pa.record_batch({"n": held, "_seq": held})


def follower_that_fails(error: Exception, versions: Iterator[int]) -> Follow:
    """A follower of ten rows whose first scan fails before row 4."""
    failures = iter([4])

    def scan_between(start: int, end: int) -> Any:
        return Piecewise(next(versions), start, end, next(failures, -1), error)

    return Follow(lambda: 10, scan_between, start_seq=0, poll_s=0.001, shows_seq=False)


def test_a_file_that_a_newer_version_has_replaced_is_read_from_there() -> None:
    """[O11] The scan starts again behind the last row that was given."""
    follower = follower_that_fails(MissingFile("gone"), iter([7, 8, 8]))

    assert numbers(follower, 9) == list(range(10))


def test_a_file_that_the_newest_version_misses_is_an_error() -> None:
    """[X4] No version lists the rows elsewhere: they are lost, and the reader is told."""
    follower = follower_that_fails(MissingFile("gone"), iter([7, 7, 7]))

    with pytest.raises(MissingFile):
        numbers(follower, 9)


def test_after_an_error_a_follower_goes_on_where_it_stopped() -> None:
    """[O11] A store that was busy for a while costs no row."""
    follower = follower_that_fails(StoreBusy("later"), iter([7, 7]))
    seen = numbers(follower, 3)

    with pytest.raises(StoreBusy):
        next(follower)

    assert seen + numbers(follower, 9) == list(range(10))
