"""One Spark session for the whole run: starting it costs more than most tests."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark, or skip where there is no Java."""
    pytest.importorskip("pyspark")
    try:
        session = strandline.spark.session("strandline tests")
    except strandline.spark.JavaMissing as error:
        pytest.skip(str(error))
    yield session
    with warnings.catch_warnings():
        # The pipe to the Java process is closed by its end, not by PySpark.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
