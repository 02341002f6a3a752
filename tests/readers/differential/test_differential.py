"""Whole scans against DuckDB: every table, filter and state of the indexes gives the same rows."""

from __future__ import annotations

import secrets
from random import Random

import pytest

from strandline.api import open_in
from strandline.tableformat.segments import STORED
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


def test_tables_have_files_of_every_age() -> None:
    """[E11, E14] Compacted ones, ones that owe their indexes, and appends behind a compaction."""
    compacted = owing = mixed = numbered = 0
    for seed in range(40):
        world = tables.build(seed)
        segments = open_in(world.storage).scan().plan().segments
        are_compacted = ["/compact-" in entry.path for entry in segments]
        compacted += any(are_compacted)
        mixed += any(are_compacted) and not all(are_compacted)
        owing += any(entry.index_debt for entry in segments)
        numbered += any(entry.rows_are == STORED for entry in segments)
    assert min(compacted, owing, mixed, numbered) >= 2


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
