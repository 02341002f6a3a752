"""The name under which Spark finds the Strandline data source."""

from strandline.spark.source import StrandlineSource as DefaultSource

__all__ = ["DefaultSource"]
