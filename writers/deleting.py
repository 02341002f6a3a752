"""Deleting rows by a filter: segments that hold some are rewritten without them, in one commit.

A delete covers the version it read. When another has replaced a segment meanwhile, only what that
one made of it is looked at again; rows that were appended later are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.catalog.commit import COMMIT_TIMEOUT_S, commit
from strandline.catalog.locating import Replacement, missing_from
from strandline.catalog.replacement import ReplacementChange
from strandline.catalog.tidy import tidy
from strandline.readers.planner import plan_scan
from strandline.readers.split_reader import read_split
from strandline.tableformat import paths
from strandline.tableformat.binding import bind, columns_of
from strandline.tableformat.conflicts import ReplacementLost
from strandline.tableformat.errors import (
    CommitConflict,
    CommitTimeout,
    InvalidInput,
    MissingFile,
)
from strandline.tableformat.expressions import all_of, col
from strandline.tableformat.hidden_columns import WINDOW_ID
from strandline.tableformat.replacing import PresentFence
from strandline.writers.compacting import discard
from strandline.writers.deleting_keys import delete_winners
from strandline.writers.layout import MAX_FILES_PER_COMMIT
from strandline.writers.results import Deleted
from strandline.writers.rewriting import Instructions, rewrite

if TYPE_CHECKING:
    from strandline.readers.splits import Split
    from strandline.tableformat.binding import Bound
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.writers.committing import Place
    from strandline.writers.rewriting import Rewritten

_LEAST_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment that loses rows."""

    entry: SegmentEntry
    made: Rewritten | None
    """What is left of it; None: nothing, and it was not read."""

    @property
    def rows(self) -> int:
        return self.entry.row_count if self.made is None else self.made.rows_dropped

    @property
    def left(self) -> tuple[SegmentEntry, ...]:
        return () if self.made is None else self.made.entries

    @property
    def files(self) -> list[str]:
        return [] if self.made is None else self.made.files


def delete_where(place: Place, condition: Expression, fence: str | None = None) -> Deleted:
    """Take the rows out for which the filter is true; the others keep their numbers.

    In a keyed table that is right where the filter asks about the key alone, because then a row
    matches together with all that it has replaced. By any other filter, keys are deleted whose
    newest row matches.
    """
    head = place.head.manifest
    key = set(head.config.primary_key)
    if key and not columns_of(bind(condition, head.schema)) <= key:
        return delete_winners(place, condition, fence)
    return _Delete(place, condition, fence).run()


class _Delete:
    def __init__(self, place: Place, condition: Expression, fence: str | None) -> None:
        self._place, self._condition, self._fence = place, condition, fence
        self._chain = place.chain
        self._parts: dict[str, _Part] = {}
        self._untouched: set[str] = set()
        """Segments in which no row matched."""

    def run(self) -> Deleted:
        clock = self._chain.runtime.monotonic
        deadline = clock() + COMMIT_TIMEOUT_S
        end_seq = self._refresh().next_seq
        tries = 0
        while True:
            tries += 1
            try:
                return self._once(end_seq)
            except (ReplacementLost, MissingFile) as error:
                lost = isinstance(error, ReplacementLost) or self._is_behind()
                if not lost or (tries >= _LEAST_TRIES and clock() > deadline):
                    self._discard(self._parts)
                    raise
                self._forget_lost()
            except (CommitConflict, CommitTimeout):
                # For certain nothing was committed, so nobody will read what was written.
                self._discard(self._parts)
                raise

    def _refresh(self) -> Manifest:
        self._place.see(self._chain.refresh(self._place.head))
        return self._place.head.manifest

    def _is_behind(self) -> bool:
        """Whether the version that was read is no longer the newest."""
        read = self._place.head.manifest.version
        return self._refresh().version != read

    def _once(self, end_seq: int) -> Deleted:
        head = self._refresh()
        bound = self._bound(head, end_seq)
        # A tombstone stays: rows that came meanwhile may have lost to it.
        for split in plan_scan(self._chain.service, head, bound, tombstones=False).splits:
            self._look_at(head, bound, split)
        parts = list(self._parts.values())
        added = tuple(entry for part in parts for entry in part.left)
        if not parts:
            return Deleted(head.version, 0)
        if len(added) > MAX_FILES_PER_COMMIT:
            self._discard(self._parts)
            raise InvalidInput(
                f"the rows are spread over {len(added)} segments, and one commit rewrites "
                f"{MAX_FILES_PER_COMMIT}. Nothing was deleted. Compact the table first, or delete "
                "in several steps, by time."
            )
        replacement = Replacement(
            tuple(part.entry for part in parts), added, sum(part.rows for part in parts)
        )
        change = ReplacementChange(
            self._chain, head, replacement, conditions=[PresentFence(self._fence)]
        )
        done = commit(self._chain, self._place.head, change, operation="delete")
        self._place.see(done.snapshot)
        version = done.snapshot.manifest.version
        self._place.see(tidy(self._chain, done.snapshot))
        dropped = sum(not part.left for part in parts)
        return Deleted(version, replacement.deleted_rows, dropped, len(parts) - dropped)

    def _bound(self, head: Manifest, end_seq: int) -> Bound:
        terms = [self._condition]
        if end_seq < head.next_seq:
            terms.append(col("_seq") < end_seq)
        # Rows that nobody sees any more are not worth a look.
        if head.trim_seq:
            terms.append(col("_seq") >= head.trim_seq)
        if head.floor_ts:
            terms.append(col("_ts") >= head.floor_ts)
        return bind(all_of(terms), head.schema)

    def _look_at(self, head: Manifest, bound: Bound, split: Split) -> None:
        entry, storage = split.entry, self._chain.storage
        if entry.path in self._parts or entry.path in self._untouched:
            return
        if split.bound is None:
            self._parts[entry.path] = _Part(entry, None)
            return
        found = read_split(storage, head, split, {WINDOW_ID})
        if not any(rows.num_rows for rows in found):
            self._untouched.add(entry.path)
            return
        made = rewrite(
            storage,
            head,
            [entry],
            self._chain.runtime.random_hex,
            Instructions(drop=bound, sort_by=tuple(head.config.sort_by)),
        )
        self._parts[entry.path] = _Part(entry, made)

    def _forget_lost(self) -> None:
        """Keep what was made of segments that are still there; the rest is of no use."""
        head = self._refresh()
        missing = missing_from(self._chain, head, [p.entry for p in self._parts.values()])
        stale = {
            path
            for path, part in self._parts.items()
            for entry in part.left
            if paths.parse_segment_path(entry.path).base_version < head.files_floor
        }
        self._discard({path: self._parts[path] for path in missing | stale})
        for path in missing | stale:
            del self._parts[path]

    def _discard(self, parts: dict[str, _Part]) -> None:
        discard(self._place, [path for part in parts.values() for path in part.files])
