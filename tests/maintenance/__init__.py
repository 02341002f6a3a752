"""Tests of strandline.maintenance."""
