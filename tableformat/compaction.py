"""Which segments become one: decided from their entries alone.

Small segments cost every scan a request. Neighbours in the order of `_seq` are put together, so
that the result overlaps nobody else; what is large already is left alone, and so is a run of fewer
segments than asked for.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.indexes import policy as index_policy
from strandline.tableformat.indexes.reference import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.tableformat.config import Config
    from strandline.tableformat.indexes.reference import KindsByColumn
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.windows import Window

DEFAULT_ROWS: Final = 1_048_576
DEFAULT_BYTES: Final = 64 * 2**20
_PAIR: Final = 2
MOST_SEGMENTS: Final = 4_096
"""More inputs would make one commit's list of removed files too long."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is small, and how large a new segment may become."""

    target_rows: int = DEFAULT_ROWS
    target_bytes: int = DEFAULT_BYTES
    """Of the files that are read; with `target_rows` it bounds the memory of one run."""
    min_segments: int = 2
    """Fewer neighbours are left alone. From three on, so is a segment that outweighs its neighbours
    together: otherwise a few new rows would have all the older ones written again each time."""

    def __post_init__(self) -> None:
        for name, least in (("target_rows", 1), ("target_bytes", 1), ("min_segments", 2)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidInput(f"{name} must be an integer from {least} on, not {value!r}")

    def is_small(self, entry: SegmentEntry) -> bool:
        """Whether at least two of its size fit a new segment."""
        return 2 * entry.row_count <= self.target_rows and 2 * entry.size_bytes <= self.target_bytes


@dataclass(frozen=True, slots=True)
class Run:
    """Segments of one window and shard that become one, or a few."""

    window: Window
    shard: int
    segments: tuple[SegmentEntry, ...]

    @property
    def rows(self) -> int:
        return sum(entry.row_count for entry in self.segments)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.segments)


def plan_runs(
    entries: Iterable[SegmentEntry],
    policy: Policy | None = None,
    *,
    floor_ts: int = 0,
    trim_seq: int = 0,
) -> list[Run]:
    """Runs of small neighbours of one schema, and segments whose indexes were left for later.

    What nobody can see any more is not worth rewriting.
    """
    wanted = policy or Policy()
    places: dict[tuple[Window, int], list[SegmentEntry]] = defaultdict(list)
    for entry in entries:
        if entry.max_ts >= floor_ts and entry.max_seq >= trim_seq:
            places[entry.window, entry.shard].append(entry)
    runs: list[Run] = []
    for (window, shard), listed in places.items():
        listed.sort(key=lambda entry: (entry.min_seq, entry.max_seq))
        for neighbours in _neighbours(listed, wanted):
            runs += [Run(window, shard, tuple(part)) for part in _parts(neighbours, wanted)]
        runs += [
            Run(window, shard, (entry,))
            for entry in listed
            if entry.index_debt and not wanted.is_small(entry)
        ]
    return runs


def plan_reindexing(
    entries: Iterable[SegmentEntry], schema: Schema, config: Config, *, every: bool = False
) -> list[Run]:
    """Segments that would get other indexes if they were written today, each as a run.

    `every`: all that are large enough to have indexes, for indexes of an older making.
    """
    planned = index_policy.plan(schema, config, {})
    return [
        Run(entry.window, entry.shard, (entry,))
        for entry in entries
        if entry.index_debt
        or (
            planned
            and entry.row_count >= config.row_group_rows
            and (every or _lacks(entry, planned, schema))
        )
    ]


def _lacks(entry: SegmentEntry, planned: KindsByColumn, schema: Schema) -> bool:
    """Whether a planned kind is missing; kinds that depend on the values are not asked for."""
    built = {} if entry.index is None else entry.index.kinds
    for column_id, kinds in planned.items():
        if column_id == SEGMENT or set(kinds) <= set(built.get(column_id, ())):
            continue
        column = schema.by_id.get(column_id)
        found = None if column is None else entry.stats_of(column)
        if found is None or found.min is not None:
            return True  # a column of nulls alone gets no index however often it is written
    return False


def _neighbours(listed: Sequence[SegmentEntry], policy: Policy) -> Iterator[list[SegmentEntry]]:
    """Small segments without a large one, or one of another schema, in between."""
    found: list[SegmentEntry] = []
    for entry in listed:
        small = policy.is_small(entry)
        if found and (not small or entry.schema_id != found[-1].schema_id):
            yield found
            found = []
        if small:
            found.append(entry)
    if found:
        yield found


def _parts(neighbours: Sequence[SegmentEntry], policy: Policy) -> Iterator[list[SegmentEntry]]:
    """Cut where a new segment would become too large."""
    part: list[SegmentEntry] = []
    rows = size = 0
    for entry in neighbours:
        full = rows + entry.row_count > policy.target_rows
        full |= size + entry.size_bytes > policy.target_bytes
        if part and (full or len(part) >= MOST_SEGMENTS):
            yield from _worth_it(part, policy)
            part, rows, size = [], 0, 0
        part.append(entry)
        rows, size = rows + entry.row_count, size + entry.size_bytes
    yield from _worth_it(part, policy)


def _worth_it(part: list[SegmentEntry], policy: Policy) -> Iterator[list[SegmentEntry]]:
    """What is enough, on either side of a segment that outweighs the others."""
    if len(part) < policy.min_segments:
        return
    rows = [entry.row_count for entry in part]
    if policy.min_segments > _PAIR and 2 * max(rows) > sum(rows):
        at = rows.index(max(rows))
        yield from _worth_it(part[:at], policy)
        yield from _worth_it(part[at + 1 :], policy)
    else:
        yield part
