"""The maintenance of one table, by its own settings. Two runs at once only do less each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.catalog.commit import MetadataChange, commit
from strandline.maintenance.expire import ExpireOptions, expire
from strandline.maintenance.grace import now_ms
from strandline.maintenance.reachability import can_walk, has_users
from strandline.maintenance.users_vacuum import expire_all_versions, vacuum_all
from strandline.tableformat.errors import CommitConflict, VersionNotFound
from strandline.tableformat.retention import DropIfEmpty, seems_empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.catalog.chain import Chain, Snapshot


_HOUSEKEEPING: Final = frozenset({"expire", "expire_versions", "vacuum", "tidy", "compact"})
"""Commits that do not show that somebody uses a table."""


class StepReport(Protocol):
    """What a step says of itself."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainReport:
    """What was done, step by step."""

    steps: dict[str, StepReport]
    dropped: bool
    """The table was empty for longer than its settings allow, and has ended."""

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        done = {name: step.to_json() for name, step in self.steps.items()}
        return {**done, "dropped": self.dropped}

    def __str__(self) -> str:
        lines = [f"{name}: {step}" for name, step in self.steps.items()]
        return "\n".join([*lines, "the table was empty and is dropped"] if self.dropped else lines)


def maintain(
    chain: Chain,
    head: Snapshot,
    *,
    compact: Callable[[Callable[[int, int], None]], StepReport],
    dry_run: bool,
    grace_ms: int,
    max_share: float,
    progress: Callable[[str, int, int], None],
) -> tuple[MaintainReport, Snapshot]:
    """Expire rows, drop the table if it is to end when empty, give up versions, vacuum."""
    steps: dict[str, StepReport] = {}
    progress("expire", 0, 1)
    options = ExpireOptions(dry_run=dry_run, grace_ms=grace_ms, max_share=max_share)
    steps["expire"], head = expire(chain, head, options)
    progress("expire", 1, 1)
    history_ms = head.manifest.config.history_ms
    dropped = False
    if not dry_run:
        dropped, head = drop_if_empty(chain, head)
    is_known = can_walk(head.manifest) or has_users(head.manifest)
    if not dropped and is_known:
        progress("compact", 0, 1)
        steps["compact"] = compact(lambda done, of: progress("compact", done, of))
        progress("compact", 1, 1)
        head = chain.refresh(head)
    if history_ms is not None:
        # Versions tell since when a table that is to end has been empty.
        history_ms = max(history_ms, head.manifest.config.delete_on_empty_ms)
        progress("expire_versions", 0, 1)
        steps["expire_versions"], head = expire_all_versions(
            chain,
            head,
            older_than_ms=history_ms,
            retain_last=1,
            grace_ms=grace_ms,
            dry_run=dry_run,
        )
        progress("expire_versions", 1, 1)
    if is_known:
        progress("vacuum", 0, 1)
        steps["vacuum"], head = vacuum_all(chain, head, grace_ms=grace_ms, dry_run=dry_run)
        progress("vacuum", 1, 1)
    return MaintainReport(steps=steps, dropped=dropped), head


def drop_if_empty(chain: Chain, head: Snapshot) -> tuple[bool, Snapshot]:
    """Drop a table that has been without visible rows for as long as its settings say."""
    head = chain.refresh(head)
    manifest = head.manifest
    min_age = manifest.config.delete_on_empty_ms
    if not can_walk(manifest):
        return False, head  # its rows may be listed elsewhere
    if not min_age or manifest.dropped_at is not None or not seems_empty(manifest):
        return False, head
    if not _was_empty_since(chain, head, now_ms(chain) - min_age):
        return False, head
    change = MetadataChange((DropIfEmpty(manifest.version),))
    try:
        head = commit(chain, head, change, operation="drop").snapshot
    except CommitConflict:
        return False, chain.refresh(head)
    return True, head


def _was_empty_since(chain: Chain, head: Snapshot, moment: int) -> bool:
    """Whether no row was visible at a time, and nobody has used the table since.

    Both are asked: rows that expire leave without anybody's doing.
    """
    history = head.manifest.history
    used = [record.committed_at for record in history if record.operation not in _HOUSEKEEPING]
    if max(used, default=history[-1].committed_at) > moment:
        return False
    try:
        return seems_empty(chain.as_of(max(0, moment), head).manifest)
    except VersionNotFound:
        return False  # nobody can tell any more, or the table is younger
