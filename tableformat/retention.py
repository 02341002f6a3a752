"""Changes that take something away: floors, trims, tags, rollbacks, versions, whole tables.

Pure steps of `actions.apply`. None of them removes an object: they say what is no longer part of
the table, and whoever removes objects reads that from a committed version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat import paths
from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import (
    CommitConflict,
    InvalidInput,
    VersionNotFound,
)
from strandline.tableformat.expiry import share_below
from strandline.tableformat.lifecycle import MAX_TAGS, FloorRaise, Tag, is_expired, is_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import PageRef, SegmentEntry, WindowEntry

MAX_RAISES: Final = 64


@dataclass(frozen=True, slots=True)
class RaiseFloor:
    """Rows below are hidden, and windows that end there leave the table. No page is read for it."""

    floor_ts: int
    store_ms: int
    """The store's time, from which the grace of readers is counted."""
    grace_ms: int
    ttl_ms: int | None
    """The setting that the floor was computed from: with another one it is decided anew."""
    most_share: float = 1.0
    """How much of the table may be hidden by it."""


@dataclass(frozen=True, slots=True)
class TrimTo:
    """Rows below this sequence number are hidden for ever."""

    seq: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Settings that may change at any time, by the names of `Config`."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetTag:
    """A name that keeps a version; None: the version that is newest."""

    name: str
    version: int | None


@dataclass(frozen=True, slots=True)
class DropTag:
    """The name goes; its version is kept no longer than others."""

    name: str


@dataclass(frozen=True, slots=True)
class Rollback:
    """The segments of an earlier version take the place of today's; all else stays."""

    version: int
    rows: int
    """Rows that the version listed, hidden ones too."""
    segments: tuple[SegmentEntry, ...]
    windows: tuple[WindowEntry, ...]
    window_pages: tuple[PageRef, ...]


@dataclass(frozen=True, slots=True)
class GiveUpVersions:
    """Versions below are no longer kept, unless tagged."""

    below: int


@dataclass(frozen=True, slots=True)
class RaiseFilesFloor:
    """Files begun before this version are refused from now on, so that they may be removed."""

    files_floor: int


@dataclass(frozen=True, slots=True)
class DropIfEmpty:
    """The table ends, unless anything came meanwhile: rows, other settings, a second look."""

    judged: int
    """The version that was found to be empty for long."""


Retention = (
    RaiseFloor
    | TrimTo
    | SetConfig
    | SetTag
    | DropTag
    | Rollback
    | GiveUpVersions
    | RaiseFilesFloor
    | DropIfEmpty
)


def apply_retention(draft: Manifest, action: Retention, committed_at: int) -> Manifest:
    """The draft after one action."""
    if isinstance(action, RaiseFloor):
        return _raise_floor(draft, action)
    if isinstance(action, TrimTo):
        return _trim(draft, action)
    if isinstance(action, SetConfig):
        return replace(draft, config=replace(draft.config, **action.changes))
    if isinstance(action, SetTag):
        return _tag(draft, action, committed_at)
    if isinstance(action, DropTag):
        return _untag(draft, action)
    if isinstance(action, Rollback):
        return _rollback(draft, action)
    if isinstance(action, GiveUpVersions):
        return _give_up(draft, action)
    if isinstance(action, RaiseFilesFloor):
        floor = min(max(action.files_floor, draft.files_floor), draft.files_version)
        return replace(draft, files_floor=floor)
    return _drop(draft, action, committed_at)


# --- rows --------------------------------------------------------------------------------------


def _raise_floor(draft: Manifest, action: RaiseFloor) -> Manifest:
    if action.floor_ts <= draft.floor_ts:
        return draft
    if draft.config.ttl_ms != action.ttl_ms:
        raise MustRewrite("the ttl is another one than the floor was computed from")
    if share_below(draft, action.floor_ts).share > action.most_share:
        raise MustRewrite("the table has become smaller since the share to be hidden was computed")
    raised = FloorRaise(action.floor_ts, draft.version, action.store_ms)
    raises = _thinned((raised, *draft.lifecycle.raises), action.store_ms - action.grace_ms)
    return without_hidden(
        replace(
            draft,
            floor_ts=action.floor_ts,
            lifecycle=replace(draft.lifecycle, raises=raises),
        )
    )


def _thinned(raises: tuple[FloorRaise, ...], grace_began: int) -> tuple[FloorRaise, ...]:
    """Those that still decide something. Leaving one out can only delay a removal."""
    over = next((i for i, r in enumerate(raises) if r.raised_at <= grace_began), len(raises))
    kept = list(raises[: over + 1])
    while len(kept) > MAX_RAISES:
        gaps = [kept[i - 1].raised_at - kept[i + 1].raised_at for i in range(1, len(kept) - 1)]
        del kept[1 + gaps.index(min(gaps))]
    return tuple(kept)


def _trim(draft: Manifest, action: TrimTo) -> Manifest:
    if action.seq > draft.next_seq:
        raise InvalidInput(
            f"cannot trim to {action.seq}: the next row gets number {draft.next_seq}. Nothing was "
            "changed."
        )
    return without_hidden(replace(draft, trim_seq=max(draft.trim_seq, action.seq)))


def without_hidden(draft: Manifest) -> Manifest:
    """The draft without what cannot hold a visible row; no page is opened to find out."""
    floor, trim = draft.floor_ts, draft.trim_seq
    windows: list[WindowEntry] = []
    for window in draft.windows:
        pages = tuple(p for p in window.pages if not is_hidden(p, floor, trim))
        if is_expired(window.window, floor) or not pages:
            continue
        same = len(pages) == len(window.pages)
        windows.append(window if same else replace(window, pages=pages, encoded=b""))
    kept = replace(
        draft,
        segments=tuple(e for e in draft.segments if not is_hidden(e, floor, trim)),
        windows=tuple(windows),
        window_pages=tuple(p for p in draft.window_pages if not is_hidden(p, floor, trim)),
    )
    return with_removed(draft, kept)


def _listed(manifest: Manifest) -> list[str]:
    pages = [page.path for window in manifest.windows for page in window.pages]
    inline = [entry.path for entry in manifest.segments]
    return [*inline, *pages, *(page.path for page in manifest.window_pages)]


def with_removed(before: Manifest, after: Manifest) -> Manifest:
    """What `before` refers to itself and `after` does not, added to the removed files."""
    kept = set(_listed(after))
    gone = tuple(path for path in _listed(before) if path not in kept)
    return replace(after, removed_files=before.removed_files + gone)


# --- versions ----------------------------------------------------------------------------------


def _tag(draft: Manifest, action: SetTag, committed_at: int) -> Manifest:
    # The commit that tags the newest version comes behind it.
    version = draft.version - 1 if action.version is None else action.version
    known = draft.lifecycle.tags.get(action.name)
    if known is not None and known.version == version:
        return draft
    if known is not None:
        raise CommitConflict(
            f"the tag {action.name!r} is at version {known.version}. Nothing was changed. Remove "
            "it first with untag, or choose another name."
        )
    _check_kept(draft, version)
    if len(draft.lifecycle.tags) >= MAX_TAGS:
        raise InvalidInput(f"a table has at most {MAX_TAGS} tags. Nothing was changed.")
    tags = {**draft.lifecycle.tags, action.name: Tag(version, committed_at)}
    return replace(draft, lifecycle=replace(draft.lifecycle, tags=tags))


def _check_kept(draft: Manifest, version: int) -> None:
    if not 1 <= version < draft.version or not draft.lifecycle.keeps(version):
        raise VersionNotFound(
            f"the table does not keep version {version}: its newest is {draft.version - 1}, its "
            f"oldest {max(1, draft.lifecycle.oldest_version)}. Nothing was changed."
        )


def _untag(draft: Manifest, action: DropTag) -> Manifest:
    if action.name not in draft.lifecycle.tags:
        raise CommitConflict(f"there is no tag {action.name!r}. Nothing was changed.")
    tags = {name: tag for name, tag in draft.lifecycle.tags.items() if name != action.name}
    return replace(draft, lifecycle=replace(draft.lifecycle, tags=tags))


def _rollback(draft: Manifest, action: Rollback) -> Manifest:
    _check_kept(draft, action.version)
    restored = replace(
        draft,
        segments=action.segments,
        windows=action.windows,
        window_pages=action.window_pages,
        deleted_rows=draft.next_seq - action.rows,
    )
    visible = replace(without_hidden(restored), removed_files=draft.removed_files)
    return with_removed(draft, visible)


def _give_up(draft: Manifest, action: GiveUpVersions) -> Manifest:
    below = min(max(action.below, draft.lifecycle.oldest_version), draft.version - 1)
    return replace(draft, lifecycle=replace(draft.lifecycle, oldest_version=below))


def _drop(draft: Manifest, action: DropIfEmpty, committed_at: int) -> Manifest:
    if not seems_empty(draft):
        raise CommitConflict("the table has rows again and stays. Nothing was changed.")
    if draft.version != action.judged + 1:
        raise CommitConflict(
            f"the table has changed since version {action.judged} and stays. Nothing was changed. "
            "The next run of maintain decides anew."
        )
    return replace(draft, dropped_at=committed_at)


def seems_empty(manifest: Manifest) -> bool:
    """Whether no segment is listed that could hold a visible row."""
    kept = without_hidden(manifest)
    return not (kept.segments or kept.windows or kept.window_pages)


def check_page(draft: Manifest, path: str) -> None:
    """Refuse a page that vacuum may have removed before this commit."""
    number = paths.parse_page_path(path, path[path.index(".") :])
    if number < draft.files_floor:
        raise CommitConflict(f"vacuum may have removed {path}; nothing was changed")
