"""Versions of a table: finding, reading and committing them."""
