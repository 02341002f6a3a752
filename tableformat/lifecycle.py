"""What a manifest remembers so that old rows, versions and files can go: records and their JSON.

All of it is optional in the manifest: a table whose retention nobody touched has none of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.errors import CorruptTable
from strandline.tableformat.fields import Fields

if TYPE_CHECKING:
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import Summary
    from strandline.tableformat.windows import Window

LIFECYCLE_FIELDS: Final = ("floor_raises", "tags", "oldest_version")
MAX_TAG_BYTES: Final = 128
MAX_TAGS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FloorRaise:
    """A floor and since when it hides rows: the grace of readers is counted from here."""

    floor_ts: int
    version: int
    raised_at: int
    """By the store's clock, and not the committer's: a wrong clock must not shorten the grace."""

    def to_json(self) -> dict[str, str]:
        return {
            "floor_ts": str(self.floor_ts),
            "version": str(self.version),
            "raised_at": str(self.raised_at),
        }


@dataclass(frozen=True, slots=True)
class Tag:
    """A name that keeps a version."""

    version: int
    tagged_at: int

    def to_json(self) -> dict[str, str]:
        return {"version": str(self.version), "tagged_at": str(self.tagged_at)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The part of a manifest that decides what may be removed."""

    raises: tuple[FloorRaise, ...] = ()
    """Floors whose grace may not be over yet, newest first."""
    tags: dict[str, Tag] = field(default_factory=dict)
    oldest_version: int = 0
    """Versions below are given up, unless a tag keeps them; 0: none is."""

    def keeps(self, version: int) -> bool:
        """Whether a version may still be read, so that nothing it needs may be removed."""
        return version >= self.oldest_version or version in self.tagged

    @property
    def tagged(self) -> set[int]:
        """Versions that tags keep."""
        return {tag.version for tag in self.tags.values()}

    def to_json(self) -> dict[str, Any]:
        """Those fields that say something."""
        out: dict[str, Any] = {}
        if self.raises:
            out["floor_raises"] = [raised.to_json() for raised in self.raises]
        if self.tags:
            out["tags"] = {name: self.tags[name].to_json() for name in sorted(self.tags)}
        if self.oldest_version:
            out["oldest_version"] = str(self.oldest_version)
        return out


def lifecycle_from_json(manifest: Fields) -> Lifecycle:
    """Decode and check the lifecycle fields of a manifest."""
    raises = [] if manifest.optional("floor_raises") is None else manifest.list("floor_raises")
    tags = {} if manifest.optional("tags") is None else manifest.object("tags")
    if not all(0 < len(name.encode(errors="replace")) <= MAX_TAG_BYTES for name in tags):
        raise CorruptTable("manifest.tags: a name is empty or too long")
    oldest = manifest.optional("oldest_version")
    return Lifecycle(
        raises=tuple(_raise_from_json(value) for value in raises),
        tags={name: _tag_from_json(value) for name, value in tags.items()},
        oldest_version=0 if oldest is None else manifest.int64("oldest_version", least=1),
    )


def _raise_from_json(value: Any) -> FloorRaise:
    fields = Fields(value, "manifest.floor_raises")
    return FloorRaise(
        fields.int64("floor_ts"), fields.int64("version", least=1), fields.int64("raised_at")
    )


def _tag_from_json(value: Any) -> Tag:
    fields = Fields(value, "manifest.tags")
    return Tag(fields.int64("version", least=1), fields.int64("tagged_at"))


def check_lifecycle(manifest: Manifest) -> None:
    """Refuse what contradicts the rest of the manifest."""
    kept = manifest.lifecycle
    newest = max([kept.oldest_version, *kept.tagged, *(r.version for r in kept.raises)], default=0)
    if newest > manifest.version:
        raise CorruptTable(f"manifest {manifest.version} speaks of a version that is yet to come")
    if any(raised.floor_ts > manifest.floor_ts for raised in kept.raises):
        raise CorruptTable(f"manifest {manifest.version}: a floor was raised above floor_ts")


def is_expired(window: Window, floor_ts: int) -> bool:
    """Whether no row of a window can be visible: its files may be gone, and are never opened."""
    return window.end_ms <= floor_ts


def is_hidden(part: Summary, floor_ts: int, trim_seq: int) -> bool:
    """Whether a segment or page lists no row that could be visible."""
    return part.max_ts < floor_ts or part.max_seq < trim_seq
