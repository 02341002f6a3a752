"""How the rows of one batch are spread over files: by window, shard, lateness and order.

All of it is decided here, from values, before a byte is encoded. Rows keep their place in the
batch, which becomes their sequence number: a file whose rows are not a run of the batch in its
order carries each row's place along.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat import lateness, sharding
from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.windows import MAX_WINDOWS_PER_COMMIT, split_by_window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.tableformat.config import Config
    from strandline.tableformat.lateness import Lateness, Marks
    from strandline.tableformat.schema import Schema
    from strandline.tableformat.windows import Window

MAX_SEGMENT_ROWS: Final = 1_048_576
MAX_SEGMENT_ARROW_BYTES: Final = 256 * 2**20
MAX_FILES_PER_COMMIT: Final = 4_096
"""More entries could make a manifest larger than a document may be."""
ENCODING_THREADS: Final = 2
"""pyarrow encodes without the interpreter's lock; more threads than this gained nothing."""
BATCH: Final = "batch"
LATE: Final = "late"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one segment: where they stand in the batch, and where they are stored."""

    window: Window
    shard: int
    kind: str
    rows: pa.Table
    first: int
    last: int
    offsets: Array | None
    """Each row's place in the batch; None if they are the run from `first` to `last`."""
    ts_ms: Array


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a batch, and what was found out on the way."""

    pieces: tuple[Piece, ...]
    lateness: Lateness


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that share a file, if it does not grow too large."""

    window: Window
    shard: int
    kind: str
    where: slice | Array


def most_windows(config: Config) -> int:
    """Windows that rows of one commit may touch, whatever their keys and however late they are."""
    files_each = config.shards * (1 if config.jitter_ms is None else 2)
    return max(1, min(MAX_WINDOWS_PER_COMMIT, MAX_FILES_PER_COMMIT // files_each))


def lay_out(
    rows: pa.Table,
    ts_ms: Array,
    schema: Schema,
    config: Config,
    marks: Marks,
    *,
    alone: bool = False,
) -> Layout:
    """Decide the files of a batch whose rows have their times.

    `alone`: the marks know no keys, and nobody asks for them, or for how late rows are, afterwards.
    """
    keys = shards = None
    if config.shard_by is not None and (config.shards > 1 or not alone):
        column = schema.by_id[config.shard_by]
        values = rows.column(column.name)
        keys = sharding.key_hashes(values, column.type)
        if config.shards > 1:
            shards = sharding.shards_of(values, column.type, config.shards, config.shard_hash, keys)
    if alone:
        found = lateness.only_behind(ts_ms, shards, marks, config.jitter_ms or 0)
    else:
        found = lateness.classify(ts_ms, keys, shards, marks, config.jitter_ms or 0)
    apart = None if config.jitter_ms is None else found.behind
    groups = list(_groups(ts_ms, config.window_ms, shards, apart))
    if len(groups) > MAX_FILES_PER_COMMIT:
        raise InvalidInput(
            f"the rows fall into {len(groups)} files (windows times shards), and one commit takes "
            f"{MAX_FILES_PER_COMMIT}. Nothing was written. Append fewer windows at a time."
        )
    sort_by = [schema.by_id[i].name for i in config.sort_by]
    pieces = (piece for group in groups for piece in _pieces(group, rows, ts_ms, sort_by))
    return Layout(tuple(pieces), found)


def _groups(
    ts_ms: Array, window_ms: int, shards: Array | None, behind: Array | None
) -> Iterator[_Group]:
    by_window = split_by_window(ts_ms, window_ms)
    if shards is None and behind is None:
        yield from (_Group(window, 0, BATCH, where) for window, where in by_window)
        return
    # Shard and lateness in one number of 16 bits, which numpy sorts in linear time.
    codes = np.zeros(len(ts_ms), np.uint16)
    if shards is not None:
        codes += shards.astype(np.uint16) * 2
    if behind is not None:
        codes += behind
    for window, where in by_window:
        of_rows = codes[where]
        order = np.argsort(of_rows, kind="stable")
        numbers = order + where.start if isinstance(where, slice) else where[order]
        ordered = of_rows[order]
        edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(ordered)]):
            code = int(ordered[start])
            kind = LATE if code % 2 else BATCH
            yield _Group(window, code // 2, kind, _as_run(numbers[start:stop]))


def _as_run(numbers: Array) -> slice | Array:
    """Ascending row numbers as a slice, if none is left out."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers


def _pieces(group: _Group, rows: pa.Table, ts_ms: Array, sort_by: list[str]) -> Iterator[Piece]:
    where = group.where
    if sort_by:
        where = _sorted(rows, where, sort_by)
    chosen = _take(rows, where)
    for start, stop in _cuts(chosen):
        if isinstance(where, slice):
            first, last, offsets = where.start + start, where.start + stop - 1, None
            times = ts_ms[first : last + 1]
        else:
            offsets = where[start:stop]
            first, last = int(offsets.min()), int(offsets.max())
            times = ts_ms[offsets]
        part = chosen.slice(start, stop - start)
        yield Piece(group.window, group.shard, group.kind, part, first, last, offsets, times)


def _take(rows: pa.Table, where: slice | Array) -> pa.Table:
    if isinstance(where, slice):
        return rows.slice(where.start, where.stop - where.start)
    return rows.take(pa.array(where))


def _sorted(rows: pa.Table, where: slice | Array, sort_by: list[str]) -> slice | Array:
    """The same rows in the order of the columns, nulls last; equal ones stay as they came."""
    columns = _take(rows.select(sort_by), where)
    keys = [(name, "ascending") for name in sort_by]
    order = pc.sort_indices(columns, sort_keys=keys).to_numpy().astype(np.int64)
    if bool((order[1:] > order[:-1]).all()):
        return where
    placed: Array = order + where.start if isinstance(where, slice) else where[order]
    return placed


def _cuts(rows: pa.Table) -> list[tuple[int, int]]:
    """Where to cut rows into files: equal parts, so that all threads finish together."""
    parts = max(
        -(-rows.num_rows // MAX_SEGMENT_ROWS), -(-rows.nbytes // MAX_SEGMENT_ARROW_BYTES), 1
    )
    if parts > 1:
        parts += parts % ENCODING_THREADS
    parts = min(parts, rows.num_rows)
    edges = [rows.num_rows * i // parts for i in range(parts + 1)]
    return list(pairwise(edges))
