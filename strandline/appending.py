"""What callers of `append` and its kin give, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.arguments import check_count, check_text
from strandline.tableformat.actions import MAX_FENCE_BYTES, MAX_WRITER_ID_BYTES, ExternalKey
from strandline.tableformat.errors import InvalidInput
from strandline.writers.append import Conditions

MAX_PROPERTIES_BYTES: Final = 4_096


def conditions_from(
    writer_id: object, batch: object, fence: object, match_seq: object
) -> Conditions:
    """What an append asks for, checked."""
    if (writer_id is None) != (batch is None):
        raise InvalidInput("writer_id and batch go together: give both, or neither")
    writer = check_text("writer_id", writer_id, MAX_WRITER_ID_BYTES)
    number = check_count("batch", batch)
    key = None if writer is None or number is None else ExternalKey(writer, number)
    return Conditions(
        key=key,
        fence=check_text("fence", fence, MAX_FENCE_BYTES),
        match_seq=check_count("match_seq", match_seq),
    )


def properties_from(given: object) -> tuple[tuple[str, str], ...]:
    """What a commit shall carry, checked."""
    if given is None:
        return ()
    pairs = tuple(given.items()) if isinstance(given, Mapping) else None
    if pairs is None or any(not isinstance(text, str) for pair in pairs for text in pair):
        raise InvalidInput("properties map text to text")
    try:
        size = sum(len(text.encode()) for pair in pairs for text in pair)
    except UnicodeEncodeError:
        raise InvalidInput("properties must be valid Unicode text") from None
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidInput(f"properties may take {MAX_PROPERTIES_BYTES} bytes in all")
    return pairs
