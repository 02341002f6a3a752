"""Which bytes to ask for: many small ranges become few requests. Pure; no store is touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.tableformat.errors import CorruptTable, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_GAP = 64 * 1024
"""Unwanted bytes between two ranges that cost less than a second request."""

MAX_SPAN = 32 * 1024 * 1024
"""A merged request stays below this, so that large reads still run in parallel."""

LOCAL_MAX_GAP, LOCAL_MAX_SPAN = 16 * 1024, 256 * 1024
"""The same for disks. To cut a long span into its ranges takes longer than another request."""


@dataclass(frozen=True, slots=True)
class Span:
    """One request: `length` bytes of an object, and which of the asked ranges they answer."""

    path: str
    start: int
    length: int
    answers: tuple[int, ...]


def plan_spans(
    requests: Sequence[tuple[str, int, int]], *, max_gap: int = MAX_GAP, max_span: int = MAX_SPAN
) -> list[Span]:
    """Merge neighbouring ranges of one object while the merged request stays small.

    A single range is never split, however long: the caller chose it.
    """
    for path, start, length in requests:
        if start < 0 or length < 0:
            raise InvalidInput(f"range {start}+{length} of {path!r} is negative")
    order = sorted(range(len(requests)), key=lambda index: requests[index])
    merged: list[tuple[str, int, int, list[int]]] = []
    for index in order:
        path, start, length = requests[index]
        if length == 0:
            continue
        if merged:
            last_path, last_start, last_length, answers = merged[-1]
            joined = max(start + length, last_start + last_length) - last_start
            near = last_path == path and start - last_start - last_length <= max_gap
            if near and joined <= max(max_span, last_length):
                answers.append(index)
                merged[-1] = (path, last_start, joined, answers)
                continue
        merged.append((path, start, length, [index]))
    return [Span(path, start, size, tuple(answers)) for path, start, size, answers in merged]


def take_ranges(
    requests: Sequence[tuple[str, int, int]], spans: Sequence[Span], blobs: Sequence[bytes]
) -> list[bytes]:
    """Cut the fetched spans back into the ranges that were asked for, in their order."""
    ranges = [b""] * len(requests)
    for span, blob in zip(spans, blobs, strict=True):
        if len(blob) != span.length:
            raise CorruptTable(
                f"{span.path} is shorter than its metadata says: of the {span.length} bytes from "
                f"byte {span.start} on, {len(blob)} exist"
            )
        for index in span.answers:
            _, start, length = requests[index]
            begin = start - span.start
            ranges[index] = blob if length == span.length else blob[begin : begin + length]
    return ranges
