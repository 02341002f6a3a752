"""Remembered queries: at every moment the answer is that of the whole query."""

from __future__ import annotations

import threading
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.queries import aggregating, answers
from strandline.queries.remembered import FOLDER, Remembered
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.remembered_query import query_from
from strandline.tableformat.safe_names import encode_name
from strandline.tableformat.storage import open_storage
from tests.hostile_names import HOSTILE, NESTING
from tests.stores import WatchedStorage
from tests.tables import SCHEMA, Place, Script, events, memory_url

if TYPE_CHECKING:
    from pathlib import Path

QUERY = {
    "filter": "n != 3",
    "columns": ["user"],
    "bucket": "10s",
    "aggregates": {
        "rows": "count(*)",
        "known": "count(amount)",
        "total": "sum(amount)",
        "whole": "sum(n)",
        "mean": "avg(amount)",
        "least": "min(amount)",
        "most": "max(amount)",
        "first": "min(ts)",
        "kinds": "approx_distinct(n)",
    },
}
ROWS = {"filter": "n > 2", "columns": ["n", "user"]}


def whole(table: strandline.Table, query: dict[str, Any]) -> pa.Table:
    """The answer worked out from all rows at once, in one batch."""
    asked = query_from(query, table.manifest.schema)
    rows = table.scan([*asked.reads, "_ts"], asked.filter).to_arrow()
    if not asked.aggregates:
        return rows.select(list(asked.columns))
    states = aggregating.group_rows(asked, table.manifest.schema, rows)
    return answers.answer(asked, table.manifest.schema, states)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Equal to the bit; NaN is NaN."""
    return one.schema.equals(other.schema) and repr(one.to_pylist()) == repr(other.to_pylist())


def odd_events(first: int, count: int) -> pa.Table:
    """Rows with nulls, NaN, infinities and numbers whose sum depends on the order."""
    special = [None, float("nan"), 1e308, -1e308, 0.1, -0.0, float("inf"), 5e-324, 1e16, 1.0]
    table = events(first, count)
    amounts = [special[n % 10] if n % 3 else n / 7 for n in range(first, first + count)]
    users = [None if n % 11 == 5 else f"user-{n % 3}" for n in range(first, first + count)]
    table = table.set_column(2, "amount", pa.array(amounts, pa.float64()))
    return table.set_column(1, "user", pa.array(users))


def test_answers_are_kept_shown_refreshed_and_forgotten(place: Place) -> None:
    """[E13] [MAT-1] On every store; a second process shows the same."""
    table = place.create()
    table.append(events(0, 40))
    table.remember("by user", QUERY)
    table.remember("rows", ROWS)
    table.append(events(40, 20))

    for handle in (table, place.open()):
        assert same(handle.show("by user"), whole(handle, QUERY))
        assert same(handle.show("rows"), whole(handle, ROWS))
    assert table.refresh_query("by user") == 60
    assert same(table.show("by user"), whole(table, QUERY))
    assert table.remembered() == ["by user", "rows"]

    table.forget("rows")
    with pytest.raises(strandline.InvalidInput, match="no query is remembered"):
        table.show("rows")
    assert table.remembered() == ["by user"]
    table.remember("rows", {"columns": ["n"]})
    assert table.show("rows").num_rows == 60


def test_hostile_aliases_live_side_by_side(tmp_path: Path) -> None:
    """[E13] [O5] Any name is an alias; what is forgotten or refreshed often is one alone."""
    table = strandline.create_table(tmp_path / "t", {"n": "int64"})
    for number, name in enumerate(HOSTILE):
        table.append([{"n": number}])
        table.remember(name, {"filter": f"n = {number}", "columns": ["n"]})
    assert table.remembered() == sorted(HOSTILE)
    for _ in range(6):
        table.append([{"n": -1}])
        table.refresh_query(NESTING[0])
    assert {name: table.show(name)["n"].to_pylist() for name in HOSTILE} == {
        name: [number] for number, name in enumerate(HOSTILE)
    }

    frames = set((tmp_path / "t").rglob("*.frame"))
    table.forget(NESTING[0])

    gone = frames - set((tmp_path / "t").rglob("*.frame"))
    own = tmp_path / "t" / FOLDER / encode_name(NESTING[0]) / "frames"
    assert {path.parent for path in gone} == {own}
    assert table.remembered() == sorted(set(HOSTILE) - {NESTING[0]})


steps = st.sampled_from(
    ["append", "append", "refresh", "compact", "delete", "overwrite", "evolve", "reopen"]
)


@settings(max_examples=25)
@given(st.lists(steps, max_size=10))
def test_the_answer_is_that_of_the_whole_query_at_every_moment(story: list[str]) -> None:
    """[E13] [MAT-1] [MAT-2] Whatever happens to the table in between, to the last bit."""
    url = memory_url()
    table = strandline.create_table(url, SCHEMA, time_column="ts")
    table.append(odd_events(0, 12))
    table.remember("q", QUERY)
    table.remember("r", ROWS)
    for number, step in enumerate(story, 1):
        if step == "append":
            table.append(odd_events(12 * number, 12))
        elif step == "refresh":
            table.refresh_query("q")
            table.refresh_query("r")
        elif step == "compact":
            table.compact()
        elif step == "delete":
            table.delete(filter=f"n > {5 * number} AND n < {5 * number + 9}")
        elif step == "overwrite":
            table.overwrite(odd_events(100 * number, 5))
        elif step == "evolve":
            table.evolve(add={f"extra{number}": "int32"})
        else:
            table = strandline.open_table(url)
        assert same(table.show("q"), whole(table, QUERY)), step
        assert same(table.show("r"), whole(table, ROWS)), step


def test_only_what_is_new_is_read() -> None:
    """[E13] [MAT-1] Data files below the mark are not opened."""
    storage = WatchedStorage(open_storage(memory_url()))
    table = create_in(storage, SCHEMA, time_column="ts", runtime=Script().runtime())
    table.append(events(0, 40))
    table.remember("q", QUERY)
    table.append(events(40, 3))
    storage.calls.clear()

    table.show("q")

    read = {path for name, path in storage.calls if name.startswith("read") and "parquet" in path}
    assert len(read) == 1


def test_refreshes_at_the_same_time_never_double() -> None:
    """[E13] [MAT-3] Frames and mark move in one create: one of several wins, the others see it."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    table.remember("q", QUERY)
    for turn in range(3):
        table.append(events(turn * 20, 20))
        threads = [threading.Thread(target=table.refresh_query, args=("q",)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert same(table.show("q"), whole(table, QUERY))
        head = Remembered(table, "q").head()
        assert head is not None
        assert head.mark is not None
        assert head.mark.next_seq == 20 * (turn + 1)


def test_a_lost_frame_is_worked_out_again() -> None:
    """[E13] [MAT-1] What is kept can be lost: the table has it all; a refresh writes it anew."""
    storage = open_storage(memory_url())
    table = create_in(storage, SCHEMA, time_column="ts", runtime=Script().runtime())
    table.append(events(0, 10))
    table.remember("q", QUERY)
    head = Remembered(table, "q").head()
    assert head is not None
    storage.delete([head.frames[0].path])

    assert same(table.show("q"), whole(table, QUERY))
    table.append(events(10, 5))
    assert table.refresh_query("q") == 15

    assert same(table.show("q"), whole(table, QUERY))
    head = Remembered(table, "q").head()
    assert head is not None
    assert storage.read(head.frames[0].path)


@pytest.mark.parametrize("verb", ["refresh_query", "forget"])
def test_who_always_comes_too_late_gives_up(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[E13] [MAT-3] An error that says so, and not a loop without an end."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    table.remember("q", QUERY)
    table.append(events(0, 10))
    monkeypatch.setattr(Remembered, "_create", lambda *_: False)

    with pytest.raises(strandline.CommitConflict, match="Try again"):
        getattr(table, verb)("q")


def test_retention_keeps_the_newest_rows_and_buckets() -> None:
    """[E13] [MAT-4] By rows and by age, before and after a refresh."""
    script = Script()
    table = create_in(
        open_storage(memory_url()), SCHEMA, time_column="ts", runtime=script.runtime()
    )
    table.append(events(0, 50))
    table.remember("rows", {"columns": ["n"], "retention": {"rows": 5}})
    table.remember("old", {"columns": ["n"], "retention": {"age": "1d"}})
    counted = {"n": "count(*)"}
    table.remember("b", {"bucket": "10s", "aggregates": counted, "retention": {"rows": 2}})

    for _ in range(2):
        assert table.show("rows").column("n").to_pylist() == list(range(45, 50))
        assert table.show("b").column("n").to_pylist() == [10, 10]
        assert table.show("old").num_rows == 0
        for alias in ("rows", "old", "b"):
            table.refresh_query(alias)


def test_a_changed_schema_is_handled_or_refused() -> None:
    """[E13] [MAT-2] A new column changes nothing; a renamed one is a clear error."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    table.append(events(0, 10))
    table.remember("q", QUERY)
    table.evolve(add={"more": "int32"})
    assert same(table.show("q"), whole(table, QUERY))
    table.evolve(rename={"amount": "price"})
    with pytest.raises(strandline.InvalidInput, match="no longer fits"):
        table.show("q")
    table.forget("q")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ([], "a dict"),
        ({"where": "x"}, "a dict"),
        ({"filter": 7}, "text"),
        ({"filter": "nope = 1"}, "nope"),
        ({"columns": "n"}, "a list"),
        ({"columns": ["nope"]}, "nope"),
        ({"bucket": "1h"}, "needs aggregates"),
        ({"aggregates": {"a": "median(n)"}}, "must be one of"),
        ({"aggregates": {"a": "sum(*)"}}, "only count"),
        ({"aggregates": {"a": "sum(user)"}}, "cannot be summed"),
        ({"columns": ["amount"], "aggregates": {"a": "count(*)"}}, "cannot be grouped"),
        ({"columns": ["n"], "aggregates": {"n": "count(*)"}}, "same name"),
        ({"aggregates": {"a": "count(*)"}, "retention": {"rows": 1}}, "needs a bucket"),
        ({"retention": {"rows": 0}}, "1 or more"),
        ({"aggregates": {"\ud800": "count(*)"}}, "valid Unicode"),
        ({"filter": "user = '\ud800'"}, "valid Unicode"),
    ],
)
def test_a_query_that_cannot_be_kept_is_refused(query: Any, reason: str) -> None:
    """[E13] Said at once, and nothing is stored."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    with pytest.raises(strandline.InvalidInput, match=reason):
        table.remember("q", query)
    assert table.remembered() == []


def test_tables_without_a_common_sequence_are_refused() -> None:
    """[E13] Users share the table's folder: one must not be shown another's answer."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts", scope="user")
    alice = table.user("alice")
    alice.append(events(0, 5))
    for handle in (table, alice):
        with pytest.raises(strandline.InvalidInput, match="scope='user'"):
            handle.remember("q", QUERY)


def test_trimmed_and_expired_rows_leave_the_answer() -> None:
    """[E13] [MAT-2] A raised floor or trim point ends the use of a kept state."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts", ttl="1d")
    table.append(events(0, 40))
    table.remember("q", QUERY)
    table.trim(15)
    assert same(table.show("q"), whole(table, QUERY))
    assert sum(table.show("q").column("rows").to_pylist()) == 25
    table.expire()
    assert same(table.show("q"), whole(table, QUERY))
    assert table.show("q").num_rows == 0


def test_an_alias_keeps_its_query() -> None:
    """[E13] The same query again is fine, another is a conflict."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    table.remember("../x", QUERY)
    table.remember("../x", QUERY)
    with pytest.raises(strandline.CommitConflict, match="another query"):
        table.remember("../x", ROWS)
    assert table.remembered() == ["../x"]


def test_decimals_are_summed_up_exactly() -> None:
    """[E13] Kept sums and new rows give the sum over everything; too many digits are an error."""
    kind, digits = pa.decimal128(38, 2), Context(prec=38)
    table = strandline.create_table(memory_url(), pa.schema([("k", pa.int64()), ("d", kind)]))
    big = 10**36 - 1
    some = [0, 1, -1, 10**30 + 7, -(10**30), None, big, -big, 2**64, -(2**96), 2**31 - 1, 5]

    def append(numbers: list[int | None]) -> None:
        values = [None if n is None else Decimal(n).scaleb(-2, digits) for n in numbers]
        keys = [row % 2 for row in range(len(numbers))]
        rows = pa.table({"k": keys, "d": pa.array(values, kind)}, schema=table.schema)
        table.append(rows)

    query = {"columns": ["k"], "aggregates": {"total": "sum(d)", "mean": "avg(d)"}}
    table.remember("sums", query)
    append(some)
    table.refresh_query("sums")
    append(some[::-1])

    shown = table.show("sums")

    both = some + some[::-1]
    for key, row in enumerate(shown.to_pylist()):
        known = [n for n in both[key::2] if n is not None]
        assert row["total"] == Decimal(sum(known)).scaleb(-2, digits)
        assert row["mean"] == sum(known) / (100 * len(known))
    assert shown.schema.field("total").type == pa.decimal128(38, 2)
    append([big] * 300)
    with pytest.raises(InvalidInput, match="38 digits"):
        table.show("sums")
