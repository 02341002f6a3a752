"""Compaction: runs of small segments become large ones, each run in a commit of its own.

Appends and other compactors go on meanwhile. A run that another has replaced first is thrown
away; what is done stays done, so that a compaction that was broken off simply runs again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from strandline.catalog.commit import commit
from strandline.catalog.locating import Replacement, missing_from
from strandline.catalog.replacement import ReplacementChange
from strandline.catalog.tidy import tidy
from strandline.readers.planner import plan_scan
from strandline.tableformat.arguments import check_names
from strandline.tableformat.compaction import Policy, Run, plan_runs
from strandline.tableformat.errors import (
    CommitConflict,
    CommitTimeout,
    CorruptTable,
    InvalidInput,
    MissingFile,
    StrandlineError,
)
from strandline.tableformat.segments import TOMBSTONES
from strandline.writers.forgetting import Elsewhere
from strandline.writers.rewriting import Instructions, NoPace, forgets_some, rewrite
from strandline.writers.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.writers.committing import Place
    from strandline.writers.rewriting import Rewritten

log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did."""

    url: str
    version: int
    runs: int = 0
    """Runs that were committed."""
    lost_runs: int = 0
    """Runs that somebody else had changed first; their output was thrown away."""
    segments_before: int = 0
    """Segments that went."""
    segments_after: int = 0
    """Segments that came."""
    rows: int = 0
    rows_dropped: int = 0
    """Rows of keyed tables that newer ones have replaced."""
    bytes_before: int = 0
    bytes_after: int = 0
    dry_run: bool = False

    def __str__(self) -> str:
        what = "would become fewer" if self.dry_run else f"became {self.segments_after}"
        lost = f"; {self.lost_runs} runs were changed by others" if self.lost_runs else ""
        return (
            f"{self.url}: {self.segments_before} segments with {self.rows} rows {what}, in "
            f"{self.runs} runs{lost}"
        )

    def __add__(self, other: CompactReport) -> CompactReport:
        """Both together, for what consists of several tables."""
        counts = ("runs", "lost_runs", "segments_before", "segments_after", "rows", "rows_dropped")
        sizes = ("bytes_before", "bytes_after")
        return replace(self, **{n: getattr(self, n) + getattr(other, n) for n in (*counts, *sizes)})

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """How to compact."""

    policy: Policy = field(default_factory=Policy)
    sort_by: Sequence[str] | None = None
    """Columns to sort rows by; None: as the table says."""
    bytes_per_s: int | None = None
    """Bytes to read and write in a second, at most; None: as fast as can be."""
    dry_run: bool = False
    inline_only: bool = False
    """Look only at what the manifest itself lists: the newest segments, without a request."""
    progress: Callable[[int, int], None] | None = None
    """Told of runs done, and of all runs."""

    def __post_init__(self) -> None:
        rate = self.bytes_per_s
        if rate is not None and (type(rate) is not int or rate < 1):
            raise InvalidInput(f"bytes_per_s must be an integer from 1 on, not {rate!r}")


def compact(place: Place, options: CompactOptions | None = None) -> CompactReport:
    """Put small segments together. Every row keeps its number, its time and its place."""
    return _Compaction(place, options or CompactOptions()).run()


def compact_newest(place: Place, least: int) -> CompactReport | None:
    """Compact what the manifest itself lists, if one run of it has so many segments."""
    policy = Policy(min_segments=least)
    manifest = place.head.manifest
    if not plan_runs(
        manifest.segments, policy, floor_ts=manifest.floor_ts, trim_seq=manifest.trim_seq
    ):
        place.see(tidy(place.chain, place.head))
        return None
    return compact(place, CompactOptions(policy=policy, inline_only=True))


class _Compaction:
    def __init__(self, place: Place, options: CompactOptions) -> None:
        self._place, self._options = place, options
        self._chain = place.chain
        rate = options.bytes_per_s
        self._pace = NoPace() if rate is None else Throttle(rate, self._chain.runtime)
        self._done: list[tuple[Run, Rewritten]] = []
        self._lost = 0

    def run(self) -> CompactReport:
        manifest = self._refresh()
        sort_columns(manifest, self._options.sort_by)
        runs = self._plan(manifest)
        if self._options.dry_run:
            return CompactReport(
                self._chain.storage.url,
                manifest.version,
                runs=len(runs),
                segments_before=sum(len(run.segments) for run in runs),
                rows=sum(run.rows for run in runs),
                bytes_before=sum(run.size_bytes for run in runs),
                dry_run=True,
            )
        unreadable: StrandlineError | None = None
        for number, run in enumerate(runs):
            try:
                self._one(run)
            except (CorruptTable, MissingFile) as error:
                # The others are no worse for it; what is damaged is told in the end.
                unreadable = unreadable or error
            if self._options.progress is not None:
                self._options.progress(number + 1, len(runs))
        if not self._options.inline_only:
            self._forget_deletes({entry.path for run in runs for entry in run.segments})
        if self._done:
            self._place.see(tidy(self._chain, self._place.head))
        if unreadable is not None:
            raise unreadable
        return self._report()

    def _forget_deletes(self, seen: set[str]) -> None:
        """Tombstones without neighbours to go with go by themselves, once they hide no row."""
        manifest = self._refresh()
        if TOMBSTONES not in manifest.reader_features:
            return
        listed = plan_scan(self._chain.service, manifest, None, indexes=False).segments
        for entry in listed:
            if not entry.tombstones or entry.path in seen:
                continue
            elsewhere = Elsewhere(self._chain.service, manifest, [entry])
            if forgets_some(self._chain.storage, manifest, entry, elsewhere):
                self._one(Run(entry.window, entry.shard, (entry,)))

    def _refresh(self) -> Manifest:
        self._place.see(self._chain.refresh(self._place.head))
        return self._place.head.manifest

    def _plan(self, manifest: Manifest) -> list[Run]:
        entries: Sequence[SegmentEntry] = manifest.segments
        if not self._options.inline_only:
            entries = plan_scan(self._chain.service, manifest, None, indexes=False).segments
        runs = plan_runs(
            entries,
            self._options.policy,
            floor_ts=manifest.floor_ts,
            trim_seq=manifest.trim_seq,
        )
        # Two compactors that begin at the same end would work in vain, one of them each time.
        first = int(self._chain.runtime.fraction() * len(runs))
        return runs[first:] + runs[:first]

    def _one(self, run: Run) -> None:
        looks = not self._options.inline_only and bool(self._place.head.manifest.config.primary_key)
        for looks_elsewhere in (True, False) if looks else (False,):
            head = self._refresh()
            if missing_from(self._chain, head, run.segments):
                break
            try:
                made = self._rewritten(head, run, looks_elsewhere=looks_elsewhere)
            except MissingFile:
                # Replaced by another, and removed from the store, while we read.
                if missing_from(self._chain, self._refresh(), run.segments):
                    break
                if looks_elsewhere:
                    continue
                raise
            if self._commit(run, made):
                self._done.append((run, made))
                return
            if made.assumes is None:
                break
            # Other segments have changed. What follows from the run alone holds all the same.
        self._lost += 1

    def _rewritten(self, head: Manifest, run: Run, *, looks_elsewhere: bool) -> Rewritten:
        service = self._chain.service
        return rewrite(
            self._chain.storage,
            head,
            run.segments,
            self._chain.runtime.random_hex,
            Instructions(
                sort_by=sort_columns(head, self._options.sort_by),
                pace=self._pace,
                forget=True,
                elsewhere=Elsewhere(service, head, run.segments) if looks_elsewhere else None,
            ),
        )

    def _commit(self, run: Run, made: Rewritten) -> bool:
        replacement = Replacement(run.segments, made.entries, made.rows_dropped, made.assumes)
        base = self._place.head
        try:
            change = ReplacementChange(self._chain, base.manifest, replacement)
            done = commit(self._chain, base, change, operation="compact")
        except (CommitConflict, CommitTimeout) as error:
            # Both say for certain that nothing was committed: nobody will ever read these files.
            log.debug("a run of %s is thrown away: %s", self._chain.storage.url, error)
            discard(self._place, made.files)
            return False
        self._place.see(done.snapshot)
        return True

    def _report(self) -> CompactReport:
        done = self._done
        return CompactReport(
            self._chain.storage.url,
            self._place.head.manifest.version,
            runs=len(done),
            lost_runs=self._lost,
            segments_before=sum(len(run.segments) for run, _ in done),
            segments_after=sum(len(made.entries) for _, made in done),
            rows=sum(made.rows_written for _, made in done),
            rows_dropped=sum(made.rows_dropped for _, made in done),
            bytes_before=sum(made.bytes_read for _, made in done),
            bytes_after=sum(made.bytes_written for _, made in done),
        )


def sort_columns(manifest: Manifest, names: Sequence[str] | None) -> tuple[int, ...]:
    """Ids of the columns that rows of a new segment are sorted by."""
    schema, own = manifest.schema, tuple(manifest.config.sort_by)
    if names is None:
        return own
    columns = [schema.column(name) for name in check_names("sort_by", names)]
    nested = [column.name for column in columns if column.type.domain is None]
    if nested:
        raise InvalidInput(f"sort_by: column {nested[0]!r} is nested and has no order")
    chosen = tuple(column.id for column in columns)
    if len(set(chosen)) != len(chosen):
        raise InvalidInput("sort_by names a column twice")
    if own and chosen != own:
        wanted = ", ".join(schema.by_id[i].name for i in own)
        raise InvalidInput(
            f"the table keeps its rows sorted by {wanted}; compact it without sort_by"
        )
    return chosen


def discard(place: Place, files: Sequence[str]) -> None:
    """Remove files that no version lists nor will list; what stays is an orphan for vacuum."""
    try:
        place.chain.storage.delete(files)
    except StrandlineError as error:
        log.debug("files of %s stay as orphans: %s", place.chain.storage.url, error)
