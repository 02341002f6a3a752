"""What callers pass, checked before anything happens."""

from __future__ import annotations

from strandline.tableformat.errors import InvalidInput
from strandline.tableformat.values import INT64_MAX


def check_text(what: str, given: object, most_bytes: int) -> str | None:
    """Text of a bounded length, or None."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            if 0 < len(given.encode()) <= most_bytes:
                return given
        except UnicodeEncodeError:
            pass
    raise InvalidInput(f"{what} must be text of 1 to {most_bytes} bytes")


def check_count(what: str, given: object) -> int | None:
    """A number of 0 or more, or None."""
    if given is None or (type(given) is int and 0 <= given <= INT64_MAX):
        return given
    raise InvalidInput(f"{what} must be an integer of 0 or more, not {given!r}")
