"""Spark: tables as DataFrames. Importing this does not import PySpark."""

from strandline.spark.enable import enable
from strandline.spark.java import JavaMissing
from strandline.spark.jvm import JvmUnreachable
from strandline.spark.read import read
from strandline.spark.session import session
from strandline.spark.stream_tables import read_stream_table

__all__ = ["JavaMissing", "JvmUnreachable", "enable", "read", "read_stream_table", "session"]
