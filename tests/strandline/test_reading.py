"""Reading a stream by position, following it, and rows by key."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import strandline
from strandline.tableformat.errors import BeyondTail, InvalidInput, VersionNotFound
from tests.edited import commit_by_hand
from tests.tables import SCHEMA, START_MS, events

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from strandline.table import Table
    from tests.tables import Place


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three appends of ten rows, one second apart."""
    made = strandline.create_table(tmp_path / "t", SCHEMA, time_column="ts")
    for first in (0, 10, 20):
        made.append(events(first, 10))
    return made


def numbers(rows: pa.Table) -> list[int]:
    """Column `n`, which counts rows."""
    return rows.column("n").to_pylist()  # type: ignore[no-any-return]


# --- read -------------------------------------------------------------------------------------


def test_a_read_begins_at_a_number_a_time_or_before_the_tail(place: Place) -> None:
    """[O10] On disk, in memory and on S3; a time finds the first row at or after it."""
    made = place.create()
    made.append(events(0, 20))

    assert numbers(made.read(from_seq=17).rows) == [17, 18, 19]
    assert numbers(made.read(from_ts=START_MS + 16_001).rows) == [17, 18, 19]
    assert numbers(made.read(from_ts=START_MS + 17_000).rows) == [17, 18, 19]
    assert numbers(made.read(tail_offset=2).rows) == [18, 19]
    assert numbers(made.read(tail_offset=100).rows) == list(range(20))
    assert numbers(made.read().rows) == list(range(20))
    assert made.read(from_ts=START_MS + 10**9).rows.num_rows == 0


def test_reads_end_at_a_limit_and_say_where_to_go_on(table: Table) -> None:
    """[O10] Count, bytes and time; reading on neither misses nor repeats a row."""
    first = table.read(count=13)
    assert (numbers(first.rows), first.next_seq, first.tail_seq) == (list(range(13)), 13, 30)
    assert table.read(from_seq=13, count=17).next_seq == 30
    assert table.read(from_seq=5, count=0).next_seq == 5

    until = table.read(from_seq=3, until_ts=START_MS + 12_000)
    assert (numbers(until.rows), until.next_seq) == (list(range(3, 12)), 12)

    seen: list[int] = []
    position = 0
    while position < 30:
        piece = table.read(["n"], from_seq=position, bytes=100)
        assert 0 < piece.rows.num_rows <= 12
        seen += numbers(piece.rows)
        position = piece.next_seq
    assert seen == list(range(30))


def test_a_row_larger_than_the_limit_is_read_alone(table: Table) -> None:
    """[O10] Otherwise nobody would ever get past it."""
    piece = table.read(from_seq=7, bytes=1)

    assert (numbers(piece.rows), piece.next_seq) == ([7], 8)


def test_a_filtered_read_goes_on_behind_its_last_row(table: Table) -> None:
    """[O10] Rows that do not match are passed over once."""
    first = table.read(["n"], "user = 'user-3'", count=2)
    assert numbers(first.rows) == [3, 10]
    assert first.next_seq == 11

    rest = table.read(["n"], "user = 'user-3'", from_seq=first.next_seq)
    assert (numbers(rest.rows), rest.next_seq) == ([17, 24], 30)
    assert rest.rows.column_names == ["n"]


def test_a_read_behind_the_tail_says_where_the_tail_is(table: Table) -> None:
    """[O10] At the tail there is nothing yet; behind it something is wrong."""
    at_tail = table.read(from_seq=30)
    assert (at_tail.rows.num_rows, at_tail.next_seq) == (0, 30)

    with pytest.raises(BeyondTail, match="gets number 30") as caught:
        table.read(from_seq=31)
    assert caught.value.tail_seq == 30


def test_trimmed_rows_are_passed_over(table: Table) -> None:
    """[O10] A reader that comes too late begins with the oldest row there is."""
    commit_by_hand(table, trim_seq=25)

    assert numbers(table.read(from_seq=3, count=2).rows) == [25, 26]
    assert numbers(table.read(tail_offset=30, count=1).rows) == [25]


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_seq": 1, "tail_offset": 1},
        {"from_seq": -1},
        {"from_ts": "yesterday"},
        {"count": -1},
        {"bytes": 1.5},
        {"until_ts": True},
        {"columns": ["nothing"]},
    ],
)
def test_wrong_reads_are_refused(table: Table, wrong: dict[str, Any]) -> None:
    """[O10] With an error of ours."""
    with pytest.raises(InvalidInput):
        table.read(**wrong)


# --- follow -----------------------------------------------------------------------------------


def test_a_follower_sees_every_row_once(place: Place) -> None:
    """[O11] What was there, what comes while it reads, and nothing twice."""
    made = place.create()
    made.append(events(0, 5))
    seen: list[int] = []
    with place.open().follow(0, ["n"], poll="5ms") as follower:
        for batch in follower:
            assert batch.schema.names == ["n"]
            seen += batch.column("n").to_pylist()
            if len(seen) < 30:
                made.append(events(len(seen), 5))
            else:
                break
        assert follower.next_seq == 30

    assert seen == list(range(30))


def test_a_follower_begins_with_new_rows_unless_told(table: Table) -> None:
    """[O11] Without a number it waits for what comes next."""
    follower = table.follow(poll="5ms")
    table.append(events(30, 3))

    batch = next(follower)

    assert batch.column("n").to_pylist() == [30, 31, 32]
    assert batch.schema.names == SCHEMA.names


def test_a_waiting_follower_can_be_stopped(table: Table) -> None:
    """[O11] From another thread, although no row comes."""
    follower = table.follow(poll="1h")
    ended: list[list[Any]] = []
    thread = threading.Thread(target=lambda: ended.append(list(follower)))
    thread.start()
    follower.stop()
    thread.join(30)

    assert ended == [[]]


def test_a_follower_filters_and_passes_over_what_does_not_match(table: Table) -> None:
    """[O11] Its place moves on, also where nothing matched."""
    follower = table.follow(0, ["n"], "n >= 28", poll="5ms")
    assert next(follower).column("n").to_pylist() == [28, 29]
    table.append(events(0, 5))
    table.append(events(40, 1))

    assert next(follower).column("n").to_pylist() == [40]


# --- by key -----------------------------------------------------------------------------------


def test_rows_of_one_key_of_many_and_of_all(table: Table) -> None:
    """[T2] By key, then by time; both bounds are inclusive."""
    one = table.by_key(["user-3"], by="user", columns=["n"])
    assert numbers(one) == [3, 10, 17, 24]
    many = table.by_key(["user-5", "user-3"], by="user", columns=["user", "n"])
    assert numbers(many) == [3, 10, 17, 24, 5, 12, 19, 26]
    everything = table.by_key(by="user", columns=["n"])
    assert numbers(everything) == sorted(range(30), key=lambda n: (n % 7, n))
    bounded = table.by_key(
        ["user-3"], by="user", start_ts=START_MS + 10_000, end_ts=START_MS + 17_000
    )
    assert numbers(bounded) == [10, 17]
    assert table.by_key([], by="user").num_rows == 0


def test_a_limit_holds_for_each_key(table: Table) -> None:
    """[T2] The earliest or the latest; 0 is no limit."""
    assert numbers(table.by_key(["user-3", "user-5"], by="user", limit=2)) == [3, 10, 5, 12]
    latest = table.by_key(["user-3", "user-5"], by="user", limit=1, latest=True)
    assert numbers(latest) == [24, 26]
    assert table.by_key(by="user", limit=1).num_rows == 7
    assert table.by_key(by="user", limit=0).num_rows == 30


def test_late_rows_are_merged_in_order_and_equal_ones_are_both_kept(table: Table) -> None:
    """[T3] [T2] Order is by time, whatever the order of arrival."""
    table.append(events(10, 1))
    table.append(events(3, 1))

    assert numbers(table.by_key(["user-3"], by="user")) == [3, 3, 10, 10, 17, 24]


def test_the_key_is_the_shard_key_unless_named(tmp_path: Path) -> None:
    """[T2] [T6] A table without one asks for a name."""
    made = strandline.create_table(
        tmp_path / "s", SCHEMA, time_column="ts", shard_by="user", shards=4
    )
    made.append(events(0, 30))

    assert numbers(made.by_key(["user-1"])) == [1, 8, 15, 22, 29]
    bare = strandline.create_table(tmp_path / "b", SCHEMA, time_column="ts")
    with pytest.raises(InvalidInput, match="by='name'"):
        bare.by_key(["user-1"])
    with pytest.raises(InvalidInput, match="list of values"):
        made.by_key("user-1")


def test_null_is_a_key_of_its_own_among_all(table: Table) -> None:
    """[T2] A limit counts rows without a key together, too."""
    table.append([{"n": 100}, {"n": 101}])

    assert numbers(table.by_key(by="user", limit=1))[-1] == 100
    assert table.by_key(by="user", limit=1).num_rows == 8


# --- changes ----------------------------------------------------------------------------------


def test_changes_are_the_rows_after_a_version(table: Table) -> None:
    """[O10] Incremental reads between two versions."""
    assert numbers(table.changes(2).to_arrow()) == list(range(10, 30))
    assert numbers(table.changes(3, ["n"], "n > 25").to_arrow()) == [26, 27, 28, 29]
    assert table.changes(4).count() == 0
    pinned = strandline.open_table(table.url, version=3)
    assert numbers(pinned.changes(2).to_arrow()) == list(range(10, 20))
    with pytest.raises(InvalidInput, match="newer"):
        pinned.changes(4)
    with pytest.raises(VersionNotFound):
        table.changes(99)
