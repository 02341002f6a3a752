"""Remembered queries: answers that are kept, and brought up to date by what was appended since."""
