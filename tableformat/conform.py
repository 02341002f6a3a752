"""Arrow arrays into the exact type of a column, or an error that names the first bad value.

Only conversions that keep every value are made, and each rule is spelled out here, because
pyarrow's own casts do not promise that: they take a naive timestamp for UTC, and (version 26)
lose the elements of list views. The row in an error is the index in the array at hand; whoever
cut that array out of something larger moves it to the larger thing's numbering.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat import types
from strandline.tableformat.errors import InvalidRow, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.tableformat.types import ColumnType, Field

INT32_MAX: Final = (1 << 31) - 1
"""Arrow's plain strings, binaries and lists count bytes and elements with 32 bits."""

_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60


class TooLarge(StrandlineError):
    """An array's strings or lists need more than 32-bit offsets; its halves may not."""


# --- whole columns ----------------------------------------------------------------------------


def conform_column(given: pa.ChunkedArray, kind: ColumnType, field: str) -> pa.ChunkedArray:
    """The column in the Arrow type of `kind`; chunks that have it already are not copied."""
    chunks = given.chunks
    out: list[pa.Array] = []
    row = 0
    for chunk in chunks:
        try:
            check_valid(chunk, field)
            out += in_halves(len(chunk), _part_of(chunk, kind, field), field)
        except InvalidRow as error:
            raise moved(error, row) from None
        row += len(chunk)
    if len(out) == len(chunks) and all(new is old for new, old in zip(out, chunks, strict=True)):
        target = types.to_arrow(kind)
        return given if given.type == target else pa.chunked_array(out, target)
    return pa.chunked_array(out, types.to_arrow(kind))


def _part_of(chunk: pa.Array, kind: ColumnType, field: str) -> Callable[[int, int], pa.Array]:
    def part(start: int, stop: int) -> pa.Array:
        whole = stop - start == len(chunk)
        return conform(chunk if whole else chunk.slice(start, stop - start), kind, field)

    return part


def in_halves(
    length: int, convert: Callable[[int, int], pa.Array], field: str, start: int = 0
) -> list[pa.Array]:
    """`convert(start, stop)` of the whole, or of halves where 32-bit offsets do not suffice."""
    try:
        return [convert(start, start + length)]
    except TooLarge:
        if length == 1:
            raise InvalidRow(start, field, "one value is larger than 2 GiB") from None
    except InvalidRow as error:
        raise moved(error, start) from None
    half = length // 2
    return [
        *in_halves(half, convert, field, start),
        *in_halves(length - half, convert, field, start + half),
    ]


def moved(error: InvalidRow, rows: int) -> InvalidRow:
    """The same error in the numbering of something that has `rows` rows in front."""
    row = None if error.row is None else error.row + rows
    return InvalidRow(row, error.field, error.reason)


# --- finding and showing the bad value --------------------------------------------------------


def first_failure(length: int, attempt: Callable[[int, int], object]) -> int:
    """The first index at which `attempt(start, stop)` fails, given that the whole fails.

    Conversions are vectorised and do not say where they stopped. Halving finds the place for
    about the price of one more conversion.
    """
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(low, middle)
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError, LookupError):
            high = middle
        else:
            low = middle
    return low


def shown(value: object) -> str:
    """A value for an error message: short, whatever it is."""
    return _SHOWN.repr(value)


def _shown_at(array: pa.Array, row: int) -> str:
    if pa.types.is_timestamp(array.type):  # its Python form may not exist, or need pandas
        return f"{array[row].value} {array.type.unit} since 1970"
    return shown(array[row].as_py())


def first_true(mask: pa.Array) -> int:
    """The index of the first true value; -1 where there is none."""
    index: int = pc.index(mask, pa.scalar(value=True)).as_py()
    return index


def _first_value(array: pa.Array) -> int | None:
    row = first_true(array.is_valid())
    return None if row < 0 else row


# --- damaged arrays ---------------------------------------------------------------------------

_OFFSET_TYPES: Final[dict[Any, type[np.signedinteger[Any]]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}


def check_valid(array: pa.Array, field: str) -> None:
    """Refuse an array that breaks Arrow's own rules: text that is not UTF-8, wild offsets.

    Such arrays come through the C interface or unchecked casts. Written to a file they would
    break every reader. Plain text gets a test of its own because Arrow's takes six times as long.
    """
    kind = array.type
    try:
        if isinstance(kind, pa.BaseExtensionType):
            array.validate()
        elif kind in _OFFSET_TYPES:
            _check_offsets_and_text(array)
        else:
            array.validate(full=not pa.types.is_primitive(kind))
    except (pa.ArrowException, LookupError) as error:
        row = first_failure(len(array), lambda a, b: array.slice(a, b - a).validate(full=True))
        raise InvalidRow(row, field, f"the Arrow data is damaged: {error}") from None


def _check_offsets_and_text(array: pa.Array) -> None:
    array.validate()
    if len(array) == 0:
        return
    offsets = _offset_buffer(array)
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    data = array.buffers()[2]
    if not (offsets[1:] >= offsets[:-1]).all() or (
        text
        and data is not None
        and not _is_ascii(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]])
    ):
        array.validate(full=True)


def _offset_buffer(array: pa.Array) -> np.ndarray[Any, np.dtype[Any]]:
    dtype = np.dtype(_OFFSET_TYPES[array.type])
    start = array.offset * dtype.itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array) + 1, start)


def _is_ascii(data: np.ndarray[Any, np.dtype[np.uint8]]) -> bool:
    whole = len(data) // 8 * 8
    bits = np.bitwise_or.reduce(data[:whole].view(np.uint64), initial=0)
    return not int(bits) & 0x8080_8080_8080_8080 and not (data[whole:] & 0x80).any()


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
        _first_value(array), field, f"the data is {array.type} and the column is {kind}{hint}"
    )


def _cast(array: pa.Array, target: pa.DataType, field: str, reason: str) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        row = first_failure(len(array), lambda a, b: array.slice(a, b - a).cast(target))
        raise InvalidRow(row, field, f"{_shown_at(array, row)} {reason}") from None


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
    return InvalidRow(
        row, field, f"{_shown_at(array, row)} is not exactly a {kind}: round it first"
    )


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
    offsets = _offset_buffer(array)
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
            raise InvalidRow(_first_value(array), f"{field}.{name}", f"it is {reason}")
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
            raise InvalidRow(row, path, "it is null and must not be")
    return out


class RowsOf:
    """Names the row that holds an element, in errors that name the element."""

    def __init__(self, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._offsets = offsets

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, InvalidRow) and error.row is not None:
            row = int(np.searchsorted(self._offsets, error.row, side="right")) - 1
            raise InvalidRow(row, error.field, error.reason) from None


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
