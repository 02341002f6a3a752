"""From segments to zones: ask the indexes of each segment which zones may hold a wanted row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from strandline.readers.index_reader import IndexReader
from strandline.tableformat.binding import columns_of
from strandline.tableformat.indexes import strategy
from strandline.tableformat.indexes.policy import PAGES
from strandline.tableformat.indexes.reference import SEGMENT, path_of
from strandline.tableformat.segments import DENSE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.manifest_service import ManifestService
    from strandline.readers.index_reader import SegmentIndexes
    from strandline.readers.splits import Split
    from strandline.tableformat.indexes.strategy import Choice, Place, Removed
    from strandline.tableformat.planning import PlanReport
    from strandline.tableformat.schema import Schema


def select_zones(
    service: ManifestService, schema: Schema, splits: Sequence[Split], report: PlanReport
) -> list[Split]:
    """The same splits with their zones; one whose zones are all ruled out is left out."""
    chosen = [_choices(split) for split in splits]
    asked = [number for number, choices in enumerate(chosen) if choices]
    reader = IndexReader(service, schema)
    loaded = reader.load([(splits[n].entry, _places(splits[n], chosen[n])) for n in asked])
    found = dict(zip(asked, loaded, strict=True))
    out = []
    for number, split in enumerate(splits):
        indexes = found.get(number)
        report.note_unused(_unused(split, chosen[number]))
        if indexes is None:
            out.append(split)
            continue
        narrowed = _narrowed(split, chosen[number], indexes, report)
        if narrowed is not None:
            out.append(narrowed)
    report.index_failures.extend(reader.failures)
    report.index_bytes += reader.bytes_read
    return out


def _choices(split: Split) -> list[Choice]:
    if split.bound is None or split.entry.index is None:
        return []
    dense = split.entry.rows_are == DENSE
    return strategy.choose(split.bound, split.entry.index.kinds, dense=dense)


def _unused(split: Split, choices: Sequence[Choice]) -> list[str]:
    """Kinds that columns of the filter have and that were not chosen."""
    if split.bound is None or split.entry.index is None:
        return []
    asked = {(c.column, kind) for c in choices for kind in c.kinds}
    held = split.entry.index.kinds
    return [
        kind
        for column in columns_of(split.bound)
        for kind in held.get(column, ())
        if (column, kind) not in asked
    ]


def _places(split: Split, choices: Sequence[Choice]) -> list[Place]:
    """What to load: the chosen indexes, and where the pages lie."""
    assert split.entry.index is not None
    places = {(c.column, kind): None for c in choices for kind in c.kinds if kind != strategy.ROWS}
    if PAGES in split.entry.index.kinds.get(SEGMENT, ()):
        places[(SEGMENT, PAGES)] = None
    return list(places)


def _narrowed(
    split: Split, choices: list[Choice], indexes: SegmentIndexes, report: PlanReport
) -> Split | None:
    bound, layout = split.bound, indexes.layout
    assert bound is not None
    removed = strategy.zones_left(
        bound,
        choices,
        layout,
        lambda column, kind: indexes.opened.get((column, kind)),
        split.entry.min_seq,
    )
    left = int(np.count_nonzero(removed.zones))
    report.zones.add(layout.count, left)
    report.note_used(removed.by_place)
    for (column, kind), why in removed.broken.items():
        said = f"{path_of(split.entry.path)}: {kind} of column {column}: {why}"
        report.index_failures.append(said)
    if not left:
        return None
    return replace(
        split,
        zones=removed.zones,
        zone_rows=layout.zone_rows,
        pages=indexes.pages,
        strategy=_in_words(choices, removed, layout.count),
    )


def _in_words(choices: Sequence[Choice], removed: Removed, zones: int) -> tuple[str, ...]:
    lines = []
    for choice in choices:
        name = choice.leaf.column.name  # type: ignore[union-attr] # choices are of columns
        for kind in choice.kinds:
            ruled_out = removed.by_place.get((choice.column, kind))
            said = "not used" if ruled_out is None else f"rules out {ruled_out} of {zones} zones"
            lines.append(f"{name} by {kind}: {said}")
    return tuple(dict.fromkeys(lines))
