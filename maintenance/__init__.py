"""Care for a table: checks and repairs, above readers and writers."""
