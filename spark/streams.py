"""Streams over tables, for Spark's own scan: where batches begin and end, and what each reads.

Offsets and limits are those of the Python data source, so a query may go on with either.
"""

from __future__ import annotations

import importlib
import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.spark.request import from_options
from strandline.spark.sources import SOURCES
from strandline.tableformat.errors import InvalidInput, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.spark.sources import State


class Streams:
    """The running streams of this process, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._running: dict[str, tuple[Any, dict[str, Any]]] = {}

    def start(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Open a table for a stream; the answer is what the JVM has to know of it."""
        url, request = from_options(options)
        if request.is_pinned:
            raise InvalidInput(
                "a stream follows the newest version: leave versionAsOf and timestampAsOf out, and "
                "say where to begin with startingVersion or startingTimestamp"
            )
        # Of a keyed table, a stream is that of its changes: a row that comes is never taken back.
        info = SOURCES.open(url, replace(request, all_rows=True))
        reader = _offsets({**options, "path": url}, SOURCES.options_for(url))
        with self._lock:
            number = str(next(self._numbers))
            self._running[number] = (reader, info)
        return {**info, "stream": number}

    def latest(self, number: str, start: dict[str, Any] | None) -> dict[str, Any] | None:
        """Where the next batch ends; None: there is nothing to begin with."""
        reader, _ = self._running[number]
        settles = reader.must_settle
        first = reader.initialOffset() if start is None else start
        end: dict[str, Any] = reader.latestOffset(first)
        return None if start is None and end == first and not settles else end

    def prepare(self, number: str) -> None:
        """What is there now is all that a run with availableNow reads."""
        self._running[number][0].prepareForTriggerAvailableNow()

    def batch(
        self, number: str, start: dict[str, Any] | None, end: dict[str, Any]
    ) -> dict[str, Any]:
        """The rows between two offsets, at the newest version: compaction changes none of them."""
        reader, info = self._running[number]
        state: State = info["state"]
        first = reader.initialOffset() if start is None else start
        low, high = state["start_seq"], state["end_seq"]
        stop = int(end["seq"])
        # Of a first batch that runs again: a beginning at the tail has moved on meanwhile.
        begin = min(int(first["seq"]), stop)
        if first["table"] != state["uuid"]:
            raise InvalidInput(
                f"{state['url']} is another table than the one this query has read so far; nothing "
                "was read. Start the query with a new checkpoint."
            )
        bounds = {
            "start_seq": max(low, begin),
            "end_seq": stop if high is None else min(stop, high),
        }
        newest = SOURCES.newest({**state, **bounds}, info["seen"])
        return {**newest, "schema": info["schema"]}

    def stop(self, number: str) -> None:
        """Forget a stream."""
        with self._lock:
            self._running.pop(number, None)


def _offsets(options: Mapping[str, str], storage_options: Mapping[str, Any] | None) -> Any:
    try:
        rows = importlib.import_module("strandline.spark.source_rows")
        reading = importlib.import_module("strandline.spark.stream_read")
        parsing = importlib.import_module("strandline.spark.source_options")
    except ModuleNotFoundError:
        raise StrandlineError("streams are not possible in this version of strandline") from None
    settings = parsing.read_options(options, parsing.Sealed(storage_options))
    return reading.StreamReader(rows.Rows(settings, None, all_rows=True))


STREAMS: Final = Streams()
"""Shared by all sessions of the process."""
