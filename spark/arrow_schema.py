"""Spark's columns as Arrow has them, in the words of whatever PySpark is installed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas import types

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark compares the batches of a data source with, times in UTC."""
    convert: Any = types.to_arrow_schema
    # Until PySpark 4.2 times were in UTC unless told otherwise, under another argument's name.
    if "timezone" in inspect.signature(convert).parameters:
        return convert(schema, timezone="UTC")
    return convert(schema)
