"""Compaction in pieces that another process can do: plan here, rewrite there, commit here.

A task is plain values and opens its own storage, so it travels to a Spark executor as it is. Only
whoever planned commits; a task that ran twice leaves an orphan and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.catalog.chain import Chain
from strandline.catalog.commit import commit
from strandline.catalog.locating import Replacement
from strandline.catalog.replacement import ReplacementChange
from strandline.readers.planner import plan_scan
from strandline.tableformat.compaction import plan_runs
from strandline.tableformat.errors import CommitConflict, CommitTimeout
from strandline.tableformat.storage import open_storage
from strandline.writers.compacting import CompactOptions, discard, sort_columns
from strandline.writers.rewriting import Instructions, rewrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.tableformat.segments import SegmentEntry
    from strandline.writers.committing import Place
    from strandline.writers.rewriting import Rewritten


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
            Instructions(sort_by=self.sort_by),
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


def commit_task(place: Place, task: RewriteTask, made: Rewritten) -> bool:
    """Commit what a task has written; False, and its output is gone, if another came first."""
    replacement = Replacement(task.segments, made.entries, made.rows_dropped)
    base = place.head
    try:
        change = ReplacementChange(place.chain, base.manifest, replacement)
        done = commit(place.chain, base, change, operation="compact")
    except (CommitConflict, CommitTimeout):
        discard(place, made.files)
        return False
    place.see(done.snapshot)
    return True
