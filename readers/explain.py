"""A plan in words: what each step was given, what it left, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.readers.request import Request
    from strandline.readers.splits import Plan
    from strandline.tableformat.planning import PlanReport
    from strandline.tableformat.schema import Column

_SHOWN: Final = 10
"""Segments whose strategy is shown; the rest is counted."""
_STEPS: Final = {
    "window_pages": "window pages",
    "windows": "windows",
    "pages": "pages",
    "segments": "segments",
    "shards": "shards",
    "zones": "zones",
}


def explain_plan(plan: Plan) -> Iterator[str]:
    """Line by line, in the order of planning."""
    report = plan.report
    for name, shown in _STEPS.items():
        count = getattr(report, name)
        if name in ("shards", "zones") and not count.considered:
            continue
        unit = "segments of shards with the key" if name == "shards" else shown
        yield f"{unit}: {count.kept} of {count.considered} may match"
    yield from _indexes(report)
    yield from _strategies(plan)
    yield (
        f"to read: {report.rows_planned} rows in {len(plan.splits)} files, "
        f"{report.bytes_planned} of {report.bytes_total} bytes"
    )


def explain_order(plan: Plan, key: Column | None, request: Request) -> Iterator[str]:
    """The order that was asked for, how many rows, and where an index leads to the first ones."""
    if key is not None:
        way = "descending" if request.descending else "ascending"
        yield f"order: by {key.name}, {way}"
    if request.limit is None:
        return
    yield f"limit: {request.limit}"
    if key is None or not request.indexes:
        return
    found = Counter(split.order_from(key.id) for split in plan.splits)
    for kind in ("rank", "rows"):
        if found[kind]:
            yield (
                f"{key.name} by {kind}: says in {found[kind]} of {len(plan.splits)} files which "
                "zones to read first"
            )


def _indexes(report: PlanReport) -> Iterator[str]:
    for kind, use in sorted(report.indexes_used.items()):
        yield f"index {kind}: asked in {use.segments} segments, ruled out {use.zones_removed} zones"
    if report.indexes_unused:
        unused = (f"{kind} ({count})" for kind, count in sorted(report.indexes_unused.items()))
        yield f"indexes there and not asked: {', '.join(unused)}"
    if report.index_bytes:
        yield f"read from index files: {report.index_bytes} bytes"
    for failure in report.index_failures[:_SHOWN]:
        yield f"index not usable, its rows are read: {failure}"
    if len(report.index_failures) > _SHOWN:
        yield f"and {len(report.index_failures) - _SHOWN} more indexes not usable"


def _strategies(plan: Plan) -> Iterator[str]:
    narrowed = [split for split in plan.splits if split.strategy]
    for split in narrowed[:_SHOWN]:
        yield f"{split.entry.path}: {'; '.join(split.strategy)}"
    if len(narrowed) > _SHOWN:
        yield f"and {len(narrowed) - _SHOWN} more files likewise"
