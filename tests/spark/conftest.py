"""A Spark session for each file, one after the other in one process and one Java machine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Start Spark, or skip where there is no Java; without `enable` for the Python data source."""
    native = "test_source_" not in request.module.__name__
    pytest.importorskip("pyspark")
    try:
        session = strandline.spark.session("strandline tests", native=native)
    except strandline.spark.JavaMissing as error:
        pytest.skip(str(error))
    yield session
    with warnings.catch_warnings():
        # The pipe to the Java process is closed by its end, not by PySpark.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
