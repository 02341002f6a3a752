"""The reading half of a table: what users ask of its rows and its past."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.readers.planner import plan_scan
from strandline.readers.request import Request
from strandline.readers.scan import Scan
from strandline.tableformat.arguments import check_count, check_names
from strandline.tableformat.errors import BeyondTail, InvalidInput
from strandline.tableformat.windows import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    import numpy as np

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.readers.follow import Follow
    from strandline.readers.key_lookup import KeySet
    from strandline.readers.reading import Reading
    from strandline.tableformat.expressions import Expression
    from strandline.tableformat.manifest import CommitRecord, Manifest


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the next row goes."""

    next_seq: int
    last_ts: int
    """`_ts` of the newest row in milliseconds; 0 in an empty table."""
    version: int


class ReadsRows:
    """Everything that changes nothing."""

    _chain: Chain
    _head: Snapshot
    _latest: Callable[[], Snapshot]
    """The version to read: the newest one, unless this handle is pinned."""

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        *,
        start_seq: int | None = None,
        end_seq: int | None = None,
        start_ts: int | None = None,
        end_ts: int | None = None,
        limit: int | None = None,
        order_by: str | None = None,
        descending: bool = False,
        indexes: bool = True,
        all_rows: bool = False,
    ) -> Scan:
        """Rows in the order of their sequence numbers, from the version that is newest now.

        `columns` may name `_seq`, `_ts` and `_window` too. `filter` is text such as
        `"country = 'US' AND amount > 10"`, or an expression made with `strandline.col` or by
        pyarrow; fields of structs are `device.os`.
        `start_seq`, `start_ts` (ms) and `end_ts` are inclusive, `end_seq` is exclusive.
        `order_by` names another column to sort by; equal values follow each other by `_seq`, nulls
        come last, NaN is the greatest. With `limit` only the best parts of the table are read.
        `indexes=False` leaves index files alone: the rows are the same, it only takes longer.
        A keyed table gives the newest row of each key, if that one matches; with `all_rows`, every
        stored row that does.
        """
        request = Request(
            columns=columns,
            filter=filter,
            start_seq=start_seq,
            end_seq=end_seq,
            start_ts=start_ts,
            end_ts=end_ts,
            limit=limit,
            order_by=order_by,
            descending=descending,
            indexes=indexes,
            all_rows=all_rows,
        )
        return self._scan(self._latest().manifest, request)

    def scan_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        **options: Any,
    ) -> Any:
        """A Polars LazyFrame over `scan(…)`: filters, columns and `head` of a query reach it.

        It stays at the version that is newest now.
        """
        return self.scan(columns, filter, **options).scan_polars()

    def _scan(self, manifest: Manifest, request: Request, keys: KeySet | None = None) -> Scan:
        visible = self._visible(manifest)
        return Scan(
            self._chain.service,
            manifest,
            request,
            floor_ts=visible["floor_ts"],
            trim_seq=visible["trim_seq"],
            keys=keys,
        )

    def _visible(self, manifest: Manifest) -> dict[str, int]:
        """What has expired stays hidden, also when an older version is read."""
        head = self._head.manifest
        return {
            "floor_ts": max(manifest.floor_ts, head.floor_ts),
            "trim_seq": max(manifest.trim_seq, head.trim_seq),
        }

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        *,
        from_seq: int | None = None,
        from_ts: int | None = None,
        tail_offset: int | None = None,
        count: int | None = None,
        bytes: int | None = None,  # noqa: A002
        until_ts: int | None = None,
    ) -> Reading:
        """Read a piece of the stream, and learn where the next one begins.

        Starts at `from_seq`, or at the first row at or after `from_ts` (ms), or `tail_offset` rows
        before the tail; ends after `count` rows or about `bytes` bytes, before the first row at or
        after `until_ts`, or at the tail. A start behind the tail is `BeyondTail`, which says where
        the tail is. The stream of a keyed table is that of its changes: every stored row.
        """
        from strandline.readers import reading  # noqa: PLC0415 - kernels that planning does without

        limits = reading.ReadLimits(count=count, bytes=bytes, until_ts=until_ts)
        manifest = self._latest().manifest
        trim_seq = self._visible(manifest)["trim_seq"]
        snapshot = reading.Snapshot(
            lambda request: self._scan(manifest, request), trim_seq, manifest.next_seq
        )
        start = snapshot.start(seq=from_seq, ts=from_ts, tail_offset=tail_offset)
        return snapshot.read(start, limits, columns=columns, filter=filter)

    def follow(
        self,
        from_seq: int | None = None,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
        *,
        poll: str | timedelta = "1s",
    ) -> Follow:
        """Arrow batches of rows as they are committed, from `from_seq` on (by default: new ones).

        Endless; `stop()`, or leaving a `with` block, ends it. Looks for rows every `poll`. After
        an error the next step goes on behind the last batch that was given. Of a keyed table,
        every stored row: each is a change.
        """
        from strandline.readers.follow import Follow  # noqa: PLC0415

        poll_s = parse_duration(poll, "poll") / 1000
        tail_seq = self.tail().next_seq
        start = tail_seq if from_seq is None else from_seq
        # What is wrong with the request is said now, and not by the first row that comes.
        self.scan(columns, filter, start_seq=start, all_rows=True)
        if start > tail_seq:
            raise BeyondTail(start, tail_seq)

        def scan_between(start_seq: int, end_seq: int) -> Scan:
            manifest = self._latest().manifest
            names = self._names(manifest, columns)
            request = Request(
                columns=list(dict.fromkeys([*names, "_seq"])),
                filter=filter,
                start_seq=start_seq,
                end_seq=end_seq,
                all_rows=True,
            )
            return self._scan(manifest, request)

        return Follow(
            lambda: self.tail().next_seq,
            scan_between,
            start_seq=start,
            poll_s=poll_s,
            shows_seq=columns is not None and "_seq" in columns,
        )

    def by_key(
        self,
        keys: Iterable[Any] | None = None,
        by: str | None = None,
        columns: Sequence[str] | None = None,
        *,
        start_ts: int | None = None,
        end_ts: int | None = None,
        limit: int = 0,
        latest: bool = False,
        all_rows: bool = False,
    ) -> pa.Table:
        """Rows of some keys, or of all, by key and then by time; one pass whatever their number.

        `keys`: values in a list, an Arrow array or a Series; None, or what counts as missing
        there, finds the rows without a key. `by`: the key's column, by default the one the table
        is sharded by. Both times (ms) are inclusive.
        `limit`: rows per key, the earliest or, with `latest`, the newest; 0 is all.
        `all_rows`: as for `scan`, where the table has a primary key.
        """
        from strandline.readers.by_key import key_is_among, ordered_by_key  # noqa: PLC0415

        if check_count("limit", limit) is None:
            raise InvalidInput("limit must be an integer; 0 is for all rows")
        if type(latest) is not bool:
            raise InvalidInput(f"latest must be True or False, not {latest!r}")
        if keys is not None and (isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable)):
            raise InvalidInput(f"keys is a list of values, not one value such as {keys!r}")
        manifest = self._latest().manifest
        key = self._key_column(manifest, by)
        wanted = None if keys is None else key_is_among(key, keys)
        names = self._names(manifest, columns)
        request = Request(
            columns=list(dict.fromkeys([*names, key, "_ts", "_seq"])),
            filter=wanted,
            start_ts=start_ts,
            end_ts=end_ts,
            all_rows=all_rows,
        )
        rows = ordered_by_key(self._scan(manifest, request), key, limit=limit, latest=latest)
        return rows.select(names)

    @staticmethod
    def _names(manifest: Manifest, columns: Sequence[str] | None) -> list[str]:
        return (
            manifest.schema.arrow.names if columns is None else [*check_names("columns", columns)]
        )

    def _key_column(self, manifest: Manifest, by: str | None) -> str:
        shard_by = manifest.config.shard_by
        if by is None and shard_by is not None:
            return manifest.schema.by_id[shard_by].name
        if by is None:
            raise InvalidInput("say by which column: by='name'; this table has no shard_by")
        column = manifest.schema.column(by)
        if column.type.domain is None:
            raise InvalidInput(f"column {by!r} has type {column.type}, which cannot be a key")
        return column.name

    def exists(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each of the keys, whether the keyed table holds a row with it; one pass for all.

        `keys`: a list of values (of tuples, where the key has several columns), or rows: dicts or
        Arrow data with the key's columns. Only these columns are read, of the few files that may
        hold a key.
        """
        from strandline.readers import key_lookup  # noqa: PLC0415 - kernels, as for read

        manifest = self._latest().manifest
        wanted = key_lookup.key_set(keys, manifest)
        return key_lookup.find_existing(
            self._chain.service, manifest, wanted, **self._visible(manifest)
        )

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The newest rows of some keys, in the order of the keys; one pass for all.

        `keys`: as for `exists`. A key that the table does not hold is left out.
        """
        from strandline.readers import key_lookup  # noqa: PLC0415 - kernels, as for read

        manifest = self._latest().manifest
        wanted = key_lookup.key_set(keys, manifest)
        names = self._names(manifest, columns)
        key = [column.name for column in manifest.key_columns]
        request = Request(columns=list(dict.fromkeys([*names, *key])))
        rows = self._scan(manifest, request, wanted).to_arrow()
        return rows.take(wanted.order(rows)).select(names)

    def changes(
        self,
        since_version: int,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 - the word users expect
    ) -> Scan:
        """Rows that were appended after a version, up to the one this handle reads.

        Of a keyed table, every stored row: each is a change.
        """
        if type(since_version) is not int or since_version < 1:
            raise InvalidInput(
                f"since_version must be an integer of 1 or more, not {since_version!r}"
            )
        manifest = self._latest().manifest
        before = self._chain.at_version(since_version, self._head).manifest
        if before.version > manifest.version:
            raise InvalidInput(
                f"version {since_version} is newer than version {manifest.version}, which is read"
            )
        request = Request(columns=columns, filter=filter, start_seq=before.next_seq, all_rows=True)
        return self._scan(manifest, request)

    def tail(self) -> Tail:
        """The next sequence number and the newest timestamp: one small read."""
        manifest = self._latest().manifest
        return Tail(manifest.next_seq, manifest.last_ts, manifest.version)

    def history(self, limit: int | None = None) -> list[CommitRecord]:
        """Commits, newest first, as far back as versions are kept."""
        check_count("limit", limit)
        snapshot = self._latest()
        oldest = max(1, self._chain.largest_gc_marker())
        records: list[CommitRecord] = []
        while True:
            records += [r for r in snapshot.manifest.history if r.version >= oldest]
            if not records or records[-1].version <= oldest:
                break
            if limit is not None and len(records) >= limit:
                break
            snapshot = self._chain.at_version(records[-1].version - 1, self._head)
        return records[:limit]

    def files(self) -> pa.Table:
        """Every data file of the version, one row each, in the order of sequence numbers."""
        manifest = self._latest().manifest
        segments = plan_scan(self._chain.service, manifest, None).segments
        names = ("path", "row_count", "size_bytes", "min_seq", "max_seq", "min_ts", "max_ts")
        rows: dict[str, list[Any]] = {name: [getattr(s, name) for s in segments] for name in names}
        rows["window_start"] = [s.window.start_ms for s in segments]
        rows["window_ms"] = [s.window.duration_ms for s in segments]
        rows["shard"] = [s.shard for s in segments]
        rows["schema_version"] = [s.schema_id for s in segments]
        rows["created_at"] = [s.created_at for s in segments]
        rows["index_bytes"] = [0 if s.index is None else s.index.size_bytes for s in segments]
        kinds = {"path": pa.string(), "shard": pa.int32(), "schema_version": pa.int32()}
        return pa.table(
            {name: pa.array(values, kinds.get(name, pa.int64())) for name, values in rows.items()}
        )
