"""Tests of strandline.readers."""
