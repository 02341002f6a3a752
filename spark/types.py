"""Column types as Spark knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from strandline.tableformat.types import ColumnType

_NAMES = {
    "bool": "BooleanType",
    "int8": "ByteType",
    "int16": "ShortType",
    "int32": "IntegerType",
    "int64": "LongType",
    # Spark has no unsigned integers; the next wider signed type holds every value.
    "uint8": "ShortType",
    "uint16": "IntegerType",
    "uint32": "LongType",
    "float32": "FloatType",
    "float64": "DoubleType",
    "date": "DateType",
    "timestamp": "TimestampNTZType",
    "timestamptz": "TimestampType",
    "string": "StringType",
    "binary": "BinaryType",
}


def spark_type(kind: ColumnType) -> DataType:
    """The Spark type that holds every value of a column type."""
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - Spark's own habit; optional

    if kind.name == "decimal":
        return T.DecimalType(kind.precision, kind.scale)
    if kind.name == "list":
        (element,) = kind.children
        return T.ArrayType(spark_type(element.type), element.nullable)
    if kind.name == "map":
        key, value = kind.children
        return T.MapType(spark_type(key.type), spark_type(value.type), value.nullable)
    if kind.name == "struct":
        fields = [T.StructField(f.name, spark_type(f.type), f.nullable) for f in kind.children]
        return T.StructType(fields)
    made: DataType = getattr(T, _NAMES[kind.name])()
    return made
