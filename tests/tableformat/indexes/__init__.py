"""Index kinds against the rows they were built from."""
