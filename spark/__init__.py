"""Spark reads Strandline tables."""
