"""Random tables and SQL queries: native scan, data source, Python reader and DuckDB agree."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import strandline
import strandline.spark
from tests.tables import START_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.table import Table

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
HIDDEN = ["_seq", "_ts", "_window"]


def random_table(chance: random.Random, place: Path, *, keyed: bool) -> Table:
    """Several commits, some late and split rows, and a life of renames and new columns."""
    options: dict[str, Any] = {"ttl": chance.choice(["1h", "7d", None])}
    if chance.random() < 0.5:
        options |= {"shard_by": "u", "shards": 2}
    if keyed:
        options["primary_key"] = chance.choice([["u"], ["u", "small"], ["small"]])
    table = strandline.create_table(
        place,
        {"tm": "int64", "u": "string", "small": "int8", "k": "int32", "v": "float64"},
        time_column="tm",
        **options,
    )
    for number in range(chance.randrange(2, 6)):
        if number == 2:
            table.evolve(rename={"v": "w"}, add={"extra": "int64"}, widen={"k": "int64"})
        value = "w" if number >= 2 else "v"
        table.append(
            [
                {
                    "tm": START_MS + chance.randrange(24) * HOUR_MS + chance.randrange(1000),
                    "u": chance.choice(["a", "b", "ab", "b_1", "é", *([] if keyed else [None])]),
                    "small": chance.randrange(6),
                    "k": chance.choice([None, *range(-3, 8)]),
                    value: chance.choice([None, 0.5, -1.25, 3.0, 1e9]),
                    **({"extra": chance.randrange(5)} if number >= 2 else {}),
                }
                for _ in range(chance.randrange(1, 60))
            ]
        )
    return table


def condition(chance: random.Random, value: str, depth: int = 2) -> str:
    """A filter in SQL that Spark and DuckDB read alike."""
    if depth and chance.random() < 0.5:
        inner = [condition(chance, value, depth - 1) for _ in range(2)]
        joined = f"({inner[0]} {chance.choice(['AND', 'OR'])} {inner[1]})"
        return f"NOT {joined}" if chance.random() < 0.3 else joined
    number = chance.randrange(-3, 8)
    moment = START_MS + chance.randrange(24) * HOUR_MS
    return chance.choice(
        [
            f"k {chance.choice(['=', '<', '<=', '>', '>=', '<>'])} {number}",
            f"k IN ({number}, {number + 2}, 99)",
            f"k BETWEEN {number} AND {number + 3}",
            "k IS NULL",
            "u IS NOT NULL",
            f"u = '{chance.choice(['a', 'b', 'zz'])}'",
            "u LIKE 'a%'",
            "u LIKE 'b%1'",
            f"small {chance.choice(['=', '<', '>'])} {chance.randrange(6)}",
            f"{value} > {chance.choice(['0', '0.5', '-2.5'])}",
            f"tm >= {moment}",
            f"_ts < {moment}",
            f"_seq % 3 = {chance.randrange(3)}",
            f"_seq BETWEEN {number * 10} AND {number * 10 + 40}",
            f"_window <= {moment}",
            "k + 1 > 3",
        ]
    )


def query(chance: random.Random, value: str) -> str:
    """Filters, joins, aggregates, windows and subqueries over `t`."""
    one, two = condition(chance, value), condition(chance, value)
    left, right = f"SELECT * FROM t WHERE {one}", f"SELECT * FROM t WHERE {two}"
    return chance.choice(
        [
            f"SELECT * FROM t WHERE {one}",
            f"SELECT _seq, u FROM t WHERE {one}",
            f"SELECT u, count(*), sum(k), max(_seq), min({value}) FROM t WHERE {one} GROUP BY u",
            f"SELECT count(*), count(k), max(tm) FROM t WHERE {one}",
            f"SELECT a._seq, b.u FROM ({left}) a JOIN ({right}) b ON a._seq = b._seq + 1",
            f"SELECT a._seq, b._seq FROM t a LEFT JOIN ({right}) b ON a.k = b.k AND a.u = b.u",
            f"SELECT _seq FROM t WHERE k IN (SELECT k FROM t WHERE {one}) AND {two}",
            f"SELECT _seq FROM t WHERE _seq > (SELECT min(_seq) FROM t WHERE {one})",
            f"SELECT _seq, row_number() OVER (PARTITION BY u ORDER BY _ts, _seq) FROM ({left}) x",
            f"SELECT _seq FROM t WHERE {one} UNION ALL SELECT k FROM t WHERE {two}",
            f"SELECT DISTINCT u, k FROM t WHERE {one}",
        ]
    )


def plain(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows in an order of their own."""
    return sorted(repr(tuple(row)) for row in rows)


def compare(spark: SparkSession, place: Path, seed: int, queries: int) -> None:
    """One random table, several queries and filters, four ways."""
    import duckdb  # noqa: PLC0415 - only these tests need it

    chance, filters = random.Random(seed), random.Random(seed)
    table = random_table(chance, place, keyed=seed % 3 == 1)
    value = "w" if "w" in table.schema.names else "v"
    names = [*table.schema.names, *HIDDEN]
    options = {"columns": ",".join(names)}
    strandline.spark.enable(spark)
    roads = {
        "native": spark.read.format("strandline").options(**options).load(table.url),
        "data source": spark.read.format("strandline_rows").options(**options).load(table.url),
    }
    connection = duckdb.connect()
    connection.register("t", table.scan(names).to_arrow())
    for _ in range(queries):
        text = query(chance, value)
        wanted = plain(connection.execute(text).fetchall())
        for road, frame in roads.items():
            frame.createOrReplaceTempView("t")
            found = plain([tuple(row) for row in spark.sql(text).collect()])
            assert found == wanted, f"{road}, seed {seed}: {text}"
        compare_filter(table, names, connection, python_condition(filters, value))


def python_condition(chance: random.Random, value: str) -> str:
    """A condition that the Python reader's filter takes, too: it does not calculate."""
    while True:
        text = condition(chance, value)
        if " % " not in text and " + " not in text:
            return text


def compare_filter(table: Table, names: list[str], connection: Any, text: str) -> None:
    """The Python reader, which prunes and filters by itself, against DuckDB over all rows."""
    wanted = plain(connection.execute(f"SELECT * FROM t WHERE {text}").fetchall())
    found = table.scan(names, filter=text).to_arrow().to_pylist()
    assert plain([tuple(row.values()) for row in found]) == wanted, f"scan: {text}"


@pytest.fixture
def compared(spark: SparkSession, tmp_path: Path) -> Callable[[int, int], None]:
    """The comparison; the data source has a name of its own, for `strandline` is the native one."""
    strandline.spark.register_source(spark, name="strandline_rows")
    return lambda seed, queries: compare(spark, tmp_path / str(seed), seed, queries)


def test_a_sample_of_queries_agrees(compared: Callable[[int, int], None]) -> None:
    """[X2] [C11] [C4] Two tables, one of them keyed, a few queries of each kind."""
    for seed in range(2):
        compared(seed, 5)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(100, 130))
def test_all_queries_agree(compared: Callable[[int, int], None], seed: int) -> None:
    """[X2] [C11] [C4] Thirty tables, eleven queries each."""
    compared(seed, 11)
