"""Metadata housekeeping after a commit: rolling, merging and folding, each a commit of its own.

Nothing here may fail the append that came before it. A lost race is not an error either: a page
that was written stays useful as long as what it lists is still where it was.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from strandline.catalog import documents
from strandline.catalog.commit import MetadataChange, commit
from strandline.tableformat import codec, pages, paths, rolling
from strandline.tableformat.actions import FoldPositions, FoldWindows, MergePages, RollSegments
from strandline.tableformat.errors import StrandlineError
from strandline.tableformat.lifecycle import is_expired
from strandline.tableformat.manifest import DocumentRef
from strandline.tableformat.segments import PageRef, summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.tableformat.actions import Action
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import Summary
    from strandline.tableformat.storage import PendingWrite

log: Final = logging.getLogger(__name__)
_MOST_STEPS: Final = 8
_TIMEOUT_S: Final = 10.0


def tidy(chain: Chain, snapshot: Snapshot) -> Snapshot:
    """Do what is due, and give the newest version that is known afterwards."""
    for _ in range(_MOST_STEPS):
        try:
            change = _next_change(chain, snapshot.manifest)
            if change is None:
                break
            snapshot = commit(
                chain, snapshot, change, operation="tidy", timeout_s=_TIMEOUT_S
            ).snapshot
        except StrandlineError as error:
            # Another writer did it, or the store is busy: the next append tries again.
            log.debug("metadata of %s stays as it is: %s", chain.storage.url, error)
            break
        except Exception:
            # A defect of ours; the append before it is committed and must not seem to have failed.
            log.exception("metadata of %s stays as it is", chain.storage.url)
            break
    return snapshot


def _next_change(chain: Chain, manifest: Manifest) -> MetadataChange | None:
    for step in (_roll, _merge, _fold_windows, _fold_positions):
        change = step(chain, manifest)
        if change is not None:
            return change
    return None


def _roll(chain: Chain, manifest: Manifest) -> MetadataChange | None:
    actions: list[Action] = []
    pending: list[PendingWrite] = []
    for window, entries in rolling.segments_to_roll(manifest):
        data = pages.encode_page(entries, manifest.schema)
        ref, write = _write_page(chain, manifest, data, entries, len(entries))
        actions.append(RollSegments(window, tuple(entry.path for entry in entries), ref))
        pending.append(write)
    return MetadataChange(tuple(actions), tuple(pending)) if actions else None


def _merge(chain: Chain, manifest: Manifest) -> MetadataChange | None:
    due = rolling.pages_to_merge(manifest)
    if due is None:
        return None
    window, refs = due
    data = pages.merge_pages(documents.segment_pages(chain.service, refs), manifest.schema)
    ref, write = _write_page(chain, manifest, data, refs, sum(page.entries for page in refs))
    merged = MergePages(window, tuple(page.path for page in refs), ref)
    return MetadataChange((merged,), (write,))


def _write_page(
    chain: Chain, manifest: Manifest, data: bytes, parts: Sequence[Summary], entries: int
) -> tuple[PageRef, PendingWrite]:
    """Store a segment page that lists `entries` segments, summarised by `parts`."""
    path = paths.segment_page_path(manifest.files_version, chain.runtime.random_hex(8))
    ref = _page_ref(path, data, parts, manifest, entries)
    return ref, chain.storage.write_new(path, data)


def _page_ref(
    path: str, data: bytes, parts: Sequence[Summary], manifest: Manifest, entries: int
) -> PageRef:
    return PageRef(
        path=path,
        object_bytes=len(data),
        xxh64=codec.checksum(data),
        entries=entries,
        **summarize(parts, manifest.schema),
    )


def _fold_windows(chain: Chain, manifest: Manifest) -> MetadataChange | None:
    due = rolling.windows_to_fold(manifest)
    if due is None:
        return None
    folded, merged = due
    entries = list(folded)
    for page in documents.window_pages(chain.service, merged):
        entries.extend(e for e in page if not is_expired(e.window, manifest.floor_ts))
    data = documents.encode_windows(entries)
    path = paths.document_page_path(manifest.files_version, chain.runtime.random_hex(8))
    parts = [page for entry in entries for page in entry.pages]
    ref = _page_ref(path, data, parts, manifest, len(entries))
    action = FoldWindows(folded, tuple(page.path for page in merged), ref)
    return MetadataChange((action,), (chain.storage.write_new(path, data),))


def _fold_positions(chain: Chain, manifest: Manifest) -> MetadataChange | None:
    folded = rolling.positions_to_fold(manifest)
    if folded is None:
        return None
    listed = dict(folded)
    merged: tuple[DocumentRef, ...] = ()
    if rolling.positions_must_merge(manifest):
        merged = manifest.position_pages
        oldest = manifest.commit.committed_at - manifest.config.writer_retention_ms
        listed = {}
        for page in documents.position_pages(chain.service, merged):
            listed.update(page)
        listed = {key: p for key, p in listed.items() if p.committed_at >= oldest} | folded
    data = documents.encode_positions(listed)
    path = paths.document_page_path(manifest.files_version, chain.runtime.random_hex(8))
    ref = DocumentRef(
        path=path,
        object_bytes=len(data),
        xxh64=codec.checksum(data),
        entries=len(listed),
        min_id=min(listed),
        max_id=max(listed),
    )
    action = FoldPositions(folded, tuple(page.path for page in merged), ref)
    return MetadataChange((action,), (chain.storage.write_new(path, data),))
