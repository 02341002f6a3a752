"""Tombstones: rows of a keyed table that say of a key only that it is deleted, and when.

They lie in segments of their own, which hold the columns of the key, `_ts` and `_deleted`. All
other segments stay as they are, so that tables without deletes by key know nothing of this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.catalog.uploads import Upload
from strandline.tableformat import paths
from strandline.tableformat.actions import AddSegments
from strandline.tableformat.lateness import marks_of
from strandline.tableformat.schema import Schema
from strandline.tableformat.segments import DENSE, OFFSET, STORED, SegmentEntry
from strandline.tableformat.stats import ColumnStats
from strandline.writers.layout import BATCH, lay_out
from strandline.writers.segment_file import encode_segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.catalog.runtime import Runtime
    from strandline.tableformat.config import Config
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.storage import PendingWrite, Storage
    from strandline.tableformat.windows import Window
    from strandline.writers.append import Conditions

Array = np.ndarray[Any, Any]
_NO_INDEXES: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneRows:
    """Keys of one segment, with their times and what tells their sequence numbers."""

    window: Window
    shard: int
    kind: str
    keys: pa.Table
    """The columns of the key, by their names."""
    ts_ms: Array
    first: int
    last: int
    """Least and greatest number; in a batch that is not committed yet, counted from its start."""
    offsets: Array | None = None
    seqs: Array | None = None


def key_schema(schema: Schema, config: Config) -> Schema:
    """The columns that tombstones have."""
    return Schema(schema.id, tuple(schema.by_id[i] for i in config.primary_key))


def encode_tombstones(
    rows: TombstoneRows, schema: Schema, manifest: Manifest, file_id: str
) -> tuple[SegmentEntry, tuple[str, Any]]:
    """The entry of a segment of tombstones, and the object that is to be stored for it."""
    config = manifest.config
    file = encode_segment(
        rows.keys,
        key_schema(schema, config),
        # Scans look at all of them before they know which rows count.
        replace(config, index_policy=_NO_INDEXES, indexes={}),
        ts_ms=rows.ts_ms,
        offsets=rows.offsets,
        seqs=rows.seqs,
        store_ts=True,
        tombstones=True,
    )
    path = paths.segment_path(rows.window, rows.shard, rows.kind, manifest.files_version, file_id)
    entry = SegmentEntry(
        path=path,
        window=rows.window,
        shard=rows.shard,
        row_count=rows.keys.num_rows,
        size_bytes=len(file.data),
        min_seq=rows.first,
        max_seq=rows.last,
        min_ts=int(rows.ts_ms.min()),
        max_ts=int(rows.ts_ms.max()),
        column_stats={
            **_stats_of_nulls(schema, config, rows.keys.num_rows),
            **file.column_stats,
        },
        footer_bytes=file.footer_bytes,
        footer_xxh64=file.footer_xxh64,
        schema_id=schema.id,
        created_at=0,
        rows_are=OFFSET if rows.offsets is not None else DENSE if rows.seqs is None else STORED,
        ts_stored=True,
        tombstones=True,
    )
    return entry, (path, file.data)


def _stats_of_nulls(schema: Schema, config: Config, count: int) -> dict[str, Any]:
    """What is not there reads as null. Said here, it leaves the stats of a page what they were."""
    nulls = ColumnStats(None, None, count)
    others = [schema.by_id[i] for i in config.stats_columns if i in schema.by_id]
    return {
        str(column.id): nulls.to_json(column.type)
        for column in others
        if column.id not in config.primary_key
    }


class TombstoneChange:
    """Keys that are deleted, with the files that say so; stamped again if the head moved too far.

    Placed like an append: they take numbers behind the tail.
    """

    actions: tuple[AddSegments]
    pending: tuple[PendingWrite, ...]

    def __init__(
        self,
        storage: Storage,
        runtime: Runtime,
        head: Manifest,
        *,
        keys: pa.Table,
        stamp: Callable[[Manifest], Array],
        conditions: Conditions,
    ) -> None:
        """`keys`: the columns of the key, by their names in `head`. `stamp`: each one's `_ts`.

        What is stamped below the floor has expired and needs no tombstone.
        """
        self._storage, self._runtime = storage, runtime
        self._keys, self._schema = keys, head.schema
        self._stamp, self._conditions = stamp, conditions
        self._place(head)

    @property
    def rows(self) -> int:
        """How many tombstones there are."""
        return self.actions[0].rows

    def rewrite(self, head: Manifest) -> TombstoneChange:
        """The same keys in new files, stamped for this head."""
        self._place(head)
        return self

    @property
    def files(self) -> int:
        """How many files hold them."""
        return len(self.actions[0].segments)

    def _place(self, head: Manifest) -> None:
        config, conditions = head.config, self._conditions
        clamps = config.order == "clamp" and head.next_seq > 0
        ts_ms = self._stamp(head)
        if clamps:
            ts_ms = np.maximum.accumulate(np.maximum(ts_ms, head.last_ts))
        living = ts_ms >= head.floor_ts
        keys, ts_ms = self._keys.filter(pa.array(living)), ts_ms[living]
        pieces = lay_out(
            keys,
            ts_ms,
            key_schema(self._schema, config),
            _layout_config(config),
            marks_of({}, config.shards),
            alone=True,
        ).pieces
        made = [
            encode_tombstones(
                TombstoneRows(
                    window=piece.window,
                    shard=piece.shard,
                    kind=BATCH,
                    keys=piece.rows,
                    ts_ms=piece.ts_ms,
                    first=piece.first,
                    last=piece.last,
                    offsets=piece.offsets,
                ),
                self._schema,
                head,
                self._runtime.random_hex(8),
            )
            for piece in pieces
        ]
        self.pending = tuple(Upload(self._storage.write_new(*found)) for _, found in made)
        self.actions = (
            AddSegments(
                segments=tuple(entry for entry, _ in made),
                rows=keys.num_rows,
                last_ts=int(ts_ms[-1]) if len(ts_ms) else 0,
                key=conditions.key,
                fence=conditions.fence,
                match_seq=conditions.match_seq,
                clamped_to=head.last_ts if config.order == "clamp" and len(ts_ms) else None,
            ),
        )


def _layout_config(config: Config) -> Config:
    """Where tombstones go: what they have no column for cannot decide about it."""
    sharded = config.shard_by in config.primary_key
    return replace(
        config,
        sort_by=(),
        jitter_ms=None,
        shard_by=config.shard_by if sharded else None,
        shards=config.shards if sharded else 1,
    )
