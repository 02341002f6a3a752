"""When metadata moves out of the manifest, so that a commit writes a bounded amount.

Segments roll into pages, small pages merge in tiers, cold windows and cold writer positions fold
into pages of their own. All of it happens in commits after the append was acknowledged: whoever
loses such a race has lost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.tableformat.pages import MAX_PAGE_ENTRIES

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Manifest, Position
    from strandline.tableformat.segments import PageRef, SegmentEntry, WindowEntry
    from strandline.tableformat.windows import Window

ROLL_AT: Final = 64
ROLL_STEP: Final = 8
"""One writer in eight tries to roll once the limit is passed: eight at once would race in vain."""
ROLL_ALL_AT: Final = 512
LEAST_PAGE: Final = 8
"""Windows with fewer inline segments wait, so that pages do not become as small as entries."""
MOST_PAGES_PER_COMMIT: Final = 64
TIER_FACTOR: Final = 8
FOLD_WINDOWS_ABOVE: Final = 256
KEEP_WINDOWS: Final = 128
MOST_WINDOWS_PER_PAGE: Final = 1_024
FOLD_POSITIONS_ABOVE: Final = 1_000
KEEP_POSITIONS: Final = 500
MERGE_DOCUMENTS_AT: Final = 8


def should_roll(segments_before: int, segments_after: int) -> bool:
    """Whether the append that just grew the list of inline segments is the one to roll it."""
    steps_before = (segments_before - ROLL_AT) // ROLL_STEP
    return segments_after >= ROLL_AT and (segments_after - ROLL_AT) // ROLL_STEP != steps_before


def segments_to_roll(manifest: Manifest) -> list[tuple[Window, list[SegmentEntry]]]:
    """Which inline segments become pages now, by window."""
    if len(manifest.segments) < ROLL_AT:
        return []
    by_window: dict[Window, list[SegmentEntry]] = {}
    for entry in manifest.segments:
        by_window.setdefault(entry.window, []).append(entry)
    groups = sorted(by_window.items(), key=lambda item: -len(item[1]))
    if len(manifest.segments) < ROLL_ALL_AT:
        groups = [group for group in groups if len(group[1]) >= LEAST_PAGE]
    return groups[:MOST_PAGES_PER_COMMIT]


def pages_to_merge(manifest: Manifest) -> tuple[Window, tuple[PageRef, ...]] | None:
    """Eight pages of one size become one of the next size; large pages stay as they are."""
    for entry in manifest.windows:
        ceiling = ROLL_AT * TIER_FACTOR
        while ceiling <= MAX_PAGE_ENTRIES:
            tier = [page for page in entry.pages if page.entries < ceiling]
            if len(tier) >= TIER_FACTOR:
                return entry.window, _fitting(tier)
            ceiling *= TIER_FACTOR
    return None


def _fitting(tier: list[PageRef]) -> tuple[PageRef, ...]:
    """As many pages, oldest first, as one page may list."""
    chosen: list[PageRef] = []
    total = 0
    for page in sorted(tier, key=lambda page: page.min_seq):
        if total + page.entries > MAX_PAGE_ENTRIES:
            break
        chosen.append(page)
        total += page.entries
    return tuple(chosen)


def windows_to_fold(
    manifest: Manifest,
) -> tuple[tuple[WindowEntry, ...], tuple[PageRef, ...]] | None:
    """The oldest windows, and the window pages that are merged with them."""
    if len(manifest.windows) <= FOLD_WINDOWS_ABOVE:
        return None
    by_age = sorted(manifest.windows, key=lambda entry: entry.window.start_ms)
    folded = by_age[: len(by_age) - KEEP_WINDOWS]
    small = [page for page in manifest.window_pages if page.entries < MOST_WINDOWS_PER_PAGE]
    merged: list[PageRef] = []
    if len(small) >= MERGE_DOCUMENTS_AT:
        room = MOST_WINDOWS_PER_PAGE * 2 - len(folded)
        for page in sorted(small, key=lambda page: page.min_ts):
            if page.entries <= room:
                merged.append(page)
                room -= page.entries
    return tuple(folded), tuple(merged)


def positions_to_fold(manifest: Manifest) -> dict[str, Position] | None:
    """The coldest writer positions, by the time of their last commit."""
    if len(manifest.positions) <= FOLD_POSITIONS_ABOVE:
        return None
    by_age = sorted(manifest.positions.items(), key=lambda item: item[1].committed_at)
    return dict(by_age[: len(by_age) - KEEP_POSITIONS])


def positions_must_merge(manifest: Manifest) -> bool:
    """Whether the next fold takes all position pages into its own."""
    return len(manifest.position_pages) >= MERGE_DOCUMENTS_AT
