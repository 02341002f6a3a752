"""Repairs that `verify` offers: a segment whose index is missing or damaged is written anew.

Only what costs time is repaired. Damaged rows are not: what to do about them is for people to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.catalog.commit import commit
from strandline.catalog.locating import Replacement
from strandline.catalog.replacement import ReplacementChange
from strandline.readers.planner import plan_scan
from strandline.tableformat.indexes.reference import path_of
from strandline.writers.rewriting import Instructions, rewrite

if TYPE_CHECKING:
    from strandline.maintenance.verify import VerifyReport
    from strandline.writers.committing import Place


def repair_indexes(place: Place, report: VerifyReport) -> list[str]:
    """Give segments with a broken index new files; names the segments that were replaced."""
    broken = {problem.path for problem in report.problems}
    manifest = place.head.manifest
    listed = plan_scan(place.chain.service, manifest, None, indexes=False).segments
    repaired: list[str] = []
    for entry in listed:
        if entry.index is None or path_of(entry.path) not in broken or entry.path in broken:
            continue
        head = place.head
        made = rewrite(
            place.chain.storage,
            head.manifest,
            [entry],
            place.chain.runtime.random_hex,
            Instructions(sort_by=tuple(head.manifest.config.sort_by)),
        )
        change = ReplacementChange(
            place.chain, head.manifest, Replacement((entry,), made.entries, made.rows_dropped)
        )
        place.see(commit(place.chain, head, change, operation="repair").snapshot)
        repaired.append(entry.path)
    return repaired
