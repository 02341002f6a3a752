"""Tests of the table format's core."""
