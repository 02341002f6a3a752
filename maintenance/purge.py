"""Purge: when the bytes of rows that nobody may see any more are really gone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from strandline.catalog.chain import MANIFEST_MIN_AGE_MS
from strandline.maintenance.expire import ExpireOptions, expire
from strandline.maintenance.reachability import REMEMBERED
from strandline.maintenance.users_vacuum import expire_all_versions, vacuum_all

if TYPE_CHECKING:
    from strandline.catalog.chain import Chain, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """What one run removed, and what is promised of the next."""

    dry_run: bool
    version: int
    """Everything that this version hides or no longer lists is what the promise speaks of."""
    removed: int
    bytes_removed: int
    tagged: tuple[int, ...]
    """Versions that tags keep: what only they list is not removed."""
    remembered: int
    """Remembered queries: their kept answers are not part of this."""
    complete_after_ms: int
    """By the store's clock."""

    @property
    def promise(self) -> str:
        """When all is gone."""
        moment = datetime.fromtimestamp(self.complete_after_ms / 1000, UTC)
        but = f", except what the tagged versions {self.tagged} list" if self.tagged else ""
        if self.remembered:
            but += f", and except the answers that {self.remembered} remembered queries keep"
        return (
            f"what was deleted, trimmed or expired by version {self.version} is gone from the "
            f"store after a purge that runs after {moment.isoformat(timespec='seconds')}{but}"
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**asdict(self), "promise": self.promise}

    def __str__(self) -> str:
        would = "would remove" if self.dry_run else "removed"
        return f"{would} {self.removed} objects, {self.bytes_removed} bytes\n{self.promise}"


def purge(
    chain: Chain, head: Snapshot, *, grace_ms: int, dry_run: bool
) -> tuple[PurgeReport, Snapshot]:
    """Expire, give up all history, and remove what nobody can have open any more.

    Versions of the grace are given up too: one that stayed would be given up by the next run, and
    its readers would have their grace from there.
    """
    head = chain.refresh(head)
    version = head.manifest.version
    expired, head = expire(chain, head, ExpireOptions(dry_run=dry_run, grace_ms=grace_ms))
    versions, head = expire_all_versions(
        chain, head, older_than_ms=None, retain_last=1, grace_ms=grace_ms, dry_run=dry_run
    )
    # Readers of what was given up just now have their grace from here, by whichever clock is ahead.
    given_up = max(chain.storage.clock_ms(), chain.runtime.now_ms(), versions.committed_at)
    swept, head = vacuum_all(chain, head, grace_ms=grace_ms, dry_run=dry_run)
    report = PurgeReport(
        dry_run=dry_run,
        version=version,
        removed=expired.files_removed + versions.manifests_removed + len(swept.removed),
        bytes_removed=expired.bytes_removed + swept.bytes_removed,
        tagged=versions.tagged,
        remembered=len(list(chain.storage.folders(REMEMBERED))),
        complete_after_ms=given_up + max(grace_ms, MANIFEST_MIN_AGE_MS),
    )
    return report, head
