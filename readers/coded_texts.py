"""Tables whose texts come partly as codes, as one table with one dictionary for each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


def coded(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; columns of texts or bytes dictionary-encoded, all others as told."""
    fields = [_coded_field(field) for field in schema]
    columns = []
    for number, field in enumerate(fields):
        chunks = [chunk for table in tables for chunk in table.column(number).chunks]
        if pa.types.is_dictionary(field.type):
            chunks = [_coded_chunk(chunk, field.type) for chunk in chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields)).unify_dictionaries()


def _coded_field(field: pa.Field) -> pa.Field:
    kind = field.type
    texts = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return field.with_type(pa.dictionary(pa.int32(), kind)) if texts else field


def _coded_chunk(chunk: Any, kind: pa.DataType) -> pa.Array:
    found = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
    return found if found.type == kind else found.cast(kind)
