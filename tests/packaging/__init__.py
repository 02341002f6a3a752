"""Tests of what is installed."""
