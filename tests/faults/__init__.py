"""Faults at any single operation of a store or a disk, and the checks that follow a restart."""
