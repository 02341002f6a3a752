"""Reading a stream of rows from a place on, up to a limit, and knowing where to go on.

A position is a sequence number. A time or a distance from the tail is turned into one first, so
that whoever reads on later neither misses a row nor sees one twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.readers.request import Request
from strandline.tableformat.arguments import check_count, check_names
from strandline.tableformat.errors import BeyondTail, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.readers.scan import Scan
    from strandline.tableformat.expressions import Expression

POSITION: Final = ("_seq", "_ts")
"""Hidden columns that every read needs, whether or not the caller asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Where a read ends; None: at the tail."""

    count: int | None = None
    bytes: int | None = None
    """Of the values in memory. At least one row is given, so that every read gets on."""
    until_ts: int | None = None
    """The first row at or after this time, and all behind it, are left out."""

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "until_ts"):
            check_count(name, getattr(self, name))


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What a read gave."""

    rows: pa.Table
    next_seq: int
    """Where to go on: `read(from_seq=next_seq)`."""
    tail_seq: int
    """The sequence number that the next appended row gets, in the version that was read."""


class Snapshot:
    """One version to read from; `make_scan` gives its rows."""

    def __init__(self, make_scan: Callable[[Request], Scan], trim_seq: int, tail_seq: int) -> None:
        self._make_scan, self._trim_seq, self.tail_seq = make_scan, trim_seq, tail_seq

    def start(self, *, seq: int | None, ts: int | None, tail_offset: int | None) -> int:
        """The sequence number to begin with."""
        given = {"from_seq": seq, "from_ts": ts, "tail_offset": tail_offset}
        named = {name: value for name, value in given.items() if value is not None}
        if len(named) > 1:
            raise InvalidInput(
                f"give one of from_seq, from_ts and tail_offset, not {sorted(named)}"
            )
        for name, value in named.items():
            check_count(name, value)
        if ts is not None:
            found = self._make_scan(
                Request(columns=["_seq"], start_ts=ts, limit=1, all_rows=True)
            ).to_arrow()
            return int(found.column(0)[0].as_py()) if found.num_rows else self.tail_seq
        if tail_offset is not None:
            return max(self._trim_seq, self.tail_seq - tail_offset)
        if seq is not None and seq > self.tail_seq:
            raise BeyondTail(seq, self.tail_seq)
        return max(self._trim_seq, seq or 0)

    def read(
        self,
        start_seq: int,
        limits: ReadLimits,
        *,
        columns: Sequence[str] | None,
        filter: str | Expression | None,  # noqa: A002 - the word users expect
    ) -> Reading:
        """Rows from `start_seq` on, up to the first limit that is reached."""
        reader = _Reader(limits)
        columns = None if columns is None else check_names("columns", columns)
        wanted = None if columns is None else list(dict.fromkeys([*columns, *POSITION]))
        request = Request(
            columns=wanted,
            filter=filter,
            start_seq=start_seq,
            limit=limits.count,
            all_rows=True,
        )
        if wanted is None:
            names = self._make_scan(Request()).schema.names
            request = Request(
                columns=[*names, *POSITION],
                filter=filter,
                start_seq=start_seq,
                limit=limits.count,
                all_rows=True,
            )
            columns = names
        if limits.count == 0:
            reader.stop = start_seq
        scan = self._make_scan(request)
        assert columns is not None
        parts = [part.select(list(columns)) for part in reader.parts(scan)]
        schema = pa.schema([scan.schema.field(name) for name in columns])
        rows = pa.Table.from_batches(parts, schema=schema)
        return Reading(rows, self.tail_seq if reader.stop is None else reader.stop, self.tail_seq)


class _Reader:
    """Takes batches until a limit is reached, and knows where the first row is that was left."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self.stop: int | None = None
        """The sequence number of the first row that was not given; None: all were."""

    def parts(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        rows_left, bytes_left = self._limits.count, self._limits.bytes
        given = 0
        last_seq = None
        if rows_left == 0:
            return
        for batch in scan.to_batches():
            take = self._before_until(batch)
            if bytes_left is not None:
                sizes = np.cumsum(row_bytes(batch))
                fitting = int(np.searchsorted(sizes, bytes_left, side="right"))
                # A first row larger than the limit is given all the same.
                take = min(take, max(fitting, 0 if given else 1))
                bytes_left -= int(sizes[take - 1]) if take else 0
            if take:
                yield batch.slice(0, take)
                given += take
                last_seq = int(batch.column("_seq")[take - 1].as_py())
            if take < batch.num_rows:
                self.stop = int(batch.column("_seq")[take].as_py())
                return
        if rows_left is not None and given >= rows_left and last_seq is not None:
            self.stop = last_seq + 1

    def _before_until(self, batch: pa.RecordBatch) -> int:
        if self._limits.until_ts is None:
            return int(batch.num_rows)
        late = batch.column("_ts").to_numpy(zero_copy_only=False) >= self._limits.until_ts
        return int(late.argmax()) if late.any() else int(batch.num_rows)


def row_bytes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bytes that each row's values take in memory; nested values count by their average."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for array in batch.columns:
        kind = array.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            lengths = pc.fill_null(pc.binary_length(array), 0)
            sizes += lengths.to_numpy(zero_copy_only=False)
        elif pa.types.is_nested(kind):
            sizes += -(-array.nbytes // max(1, batch.num_rows))
        else:
            sizes += -(-kind.bit_width // 8)
    return sizes
