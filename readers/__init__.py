"""Data files into rows."""
