"""Segments that take the place of others: compaction, deletes, overwrites, as pure steps.

An action names what it takes out exactly as the head lists it: inline by path, in a page by the
page's reference. What has only moved since (a roll, a merge, another removal from the same page)
is found again by the writer; what is gone ends the change. Rows are counted on both sides, so
that no commit loses or doubles one unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.tableformat import paths
from strandline.tableformat.conflicts import MustRewrite, ReplacementLost
from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.segments import PageRef, SegmentEntry, WindowEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.windows import Window


@dataclass(frozen=True, slots=True)
class PageChange:
    """A segment page from which segments are taken out."""

    window: Window
    before: PageRef
    after: PageRef | None
    """The page that lists the others; None: no segment is left."""


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A window page from which windows come back into the manifest, where they can change."""

    before: PageRef
    after: PageRef | None
    """The page of the other windows; None: no window is left."""
    windows: tuple[WindowEntry, ...]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a rewrite of a keyed table found in other segments, and what it made of that."""

    holders: frozenset[str] = frozenset()
    """Segments, or pages, with rows for which others were forgotten: they must still be there."""
    known: frozenset[str] = frozenset()
    """All segments and pages that the version referred to."""
    forgotten_ts: int | None = None
    """The greatest `_ts` of a tombstone that was forgotten: nothing older may have come since."""


@dataclass(frozen=True, slots=True)
class ReplaceSegments:
    """Some segments go, others with their rows come; all of it or nothing."""

    inline: tuple[str, ...]
    """Segments of the manifest itself that go."""
    paged: tuple[str, ...]
    """Segments that go with `pages`."""
    pages: tuple[PageChange, ...]
    unfolded: tuple[Unfolded, ...]
    added: tuple[SegmentEntry, ...]
    """With the sequence numbers that their rows have."""
    deleted_rows: int = 0
    """Rows of what goes that are in nothing that comes."""
    assumes: Assumptions | None = None


@dataclass(frozen=True, slots=True)
class RemoveAll:
    """Every segment of the version that the commit lands on goes."""


@dataclass(frozen=True, slots=True)
class PresentFence:
    """What an append would have to present, for changes that take rows away."""

    token: str | None


def apply_replacing(
    draft: Manifest, action: ReplaceSegments | RemoveAll, committed_at: int
) -> Manifest:
    """The manifest after either of these actions."""
    if isinstance(action, RemoveAll):
        return remove_all(draft)
    return replace_segments(draft, action, committed_at)


def replace_segments(draft: Manifest, action: ReplaceSegments, committed_at: int) -> Manifest:
    """The manifest with the new segments in the place of the old ones."""
    for entry in action.added:
        if paths.parse_segment_path(entry.path).base_version < draft.files_floor:
            raise ReplacementLost(
                f"{entry.path} was begun before vacuum's newest run, which may have removed it. "
                "Nothing was changed. Try again."
            )
        if entry.max_seq >= draft.next_seq:
            raise CorruptTable(f"{entry.path} holds rows beyond the table's tail")
    if action.assumes is not None:
        _check_assumptions(draft, action.assumes)
    before = row_total(draft)
    draft = _unfold(draft, action.unfolded)
    draft = _change_pages(draft, action.pages)
    gone = frozenset(action.inline)
    kept = tuple(entry for entry in draft.segments if entry.path not in gone)
    if len(draft.segments) - len(kept) != len(gone):
        raise MustRewrite("a segment that was to be replaced is no longer in the manifest itself")
    draft = replace(
        draft,
        segments=kept + tuple(_stamped(entry, committed_at) for entry in action.added),
        deleted_rows=draft.deleted_rows + action.deleted_rows,
        removed_files=(*draft.removed_files, *action.inline, *action.paged),
    )
    if row_total(draft) != before - action.deleted_rows:
        raise CorruptTable(
            f"{before} rows less {action.deleted_rows} are not the {row_total(draft)} that would "
            "be left; nothing was changed. This is a defect: please report it."
        )
    return draft


def _check_assumptions(draft: Manifest, assumes: Assumptions) -> None:
    parts = {part.path: part for part in parts_of(draft)}
    since = (part for path, part in parts.items() if path not in assumes.known)
    older = assumes.forgotten_ts is not None and any(
        part.min_ts <= assumes.forgotten_ts
        and not (isinstance(part, SegmentEntry) and part.tombstones)
        for part in since
    )
    if older or not assumes.holders <= parts.keys():
        raise ReplacementLost(
            "rows were to be forgotten because of what other segments held, and those have changed "
            "meanwhile. Nothing was changed. Try again."
        )


def parts_of(manifest: Manifest) -> Iterator[SegmentEntry | PageRef]:
    """Everything that the version itself refers to and that leads to rows."""
    yield from manifest.segments
    for window in manifest.windows:
        yield from window.pages
    yield from manifest.window_pages


def remove_all(draft: Manifest) -> Manifest:
    """The manifest without a segment. What its pages list goes with them."""
    pages = [page.path for entry in draft.windows for page in entry.pages]
    return replace(
        draft,
        segments=(),
        windows=(),
        window_pages=(),
        deleted_rows=draft.deleted_rows + row_total(draft),
        removed_files=(
            *draft.removed_files,
            *(entry.path for entry in draft.segments),
            *pages,
            *(page.path for page in draft.window_pages),
        ),
    )


def new_pages(action: ReplaceSegments | RemoveAll) -> list[PageRef]:
    """Pages that were written for the action."""
    if isinstance(action, RemoveAll):
        return []
    written = [*(page.after for page in action.pages), *(one.after for one in action.unfolded)]
    return [page for page in written if page is not None]


def row_total(manifest: Manifest) -> int:
    """Rows in all segments of a version, visible or not."""
    return (
        sum(entry.row_count for entry in manifest.segments)
        + sum(page.row_count for entry in manifest.windows for page in entry.pages)
        + sum(page.row_count for page in manifest.window_pages)
    )


def _stamped(entry: SegmentEntry, committed_at: int) -> SegmentEntry:
    stamped = replace(entry, created_at=committed_at, encoded=b"")
    return replace(stamped, encoded=stamped.to_json())


def _unfold(draft: Manifest, unfolded: tuple[Unfolded, ...]) -> Manifest:
    for one in unfolded:
        if one.before not in draft.window_pages:
            raise MustRewrite("a page of windows has changed")
        pages = [page for page in draft.window_pages if page != one.before]
        if one.after is not None:
            pages.append(one.after)
        windows = {entry.window: entry for entry in draft.windows}
        for entry in one.windows:
            known = windows.get(entry.window)
            joined = entry.pages if known is None else (*known.pages, *entry.pages)
            windows[entry.window] = _encoded(WindowEntry(window=entry.window, pages=joined))
        draft = replace(
            draft,
            window_pages=tuple(pages),
            windows=tuple(windows.values()),
            removed_files=(*draft.removed_files, one.before.path),
        )
    return draft


def _change_pages(draft: Manifest, changes: tuple[PageChange, ...]) -> Manifest:
    windows = {entry.window: entry for entry in draft.windows}
    for change in changes:
        entry = windows.get(change.window)
        if entry is None or change.before not in entry.pages:
            raise MustRewrite("a page of segments has changed")
        pages = [page for page in entry.pages if page != change.before]
        if change.after is not None:
            pages.append(change.after)
        if pages:
            pages.sort(key=lambda page: page.min_seq)
            windows[change.window] = _encoded(replace(entry, pages=tuple(pages), encoded=b""))
        else:
            del windows[change.window]
    return replace(
        draft,
        windows=tuple(windows.values()),
        removed_files=(*draft.removed_files, *(change.before.path for change in changes)),
    )


def _encoded(entry: WindowEntry) -> WindowEntry:
    """Encode once what every later commit would otherwise encode again."""
    return replace(entry, encoded=entry.to_json())
