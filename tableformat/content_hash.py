"""A hash of what rows say, whatever file, chunks or encoding they came from.

Two tables have the same hash if and only if (but for chance) they have the same columns with the
same values in the same order: NaN with its very bits, -0.0 apart from 0.0, null apart from
everything. What stands in the place of a null does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from strandline.tableformat.arrow_numbers import bools, validity

if TYPE_CHECKING:
    from numpy.typing import NDArray


def content_hash(rows: pa.Table) -> str:
    """XXH64 over all columns, by name, as 16 hex digits."""
    hasher = xxhash.xxh64()
    for name in sorted(rows.column_names):
        hasher.update(name.encode())
        column = rows.column(name)
        hasher.update(str(column.type).encode())
        _feed(hasher, column.combine_chunks())
    return str(hasher.hexdigest())


def _feed(hasher: Any, values: pa.Array | pa.ChunkedArray) -> None:
    if isinstance(values, pa.ChunkedArray):
        # Text beyond 2 GiB does not fit one array.
        for chunk in values.chunks:
            _feed(hasher, chunk)
        return
    hasher.update(len(values).to_bytes(8, "little"))
    if values.null_count:
        hasher.update(np.packbits(_bools(values.is_valid())))
    kind = values.type
    if pa.types.is_map(kind):
        values = _as_list(values)
        kind = values.type
    if pa.types.is_struct(kind):
        for child in values.flatten():
            _feed(hasher, child)
    elif pa.types.is_list(kind):
        _feed(hasher, pc.fill_null(values.value_lengths(), 0))
        _feed(hasher, values.flatten())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _feed_bytes(hasher, values)
    elif pa.types.is_boolean(kind):
        hasher.update(np.packbits(_bools(values)))
    else:
        hasher.update(_fixed(values))


def _feed_bytes(hasher: Any, values: pa.Array) -> None:
    filled = pc.fill_null(values, _nothing(values.type)) if values.null_count else values
    lengths = pc.binary_length(filled)
    hasher.update(_fixed(lengths))
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1]
    if data is not None and len(ends):
        hasher.update(memoryview(data)[int(ends[0]) : int(ends[-1])])


def _nothing(kind: pa.DataType) -> pa.Scalar:
    """An empty text; made of buffers, since pyarrow loads pandas to convert a Python value."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]


def _fixed(values: pa.Array) -> NDArray[np.uint8]:
    """Values of one width, zero where null, without padding."""
    width = values.type.bit_width // 8
    buffer = values.buffers()[1]
    if buffer is None:
        return np.empty(0, np.uint8)
    data: NDArray[np.uint8] = np.frombuffer(
        buffer, np.uint8, len(values) * width, values.offset * width
    )
    if values.null_count:
        data = data.copy()
        data.reshape(-1, width)[~_bools(values.is_valid())] = 0
    return data


def _bools(values: pa.Array) -> NDArray[np.bool_]:
    """Truth values, false where null."""
    return bools(values) & validity(values) if values.null_count else bools(values)


def _as_list(values: pa.Array) -> pa.Array:
    """A map as the list of its entries."""
    entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
    offsets = pa.array(values.offsets.to_numpy(zero_copy_only=False), pa.int32())
    mask = pa.array(~_bools(values.is_valid())) if values.null_count else None
    return pa.ListArray.from_arrays(offsets, entries, mask=mask)
