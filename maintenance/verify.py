"""Whether every file of a version is there and is what the version says it is.

A scan checks what it reads. This walks everything that a version refers to, without stopping at
the first fault, so that an operator learns the whole extent of the damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from strandline.catalog import documents
from strandline.maintenance.verify_index import check_index
from strandline.maintenance.verify_pages import contradictions, entries_with_stats
from strandline.maintenance.verify_rows import check_index_rows, check_stats
from strandline.readers.segment_reader import read_segment
from strandline.tableformat import codec
from strandline.tableformat.errors import CorruptTable, MissingFile, ObjectMissing, StrandlineError
from strandline.tableformat.hidden_columns import DELETED_ID, SEQ_ID, TS_ID
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.lifecycle import is_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from strandline.catalog.manifest_service import ManifestService
    from strandline.tableformat.manifest import DocumentRef, Manifest
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.segments import PageRef, SegmentEntry, Summary
    from strandline.tableformat.storage import Storage

_Page = TypeVar("_Page")
_Ref = TypeVar("_Ref", "PageRef", "DocumentRef")
_TAIL_BYTES: Final = 8
"""Behind a Parquet footer: its length in four bytes, then the magic."""
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault."""

    path: str | None
    """The file; None for a fault between files."""
    message: str

    def of(self, user: str) -> Problem:
        """The same, saying in whose rows."""
        return Problem(self.path, f"user {user!r}: {self.message}")

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was looked at, and everything that was wrong with it."""

    url: str
    version: int
    deep: bool
    segments: int
    pages: int
    rows: int
    bytes: int
    problems: tuple[Problem, ...]
    repaired: tuple[str, ...] = ()
    """Segments whose rows and indexes are in new files now."""

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems

    def __add__(self, other: VerifyReport) -> VerifyReport:
        """Both together, for a table that consists of several chains."""
        return replace(
            self,
            segments=self.segments + other.segments,
            pages=self.pages + other.pages,
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            problems=self.problems + other.problems,
            repaired=self.repaired + other.repaired,
        )

    def __str__(self) -> str:
        what = f"{self.rows} rows in {self.segments} data files ({self.bytes} bytes)"
        lines = [f"version {self.version} of {self.url}: {what}, {self.pages} pages"]
        lines += [f"  {problem}" for problem in self.problems[:_SHOWN]]
        if len(self.problems) > _SHOWN:
            lines.append(f"  … and {len(self.problems) - _SHOWN} more")
        if self.repaired:
            lines.append(f"repaired: {len(self.repaired)} segments, such as {self.repaired[0]}")
        checked = "all data read and checked" if self.deep else "names, sizes and footers checked"
        lines.append(f"{len(self.problems)} problems; {checked}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        names = ("url", "version", "deep", "segments", "pages", "rows", "bytes", "ok")
        out: dict[str, Any] = {name: getattr(self, name) for name in names}
        out["repaired"] = list(self.repaired)
        out["problems"] = [{"path": p.path, "message": p.message} for p in self.problems]
        return out


def verify(
    service: ManifestService,
    manifest: Manifest,
    *,
    deep: bool = False,
    look: Callable[[Sequence[SegmentEntry]], Iterable[Problem]] | None = None,
) -> VerifyReport:
    """Check everything that a version refers to; `deep` decodes all rows as well.

    `look`: who looks at the data files, if not this process.
    """
    walk = _Walk(service, manifest)
    walk.positions()
    entries = walk.entries()
    if look is None:
        walk.segments(entries, deep=deep)
    else:
        walk.problems.extend(look(entries))
    walk.numbering(entries)
    return VerifyReport(
        url=service.storage.url,
        version=manifest.version,
        deep=deep,
        segments=len(entries),
        pages=walk.pages,
        rows=sum(entry.row_count for entry in entries),
        bytes=sum(entry.size_bytes for entry in entries),
        problems=tuple(walk.problems),
    )


def problems_in(
    service: ManifestService, manifest: Manifest, entries: Iterable[SegmentEntry], *, deep: bool
) -> list[Problem]:
    """What is wrong with some data files of a version."""
    walk = _Walk(service, manifest)
    walk.segments(entries, deep=deep)
    return walk.problems


def check_segment(storage: Storage, entry: SegmentEntry) -> None:
    """Refuse a data file that is missing, has another size, or another footer than its entry."""
    length = entry.footer_bytes + _TAIL_BYTES
    try:
        size = storage.size(entry.path)
        if size != entry.size_bytes:
            raise CorruptTable(
                f"{entry.path} has {size} bytes, and the manifest says {entry.size_bytes}"
            )
        (tail,) = storage.read_ranges([(entry.path, size - length, length)])
    except ObjectMissing:
        raise MissingFile(f"{entry.path} is listed by the table and is not in the store") from None
    footer, ending = tail[:-_TAIL_BYTES], tail[-_TAIL_BYTES:]
    if (
        codec.checksum(footer) != entry.footer_xxh64
        or ending != entry.footer_bytes.to_bytes(4, "little") + b"PAR1"
    ):
        raise CorruptTable(
            f"the footer of {entry.path} does not have the checksum that the manifest gives"
        )


@dataclass(slots=True)
class _Walk:
    service: ManifestService
    manifest: Manifest
    problems: list[Problem] = field(default_factory=list)
    pages: int = 0
    complete: bool = True
    """Whether every segment is known; False once a page that lists some could not be read."""

    @property
    def storage(self) -> Storage:
        return self.service.storage

    def _report(self, path: str | None, error: object) -> None:
        self.problems.append(Problem(path, str(error)))

    def segments(self, entries: Iterable[SegmentEntry], *, deep: bool) -> None:
        """Data files, one after the other."""
        for entry in entries:
            self.segment(entry, deep=deep)

    # --- pages ---

    def _page(
        self, ref: _Ref, load: Callable[[ManifestService, Sequence[_Ref]], list[_Page]]
    ) -> _Page | None:
        """A page's content, once its bytes in the store have been compared with the reference.

        Decoding may then use the cache of pages: what it holds has the same checksum.
        """
        self.pages += 1
        try:
            size = self.storage.size(ref.path)
            if size != ref.object_bytes:
                raise CorruptTable(f"it has {size} bytes and should have {ref.object_bytes}")
            if codec.checksum(self.storage.read(ref.path)) != ref.xxh64:
                raise CorruptTable("it does not have the checksum of its reference")
            return load(self.service, [ref])[0]
        except ObjectMissing:
            self._report(ref.path, "the page is missing")
        except StrandlineError as error:
            self._report(ref.path, error)
        return None

    def positions(self) -> None:
        """Pages of writer positions."""
        for ref in self.manifest.position_pages:
            self._page(ref, documents.position_pages)

    def entries(self) -> list[SegmentEntry]:
        """Every segment that can be found: those of the manifest, and those of its pages.

        Pages and files of rows that are all hidden may be gone, and are not looked at.
        """
        windows = list(self.manifest.windows)
        for ref in filter(self._is_visible, self.manifest.window_pages):
            folded = self._page(ref, documents.window_pages)
            self.complete &= folded is not None
            if folded is not None:
                self._compare(ref, [page for entry in folded for page in entry.pages])
                windows.extend(folded)
        found = list(self.manifest.segments)
        pages = (page for entry in windows for page in entry.pages)
        for ref in filter(self._is_visible, pages):
            listed = self._page(ref, partial(_segments_of, self.manifest.schema))
            self.complete &= listed is not None
            if listed is not None:
                self._compare(ref, listed)
                found.extend(listed)
        return list(filter(self._is_visible, found))

    def _is_visible(self, part: Summary) -> bool:
        return not is_hidden(part, self.manifest.floor_ts, self.manifest.trim_seq)

    def _compare(self, ref: PageRef, parts: Sequence[Summary]) -> None:
        """Whether a reference sums up what its page lists: planning trusts it."""
        try:
            for contradiction in contradictions(ref, parts, self.manifest.schema):
                self._report(ref.path, contradiction)
        except StrandlineError as error:  # stats that are none
            self._report(ref.path, error)

    # --- segments ---

    def segment(self, entry: SegmentEntry, *, deep: bool) -> None:
        """One data file."""
        rows = None
        try:
            check_segment(self.storage, entry)
            if deep:
                rows = self._rows(entry)
        except StrandlineError as error:
            self._report(entry.path, error)
        if entry.index is not None:
            try:
                check_index(self.storage, self.manifest.schema, entry, entry.index, deep=deep)
                if rows is not None:
                    check_index_rows(self.storage, self.manifest.schema, entry, entry.index, rows)
            except StrandlineError as error:
                self._report(path_of(entry.path), error)

    def _rows(self, entry: SegmentEntry) -> pa.Table:
        """Read every column; the reader checks footer, row count, page checksums and types."""
        ids = {column.id for column in self.manifest.schema.columns} | {SEQ_ID, TS_ID, DELETED_ID}
        rows = read_segment(self.storage, self.manifest, entry, ids)
        for name, low, high in (
            ("_seq", entry.min_seq, entry.max_seq),
            ("_ts", entry.min_ts, entry.max_ts),
        ):
            values = np.asarray(rows.column(name).to_numpy())
            if (values.min(), values.max()) != (low, high):
                raise CorruptTable(
                    f"{name} runs from {values.min()} to {values.max()}; the entry says {low} to "
                    f"{high}"
                )
            if name == "_seq" and len(np.unique(values)) != len(values):
                raise CorruptTable("a sequence number occurs twice")
        check_stats(self.manifest.schema, entry, rows)
        return rows

    # --- between files ---

    def _is_dense(self, entries: Iterable[SegmentEntry]) -> bool:
        """Whether every number must be in a file: nothing was deleted, expired or trimmed."""
        manifest = self.manifest
        if manifest.floor_ts or manifest.trim_seq:
            return False
        held, deleted = sum(entry.row_count for entry in entries), manifest.deleted_rows
        if held + deleted != manifest.next_seq:
            self._report(
                None,
                f"{held} rows and {deleted} deleted ones do not make up the {manifest.next_seq} "
                "sequence numbers that were given",
            )
        return deleted == 0

    def numbering(self, entries: Iterable[SegmentEntry]) -> None:
        """Whether sequence numbers are dense and nobody's overlap.

        Files of one batch that was split over windows interleave, so their ranges may overlap;
        within such a group it is the count that must fit.
        """
        known = list(entries)
        seen: set[str] = set()
        for entry in known:
            if entry.path in seen:
                self._report(entry.path, "it is listed twice")
            seen.add(entry.path)
        if not self.complete:
            self._report(None, "sequence numbers were not compared: a page could not be read")
            return
        expected = 0 if self._is_dense(known) else None
        for group in _groups(known):
            low, high = group[0].min_seq, max(entry.max_seq for entry in group)
            rows = sum(entry.row_count for entry in group)
            if expected is not None and low != expected:
                self._report(None, f"sequence numbers {expected} to {low - 1} are in no file")
            if rows > high - low + 1:
                self._report(group[0].path, f"{rows} rows share the numbers {low} to {high}")
            elif rows < high - low + 1 and expected is not None:
                self._report(group[0].path, f"only {rows} rows for the numbers {low} to {high}")
            if expected is not None:
                expected = high + 1
        if expected is not None and expected != self.manifest.next_seq:
            last = self.manifest.next_seq - 1
            self._report(None, f"sequence numbers {expected} to {last} are in no file")


def _groups(entries: Iterable[SegmentEntry]) -> Iterable[list[SegmentEntry]]:
    """Segments in the order of their numbers, together where their ranges overlap."""
    group: list[SegmentEntry] = []
    reach = -1
    for entry in sorted(entries, key=lambda entry: (entry.min_seq, entry.max_seq)):
        if group and entry.min_seq > reach:
            yield group
            group = []
        group.append(entry)
        reach = max(reach, entry.max_seq)
    if group:
        yield group


def _segments_of(
    schema: Schema, service: ManifestService, refs: Sequence[PageRef]
) -> list[list[SegmentEntry]]:
    pages = documents.segment_pages(service, refs)
    return [entries_with_stats(page, schema) for page in pages]
