"""What readers that began before may still need: the state of a table when their grace began.

A reader keeps the version, the floor and the trim point that it was opened with. So an object is
let go only if nobody needed it any more a grace ago; how old it is itself says nothing of that.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.tableformat import paths
from strandline.tableformat.errors import ObjectMissing
from strandline.tableformat.expiry import MOST_SKEW_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.tableformat.lifecycle import Lifecycle
    from strandline.tableformat.manifest import Manifest

_ASKED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Settled:
    """The newest version when the grace began, what it hid, and which versions it kept."""

    version: int
    """Versions below had been replaced by then; 0: none that is known."""
    floor_ts: int = 0
    trim_seq: int = 0
    lifecycle: Lifecycle | None = None
    """None: not known, so every version counts as kept."""

    def keeps(self, version: int) -> bool:
        """Whether a version could be opened since: it was not given up yet, or it came later.

        What is given up once is never kept again, so one look at the beginning is enough.
        """
        return version >= self.version or self.lifecycle is None or self.lifecycle.keeps(version)


def begins_ms(chain: Chain) -> int:
    """The time from which a grace is counted: the later one of two clocks that contradict."""
    return max(_clocks(chain))


def now_ms(chain: Chain) -> int:
    """The time for removals: the earlier one of two clocks that contradict.

    What is removed cannot be brought back, so one clock that jumped must not be enough for it.
    """
    return min(_clocks(chain))


def _clocks(chain: Chain) -> tuple[int, int]:
    """The store's clock, and this machine's where the two cannot both be right."""
    store, local = chain.storage.clock_ms(), chain.runtime.now_ms()
    return (store, local) if abs(store - local) > MOST_SKEW_MS else (store, store)


def older_ones(chain: Chain, paths: Sequence[str], moment: int) -> list[str]:
    """Those that were written before a time, by the store's own dates; not what is gone."""
    dates: list[int | None] = []
    for first in range(0, len(paths), _ASKED_AT_ONCE):
        dates += chain.storage.written_ms(paths[first : first + _ASKED_AT_ONCE])
    return [p for p, date in zip(paths, dates, strict=True) if date is not None and date <= moment]


def is_older(chain: Chain, path: str, moment: int) -> bool:
    """The same of one."""
    return bool(older_ones(chain, [path], moment))


def listed_versions(chain: Chain) -> list[int]:
    """Every version that has a manifest in the store, oldest first."""
    names = chain.storage.list(chain.manifests_folder)
    return sorted(v for v in map(paths.manifest_version, names) if v is not None)


def settled(chain: Chain, head: Snapshot, moment: int) -> Settled:
    """What had been decided at a time, by the commits' times and by the store's dates of them.

    Either alone may lie: a writer's clock may be behind, and so may the store's have been.
    """
    version = _by_date(chain, _by_commit_time(chain, head, moment), moment)
    if not version:
        return Settled(0)
    if version == head.manifest.version:
        return _state_of(head.manifest)
    try:
        then = chain.load(version).manifest
    except ObjectMissing:
        return Settled(version)  # removed by a run with a shorter grace
    return _state_of(then)


def _state_of(manifest: Manifest) -> Settled:
    return Settled(manifest.version, manifest.floor_ts, manifest.trim_seq, manifest.lifecycle)


def _by_date(chain: Chain, newest: int, moment: int) -> int:
    """The newest version up to one that the store itself had at a time; 0 if there is none."""
    if not newest or is_older(chain, chain.manifest_path(newest), moment):
        return newest
    versions = [v for v in listed_versions(chain) if v < newest]
    place = bisect_right(
        versions, 0, key=lambda v: int(not is_older(chain, chain.manifest_path(v), moment))
    )
    return versions[place - 1] if place else 0


def _by_commit_time(chain: Chain, head: Snapshot, moment: int) -> int:
    """The version that was the newest at a time; 0 if the store keeps none that old."""
    for record in head.manifest.history:
        if record.committed_at <= moment:
            return record.version
    oldest_told = head.manifest.history[-1].version
    versions = [v for v in listed_versions(chain) if v < oldest_told]

    def is_later(version: int) -> int:
        try:
            return int(chain.load(version).manifest.commit.committed_at > moment)
        except ObjectMissing:
            return 0  # versions are removed from the oldest on

    place = bisect_right(versions, 0, key=is_later)
    return versions[place - 1] if place else 0
