"""Tests of the specification, its schemas, golden tables and the conformance kit."""
