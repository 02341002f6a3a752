"""Planning a scan of one version: load the pages that may matter, prune, and order what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.catalog import documents
from strandline.tableformat import planning
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.planning import Plan, PlanReport

if TYPE_CHECKING:
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import Storage


def plan_scan(storage: Storage, manifest: Manifest, bound: Bound | None) -> Plan:
    """The segments that may hold a row for which the bound filter is true."""
    report = PlanReport()
    schema = manifest.schema
    listed = planning.parts_of(manifest).pages
    window_refs = planning.keep_window_pages(manifest, bound, report)
    if window_refs:
        windows = list(manifest.windows)
        for folded in documents.window_pages(storage, window_refs):
            windows.extend(folded)
        listed = planning.ListedPages(windows, schema)
    chosen = planning.keep_pages(listed, bound, report)
    kept = planning.keep_segments(manifest, bound, report)
    pages = documents.segment_pages(storage, [ref for _, ref in chosen])
    for (window, _), page in zip(chosen, pages, strict=True):
        kept += planning.keep_in_page(page, window, bound, schema, report)
    for entry in kept:
        if entry.max_seq >= manifest.next_seq:
            raise CorruptTable(f"{entry.path} holds rows beyond the table's tail")
    kept.sort(key=lambda entry: (entry.min_seq, entry.max_seq))
    report.bytes_total = planning.parts_of(manifest).size_bytes
    report.bytes_planned = sum(entry.size_bytes for entry in kept)
    report.rows_planned = sum(entry.row_count for entry in kept)
    return Plan(tuple(kept), report)
