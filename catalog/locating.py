"""Where a version lists segments that are to be replaced, and what of its metadata must change.

Segments move between commits: a roll takes them from the manifest into a page, a merge into
another page, a fold puts the page's window away. A page never changes, so taking segments out of
one means writing a page of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.catalog import documents
from strandline.catalog.uploads import Upload
from strandline.tableformat import codec, paths
from strandline.tableformat.conflicts import ReplacementLost
from strandline.tableformat.pages import SegmentPage, page_without
from strandline.tableformat.replacing import PageChange, ReplaceSegments, Unfolded
from strandline.tableformat.segments import PageRef, WindowEntry, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.catalog.chain import Chain
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.replacing import Assumptions
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import PendingWrite
    from strandline.tableformat.windows import Window


@dataclass(frozen=True, slots=True)
class Replacement:
    """Segments, and what is to stand in their place, whatever version it lands on."""

    removed: tuple[SegmentEntry, ...]
    added: tuple[SegmentEntry, ...]
    deleted_rows: int = 0
    assumes: Assumptions | None = None
    """Of a keyed table: what must still be true of other segments."""


def missing_from(chain: Chain, manifest: Manifest, wanted: Iterable[SegmentEntry]) -> set[str]:
    """Which of these segments the version does not list any more."""
    return _Search(chain, manifest, wanted).missing


def place_replacement(
    chain: Chain, manifest: Manifest, replacement: Replacement
) -> tuple[ReplaceSegments, tuple[PendingWrite, ...]]:
    """The action for this version, and the pages that it needs. Fails if an input is gone."""
    search = _Search(chain, manifest, replacement.removed)
    if search.missing:
        raise ReplacementLost(
            f"{len(search.missing)} of the segments that were to be replaced are no longer in the "
            f"table ({min(search.missing)}). Nothing was changed."
        )
    return search.action(replacement)


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """Wanted segments in one page."""

    window: Window
    ref: PageRef
    page: SegmentPage
    rows: dict[str, int]


class _Search:
    def __init__(self, chain: Chain, manifest: Manifest, wanted: Iterable[SegmentEntry]) -> None:
        self._chain, self._manifest = chain, manifest
        by_path = {entry.path: entry for entry in wanted}
        listed = {entry.path for entry in manifest.segments}
        self._inline = tuple(path for path in by_path if path in listed)
        self._left = {path: entry for path, entry in by_path.items() if path not in listed}
        self._held: list[_Held] = []
        self._unfolded: list[tuple[PageRef, tuple[WindowEntry, ...]]] = []
        self._look_into(manifest.windows)
        for ref in manifest.window_pages if self._left else ():
            # Its bounds tell whether it may list what is looked for.
            if any(_may_list(ref, entry) for entry in self._left.values()):
                (windows,) = documents.window_pages(chain.service, [ref])
                if self._look_into(windows):
                    self._unfolded.append((ref, windows))

    @property
    def missing(self) -> set[str]:
        return set(self._left)

    def _look_into(self, windows: Sequence[WindowEntry]) -> bool:
        """Whether one of the windows' pages lists something that is looked for."""
        before = len(self._held)
        for window in windows if self._left else ():
            sought = [e for e in self._left.values() if e.window == window.window]
            refs = [ref for ref in window.pages if any(_may_list(ref, e) for e in sought)]
            for ref in refs:
                (page,) = documents.segment_pages(self._chain.service, [ref])
                rows = page.rows_of(self._left)
                if rows:
                    self._held.append(_Held(window.window, ref, page, rows))
                    for path in rows:
                        del self._left[path]
        return len(self._held) > before

    def action(self, replacement: Replacement) -> tuple[ReplaceSegments, tuple[PendingWrite, ...]]:
        pending: list[PendingWrite] = []
        changes = [self._changed(held, pending) for held in self._held]
        touched = {held.window for held in self._held}
        unfolded = [self._unfold(ref, windows, touched, pending) for ref, windows in self._unfolded]
        made = ReplaceSegments(
            inline=self._inline,
            paged=tuple(path for held in self._held for path in held.rows),
            pages=tuple(changes),
            unfolded=tuple(unfolded),
            added=replacement.added,
            deleted_rows=replacement.deleted_rows,
            assumes=replacement.assumes,
        )
        return made, tuple(pending)

    def _changed(self, held: _Held, pending: list[PendingWrite]) -> PageChange:
        gone = sorted(held.rows.values())
        data = page_without(held.page, gone)
        if data is None:
            return PageChange(held.window, held.ref, None)
        path = paths.segment_page_path(self._manifest.version, self._chain.runtime.random_hex(8))
        pending.append(Upload(self._chain.storage.write_new(path, data)))
        after = replace(
            held.ref,
            path=path,
            object_bytes=len(data),
            xxh64=codec.checksum(data),
            entries=held.ref.entries - len(gone),
            column_stats={key: _looser(value) for key, value in held.ref.column_stats.items()},
            **_numbers(held.page, gone),
        )
        return PageChange(held.window, held.ref, after)

    def _unfold(
        self,
        ref: PageRef,
        windows: tuple[WindowEntry, ...],
        touched: set[Window],
        pending: list[PendingWrite],
    ) -> Unfolded:
        back = tuple(entry for entry in windows if entry.window in touched)
        rest = [entry for entry in windows if entry.window not in touched]
        if not rest:
            return Unfolded(ref, None, back)
        data = documents.encode_windows(rest)
        path = paths.document_page_path(self._manifest.version, self._chain.runtime.random_hex(8))
        pending.append(Upload(self._chain.storage.write_new(path, data)))
        after = PageRef(
            path=path,
            object_bytes=len(data),
            xxh64=codec.checksum(data),
            entries=len(rest),
            **summarize([page for e in rest for page in e.pages], self._manifest.schema),
        )
        return Unfolded(ref, after, back)


def _may_list(ref: PageRef, entry: SegmentEntry) -> bool:
    return (
        ref.min_seq <= entry.min_seq
        and entry.max_seq <= ref.max_seq
        and ref.min_ts <= entry.min_ts
        and entry.max_ts <= ref.max_ts
    )


def _numbers(page: SegmentPage, gone: Sequence[int]) -> dict[str, int]:
    def left(name: str) -> np.ndarray[Any, Any]:
        return np.delete(page.integers(name), np.asarray(gone, np.int64))

    return {
        "row_count": int(left("row_count").sum()),
        "size_bytes": int(left("size_bytes").sum()),
        "min_seq": int(left("min_seq").min()),
        "max_seq": int(left("max_seq").max()),
        "min_ts": int(left("min_ts").min()),
        "max_ts": int(left("max_ts").max()),
    }


def _looser(stats: dict[str, Any]) -> dict[str, Any]:
    """Stats of fewer segments: bounds still hold, counts and exactness do not."""
    kept = {name: value for name, value in stats.items() if name != "null_count"}
    return {**kept, "exact": False} if "min" in kept else kept
