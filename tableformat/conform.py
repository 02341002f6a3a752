"""Arrow arrays into the exact type of a column, or an error that names the first bad value.

Only conversions that keep every value are made, and each rule is spelled out here, because
pyarrow's own casts do not promise that: they take a naive timestamp for UTC, and (version 26)
lose the elements of list views.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat import types
from strandline.tableformat.arrow_numbers import offset_buffer
from strandline.tableformat.damage import check_valid
from strandline.tableformat.errors import InvalidRow
from strandline.tableformat.misfits import (
    NULL_REFUSED,
    RowsOf,
    TooLarge,
    first_failure,
    first_true,
    first_value,
    in_halves,
    moved,
    shown_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.types import ColumnType, Field

INT32_MAX: Final = (1 << 31) - 1
"""Arrow's plain strings, binaries and lists count bytes and elements with 32 bits."""


# --- whole columns ----------------------------------------------------------------------------


def conform_column(given: pa.ChunkedArray, kind: ColumnType, field: str) -> pa.ChunkedArray:
    """The column in the Arrow type of `kind`; chunks that have it already are not copied."""
    if len(given) == 0:
        return pa.chunked_array([], types.to_arrow(kind))
    chunks = given.chunks
    out: list[pa.Array] = []
    row, no_row_to_blame = 0, None
    for chunk in chunks:
        try:
            check_valid(chunk, field)
            out += in_halves(len(chunk), _part_of(chunk, kind, field), field)
        except InvalidRow as error:
            if error.row is not None:
                raise moved(error, row) from None
            no_row_to_blame = error  # a wrong type, all null so far: a later chunk has the row
        row += len(chunk)
    if no_row_to_blame is not None:
        raise no_row_to_blame
    if len(out) == len(chunks) and all(map(operator.is_, out, chunks)):
        return given
    return pa.chunked_array(out, types.to_arrow(kind))


def _part_of(chunk: pa.Array, kind: ColumnType, field: str) -> Callable[[int, int], pa.Array]:
    def part(start: int, stop: int) -> pa.Array:
        whole = stop - start == len(chunk)
        return conform(chunk if whole else chunk.slice(start, stop - start), kind, field)

    return part


# --- one array --------------------------------------------------------------------------------


def conform(array: pa.Array, kind: ColumnType, field: str) -> pa.Array:
    """The array in the Arrow type of `kind`, itself where it has that type already.

    Nulls pass: whether the column may hold them is the caller's question. Inside nested values
    it is answered here.
    """
    source, target = array.type, types.to_arrow(kind)
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(source):
        return conform(_decoded(array), kind, field)
    if pa.types.is_run_end_encoded(source):
        return conform(pc.run_end_decode(array), kind, field)
    if source == target and not kind.is_nested:
        return array
    return _RULES[kind.name](array, kind, target, field)


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    values = array.dictionary
    for is_text, large in (
        (_is_text, pa.large_string()),
        (_is_bytes, pa.large_binary()),
    ):
        if is_text(values.type):  # decoding repeats values: the sum may need 64-bit offsets
            values = values.cast(large)
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    plain = kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    return plain or bool(pa.types.is_fixed_size_binary(kind))


def _refused(array: pa.Array, kind: ColumnType, field: str, hint: str = "") -> InvalidRow:
    return InvalidRow(
        first_value(array), field, f"the data is {array.type} and the column is {kind}{hint}"
    )


def _cast(array: pa.Array, target: pa.DataType, field: str, reason: str) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        row = first_failure(len(array), lambda a, b: array.slice(a, b - a).cast(target))
        raise InvalidRow(row, field, f"{shown_at(array, row)} {reason}") from None


def _bool(array: pa.Array, kind: ColumnType, _: pa.DataType, field: str) -> pa.Array:
    raise _refused(array, kind, field)


def _integer(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    if not pa.types.is_integer(array.type):
        raise _refused(array, kind, field)
    low, high = types.INTEGER_RANGES[kind.name]
    return _cast(array, target, field, f"does not fit {kind}: it holds {low} to {high}")


def _floating(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    source = array.type
    if pa.types.is_floating(source):
        out = array.cast(target, safe=False)
        if source.bit_width > target.bit_width:
            same = pc.equal(out.cast(source), array)
            if not pc.all(same, min_count=0).as_py():
                row = first_true(pc.invert(pc.or_(same, pc.is_nan(array))))
                if row >= 0:
                    raise _inexact(array, row, kind, field)
        return out
    if not pa.types.is_integer(source):
        raise _refused(array, kind, field)
    try:
        return array.cast(target)
    except pa.ArrowInvalid:  # beyond 2^53 (2^24): some integers are exact there, most are not
        wrong = ~_exact_in_float(array, mantissa_bits=53 if kind.name == "float64" else 24)
        if wrong.any():
            raise _inexact(array, int(wrong.argmax()), kind, field) from None
        return array.cast(target, safe=False)


def _inexact(array: pa.Array, row: int, kind: ColumnType, field: str) -> InvalidRow:
    return InvalidRow(row, field, f"{shown_at(array, row)} is not exactly a {kind}: round it first")


def _exact_in_float(array: pa.Array, mantissa_bits: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each integer, from its lowest set bit to its highest, fits the mantissa."""
    plain = array.fill_null(0)
    wide = np.frombuffer(plain.buffers()[1], str(plain.type))[plain.offset :][: len(plain)]
    bits = wide.astype(np.uint64)  # negative numbers wrap around: two's complement
    size = np.where(wide < 0, ~bits + np.uint64(1), bits)
    lowest = size & (~size + np.uint64(1))
    exact: np.ndarray[Any, np.dtype[np.bool_]]
    exact = ((size >> np.uint64(mantissa_bits)) < lowest) | (size == 0)
    return exact


def _decimal(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    if pa.types.is_integer(array.type):
        # pyarrow wants room for every 64-bit integer first; the second cast looks at the values.
        digits = 20 + kind.scale
        narrow = digits <= types.MAX_DECIMAL_PRECISION
        array = array.cast((pa.decimal128 if narrow else pa.decimal256)(digits, kind.scale))
    elif not pa.types.is_decimal(array.type):
        raise _refused(array, kind, field)
    return _cast(array, target, field, f"does not fit {kind} without rounding")


def _date(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    if not pa.types.is_date64(array.type):
        raise _refused(array, kind, field)
    whole = array.cast(pa.int64())
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        row = first_failure(len(array), lambda a, b: array.slice(a, b - a).cast(target))
        raise InvalidRow(
            row, field, f"{whole[row].as_py()} ms since 1970 is not a whole day"
        ) from None


def _timestamp(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    source = array.type
    if not pa.types.is_timestamp(source):
        raise _refused(array, kind, field)
    if source.tz and not target.tz:
        hint = ": drop the zone first (in pyarrow: pc.local_timestamp), or use timestamptz"
        raise _refused(array, kind, field, hint)
    if target.tz and not source.tz:
        hint = ": say which zone it is in first (in pyarrow: pc.assume_timezone(x, 'UTC'))"
        raise _refused(array, kind, field, hint)
    return _cast(array, target, field, f"does not fit {kind}: it holds whole microseconds (64 bit)")


def _text(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    if not _is_text(array.type):
        raise _refused(array, kind, field)
    return _narrowed(array.cast(pa.large_string()), target)


def _binary(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    if not _is_bytes(array.type):
        raise _refused(array, kind, field)
    return _narrowed(array.cast(pa.large_binary()), target)


def _narrowed(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A large string or binary array with 32-bit offsets, over the same bytes.

    pyarrow's cast looks at the offsets of the whole buffer, so it refuses small slices of it.
    """
    if len(array) == 0:
        return pa.nulls(0, target)
    offsets = offset_buffer(array)
    start, stop = int(offsets[0]), int(offsets[-1])
    if stop - start > INT32_MAX:
        raise TooLarge
    validity, _, data = array.buffers()
    lead = array.offset % 8  # the validity bits are cut at a whole byte
    narrow = np.zeros(lead + len(offsets), np.int32)
    np.subtract(offsets, start, out=narrow[lead:], casting="unsafe")
    return pa.Array.from_buffers(
        target,
        len(array),
        [
            validity and validity.slice(array.offset // 8),
            pa.py_buffer(narrow),
            data and data.slice(start, stop - start),
        ],
        offset=lead,
    )


# --- nested arrays ----------------------------------------------------------------------------


def _list(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    source = array.type
    if not (
        pa.types.is_list(source)
        or pa.types.is_large_list(source)
        or pa.types.is_fixed_size_list(source)
        or pa.types.is_list_view(source)
        or pa.types.is_large_list_view(source)
    ):
        raise _refused(array, kind, field)
    offsets = _element_offsets(array)
    (element,) = kind.children
    with RowsOf(offsets):
        values = _member(array.flatten(), element, field)
    if source.equals(target, check_metadata=True):
        return array
    return pa.ListArray.from_arrays(offsets32(offsets), values, type=target, mask=_null_mask(array))


def _map(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    source = array.type
    if not pa.types.is_map(source):
        raise _refused(array, kind, field)
    entries = pa.struct([source.key_field, source.item_field])
    # Only lists can be flattened; a map is a list of entries under another name.
    as_list = pa.Array.from_buffers(
        pa.list_(entries),
        len(array),
        array.buffers()[:2],
        offset=array.offset,
        children=[pa.StructArray.from_arrays([array.keys, array.items], fields=list(entries))],
    )
    offsets = _element_offsets(as_list)
    key, value = kind.children
    with RowsOf(offsets):
        given_keys, given_values = as_list.flatten().flatten()
        keys = _member(given_keys, key, field)
        values = _member(given_values, value, field)
    if source.equals(target, check_metadata=True):
        return array
    return pa.MapArray.from_arrays(
        offsets32(offsets), keys, values, type=target, mask=_null_mask(array)
    )


def _struct(array: pa.Array, kind: ColumnType, target: pa.DataType, field: str) -> pa.Array:
    source = array.type
    if not pa.types.is_struct(source):
        raise _refused(array, kind, field)
    names = [source.field(i).name for i in range(source.num_fields)]
    known = {child.name for child in kind.children}
    for name in names:
        if name not in known or names.count(name) > 1:
            reason = "twice in the data" if name in known else f"not a field of {kind}"
            raise InvalidRow(first_value(array), f"{field}.{name}", f"it is {reason}")
    given = dict(zip(names, array.flatten(), strict=True))
    missing = pa.nulls(len(array))
    members = [
        _member(given.get(child.name, missing), child, field, parents=array)
        for child in kind.children
    ]
    if source.equals(target, check_metadata=True):
        return array
    return pa.StructArray.from_arrays(members, fields=list(target), mask=_null_mask(array))


def _member(array: pa.Array, child: Field, field: str, parents: pa.Array | None = None) -> pa.Array:
    path = f"{field}.{child.name}"
    out = conform(array, child.type, path)
    if not child.nullable and out.null_count:
        wrong = out.is_null()
        if parents is not None and parents.null_count:
            wrong = pc.and_(wrong, parents.is_valid())
        row = first_true(wrong)
        if row >= 0:
            raise InvalidRow(row, path, NULL_REFUSED)
    return out


def _element_offsets(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where each row's elements begin once they are flattened, which leaves out null rows."""
    lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
    counts = np.frombuffer(lengths.buffers()[1], np.int64, len(lengths), lengths.offset * 8)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def offsets32(offsets: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Offsets as Arrow's plain lists want them."""
    if offsets[-1] > INT32_MAX:
        raise TooLarge
    narrow = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.int32(), len(offsets), [None, narrow])


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


_RULES: Final[dict[str, Callable[[pa.Array, ColumnType, pa.DataType, str], pa.Array]]] = {
    "bool": _bool,
    **dict.fromkeys(types.INTEGER_RANGES, _integer),
    "float32": _floating,
    "float64": _floating,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "string": _text,
    "binary": _binary,
    "list": _list,
    "map": _map,
    "struct": _struct,
}
