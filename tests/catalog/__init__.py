"""Tests of strandline.catalog."""
