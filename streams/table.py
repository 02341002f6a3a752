"""The stream table: what users hold in their hands."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import pyarrow as pa

from strandline.streams.log_files import patiently, read_log
from strandline.streams.open_logs import OpenLogs
from strandline.streams.row_codec import FEW_ROWS, RowCodec
from strandline.tableformat.arguments import check_count
from strandline.tableformat.errors import CorruptTable, InvalidInput, StrandlineError
from strandline.tableformat.manifest import STREAM, WRITER_FEATURES, check_writable
from strandline.tableformat.safe_names import check_name
from strandline.tableformat.stream_frames import read_frames
from strandline.tableformat.stream_layout import layout_from_config, shard_folder, user_of_log
from strandline.tableformat.timestamps import TS_LIMIT_MS
from strandline.tableformat.windows import Window, parse_prefix, window_of
from strandline.writers.processes import look_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from strandline.catalog.chain import Chain, Snapshot
    from strandline.streams.row_codec import FewRows
    from strandline.tableformat.config import Config
    from strandline.tableformat.manifest import Manifest
    from strandline.tableformat.stream_frames import Frame

USER: Final = "_user"
_WRITER_FEATURES: Final = WRITER_FEATURES | {STREAM}
_DELETE_BATCH: Final = 1_000
_PLACES: Final = 8_192


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of the rows of one put."""

    rows: int
    """Rows that were taken."""
    dropped: int
    """Rows that had outlived the table's TTL already."""


@dataclass(frozen=True, slots=True)
class StreamExpiry:
    """What an expiry removed."""

    cutoff_ms: int
    """Windows that ended at this time or before are gone."""
    windows: tuple[str, ...]
    closed_logs: int
    """Logs that this handle had open under them."""


_result: Final = lru_cache(maxsize=1024)(PutResult)
"""Nearly all puts end alike, and a frozen record takes its time to make."""


class StreamTable:
    """Short-lived rows of many users at a URL; safe to share between threads.

    Rows wait in small buffers until those are full, `flush` is called, or the table is closed.
    This handle sees its own rows at once, others see them when they are flushed.
    """

    def __init__(self, chain: Chain, head: Snapshot) -> None:
        self._chain, self._manifest = chain, head.manifest
        self._storage, self._runtime = chain.storage, chain.runtime
        self._layout = layout_from_config(head.manifest.config, head.manifest.schema)
        if head.manifest.config.ttl_ms is None:
            raise CorruptTable("a stream table has no TTL")
        self._ttl_ms: int = head.manifest.config.ttl_ms
        self._codec = RowCodec(head.manifest, self._layout)
        self._logs = OpenLogs(self._storage, self._runtime, head.manifest.schema.id)
        self._places: dict[tuple[str, int], str] = {}
        """Where rows of a user and a window go: producers come back to the same few thousand."""
        self._lock = threading.Lock()
        self._closed: StrandlineError | None = None
        self._may_write = set(head.manifest.writer_features) <= _WRITER_FEATURES
        look_after(self)

    def __repr__(self) -> str:
        return f"<strandline.StreamTable {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Somebody let go of the handle without a word; its rows are nowhere else.
        with suppress(StrandlineError, AttributeError):
            self.close()

    # --- what it is ---

    @property
    def url(self) -> str:
        """Where the table lies."""
        return self._storage.url

    @property
    def uuid(self) -> str:
        """The table's identity, given when it was created."""
        return self._manifest.table_uuid

    @property
    def schema(self) -> pa.Schema:
        """The columns, as reads return them."""
        return self._manifest.schema.arrow

    @property
    def config(self) -> Config:
        """How the table stamps and keeps its rows."""
        return self._manifest.config

    @property
    def manifest(self) -> Manifest:
        """All metadata: there is one version, because rows never change it."""
        return self._manifest

    @property
    def row_id(self) -> str:
        """The column that names a row."""
        return self._codec.row_id.name

    @property
    def shards(self) -> int:
        """Into how many folders users are spread."""
        return self._layout.shards

    # --- writing ---

    def put(self, user: str, rows: Any, *, flush: bool = False) -> PutResult:
        """Add rows of a user, given as for `Table.append`; a known row id is replaced.

        `flush`: return when they are in the store, and not only in this process's buffer.
        """
        if not self._may_write:
            check_writable(self._manifest, _WRITER_FEATURES)
        if type(user) is not str:
            check_name(user, "a user's name")
        now_ms = self._runtime.now_ms()
        floor_ms = now_ms - self._ttl_ms
        if isinstance(rows, list) and len(rows) <= FEW_ROWS:
            few = self._codec.few(rows, now_ms, floor_ms)
            if few is not None:
                return self._put_few(user, few, len(rows), flush=flush)
        check_name(user, "a user's name")
        framed = self._codec.frames(rows, now_ms, floor_ms)
        with self._lock:
            self._check_open()
            for window, frame in framed.frames:
                self._logs.add(self._layout.log_path(window, user), frame)
            if flush:
                self._logs.flush()
        return _result(framed.rows, framed.dropped)

    def _put_few(self, user: str, few: FewRows, given: int, *, flush: bool) -> PutResult:
        kept = 0
        with self._lock:
            if self._closed is not None:
                raise self._closed
            for start_ms, times, rows in few:
                path = self._places.get((user, start_ms)) or self._place(user, start_ms)
                self._logs.add_rows(path, times, rows)
                kept += len(times)
            if flush:
                self._logs.flush()
        if not few:
            check_name(user, "a user's name")
        return _result(kept, given - kept)

    def _place(self, user: str, start_ms: int) -> str:
        window = window_of(start_ms, self.config.window_ms)
        path = self._layout.log_path(window, check_name(user, "a user's name"))
        if len(self._places) >= _PLACES:
            self._places.clear()
        self._places[user, start_ms] = path
        return path

    def delete(self, user: str, ids: Any, *, flush: bool = False) -> int:
        """End the life of a user's rows by their ids; gives how many of the ids were alive.

        The delete stands in the window of each row, so it lives exactly as long as the row.
        """
        check_writable(self._manifest, _WRITER_FEATURES)
        check_name(user, "a user's name")
        if isinstance(ids, (str, bytes)):
            raise InvalidInput("ids is a list of row ids, not one of them. Nothing was deleted.")
        wanted = set(self._codec.ids(ids).to_pylist())
        if None in wanted:
            raise InvalidInput("ids holds None, and no row has it for an id. Nothing was deleted.")
        now_ms = self._runtime.now_ms()
        alive: set[Any] = set()
        with self._lock:
            self._check_open()
            for window in self._windows(now_ms - self._ttl_ms, TS_LIMIT_MS):
                path = self._layout.log_path(window, user)
                rows = self._codec.alive([self._frames(path)])
                found = wanted.intersection(rows.column(self.row_id).to_pylist())
                if found:
                    alive |= found
                    self._logs.add(path, self._codec.delete_frame(list(found), now_ms))
            if flush:
                self._logs.flush()
        return len(alive)

    def flush(self) -> None:
        """Store what waits in buffers: afterwards it survives this process, and others see it."""
        with self._lock:
            self._check_open()
            self._logs.flush()

    def close(self) -> None:
        """Store what waits in buffers and let go of all files; closing twice is fine."""
        with self._lock:
            if self._closed is None:
                self._logs.close()
                self._closed = InvalidInput("this stream table was closed; open it again")

    def disown(self, error: StrandlineError) -> None:
        """In a forked child: the buffers are the parent's, which will store them itself."""
        self._lock = threading.Lock()
        if self._closed is None:
            self._closed = error
            self._logs.drop(lambda _: True)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    # --- reading ---

    def latest(
        self, user: str, limit: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """A user's rows, newest first: of each row id the newest, at most `limit` of them."""
        check_count("limit", limit)
        rows = self._alive(user, None, None)
        newest_first = rows.take(pa.array(np.arange(rows.num_rows)[::-1]))
        return self._chosen(newest_first.slice(0, limit), columns)

    def range(
        self,
        user: str,
        start_ts: int | None = None,
        end_ts: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """A user's rows between two times (ms, both inclusive), oldest first.

        Of each row id it is the newest row within these times.
        """
        for name, value in (("start_ts", start_ts), ("end_ts", end_ts)):
            if value is not None and type(value) is not int:
                raise InvalidInput(f"{name} must be milliseconds since 1970, not {value!r}")
        return self._chosen(self._alive(user, start_ts, end_ts), columns)

    def _alive(self, user: str, start_ts: int | None, end_ts: int | None) -> pa.Table:
        check_name(user, "a user's name")
        # Expired rows are hidden by the clock: nobody has to remove them first.
        floor = self._runtime.now_ms() - self._ttl_ms
        first = floor if start_ts is None else max(floor, start_ts)
        last = TS_LIMIT_MS if end_ts is None else end_ts
        with self._lock:
            self._check_open()
            paths = [self._layout.log_path(w, user) for w in self._windows(first, last)]
            logs = [list(self._frames(path)) for path in paths]
        return self._codec.alive(logs, first, last)

    def _frames(self, path: str) -> Iterator[Frame]:
        """Frames of a log: those in the store, then those that wait here."""
        yield from read_log(self._storage, self._runtime, path)
        yield from read_frames(self._logs.waiting(path), path)

    def _windows(self, first_ms: int, last_ms: int) -> list[Window]:
        """Windows that may hold rows between two times, by their names and by what waits here."""
        waiting = {path.partition("/")[0] for path in self._logs.paths()}
        names = waiting.union(patiently(self._runtime, lambda: [*self._storage.folders("")]))
        windows = sorted(window for window in map(_window, names) if window is not None)
        return [w for w in windows if w.start_ms <= last_ms and w.end_ms > first_ms]

    def _chosen(self, rows: pa.Table, columns: Sequence[str] | None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        unknown = [name for name in names if name not in rows.column_names]
        if unknown or isinstance(columns, str):
            raise InvalidInput(
                f"there is no column {(unknown or [columns])[0]!r}; the columns are "
                f"{', '.join(rows.column_names)}"
            )
        return rows.select(names)

    # --- all users ---

    def users(self) -> list[str]:
        """Everybody who has a log in a window that has not expired, in order of their names."""
        found: set[str] = set()
        for shard in range(self._layout.shards):
            found |= self._logs_of_shard(shard).keys()
        return sorted(found)

    def to_batches(self, shard: int | None = None) -> Iterator[pa.RecordBatch]:
        """The living rows of all users, or of one shard's, user after user, with `_user`, `_ts`.

        Users are read one after the other: there is no common moment for all of them.
        """
        shards = range(self._layout.shards) if shard is None else [shard]
        schema = all_users_schema(self.schema)
        for number in shards:
            for user in sorted(self._logs_of_shard(number)):
                rows = self._alive(user, None, None)
                names = pa.array([user] * rows.num_rows, pa.string())
                columns = [names, *rows.columns]
                yield from pa.Table.from_arrays(columns, schema=schema).to_batches()

    def _logs_of_shard(self, shard: int) -> dict[str, list[str]]:
        """Each user of a shard, with the folders of the windows that hold a log of theirs."""
        logs: dict[str, list[str]] = {}
        floor = self._runtime.now_ms() - self._ttl_ms
        with self._lock:
            self._check_open()
            open_logs = self._logs.paths()
            windows = self._windows(floor, TS_LIMIT_MS)
        for window in windows:
            folder = shard_folder(window, shard)
            for path in {*open_logs, *self._stored_below(folder)}:
                if path.startswith(folder):
                    user = user_of_log(path.removeprefix(folder))
                    if user is not None:
                        logs.setdefault(user, []).append(window.prefix)
        return logs

    def _stored_below(self, folder: str) -> list[str]:
        return patiently(self._runtime, lambda: [path for path, _ in self._storage.walk(folder)])

    # --- expiry ---

    def has_logs_before(self, ts_ms: int) -> bool:
        """Whether a window ended at this time or before; the first one found is enough."""
        windows = map(_window, self._storage.folders(""))
        return any(window is not None and window.end_ms <= ts_ms for window in windows)

    def expire(self, now: int | None = None) -> StreamExpiry:
        """Remove the windows whose rows have all outlived the TTL: by names, whatever is inside.

        `now` (ms) is trusted; by default it is the earlier of this machine's and the store's time.
        """
        if now is not None and (type(now) is not int or now < 0):
            raise InvalidInput(f"now must be milliseconds since 1970, not {now!r}")
        check_writable(self._manifest, _WRITER_FEATURES)
        names = patiently(self._runtime, lambda: [*self._storage.folders("")])
        if now is None:
            now = min(self._runtime.now_ms(), self._storage.clock_ms())
        cutoff = now - self._ttl_ms
        windows = [window for window in map(_window, names) if window is not None]
        expired = sorted(window.prefix for window in windows if window.end_ms <= cutoff)
        with self._lock:
            self._check_open()
            closed = self._logs.drop(lambda path: _ended(path, cutoff))
        for prefix in expired:
            self._remove(prefix)
        return StreamExpiry(cutoff, tuple(expired), closed)

    def _remove(self, prefix: str) -> None:
        paths = [path for path, _ in self._storage.walk(f"{prefix}/")]
        for start in range(0, len(paths), _DELETE_BATCH):
            self._storage.delete(paths[start : start + _DELETE_BATCH])
        self._storage.remove_empty_folders(f"{prefix}/")


def all_users_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of reads over all users."""
    user, ts = pa.field(USER, pa.string()), pa.field("_ts", pa.int64())
    return pa.schema([user, *schema, ts])


def _window(name: str) -> Window | None:
    """The window of a folder's name; None for a folder that is none."""
    try:
        return parse_prefix(name)
    except CorruptTable:
        return None


def _ended(path: str, cutoff_ms: int) -> bool:
    return parse_prefix(path.partition("/")[0]).end_ms <= cutoff_ms
