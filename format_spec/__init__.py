"""JSON Schemas, golden tables and conformance cases of the format."""
