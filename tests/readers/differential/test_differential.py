"""Whole scans against DuckDB: every table, filter and state of the indexes gives the same rows."""

from __future__ import annotations

import secrets
from random import Random

import pytest

from tests.readers.differential import harness, tables

TABLES, FILTERS = 160, 10
PROOF_TABLES, PROOF_FILTERS = 2_000, 12
_PARTS = 20


@pytest.mark.parametrize("part", range(_PARTS))
def test_scans_give_the_rows_that_duckdb_gives(part: int) -> None:
    """[E11, E6, T8, M2] Same rows, same order, with indexes on, off, missing, partial, corrupt."""
    for seed in range(part, TABLES, _PARTS):
        harness.run(seed, FILTERS, in_turn=True)


@pytest.mark.proof
def test_scans_of_thousands_of_tables_give_the_rows_that_duckdb_gives() -> None:
    """[E11, E6, T8, M2] New tables in each run, all modes; a difference names its seed."""
    first = secrets.randbelow(10**12)
    for seed in range(first, first + PROOF_TABLES):
        harness.run(seed, PROOF_FILTERS)


def asked(world: tables.World) -> list[harness.Question]:
    """The first questions about a table."""
    return list(harness.questions_of(world, Random(world.seed), 5))


def test_a_seed_always_gives_the_same_case() -> None:
    """What a failure names can be looked at again."""
    for seed in (3, 4):
        one, other = tables.build(seed), tables.build(seed)
        assert one.story == other.story
        assert all(
            harness.same(one.rows.column(n), other.rows.column(n)) for n in one.rows.column_names
        )
        assert asked(one) == asked(other)
