"""Stream tables."""
