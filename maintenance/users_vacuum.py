"""Vacuum of tables with `scope="user"`: all users' files lie in the same folders.

An object may go only if no user needs it and none can come to need it. So the table's files floor
is raised first, then users are listed, then each user's own floor is raised in its own chain and
what the user needs is read behind that. A user that appears later looks at the table's floor
after it could be listed. Files are held as numbers of eight bytes while users are read one by one.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from strandline.catalog.commit import MetadataChange, commit
from strandline.catalog.user_chain import each_user
from strandline.maintenance.grace import Settled, now_ms, older_ones, settled
from strandline.maintenance.reachability import (
    REFERENCED,
    has_users,
    name_of,
    reachable,
)
from strandline.maintenance.removing import BATCH, remove_verified
from strandline.maintenance.vacuum import (
    VacuumReport,
    VersionsReport,
    expire_versions,
    remove_versions,
    vacuum,
)
from strandline.tableformat.retention import RaiseFilesFloor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.catalog.user_chain import UserChain


def vacuum_all(
    chain: Chain, head: Snapshot, *, grace_ms: int, dry_run: bool
) -> tuple[VacuumReport, Snapshot]:
    """Remove what nobody needs, in a table of any scope."""
    if not has_users(head.manifest):
        return vacuum(chain, head, grace_ms=grace_ms, dry_run=dry_run)
    return _Vacuum(chain, chain.refresh(head), grace_ms, dry_run=dry_run).run()


def expire_all_versions(
    chain: Chain,
    head: Snapshot,
    *,
    older_than_ms: int | None,
    retain_last: int,
    grace_ms: int,
    dry_run: bool,
) -> tuple[VersionsReport, Snapshot]:
    """Give up versions of the table and of each user; the report counts all manifests."""

    def one(chain: Chain, head: Snapshot) -> tuple[VersionsReport, Snapshot]:
        return expire_versions(
            chain,
            head,
            older_than_ms=older_than_ms,
            retain_last=retain_last,
            grace_ms=grace_ms,
            dry_run=dry_run,
        )

    def of_user(_: str, user: UserChain) -> VersionsReport | None:
        newest = user.find_head()
        return one(user, newest)[0] if newest.manifest.version else None

    report, head = one(chain, head)
    if not has_users(head.manifest):
        return report, head
    manifests, tagged = report.manifests_removed, set(report.tagged)
    committed_at = report.committed_at
    for of in each_user(chain, head, of_user):
        if of is not None:
            manifests += of.manifests_removed
            tagged.update(of.tagged)
            committed_at = max(committed_at, of.committed_at)
    of_all = replace(
        report,
        manifests_removed=manifests,
        tagged=tuple(sorted(tagged)),
        committed_at=committed_at,
    )
    return of_all, head


@dataclass(slots=True)
class _Files:
    """Objects by the random number in their names: two of one number are kept or go together."""

    ids: np.ndarray[tuple[int], np.dtype[np.uint64]]
    needed: np.ndarray[tuple[int], np.dtype[np.bool_]]

    def keep(self, paths: Iterable[str]) -> None:
        wanted = np.fromiter(map(_id_of, paths), dtype=np.uint64)
        places = np.searchsorted(self.ids, wanted)
        inside = places < len(self.ids)
        places, wanted = places[inside], wanted[inside]
        self.needed[places[self.ids[places] == wanted]] = True

    def is_garbage(self, path: str) -> bool:
        wanted = np.uint64(_id_of(path))
        place = int(np.searchsorted(self.ids, wanted))
        return place < len(self.ids) and self.ids[place] == wanted and not self.needed[place]


def _id_of(path: str) -> int:
    """The sixteen hex digits behind the last dash."""
    begin = path.rindex("-") + 1
    return int(path[begin : begin + 16], 16)


class _Vacuum:
    def __init__(self, chain: Chain, head: Snapshot, grace_ms: int, *, dry_run: bool) -> None:
        self._chain, self._head, self._dry_run = chain, head, dry_run
        self._moment = now_ms(chain) - grace_ms
        self._newest = 0
        """The table's version when objects were listed: later files are none of our business."""

    def run(self) -> tuple[VacuumReport, Snapshot]:
        chain = self._chain
        self._newest = self._head.manifest.version
        files, loose, unknown = self._list()
        self._head = chain.refresh(self._head)
        self._table = settled(chain, self._head, self._moment)
        _, self._head = reachable(chain, self._head, self._table)
        for paths in each_user(chain, self._head, self._needed):
            files.keep(paths)
        garbage, sizes, young = self._garbage(files)
        floor = max((number for _, number in garbage), default=-1) + 1
        if garbage and not self._dry_run:
            self._raise_floors(floor, files)
        old = [path for path, _ in garbage if files.is_garbage(path)]
        waste = older_ones(chain, loose, self._moment)
        removed = [*waste, *old]
        if not self._dry_run:
            for begin in range(0, len(removed), BATCH):
                batch = removed[begin : begin + BATCH]
                remove_verified(chain.storage, batch, "no kept version of any user needs it")
        manifests = self._remove_versions()
        report = VacuumReport(
            dry_run=self._dry_run,
            version=self._head.manifest.version,
            files_floor=max(floor, self._head.manifest.files_floor),
            removed=(*removed, *manifests),
            bytes_removed=sum(sizes.get(path, 0) for path in old),
            by_kind=_kinds((*removed, *manifests)),
            too_young=young + len(loose) - len(waste),
            unknown=unknown,
            uploads_ended=0 if self._dry_run else chain.storage.abort_uploads(self._moment),
        )
        return report, self._head

    # --- what there is ---

    def _list(self) -> tuple[_Files, list[str], int]:
        """Everything that may be garbage, before anybody is asked what is needed."""
        ids, loose, unknown = array("Q"), [], 0
        for path, _ in self._chain.storage.walk(""):
            name = name_of(path)
            if name is None:
                unknown += 1
            elif name.kind in ("temporary", "probe"):
                loose.append(path)
            elif self._is_referable(path):
                ids.append(_id_of(path))
        found = np.unique(np.frombuffer(ids, dtype=np.uint64))
        return _Files(found, np.zeros(len(found), dtype=np.bool_)), loose, unknown

    def _is_referable(self, path: str) -> bool:
        name = name_of(path)
        return (
            name is not None
            and name.kind in REFERENCED
            and name.number is not None
            and name.number <= self._newest
        )

    def _garbage(self, files: _Files) -> tuple[list[tuple[str, int]], dict[str, int], int]:
        """What was listed and nobody needs, with the version its writer had seen; and the young."""
        sizes = {
            path: size
            for path, size in self._chain.storage.walk("")
            if self._is_referable(path) and files.is_garbage(path)
        }
        found = [
            (path, _number_of(path)) for path in older_ones(self._chain, [*sizes], self._moment)
        ]
        return found, sizes, len(sizes) - len(found)

    # --- what is needed ---

    def _needed(self, _: str, chain: UserChain) -> set[str]:
        head = chain.find_head()
        return self._needed_from(chain, head) if head.manifest.version else set()

    def _needed_from(self, chain: UserChain, head: Snapshot) -> set[str]:
        return reachable(chain, head, self._settled(chain, head))[0]

    def _settled(self, chain: UserChain, head: Snapshot) -> Settled:
        """A user's own past; what its rows are hidden by is the table's."""
        own = settled(chain, head, self._moment)
        return replace(own, floor_ts=self._table.floor_ts)

    def _raise_floors(self, floor: int, files: _Files) -> None:
        """From here on nobody commits a file that was begun before `floor`."""
        change = MetadataChange((RaiseFilesFloor(floor),))
        if self._head.manifest.files_floor < floor:
            self._head = commit(self._chain, self._head, change, operation="vacuum").snapshot

        def one(_: str, chain: UserChain) -> set[str]:
            head = chain.find_head()
            if not head.manifest.version or head.manifest.files_floor < floor:
                head = commit(chain, head, change, operation="vacuum").snapshot
            return self._needed_from(chain, head)

        for paths in each_user(self._chain, self._head, one):
            files.keep(paths)

    def _remove_versions(self) -> list[str]:
        def one(_: str, chain: UserChain) -> list[str]:
            head = chain.find_head()
            if not head.manifest.lifecycle.oldest_version:
                return []
            return remove_versions(chain, head, self._settled(chain, head), dry_run=self._dry_run)

        removed = remove_versions(self._chain, self._head, self._table, dry_run=self._dry_run)
        for paths in each_user(self._chain, self._head, one):
            removed += paths
        return removed


def _number_of(path: str) -> int:
    name = name_of(path)
    assert name is not None
    assert name.number is not None
    return name.number


def _kinds(paths: Iterable[str]) -> dict[str, int]:
    return dict(Counter(name.kind for path in paths if (name := name_of(path))))
