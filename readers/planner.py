"""Planning a scan of one version: prune by stats, then by indexes, and order what is left."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from strandline.catalog import documents
from strandline.readers.splits import Plan, Split
from strandline.tableformat import planning
from strandline.tableformat.config import USER_SCOPE
from strandline.tableformat.errors import CorruptTable, InvalidInput
from strandline.tableformat.lifecycle import is_expired
from strandline.tableformat.manifest import check_tombstones
from strandline.tableformat.planning import PlanReport
from strandline.tableformat.shard_pruning import shards_left

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.catalog.manifest_service import ManifestService
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.page_files import PageFiles
    from strandline.tableformat.pages import SegmentPage
    from strandline.tableformat.planning import Candidate
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.windows import Window


# In C: a plan asks each of its splits.
_BYTES, _ROWS = attrgetter("bytes_planned"), attrgetter("rows_planned")
_SEQS = attrgetter("entry.min_seq", "entry.max_seq")


def check_scope(manifest: Manifest) -> None:
    """Refuse the root of a table of users: it lists no rows, and would be taken for empty."""
    if manifest.config.scope == USER_SCOPE and manifest.root_version is None:
        raise InvalidInput(
            "this table has scope='user': its rows belong to users. Take table.user(name), or "
            "table.scan_users() for all of them; in Spark, strandline.spark.read_users, and in a "
            "shell, --user NAME."
        )


def plan_scan(
    service: ManifestService,
    manifest: Manifest,
    bound: Bound | None,
    *,
    indexes: bool = True,
    tombstones: bool = True,
) -> Plan:
    """What to read to see every row for which the bound filter is true.

    `indexes`: whether to look into index files; without, stats in the metadata decide alone.
    `tombstones`: whether segments of a keyed table that say which keys are deleted belong to it.
    """
    check_scope(manifest)
    report = PlanReport()
    candidates, chosen = _listed(service, manifest, bound, report)
    for window, page in chosen:
        candidates += planning.keep_in_page(page, window, bound, manifest.schema, report)
    return _planned(
        service, manifest, bound, candidates, report, indexes=indexes, tombstones=tombstones
    )


def plan_files(
    service: ManifestService, manifest: Manifest, bound: Bound | None, *, tombstones: bool
) -> tuple[Plan, list[PageFiles]]:
    """As `plan_scan`, for whoever only wants to know the files: most of them come as columns."""
    if shards_left(bound, manifest.config) is not None:
        return plan_scan(service, manifest, bound, tombstones=tombstones), []
    check_scope(manifest)
    report = PlanReport()
    candidates, chosen = _listed(service, manifest, bound, report)
    files = []
    for window, page in chosen:
        found, alone = planning.files_in_page(page, window, bound, manifest.schema, report)
        candidates += alone
        if found is not None:
            files.append(found)
            beyond = np.flatnonzero(found.numbers["max_seq"] >= manifest.next_seq)
            if len(beyond):
                raise CorruptTable(
                    f"{found.paths[int(beyond[0])]} holds rows beyond the table's tail"
                )
    plan = _planned(
        service, manifest, bound, candidates, report, indexes=True, tombstones=tombstones
    )
    return plan, files


def _planned(
    service: ManifestService,
    manifest: Manifest,
    bound: Bound | None,
    candidates: list[Candidate],
    report: PlanReport,
    *,
    indexes: bool,
    tombstones: bool,
) -> Plan:
    """Candidates that may be read, in order, with what their indexes say."""
    kept = _in_wanted_shards(candidates, bound, manifest, report)
    for candidate in kept:
        if candidate.entry.max_seq >= manifest.next_seq:
            raise CorruptTable(f"{candidate.entry.path} holds rows beyond the table's tail")
        if candidate.entry.tombstones:
            check_tombstones(manifest, candidate.entry)
    if not tombstones:
        kept = [candidate for candidate in kept if not candidate.entry.tombstones]
    kept.sort(key=_SEQS)
    splits = [Split(candidate.entry, bound=candidate.bound) for candidate in kept]
    return _finished(service, manifest, splits, report, indexes=indexes)


def plan_segments(
    service: ManifestService,
    manifest: Manifest,
    bound: Bound | None,
    entries: Iterable[SegmentEntry],
    *,
    indexes: bool = True,
) -> Plan:
    """What to read of segments that an earlier plan of the same version has chosen."""
    report = PlanReport()
    kept = planning.keep_among(tuple(entries), bound, manifest.schema, report)
    splits = [Split(candidate.entry, bound=candidate.bound) for candidate in kept]
    return _finished(service, manifest, splits, report, indexes=indexes)


def _finished(
    service: ManifestService,
    manifest: Manifest,
    splits: list[Split],
    report: PlanReport,
    *,
    indexes: bool,
) -> Plan:
    """The plan, once indexes were asked."""
    if indexes and any(_is_indexed(split) for split in splits):
        # Opening indexes needs numpy's sorting and our kinds; most plans of small tables do not.
        from strandline.readers.index_selection import select_zones  # noqa: PLC0415

        splits = select_zones(service, manifest.schema, splits, report)
    report.bytes_total = planning.parts_of(manifest).size_bytes
    report.bytes_planned = sum(map(_BYTES, splits))
    report.rows_planned = sum(map(_ROWS, splits))
    return Plan(tuple(splits), report)


def _is_indexed(split: Split) -> bool:
    return split.entry.index is not None and split.bound is not None


def _listed(
    service: ManifestService, manifest: Manifest, bound: Bound | None, report: PlanReport
) -> tuple[list[Candidate], list[tuple[Window, SegmentPage]]]:
    """Inline segments that may match by the stats of the metadata, and pages that may list more."""
    schema = manifest.schema
    listed = planning.parts_of(manifest).pages
    window_refs = planning.keep_window_pages(manifest, bound, report)
    if window_refs:
        windows = list(manifest.windows)
        for folded in documents.window_pages(service, window_refs):
            # Folded windows stay listed when they expire: their files may be gone.
            windows.extend(w for w in folded if not is_expired(w.window, manifest.floor_ts))
        listed = planning.ListedPages(windows, schema)
    chosen = planning.keep_pages(listed, bound, report)
    kept = planning.keep_segments(manifest, bound, report)
    pages = documents.segment_pages(service, [ref for _, ref in chosen])
    return kept, [(window, page) for (window, _), page in zip(chosen, pages, strict=True)]


def _in_wanted_shards(
    candidates: Iterable[Candidate], bound: Bound | None, manifest: Manifest, report: PlanReport
) -> list[Candidate]:
    """Those in shards that hold a wanted key."""
    found = list(candidates)
    shards = shards_left(bound, manifest.config)
    if shards is None:
        return found
    kept = [candidate for candidate in found if candidate.entry.shard in shards]
    report.shards.add(len(found), len(kept))
    return kept
