"""Vacuum: removing objects that no kept version needs and no commit can refer to any more.

The order is what makes it safe. List first; then commit the files floor, after which files begun
before it are refused in new commits; then read what the kept versions need. An object that was
listed, is not needed, and was begun below the floor can never become part of the table. Its age
by the store's clock is a second belt. Needed is also what was needed when the grace of readers
began: see `grace`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.chain import MANIFEST_MIN_AGE_MS
from strandline.catalog.commit import MetadataChange, commit
from strandline.maintenance.grace import (
    Settled,
    listed_versions,
    now_ms,
    older_ones,
    settled,
)
from strandline.maintenance.reachability import REFERENCED, can_walk, name_of, reachable
from strandline.maintenance.removing import remove_verified
from strandline.tableformat import paths
from strandline.tableformat.errors import InvalidInput, VersionNotFound
from strandline.tableformat.retention import GiveUpVersions, RaiseFilesFloor

if TYPE_CHECKING:
    from strandline.catalog.chain import Chain, Snapshot

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What one run removed, or with `dry_run` would remove."""

    dry_run: bool
    version: int
    files_floor: int
    removed: tuple[str, ...]
    bytes_removed: int
    by_kind: dict[str, int]
    too_young: int
    """Objects that nobody needs, and that wait until they are old enough."""
    unknown: int
    """Objects of no kind that is known here; they are left alone."""
    uploads_ended: int

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        would = "would remove" if self.dry_run else "removed"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.by_kind.items()))
        size = f"{len(self.removed)} objects, {self.bytes_removed} bytes"
        lines = [f"version {self.version}: {would} {size} ({kinds or 'nothing'})"]
        lines += [f"  {path}" for path in self.removed[:_SHOWN]]
        if len(self.removed) > _SHOWN:
            lines.append(f"  … and {len(self.removed) - _SHOWN} more")
        lines.append(
            f"{self.too_young} wait until they are older, {self.unknown} are not ours, "
            f"{self.uploads_ended} unfinished uploads ended"
        )
        return "\n".join(lines)


def vacuum(
    chain: Chain, head: Snapshot, *, grace_ms: int, dry_run: bool
) -> tuple[VacuumReport, Snapshot]:
    """Remove what nobody needs. Any kept version that cannot be read ends it before a removal."""
    listed = dict(chain.storage.walk(""))
    head = chain.refresh(head)
    if not can_walk(head.manifest):
        raise InvalidInput(
            f"vacuum does not know all that tables with {', '.join(head.manifest.reader_features)} "
            "refer to. Nothing was removed."
        )
    moment = now_ms(chain) - grace_ms
    floor = max(head.manifest.files_floor, _version_before(chain, head, moment))
    if floor > head.manifest.files_floor and not dry_run:
        change = MetadataChange((RaiseFilesFloor(floor),))
        head = commit(chain, head, change, operation="vacuum").snapshot
    before = settled(chain, head, moment)
    needed, head = reachable(chain, head, before)
    garbage, unknown = _garbage(listed, needed, floor)
    old = older_ones(chain, garbage, moment)
    if not dry_run:
        remove_verified(chain.storage, old, "no kept version needs it")
    manifests = remove_versions(chain, head, before, dry_run=dry_run)
    removed = (*old, *manifests)
    report = VacuumReport(
        dry_run=dry_run,
        version=head.manifest.version,
        files_floor=floor,
        removed=removed,
        bytes_removed=sum(listed.get(path, 0) for path in removed),
        by_kind=dict(Counter(name.kind for path in removed if (name := name_of(path)))),
        too_young=len(garbage) - len(old),
        unknown=unknown,
        uploads_ended=0 if dry_run else chain.storage.abort_uploads(moment),
    )
    return report, head


def _garbage(listed: dict[str, int], needed: set[str], floor: int) -> tuple[list[str], int]:
    """Of what was listed: what no version needs and none can come to need; and what is unknown."""
    found, unknown = [], 0
    for path in sorted(listed):
        name = name_of(path)
        if name is None:
            unknown += 1
        elif name.kind in REFERENCED:
            if path not in needed and name.number is not None and name.number < floor:
                found.append(path)
        elif name.kind in ("temporary", "probe"):
            found.append(path)
    return found, unknown


def _version_before(chain: Chain, head: Snapshot, moment: int) -> int:
    """The version that was newest at a time; the oldest that is kept if none is so old."""
    try:
        return chain.as_of(max(0, moment), head).manifest.version
    except VersionNotFound:
        return max(1, head.manifest.lifecycle.oldest_version)


# --- versions ----------------------------------------------------------------------------------


def remove_versions(chain: Chain, head: Snapshot, before: Settled, *, dry_run: bool) -> list[str]:
    """Remove manifests that were given up: a marker first, and none younger than an hour.

    A version that was given up within the grace stays: what its readers need is looked up in it.
    """
    kept = head.manifest.lifecycle
    moment = now_ms(chain) - MANIFEST_MIN_AGE_MS
    given_up = [
        chain.manifest_path(version)
        for version in listed_versions(chain)
        if not kept.keeps(version) and not before.keeps(version)
    ]
    due = older_ones(chain, given_up, moment)
    markers = [
        chain.gc_marker_path(version)
        for name in chain.storage.list(chain.gc_folder)
        if (version := paths.gc_marker_version(name)) is not None and version < kept.oldest_version
    ]
    if not dry_run and (due or markers):
        chain.storage.put_if_absent(chain.gc_marker_path(kept.oldest_version), b"")
        remove_verified(chain.storage, due, "the version was given up")
        remove_verified(chain.storage, markers, "a later marker says more")
    return [*due, *markers]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsReport:
    """What became of old versions."""

    dry_run: bool
    version: int
    oldest_version: int
    manifests_removed: int
    tagged: tuple[int, ...]
    """Older versions that tags keep."""
    committed_at: int
    """When the newest version was committed by its own account; of several chains, the latest."""

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        would = "would be" if self.dry_run else "are"
        tags = f"; tags keep {', '.join(map(str, self.tagged))}" if self.tagged else ""
        return (
            f"version {self.version}: versions from {self.oldest_version} on {would} kept, those "
            f"of the last hour in any case; {self.manifests_removed} manifests removed{tags}"
        )


def expire_versions(
    chain: Chain,
    head: Snapshot,
    *,
    older_than_ms: int | None,
    retain_last: int,
    grace_ms: int,
    dry_run: bool,
) -> tuple[VersionsReport, Snapshot]:
    """Give up versions that have not been the newest for so long; the newest ones always stay.

    `older_than_ms`: None for all of them. Otherwise those of the last hour stay.
    """
    head = chain.refresh(head)
    below = head.manifest.version - retain_last + 1
    if older_than_ms is not None:
        # The version that was newest then stays: those before it had been replaced by then.
        moment = now_ms(chain) - max(older_than_ms, MANIFEST_MIN_AGE_MS)
        below = min(below, settled(chain, head, moment).version)
    oldest = max(1, head.manifest.lifecycle.oldest_version, below)
    if below > head.manifest.lifecycle.oldest_version and below > 1 and not dry_run:
        change = MetadataChange((GiveUpVersions(below),))
        head = commit(chain, head, change, operation="expire_versions").snapshot
        oldest = head.manifest.lifecycle.oldest_version
    # The clock is asked again: without a grace, what was given up just now may go at once.
    before = settled(chain, head, now_ms(chain) - grace_ms)
    removed = remove_versions(chain, head, before, dry_run=dry_run)
    report = VersionsReport(
        dry_run=dry_run,
        version=head.manifest.version,
        oldest_version=oldest,
        manifests_removed=len(removed),
        tagged=tuple(sorted(v for v in head.manifest.lifecycle.tagged if v < oldest)),
        committed_at=head.manifest.commit.committed_at,
    )
    return report, head
