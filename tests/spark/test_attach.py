"""A catalog's tables as views of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strandline
import strandline.spark
from tests.tables import SCHEMA, events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> Iterator[strandline.Catalog]:
    """Two tables in two namespaces, attached."""
    made = strandline.Catalog(tmp_path / "lake")
    made.create_namespace("web", exist_ok=True)
    made.create_table("orders", SCHEMA, time_column="ts").append(events(0, 10))
    made.create_table("web.clicks", SCHEMA, time_column="ts").append(events(0, 5))
    yield made
    strandline.spark.detach(spark)


def test_views_are_pinned_and_move_together(
    spark: SparkSession, catalog: strandline.Catalog
) -> None:
    """[C11] Plain SQL over all tables; versions change when asked for, all at once."""
    names = strandline.spark.attach(spark, catalog.url)
    both = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM web_clicks)"
    assert sorted(names) == ["orders", "web_clicks"]
    assert tuple(spark.sql(both).collect()[0]) == (10, 5)
    catalog.append("orders", events(10, 1))
    catalog.append("web.clicks", events(5, 2))

    assert tuple(spark.sql(both).collect()[0]) == (10, 5)
    strandline.spark.refresh(spark)
    assert tuple(spark.sql(both).collect()[0]) == (11, 7)
    catalog.append("orders", events(11, 1))
    assert tuple(strandline.spark.sql(spark, both).collect()[0]) == (12, 7)


def test_tables_come_and_go(spark: SparkSession, catalog: strandline.Catalog) -> None:
    """[C11] `refresh` finds new tables and drops the views of dropped ones; `detach` drops all."""
    strandline.spark.attach(spark, catalog.url, prefix="lake_")
    catalog.create_table("more", {"n": "int64"}).append([{"n": 1}])
    catalog.drop_table("web.clicks")

    assert sorted(strandline.spark.refresh(spark)) == ["lake_more", "lake_orders"]
    assert not spark.catalog.tableExists("lake_web_clicks")
    strandline.spark.detach(spark, catalog.url)
    assert not spark.catalog.tableExists("lake_orders")
    with pytest.raises(strandline.InvalidInput, match="no catalog at"):
        strandline.spark.detach(spark, catalog.url)


def test_tables_about_tables(spark: SparkSession, catalog: strandline.Catalog) -> None:
    """[C6] History, files, windows, segments and indexes in SQL."""
    strandline.spark.attach(spark, catalog.url, hidden_columns=True)

    operations = spark.sql("SELECT operation FROM orders__history ORDER BY version").collect()
    assert [row.operation for row in operations] == ["create", "append"]
    assert spark.sql("SELECT sum(row_count) FROM orders__files").collect()[0][0] == 10
    assert spark.sql("SELECT sum(row_count), sum(files) FROM orders__windows").collect()[0] == (
        10,
        1,
    )
    assert spark.sql("SELECT min_seq, max_seq FROM orders__segments").collect()[0] == (0, 9)
    assert spark.sql("SELECT count(*) FROM orders__indexes").collect()[0][0] == 0
    assert spark.sql("SELECT max(_seq) FROM orders").collect()[0][0] == 9
