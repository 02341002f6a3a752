"""A catalog's tables as views of a session."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

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


def test_any_name_is_a_view_of_its_own(spark: SparkSession, catalog: strandline.Catalog) -> None:
    """[C11] [O5] Names that SQL does not take get a suffix, the same each time, that tells them."""
    given = ["\u65e5\u672c", "\u4e2d\u56fd", "2024", "1e5", "a-b", "a.b"]
    for number, name in enumerate(given):
        catalog.create_table(("default", name), {"n": "int64"}).append([{"n": number}])
    catalog.create_table("inbox", {"n": "int64"}, scope="user")

    names = strandline.spark.attach(spark, catalog.url)

    listed = [info.name for info in catalog.list_tables()]
    listed.remove("inbox")
    views = dict(zip([*listed, "clicks"], names, strict=True))
    assert all(re.fullmatch(r"\w+_[0-9a-f]{8}", views[name], re.ASCII) for name in given)
    for number, name in enumerate(given):
        assert spark.sql(f"SELECT n FROM {views[name]}").collect() == [(number,)]
    assert (views["orders"], views["clicks"]) == ("orders", "web_clicks")
    assert strandline.spark.refresh(spark) == names
    assert "y2024" in strandline.spark.attach(spark, catalog.url, prefix="y")


@pytest.mark.parametrize("other", ["Orders", "orders__files", "ORDERS__History"])
def test_no_view_takes_the_place_of_another(
    spark: SparkSession, catalog: strandline.Catalog, other: str
) -> None:
    """[C11] Spark does not tell capitals apart: an error, and what was attached stays."""
    strandline.spark.attach(spark, catalog.url)
    catalog.create_table(("default", other), {"n": "int64"}).append([{"n": 1}])

    with pytest.raises(strandline.InvalidInput, match="No view was changed"):
        strandline.spark.refresh(spark)

    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 10
    assert spark.sql("SELECT sum(row_count) FROM orders__files").collect()[0][0] == 10
    catalog.drop_table("orders")
    if other != "Orders":
        return
    assert strandline.spark.refresh(spark) == ["Orders", "web_clicks"]
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 1


def test_two_catalogs_have_views_apart(
    spark: SparkSession, catalog: strandline.Catalog, tmp_path: Path
) -> None:
    """[C11] The second one's tables would hide the first one's: it takes a prefix."""
    strandline.spark.attach(spark, catalog.url)
    second = strandline.Catalog(tmp_path / "second")
    second.create_table("ORDERS", {"n": "int64"}).append([{"n": 1}])

    with pytest.raises(strandline.InvalidInput, match="prefix"):
        strandline.spark.attach(spark, second.url)

    assert strandline.spark.attach(spark, second.url, prefix="s_") == ["s_ORDERS"]
    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 10


def test_namespaces_attached_apart_have_views_apart(
    spark: SparkSession, catalog: strandline.Catalog
) -> None:
    """[C11] Of one catalog, too: a view is never silently that of another table."""
    catalog.create_table("web_clicks", {"n": "int64"}).append([{"n": 1}])
    strandline.spark.attach(spark, catalog.url, namespaces=["default"])

    with pytest.raises(strandline.InvalidInput, match="prefix"):
        strandline.spark.attach(spark, catalog.url, namespaces=["web"])

    assert spark.sql("SELECT count(*) FROM web_clicks").collect()[0][0] == 1
    again = strandline.spark.attach(spark, catalog.url, namespaces=["default"], hidden_columns=True)
    assert again == ["orders", "web_clicks"]
    catalog.drop_table("orders")
    catalog.create_table("orders", {"n": "int64"}).append([{"n": 1}])
    assert strandline.spark.refresh(spark) == again * 2


def test_tables_about_a_table_are_of_its_views_version(
    spark: SparkSession, catalog: strandline.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[C6] A commit in the middle of `attach` is in none of the views."""
    attaching: Any = sys.modules["strandline.spark.attach"]
    pinned = attaching._pinned  # noqa: SLF001

    def late(*given: Any) -> Any:
        frame = pinned(*given)
        catalog.append("orders", events(10, 1))
        return frame

    monkeypatch.setattr(attaching, "_pinned", late)
    strandline.spark.attach(spark, catalog.url, namespaces=["default"])

    assert spark.sql("SELECT count(*) FROM orders").collect()[0][0] == 10
    assert spark.sql("SELECT sum(row_count) FROM orders__files").collect()[0][0] == 10
    assert spark.sql("SELECT max(version) FROM orders__history").collect()[0][0] == 2


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
