"""Remembered queries."""
