"""Compaction in pieces that another process can do: plan here, rewrite there, commit here.

A task is plain values and opens its own storage, so it travels to a Spark executor as it is. Only
whoever planned commits; a task that ran twice leaves an orphan and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from strandline.catalog import documents
from strandline.catalog.chain import Chain
from strandline.catalog.commit import commit
from strandline.catalog.locating import Replacement, missing_from
from strandline.catalog.replacement import ReplacementChange
from strandline.readers.planner import plan_scan
from strandline.tableformat.binding import bind
from strandline.tableformat.compaction import MOST_SEGMENTS, Run, plan_runs
from strandline.tableformat.errors import CommitConflict, CommitTimeout
from strandline.tableformat.expressions import all_of, col
from strandline.tableformat.segments import SegmentEntry
from strandline.tableformat.storage import open_storage
from strandline.writers.compacting import CompactOptions, discard, sort_columns
from strandline.writers.foreign_files import check_stored
from strandline.writers.rewriting import Instructions, Rewritten, rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.writers.committing import Place

Choose = Callable[[Sequence[SegmentEntry]], list[Run]]
"""Finds runs among the segments of one piece of a table."""
Done = tuple[Run, Rewritten]
"""A run, and what a task has made of it."""


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One run, to be rewritten anywhere."""

    url: str
    version: int
    segments: tuple[SegmentEntry, ...]
    sort_by: tuple[int, ...] = ()
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def run(self) -> Rewritten:
        """Write the new segments and check them; nothing is committed."""
        storage = open_storage(self.url, self.storage_options)
        chain = Chain(storage)
        manifest = chain.load(self.version).manifest
        return rewrite(
            storage,
            manifest,
            self.segments,
            chain.runtime.random_hex,
            # What other segments hold may have changed when all tasks are committed together.
            Instructions(sort_by=self.sort_by, forget=True),
        )


def plan_tasks(
    place: Place,
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    options: CompactOptions | None = None,
) -> list[RewriteTask]:
    """The runs that are due, as tasks. `url` as the other process would open it."""
    wanted = options or CompactOptions()
    place.see(place.chain.refresh(place.head))
    manifest = place.head.manifest
    entries = plan_scan(place.chain.service, manifest, None, indexes=False).segments
    runs = plan_runs(entries, wanted.policy, floor_ts=manifest.floor_ts, trim_seq=manifest.trim_seq)
    sort_by = sort_columns(manifest, wanted.sort_by)
    return [
        RewriteTask(url, manifest.version, run.segments, sort_by, storage_options) for run in runs
    ]


def runs_piecewise(place: Place, choose: Choose) -> Iterator[Run]:
    """The runs that `choose` finds among the segments of the head, one piece after the other.

    A piece is one page's share of a window, so that however large the table is, no more entries
    are in memory at a time.
    """
    manifest, service = place.head.manifest, place.chain.service
    for start_ms, first, stop in _pieces(place):
        tests = [col("_window") == start_ms, col("_seq") >= first, col("_seq") < stop]
        bound = bind(all_of(tests), manifest.schema)
        found = plan_scan(service, manifest, bound, indexes=False).segments
        # A segment that lies in two pieces belongs to the one it begins in.
        yield from choose([entry for entry in found if first <= entry.min_seq])


def _pieces(place: Place) -> Iterator[tuple[int, int, int]]:
    """Starts of windows, each with the ranges of sequence numbers that its pages begin at."""
    manifest = place.head.manifest
    begins: dict[int, set[int]] = {entry.window.start_ms: {0} for entry in manifest.segments}
    folded = documents.window_pages(place.chain.service, manifest.window_pages)
    for window in (*manifest.windows, *(entry for page in folded for entry in page)):
        known = begins.setdefault(window.window.start_ms, {0})
        known.update(page.min_seq for page in window.pages)
    for start_ms in sorted(begins):
        for first, stop in pairwise([*sorted(begins[start_ms]), manifest.next_seq]):
            if first < stop:
                yield start_ms, first, stop


def in_rounds(runs: Iterable[Run], most_segments: int = MOST_SEGMENTS) -> Iterator[list[Run]]:
    """Runs in groups that one commit can take."""
    group: list[Run] = []
    size = 0
    for run in runs:
        if group and size + len(run.segments) > most_segments:
            yield group
            group, size = [], 0
        group.append(run)
        size += len(run.segments)
    if group:
        yield group


def commit_together(place: Place, done: Sequence[Done]) -> list[Done]:
    """Put what tasks have written into one commit, and give what it holds.

    Runs that somebody else has changed meanwhile are left out, and their output is removed.
    """
    left = list(done)
    check_stored(place.chain.storage, [entry for _, made in left for entry in made.entries])
    while left:
        try:
            _replace(place, left)
        except CommitTimeout:
            break
        except CommitConflict:
            kept = _still_there(place, left)
            if len(kept) == len(left):
                break  # vacuum has passed: nobody knows whether the new files are still there
            left = kept
        else:
            return left
    for _, made in left:
        discard(place, made.files)
    return []


def _still_there(place: Place, done: Sequence[Done]) -> list[Done]:
    """Without the runs of which an input is gone; their output goes as well."""
    place.see(place.chain.refresh(place.head))
    wanted = [entry for run, _ in done for entry in run.segments]
    gone = missing_from(place.chain, place.head.manifest, wanted)
    kept = []
    for run, made in done:
        if any(entry.path in gone for entry in run.segments):
            discard(place, made.files)
        else:
            kept.append((run, made))
    return kept


def _replace(place: Place, done: Sequence[Done]) -> None:
    replacement = Replacement(
        tuple(entry for run, _ in done for entry in run.segments),
        tuple(entry for _, made in done for entry in made.entries),
        sum(made.rows_dropped for _, made in done),
    )
    base = place.head
    change = ReplacementChange(place.chain, base.manifest, replacement)
    place.see(commit(place.chain, base, change, operation="compact").snapshot)


def commit_task(place: Place, task: RewriteTask, made: Rewritten) -> bool:
    """Commit what a task has written; False, and its output is gone, if another came first."""
    run = Run(task.segments[0].window, task.segments[0].shard, task.segments)
    return bool(commit_together(place, [(run, made)]))
