"""Rows into data files."""
