"""Index kinds: what each keeps of a column, as bytes, and which zones it can rule out."""
