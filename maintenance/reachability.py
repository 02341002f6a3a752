"""What a table's kept versions need: one walk for all kinds of objects.

A kind that is not registered is never removed. Whoever adds one registers it here: a test compares
the list with everything that the library writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from strandline.catalog import documents
from strandline.tableformat import paths
from strandline.tableformat.errors import CorruptTable, ObjectMissing
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.lifecycle import is_expired, is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.catalog.chain import Chain
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import PageRef, SegmentEntry

_NUMBER = r"(?P<n>0|[1-9][0-9]{0,18})-[0-9a-f]{16}"
_IN_WINDOW = rf"w[0-9]+-[0-9]+/shard-[0-9]+/(?:batch|compact|late)-{_NUMBER}"
KINDS: Final[dict[str, re.Pattern[str]]] = {
    "manifest": re.compile(r"_strandline/manifests/[0-9]{20}\.json\.lz4"),
    "gc_marker": re.compile(r"_strandline/gc/[0-9]{20}"),
    "segment": re.compile(rf"{_IN_WINDOW}\.parquet"),
    "index": re.compile(rf"{_IN_WINDOW}\.icx"),
    "segment_page": re.compile(rf"_strandline/pages/{_NUMBER}\.parquet"),
    "document_page": re.compile(rf"_strandline/pages/{_NUMBER}\.json\.lz4"),
    "probe": re.compile(r"_strandline/probe/.+"),
    "temporary": re.compile(r"(?:.*/)?\.tmp-[^/]*"),
}
"""By kind, how its paths look; `n` is the version that its writer had seen."""
REFERENCED: Final = frozenset({"segment", "index", "segment_page", "document_page"})
"""Kinds that a version keeps by referring to them."""


WALKED_FEATURES: Final[frozenset[str]] = frozenset({"primary_key"})
"""Features whose tables are walked in full here. Others may refer to files from elsewhere, as the
chains of users do: what they need is not known, so nothing of them is removed."""


def can_walk(manifest: Manifest) -> bool:
    """Whether everything that the table needs is found from its own versions."""
    return {*manifest.reader_features, *manifest.writer_features} <= WALKED_FEATURES


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


def listed_versions(chain: Chain) -> list[int]:
    """Every version that has a manifest in the store, oldest first."""
    names = chain.storage.list(paths.MANIFESTS)
    return sorted(v for v in map(paths.manifest_version, names) if v is not None)


def reachable(chain: Chain, head: Manifest) -> set[str]:
    """Every object that a kept version needs. Anything that cannot be read ends it with an error.

    What the head's floor and trim point hide is needed by nobody, and may be gone.
    """
    kept = [v for v in listed_versions(chain) if head.lifecycle.keeps(v)]
    oldest = max(1, head.lifecycle.oldest_version, chain.largest_gc_marker())
    missing = {*range(oldest, head.version + 1), *head.lifecycle.tagged} - set(kept)
    if missing:
        raise CorruptTable(
            f"versions {sorted(missing)[:10]} of {chain.storage.url} should be kept and "
            "are missing. Nothing was removed."
        )
    walk = _Walk(chain, head)
    for version in kept:
        if version <= head.version:
            try:
                manifest = head if version == head.version else chain.load(version).manifest
            except ObjectMissing:
                raise CorruptTable(
                    f"version {version} of {chain.storage.url} was listed and is gone. Nothing was "
                    "removed. Run it again."
                ) from None
            walk.add(manifest)
    return walk.found


@dataclass(slots=True)
class _Walk:
    chain: Chain
    head: Manifest
    found: set[str] = field(default_factory=set)

    def add(self, manifest: Manifest) -> None:
        """All that one version needs; what earlier ones shared is not looked at again."""
        self.found.update(page.path for page in manifest.position_pages)
        self._segments(manifest.segments)
        refs = [p for entry in manifest.windows for p in entry.pages if self._is_new(p)]
        folded = [page for page in manifest.window_pages if self._is_new(page)]
        for page, windows in zip(
            folded, documents.window_pages(self.chain.service, folded), strict=True
        ):
            self.found.add(page.path)
            for entry in windows:
                if not is_expired(entry.window, self.head.floor_ts):
                    refs += [p for p in entry.pages if self._is_new(p)]
        for ref, listed in zip(
            refs, documents.segment_pages(self.chain.service, refs), strict=True
        ):
            self.found.add(ref.path)
            self._segments(listed.entries(np.arange(listed.count)))

    def _is_new(self, page: PageRef) -> bool:
        hidden = is_hidden(page, self.head.floor_ts, self.head.trim_seq)
        return not hidden and page.path not in self.found

    def _segments(self, entries: Iterable[SegmentEntry]) -> None:
        for entry in entries:
            if not is_hidden(entry, self.head.floor_ts, self.head.trim_seq):
                self.found.add(entry.path)
                if entry.index is not None:
                    self.found.add(path_of(entry.path))
