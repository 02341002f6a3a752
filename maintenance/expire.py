"""Expiry: the floor first, as one small commit, and whole prefixes once the grace is over.

Which prefixes may go is read from a committed version and from names in the store, so that a run
that was cut off anywhere is finished by the next one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from strandline.catalog.commit import MetadataChange, commit
from strandline.catalog.user_chain import each_user
from strandline.maintenance import grace
from strandline.maintenance.reachability import has_users
from strandline.maintenance.removing import remove_prefix
from strandline.tableformat import expiry, paths
from strandline.tableformat.errors import ImplausibleExpiry, ObjectMissing, StrandlineError
from strandline.tableformat.retention import RaiseFloor, without_hidden
from strandline.tableformat.windows import format_duration

if TYPE_CHECKING:
    from strandline.catalog.chain import Chain, Snapshot
    from strandline.tableformat.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireReport:
    """What one run did, or with `dry_run` would do."""

    dry_run: bool
    floor_before: int
    floor_ts: int
    version: int
    segments_hidden: int | None
    """As far as the manifest tells by itself; windows that were folded away count by their page.

    None where nobody had to know: for tables of users all users are asked for it, which is done
    with `dry_run` and where a share is the limit.
    """
    rows_hidden: int | None
    bytes_hidden: int | None
    prefixes_removed: tuple[str, ...]
    """Windows whose grace is over."""
    files_removed: int
    bytes_removed: int
    prefixes_waiting: int
    """Windows that are hidden and still in the store, for readers that began before."""
    ttl_ms: int | None
    window_ms: int
    grace_ms: int

    @property
    def promise(self) -> str:
        """When data is gone at the latest."""
        if self.ttl_ms is None:
            return "the table has no ttl: rows live for ever"
        parts = f"{format_duration(self.ttl_ms)} (ttl) + {format_duration(self.window_ms)} (window)"
        grace = format_duration(self.grace_ms) if self.grace_ms else "0"
        return (
            f"a row is gone from the store at the latest {parts} + {grace} (grace) + the time "
            "between two runs after its own time"
        )

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**asdict(self), "promise": self.promise}

    def __str__(self) -> str:
        would = "would " if self.dry_run else ""
        done = [f"version {self.version}: the floor {would}rise{'' if would else 's'} from "]
        if self.floor_ts == self.floor_before:
            done = [f"version {self.version}: the floor stays at {self.floor_ts} ms"]
        else:
            done[0] += f"{self.floor_before} to {self.floor_ts} ms, which hides " + (
                "the rows of all users below it"
                if self.rows_hidden is None
                else f"{self.rows_hidden} rows in {self.segments_hidden} files"
            )
        removed = "to be removed" if self.dry_run else "removed"
        done.append(
            f"{removed}: {len(self.prefixes_removed)} windows, {self.files_removed} files, "
            f"{self.bytes_removed} bytes; {self.prefixes_waiting} windows wait for their grace"
        )
        return "\n".join([*done, self.promise])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOptions:
    """What a caller may decide."""

    now_ms: int | None = None
    """Trusted as it is; None: the store's clock, unless it contradicts this machine's."""
    dry_run: bool = False
    grace_ms: int = expiry.GRACE_MS
    force: bool = False
    max_share: float = 1.0


def expire(chain: Chain, head: Snapshot, options: ExpireOptions) -> tuple[ExpireReport, Snapshot]:
    """Raise the floor to where the TTL wants it, and remove prefixes whose grace is over."""
    while True:
        try:
            return _expire(chain, chain.refresh(head), options)
        except _DecideAnew:
            continue


class _DecideAnew(StrandlineError):
    """What the floor was decided from has changed: nothing was committed."""


@dataclass(frozen=True, slots=True)
class _Raise(MetadataChange):
    """A floor is never moved on: on another head it may be another one."""

    def rewrite(self, head: Manifest) -> MetadataChange:
        raise _DecideAnew(f"version {head.version} asks for another floor")


def _expire(chain: Chain, head: Snapshot, options: ExpireOptions) -> tuple[ExpireReport, Snapshot]:
    before, store_ms = head.manifest, chain.storage.clock_ms()
    now = store_ms if options.now_ms is None else options.now_ms
    floor = expiry.floor_for(before.config, now, before.floor_ts)
    allowed = _allowed_share(chain, options, store_ms)
    share = _check_plausible(chain, head, options, store_ms, floor)
    if floor > before.floor_ts and not options.dry_run:
        action = RaiseFloor(
            floor, grace.begins_ms(chain), options.grace_ms, before.config.ttl_ms, allowed
        )
        head = commit(chain, head, _Raise((action,)), operation="expire").snapshot
    removed, files, size, waiting = _remove_prefixes(chain, head, options)
    report = ExpireReport(
        dry_run=options.dry_run,
        floor_before=before.floor_ts,
        floor_ts=floor,
        version=head.manifest.version,
        segments_hidden=None if share is None else share.segments_hidden,
        rows_hidden=None if share is None else share.rows_hidden,
        bytes_hidden=None if share is None else share.bytes_hidden,
        prefixes_removed=tuple(removed),
        files_removed=files,
        bytes_removed=size,
        prefixes_waiting=waiting,
        ttl_ms=before.config.ttl_ms,
        window_ms=before.config.window_ms,
        grace_ms=options.grace_ms,
    )
    return report, head


def _check_plausible(
    chain: Chain, head: Snapshot, options: ExpireOptions, store_ms: int, floor: int
) -> expiry.Share | None:
    """Refuse to hide much of a table on the word of a clock that another one contradicts.

    Gives what will be hidden; None where it would take a look at all users and decides nothing.
    """
    allowed = _allowed_share(chain, options, store_ms)
    if not has_users(head.manifest):
        share = expiry.share_below(head.manifest, floor)
    elif floor == head.manifest.floor_ts:
        return expiry.Share(0, 0, 0, 0)
    elif allowed < 1 or options.dry_run:
        of_users = each_user(
            chain,
            head,
            lambda _, user: expiry.share_below(without_hidden(user.find_head().manifest), floor),
        )
        share = sum(of_users, start=expiry.Share(0, 0, 0, 0))
    else:
        return None
    if share.share > allowed:
        raise ImplausibleExpiry(round(share.share, 3), allowed, _skew(chain, store_ms))
    return share


def _allowed_share(chain: Chain, options: ExpireOptions, store_ms: int) -> float:
    allowed = 1.0 if options.force else options.max_share
    is_skewed = options.now_ms is None and _skew(chain, store_ms) > expiry.MOST_SKEW_MS
    return min(allowed, expiry.MOST_SHARE) if is_skewed and not options.force else allowed


def _skew(chain: Chain, store_ms: int) -> int:
    return abs(store_ms - chain.runtime.now_ms())


def _remove_prefixes(
    chain: Chain, head: Snapshot, options: ExpireOptions
) -> tuple[list[str], int, int, int]:
    if not head.manifest.floor_ts:
        return [], 0, 0, 0
    now = grace.now_ms(chain)
    due, version = expiry.removable_floor(head.manifest, now, options.grace_ms)
    if due and _is_younger(chain, version, now - options.grace_ms):
        due = 0
    names = list(chain.storage.folders(""))
    prefixes = expiry.expired_prefixes(names, due)
    waiting = len(expiry.expired_prefixes(names, head.manifest.floor_ts)) - len(prefixes)
    removed, files, size = [], 0, 0
    for window in prefixes:
        found = remove_prefix(chain.storage, window.prefix, dry_run=options.dry_run)
        removed.append(window.prefix)
        files += found.files
        size += found.bytes
    return removed, files, size, waiting


def _is_younger(chain: Chain, version: int, grace_began: int) -> bool:
    """Whether the store itself says that a floor was raised later than its manifest claims.

    A process that stalled between its look at the clock and its commit would shorten the grace.
    """
    try:
        return chain.storage.modified_ms(paths.manifest_path(version)) > grace_began
    except ObjectMissing:
        return False  # versions are removed much later than they are written
