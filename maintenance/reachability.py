"""What a table's kept versions need: one walk for all kinds of objects.

A kind that is not registered is never removed. Whoever adds one registers it here: a test compares
the list with everything that the library writes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from strandline.catalog import documents
from strandline.maintenance.grace import listed_versions
from strandline.tableformat.errors import CorruptTable, MissingFile
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.lifecycle import is_expired, is_hidden
from strandline.tableformat.manifest import KEYED, USER_SCOPED
from strandline.tableformat.segments import TOMBSTONES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.maintenance.grace import Settled
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import PageRef, SegmentEntry

T = TypeVar("T")
_NUMBER = r"(?P<n>0|[1-9][0-9]{0,18})-[0-9a-f]{16}"
_IN_WINDOW = rf"w[0-9]+-[0-9]+/shard-[0-9]+/(?:batch|compact|late)-{_NUMBER}"
REMEMBERED: Final = "_strandline/materializations/"
KINDS: Final[dict[str, re.Pattern[str]]] = {
    "manifest": re.compile(r"_strandline/manifests/[0-9]{20}\.json\.lz4"),
    "gc_marker": re.compile(r"_strandline/gc/[0-9]{20}"),
    "segment": re.compile(rf"{_IN_WINDOW}\.parquet"),
    "index": re.compile(rf"{_IN_WINDOW}\.icx"),
    "segment_page": re.compile(rf"_strandline/pages/{_NUMBER}\.parquet"),
    "document_page": re.compile(rf"_strandline/pages/{_NUMBER}\.json\.lz4"),
    "remembered_query": re.compile(rf"{REMEMBERED}.+"),
    "user_chain": re.compile(r"_strandline/users/.+"),
    "user_card": re.compile(r"_strandline/user_names/.+"),
    "probe": re.compile(r"_strandline/probe/.+"),
    "temporary": re.compile(r"(?:.*/)?\.tmp-[^/]*"),
}
"""By kind, how its paths look; `n` is the version that its writer had seen."""
REFERENCED: Final = frozenset({"segment", "index", "segment_page", "document_page"})
"""Kinds that a version keeps by referring to them. Vacuum removes these, and temporary files and
probes; the others have rules of their own."""


WALKED_FEATURES: Final[frozenset[str]] = frozenset({KEYED, TOMBSTONES})
"""Features whose tables are walked in full here. Others may refer to files from elsewhere, as the
chains of users do: what they need is not known, so nothing of them is removed."""


def can_walk(manifest: Manifest) -> bool:
    """Whether everything that the table needs is found from its own versions."""
    return {*manifest.reader_features, *manifest.writer_features} <= WALKED_FEATURES


def has_users(manifest: Manifest) -> bool:
    """Whether rows lie in chains of users, and nothing else of the table is unknown here."""
    features = {*manifest.reader_features, *manifest.writer_features}
    return USER_SCOPED in features and features <= WALKED_FEATURES | {USER_SCOPED}


@dataclass(frozen=True, slots=True)
class Name:
    """What an object's path says."""

    kind: str
    number: int | None


def name_of(path: str) -> Name | None:
    """The kind of an object; None: not ours, or not known here, and never to be removed."""
    for kind in ("temporary", *KINDS):
        match = KINDS[kind].fullmatch(path)
        if match is not None:
            number = match.groupdict().get("n")
            return Name(kind, None if number is None else int(number))
    return None


def reachable(chain: Chain, head: Snapshot, settled: Settled) -> tuple[set[str], Snapshot]:
    """Every object that a kept version needs. Anything that cannot be read ends it with an error.

    Kept is what the head keeps, and what was not given up yet when the grace of readers began;
    likewise, nobody needs what was hidden by then. The second value is the head that was used in
    the end: another process may give up versions meanwhile.
    """
    walk = _Walk(chain, head.manifest, settled)
    kept = head.manifest.lifecycle
    wanted = [
        version
        for version in listed_versions(chain)
        if version <= head.manifest.version and (kept.keeps(version) or settled.keeps(version))
    ]
    for version, found in chain.load_each(wanted):
        if found is None:
            head = chain.refresh(head)
            if head.manifest.lifecycle.keeps(version):
                raise CorruptTable(_missing(chain, [version]))
            continue
        walk.add(found.manifest, given_up=not head.manifest.lifecycle.keeps(version))
        walk.versions.add(version)
    kept = head.manifest.lifecycle
    oldest = max(1, kept.oldest_version, chain.largest_gc_marker())
    missing = {*range(oldest, head.manifest.version + 1), *kept.tagged} - walk.versions
    missing = {version for version in missing if version <= walk.head.version}
    if missing:
        raise CorruptTable(_missing(chain, sorted(missing)))
    return walk.found, head


def _missing(chain: Chain, versions: list[int]) -> str:
    return (
        f"versions {versions[:10]} of {chain.storage.url} should be kept and are missing. Nothing "
        "was removed."
    )


@dataclass(slots=True)
class _Walk:
    chain: Chain
    head: Manifest
    settled: Settled
    found: set[str] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    _windows: set[bytes] = field(default_factory=set)
    """Entries of windows that were looked at, as they stand: most are the same in each version."""

    def add(self, manifest: Manifest, *, given_up: bool) -> None:
        """All that one version needs; what earlier ones shared is not looked at again."""
        self.found.update(page.path for page in manifest.position_pages)
        self._segments(manifest.segments)
        changed = [entry for entry in manifest.windows if entry.to_json() not in self._windows]
        self._windows.update(entry.to_json() for entry in changed)
        refs = [p for entry in changed for p in entry.pages if self._is_new(p)]
        folded = [page for page in manifest.window_pages if self._is_new(page)]
        for page, windows in self._read(folded, documents.window_pages, may_be_gone=given_up):
            self.found.add(page.path)
            for entry in windows:
                if not is_expired(entry.window, self.settled.floor_ts):
                    refs += [p for p in entry.pages if self._is_new(p)]
        for ref, listed in self._read(refs, documents.segment_pages, may_be_gone=given_up):
            self.found.add(ref.path)
            self._segments(listed.entries(np.arange(listed.count)))

    def _read(
        self,
        refs: list[PageRef],
        read: Callable[[Any, Sequence[PageRef]], list[T]],
        *,
        may_be_gone: bool,
    ) -> Iterator[tuple[PageRef, T]]:
        """Pages with what they list.

        A run with a shorter grace may have removed pages of versions that were given up, and
        pages that list hidden rows only.
        """
        floor, trim = self.head.floor_ts, self.head.trim_seq
        rest = [ref for ref in refs if may_be_gone or is_hidden(ref, floor, trim)]
        needed = [] if may_be_gone else [r for r in refs if not is_hidden(r, floor, trim)]
        yield from zip(needed, read(self.chain.service, needed), strict=True)
        for ref in rest:
            with suppress(MissingFile):
                yield ref, read(self.chain.service, [ref])[0]

    def _is_new(self, page: PageRef) -> bool:
        hidden = is_hidden(page, self.settled.floor_ts, self.settled.trim_seq)
        return not hidden and page.path not in self.found

    def _segments(self, entries: Iterable[SegmentEntry]) -> None:
        for entry in entries:
            if not is_hidden(entry, self.settled.floor_ts, self.settled.trim_seq):
                self.found.add(entry.path)
                if entry.index is not None:
                    self.found.add(path_of(entry.path))
