"""Whatever a caller appends, as an Arrow table with exactly the columns of the schema.

This is where data enters: after it, types and nulls are as the schema says, and every refusal
has named its row and field before anything was written. Rows are counted from 0.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.tableformat import types
from strandline.tableformat.conform import conform_column
from strandline.tableformat.errors import InvalidInput, InvalidRow
from strandline.tableformat.misfits import first_true, shown
from strandline.tableformat.pyvalues import column_from_python, unknown_key
from strandline.tableformat.schema import from_stat_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.tableformat.schema import Column, Schema

_MOST_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class _Given:
    """The data, taken apart into columns that are not yet checked."""

    rows: int
    columns: Mapping[str, pa.ChunkedArray | list[Any]]
    absent: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]] = field(default_factory=dict)
    """For columns with a default: which rows leave the column out."""


def to_arrow(data: object, schema: Schema) -> pa.Table:
    """The data as a table with the schema's columns, in their order, with their exact types.

    Columns and chunks that have the right type are passed on without a copy. Values are
    converted only where nothing is lost; the first one that does not fit is refused by name.
    """
    given = _take_apart(data, schema)
    columns: list[pa.ChunkedArray] = []
    errors: list[InvalidRow] = []
    for column in schema.columns:
        try:
            columns.append(_column(given, column))
        except InvalidRow as error:
            errors.append(error)
    if errors:
        raise min(errors, key=lambda error: -1 if error.row is None else error.row)
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def check_columns(given: pa.Schema, schema: Schema) -> None:
    """Refuse columns of which no row could be taken, before there are any rows."""
    _check_names(given.names, schema)
    for name, kind in zip(given.names, given.types, strict=True):
        conform_column(pa.chunked_array([pa.nulls(1, kind)]), schema.column(name).type, name)


# --- one column -------------------------------------------------------------------------------


def _column(given: _Given, column: Column) -> pa.ChunkedArray:
    name = column.name
    values = given.columns.get(name)
    if values is None:
        out = _left_out(given.rows, column)
    elif isinstance(values, list):
        out = column_from_python(values, column.type, name)
    else:
        try:
            out = conform_column(values, column.type, name)
        except pa.ArrowException as error:  # a type for which Arrow has no conversion
            raise InvalidRow(None, name, f"{values.type} to {column.type}: {error}") from None
    if name in given.absent:
        mask = pa.array(given.absent[name])
        out = pc.if_else(mask, from_stat_values(column.type, [column.default])[0], out)
    if not column.nullable and out.null_count:
        row = first_true(out.is_null())
        raise InvalidRow(row, name, "it is null or missing, and the column must have a value")
    return out


def _left_out(rows: int, column: Column) -> pa.ChunkedArray:
    if column.default is None:
        return pa.chunked_array([pa.nulls(rows, types.to_arrow(column.type))])
    return pa.chunked_array([pa.repeat(from_stat_values(column.type, [column.default])[0], rows)])


def _check_names(names: Sequence[object], schema: Schema) -> None:
    """Every name is a column, and none comes twice."""
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"the data has two columns named {twice!r}; nothing was written")
    for name in names:
        if name not in schema.by_name:
            raise _unknown(None, name, schema)


def _unknown(row: int | None, name: object, schema: Schema) -> InvalidRow:
    if not isinstance(name, str):
        return InvalidRow(row, shown(name), "column names are text")
    if name.startswith("_"):
        reason = "names that start with '_' belong to the table; leave this column out"
        return InvalidRow(row, name, reason)
    by_lower = {column.name.lower(): column.name for column in schema.columns}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
    names = ", ".join([column.name for column in schema.columns][:_MOST_NAMES])
    more = ", …" if len(schema.columns) > _MOST_NAMES else ""
    return InvalidRow(row, name, f"there is no such column{hint} (columns: {names}{more})")


# --- taking the data apart --------------------------------------------------------------------


def _take_apart(data: object, schema: Schema) -> _Given:
    if isinstance(data, pa.Table):
        return _from_table(data, schema)
    if _is_from_pandas(data, "DataFrame"):
        return _from_pandas(data, schema)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _from_table(_import_table(data), schema)
    if isinstance(data, Mapping):
        return _from_columns(data, schema)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, bytearray)):
        return _from_rows(list(data), schema)
    raise InvalidInput(
        "rows are an Arrow table or batch, a DataFrame (pandas, Polars, DuckDB), a list of dicts "
        f"or a dict of columns, not {type(data).__name__}"
    )


def _import_table(data: Any) -> pa.Table:
    try:
        if isinstance(data, pa.RecordBatchReader):
            return data.read_all()
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        return pa.Table.from_batches([pa.record_batch(data)])
    except (pa.ArrowException, TypeError) as error:
        raise InvalidInput(
            f"the Arrow data of {type(data).__name__} cannot be read as rows: {error}"
        ) from error


def _from_table(table: pa.Table, schema: Schema) -> _Given:
    names = table.column_names
    _check_names(names, schema)
    return _Given(table.num_rows, dict(zip(names, table.columns, strict=True)))


def _from_rows(rows: list[Any], schema: Schema) -> _Given:
    for cls in set(map(type, rows)):
        if not issubclass(cls, Mapping):
            row = next(n for n, value in enumerate(rows) if type(value) is cls)
            raise InvalidInput(
                f"row {row} is {shown(rows[row])}; a row is a dict of column names and values. "
                "Nothing was written."
            )
    unknown = unknown_key(rows, frozenset(schema.by_name))
    if unknown is not None:
        raise _unknown(*unknown, schema)
    columns: dict[str, list[Any]] = {}
    absent: dict[str, np.ndarray[Any, np.dtype[np.bool_]]] = {}
    for column in schema.columns:
        name = column.name
        try:
            columns[name] = list(map(itemgetter(name), rows))
        except KeyError:
            columns[name] = [row.get(name) for row in rows]
            if column.default is not None:
                absent[name] = np.array([name not in row for row in rows])
    return _Given(len(rows), columns, absent)


def _from_columns(data: Mapping[Any, Any], schema: Schema) -> _Given:
    _check_names(list(data), schema)
    columns = {name: _one_column(name, values, schema) for name, values in data.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInput(f"the columns have different lengths: {lengths}. Nothing was written.")
    return _Given(next(iter(lengths.values()), 0), columns)


def _one_column(name: str, values: Any, schema: Schema) -> pa.ChunkedArray | list[Any]:
    if isinstance(values, pa.ChunkedArray):
        return values
    if _is_from_pandas(values, "Series"):
        return _pandas_column(name, values, schema)
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        is_object = isinstance(values, np.ndarray) and values.dtype == np.object_
        if hasattr(values, "__arrow_c_array__") or (
            isinstance(values, np.ndarray) and not is_object
        ):
            return pa.chunked_array([pa.array(values)])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRow(None, name, f"it cannot be read as a column: {error}") from None
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, bytearray, Mapping)):
        return list(values)
    raise InvalidInput(
        f"a dict is read as columns, and {name!r} is {shown(values)}, which is no list of values; "
        "a single row is given as [row]. Nothing was written."
    )


# --- pandas -----------------------------------------------------------------------------------


def _is_from_pandas(data: object, name: str) -> bool:
    """Whether it is, or extends, this class of pandas. Asking must not import pandas."""
    return any(
        cls.__name__ == name and cls.__module__.partition(".")[0] == "pandas"
        for cls in type(data).__mro__
    )


def _from_pandas(frame: Any, schema: Schema) -> _Given:
    names = list(frame.columns)
    _check_names(names, schema)
    return _Given(len(frame), {name: _pandas_column(name, frame[name], schema) for name in names})


def _pandas_column(name: str, series: Any, schema: Schema) -> pa.ChunkedArray | list[Any]:
    """A column without its index; what pandas calls missing (NaN, NaT, NA) is null."""
    if series.dtype == np.object_:
        missing = series.isna().tolist()
        return [None if m else v for v, m in zip(series.tolist(), missing, strict=True)]
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRow(None, name, f"{series.dtype} cannot be read: {error}") from None
    if (
        pa.types.is_floating(array.type)
        and array.null_count
        and schema.by_name[name].type.name in types.INTEGER_RANGES
    ):
        array = _integers_with_gaps(array)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _integers_with_gaps(array: pa.Array) -> pa.Array:
    """Integers again, which pandas keeps as floats as soon as one is missing.

    Only where all are whole and below 2^53: beyond that the float may stand for another integer.
    """
    try:
        whole = array.cast(pa.int64())
        whole.cast(pa.float64())
    except pa.ArrowInvalid:
        return array
    return whole
