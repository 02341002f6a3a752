"""Damaged and hostile bytes: an error or the right rows, and never more memory than is sane."""
