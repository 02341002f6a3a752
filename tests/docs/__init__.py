"""Tests of what is written for users."""
