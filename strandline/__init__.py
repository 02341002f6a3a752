"""Strandline: a table format for event streams on object storage."""
