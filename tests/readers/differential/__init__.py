"""Scans against DuckDB over the same rows: random tables, random filters, identical answers."""
