"""Rows written by many processes and committed by one: data files first, then a single commit.

Each task of a cluster writes files under names of its own and tells which; whoever started the
tasks puts the files of those that count into one commit. Files of tasks that failed, or were
started twice, are listed nowhere, so their rows do not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from strandline.catalog.commit import commit
from strandline.catalog.tidy import tidy
from strandline.tableformat import rolling
from strandline.tableformat.actions import AddSegments
from strandline.tableformat.conflicts import MustRewrite
from strandline.tableformat.errors import CommitConflict, CorruptTable, InvalidInput, ObjectMissing
from strandline.tableformat.indexes.reference import path_of
from strandline.tableformat.segments import OFFSET, segment_from_json
from strandline.tableformat.stores.background import Background
from strandline.writers.append import AppendChange, Conditions
from strandline.writers.ingest import to_arrow
from strandline.writers.layout import MAX_FILES_PER_COMMIT
from strandline.writers.results import added_result, earlier_result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.actions import Action, BatchKey
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.segments import SegmentEntry
    from strandline.tableformat.storage import PendingWrite, Storage
    from strandline.writers.committing import Place
    from strandline.writers.results import Commit

_WRITE_ATTEMPTS: Final = 4
_CHECK_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one batch of rows, as plain values that travel between processes."""

    entries: tuple[str, ...]
    """As JSON, with sequence numbers counted from the batch's own beginning."""
    rows: int
    dropped: int
    first_ts: int
    last_ts: int
    """`_ts` of the first and of the last row; 0 without rows."""


def write_files(
    storage: Storage, runtime: Runtime, head: Manifest, data: pa.Table, tail_ts: int | None = None
) -> WrittenFiles:
    """Write rows into files of the table and wait until they are durable; nothing is committed.

    `tail_ts`: the time of the row before, in a table whose times must not go back.
    """
    rows = to_arrow(data, head.schema)
    if tail_ts is not None and head.config.order == "clamp":
        head = replace(head, last_ts=max(tail_ts, head.last_ts), next_seq=max(1, head.next_seq))
    change = AppendChange(
        storage, runtime, head, rows=rows, schema=head.schema, conditions=Conditions(), alone=True
    )
    for attempt in range(_WRITE_ATTEMPTS):
        try:
            for pending in change.pending:
                pending.wait()
            break
        except MustRewrite:
            # The store lost track of a file; under another name it is a new attempt.
            if attempt == _WRITE_ATTEMPTS - 1:
                raise
            change = change.rewrite(head)
    (added,) = change.actions
    return WrittenFiles(
        entries=tuple(entry.to_json().decode() for entry in added.segments),
        rows=added.rows,
        dropped=change.dropped_late,
        first_ts=min((entry.min_ts for entry in added.segments), default=0),
        last_ts=added.last_ts,
    )


def commit_files(
    place: Place,
    written: Sequence[WrittenFiles],
    *,
    operation: str,
    key: BatchKey | None = None,
    before: tuple[Action, ...] = (),
    properties: tuple[tuple[str, str], ...] = (),
) -> Commit:
    """Commit all files in one step, in the order given; exactly once where there is a key.

    `before`: what the same commit does first. Sizes are compared with the store before it.
    """
    batch = [files for files in written if files.rows or files.dropped]
    manifest = place.head.manifest
    dropped = sum(files.dropped for files in batch)
    if not before and not any(files.rows for files in batch):
        return added_result(manifest, dropped=dropped)
    added = _as_one(batch, manifest, key)
    check_stored(place.chain.storage, added.segments)
    done = commit(
        place.chain,
        place.head,
        _Fixed((*before, added)),
        operation=operation,
        properties=properties,
    )
    place.see(done.snapshot)
    if done.earlier is not None:
        return earlier_result(key, done.earlier)
    made = done.snapshot.manifest
    listed = len(made.segments)
    if rolling.should_roll(listed - len(added.segments), listed):
        place.see(tidy(place.chain, done.snapshot))
    return added_result(made, added.rows, dropped)


def check_stored(storage: Storage, entries: Sequence[SegmentEntry]) -> None:
    """Refuse to list a file that is not in the store as it was written."""
    expected = [(entry.path, entry.size_bytes) for entry in entries]
    expected += [(path_of(e.path), e.index.size_bytes) for e in entries if e.index is not None]

    def check(file: tuple[str, int]) -> None:
        path, size = file
        try:
            found = storage.size(path)
        except ObjectMissing:
            found = -1
        if found != size:
            state = "is gone" if found < 0 else f"has {found} bytes"
            raise CorruptTable(
                f"{storage.url}: {path} was written with {size} bytes and {state}. Nothing was "
                "committed. Run the job again."
            )

    Background(_CHECK_THREADS, "strandline-check").map(check, expected)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Files that only their own processes could write again."""

    actions: tuple[Action, ...]
    pending: tuple[PendingWrite, ...] = ()

    def rewrite(self, head: Manifest) -> _Fixed:
        raise CommitConflict(
            f"the table moved on to version {head.version} while the files were written, and they "
            "no longer fit it (its floor, its newest timestamp or its files floor has risen). "
            "Nothing was changed. Run the job again."
        )


def _as_one(batch: Sequence[WrittenFiles], manifest: Manifest, key: BatchKey | None) -> AddSegments:
    entries = tuple(_counted_on(batch))
    if len(entries) > MAX_FILES_PER_COMMIT:
        raise InvalidInput(
            f"the rows fall into {len(entries)} files, and one commit takes "
            f"{MAX_FILES_PER_COMMIT}. Nothing was committed. Use fewer tasks, sort the rows by "
            "time, or write them in several jobs."
        )
    stored = [files for files in batch if files.rows]
    clamped = manifest.config.order == "clamp" and bool(stored)
    if clamped:
        _check_times(stored)
    return AddSegments(
        segments=entries,
        rows=sum(files.rows for files in stored),
        last_ts=stored[-1].last_ts if stored else 0,
        key=key,
        clamped_to=stored[0].first_ts if clamped else None,
    )


def _check_times(batch: Sequence[WrittenFiles]) -> None:
    """Tasks that ran side by side could not raise their times to those of the one before."""
    newest = 0
    for files in batch:
        if files.first_ts < newest:
            raise InvalidInput(
                "the table has order='clamp', and rows of a later task are older than rows of an "
                "earlier one. Nothing was committed. Write from one task (df.coalesce(1)), or sort "
                "the rows by time."
            )
        newest = files.last_ts


def _counted_on(batch: Sequence[WrittenFiles]) -> Iterator[SegmentEntry]:
    """All entries, with sequence numbers counted from the beginning of the first."""
    before = 0
    for files in batch:
        for text in files.entries:
            entry = segment_from_json(orjson.loads(text))
            yield replace(
                entry,
                min_seq=entry.min_seq + before,
                max_seq=entry.max_seq + before,
                seq_base=before if entry.rows_are == OFFSET else 0,
                encoded=b"",
            )
        before += files.rows
