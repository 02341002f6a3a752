"""Appending rows, and putting rows in the place of all others.

Loaded by the first append: readers do without it, and it would add a third to the time of
`import strandline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.catalog.commit import commit
from strandline.catalog.tidy import tidy
from strandline.tableformat import rolling
from strandline.tableformat.actions import (
    MAX_FENCE_BYTES,
    MAX_WRITER_ID_BYTES,
    ExternalKey,
    settle_key,
)
from strandline.tableformat.arguments import check_count, check_text
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.stores.probe import probe_once_per_process
from strandline.writers.append import AppendChange, Conditions, check_size
from strandline.writers.ingest import to_arrow
from strandline.writers.overwrite import OverwriteChange
from strandline.writers.results import added_result, earlier_result

if TYPE_CHECKING:
    from strandline.catalog.commit import Change, Committed
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.schema import Schema
    from strandline.writers.committing import Place
    from strandline.writers.results import Commit

MAX_PROPERTIES_BYTES: Final = 4_096
Properties = tuple[tuple[str, str], ...]


def append_rows(place: Place, data: Any, conditions: Conditions, properties: Properties) -> Commit:
    """Append in one commit, and keep the manifest short afterwards."""
    rows, schema = _ingest(place, data)
    manifest = place.head.manifest
    if not rows.num_rows:
        return added_result(manifest)
    known = _known(conditions, manifest)
    if known is not None:
        return known
    change = _change(place, rows, schema, conditions)
    if change.is_empty:
        return added_result(manifest, dropped=change.dropped_late)
    done = _commit(place, change, "append", properties)
    if done.earlier is not None:
        return earlier_result(conditions.key, done.earlier)
    # The rows are safe. Housekeeping may take its time, and may fail.
    listed = len(done.snapshot.manifest.segments)
    if rolling.should_roll(listed - change.files, listed):
        place.see(tidy(place.chain, done.snapshot))
    return _result(done.snapshot.manifest, rows, change)


def overwrite_rows(
    place: Place, data: Any, conditions: Conditions, properties: Properties
) -> Commit:
    """Put the rows in the place of all that the commit finds."""
    rows, schema = _ingest(place, data)
    known = _known(conditions, place.head.manifest)
    if known is not None:
        return known
    change = _change(place, rows, schema, conditions)
    done = _commit(place, OverwriteChange(change), "overwrite", properties)
    if done.earlier is not None:
        return earlier_result(conditions.key, done.earlier)
    return _result(done.snapshot.manifest, rows, change)


def _ingest(place: Place, data: Any) -> tuple[pa.Table, Schema]:
    schema = place.head.manifest.schema
    try:
        rows = to_arrow(data, schema)
    except InvalidInput:
        # The column may have been added by somebody else since this handle looked.
        place.see(place.chain.refresh(place.head))
        newer = place.head.manifest.schema
        if newer.id == schema.id or not _repeatable(data):
            raise
        schema, rows = newer, to_arrow(data, newer)
    check_size(rows)
    return rows, schema


def _repeatable(data: Any) -> bool:
    """Whether the data can be looked at twice: a stream is used up by the first look."""
    return not hasattr(data, "__next__") and not isinstance(data, pa.RecordBatchReader)


def _known(conditions: Conditions, manifest: Manifest) -> Commit | None:
    """What the batch was given before, if this handle knows."""
    if conditions.key is None:
        return None
    position = settle_key(conditions.key, manifest.positions, {})
    return None if position is None else earlier_result(conditions.key, position)


def _change(place: Place, rows: pa.Table, schema: Schema, conditions: Conditions) -> AppendChange:
    chain = place.chain
    probe_once_per_process(chain.storage)
    return AppendChange(
        chain.storage,
        chain.runtime,
        place.head.manifest,
        rows=rows,
        schema=schema,
        conditions=conditions,
        alone=True,
    )


def _commit(place: Place, change: Change, operation: str, properties: Properties) -> Committed:
    done = commit(place.chain, place.head, change, operation=operation, properties=properties)
    place.see(done.snapshot)
    return done


def _result(made: Manifest, rows: pa.Table, change: AppendChange) -> Commit:
    dropped = change.dropped_late
    return added_result(made, rows.num_rows - dropped, dropped)


# --- what callers give, checked ---


def conditions_from(
    writer_id: object, batch: object, fence: object, match_seq: object
) -> Conditions:
    """What an append asks for, checked."""
    if (writer_id is None) != (batch is None):
        raise InvalidInput("writer_id and batch go together: give both, or neither")
    writer = check_text("writer_id", writer_id, MAX_WRITER_ID_BYTES)
    number = check_count("batch", batch)
    key = None if writer is None or number is None else ExternalKey(writer, number)
    return Conditions(
        key=key,
        fence=check_text("fence", fence, MAX_FENCE_BYTES),
        match_seq=check_count("match_seq", match_seq),
    )


def properties_from(given: object) -> tuple[tuple[str, str], ...]:
    """What a commit shall carry, checked."""
    if given is None:
        return ()
    pairs = tuple(given.items()) if isinstance(given, Mapping) else None
    if pairs is None or any(not isinstance(text, str) for pair in pairs for text in pair):
        raise InvalidInput("properties map text to text")
    try:
        size = sum(len(text.encode()) for pair in pairs for text in pair)
    except UnicodeEncodeError:
        raise InvalidInput("properties must be valid Unicode text") from None
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidInput(f"properties may take {MAX_PROPERTIES_BYTES} bytes in all")
    return pairs
