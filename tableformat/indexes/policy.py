"""Which indexes a segment gets: decided per column, before anything is built.

An index costs time at every write and pays at some reads, so the default plan holds what is
nearly free and what the table's own settings ask for: bounds per zone, time fences, bitmaps of
columns with few values, filters of texts that repeat, and postings for the columns that the table
is organised by. Everything else is for the table's owner to name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.tableformat.hidden_columns import TS_ID
from strandline.tableformat.indexes.distinct import MAX_DISTINCT
from strandline.tableformat.indexes.reference import SEGMENT, KindsByColumn
from strandline.tableformat.types import Domain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.config import Config
    from strandline.tableformat.schema import Column, Schema
    from strandline.tableformat.types import ColumnType

POLICIES: Final = ("default", "none")
PAGES: Final = "pages"
"""Where the Parquet pages of each column lie; of the segment, not of a column."""
_TIME_TYPES: Final = frozenset({"date", "timestamp", "timestamptz"})
_TEXTS: Final = frozenset({"string", "binary"})
_ANY: Final = ("zone_map", "membership", "zone_membership", "postings", "enum_bitmap")
_NUMERIC: Final = ("range", "rank")
_TIMES: Final = ("temporal", "calendar")
COLUMN_KINDS: Final = (*_ANY, *_NUMERIC, *_TIMES)
POINT_KINDS: Final = frozenset({"membership", "zone_membership", "postings"})
"""Kinds that find single values; Parquet's own bloom filters serve other engines likewise."""


def unfit(kind: str, column_type: ColumnType, *, is_time: bool) -> str | None:
    """Why a column cannot have a kind of index; None if it can."""
    if kind not in COLUMN_KINDS:
        return f"there is no index kind {kind!r}; there are {', '.join(COLUMN_KINDS)}"
    if column_type.domain is None:
        return "nested columns have no indexes"
    if kind in _TIMES and column_type.name not in _TIME_TYPES and not is_time:
        return f"{kind} is for dates and times"
    if kind in _NUMERIC and not _fits_64_bits(column_type):
        return f"{kind} is for numbers and times of 64 bits"
    return None


def _fits_64_bits(column_type: ColumnType) -> bool:
    return column_type.domain in (Domain.INT, Domain.FLOAT) and column_type.name != "decimal"


def plan(schema: Schema, config: Config, distinct: Mapping[int, int]) -> KindsByColumn:
    """The kinds that a segment's columns get; column 0 is the segment itself.

    `distinct`: of columns whose values come again and again, how many a sample of them holds.
    """
    planned: KindsByColumn = {}
    for column in schema.columns:
        chosen = config.indexes.get(column.id)
        if chosen is None and config.index_policy == POLICIES[0]:
            chosen = _default_kinds(column, config, distinct.get(column.id))
        if chosen:
            planned[column.id] = chosen
    if config.index_policy == POLICIES[0]:
        planned[TS_ID] = ("temporal", "rank")
    if planned:
        planned[SEGMENT] = (PAGES,)
    return planned


def _default_kinds(column: Column, config: Config, distinct: int | None) -> tuple[str, ...]:
    if column.type.domain is None or column.id not in config.stats_columns:
        return ()
    is_key = (
        column.id == config.shard_by
        or column.id in config.sort_by[:1]
        or column.id in config.primary_key
    )
    kinds: list[str] = []
    if column.type.name in _TIME_TYPES or column.id == config.time_column:
        kinds.append("temporal")
    elif _fits_64_bits(column.type) or is_key:
        # Text in no order has bounds as wide as the column, and costs the most to look through.
        kinds.append("zone_map")
    if distinct is not None and distinct <= MAX_DISTINCT:
        kinds.append("enum_bitmap")
    elif distinct is not None and column.type.name in _TEXTS and not is_key:
        # Its values are looked up for the dictionary anyway, and a filter of few is small.
        kinds.append("membership")
    if is_key:
        kinds.append("postings")
    return tuple(kinds)
