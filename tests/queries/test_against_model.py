"""Remembered answers against a plain model: rows counted up one by one, in Python."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline.api import create_in
from strandline.queries import aggregating, answers
from strandline.tableformat.remembered_query import query_from
from strandline.tableformat.storage import open_storage
from tests.queries.test_remembered import odd_events
from tests.tables import SCHEMA, START_MS, Script, memory_url

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE_MS = 60_000
GROUPED = {
    "filter": "n != 3 OR n IS NULL",
    "columns": ["user"],
    "bucket": "30s",
    "aggregates": {
        "rows": "count(*)",
        "known": "count(amount)",
        "total": "sum(amount)",
        "whole": "sum(n)",
        "mean": "avg(amount)",
        "least": "min(amount)",
        "most": "max(amount)",
        "last": "max(user)",
    },
}
ALL = {"aggregates": {"rows": "count(*)", "total": "sum(amount)"}}
ROWS = {"filter": "n > 2", "columns": ["n", "user"]}


def model(table: strandline.Table, query: dict[str, Any]) -> list[dict[str, Any]]:
    """What the query means: visible rows that fit the filter, grouped and counted by hand."""
    rows = table.scan(["user", "amount", "n", "_ts"], query.get("filter")).to_arrow().to_pylist()
    if "aggregates" not in query:
        return [{"n": row["n"], "user": row["user"]} for row in rows]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        start = row["_ts"] - row["_ts"] % 30_000
        key = (row["user"], start) if "bucket" in query else ()
        groups.setdefault(key, []).append(row)
    out = []
    for key in sorted(groups, key=lambda key: [(part is not None, part or "") for part in key]):
        found = dict(zip(("user", "bucket"), key, strict=False))
        for name, call in query["aggregates"].items():
            function, column = call.removesuffix(")").split("(")
            values = [r[column] for r in groups[key]] if column != "*" else [1] * len(groups[key])
            found[name] = aggregated(function, [v for v in values if v is not None])
        out.append(found)
    return out


def aggregated(function: str, values: list[Any]) -> Any:
    """One number of a group."""
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in ("min", "max"):
        numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        if function == "max" and len(numbers) < len(values):
            return math.nan
        return (max if function == "max" else min)(numbers) if numbers else math.nan
    if isinstance(values[0], int):
        return sum(values)
    odd = sum(v for v in values if not math.isfinite(v))
    if not math.isfinite(odd) or any(not math.isfinite(v) for v in values):
        return odd
    exact = sum(map(Fraction, values), Fraction())
    exact = exact / len(values) if function == "avg" else exact
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def same(found: pa.Table, expected: list[dict[str, Any]]) -> bool:
    """Equal, where NaN is NaN, and the two zeros are one as they are for SQL."""
    return [plain(row) for row in found.to_pylist()] == [plain(row) for row in expected]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row that can be compared."""
    return {
        name: "NaN" if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }


def replace_column(table: strandline.Table, _: int) -> None:
    """The name of a column that the filters look at comes to mean another one."""
    table.evolve(drop=["n"])
    table.evolve(add={"n": "int64"})


def refresh(table: strandline.Table, _: int) -> None:
    """Keep all answers as they are now."""
    for alias in ("grouped", "all", "rows"):
        table.refresh_query(alias)


def expire(table: strandline.Table, number: int) -> None:
    """Some minutes later."""
    table.expire(now=START_MS + 12_000 * number + 16 * MINUTE_MS, grace=0)


STEPS: dict[str, Callable[[strandline.Table, int], object]] = {
    "append": lambda t, i: t.append(odd_events(12 * i, 12)),
    "append more": lambda t, i: t.append(odd_events(12 * i + 5, 24)),
    "refresh": refresh,
    "compact": lambda t, _: t.compact(),
    "delete": lambda t, i: t.delete(filter=f"n > {5 * i} AND n < {5 * i + 9}"),
    "overwrite": lambda t, i: t.overwrite(odd_events(12 * i, 5)),
    "trim": lambda t, i: t.trim(min(7 * i, t.tail().next_seq)),
    "expire": expire,
    "add column": lambda t, i: t.evolve(add={f"extra{i}": "int32"}),
    "replace column": replace_column,
    "reorder": lambda t, _: t.evolve(reorder=["amount", "user"]),
    "tag": lambda t, i: t.tag(f"tag-{i}"),
    "vacuum": lambda t, _: t.vacuum(dry_run=False, grace=0),
    "reopen": lambda _, __: None,
}
"""What can happen to a table."""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=9))
def test_an_answer_is_that_of_a_plain_model_whatever_happens(story: list[str]) -> None:
    """[E13] [MAT-1] [MAT-2] Deletes, expiry, trims, compaction, changed columns, in any order."""
    url = memory_url()
    table = strandline.create_table(url, SCHEMA, time_column="ts", ttl="15m")
    table.append(odd_events(0, 12))
    queries = {"grouped": GROUPED, "all": ALL, "rows": ROWS}
    for alias, query in queries.items():
        table.remember(alias, query)
    for number, name in enumerate(story, 1):
        STEPS[name](table, number)
        if name == "reopen":
            table = strandline.open_table(url)
        for alias, query in queries.items():
            assert same(table.show(alias), model(table, query)), (name, alias)


RETAINED: dict[str, dict[str, int]] = {
    "rows": {"rows": 4},
    "age": {"age": 60},
    "both": {"rows": 4, "age": 60},
}
"""By name: how many rows or buckets, and how many seconds."""


def retained(rows: list[tuple[int, int]], now: int, limits: dict[str, int]) -> list[int]:
    """What is kept of rows with a number and a time, in the order they were appended."""
    oldest = now - limits["age"] * 1000 if "age" in limits else 0
    return [n for n, ts in rows if ts >= oldest][-limits.get("rows", len(rows) + 1) :]


def retained_buckets(
    rows: list[tuple[int, int]], now: int, limits: dict[str, int]
) -> list[dict[str, int]]:
    """The same of buckets of ten seconds, of which the end counts."""
    counts = Counter(ts - ts % 10_000 for _, ts in rows)
    oldest = now - limits["age"] * 1000 if "age" in limits else 0
    young = sorted(start for start in counts if start + 10_000 > oldest)
    kept = young[-limits.get("rows", len(young) + 1) :]
    return [{"bucket": start, "n": counts[start]} for start in kept]


moves = st.one_of(
    st.just("refresh"),
    st.integers(1, 50),  # seconds that pass
    st.lists(st.integers(0, 90), min_size=1, max_size=6),  # rows, and how many seconds old they are
)


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=12))
def test_retention_gives_what_the_full_query_gives_at_every_time(story: list[Any]) -> None:
    """[E13] [MAT-4] Late rows, a clock that moves and refreshes at any time change no answer."""
    script = Script()
    storage = open_storage(memory_url())
    table = create_in(
        storage, {"at": "int64", "n": "int64"}, time_column="at", runtime=script.runtime()
    )
    counted = {"bucket": "10s", "aggregates": {"n": "count(*)"}}
    for name, limits in RETAINED.items():
        kept = {**limits, **({"age": f"{limits['age']}s"} if "age" in limits else {})}
        table.remember(name, {"columns": ["n"], "retention": kept})
        table.remember(f"{name} of buckets", {**counted, "retention": kept})
    rows: list[tuple[int, int]] = []
    for move in story:
        if move == "refresh":
            for alias in table.remembered():
                table.refresh_query(alias)
        elif isinstance(move, int):
            script.now += 1000 * move
        else:
            new = [(len(rows) + i, script.now - 1000 * age) for i, age in enumerate(move)]
            table.append([{"n": n, "at": at} for n, at in new])
            rows += new
        for name, limits in RETAINED.items():
            now = script.now
            assert table.show(name)["n"].to_pylist() == retained(rows, now, limits), name
            buckets = retained_buckets(rows, now, limits)
            assert table.show(f"{name} of buckets").to_pylist() == buckets, name


def test_a_column_that_was_replaced_ends_the_use_of_a_kept_answer() -> None:
    """[MAT-2] The filter's columns count as well: another column under the same name is another."""
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    table.append(odd_events(0, 12))
    table.remember("q", {"filter": "n > 5", "aggregates": {"rows": "count(*)"}})
    assert table.show("q").to_pylist() == [{"rows": 6}]

    table.evolve(drop=["n"])
    table.evolve(add={"n": "int64"})

    assert table.show("q").to_pylist() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", None]),
            st.one_of(st.none(), st.floats(allow_nan=True)),
            st.one_of(st.none(), st.integers(-(2**62), 2**62)),
        ),
        max_size=30,
    ),
    st.integers(1, 7),
)
def test_states_are_put_together_in_any_pieces(rows: list[Any], size: int) -> None:
    """[E13] [MAT-1] However rows are divided, stored and put together, the answer is the same."""
    names = ("user", "amount", "n")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    table = strandline.create_table(memory_url(), SCHEMA, time_column="ts")
    schema = table.manifest.schema
    asked = query_from({**GROUPED, "filter": None, "bucket": None}, schema)
    data = pa.table(
        {
            "user": pa.array(columns["user"], pa.string()),
            "amount": pa.array(columns["amount"], pa.float64()),
            "n": pa.array([None if v is None else v % 1000 for v in columns["n"]], pa.int64()),
            "_ts": pa.array([0] * len(rows), pa.int64()),
        }
    )
    collected = aggregating.Collected(asked, schema)
    for start in range(0, len(rows), size):
        part = aggregating.group_rows(asked, schema, data.slice(start, size))
        collected.add(answers.from_table(asked, answers.to_table(asked, schema, part)))

    found = answers.answer(asked, schema, collected.result())

    whole = answers.answer(asked, schema, aggregating.group_rows(asked, schema, data))
    assert repr(found.to_pylist()) == repr(whole.to_pylist())
    assert found.schema == whole.schema
