"""A Spark session for each file, one after the other in one process and one Java machine."""

from __future__ import annotations

import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import strandline.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark 4.1 leaves the sockets that bring rows to the garbage collector."""
    try:
        leaves_sockets = version("pyspark").startswith("4.1.")
    except PackageNotFoundError:
        return
    for item in items:
        if leaves_sockets and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


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
