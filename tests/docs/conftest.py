"""Spark for the pages that show it: the same session that the Spark tests use."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
