"""How metadata moves between a manifest and its pages: pure steps of `actions.apply`.

Each fails when what it would move has changed meanwhile. Rows are touched by none of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.tableformat.errors import CommitConflict
from strandline.tableformat.segments import WindowEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.actions import (
        FoldPositions,
        FoldWindows,
        MergePages,
        RollSegments,
    )
    from strandline.tableformat.manifest import Manifest


def _gone(what: str) -> CommitConflict:
    return CommitConflict(f"{what} changed while it was being rewritten; nothing was changed")


def roll(draft: Manifest, action: RollSegments) -> Manifest:
    """Put a page in the place of the inline segments that it lists."""
    moved = set(action.moved)
    kept = tuple(entry for entry in draft.segments if entry.path not in moved)
    if len(draft.segments) - len(kept) != len(moved):
        raise _gone("the list of newest segments")
    windows = list(draft.windows)
    for index, entry in enumerate(windows):
        if entry.window == action.window:
            windows[index] = WindowEntry(window=entry.window, pages=(*entry.pages, action.page))
            break
    else:
        windows.append(WindowEntry(window=action.window, pages=(action.page,)))
    return replace(draft, segments=kept, windows=_encoded(windows))


def merge(draft: Manifest, action: MergePages) -> Manifest:
    """Put one page in the place of several of the same window."""
    merged = set(action.merged)
    windows = list(draft.windows)
    for index, entry in enumerate(windows):
        if entry.window == action.window:
            kept = [page for page in entry.pages if page.path not in merged]
            if len(entry.pages) - len(kept) != len(merged):
                break
            pages = sorted([*kept, action.page], key=lambda page: page.min_seq)
            windows[index] = WindowEntry(window=entry.window, pages=tuple(pages))
            return replace(
                draft,
                windows=_encoded(windows),
                removed_files=draft.removed_files + action.merged,
            )
    raise _gone("a window's list of pages")


def _encoded(windows: Sequence[WindowEntry]) -> tuple[WindowEntry, ...]:
    """Encode once what every later commit would otherwise encode again."""
    return tuple(w if w.encoded else replace(w, encoded=w.to_json()) for w in windows)


def fold_windows(draft: Manifest, action: FoldWindows) -> Manifest:
    """Put a window page in the place of windows, and of window pages merged with them."""
    folded = {entry.window: entry.pages for entry in action.folded}
    kept = tuple(e for e in draft.windows if folded.get(e.window) != e.pages)
    if len(draft.windows) - len(kept) != len(folded):
        raise _gone("the list of windows")
    pages = tuple(page for page in draft.window_pages if page.path not in set(action.merged))
    if len(draft.window_pages) - len(pages) != len(action.merged):
        raise _gone("the list of window pages")
    return replace(
        draft,
        windows=kept,
        window_pages=(*pages, action.page),
        removed_files=draft.removed_files + action.merged,
    )


def fold_positions(draft: Manifest, action: FoldPositions) -> Manifest:
    """Put a page in the place of cold positions, or one page in the place of all."""
    kept = {k: v for k, v in draft.positions.items() if action.folded.get(k) != v}
    if len(draft.positions) - len(kept) != len(action.folded):
        raise _gone("a writer's position")
    pages = draft.position_pages
    if action.merged:
        # Only all pages together: leaving one out could bring an older position back.
        if tuple(page.path for page in pages) != action.merged:
            raise _gone("the list of position pages")
        pages = ()
    return replace(
        draft,
        positions=kept,
        position_pages=pages if action.page is None else (*pages, action.page),
        removed_files=draft.removed_files + action.merged,
    )
