"""Tables that Spark reads, opened and planned in this process.

The JVM keeps of a table only what is in `describe`: plain values, no credentials. Each question it
asks names the table by URL and version again.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import strandline.api
from strandline.readers.planner import check_scope, plan_files, plan_scan
from strandline.spark.filters import understood
from strandline.spark.locations import root_of
from strandline.spark.seen_columns import columns_now, seen_columns
from strandline.spark.types import spark_type
from strandline.tableformat.binding import bind
from strandline.tableformat.errors import InvalidInput, TableNotFound
from strandline.tableformat.expressions import Expression, Or, all_of, col
from strandline.tableformat.hidden_columns import DELETED, HIDDEN_COLUMNS
from strandline.tableformat.page_files import checksum_numbers
from strandline.tableformat.planning import parts_of
from strandline.tableformat.segments import OFFSET
from strandline.tableformat.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.spark.request import ReadRequest
    from strandline.spark.seen_columns import Seen
    from strandline.table import Table
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.page_files import PageFiles
    from strandline.tableformat.segments import SegmentEntry

_KEPT: Final = 64
"""Versions whose metadata stay in memory."""

State = dict[str, Any]
"""What rows a relation stands for, as the JVM keeps it."""


class Sources:
    """The tables that Spark has asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[tuple[str, int], Table] = OrderedDict()
        self._options: dict[str, Mapping[str, Any]] = {}

    def remember_options(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        """Keep credentials for everything at or below a URL; they stay in this process."""
        if storage_options is not None:
            with self._lock:
                self._options[url.rstrip("/")] = dict(storage_options)

    def options_for(self, url: str) -> Mapping[str, Any] | None:
        """What was given for the longest URL that this one is at or below."""
        plain = url.replace("s3a://", "s3://", 1)
        with self._lock:
            found = [
                (len(known), options)
                for known, options in self._options.items()
                if f"{plain}/".startswith(known.replace("s3a://", "s3://", 1) + "/")
            ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def open(self, url: str, request: ReadRequest) -> dict[str, Any]:
        """A table as the JVM has to know it, at the version that was asked for or is newest."""
        storage = open_storage(url, self.options_for(url))
        head = strandline.api.open_in(storage)
        check_scope(head.manifest)
        table = head
        if request.is_pinned:
            table = strandline.api.open_in(storage, request.version, request.as_of)
        # What has expired stays hidden, also when an older version is read.
        floor_ts = max(table.manifest.floor_ts, head.manifest.floor_ts)
        trim_seq = max(table.manifest.trim_seq, head.manifest.trim_seq)
        state: State = {
            "url": storage.url if storage.is_local else url,
            "uuid": table.uuid,
            "version": table.version,
            "start_seq": max(request.start_seq or 0, trim_seq),
            "end_seq": request.end_seq,
            "start_ts": max(request.start_ts or 0, floor_ts),
            "end_ts": request.end_ts,
            "winners": None,
            "tombstones": DELETED.name in (request.columns or ()),
        }
        if table.config.primary_key and not request.all_rows:
            # What was asked for is about winners; a row that was trimmed replaces none.
            asked = {name: getattr(request, name) for name in ("start_seq", "end_seq", "end_ts")}
            state |= {"start_seq": trim_seq, "end_seq": None, "end_ts": None, "winners": asked}
            state["tombstones"] = True
        self._keep(state, table)
        return {**_described(table, state, request), "live": not request.is_pinned}

    def newest(self, state: State, seen: Seen) -> dict[str, Any]:
        """The same rows at the newest version, for columns as they were when Spark looked.

        The version that Spark looked at is not opened again: it may have been removed long ago.
        """
        head = strandline.api.open_table(
            state["url"], storage_options=self.options_for(state["url"])
        )
        columns = columns_now(seen, state["uuid"], head)
        moved = {
            **state,
            "version": head.version,
            "start_seq": max(state["start_seq"], head.manifest.trim_seq),
            "start_ts": max(state["start_ts"], head.manifest.floor_ts),
        }
        self._keep(moved, head)
        physical = {name: column.physical_name for name, column in columns.items()}
        return {**_described(head, moved, None), "columns": physical, "live": False}

    def plan(self, state: State, part: str, filters: Sequence[Any]) -> bytes:
        """The files to read, packed: their count, numbers of each as columns, and their names."""
        table = self._table(state)
        wanted = [*understood(filters, table.manifest.schema), *_inside(state)]
        bound = bind(all_of(wanted), table.manifest.schema) if wanted else None
        plan, listed = plan_files(
            table.manifest_service, table.manifest, bound, tombstones=state["tombstones"]
        )
        files = [_part_of(found, state, part) for found in listed]
        entries = [
            split.entry
            for split in plan.splits
            if _is_cut(split.entry, state) == (part == "cut")
            and (split.zones is None or bool(split.zones.any()))
        ]
        return _packed(entries, files)

    def _table(self, state: State) -> Table:
        key = (state["url"], state["version"])
        with self._lock:
            found = self._tables.get(key)
            if found is not None:
                self._tables.move_to_end(key)
        if found is None:
            found = strandline.api.open_table(
                state["url"],
                version=state["version"],
                storage_options=self.options_for(state["url"]),
            )
            self._keep(state, found)
        if found.uuid != state["uuid"]:
            raise TableNotFound(
                f"the table at {found.url} is no longer the one that Spark opened; read it again"
            )
        return found

    def _keep(self, state: State, table: Table) -> None:
        # Nothing here asks the handle for a newer version, so it stays where it is.
        with self._lock:
            self._tables[(state["url"], state["version"])] = table
            while len(self._tables) > _KEPT:
                self._tables.popitem(last=False)


def _described(table: Table, state: State, request: ReadRequest | None) -> dict[str, Any]:
    manifest = table.manifest
    schema = manifest.schema
    time_id = manifest.config.time_column
    time = None if time_id is None else schema.by_id[time_id]
    described: dict[str, Any] = {
        "state": state,
        "root": root_of(state["url"]),
        "columns": {column.name: column.physical_name for column in schema.columns},
        "seen": seen_columns(schema),
        "time": time and {"physical": time.physical_name, "kind": time.type.name},
        "size": parts_of(manifest).size_bytes,
        "cut": _has_cut(table, state),
        "key": None if state["winners"] is None else _key(manifest),
    }
    if request is not None:
        described["schema"] = _spark_schema(table, request)
    return described


def _key(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {"physical": column.physical_name, "type": spark_type(column.type).jsonValue()}
        for column in manifest.key_columns
    ]


def _spark_schema(table: Table, request: ReadRequest) -> Any:
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - Spark's own habit

    schema = table.manifest.schema
    names = request.columns
    if names is None:
        hidden = HIDDEN_COLUMNS if request.hidden_columns else ()
        names = [*(column.name for column in schema.columns), *hidden]
    known = {**HIDDEN_COLUMNS}
    if not table.config.primary_key or request.all_rows:
        known[DELETED.name] = DELETED
    elif DELETED.name in names:
        raise InvalidInput(
            f"{DELETED.name} tells deletes from rows in the stream of changes: read with all_rows "
            "(option allRows), or as a stream. Nothing was read."
        )
    chosen = [known.get(name) or schema.column(name) for name in names]
    if len(set(names)) != len(names) or not chosen:
        raise InvalidInput("columns must name at least one column, and none twice")
    return T.StructType(
        [T.StructField(column.name, spark_type(column.type)) for column in chosen]
    ).jsonValue()


def _inside(state: State) -> list[Expression]:
    """What every row must be: above the floor and inside of what was asked for."""
    tests: list[Expression] = []
    if state["start_seq"] > 0:
        tests.append(col("_seq") >= state["start_seq"])
    if state["end_seq"] is not None:
        tests.append(col("_seq") < state["end_seq"])
    if state["start_ts"] > 0:
        tests.append(col("_ts") >= state["start_ts"])
    if state["end_ts"] is not None:
        tests.append(col("_ts") <= state["end_ts"])
    return tests


def _is_cut(entry: SegmentEntry, state: State) -> bool:
    """Whether some rows of a file may lie outside of the bounds."""
    end_seq, end_ts = state["end_seq"], state["end_ts"]
    return bool(
        entry.min_seq < state["start_seq"]
        or entry.min_ts < state["start_ts"]
        or (end_seq is not None and entry.max_seq >= end_seq)
        or (end_ts is not None and entry.max_ts > end_ts)
    )


def _has_cut(table: Table, state: State) -> bool:
    """Whether any file straddles a bound; only files near one are looked at."""
    inside = _inside(state)
    if not inside:
        return False
    outside = [~test for test in inside]
    one = outside[0] if len(outside) == 1 else Or(tuple(outside))
    bound = bind(all_of([*inside, one]), table.manifest.schema)
    plan = plan_scan(
        table.manifest_service,
        table.manifest,
        bound,
        indexes=False,
        tombstones=state["tombstones"],
    )
    return any(_is_cut(entry, state) for entry in plan.segments)


def _part_of(found: PageFiles, state: State, part: str) -> PageFiles:
    """As `_is_cut`, for all of them."""
    numbers = found.numbers
    cut = (numbers["min_seq"] < state["start_seq"]) | (numbers["min_ts"] < state["start_ts"])
    if state["end_seq"] is not None:
        cut |= numbers["max_seq"] >= state["end_seq"]
    if state["end_ts"] is not None:
        cut |= numbers["max_ts"] > state["end_ts"]
    if not cut.any():
        return found if part == "whole" else found.taken(np.flatnonzero(cut))
    return found.taken(np.flatnonzero(cut == (part == "cut")))


def _packed(entries: Sequence[SegmentEntry], files: Sequence[PageFiles]) -> bytes:
    """Sizes, times, what rows count from, windows, and what tasks compare footers with."""
    alone = [
        [entry.size_bytes for entry in entries],
        [entry.created_at for entry in entries],
        [entry.seq_base if entry.rows_are == OFFSET else entry.min_seq for entry in entries],
        [entry.window.start_ms for entry in entries],
        [entry.footer_bytes for entry in entries],
    ]
    hashes = [checksum_numbers([entry.footer_xxh64 for entry in entries])]
    blocks = [np.array(alone, dtype=np.int64)]
    names = [entry.path for entry in entries]
    for found in files:
        held = found.numbers
        columns = (held["size_bytes"], held["created_at"], held["first_seq"], found.window_starts)
        blocks.append(np.array((*columns, held["footer_bytes"]), dtype=np.int64))
        hashes.append(found.footer_hashes)
        names += found.paths
    numbers = np.concatenate(blocks, axis=1).astype(">i8").tobytes()
    footers = np.concatenate(hashes).astype(">u8").tobytes()
    return struct.pack(">i", len(names)) + numbers + footers + "\n".join(names).encode()


SOURCES: Final = Sources()
"""Shared by all sessions of the process, as the JVM is."""
